"""The optional extras of pyproject.toml: which of their packages are not installed, and the one command that installs them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

from decgraph.errors import DecError

REPOSITORY = "https://github.com/decgraph/decgraph"
MODELS = ("torch", "transformers", "tokenizers", "safetensors", "triton", "huggingface_hub")
"""What the extra `models` brings; a base install does without."""
PACKAGES = {
    "models": ("torch", "transformers", "tokenizers", "safetensors", "llguidance"),  # and triton, for Linux alone
    "gguf": ("gguf", "accelerate"),
    "evals": ("lm_eval",),
    "serve": ("fastapi", "pydantic", "uvicorn", "prometheus_client"),
    "peers": ("xllamacpp", "ctranslate2", "openvino_genai", "gguf"),
    "plots": ("matplotlib",),
    "editor": ("pygls", "lsprotocol"),
    "ray": ("ray",),
    "traces": ("opentelemetry",),
}
"""The modules that code with a hint imports, by the extra that brings them."""


def requirement(*extras: str) -> str:
    """What pip installs on any machine: decgraph is on no package index yet, so the repository's address is in it."""
    return f"decgraph{_bracketed(extras)} @ git+{REPOSITORY}"


def command(*extras: str) -> str:
    """The command that adds extras to this installation: from the checkout that it was installed from, else from the
    repository."""
    folder = checkout()
    if folder is None:
        return f"pip install {shlex.quote(requirement(*extras))}"
    return f"pip install -e {shlex.quote(f'{folder}{_bracketed(extras)}')}"


def checkout() -> Path | None:
    """The folder with the sources that this package was installed or is imported from; None for an installed wheel."""
    beside = Path(__file__).resolve().parents[1]
    if (beside / "pyproject.toml").is_file():
        return beside
    try:
        origin = json.loads(distribution("decgraph").read_text("direct_url.json") or "{}")  # pip writes it: PEP 610
    except PackageNotFoundError:
        return None
    folder = Path(unquote(urlsplit(origin["url"]).path)) if "dir_info" in origin else None
    return folder if folder and (folder / "pyproject.toml").is_file() else None


def needed(*extras: str, first: str = "", what: str = "this needs") -> DecError:
    """The error where extras are not installed: every package of theirs that is missing, and one command for all of them.
    first: what was found to be missing of the last extra, which is named before the others."""
    lacking = {extra: [name for name in PACKAGES[extra] if find_spec(name) is None] for extra in extras}
    names = list(dict.fromkeys([first.partition(".")[0], *(name for found in lacking.values() for name in found)]))
    names = names if first else names[1:]
    listed = " and ".join([*([", ".join(names[:-1])] if len(names) > 1 else []), *names[-1:]])
    wanted = [extra for extra in extras if lacking[extra] or (first and extra == extras[-1])]
    return DecError(f"{what} {listed}, which {'are' if len(names) > 1 else 'is'} not installed", hint=command(*wanted))


def check(*extras: str, also: str = "", what: str = "this needs") -> None:
    """To be called before anything is read or computed. Raises DecError where a package of these extras is not installed, or
    the package `also`, which the last extra brings."""
    first = also if also and find_spec(also) is None else ""
    if first or any(find_spec(name) is None for extra in extras for name in PACKAGES[extra]):
        raise needed(*extras, first=first, what=what)


def lacking(error: BaseException) -> DecError | None:
    """The error to show where an import failed because the extra `models` is not installed; None for every other error."""
    name = (error.name or "").split(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if name not in MODELS:
        return None
    return needed("models", first=name)


@contextmanager
def needs_models() -> Iterator[None]:
    """Around what imports torch and its family: raises DecError with the way to install them. A decorator as well."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (known := lacking(error)) is not None:
            raise known from error
        raise


def _bracketed(extras: tuple[str, ...]) -> str:
    return f"[{','.join(extras)}]" if extras else ""
