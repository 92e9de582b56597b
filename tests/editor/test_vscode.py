"""The extension in VS Code itself, as a browser shows it: what an author sees who writes a wrong word, mends it and asks for a
check. Needs code-server (tests/install_code_server.sh); the pictures of docs/editors.md are made here."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lib.chromium import browser, picture  # noqa: F401  # a fixture
from lib.waiting import SECONDS, listens, started, until

ROOT = Path(__file__).parents[2]
PROGRAM = '''algorithm mine(target: causal, drafter: causal, gamma: int in 1..16 = 4):
    """Speculative decoding by the library's rejection rule."""
    refines autoregressive(target) in distribution

    while not done:
        draft t:
            repeat gamma:
                x ~ drafter(t.leaves)
                grow x
        verify t by rejection against targt(t)
        commit t.accepted
'''
SETTINGS = {
    "workbench.startupEditor": "none",
    "workbench.colorTheme": "Default Light Modern",
    "editor.minimap.enabled": False,
    "telemetry.telemetryLevel": "off",
    "extensions.autoCheckUpdates": False,
    "update.mode": "none",
}


def code_server() -> str:
    """Where it is, or ""."""
    return os.environ.get("DECGRAPH_CODE_SERVER") or shutil.which("code-server") or ""


@pytest.fixture
def editor(tmp_path: Path) -> Iterator[str]:
    """VS Code with the extension and a folder that holds mine.dec, as an address."""
    if not code_server() or not shutil.which("npm"):
        pytest.skip("code-server is not installed: tests/install_code_server.sh")
    work, extensions, user = tmp_path / "work", tmp_path / "extensions", tmp_path / "user"
    work.mkdir()
    (work / "mine.dec").write_text(PROGRAM, encoding="utf-8")
    programs = work / ".venv" / "bin"  # where the extension looks first
    programs.mkdir(parents=True)
    (programs / "decgraph").write_text(f'#!/bin/sh\nexec {sys.executable} -m decgraph "$@"\n', encoding="utf-8")
    (programs / "decgraph").chmod(0o755)
    ours = shutil.copytree(ROOT / "editor/vscode", extensions / "decgraph.decgraph-0.1.0")
    subprocess.run(
        ["npm", "install", "--omit=dev", "--no-audit", "--no-fund"], cwd=ours, check=True, capture_output=True, timeout=SECONDS
    )
    (user / "User").mkdir(parents=True)
    (user / "User/settings.json").write_text(json.dumps(SETTINGS), encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    quiet = ["--disable-telemetry", "--disable-update-check", "--disable-workspace-trust"]
    places = ["--user-data-dir", str(user), "--extensions-dir", str(extensions), "--config", str(tmp_path / "config.yaml")]
    command = [code_server(), "--auth", "none", "--bind-addr", f"127.0.0.1:{port}", *places, *quiet, str(work)]
    with (tmp_path / "log").open("w") as log:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with started(command, seconds=2 * SECONDS, stdout=log, stderr=log, env=environment) as running:
            until("code-server answers", lambda: listens(port))
            yield f"http://127.0.0.1:{port}/?folder={work}"
            running.terminate()
            running.wait(SECONDS)


@pytest.mark.nightly
def test_a_wrong_word_is_marked_mended_and_the_claim_checked(
    editor: str,
    browser: Any,  # noqa: F811
    pytestconfig: pytest.Config,
) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 560})
    page.goto(editor, timeout=120_000)
    page.wait_for_selector("text=mine.dec", timeout=120_000)
    page.dblclick("text=mine.dec")
    mark = page.locator(".squiggly-error")
    mark.first.wait_for(state="attached", timeout=60_000)
    page.locator(".codelens-decoration", has_text="check the claim").wait_for(timeout=20_000)
    wrong = page.locator(".view-line span", has_text="targt").last
    wrong.hover()
    said = page.locator(".monaco-hover").filter(has_text="targt")
    said.wait_for(timeout=20_000)
    assert "did you mean target?" in said.inner_text()
    page.wait_for_timeout(700)  # until it has faded in
    picture(page, "editor", pytestconfig)

    wrong.dblclick()
    page.keyboard.type("target", delay=40)
    page.keyboard.press("Escape")
    mark.first.wait_for(state="detached", timeout=20_000)
    page.locator(".codelens-decoration a", has_text="check the claim").click(timeout=20_000)
    page.wait_for_function(
        "[...document.querySelectorAll('.codelens-decoration')].some(lens => lens.innerText.includes('proved'))", timeout=90_000
    )
    lens = " ".join(page.locator(".codelens-decoration").all_inner_texts())
    assert "target" in lens, lens  # what a step calls
    picture(page, "editor-proved", pytestconfig)

    page.click(".view-line >> text=mine")  # the cursor into the algorithm
    page.keyboard.press("F1")
    page.keyboard.type("explain the algorithm", delay=20)
    page.locator(".quick-input-list .monaco-list-row", has_text="Explain the Algorithm").first.click(timeout=20_000)
    beside = page.frame_locator("iframe.webview").last.frame_locator("iframe#active-frame")
    beside.locator("text=static cost").wait_for(timeout=90_000)
    assert "until the request is finished" in beside.locator("body").inner_text()
    picture(page, "editor-explained", pytestconfig)

    page.keyboard.press("Control+w")  # the page beside
    page.locator(".codelens-decoration a", has_text="trace").click(timeout=20_000)
    page.locator(".quick-input-box input").wait_for(timeout=20_000)
    page.keyboard.press("Enter")  # with the prompt that is offered
    beside = page.frame_locator("iframe.webview").last.frame_locator("iframe#active-frame")
    beside.locator("h1", has_text="mine: trace").wait_for(timeout=120_000)
    assert "tokens a call" in beside.locator("body").inner_text()  # which its scripts write
    page.close()
