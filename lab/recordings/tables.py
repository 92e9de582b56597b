"""Tables of probabilities as what the authors' code calls: a causal language model of transformers' interface.

The model's only layer stores a token and a position for each slot, so that caches, crops, masks and positions of the authors'
code decide what a row sees: a row's text is the tokens of the slots it attends to, by position. A wrong rollback
gives wrong rows.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from transformers import DynamicCache, GenerationConfig, GenerationMixin, PretrainedConfig
from transformers.modeling_outputs import CausalLMOutputWithPast

from decgraph.runtime.models.interface import Scores
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.text import detokenizer_of


def untied(
    size: int,
    seed: int,
    *,
    window: int | None = 2,
    sharp: float = 1.0,
    name: str = "target",
    blend: Any = None,
    kind: Any = "causal",
    vocab: str = "t",
) -> TableModel:
    """A table without equal weights: they are log-normal, the more uneven the larger `sharp` is. window: how many of the last
    tokens a row depends on, None: all. blend: a seed and a share of weights of its own, so that two tables of one seed agree on
    most tokens and not on all."""
    made = TableModel(size, seed, window=window, vocab=vocab, name=name, kind=kind)
    made._table = Untied(size, seed, sharp, blend)  # type: ignore[assignment]
    return made


class Untied:
    """The entries; touched: those that were asked for."""

    def __init__(self, size: int, seed: int, sharp: float, blend: Any) -> None:
        self.size, self.seed, self.sharp, self.blend = size, seed, sharp, blend
        self.touched: dict[Any, Scores] = {}

    def __call__(self, key: Any, name: str) -> Scores:
        if key not in self.touched:
            r = random.Random(f"{self.seed} {key!r}")
            weights = [int(10**4 * 2.718281828 ** (self.sharp * r.gauss(0, 1))) + 1 for _ in range(self.size)]
            if self.blend is not None:
                other = random.Random(f"{self.blend[0]} {key!r}")
                weights = [int(w * 2.718281828 ** (self.blend[1] * other.gauss(0, 1))) + 1 for w in weights]
            self.touched[key] = Scores(weights=tuple(Fraction(w, sum(weights)) for w in weights))
        return self.touched[key]


class Letters:
    """A tokenizer of one piece for each token: those of `alphabet`, then letters."""

    def __init__(self, alphabet: Sequence[str] = "") -> None:
        self.pieces = [*alphabet, *(chr(i) for i in range(97, 97 + 26))]
        self.detokenizer = detokenizer_of(self.pieces)

    def decode(self, tokens: Any) -> str:
        """The text of tokens."""
        return self.detokenizer.text(tokens)

    def encode(self, text: str, **_: Any) -> list[int]:
        """The tokens of a text; what no token spells is passed over."""
        found = re.findall("|".join(map(re.escape, self.pieces)), text)
        return [self.pieces.index(piece) for piece in found]


class Cropped(DynamicCache):
    """A cache whose `crop` takes a length, as that of transformers before 5.20 did, or how many tokens to remove, negative."""

    def crop(self, length: int) -> None:
        """See the class."""
        super().crop(min(0, length - self.get_seq_length()) if length > 0 else length)


class Legacy:
    """A cache as transformers had before 4.56: lists of keys and values by layer, also read as pairs."""

    def __init__(self, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]] = ()) -> None:
        self.key_cache, self.value_cache = [k for k, _ in pairs], [v for _, v in pairs]

    @classmethod
    def from_legacy_cache(cls, pairs: Any = None) -> Legacy:
        """A cache of pairs."""
        return cls(pairs or ())

    def __len__(self) -> int:
        return len(self.key_cache)

    def __getitem__(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.key_cache[layer], self.value_cache[layer]

    def get_seq_length(self) -> int:
        """How many tokens it has."""
        return int(self.key_cache[0].shape[-2]) if self.key_cache else 0

    def get_usable_length(self, new: int) -> int:
        """How many of them a call of so many new ones reads."""
        return self.get_seq_length()

    def crop(self, max_length: int) -> None:
        """Keep the first tokens."""
        for kept in (self.key_cache, self.value_cache):
            kept[:] = [x[..., :max_length, :] for x in kept]

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int, cache_kwargs: Any = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """As of transformers' caches."""
        if len(self) == layer:
            self.key_cache.append(keys[..., :0, :])
            self.value_cache.append(values[..., :0, :])
        self.key_cache[layer] = torch.cat([self.key_cache[layer], keys], -2)
        self.value_cache[layer] = torch.cat([self.value_cache[layer], values], -2)
        return self[layer]


