"""What a run found, written after every item, and the table at its end."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Row = dict[str, Any]  # JSON; `says` is its line in the table, `right` False where a comparison did not hold
Items = Iterator[tuple[str, Callable[[], Row]]]


class OutOfTime(BaseException):
    """An item took longer than its limit. No Exception, so that what catches all of those lets it through."""


class Lost(Exception):
    """The device does nothing more in this process."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raises OutOfTime inside the block after so many seconds. Only Python can be interrupted: a kernel that never ends
    cannot, so the process ends itself, with its tracebacks, half a minute after it should have."""

    def late(*_: Any) -> None:
        raise OutOfTime(f"longer than {seconds:g} s")

    started, outer = time.monotonic(), signal.getitimer(signal.ITIMER_REAL)[0]
    seconds = min(seconds, outer) if outer else seconds
    before = signal.signal(signal.SIGALRM, late)
    _alarm(seconds)
    try:
        yield
    finally:
        _alarm(max(outer - (time.monotonic() - started), 0.01) if outer else 0)
        signal.signal(signal.SIGALRM, before)


def _alarm(seconds: float) -> None:
    """Set both alarms; 0 turns them off."""
    if seconds:
        faulthandler.dump_traceback_later(seconds + 30, exit=True)
    else:
        faulthandler.cancel_dump_traceback_later()
    signal.setitimer(signal.ITIMER_REAL, seconds)


class Report:
    """The result file. seconds: no item begins after that long.
    `wrong`: the items that failed or did not hold. `running` in the file is the item that is under way.

    A file that another process left unfinished (`resumed`) goes on: what it has is not done again, and what was running when
    that process ended counts as failed. `alive` says after a failed item whether anything can run after it.
    """

    def __init__(
        self,
        path: Path,
        seconds: float,
        about: Row,
        *,
        resumed: bool = False,
        alive: Callable[[], bool] = lambda: True,
    ) -> None:
        self.path, self.seconds, self.alive = path, seconds, alive
        self.data: Row = {"about": {**about, "when": time.strftime("%Y-%m-%d %H:%M:%S"), "began": time.time()}, "stages": {}}
        self.wrong: list[str] = []
        if resumed and path.exists():
            self.data = json.loads(path.read_text(encoding="utf-8"))
            self.wrong = self.data["wrong"]
            if broken := self.data.pop("running", None):
                stage, name = broken
                self.data["stages"][stage]["items"][name] = {"error": "its process ended", "says": "FAILED: its process ended"}
                self.wrong.append(f"{stage}: {name}")
        self.started = time.monotonic() - max(time.time() - self.data["about"]["began"], 0.0)
        self._save()

    def run(self, stage: str, items: Items, limit: float) -> None:
        """Run a stage's items one after the other, each for `limit` seconds at most. Raises Lost where nothing can run after one of them."""
        kept = self.data["stages"].setdefault(stage, {"items": {}})
        started = time.monotonic() - kept.get("seconds", 0.0)
        while True:
            name = "(stage)"
            try:
                found = next(items, None)
                if found is None:
                    break
                name, work = found
                if name in kept["items"]:
                    continue
                kept["items"][name] = self._item(stage, name, work, limit)
            except Exception as error:  # a stage that cannot go on: the next one may
                kept["items"][name] = self._failed(stage, name, error)
                break
            finally:
                kept["seconds"] = round(time.monotonic() - started, 2)
                self._save()
            if "error" in kept["items"][name] and not self.alive():
                raise Lost(f"the device is lost after {stage}: {name}")

    def _item(self, stage: str, name: str, work: Callable[[], Row], limit: float) -> Row:
        spent = time.monotonic() - self.started
        if spent > self.seconds:
            print(f"[{spent:6.1f}] {stage}: {name}: left out, no time", flush=True)
            return {"left_out": "no time", "says": "left out, no time"}
        self.data["running"] = [stage, name]
        self._save()
        try:
            with limited(limit):
                row = work()
            if row.get("right") is False:
                self.wrong.append(f"{stage}: {name}")
        except (Exception, OutOfTime) as error:  # whatever it was, it is this item's result
            row = self._failed(stage, name, error)
        self.data.pop("running")
        row["seconds"] = round(time.monotonic() - self.started - spent, 2)
        print(f"[{spent:6.1f}] {stage}: {name} ({row['seconds']} s): {row.get('says', '')}", flush=True)
        return row

    def _failed(self, stage: str, name: str, error: BaseException) -> Row:
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

    def finish(self) -> None:
        """Nothing comes after this; a process that ends without it is gone on with."""
        self.data["finished"] = True
        self._save()

    def table(self) -> str:
        """Every item in a line, for people."""
        lines = []
        for stage, kept in self.data["stages"].items():
            lines.append(f"== {stage} ({kept.get('seconds', 0)} s)")
            lines += [f"  {name:<34} {row.get('says', '')}" for name, row in kept["items"].items()]
        lines.append(f"wrong: {', '.join(self.wrong) or 'nothing'}; {self.data['about']['seconds']} s; {self.path}")
        return "\n".join(lines)
