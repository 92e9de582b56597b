"""One world to check in: models, parameters, a request and a start, built from a plan."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Literal, cast

from decgraph.backends.exact.reals import Log
from decgraph.backends.exact.run import ExactMachine
from decgraph.backends.exact.world import AnyFunction
from decgraph.check.case import Case, WorldPlan
from decgraph.check.constants import Facts, facts
from decgraph.check.functions import any_head, functions_for
from decgraph.check.initial_states import Start
from decgraph.check.settings import at_setting
from decgraph.check.table_models import MODELS, Style, StyledFree, StyledModel, styled_features
from decgraph.errors import DecError
from decgraph.ir.data.topology import Topology
from decgraph.ir.settings import names
from decgraph.ir.types import Type
from decgraph.ir.values import Claim, Constant, Function, Module, Param
from decgraph.runtime.arguments import Externs, ParamValue
from decgraph.runtime.automaton import Automaton
from decgraph.runtime.models.free import FreeAdapter, FreeFeatures, FreeModel
from decgraph.runtime.models.interface import Model, Visibility
from decgraph.runtime.models.reading import AnyReading, AnyScores
from decgraph.runtime.models.spelling import Spelling, spelled
from decgraph.runtime.models.table import TableAdapter, TableModel
from decgraph.runtime.request import Factor, Request
from decgraph.runtime.text import Detokenizer, detokenizer_of

HEADS = 3
MOST_LAYERS = 65
DEEP_PROBE = 130  # layers of a model in a probe, where the program counts layers
TRIES = 8, 3, 2  # runs of a probe: a small one, a large one, a very large one
PROBE = "probe"  # the label of worlds of real sizes
LATER = ("steps", "session", "reached", "second", "beside")  # labels of worlds in which later steps are decided
PIECES = ("a", "b", "ab", " ", "c", "ba", "\n", "1", ".", "x = ")


def models_for(
    function: Function,
    size: int,
    seed: int,
    *,
    free: bool = False,
    style: Style | None = None,
    context: int | None = None,
    layers: int = HEADS,
    heads: int = HEADS,
    marks: Sequence[str] = (),
    counted: bool = False,
) -> dict[str, Model]:
    """A model for every model parameter, tables over `size` tokens (or free models, whose memory can be told apart). marks: the
    texts of some of their tokens. counted: whether the program reads how many layers a model has.
    Raises DecError for a model of another kind than causal, masked, features and layers."""
    style = style or Style(shared=seed)
    out: dict[str, Model] = {}
    families: dict[str, Model] = {}
    given: dict[str, dict[str, int]] = {}  # by vocabulary
    main = ""  # the first model's vocabulary, which is the request's
    for i, p in enumerate(p for p in function.params if p.value.type.elem == "model"):
        kind, vocab, family, visibility = (str(x) for x in p.value.type.of)
        s = seed * MODELS + i
        sort: Literal["causal", "masked"] = "causal" if kind == "causal" else "masked"
        main = main or vocab
        pieces = pieces_of(size, marks) if vocab == main else other_pieces(size, f"{seed} {vocab}")
        if kind in ("causal", "masked"):
            count = heads if "heads" in visibility else 0
            made: StyledFree | StyledModel
            if free:
                made = StyledFree(
                    s,
                    len(pieces),
                    layers,
                    style,
                    visibility=_visibility(kind, visibility),
                    kind=sort,
                    heads=count,
                    vocab=vocab,
                    name=p.name,
                    context=context,
                )
            else:
                made = StyledModel(len(pieces), s, style, kind=sort, heads=count, name=p.name, vocab=vocab, context=context)
                made.counted = counted
            made.spelling = AnyTokens(pieces, seed, given.setdefault(vocab, {}))
            out[p.name] = families[family] = made
        elif kind == "features":
            target = families[family]
            made_of = FreeFeatures(target, s) if isinstance(target, FreeModel) else styled_features(target, s, style)
            out[p.name] = families[p.name] = made_of
        elif kind == "layers":
            target = families[family]
            out[p.name] = FreeAdapter(target, s) if isinstance(target, FreeModel) else TableAdapter(cast(TableModel, target), s)
        elif kind == "head":
            of = families[family]
            out[p.name] = AnyScores(of, s, name=p.name) if visibility == "dist" else AnyReading(of, visibility, s, name=p.name)
        else:
            raise DecError(f"there is no small model for `{p.name}` ({kind})")
    return out


class AnyTokens(Spelling):
    """A small vocabulary in which a text that a program names as a token is any of them, and another text another one: a proof
    is for every tokenizer. given: the tokens of the texts that were asked for, which models of one vocabulary share."""

    def __init__(self, pieces: Sequence[str], seed: int, given: dict[str, int]) -> None:
        known = spelled(pieces)
        super().__init__(known.pieces, known.encode)
        self.order, self.given = random.Random(seed).sample(range(len(pieces)), len(pieces)), given

    def token(self, text: str) -> int:
        """The token of a text. Raises DecError where all are those of other texts."""
        if text not in self.given:
            if len(self.given) == len(self.order):
                raise DecError(
                    f"the program names more than {len(self.order)} tokens by their texts", hint="a larger vocabulary"
                )
            self.given[text] = self.order[len(self.given)]
        return self.given[text]


def _visibility(kind: str, visibility: str) -> Visibility:
    if kind == "causal":
        return "causal"
    return ("block", 2) if visibility == "block" else "full"


SMALL = {
    "length": (3, 4),
    "block": (2, 4),
    "steps": (2, 4),
    "limit": (3, 4),
    "w": (2, 3),
    "n": (3, 3),
    "budget": (2, 5),
    "depth": (1, 2),
    "k": (2, 2),
    "gamma": (1, 3),
    "width": (2, 2),
    "reach": (2, 3),
}
SHAPES = ("2x1", "2", "[[0],[1],[0,0],[1,0]]", "[[0],[0,0],[0,1]]")


def params_for(
    function: Function,
    seed: int,
    fixed: Mapping[str, ParamValue] | None = None,
    span: int = 0,
    vocab: int = 3,
    length: str = "length",
) -> dict[str, ParamValue]:
    """Small values for every parameter that is not given, inside the declared ranges. `span`: cells of the canvas, if any.
    Raises DecError for a parameter of a type that no value is generated for."""
    r = random.Random(f"params {seed}")
    out: dict[str, ParamValue] = {}
    for p in function.params:
        t = p.value.type
        if t.elem == "model":
            continue
        if fixed and p.name in fixed:
            out[p.name] = fixed[p.name]
        elif p.name == length and span:
            out[p.name] = span
        elif t.elem in ("int", "prob", "real") and t.dims:
            out[p.name] = _vector(p, r)
        elif t.elem == "int":
            low, high = SMALL.get(p.name, (1, 2))
            low = max(low, int(p.low) if p.low is not None else low)
            high = max(low, min(high, int(p.high) if p.high is not None else high))
            out[p.name] = min(r.randint(low, high), int(p.high) if p.high is not None else high)
        elif t.elem in ("prob", "real"):
            out[p.name] = r.choice(_between(p))
        elif t.elem == "topology":
            out[p.name] = Topology.of(r.choice(SHAPES))
        elif t.elem == "bool":
            out[p.name] = r.choice([True, False])
        elif t.elem == "automaton":
            out[p.name] = automaton_for(vocab, seed)
        elif t.elem == "token" and len(t.dims) == 1 and t.dims[0].of == "upto":  # another prompt, such as a negative one
            most = min(3, t.dims[0].bound or 3)
            out[p.name] = [r.randrange(vocab) for _ in range(r.randint(int(not p.has_default), most))]
        elif t.elem == "set":  # a default may name what small worlds have not: tokens, layers
            out[p.name] = r.choice((p.default, frozenset({1}))) if p.has_default else frozenset({1})
        elif p.has_default:
            out[p.name] = p.default
            if t.elem == "list" and isinstance(t.of[0], Type) and t.of[0].elem == "token":  # of which small worlds lack some
                out[p.name] = [[x % vocab for x in tokens] for tokens in cast(Sequence[Sequence[int]], p.default)]
            elif t.elem == "token":
                tokens = cast("int | str | tuple[int, ...]", p.default)
                one = r.randrange(vocab) if isinstance(tokens, str) else tokens
                out[p.name] = [x % vocab for x in one] if isinstance(one, tuple) else one % vocab
        elif t.elem == "text":
            out[p.name] = "a"
        elif t.elem == "token" and not t.dims:
            out[p.name] = r.randrange(vocab)
        else:
            raise DecError(f"{function.name}: give a value for `{p.name}` to check it with", hint=f"--set {p.name}=...")
    return out


def _vector(p: Param, r: random.Random) -> list[Constant]:
    """Numbers for a parameter that is a vector of them: those of its default, and others, as many as fit."""
    dim, usual = p.value.type.dims[0], list(p.default) if isinstance(p.default, list | tuple) else []
    if dim.of != "upto":
        return usual or [1] * (dim.bound or 1)
    most = max(1, min(max(3, len(usual)), dim.bound or 3))
    return [r.choice([*usual, 0, 1]) for _ in range(r.randint(1 if usual or not p.has_default else 0, most))]


def _between(p: Param) -> list[Fraction]:
    """Values of a parameter that is a number: its default, and some between its ends."""
    low = Fraction(str(p.low)) if p.low is not None else Fraction(0)
    high = Fraction(str(p.high)) if p.high is not None else max(low + 1, Fraction(1))
    out = [low + (high - low) * f for f in (Fraction(1, 4), Fraction(1, 2), Fraction(3, 4))]
    return out + ([Fraction(str(p.default))] if p.has_default and p.default is not None else [])


def automaton_for(vocab: int, seed: int, states: int = 3) -> Automaton:
    """A small automaton over the vocabulary, none of whose states is stuck."""
    r = random.Random(f"automaton {seed} {vocab}")
    rows = []
    for state in range(states):
        row = [r.choice((-1, *range(states))) for _ in range(vocab)]
        row[r.randrange(vocab)] = (state + 1) % states
        rows.append(tuple(row))
    return Automaton(tuple(rows), frozenset(range(states)))


def pieces_of(vocab: int, marks: Sequence[str] = ()) -> list[str]:
    """The texts of the tokens of a small vocabulary: a few letters, some tokens of two, and last of all `marks`, of which there
    may be one less than tokens."""
    some = list(dict.fromkeys(marks))[: vocab - 1]
    others = [p for p in (*PIECES, *(f"w{v} " for v in range(len(PIECES), vocab + len(some)))) if p not in some]
    return [*others[: vocab - len(some)], *some]


def marks_of(known: Facts, plan: WorldPlan) -> tuple[str, ...]:
    """The strings that a program looks for which are tokens of a world: in two of three worlds, others first each time."""
    if plan.seed % 3 == 0 or "stop" in plan.features or not known.marks:
        return ()
    first = plan.seed % len(known.marks)
    return known.marks[first:] + known.marks[:first]


def other_pieces(vocab: int, seed: str) -> list[str]:
    """The texts of the tokens of another vocabulary, in any order: some of theirs, one at least, and others."""
    r = random.Random(seed)
    mine = pieces_of(vocab + 2)
    chosen = r.sample(mine, r.randint(2, vocab + 1))
    if not set(chosen) & set(mine[:vocab]):
        chosen.append(r.choice(mine[:vocab]))
    return chosen


def detokenizer_for(vocab: int, marks: Sequence[str] = ()) -> Detokenizer:
    """The detokenizer of a small vocabulary."""
    return detokenizer_of(pieces_of(vocab, marks))


def ends_after(token: int) -> Callable[[Sequence[int]], bool]:
    """A stopping criterion: the text ends after two tokens of which the last is `token`."""
    return lambda path: len(path) > 2 and path[-1] == token


def _features(size: int, r: random.Random) -> dict[str, Any]:
    """What each feature of a request adds to it."""
    some = r.randrange(size)
    return {
        "eos": {"eos": frozenset({some})},
        "several eos": {"eos": frozenset({some, (some + 1) % size})},
        "top_k": {"top_k": 2},
        "top_k 1": {"top_k": 1},
        "top_p": {"top_p": Fraction(2, 3)},
        "min_p": {"min_p": Fraction(1, 3)},
        "presence_penalty": {"presence_penalty": Factor(Fraction(3))},
        "frequency_penalty": {"frequency_penalty": Factor(Fraction(2))},
        "repetition_penalty": {"repetition_penalty": 2},
        "bias": {"bias": {some: Factor(Fraction(4))}},
        "bans": {"bans": frozenset({some})},
        "min_length": {"eos": frozenset({some}), "min_length": 2},
        "stop": {"stop": (PIECES[some % len(PIECES)] + "a",)},
        "allow": {"allow": automaton_for(size, r.randrange(99))},
        "until": {"until": (ends_after(some),)},
        "limit 1": {"max_tokens": 1},
        "limit 2": {"max_tokens": 2},
    }


FIRST = ("eos", "top_k", "min_length", "bans", "top_p", "presence_penalty", "bias", "repetition_penalty", "allow", "limit 1")
FEATURES = (*FIRST, *(name for name in _features(3, random.Random(0)) if name not in FIRST))
# for any tables, and no tokenizer
WITHOUT_TEXT = tuple(name for name in FEATURES if name not in ("stop", "repetition_penalty"))


def request_for(
    size: int,
    seed: int,
    max_tokens: int,
    *,
    greedy: bool = False,
    plain: bool = False,
    prompt: int | None = None,
    features: tuple[str, ...] | None = None,
    temperature: Fraction | int = 1,
) -> Request:
    """A request. Without `features` every second one is plain, and the others go through those that need no text."""
    r = random.Random(f"request {seed}")
    text = tuple(r.randrange(size) for _ in range(r.randint(2, 3) if prompt is None else prompt))
    fields: dict[str, Any] = {"prompt": text, "max_tokens": max_tokens, "seed": 0, "temperature": 0 if greedy else temperature}
    if features is None:
        features = () if plain or seed % 2 == 0 else (WITHOUT_TEXT[seed // 2 % len(WITHOUT_TEXT)],)
    known = _features(size, r)
    for name in features:
        fields.update(known[name])
    return Request(**fields)


def layers_for(params: Mapping[str, ParamValue], named: Sequence[int] = ()) -> int:
    """Layers enough for exits and skips that parameters name. named: constants of the program that layers are counted by, from
    both ends: more than twice as many."""
    numbers = [int(v) for v in params.values() if isinstance(v, int) and not isinstance(v, bool)]
    if named:
        return min(MOST_LAYERS, 2 * max(*named, *(n for n in numbers if n < MOST_LAYERS // 2), HEADS) + 1)
    return min(16, max([HEADS, *(n + 1 for n in numbers if n < 16)]))


def world(
    module: Module,
    claim: Claim,
    plan: WorldPlan,
    *,
    fixed: Mapping[str, ParamValue] | None = None,
    engine: type[ExactMachine] = ExactMachine,
    externs: Externs | None = None,
) -> Case:
    """The world of a plan."""
    f = module.entry
    known = facts(module, f)
    plan = replace(plan, vocab=max(plan.vocab, known.named + 1))  # of a tokenizer other texts are other tokens
    if claim.bound:  # it is about whole requests
        plan = replace(plan, arbitrary=None, committed=0, steps=None)
    pinned = {**dict(plan.params), **dict(fixed or {})}
    params = params_for(f, plan.seed, pinned, plan.span, plan.vocab, known.length or "length")
    if claim.for_greedy:
        plan = replace(plan, temperature=0)
    if claim.setting:
        cells = {known.length or "length"} if plan.span else set[str]()
        params = at_setting(f, claim, params, set(fixed or {}), cells, plan.seed, planned_request(plan), plan.committed)
        pinned |= {name: params[name] for name in names(claim.setting)}
    ranks = max((v.width for v in params.values() if isinstance(v, Topology)), default=0)
    if ranks > plan.vocab and claim.mode != "distribution":  # a tree of the likeliest tokens names as many of them
        plan = replace(plan, vocab=ranks, style=replace(plan.style, support=plan.style.support or 3))
    probe = plan.label == PROBE
    heads = max([8 if probe else HEADS, *(len(v) for v in params.values() if isinstance(v, Topology))])
    context = None if plan.window is None else plan.prompt + plan.window
    marks = marks_of(known, plan)
    models = models_for(
        f,
        plan.vocab,
        plan.seed + 7919 * plan.tables,
        free=plan.free,
        style=plan.style,
        context=context,
        layers=DEEP_PROBE
        if probe and plan.deep and known.layers
        else layers_for(params, [n for n in known.counts if n < MOST_LAYERS // 2] if known.layers and plan.deep else ()),
        heads=min(8, heads),
        marks=marks,
        counted=known.layers,
    )
    request = planned_request(plan)
    drawn = plan.seed if plan.seed % 3 or probe else None
    near = tuple(Fraction(n, 20) for n in range(21)) if probe else known.numbers
    whole = tuple(range(20)) if probe else known.counts
    functions = functions_for(module.externs, externs or {}, plan.vocab, near=near, whole=whole, seed=drawn)
    for name, model in models.items():
        if isinstance(model, AnyReading):
            models[name] = any_head(model, near, whole, chosen=drawn is None)
    before = {"after": request.prompt, "another": request.prompt[:1]}.get(plan.pair)
    beside = plan.pair if plan.pair == "steps" or plan.pair == "lines" else ""
    case = Case(
        module,
        f,
        claim,
        models,
        params,
        request,
        steps=plan.steps,
        length=plan.length,
        pinned=frozenset(pinned),
        detokenizer=detokenizer_for(plan.vocab, marks),
        plan=plan,
        externs=functions,
        limit=plan.runs,
        others=() if probe else others_for(plan) if known.batch else None,
        sampled=TRIES[(plan.vocab > 4000 or plan.limit > 2) + (plan.limit > 100)] if probe else 0,
        start=Start(arbitrary=plan.arbitrary, session=plan.session, before=before, beside=beside),
        engine=engine,
    )
    heads_chosen = any(isinstance(m, AnyReading) and m.chosen for m in models.values())
    if heads_chosen or any(
        isinstance(x, AnyFunction) for x in functions.values()
    ):  # what an adversary multiplies must be small
        case = narrow(case)
    if not plan.tight:
        return case
    small = least(case)
    # What a later step or draft does can only be seen in a text that is longer than what the first one commits.
    late = plan.label in LATER or plan.style.point_until > 0
    return replace(small, length=case.length, request=case.request) if late else small


def planned_request(plan: WorldPlan) -> Request:
    """The request of a plan. Its prompt's length and its limit do not depend on the vocabulary."""
    made = request_for(
        plan.vocab, plan.seed, plan.limit, prompt=plan.prompt, features=plan.features, temperature=plan.temperature
    )
    return replace(made, prompt=made.prompt[:1] * len(made.prompt)) if plan.repeat else made