class Slots:
    """A cache of a fixed number of slots, written where `cache_position` says, as transformers' StaticCache was."""

    def __init__(self, size: int) -> None:
        self.kept = [torch.zeros(1, 1, size, 1), torch.zeros(1, 1, size, 1)]

    def reset(self) -> None:
        """Forget all."""
        for kept in self.kept:
            kept.zero_()

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int, cache_kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """As of transformers' caches."""
        for kept, new in zip(self.kept, (keys, values), strict=True):
            kept[:, :, cache_kwargs["cache_position"]] = new
        return self.kept[0], self.kept[1]


class TableLM(torch.nn.Module):
    """A causal language model of transformers' interface over a table: float32 logits, the logarithms of its probabilities.

    forward: input_ids int64[B, T], attention_mask None, [B, S] (1: seen) or [B, 1, T, S] (bool, or added to scores),
    position_ids [B, T] and past_key_values as in transformers (a DynamicCache, one is made; what else has `update`, such as a
    StaticCache, is taken with `cache_position`). calls: by call, the rows' texts, for columns that count or name them. cache:
    what is made where none is given."""

    cache: Any = Cropped

    def __init__(self, table: TableModel, eos: int | None = None) -> None:
        super().__init__()
        self.table, self.calls = table, list[list[list[tuple[int, ...]]]]()
        self.config = SimpleNamespace(
            vocab_size=table.vocab.size, eos_token_id=eos, pad_token_id=eos, bos_token_id=None, num_hidden_layers=1,
            hidden_size=1, num_attention_heads=1, num_key_value_heads=1, head_dim=1, is_encoder_decoder=False,
            max_position_embeddings=4096,
            model_type="table", use_cache=True, _attn_implementation="eager",
        )  # fmt: skip
        self.generation_config = SimpleNamespace(eos_token_id=eos, pad_token_id=eos)
        self.device, self.dtype = torch.device("cpu"), torch.float32

    def row(self, text: Sequence[int]) -> torch.Tensor:
        """float32[V]: the logits after a text; zeros in a row of padding, which sees none."""
        if not len(text):
            return torch.zeros(self.table.vocab.size)
        weights = self.table.eval([tuple(text)])[0].weights
        assert weights is not None
        return torch.tensor([float(w) for w in weights], dtype=torch.float64).log().float()

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        past_key_values: Any = None,
        cache_position: torch.Tensor | None = None,
        **_: Any,
    ) -> CausalLMOutputWithPast:
        """See the class."""
        cache = self.cache() if past_key_values is None else past_key_values
        if isinstance(cache, list | tuple):
            cache = Legacy.from_legacy_cache(cache)
        batch, n = input_ids.shape
        before = int(cache.get_seq_length()) if cache_position is None else int(cache_position[0])
        if position_ids is None:
            position_ids = torch.arange(before, before + n)[None].expand(batch, n)
            if attention_mask is not None and attention_mask.dim() == 2:
                position_ids = (attention_mask.long().cumsum(1) - 1).clamp(min=0)[:, -n:]
        position_ids = position_ids.expand(batch, n)
        keys, values = input_ids[:, None, :, None].float(), position_ids[:, None, :, None].float()
        more = {} if cache_position is None else {"cache_kwargs": {"cache_position": cache_position}}
        keys, values = cache.update(keys, values, 0, **more)
        texts = [
            [self._text(keys[b, 0, :, 0], values[b, 0, :, 0], attention_mask, b, i, before + i) for i in range(n)]
            for b in range(batch)
        ]
        self.calls.append(texts)
        logits = torch.stack([torch.stack([self.row(t) for t in row]) for row in texts])
        return CausalLMOutputWithPast(logits=logits, past_key_values=cache)

    @staticmethod
    def _text(
        keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None, b: int, i: int, slot: int
    ) -> tuple[int, ...]:
        """The tokens that row i of sequence b, which is in this slot, attends to, by position."""
        slots = torch.arange(len(keys))
        seen = slots <= slot
        if mask is not None and mask.dim() == 4:
            row = mask[b % len(mask), 0, i]
            seen = torch.zeros(len(keys), dtype=torch.bool)
            seen[: len(row)] = (row if row.dtype == torch.bool else row > -1)[: len(keys)]
        elif mask is not None:
            seen[: mask.shape[1]] &= mask[b].bool()[: len(keys)]
        at = sorted((int(values[j]), int(keys[j])) for j in slots[seen].tolist())
        return tuple(token for _, token in at)


