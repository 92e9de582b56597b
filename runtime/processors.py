"""Logits processors as transformers lists them, read for one row: fields of a Request, and a hook for the rest.

A Request shapes a row in its own order (`runtime/shaping.py`): constraints, hooks, repetition penalty, bias, temperature,
top-k, top-p, min-p. transformers applies processors in the order of the list. So the list is cut in two: the longest
end of it that fits the Request's order becomes fields, and everything before that goes into one hook, which runs the
processors themselves, in their order, on float32 scores and on the row as transformers would show it (padding included).
The hook comes before the fields, so nothing is reordered.

A processor that keeps state between calls is never put into a hook, because speculation scores many continuations in no
fixed order (`processor_state.py` detects this for processors that transformers does not have).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from decgraph.errors import DecError
from decgraph.runtime.processor_state import changed, print_of

if TYPE_CHECKING:
    import torch
    from transformers import GenerationConfig

Processor = Any  # a LogitsProcessor, or any callable (input_ids, scores) -> scores


@dataclass(frozen=True)
class PaddedPrompt:
    """One sequence of the batch: the tokens that are masked, its prompt, and the places of the prompt's tokens. `pads + prompt`
    is the row as given, but where tokens between those of the prompt are masked (`holes`)."""

    index: int
    pads: tuple[int, ...]
    prompt: tuple[int, ...]
    places: tuple[int, ...] = ()

    @property
    def holes(self) -> bool:
        """Whether tokens between those of the prompt are masked."""
        return bool(self.places) and self.places[-1] - self.places[0] >= len(self.places)


@dataclass
class Shaping:
    """How one row is shaped: fields of `runtime.request.Request`, and `hook`, one of its `processors`, or None."""

    fields: dict[str, Any] = field(default_factory=dict)
    hook: Hook | None = None


class Hook:
    """Logits processors of one row as a function of (path, logits float64[V]).

    `width` is how many scores the model returns; a decgraph model may have fewer tokens, whose scores come first.
    """

    def __init__(self, steps: Sequence[Processor], row: PaddedPrompt, width: int, device: torch.device) -> None:
        self.steps, self.pads, self.width, self.device = list(steps), row.pads, width, device

    def __call__(self, path: tuple[int, ...], logits: np.ndarray) -> np.ndarray:
        import torch

        scores = torch.full((1, max(self.width, len(logits))), float("-inf"), dtype=torch.float32)
        scores[0, : len(logits)] = torch.from_numpy(np.ascontiguousarray(logits))
        scores = scores.to(self.device)
        ids = torch.tensor([[*self.pads, *path]], dtype=torch.long, device=self.device)
        for step in self.steps:
            scores = ask(step, ids, scores)
        made: np.ndarray = scores[0, : len(logits)].double().cpu().numpy()
        if np.isnan(made).any() or np.isposinf(made).any():
            raise DecError(
                f"{self!r} must return finite scores or -inf, and returned NaN or inf", hint="look for 0 / 0 and inf - inf"
            )
        if not (made > -np.inf).any():
            raise DecError(f"{self!r} left no token that may follow", hint="let one have a score above -inf")
        return made

    def __repr__(self) -> str:
        names = ", ".join(name_of(step) for step in self.steps)
        return f"the logits processor{'s' if len(self.steps) > 1 else ''} {names}"


def name_of(processor: Processor) -> str:
    """The name of a processor or a criterion in messages: the function's, or the class's."""
    return str(getattr(processor, "__qualname__", type(processor).__name__)).replace("<locals>.", "")


def ask(processor: Processor, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """The scores [1, V] of a processor. Raises DecError naming it for any exception of it and for another shape."""
    try:
        made = processor(ids, scores)
    except DecError:
        raise
    except Exception as error:  # the caller's code: whatever it raises is the caller's to read
        raise DecError(
            f"the logits processor {name_of(processor)} raised {type(error).__name__}: {error}",
            hint="it is called with one sequence: input_ids [1, length], scores [1, vocabulary]",
        ) from error
    if getattr(made, "shape", None) != scores.shape:
        got = list(made.shape) if hasattr(made, "shape") else type(made).__name__
        raise DecError(
            f"the logits processor {name_of(processor)} gave {got}, not scores of shape {list(scores.shape)}",
            hint="return a score for each token",
        )
    return made


# transformers' processors that are pure functions of (input_ids, scores).
PURE = frozenset(
    {
        "MinLengthLogitsProcessor",
        "MinNewTokensLengthLogitsProcessor",
        "TemperatureLogitsWarper",
        "RepetitionPenaltyLogitsProcessor",
        "EncoderRepetitionPenaltyLogitsProcessor",
        "TopPLogitsWarper",
        "TopKLogitsWarper",
        "TopHLogitsWarper",
        "MinPLogitsWarper",
        "TypicalLogitsWarper",
        "EpsilonLogitsWarper",
        "EtaLogitsWarper",
        "NoRepeatNGramLogitsProcessor",
        "SequenceBiasLogitsProcessor",
        "EncoderNoRepeatNGramLogitsProcessor",
        "NoBadWordsLogitsProcessor",
        "PrefixConstrainedLogitsProcessor",
        "ForcedBOSTokenLogitsProcessor",
        "ForcedEOSTokenLogitsProcessor",
        "InfNanRemoveLogitsProcessor",
        "ExponentialDecayLengthPenalty",
        "LogitNormalization",
        "SuppressTokensAtBeginLogitsProcessor",
        "SuppressTokensLogitsProcessor",
        "WatermarkLogitsProcessor",
    }
)

# transformers' processors with state between calls, and which.
STATEFUL = {
    "UnbatchedClassifierFreeGuidanceLogitsProcessor": "it keeps a cache of the unconditional text (guidance_scale)",
    "SynthIDTextWatermarkLogitsProcessor": "it keeps the contexts it has seen (watermarking_config)",
    "DiaEOSDelayPatternLogitsProcessor": "it counts down from call to call",
    "WhisperNoSpeechDetection": "it keeps what it found in the first call",
}

# transformers' processors that need more than one row of scores for a sequence, or another kind of model.
FOREIGN = frozenset(
    {
        "ClassifierFreeGuidanceLogitsProcessor",
        "DiaClassifierFreeGuidanceLogitsProcessor",
        "DiaEOSChannelFilterLogitsProcessor",
        "AlternatingCodebooksLogitsProcessor",
        "BarkEosPrioritizerLogitsProcessor",
        "WhisperTimeStampLogitsProcessor",
    }
)


@dataclass(frozen=True)
class BatchReading:
    """The common inputs of every row's reading. length: of the batch as given, padding included. copies: num_return_sequences.

    eos: the ids that end a run. width: how many scores the model returns. size: the decgraph model's number of tokens.
    adjusts: whether the program adds up scores that processors changed and nobody normalised, as transformers' beams do.
    """

    greedy: bool
    length: int
    copies: int
    eos: frozenset[int]
    width: int
    size: int
    device: torch.device
    adjusts: bool = False


def refuse_state(processors: Sequence[Processor], reading: BatchReading, row: PaddedPrompt) -> None:
    """Raises DecError, naming the processor, for one that keeps state between calls or cannot be called for one sequence.

    transformers' own are known by name; others are called with the row's prompt, twice alike and once otherwise.
    """
    import torch

    for processor in processors:
        name, own = type(processor).__name__, _is_theirs(processor)
        if own and name in STATEFUL:
            raise _stateful(name, STATEFUL[name])
        if own and name in FOREIGN:
            raise DecError(f"the logits processor {name} is not supported: it belongs to another kind of model")
        if own and name in PURE:
            continue
        ids = torch.tensor([[*row.pads, *row.prompt]], dtype=torch.long, device=reading.device)
        scores = torch.linspace(-1.0, 1.0, reading.width, device=reading.device)[None]
        first = ask(processor, ids, scores.clone())  # a call may prepare what later calls read; from now on nothing may change
        before = print_of(processor)
        ask(processor, torch.cat([ids, ids[:, -1:]], dim=1), scores.flip(1))
        again = ask(processor, ids, scores.clone())
        refuse_change(processor, before)
        if not bool(((first == again) | (first.isnan() & again.isnan())).all()):
            raise _stateful(name_of(processor), "called twice with the same tokens, it returned different scores")


def refuse_change(processor: Processor, before: dict[str, object]) -> None:
    """Raises DecError if a processor's state has changed since `before`."""
    if names := changed(before, print_of(processor)):
        raise _stateful(name_of(processor), f"its {', '.join(names)} changed from one call to the next")


