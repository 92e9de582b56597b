"""Steps of a text that are drafted and judged whole."""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from decgraph.runtime.models.table import TableModel
from lab.recordings import Case
from lab.recordings.tables import Letters, untied
from lab.recordings.upstream import Upstream

MARK = "\n\n"
EOS = 5


def steps_of(case: Case) -> dict[str, TableModel]:
    """A target, and a drafter that agrees with it on most tokens."""
    size, seed = case["size"], case["seed"]
    blend = (seed + 1, case["blend"])
    return {"target": untied(size, seed, window=None), "drafter": untied(size, seed, window=None, blend=blend, name="drafter")}


def as_long(own: str, drafted: str) -> bool:
    """A judge that is neither equality nor whatever: steps of the same length mean the same."""
    return len(own.strip()) == len(drafted.strip())


class Engines:
    """Engines that write greedily until the mark, the end or a limit. The drafter answers at once, the target when no draft is
    on its way any more, to all that wait for it; so each round has all of its drafts."""

    def __init__(self, models: dict[str, TableModel]) -> None:
        self.models, self.busy = models, 0

    def step(self, model: str, text: list[int], most: int) -> tuple[str, str, None, int, list[int]]:
        """As vLLM answers."""
        new: list[int] = []
        while len(new) < most and new[-1:] not in ([0], [EOS]):
            weights = self.models[model].eval([(*text, *new)])[0].weights
            assert weights is not None
            new.append(weights.index(max(weights)))
        return Letters([MARK]).decode(new), "stop", None, len(new), new

    async def draft(self, text: list[int], max_tokens: int, **_: Any) -> Any:
        """The drafter's next step."""
        self.busy += 1
        return self.step("drafter", text, max_tokens)

    async def target(self, text: list[int], max_tokens: int, **_: Any) -> Any:
        """The target's."""
        seen, still = self.busy, 0
        while still < 20:
            await asyncio.sleep(0)
            still = still + 1 if seen == self.busy else 0
            seen = self.busy
        return self.step("target", text, max_tokens)


def lookahead_reasoning(upstream: Upstream, case: Case) -> dict[str, Any]:
    module = upstream.module("src/lr.py", print=lambda *_: None)
    nodes: list[Any] = []
    node = vars(module)["TreeNode"]

    class Seen(node):  # type: ignore[misc, valid-type]
        def __init__(self, **how: Any) -> None:
            super().__init__(**how)
            nodes.append(self)

    node.allocate_children.__globals__["TreeNode"] = vars(module)["TreeNode"] = Seen
    letters, engines = Letters([MARK]), Engines(steps_of(case))

    async def create(prompt: str, **_: Any) -> Any:
        own, drafted = re.findall(r"<start_s\d>\n(.*?)\n<end_s\d>", prompt, re.DOTALL)
        return SimpleNamespace(choices=[SimpleNamespace(text="ali" if as_long(own, drafted) else "un")])

    tokenizer = SimpleNamespace(
        apply_chat_template=lambda *_, **how: letters.decode(case["prompt"]),
        encode=lambda *_, **how: list(case["prompt"]),
        decode=lambda tokens, **_: letters.decode(tokens),
    )
    judge = SimpleNamespace(completions=SimpleNamespace(create=create))
    config = {
        "name": "same", "judge_model": "", "eos_id": [EOS], "max_tokens": case["limit"] + 40, "step_tokens": case["reach"],
        "temperature": 0, "top_p": 1, "top_k": -1, "stop": [MARK],
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        asked = {"question": "", "answer": ""}
        running = module.run_problem(
            asked, 0, engines, engines, tokenizer, tokenizer, judge, config, config, folder, True, 1, case["depth"], True
        )
        asyncio.run(running)
        new = json.loads((Path(folder) / "0.json").read_text())["generation_tokens"][: case["limit"]]
    new = new[: new.index(EOS) + 1] if EOS in new else new
    begin = len(case["prompt"])
    rounds = sorted(len(n.prefix_token_ids) - begin for n in nodes if n.empty)
    kept = [(len(n.prefix_token_ids) - begin, n.drafter_data["n"]) for n in nodes if n.accepted]
    own = [max([at, *(a + n for a, n in kept if at <= a < until)]) for at, until in pairwise([*rounds, 1 << 30])]
    cuts = sorted({*rounds, *own, len(new)})
    return {"tokens": new, "committed": [new[a:b] for a, b in pairwise(cuts) if a < len(new)]}


RECORDINGS = {
    "lookahead_reasoning": lookahead_reasoning,
}