class Generating(TableLM, GenerationMixin):
    """A TableLM with transformers' `generate`, and with what the authors' loops call of it. As in transformers 4, the inputs of
    a step are the tokens that the cache lacks."""

    main_input_name, base_model_prefix, _is_stateful = "input_ids", "", False

    def __init__(self, table: TableModel, eos: int | None = None) -> None:
        super().__init__(table, eos)
        size = table.vocab.size
        self.config: Any = PretrainedConfig(vocab_size=size, eos_token_id=eos, num_hidden_layers=1, is_encoder_decoder=False)
        self.generation_config: Any = GenerationConfig(eos_token_id=eos, pad_token_id=eos)

    def can_generate(self) -> bool:
        """It can."""
        return True

    def is_remote_code(self) -> bool:
        """It is here."""
        return False

    def get_experts_implementation(self) -> dict[str, str]:
        """It has no experts."""
        return {}

    def prepare_inputs_for_generation(
        self, input_ids: torch.Tensor, past_key_values: Any = None, attention_mask: Any = None, **more: Any
    ) -> dict[str, Any]:
        """What `forward` is given: the tokens behind those of the cache."""
        length = 0 if past_key_values is None else past_key_values.get_seq_length()
        given = {"past_key_values": past_key_values, "attention_mask": attention_mask}
        return {"input_ids": input_ids[:, length:], **given, "use_cache": more.get("use_cache")}


class Generates(TableLM):
    """With the `generate` of transformers, as far as decoders of one text use it; it has no cache."""

    def generate(
        self,
        input_ids: torch.Tensor,
        *,
        max_new_tokens: int,
        logits_processor: Sequence[Any] = (),
        stopping_criteria: Sequence[Any] = (),
        temperature: float = 0,
        **_: Any,
    ) -> torch.Tensor:
        """int64[1, T]: a text with its continuation, as transformers makes it of one text: processors, then the temperature,
        until the end or a criterion. Greedy at temperature 0."""
        for _i in range(max_new_tokens):
            scores = self.row(input_ids[0].tolist())[None]
            for processor in logits_processor:
                scores = processor(input_ids, scores)
            p = torch.softmax(scores / (temperature or 1), -1)
            x = torch.multinomial(p, 1) if temperature else p.argmax(-1, keepdim=True)
            input_ids = torch.cat([input_ids, x], 1)
            if int(x) == self.config.eos_token_id or any(bool(c(input_ids, scores)) for c in stopping_criteria):
                break
        return input_ids


class Stream:
    """Uniforms in (0, 1) from a seed, one after the other: the noise of both sides of a sampled case."""

    def __init__(self, seed: int) -> None:
        self.made = np.random.default_rng(seed)

    def coin(self, key: Any = None) -> float:
        """A uniform."""
        return float(self.made.uniform(1e-9, 1 - 1e-9))

    def flip(self, p: float) -> bool:
        """True with probability p. What is certain, but for rounding, reads nothing."""
        return p > 1 - 1e-6 or (p > 1e-6 and self.coin() < p)

    def beta(self, a: float, b: float) -> float:
        """A draw of a Beta distribution."""
        return float(self.made.beta(a, b))

    def waits(self, key: Any, n: int) -> np.ndarray:
        """float64[n]: the waiting times of a draw's race, one for each token."""
        return -np.log(self.made.uniform(1e-9, 1 - 1e-9, n))

    def draw(self, p: np.ndarray) -> int:
        """The token of a distribution that comes first. What is certain reads nothing."""
        if p.max() > 1 - 1e-12:
            return int(p.argmax())
        times = self.waits(None, len(p))
        return int(np.argmin([t / q if q > 0 else np.inf for t, q in zip(times, p, strict=True)]))