def _stateful(name: str, why: str) -> DecError:
    return DecError(
        f"the logits processor {name} keeps state between calls: {why}",
        hint="compute what it remembers from input_ids, or use generate without custom_generate: here many "
        "continuations are asked about, in no fixed order",
    )


def watched(processors: Sequence[Processor]) -> list[tuple[Processor, dict[str, object]]]:
    """The processors that transformers does not have, each with its present state; for `refuse_change` after the run."""
    return [(p, print_of(p)) for p in processors if not (_is_theirs(p) and type(p).__name__ in PURE)]


def _is_theirs(processor: Processor) -> bool:
    return type(processor).__module__.startswith("transformers.")


def shaping_of(processors: Sequence[Processor], reading: BatchReading, row: PaddedPrompt) -> Shaping:
    """One row's shaping: fields for the longest end of the list that fits a Request's order, a hook for the rest."""
    found = [_mapped(p, reading, row) for p in processors]
    cut, stage, last = len(found), _LAST + 1, 0  # last: the place after the last constraint
    while cut:
        mapped = found[cut - 1]
        if mapped is None or mapped.stage >= stage or (last and mapped.stage in _FILTERS):
            break
        if mapped.stage:
            stage = mapped.stage
        else:
            last = max(last, cut)
        cut -= 1
    if cut:  # a Request's constraints come before its hook, so those that come after what is hooked are hooked as well
        cut = max(cut, last)
    if reading.adjusts:  # a Request's constraints renormalise, which would move scores of one text against those of another
        drawing = (_TEMPERATURE, *_FILTERS)
        cut = max((n for n, mapped in enumerate(found, 1) if mapped is None or mapped.stage not in drawing), default=0)
    made = Shaping()
    for mapped in found[cut:]:
        _merge(made.fields, mapped.fields if mapped is not None else {})
    if cut:
        steps = [_for_row(p, reading, row) for p in processors[:cut]]
        made.hook = Hook(steps, row, reading.width, reading.device)
    if reading.greedy:  # the remaining ones never change the argmax
        for name in _FILTER_FIELDS:
            made.fields.pop(name, None)
        made.fields["temperature"] = 0
    return made


