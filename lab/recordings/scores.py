"""Decoders that choose each token by a score of their own: momentum decoding, FSD, USCD, SCMoE, Alignment-Enhanced Decoding,
AutoDeco, Transfer Q*."""

from __future__ import annotations

import typing
from collections.abc import Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    TemperatureLogitsWarper,
    TopPLogitsWarper,
)

from decgraph.runtime.models.table import TableModel
from lab.recordings import Case
from lab.recordings.tables import Generating, Stream, draws_of, untied
from lab.recordings.upstream import Upstream

PREAMBLE = (7, 8)
"""What alignment_enhanced's system prompt reads as."""


def table(case: Case) -> TableModel:
    """A target that reads the whole text."""
    return untied(case["size"], case["seed"], window=None, sharp=case.get("sharp", 1.0))


def drafter(case: Case) -> TableModel:
    """A model that agrees with the target on many tokens."""
    return untied(case["size"], case["seed"], window=None, name="drafter", blend=(case["seed"] + 1, 0.8))


def plain_one(case: Case) -> TableModel:
    """What the drafter was before it was tuned."""
    return untied(case["size"], case["seed"], window=None, name="plain", blend=(case["seed"] + 2, 0.8))


def expert(case: Case, rank: int) -> TableModel:
    """The target with every token sent to the expert of one rank."""
    return untied(case["size"], case["seed"], window=None, name="weak", blend=(case["seed"] + 10 + rank, 1.2))


def sampled(case: Case) -> Any:
    """Draws from the case's noise, of a case that samples."""
    return draws_of(Stream(case["seed"])) if case.get("temperature") else nullcontext()


def end(case: Case) -> int | None:
    """The end token, if there is one."""
    return case["eos"][0] if case.get("eos") else None


def ids(case: Case) -> torch.Tensor:
    """int64[1, T]: the prompt."""
    return torch.tensor([list(case["prompt"])])


class WithStates(Generating):
    """A table with hidden states, which nobody reads but for their shape."""

    def forward(self, input_ids: torch.Tensor, **given: Any) -> Any:  # type: ignore[override]
        """See TableLM."""
        out = super().forward(input_ids, **given)
        out.hidden_states = (torch.zeros(*input_ids.shape, 1),)
        return out


def momentum(upstream: Upstream, case: Case) -> dict[str, Any]:
    with mock.patch.dict("sys.modules"):
        absent = ("ipdb", "seaborn", "matplotlib", "pandas")
        with upstream.importable("", absent):
            from models import simctggpt, utlis_ngram  # type: ignore[import-not-found]
        if case["function"] == "mapped":  # the table that its comments name for GPT-2 XL, by the function's own argument
            mapping = dict(enumerate([0.0, *case["resistance"]]))
            simctggpt.ngram_lookup_table_ours = lambda n: utlis_ngram.ngram_lookup_table_ours(n, mapping)
        model = WithStates(table(case))
        kind = "ours" if case["function"] == "mapped" else case["function"]
        text, _ = simctggpt.SimCTGGPT.resistance_decoding(
            SimpleNamespace(model=model), ids(case), case["k"], case["limit"], case["alpha"], end(case), False, kind
        )
    return {"tokens": text, "calls": len(model.calls)}


class Batch:
    """A tokenizer whose only text is the case's prompt."""

    def __init__(self, case: Case) -> None:
        self.case, self.eos_token_id, self.pad_token_id = case, end(case), -1

    def __call__(self, *_: Any, **__: Any) -> Any:
        return {"input_ids": ids(self.case)}  # as of a batch


def fsd(upstream: Upstream, case: Case) -> dict[str, Any]:
    module = upstream.module("utils.py", absent=("torch_scatter",))

    ngram: Any = module.NGram

    class Called(ngram):
        """Its n-gram model, called as its loop does: there by another name, and given a tokenizer for the number of tokens."""

        def __init__(self, text: list[int], n: int, tokenizer: Any, *more: Any) -> None:
            super().__init__(text, n, case["size"], *more)

        def __call__(self, text: list[int], candidates: list[int], _: Any) -> Any:
            return self.penalize(text, candidates)

    vars(module)["NGram"] = Called
    model, end_ = Generating(table(case)), len(case["prompt"]) + case["limit"]
    ones = mock.patch.object(Generating, "_prepare_attention_mask_for_generation", lambda self, x, *_: torch.ones_like(x))
    with ones:
        text = module.fsd_decoding(
            model, Batch(case), [""], case["k"], case["alpha"], end_, case["n"], case["beta"], early_stop=True
        )
    return {"tokens": text[0], "calls": len(model.calls)}


