"""Heads side by side, and the target's own guesses at adaptive tokens: blockwise parallel decoding, Medusa, SDSAT."""

from __future__ import annotations

import json
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import torch

from decgraph.errors import DecError
from lab.recordings import Case
from lab.recordings.states import KeptLM, States, TableHeads, told
from lab.recordings.tables import untied
from lab.recordings.upstream import Upstream


def headed(case: Case) -> dict[str, Any]:
    """A target with heads."""
    return {"target": TableHeads(case["size"], case["seed"], case["heads"])}


def plain(case: Case) -> dict[str, Any]:
    """A target."""
    return {"target": untied(case["size"], case["seed"], window=None)}


class Noted:
    """A tokenizer that notes the longest text it is asked to decode."""

    def __init__(self, eos: int) -> None:
        self.eos_token_id, self.pad_token_id, self.model_max_length, self.last = eos, -1, 4096, list[int]()

    def decode(self, tokens: Any, **_: Any) -> str:
        """No text."""
        self.last = max(self.last, [int(t) for t in tokens], key=len)
        return ""


def medusa(upstream: Upstream, case: Case) -> dict[str, Any]:
    table, states = headed(case)["target"], States()
    target, tokenizer = KeptLM(table, states, "medusa_mask"), Noted(next(iter(case["eos"]), -1))
    choices = json.loads(case["shape"])

    def head(number: int) -> Any:
        states.readers[f"head{number}"] = lambda text: table.row(number, text)
        return lambda hidden: states.scores(
            states.of([(f"head{number}", *key[1:]) for key in states.read(hidden)]).reshape(hidden.shape)
        )

    utils, cache = upstream.module("medusa/model/utils.py"), upstream.module("medusa/model/kv_cache.py")
    given = {**utils.__dict__, "nn": torch.nn, "initialize_past_key_values": cache.initialize_past_key_values}
    of = upstream.names("medusa/model/medusa_model.py", "MedusaModelABC", **given)["MedusaModelABC"]

    class Model:
        base_model, medusa, medusa_head = target, case["heads"], [head(i) for i in range(case["heads"])]
        __call__, medusa_generate = of.forward, of.medusa_generate

    model: Any = Model()
    model.tokenizer = tokenizer
    for _ in model.medusa_generate(torch.tensor([case["prompt"]]), medusa_choices=choices):
        if len(tokenizer.last) >= case["limit"]:
            break
    return told(target.calls, case, [*case["prompt"], *tokenizer.last])


def blockwise_parallel(upstream: Upstream, case: Case) -> dict[str, Any]:
    try:
        import tensorflow.compat.v1 as tensorflow  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError as error:
        raise DecError("its code needs tensorflow on the path") from error

    class Quiet:
        """TensorFlow without the printing of texts, which is Python 2."""

        py_func = staticmethod(lambda *_: tf.no_op())

        def __getattr__(self, name: str) -> Any:
            return getattr(tensorflow, name)

    tf = Quiet()
    table, prompt, calls = headed(case)["target"], tuple(case["prompt"]), list[tuple[int, ...]]()
    layers = upstream.names("tensor2tensor/layers/common_layers.py", "shift_right", tf=tf)
    given: dict[str, Any] = {
        "registry": SimpleNamespace(register_model=lambda kind: kind), "transformer": SimpleNamespace(Transformer=object),
        "text_encoder": SimpleNamespace(EOS_ID=next(iter(case["eos"]), -1)), "common_layers": SimpleNamespace(**layers),
    }  # fmt: skip
    kind = upstream.names(
        "tensor2tensor/models/research/transformer_parallel.py", "TransformerBlockParallel", tf=tf, tf_estimator=None, **given
    )["TransformerBlockParallel"]

    def sample(features: Any) -> Any:
        """What every place of the written text and the one behind it says, of itself and by its heads."""
        written = [int(t) for t in features["targets"][0, :-1, 0, 0]]
        calls.append(tuple(written))
        rows = []
        for i in range(len(written) + 1):
            text = (*prompt, *written[:i])
            own = table.eval([text])[0].weights or ()
            behind = (*text, own.index(max(own)))
            rows.append([own, *(table.row(h, behind[:-1]) for h in range(case["k"] - 1))])
        logits = tf.math.log(tf.constant([[[float(w) for w in row] for row in place] for place in rows], tf.float64))
        return tf.argmax(logits, -1)[None, ..., None], logits[None, ..., None, :], None

    model = kind.__new__(kind)
    model._hparams = SimpleNamespace(block_size=case["k"], force_full_predict=True, sampling_method="argmax")
    model._decode_hparams = SimpleNamespace(batch_size=1, block_size=case["k"], guess_and_check_top_k=1)
    model.sample = sample
    inputs = tf.constant([[[[t]] for t in prompt]])
    out = model._slow_greedy_infer_guess_and_check({"inputs": inputs}, case["limit"] - len(prompt))["outputs"]
    output = [int(t) for t in out[0, :, 0, 0]]
    calls = [text for text in calls[1:] if text[-case["k"]] not in case["eos"]]  # whose first guess ends the text: one more
    kept = [len(text) - case["k"] for text in calls]
    drafted = [[text[n + 1 : i] for i in range(n + 2, len(text) + 1)] for n, text in zip(kept, calls, strict=True)]
    accepted = [b - a - 1 for a, b in pairwise([*kept, len(output) - (output[-1] in case["eos"])])]
    return {"tokens": [*prompt, *output], "drafted": [[], *drafted], "accepted": [0, *accepted]}


def sdsat(upstream: Upstream, case: Case) -> dict[str, Any]:
    states = States()
    base = KeptLM(plain(case)["target"], states, "draft_mask")

    class Model:
        base_model = base

        def eval(self) -> None:
            """Nothing to switch."""

        def __call__(self, input_ids: torch.Tensor, past_key_values: Any, output_orig: bool) -> Any:
            return None, self.base_model(input_ids, past_key_values=past_key_values).logits

    with upstream.importable():
        from decoders.sdsat import SDSATDecoderGreedy  # type: ignore[import-not-found]

        sats = ",".join([str(case["adaptive"])] * case["gamma"])
        settings = {"top_p": 0.9, "max_new_tokens": case["limit"]}
        decoder = SDSATDecoderGreedy(Noted(next(iter(case["eos"]), -1)), Model(), sats, gen_config=settings, device="cpu")
        decoder.initialize()
        output, _, rate, *_ = decoder.decode(torch.tensor([case["prompt"]]), None, case["gamma"], case["limit"])
    drafted: list[Any] = [[]]
    accepted = [0]
    calls = base.calls[1:]  # two a round, but where the first one ends the text
    roots = [len(texts[0]) for texts in calls[::2]]
    for i, texts in enumerate(calls):
        root = roots[i // 2]
        drafted.append([text[root:] for text in texts if len(text) > root])
        last = i // 2 + 1 == len(roots)
        accepted.append(0 if i % 2 == 0 else -1 if last else roots[i // 2 + 1] - root - 1)
    if len(calls) % 2 == 0:  # the last round's share of what they count
        kept = round((rate or 0) * case["gamma"] * (len(calls) // 2))
        accepted[-1] = 1 + kept - sum(n - 1 for n in accepted[2:-1:2])
    return {"tokens": [*case["prompt"], *output[0].tolist()], "drafted": drafted, "accepted": accepted}


RECORDINGS = {
    "blockwise_parallel": blockwise_parallel,
    "medusa_match": medusa,
    "sdsat": sdsat,
}