def _merge(fields: dict[str, Any], more: dict[str, Any]) -> None:
    for name, value in more.items():
        if name == "bans":
            value = fields.get(name, frozenset()) | value
        elif name == "min_length":
            value = max(fields.get(name, 0), value)
        fields[name] = value


@dataclass(frozen=True)
class _Mapped:
    """A processor as fields. stage: its place in the Request's order; 0: a constraint, which commutes with all but filters."""

    stage: int
    fields: dict[str, Any]


_PENALTY, _BIAS, _TEMPERATURE, _TOP_K, _TOP_P, _MIN_P, _LAST = range(1, 8)
_FILTERS = (_TOP_K, _TOP_P, _MIN_P)
_FILTER_FIELDS = ("top_k", "top_p", "min_p")


def _mapped(p: Processor, reading: BatchReading, row: PaddedPrompt) -> _Mapped | None:
    """What a Request can do exactly as the processor does, or None."""
    if not _is_theirs(p):
        return None
    rule = _RULES.get(type(p).__name__)
    return rule(p, reading, row) if rule is not None else None


def _whole(p: Processor) -> bool:
    """Whether a warper removes tokens for good, and keeps one at least."""
    return bool(p.filter_value == -float("inf") and getattr(p, "min_tokens_to_keep", 1) == 1)


