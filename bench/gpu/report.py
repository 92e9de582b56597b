"""What a run found, written after every item, and the table at its end."""

from __future__ import annotations

import json
import os
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Row = dict[str, Any]  # JSON; `says` is its line in the table, `right` False where a comparison did not hold
Items = Iterator[tuple[str, Callable[[], Row]]]


class Report:
    """The result file. seconds: no item begins after that long. `wrong`: the items that failed or did not hold."""

    def __init__(self, path: Path, seconds: float, about: Row) -> None:
        self.path, self.seconds, self.started = path, seconds, time.monotonic()
        self.data: Row = {"about": {**about, "when": time.strftime("%Y-%m-%d %H:%M:%S")}, "stages": {}}
        self.wrong: list[str] = []
        self._save()

    def run(self, stage: str, items: Items) -> None:
        """Run a stage's items one after the other."""
        kept = self.data["stages"].setdefault(stage, {"items": {}})
        started = time.monotonic()
        while True:
            name = "(stage)"
            try:
                found = next(items, None)
                if found is None:
                    break
                name, work = found
                kept["items"][name] = self._item(stage, name, work)
            except Exception as error:  # a stage that cannot go on: the next one may
                kept["items"][name] = self._failed(stage, name, error)
                break
            finally:
                kept["seconds"] = round(time.monotonic() - started, 2)
                self._save()

    def _item(self, stage: str, name: str, work: Callable[[], Row]) -> Row:
        spent = time.monotonic() - self.started
        if spent > self.seconds:
            print(f"[{spent:6.1f}] {stage}: {name}: left out, no time", flush=True)
            return {"left_out": "no time", "says": "left out, no time"}
        try:
            row = work()
            if row.get("right") is False:
                self.wrong.append(f"{stage}: {name}")
        except Exception as error:  # whatever it was, it is this item's result
            row = self._failed(stage, name, error)
        row["seconds"] = round(time.monotonic() - self.started - spent, 2)
        print(f"[{spent:6.1f}] {stage}: {name} ({row['seconds']} s): {row.get('says', '')}", flush=True)
        return row

    def _failed(self, stage: str, name: str, error: Exception) -> Row:
        self.wrong.append(f"{stage}: {name}")
        why = f"{type(error).__name__}: {error}".splitlines()[0][:300]
        return {"error": why, "traceback": traceback.format_exc()[-6000:], "says": f"FAILED: {why}"}

    def _save(self) -> None:
        self.data["about"]["seconds"] = round(time.monotonic() - self.started, 1)
        self.data["wrong"] = self.wrong
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_name(self.path.name + ".part")
        draft.write_text(json.dumps(self.data, indent=1) + "\n", encoding="utf-8")
        os.replace(draft, self.path)

    def table(self) -> str:
        """Every item in a line, for people."""
        lines = []
        for stage, kept in self.data["stages"].items():
            lines.append(f"== {stage} ({kept.get('seconds', 0)} s)")
            lines += [f"  {name:<34} {row.get('says', '')}" for name, row in kept["items"].items()]
        lines.append(f"wrong: {', '.join(self.wrong) or 'nothing'}; {self.data['about']['seconds']} s; {self.path}")
        return "\n".join(lines)
