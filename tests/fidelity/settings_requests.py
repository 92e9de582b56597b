"""Settings of a request: filters, penalties, biases, an automaton. The distributions that tokens are drawn from are compared,
after every recorded token, and the greedy text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch
from fidelity import models
from fidelity.entry import Case, Entry, Outcome, recording
from fidelity.forced import Law, laws, near
from fidelity.watched import run
from lib.lazily import transformers

from decgraph import stdlib
from decgraph.runtime.automaton import Automaton
from decgraph.runtime.processors import BatchReading, PaddedPrompt, shaping_of

SIZE = 32
THEIRS = {
    "top_k": "TopKLogitsWarper",
    "top_p": "TopPLogitsWarper",
    "min_p": "MinPLogitsWarper",
    "typical_p": "TypicalLogitsWarper",
    "epsilon_cutoff": "EpsilonLogitsWarper",
    "eta_cutoff": "EtaLogitsWarper",
    "top_h": "TopHLogitsWarper",
    "temperature": "TemperatureLogitsWarper",
}
"""transformers' warpers by the names of its settings."""


def settings(
    processors: Sequence[Any],
    prompt: Sequence[int],
    *,
    greedy: bool = False,
    eos: Sequence[int] = (),
    adjusts: bool = False,
) -> dict[str, Any]:
    """What a request becomes of a list of processors, as `generate(custom_generate=decgraph.hf(...))` makes it: fields for what
    decgraph has itself, a hook for the rest. adjusts: whether the program adds up scores that are not normalised again."""
    reading = BatchReading(greedy, len(prompt), 1, frozenset(eos), SIZE, SIZE, torch.device("cpu"), adjusts=adjusts)
    made = shaping_of(processors, reading, PaddedPrompt(0, (), tuple(prompt)))
    return {**made.fields, "processors": () if made.hook is None else (made.hook,)}


def filtered(case: Case, backend: str, given: Mapping[str, Any], file: str, within: float, text: str = "") -> Outcome:
    """A row of logits under settings, or, with its text, by a program with these parameters."""
    row = models.Same(recording(file)["logits"][case["row"]])
    (law,) = laws((0,), case["kept"][:1], row, backend, **({"text": text, "params": given} if text else given))
    recorded = dict(zip(case["kept"], case["probabilities"], strict=True))
    return Outcome(
        {"kept": case["kept"], "probabilities": recorded},
        {"kept": sorted(law), "probabilities": near(recorded, {v: law[v] for v in sorted(law)}, within)},
    )


def filters(case: Case, backend: str) -> Outcome:
    if case["filter"] == "top_n_sigma":
        text = stdlib.text("top_n_sigma")
        return filtered(case, backend, {"n": case["parameters"]["nsigma"]}, "logits/filters", 1e-6, text)
    names = {"mass": "typical_p"} | {"epsilon": case["filter"]}
    p = dict(case["parameters"])
    keep = {"min_tokens_to_keep": p.pop("min_tokens_to_keep")} if "min_tokens_to_keep" in p else {}
    made = [getattr(transformers, THEIRS[names.get(name, name)])(value, **keep) for name, value in p.items()]
    if "order" in case:
        made.sort(key=lambda warper: case["order"].index(type(warper).__name__))
    return filtered(case, backend, settings(made, (0,)), "logits/filters", 1e-6)


PROGRAMS = {
    "top_n_sigma": ("top_n_sigma", {"n": "n"}, {"whole": True}),
    "typical": ("typical", {"p": "mass"}, {}),
    "xtc": ("xtc", {"p": "chance", "t": "threshold"}, {}),
    "temp_ext": ("dynamic_temperature", {"t": "heat", "delta": "spread", "exponent": "exponent"}, {}),
}
"""llama.cpp's samplers that are programs here: the program, its parameters by theirs, and what is always so."""


def filters_llama_cpp(case: Case, backend: str) -> Outcome:
    p, (name, mapped, always) = case["parameters"], PROGRAMS.get(case["filter"], ("", {"p": case["filter"]}, {}))
    assert p.get("min_keep", 1) == 1
    given = {ours: p[theirs] for theirs, ours in mapped.items()} | always
    return filtered(case, backend, given, "logits/filters_llama_cpp", 1e-5, stdlib.text(name) if name else "")


@cache
def theirs() -> Any:
    """The recording's target as transformers has it."""
    return transformers.LlamaForCausalLM.from_pretrained(models.folder("target"))


def prepared(case: Case) -> list[Any]:
    """The processors that `generate` makes of a case's parameters, in its order."""
    found: list[Any] = []

    def keep(model: Any, input_ids: Any, logits_processor: Any, **rest: Any) -> Any:
        found.extend(logits_processor)
        return input_ids

    prompt = torch.tensor([list(case["prompt"])])
    theirs().generate(prompt, custom_generate=keep, do_sample=False, pad_token_id=0, **case["parameters"])
    return found


SHAPING = (
    *("repetition_penalty", "no_repeat_ngram_size", "sequence_bias", "exponential_decay_length_penalty", "bad_words_ids"),
    *("forced_bos_token_id", "forced_eos_token_id", "suppress_tokens", "begin_suppress_tokens", "min_new_tokens", "min_length"),
)
"""What transformers makes processors of that come after those of an algorithm."""


def shaping(
    parameters: Mapping[str, Any], prompt: Sequence[int], eos: Sequence[int] = (), adjusts: bool = False
) -> dict[str, Any]:
    """The settings of a request by those of transformers' settings that a case has."""
    given = {name: parameters.get(name) for name in SHAPING if parameters.get(name) is not None}
    if not given:
        return {}
    ends = {"eos_token_id": list(eos)} if eos else {}
    made = prepared({"parameters": {"max_new_tokens": parameters["max_new_tokens"], **given, **ends}, "prompt": prompt})
    return {k: v for k, v in settings(made, prompt, greedy=True, eos=eos, adjusts=adjusts).items() if k != "temperature"}