def uscd(upstream: Upstream, case: Case) -> dict[str, Any]:
    made = upstream.module("bigcode_eval/contrast.py").EnsembleLogitsProcessor
    processor = made(case["least"], case["sure"], 1, [1.0, -case["weight"]])
    model = Generating(table(case))
    if case["rows"] == "generate":
        both = torch.tensor([list(case["prompt"]), list(case["lame"])])
        out = model.generate(
            both,
            attention_mask=torch.ones_like(both),
            logits_processor=LogitsProcessorList([processor]),
            do_sample=False,
            max_new_tokens=case["limit"],
        )
        return {"tokens": out[0]}
    text = list(case["prompt"])
    with sampled(case):
        for _ in range(case["limit"]):
            reply = text[len(case["prompt"]) :]
            rows = torch.stack([model.row(text), model.row([*case["lame"], *reply])])
            scores = processor(torch.tensor([text, text]), rows)[:1]
            if case["temperature"]:
                text.append(int(torch.multinomial((scores / case["temperature"]).softmax(-1), num_samples=1)))
            else:
                text.append(int(scores.argmax()))
    return {"tokens": text}


class Routed(Generating):
    """A mixture of experts, by tables: which experts a call asks for says which table it reads."""

    def __init__(self, case: Case) -> None:
        super().__init__(table(case), end(case))
        self.own, self.case = self.table, case

    def forward(self, input_ids: torch.Tensor, routed_tok: Any = (0, 1), num_experts_per_tok: int = 2, **given: Any) -> Any:  # type: ignore[override]
        """See TableLM."""
        assert num_experts_per_tok == len(routed_tok)
        self.table = self.own if len(routed_tok) == 2 else expert(self.case, routed_tok[0] + 1)
        return super().forward(input_ids, **given)


def scmoe(upstream: Upstream, case: Case) -> dict[str, Any]:
    module = upstream.module("decodingmethod/moe_utils.py")
    model, heat = Routed(case), case["temperature"]
    with sampled(case):
        text = (module.scmoe_with_sampling if heat else module.scmoe)(
            model,
            heat or 1.0,
            heat or 1.0,
            Batch(case),
            ids(case),
            torch.ones_like(ids(case)),
            case["limit"],
            early_stop=True,
            alpha=case["alpha"],
            beta=case["beta"],
            student_routed_tok=[case["rank"] - 1],
        )
    return {"tokens": text[0]}


class Spelled:
    """A tokenizer of letters, whose system prompts are the tokens of PREAMBLE."""

    eos_token_id = -1

    def __call__(self, text: str, **_: Any) -> Any:
        system, mark, reply = text.rpartition("Assistant:")
        tokens = [*(PREAMBLE if system + mark else ()), *(ord(c) - 97 for c in reply.removeprefix(" Got it."))]
        return SimpleNamespace(input_ids=torch.tensor([tokens]))

    def batch_decode(self, rows: torch.Tensor, **_: Any) -> list[str]:
        """Texts: of the system prompt's tokens its mark alone."""
        return [
            "Assistant:" * (tuple(r[:2]) == PREAMBLE) + "".join(chr(97 + x) for x in r[2 * (tuple(r[:2]) == PREAMBLE) :])
            for r in rows.tolist()
        ]


