"""How much Python one decoded token crosses: functions called and files entered, per token, on the shipped models.

$ PYTHONPATH=. python -m lab.walk               # the totals
$ PYTHONPATH=. python -m lab.walk speculative   # the functions of one algorithm, the most often called first
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from types import FrameType
from typing import Any

import decgraph

TOKENS = 48
ALGORITHMS = ("autoregressive", "speculative")


def walk(name: str, seen: Counter[tuple[str, str]]) -> int:
    """Count the functions that are called in the third run of a session, and return how many tokens the run has."""
    session = decgraph.load(name).session(backend="torch")
    assert session.tokenizer is not None
    request = decgraph.Request(tuple(session.tokenizer.encode("def main():")), TOKENS, temperature=0)
    for _ in range(2):
        session.run(request, keep_events=False)

    def called(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            seen[frame.f_code.co_filename, frame.f_code.co_qualname] += 1

    sys.setprofile(called)
    try:
        result = session.run(request, keep_events=False)
    finally:
        sys.setprofile(None)
    return len(result.tokens)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("algorithm", nargs="?", help="an algorithm, of which the functions are listed")
    given = parser.parse_args().algorithm
    for name in (given,) if given else ALGORITHMS:
        seen: Counter[tuple[str, str]] = Counter()
        tokens = walk(name, seen)
        files = Counter[str]()
        for (file, _), times in seen.items():
            files[file] += times
        steady = sum(times > tokens / 10 for times in files.values())
        print(f"{name}: {sum(seen.values()) / tokens:.1f} calls a token, in {steady} files ({len(files)} in the whole run)")
        for (file, function), times in seen.most_common() if given else ():
            print(f"{times / tokens:8.2f}  {'/'.join(file.split('/')[-3:])}  {function}")


if __name__ == "__main__":
    main()