def _ids(tokens: Any) -> frozenset[int]:
    return frozenset(int(t) for t in (tokens.flatten().tolist() if hasattr(tokens, "flatten") else tokens))


def _min_length(p: Processor, reading: BatchReading, row: PaddedPrompt) -> _Mapped | None:
    if {t for t in _ids(p.eos_token_id) if 0 <= t < reading.size} != reading.eos:
        return None
    if type(p).__name__ == "MinLengthLogitsProcessor":
        least = int(p.min_length) - reading.length
    else:
        least = int(p.min_new_tokens) + int(p.prompt_length_to_skip) - reading.length
    return _Mapped(0, {"min_length": max(0, least)})


def _suppressed(p: Processor, reading: BatchReading, row: PaddedPrompt) -> _Mapped:
    return _Mapped(0, {"bans": frozenset(t for t in _ids(p.suppress_tokens) if 0 <= t < reading.size)})


def _biased(p: Processor, reading: BatchReading, row: PaddedPrompt) -> _Mapped | None:
    if any(len(tokens) != 1 or amount == float("inf") for tokens, amount in p.sequence_bias.items()):
        return None
    single = {int(tokens[0]): float(amount) for tokens, amount in p.sequence_bias.items() if tokens[0] < reading.size}
    bans = frozenset(t for t, amount in single.items() if amount == -float("inf"))
    bias = {t: amount for t, amount in single.items() if t not in bans}
    return _Mapped(_BIAS, {"bans": bans, "bias": bias}) if bias else _Mapped(0, {"bans": bans})


def _penalty(p: Processor, reading: BatchReading, row: PaddedPrompt) -> _Mapped | None:
    ignored = getattr(p, "prompt_ignore_length", None)
    if ignored is None:
        ignored = 0
    elif hasattr(ignored, "tolist"):
        ignored = ignored.flatten().tolist()[row.index]
    # A Request counts every token of the prompt and none of the padding. Otherwise the processor itself runs.
    return _Mapped(_PENALTY, {"repetition_penalty": float(p.penalty)}) if ignored == len(row.pads) else None


def _temperature(p: Processor, reading: BatchReading, row: PaddedPrompt) -> _Mapped:
    return _Mapped(_TEMPERATURE, {"temperature": float(p.temperature)})


def _top_k(p: Processor, reading: BatchReading, row: PaddedPrompt) -> _Mapped | None:
    return _Mapped(_TOP_K, {"top_k": int(p.top_k)}) if p.filter_value == -float("inf") else None


def _top_p(p: Processor, reading: BatchReading, row: PaddedPrompt) -> _Mapped | None:
    return _Mapped(_TOP_P, {"top_p": float(p.top_p)}) if _whole(p) and p.top_p > 0 else None


def _min_p(p: Processor, reading: BatchReading, row: PaddedPrompt) -> _Mapped | None:
    return _Mapped(_MIN_P, {"min_p": float(p.min_p)}) if _whole(p) else None


def _normalised(p: Processor, reading: BatchReading, row: PaddedPrompt) -> _Mapped:
    return _Mapped(_LAST, {})  # a shift of all scores, and no later step depends on their size


_RULES: dict[str, Callable[[Any, BatchReading, PaddedPrompt], _Mapped | None]] = {
    "MinLengthLogitsProcessor": _min_length,
    "MinNewTokensLengthLogitsProcessor": _min_length,
    "SuppressTokensLogitsProcessor": _suppressed,
    "SequenceBiasLogitsProcessor": _biased,
    "NoBadWordsLogitsProcessor": _biased,
    "RepetitionPenaltyLogitsProcessor": _penalty,
    "TemperatureLogitsWarper": _temperature,
    "TopKLogitsWarper": _top_k,
    "TopPLogitsWarper": _top_p,
    "MinPLogitsWarper": _min_p,
    "LogitNormalization": _normalised,
}