class Coin:
    """A uniform of the authors' code that is read where it is compared, as odds that are certain read none. flip: whether a
    coin of these odds says yes."""

    def __init__(self, flip: Callable[[float], bool]) -> None:
        self.flip = flip

    def __gt__(self, odds: Any) -> bool:
        return not self.flip(float(odds))

    def __le__(self, odds: Any) -> bool:
        return self.flip(float(odds))

    __ge__, __lt__ = __gt__, __le__


@contextmanager
def draws_of(stream: Stream) -> Iterator[None]:
    """The authors' draws read a stream: torch.multinomial (a row after the other), torch.rand and rand_like, numpy's choice and
    random.random."""

    def multinomial(p: torch.Tensor, num_samples: int, replacement: bool = False, **_: Any) -> torch.Tensor:
        rows = p.detach().double().reshape(-1, p.shape[-1]).numpy()
        out = []
        for row in rows:
            left, drawn = row.copy(), []
            for _i in range(num_samples):
                drawn.append(stream.draw(left / left.sum()))
                left[drawn[-1]] = left[drawn[-1]] if replacement else 0
            out.append(drawn)
        return torch.tensor(out).reshape(*p.shape[:-1], num_samples)

    def uniform(*size: Any, **how: Any) -> torch.Tensor:
        shape = size[0] if size and not isinstance(size[0], int) else size
        numbers = [stream.coin() for _ in range(int(np.prod(shape)) if shape else 1)]
        return torch.tensor(numbers, dtype=how.get("dtype") or torch.float64).reshape(tuple(shape))

    def choice(of: Any, size: Any = None, replace: bool = True, p: Any = None) -> Any:
        items = list(range(of)) if isinstance(of, int) else list(of)
        weights = np.full(len(items), 1 / len(items)) if p is None else np.asarray(p, dtype=np.float64)
        assert size in (None, 1), "several at once are not mapped"
        one = items[stream.draw(weights / weights.sum())]
        return one if size is None else np.array([one])

    like: Callable[..., torch.Tensor] = lambda x, **how: uniform(*x.shape, dtype=how.get("dtype") or x.dtype)
    with (
        mock.patch.object(torch, "multinomial", multinomial),
        mock.patch.object(torch, "rand", uniform),
        mock.patch.object(torch, "rand_like", like),
        mock.patch.object(np.random, "choice", choice),
        mock.patch.object(random, "random", stream.coin),
    ):
        yield


class OnCPU(TorchFunctionMode):
    """While this is entered, what names a GPU is on the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """See torch."""
        if func is torch.Tensor.cuda:
            return args[0]
        cpu = lambda x: torch.device("cpu") if isinstance(x, str | torch.device) and str(x).startswith("cuda") else x
        return func(*map(cpu, args), **{k: cpu(v) for k, v in (kwargs or {}).items()})

    def __enter__(self) -> OnCPU:
        self.waits = mock.patch.object(torch.cuda, "synchronize", lambda *_: None)
        self.waits.start()
        return super().__enter__()

    def __exit__(self, *what: Any) -> None:
        self.waits.stop()
        super().__exit__(*what)


def chains(
    calls: Sequence[Sequence[Sequence[tuple[int, ...]]]],
    text: Sequence[int],
    prompt: Sequence[int],
    limit: int,
    eos: Sequence[int] = (),
    *,
    beyond: bool = False,
) -> dict[str, Any]:
    """The columns of a loop around chains of drafts, up to the call in which the limit or an end token is reached: the tokens,
    and by call of the target the chain that it read and how many tokens of this became text. calls: the target's, of one
    sequence each; a call's rows begin at the text's last token, or before in a first call that reads the prompt. beyond:
    drafts behind an end token count; decgraph drafts none there if it knows in time."""
    end = min(_ended(text, len(prompt), eos), len(prompt) + limit)
    drafted, accepted = [], []
    for rows in calls:
        start, whole = max(len(prompt), len(rows[0][0])), rows[0][-1]
        if start < end:
            chain = whole[start : None if beyond else _ended(whole, start, eos)]
            drafted.append(chain)
            accepted.append(len(os.path.commonprefix([list(chain), list(text[start:end])])))
    return {"tokens": list(text[:end]), "chains": drafted, "accepted": accepted}


def _ended(text: Sequence[int], start: int, eos: Sequence[int]) -> int:
    """Where a text ends: behind its first end token from `start` on."""
    return next((i + 1 for i in range(start, len(text)) if text[i] in eos), len(text))
