"""Chromium without a window, for tests of pages: `from chromium import browser, page`.

Debian's Chromium is driven by playwright, which fetches none. Where one of the two is missing the tests are skipped; in CI,
which installs both, they fail, unless it says that it could not (DECGRAPH_WITHOUT_CHROMIUM).
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lib.waiting import SECONDS

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip


IMAGES = Path(__file__).parents[2] / "docs" / "images"


def lacking() -> str:
    """What is missing here, or ""."""
    if importlib.util.find_spec("playwright") is None:
        return "playwright is not installed: make setup"
    return "" if shutil.which("chromium") else "Chromium is not installed: apt-get install -y chromium"


@pytest.fixture(scope="module")  # while it is open its event loop runs in this thread, and no other can
def browser() -> Iterator[Any]:
    """A browser: `browser.new_page()`."""
    if (why := lacking()) and os.environ.get("CI") and not os.environ.get("DECGRAPH_WITHOUT_CHROMIUM"):
        pytest.fail(why)
    elif why:
        pytest.skip(why)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        opened = play.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page that fails its test where its script raises, says something on the console, or asks for more than a file's."""
    opened = browser.new_page(viewport={"width": 1360, "height": 1000})
    opened.set_default_timeout(1000 * SECONDS)
    wrong: list[str] = []
    opened.on("pageerror", lambda error: wrong.append(f"raised: {error}"))
    opened.on("console", lambda message: wrong.append(f"{message.type}: {message.text}"))
    opened.on("request", lambda asked: wrong.append(f"asked for {asked.url}") if not asked.url.startswith("file:") else None)
    opened.on("dialog", lambda dialog: wrong.append(f"dialog: {dialog.message}"))
    yield opened
    opened.close()
    assert not wrong, wrong


def picture(page: Any, name: str, config: pytest.Config, **how: Any) -> None:
    """What the page shows, as docs/images/NAME.png: written with --update-golden alone, since text is drawn a little
    differently everywhere. A picture of one colour is none."""
    path = IMAGES / f"{name}.png"
    if config.getoption("--update-golden"):
        page.screenshot(path=path, **how)
    shown = page.screenshot(**how)
    assert len(shown) > 10_000 and path.is_file(), f"{name}: {len(shown)} bytes"