def _for_row(p: Processor, reading: BatchReading, row: PaddedPrompt) -> Processor:
    """The processor for this row alone: its attributes with a row per sequence are cut to this row."""
    if not _is_theirs(p):
        return p
    prompt = row.index // reading.copies  # the row of the batch before num_return_sequences multiplied it
    match type(p).__name__:
        case "RepetitionPenaltyLogitsProcessor" if hasattr(getattr(p, "prompt_ignore_length", None), "tolist"):
            return _with(p, prompt_ignore_length=p.prompt_ignore_length[row.index : row.index + 1])
        case "EncoderRepetitionPenaltyLogitsProcessor":
            return _with(p, encoder_input_ids=p.encoder_input_ids[prompt : prompt + 1])
        case "EncoderNoRepeatNGramLogitsProcessor":
            return _with(p, generated_ngrams=p.generated_ngrams[prompt : prompt + 1], batch_size=1)
        case "PrefixConstrainedLogitsProcessor":
            allowed = p._prefix_allowed_tokens_fn
            return _with(p, _prefix_allowed_tokens_fn=lambda _, ids: allowed(row.index, ids), _num_beams=1)
    return p


def _with(p: Processor, **attributes: Any) -> Processor:
    made = copy.copy(p)
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


def listed(config: GenerationConfig, ids: torch.Tensor, eos: Collection[int], width: int = 0) -> list[Processor]:
    """The processors that transformers' `generate` makes of a configuration for prompts int64[B, T], in its order. width: how
    many scores the model returns. Raises what transformers raises."""
    import torch
    from transformers import GenerationMixin

    config = copy.copy(config)
    config._eos_token_tensor = torch.tensor(sorted(eos), device=ids.device) if eos else None
    asker: Any = SimpleNamespace(_merge_criteria_processor_list=lambda own, more: own)
    asker.config = SimpleNamespace(is_encoder_decoder=False, get_text_config=lambda: SimpleNamespace(vocab_size=width))
    return list(
        GenerationMixin._get_logits_processor(asker, config, ids.shape[1], ids, device=str(ids.device), model_kwargs={})
    )


def of_settings(
    settings: Mapping[str, object],
    prompt: Sequence[int],
    *,
    eos: Collection[int],
    size: int,
    width: int,
    limit: int,
    place: str,
) -> Shaping:
    """The shaping of a prompt's row by generation settings, from the processors that transformers' own `generate` makes of
    them. size, width: see `BatchReading`. limit: the most new tokens. place: names the settings in errors. Raises DecError for
    settings that transformers does not take, and for processors that cannot be asked out of order."""
    import torch
    import transformers as hf

    ids, width = torch.tensor([list(prompt)]), max(size, width)
    known = hf.GenerationConfig().to_dict().keys() - {"transformers_version"}
    try:
        config = hf.GenerationConfig(**{name: value for name, value in settings.items() if name in known})
        config.update(**config._get_default_generation_params(), defaults_only=True, allow_custom_entries=True)
        config.max_length = len(prompt) + limit
        made = listed(config, ids, eos, width)
    except Exception as error:  # whatever transformers says of a value that it does not take
        said = (str(error).strip().splitlines() or [""])[0]
        raise DecError(
            f"{place} cannot be used: {type(error).__name__}: {said}", hint="correct them, or take them out"
        ) from error
    row = PaddedPrompt(0, (), tuple(prompt))
    reading = BatchReading(
        greedy=not config.do_sample, length=len(prompt), copies=1, eos=frozenset(eos), width=width, size=size, device=ids.device
    )
    refuse_state(made, reading, row)
    return shaping_of(made, reading, row)
