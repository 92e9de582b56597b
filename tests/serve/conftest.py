"""One server on the shipped models for the tests of the room."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from lib.server import client, served

import decgraph
from decgraph.serve.catalogue import Catalogue

ALGORITHMS = ("speculative", "autoregressive", "prompt_lookup", "beam")


@pytest.fixture(scope="session")
def catalogue() -> Catalogue:
    return Catalogue(ALGORITHMS, "target", drafter="drafter")


@pytest.fixture(scope="session")
def server(catalogue: Catalogue) -> Iterator[Any]:
    with served(catalogue, width=8, queue=32, chunk=64) as running:
        yield running


@pytest.fixture(scope="session")
def api(server: Any) -> Iterator[Any]:
    with client(server) as made:
        yield made


@pytest.fixture(scope="session")
def parrot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The shipped target with a template that tells of tools, and OpenAI's client for it, `.api`."""
    home = tmp_path_factory.mktemp("models") / "parrot"
    home.mkdir()
    for file in decgraph.zoo.path("target").iterdir():
        (home / file.name).symlink_to(file)
    (home / "chat_template.jinja").write_text(
        "{% if tools %}{% for t in tools %}{{ t.function.name }} {% endfor %}as <tool_call>{{ '\n' }}{% endif %}"
        "{% for m in messages %}<{{ m.role }}> {{ m.content }}{% for c in m.tool_calls or [] %}({{ c.function.name }} "
        "{{ c.function.arguments.city }}){% endfor %}{{ '\n' }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
        "{{ mood }}"
    )
    with served(Catalogue(["autoregressive"], str(home))) as running, client(running) as api:
        running.api = api
        yield running
