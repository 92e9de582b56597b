"""Steps of a drafter's text that another model judges: the target writes some of them again."""

from __future__ import annotations

import copy
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from decgraph.runtime.models.table import TableModel
from lab.recordings import Case
from lab.recordings.steps import models
from lab.recordings.tables import Letters, Stream, TableLM
from lab.recordings.upstream import Upstream

MARK = "\n\n"
READS = ("prepare_input", "sigmoid", "derive_step_rewards_vllm")
IO = "skywork_o1_prm_inference/model_utils/io_utils.py"


class Spelled(Letters):
    """With the mark as token 0, and no token that begins a text."""

    bos_token = ""

    def __init__(self) -> None:
        super().__init__([MARK])


class Server:
    """A client of an engine that completes a text until the mark, the end or a limit. used: whether its draws are made, or
    only looked at, as nobody reads what it wrote."""

    def __init__(self, table: TableModel, case: Case, stream: Stream) -> None:
        self.table, self.case, self.stream, self.used = TableLM(table), case, stream, True
        self.completions = self

    def create(self, prompt: list[str], max_tokens: int, temperature: float, **_: Any) -> Any:
        """One answer to the one prompt, without what it stopped at."""
        text, new, last = Spelled().encode(prompt[0]), list[int](), None
        stream = self.stream if self.used else copy.deepcopy(self.stream)
        while len(new) < max_tokens and last is None:
            p = torch.softmax(self.table.row([*text, *new]).double() / (temperature or 1), -1).numpy()
            x = stream.draw(p) if temperature else int(p.argmax())
            last = x if x == 0 or x in self.case["eos"] else None
            new += [] if last is not None else [x]
        marked = MARK if last == 0 else None
        said = SimpleNamespace(index=0, text=Spelled().decode(new), stop_reason=marked, matched_stop=marked)
        return SimpleNamespace(choices=[said])


class Scorer:
    """A client of an engine that scores a response: behind each token, the log-odds of the likeliest next one."""

    def __init__(self, table: TableModel, case: Case) -> None:
        self.table, self.case = table, case
        self.embeddings = self

    def odds(self, response: list[int]) -> float:
        """After a response."""
        weights = self.table.eval([(*self.case["prompt"], *response)])[0].weights
        sure = float(max(weights or ()))
        return math.log(sure / (1 - sure))

    def create(self, input: Any, **_: Any) -> Any:
        """Of the one response."""
        said = [self.odds(input[0][: i + 1]) for i in range(len(input[0]))]
        return SimpleNamespace(data=[SimpleNamespace(embedding=said)])


class Router(Scorer):
    """The log-odds of the end against 0; the target's draws are made where they are `tau` or more."""

    def __init__(self, table: TableModel, case: Case, target: Server) -> None:
        super().__init__(table, case)
        self.target = target

    def create(self, input: Any, **_: Any) -> Any:
        """Of the one response."""
        said = torch.tensor([0.0, self.odds(input[0])])
        self.target.used = float(torch.softmax(said, -1)[-1]) >= self.case["tau"]
        return SimpleNamespace(data=[SimpleNamespace(embedding=said.tolist())])


def stepwise(case: Case, threshold: float, respond: Any, *clients: Any) -> dict[str, Any]:
    """The text, and who wrote each step: 1 is the drafter."""
    names = ("draft_model_name_or_path", "target_model_name_or_path", "prm_name_or_path", "router_name_or_path")
    settings = SimpleNamespace(
        **dict.fromkeys(names, ""), temperature=case["temperature"], top_p=1, max_tokens_per_call=case["reach"],
        step_word=MARK, prm_threshold=threshold, max_steps=case["steps"], patience=1000, run_type="router", annotate=False,
        multi_target_run=False,
    )  # fmt: skip
    letters = [Spelled()] * (len(clients))
    outputs, _, info, _ = respond(settings, *clients, *letters, [Spelled().decode(case["prompt"])], [""])
    return {"tokens": Spelled().encode(outputs[0]), "writers": [who for _, who in info[0]]}


def rsd(upstream: Upstream, case: Case) -> dict[str, Any]:
    read = upstream.names(f"external/{IO}", *READS, np=np)
    code = upstream.names("main_online.py", "get_responses", print=lambda *_: None, **{n: read[n] for n in READS})
    made, stream = models(case), Stream(case["seed"])
    draft, target = (Server(made[name], case, stream) for name in ("drafter", "target"))
    return stepwise(case, case["delta"], code["get_responses"], draft, target, Scorer(made["judge"], case))


def arbitrage(upstream: Upstream, case: Case) -> dict[str, Any]:
    reads = "derive_step_rewards_vllm_router"
    read = upstream.names(f"utils/{IO}", reads, torch=torch)
    wanted = ("get_responses", "generate_with_model", "prepare_input_router")
    code = upstream.names("arbitrage.py", *wanted, print=lambda *_: None, **{reads: read[reads]})
    made, stream = models(case), Stream(case["seed"])
    draft, target = (Server(made[name], case, stream) for name in ("drafter", "target"))
    return stepwise(case, case["tau"], code["get_responses"], draft, target, None, Router(made["reader"], case, target))


RECORDINGS = {
    "reward_guided_sd": rsd,
    "arbitrage": arbitrage,
}