def relative(scores: Mapping[int, float], to: int) -> dict[int, float]:
    """Scores less that of one token: what a softmax leaves of them."""
    return {v: s - scores[to] for v, s in scores.items()}


def logs(law: Law) -> dict[int, float]:
    return {v: math.log(w) for v, w in law.items()}


def penalties(case: Case, backend: str) -> Outcome:
    p, n = case["parameters"], len(case["prompt"])
    new, made = case["output"][n:], prepared(case)
    eos = [p["eos_token_id"]] if "eos_token_id" in p else []
    done = run(
        "autoregressive",
        case["prompt"],
        {"target": models.causal("target")},
        backend,
        max_tokens=p["max_new_tokens"],
        eos=eos,
        settings=shaping(p, case["prompt"], eos),
    )
    drawn = laws(case["prompt"], new, models.causal("target"), backend, **settings(made, case["prompt"], eos=eos))
    best = [sorted(law, key=lambda v, law=law: -law[v])[:3] for law in drawn]
    top = [[(v, w) for v, w in s["top"] if v not in s["forbidden"]] for s in case["steps"]]  # forced tokens leave one
    scores = [relative(dict(t), t[0][0]) for t in top]
    ours = [relative({v: w for v, w in logs(law).items() if v in b}, b[0]) for law, b in zip(drawn, best, strict=True)]
    return Outcome(
        {
            "tokens": tuple(case["output"]),
            "target calls": case["target_forwards"],
            "forbidden": [s["forbidden"] for s in case["steps"]],
            "likeliest three": [[v for v, _ in t] for t in top],
            "their scores": scores,
        },
        {
            "tokens": done.tokens,
            "target calls": len(done.calls),
            "forbidden": [sorted({*range(SIZE)} - {*law}) for law in drawn],
            "likeliest three": best,
            "their scores": near(scores, ours, 1e-3),
        },
    )


def penalties_llama_cpp(case: Case, backend: str) -> Outcome:
    """By the program with llama.cpp's window, in which the prompt counts as well."""
    p, n = case["parameters"], len(case["prompt"])
    theirs = ("penalty_last_n", "penalty_repeat", "penalty_freq", "penalty_present")
    params = {ours: p[name] for ours, name in zip(("window", "factor", "frequency", "presence"), theirs, strict=True)}
    text, new = stdlib.text("windowed_penalties"), case["output"][n:]
    drawn = laws(case["prompt"], new, models.causal("target"), backend, text=text, params=params)
    best = [max(law, key=lambda v, law=law: law[v]) for law in drawn]
    scores = [relative(dict(enumerate(s["after"])), s["token"]) for s in case["steps"]]
    ours = [relative(logs(law), b) for law, b in zip(drawn, best, strict=True)]
    return Outcome({"tokens": new, "after": scores}, {"tokens": best, "after": near(scores, ours, 1e-3)})


def allowed(case: Case) -> Automaton:
    """The recorded masks along the recorded text; off it anything goes."""
    n = len(case["steps"])
    rows = []
    for i, s in enumerate(case["steps"]):
        rows.append(tuple(i + 1 if v == s["token"] else n if v in s["allowed"] else -1 for v in range(SIZE)))
    return Automaton((*rows, (n,) * SIZE), frozenset({n}))


def grammar(case: Case, backend: str) -> Outcome:
    p, n = case["parameters"], len(case["prompt"])
    target, new = models.causal("target"), case["output"][n:]
    given: dict[str, Any] = {"bias": {2: p["eos_bias"]}} if p["eos_bias"] else {}
    done = run(
        "autoregressive",
        case["prompt"],
        {"target": target},
        backend,
        max_tokens=p["max_new_tokens"],
        eos=[2],
        settings={**given, "allow": allowed(case)},
    )
    masked = laws(case["prompt"], new, target, backend, **given, allow=allowed(case))
    free = laws(case["prompt"], new, target, backend, **given)
    return Outcome(
        {
            "tokens": tuple(case["output"]),
            "target calls": case["target_forwards"],
            "allowed": [s["allowed"] for s in case["steps"]],
            "unconstrained": [s["unconstrained"] for s in case["steps"]],
        },
        {
            "tokens": done.tokens,
            "target calls": len(done.calls),
            "allowed": [sorted(law) for law in masked],
            "unconstrained": [max(law, key=lambda v, law=law: law[v]) for law in free],
        },
    )


def request(file: str, replay: Any, *programs: str, **more: Any) -> Entry:
    """An entry whose program is autoregressive; its request is looked at. programs: others, for what a request does not say."""
    return Entry(file, ", ".join(("autoregressive", *programs)), replay, kind="setting", **more)


ENTRIES = [
    request(
        "logits/filters",
        filters,
        "top_n_sigma",
        note="the list of transformers' warpers is given to decgraph as `generate` gives it: temperature, top-k, top-p and "
        "min-p are a request's own, others are called by it",
    ),
    request(
        "logits/filters_llama_cpp",
        filters_llama_cpp,
        *(name for name, *_ in PROGRAMS.values()),
        note="top-p and min-p are a request's own",
    ),
    request(
        "logits/penalties",
        penalties,
        note="repetition penalty and minimum length are a request's own, the other processors are called by it; scores are "
        "compared up to a common amount",
    ),
    Entry("logits/penalties_llama_cpp", "windowed_penalties", penalties_llama_cpp, kind="setting"),
    request(
        "logits/grammar_constrained",
        grammar,
        note="the automaton of `allow` is made of the recorded masks; `eos_bias` is a bias",
    ),
]