def others_for(plan: WorldPlan) -> tuple[Log, ...] | None:
    """The scores of other sequences' candidates in a batch, as logarithms of probabilities; in every third world an
    adversary's."""
    if plan.seed % 3 == 0:
        return None
    r = random.Random(f"others {plan.seed}")
    return tuple(Log(Fraction(r.randint(1, 19), 20)) for _ in range(r.randint(0, 4)))


def least(case: Case, lowest: bool = False) -> Case:
    """The same world with the smallest parameters, fewer tokens and one step less to decide. lowest: whole numbers are as low
    as they may be, also those that are usually larger."""
    small = dict(case.params)
    for p in case.function.params:
        if p.value.type.elem == "int" and p.name not in case.pinned:
            low = max(1 if lowest or p.name not in SMALL else SMALL[p.name][0], int(p.low) if p.low is not None else 1)
            small[p.name] = min(low, int(p.high) if p.high is not None else low)
        elif p.value.type.elem == "topology" and p.name not in case.pinned:
            small[p.name] = Topology.of("2x1")
    return replace(case, params=small, length=min(2, case.length), request=shorter(case.request, 3))


def shorter(request: Request, max_tokens: int) -> Request:
    """A request for fewer tokens; a greedy one has a single run however long it is."""
    return request if request.greedy else replace(request, max_tokens=min(max_tokens, request.max_tokens))


def narrow(case: Case) -> Case:
    """The same world with parameters of two at most and two tokens to compare: what adversaries multiply must be small."""
    low = {p.name: int(p.low) for p in case.function.params if p.low is not None and p.value.type.elem == "int"}
    small = {
        k: max(low.get(k, 1), min(2, v)) if isinstance(v, int) and not isinstance(v, bool) and k not in case.pinned else v
        for k, v in case.params.items()
    }
    return replace(
        case,
        params=small,
        length=min(2, case.length),
        request=shorter(case.request, 2 if case.claim.mode != "distribution" else 4),
    )