def aligned(upstream: Upstream, case: Case) -> dict[str, Any]:
    """Its loop never calls the rule: here every merge of two rows does so before, with the sizes of their nuclei."""
    module = upstream.module("utilz.py", absent=("peft",))
    names = module.WeightConfig.__dataclass_fields__
    strategy: dict[str, Any] = {
        "init_weight": 0.01,
        "weight_strategy": "topp_weight6",
        "judge_attack_method": "topp_num",
        "warm_up_step": 10,
    }
    numbers = {"max_weight": 0.95, "topp": case["nucleus"], "truncate": case["shown"], "position": -1}
    given: dict[str, Any] = {**dict.fromkeys(names), **strategy, **numbers, "prompt_short": case["system"]}
    model = Generating(table(case))
    decoding = module.AEDecoding(model, Spelled(), "cpu", module.WeightConfig(**given))
    manager, merge = decoding.weight_manager, decoding.weight_manager.merge_logits
    manager.show_flag, manager.ppl_therehold, manager.bias = False, 1.0, case["bias"]
    weights = set()

    def merged(origin: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        sizes = [decoding.top_p_tokens(x, top_p=case["nucleus"]).shape[0] for x in (origin, second)]
        manager.update(0, second, origin, None, *sizes)
        weights.add(manager.merge_weight)
        out: torch.Tensor = merge(origin, second)
        return out

    manager.merge_logits = merged
    heat, text = case["temperature"], "".join(chr(97 + x) for x in case["prompt"])
    with sampled(case):
        out = decoding.generate(text, case["limit"], heat or 1, "do_sample" if heat else "greedy")
    assert len(weights) > 1
    return {"tokens": out[0]}


class Decoding(Generating):
    """A table with two heads. Heads without weights say the probability of the likeliest token; a temperature is twice that."""

    def forward(self, *given: Any, **more: Any) -> Any:
        """See TableLM."""
        out = super().forward(*given, **more)
        top = out.logits[:, -1:].softmax(-1).max(-1, keepdim=True).values
        out.temp_logits, out.top_p_logits = 2 * top, top
        return out


def autodeco(upstream: Upstream, case: Case) -> dict[str, Any]:
    hints = {n: getattr(typing, n) for n in ("Optional", "Union", "Callable", "List", "Dict", "Tuple", "Any")}
    others = ("GenerationConfig", "LogitsProcessorList", "GenerateNonBeamOutput", "GenerateOutput", "Cache", "PreTrainedModel")
    given = {"torch": torch, "nn": torch.nn, "GptOssBackbone": type("Base", (), {}), "GenerationMixin": object, **hints}
    given |= dict.fromkeys((*others, "BaseStreamer", "GenerationMode", "TempLLMCausalLMOutputWithPast"), Any)
    given |= {"TemperatureLogitsWarper": TemperatureLogitsWarper, "TopPLogitsWarper": TopPLogitsWarper}
    loop = upstream.names("config/deepspeed/templlm_gptoss.py", "TempLLMGptOssForCausalLM", **given)["TempLLMGptOssForCausalLM"]
    model = Decoding(table(case), end(case))
    first = MinNewTokensLengthLogitsProcessor(len(case["prompt"]), 0, end(case) or 0)
    processors = LogitsProcessorList([first, TemperatureLogitsWarper(1.0), TopPLogitsWarper(1.0)])
    config = SimpleNamespace(
        _pad_token_tensor=torch.tensor(0), output_attentions=False, output_hidden_states=False, output_scores=False,
        output_logits=False, return_dict_in_generate=False, do_sample=bool(case["temperature"]), prefill_chunk_size=None,
    )  # fmt: skip

    class Self:
        """What its method finds on a model of transformers."""

        config = SimpleNamespace(is_encoder_decoder=False)
        _get_initial_cache_position = staticmethod(lambda ids, kwargs: kwargs)
        _valid_auto_compile_criteria = staticmethod(lambda *_: False)
        _has_unfinished_sequences = staticmethod(lambda over, *_, **__: not over)
        prepare_inputs_for_generation = model.prepare_inputs_for_generation
        _update_model_kwargs_for_generation = model._update_model_kwargs_for_generation
        __call__ = staticmethod(model.__call__)

    class Stopping(list[Any]):
        """The limit, and the end token."""

        def __call__(self, text: torch.Tensor, scores: Any) -> torch.Tensor:
            over = text.shape[1] == len(case["prompt"]) + case["limit"] or int(text[0, -1]) == end(case)
            return torch.tensor([over])

    with sampled(case):
        out, heats = loop._sample(Self(), ids(case), processors, Stopping(), config, False, None)
    assert len(heats) == out.shape[1] - len(case["prompt"])
    return {"tokens": out[0]}


def worth(text: Any) -> float:
    """A reward of a text of letters."""
    tokens = [ord(c) - 97 for c in text]
    return sum((7 * x * x + 3 * i) % 11 for i, x in enumerate(tokens)) % 7 / 7


class Continued(Generating):
    """A table whose greedy continuations have another length than the 20 tokens of the published call, if the case says so."""

    horizon = 20

    def row(self, text: Sequence[int]) -> torch.Tensor:
        """See TableLM; behind a text's padding nothing is read."""
        return torch.zeros(self.table.vocab.size) if 99 in text else super().row(text)

    def generate(self, rows: torch.Tensor, max_new_tokens: int, **_: Any) -> Any:
        """See GenerationMixin."""
        assert max_new_tokens == 20
        return super().generate(
            rows, attention_mask=torch.ones_like(rows), max_new_tokens=self.horizon, pad_token_id=99, do_sample=False
        )


def transfer(upstream: Upstream, case: Case) -> dict[str, Any]:
    module = upstream.module("direct.py")
    asked: list[list[str]] = []

    class Texts:
        """Both tokenizers: letters; a padding token has none."""

        def decode(self, row: torch.Tensor) -> str:
            return "".join(chr(97 + x) for x in row.tolist() if x != 99)

        def __call__(self, texts: list[str], **_: Any) -> Any:
            asked.append(texts)
            return {}

    self = object.__new__(module.TQ_direct)
    self.llm_dev, self.tokenizer, self.reward_tokenizer = "cpu", Texts(), Texts()
    self.LLM = Continued(table(case), end(case))
    self.LLM.horizon = case["horizon"]

    class Reward:
        """The reward model: rewards of the texts that were tokenized last."""

        config = SimpleNamespace(to_dict=dict)

        def __call__(self, **_: Any) -> Any:
            return SimpleNamespace(logits=torch.tensor([[worth(t)] for t in asked[-1]]))

    self.RM = Reward()
    stay = mock.patch.object(torch.Tensor, "to", lambda self, *_, **__: self)
    start = mock.patch.object(module.TQ_direct, "get_input_ids", lambda self, prompt: ids(case))
    with stay, start:
        text, _ = self.generate("", 1 / case["alpha"], case["k"], case["limit"], "greedy")
    return {"tokens": text[0], "asked": [sorted(texts) for texts in asked]}


class Placed(Generating):
    """A table with a parameter, whose place is asked for."""

    def __init__(self, table: TableModel) -> None:
        super().__init__(table)
        self.place, self.config.pad_token_id = torch.nn.Parameter(torch.zeros(1)), 99


def anchored(upstream: Upstream, case: Case) -> dict[str, Any]:
    """safe: the drafter, risky: the target."""
    made = upstream.module("src/anchoreddecode/generate.py").AnchoredDecodingFactory
    none = -1 if end(case) is None else end(case)
    tokenizer = SimpleNamespace(pad_token_id=99, eos_token_id=none, all_special_ids=[])
    both = made(Placed(drafter(case)), Placed(table(case)), tokenizer, case["budget"], prefix_n=case["owed"], log_kl_stats=True)
    heat, length = case["temperature"], len(case["prompt"]) + case["limit"]
    given = {
        "max_length": length,
        "do_sample": bool(heat),
        "temperature": heat or 1.0,
        "eos_token_id": none,
        "pad_token_id": 99,
    }
    with sampled(case):
        out = both.generate(ids(case), GenerationConfig(**given))
    text = out.sequences[0] if hasattr(out, "sequences") else out[0]
    assert both.kl_stats_history
    return {"tokens": text}


def prompts(*lengths: int) -> Sequence[tuple[int, ...]]:
    """Prompts of several lengths."""
    return [tuple((7 * i + 3 * n) % 6 for i in range(n)) for n in lengths]


RECORDINGS = {
    "momentum": momentum,
    "frustratingly_simple": fsd,
    "uscd": uscd,
    "self_contrast_moe": scmoe,
    "anchored": anchored,
    "alignment_enhanced": aligned,
    "autodeco": autodeco,
    "transfer_q": transfer,
}
