"""The language server over standard input and output, asked as an editor asks; and its encodings."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from lib.lazily import language_server, lsp, pygls
from lib.waiting import SECONDS, until

from decgraph.dsl.source import Source

STDLIB = Path(__file__).parents[2] / "stdlib"
TEXT = (STDLIB / "speculative.dec").read_text(encoding="utf-8")
URI = "file:///work/mine.dec"


class Editor:
    """A client that opens one text, and what the server published of it by version. `uri`: what the text is called; `folder`:
    the workspace's."""

    def __init__(self, uri: str = URI, folder: Path | None = None) -> None:
        from pygls.lsp.client import LanguageClient

        self.uri, self.folder = uri, folder
        self.client, self.published = LanguageClient("test", "1"), dict[int | None, Any]()
        self.news = asyncio.Event()
        self.version = 1

        @self.client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def published(params: lsp.PublishDiagnosticsParams) -> None:
            self.published[params.version] = list(params.diagnostics)
            self.news.set()

    async def open(self, text: str, **options: Any) -> lsp.InitializeResult:
        await self.client.start_io(sys.executable, "-m", "decgraph", "lsp")
        folders = [lsp.WorkspaceFolder(self.folder.as_uri(), self.folder.name)] if self.folder else None
        params = lsp.InitializeParams(
            capabilities=lsp.ClientCapabilities(), workspace_folders=folders, initialization_options=options
        )
        result = await self.client.initialize_async(params)
        self.client.initialized(lsp.InitializedParams())
        item = lsp.TextDocumentItem(self.uri, "dec", 1, text)
        self.client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
        return result

    async def write(self, text: str) -> None:
        self.version += 1
        whole = lsp.TextDocumentContentChangeWholeDocument(text)
        document = lsp.VersionedTextDocumentIdentifier(self.version, self.uri)
        self.client.text_document_did_change(lsp.DidChangeTextDocumentParams(document, [whole]))

    async def diagnostics(self) -> list[lsp.Diagnostic]:
        while self.version not in self.published:
            self.news.clear()
            await asyncio.wait_for(self.news.wait(), SECONDS)
        return self.published[self.version]

    async def close(self) -> str:
        """Ends the server; what it wrote on its standard error."""
        errors = self.client._server.stderr
        await self.client.shutdown_async(None)
        self.client.exit(None)
        await self.client.stop()
        return (await errors.read()).decode()


def at_word(text: str, line: str, word: str) -> tuple[int, int]:
    """The line and column, from 0, behind a word of the first line that has something in it."""
    number, found = next((n, found) for n, found in enumerate(text.splitlines()) if line in found)
    return number, found.index(line) + len(word)


async def session() -> None:
    editor, document = Editor(), lsp.TextDocumentIdentifier(URI)
    client = editor.client
    result = await editor.open(TEXT)
    assert result.capabilities.hover_provider and result.capabilities.rename_provider
    assert await editor.diagnostics() == []

    await editor.write(TEXT.replace("by rejection", "by rejektion"))
    (wrong,) = await editor.diagnostics()
    line = TEXT[: TEXT.index("rejection")].count("\n")
    assert (wrong.range.start.line, wrong.code) == (line, "E230")
    assert wrong.code_description.href.endswith("E230.md")
    assert "did you mean rejection" in wrong.message

    asked = lsp.CodeActionParams(document, wrong.range, lsp.CodeActionContext([wrong]))
    action, *others = await client.text_document_code_action_async(asked)
    assert len(others) <= 1  # the second likeliest
    (written,) = action.edit.changes[URI]
    assert (action.kind, written.new_text, written.range) == ("quickfix", "rejection", wrong.range)
    beside = lsp.Range(lsp.Position(0, 0), lsp.Position(0, 3))
    assert not await client.text_document_code_action_async(lsp.CodeActionParams(document, beside, lsp.CodeActionContext([])))

    await editor.write(TEXT)
    at = lsp.Position(line, TEXT.splitlines()[line].index("rejection") + 1)
    told = await client.text_document_hover_async(lsp.HoverParams(document, at))
    assert "rule rejection" in told.contents.value
    there = await client.text_document_definition_async(lsp.DefinitionParams(document, at))
    assert there.uri.endswith("stdlib/rules.dec")
    choices = await client.text_document_completion_async(lsp.CompletionParams(document, at))
    assert {"rejection", "match"} <= {choice.label for choice in choices}

    gamma = lsp.Position(0, TEXT.index("gamma"))
    context = lsp.ReferenceContext(include_declaration=True)
    places = await client.text_document_references_async(lsp.ReferenceParams(context, document, gamma))
    assert len(places) == 2
    edit = await client.text_document_rename_async(lsp.RenameParams(document, gamma, "k"))
    assert len(edit.changes[URI]) == 2
    with pytest.raises(pygls.JsonRpcException, match="already a parameter"):
        await client.text_document_rename_async(lsp.RenameParams(document, gamma, "target"))
    call = lsp.Position(*at_word(TEXT, "drafter(t.leaves", "drafter("))
    told = await client.text_document_signature_help_async(lsp.SignatureHelpParams(document, call))
    form = told.signatures[told.active_signature]
    assert (form.label, form.parameters[told.active_parameter].label) == ("drafter(ctx)", (8, 11))
    whole = lsp.Range(lsp.Position(0, 0), lsp.Position(len(TEXT.splitlines()), 0))
    hints = await client.text_document_inlay_hint_async(lsp.InlayHintParams(document, whole))
    (hint,) = hints
    assert (hint.position, hint.label) == (lsp.Position(*at_word(TEXT, "x ~", "x")), ": draw over part of t")

    (symbol,) = await client.text_document_document_symbol_async(lsp.DocumentSymbolParams(document))
    assert (symbol.name, symbol.children[2].name) == ("speculative", "gamma")
    lenses = await client.text_document_code_lens_async(lsp.CodeLensParams(document))
    assert [lens.command.command for lens in lenses] == ["decgraph.check", ""]
    tokens = await client.text_document_semantic_tokens_full_async(lsp.SemanticTokensParams(document))
    assert len(tokens.data) % 5 == 0 and tokens.data

    gone = lsp.TextDocumentIdentifier("file:///nowhere/gone.dec")  # never opened, and not there
    start = lsp.Position(0, 0)
    assert await client.text_document_hover_async(lsp.HoverParams(gone, start)) is None
    assert await client.text_document_definition_async(lsp.DefinitionParams(gone, start)) is None
    assert not await client.text_document_code_lens_async(lsp.CodeLensParams(gone))
    assert not (await client.text_document_semantic_tokens_full_async(lsp.SemanticTokensParams(gone))).data

    await editor.write(TEXT.replace("    while not", "    while   not"))
    options = lsp.FormattingOptions(4, True)
    (change,) = await client.text_document_formatting_async(lsp.DocumentFormattingParams(document, options))
    assert change.new_text == TEXT
    assert await editor.close() == ""  # a refused rename is no fault of the server


@pytest.mark.budget(12)
def test_an_editors_session() -> None:
    asyncio.run(asyncio.wait_for(session(), SECONDS))


BESIDE = """\


extern asked(text) -> bool on host

algorithm asks(target: causal):
    while not done:
        break if asked(text_of(ctx))
        commit argmax(target(ctx).raw)

algorithm plain(target: causal):
    refines autoregressive(target) in tokens
    while not done:
        commit argmax(target(ctx).raw)
"""


async def checked() -> None:
    editor, document = Editor(), lsp.TextDocumentIdentifier(URI)
    await editor.open(
        "algorithm greedy_always(target: causal):\n    refines autoregressive(target) in distribution\n"
        "    while not done:\n        commit argmax(target(ctx))\n" + BESIDE,
        buttons=[["trace", "mine.trace"]],
    )
    assert await editor.diagnostics() == []
    arguments = lsp.ExecuteCommandParams("decgraph.check", [URI, "greedy_always"])
    said = await editor.client.workspace_execute_command_async(arguments)
    assert said.startswith("refuted")
    (warning,) = editor.published[1]
    assert "is refuted" in warning.message and "total variation" in warning.message
    first = (await editor.client.text_document_code_lens_async(lsp.CodeLensParams(document)))[0]
    assert first.command.title == said
    whole = lsp.Range(lsp.Position(0, 0), lsp.Position(5, 0))
    hints = await editor.client.text_document_inlay_hint_async(lsp.InlayHintParams(document, whole))
    assert [(hint.position.line, hint.label) for hint in hints] == [(1, "refuted")]
    lenses = await editor.client.text_document_code_lens_async(lsp.CodeLensParams(document))
    assert ("mine.trace", [URI, "plain"]) in [(x.command.command, list(x.command.arguments or ())) for x in lenses]

    async def page(*given: Any) -> Any:
        return await editor.client.workspace_execute_command_async(lsp.ExecuteCommandParams("decgraph.show", list(given)))

    explained = await page("explain", URI, [17, 4], "")  # by place
    assert (
        explained["title"] == "plain: explain"
        and "until the request is finished" in explained["html"]
        and "static cost" in explained["html"]
    )
    with pytest.raises(pygls.JsonRpcException, match="no algorithm here"):
        await page("explain", URI, "gone", "")
    with pytest.raises(pygls.JsonRpcException, match="needs the function `asked`"):  # what the command line says, as it says it
        await page("trace", URI, "asks", "")
    await editor.close()


@pytest.mark.budget(14)
def test_a_check_says_what_it_found_above_the_algorithm() -> None:
    asyncio.run(asyncio.wait_for(checked(), SECONDS))


async def traced() -> None:
    editor = Editor()
    await editor.open(MINE + BESIDE)
    given = ["trace", URI, "mine_alone", "def f(x):"]  # not the file's last one
    found = await editor.client.workspace_execute_command_async(lsp.ExecuteCommandParams("decgraph.show", given))
    assert found["title"] == "mine_alone: trace" and '"prompt":["def"," f","(","x","):"]' in found["html"]
    given = ["check", URI, "plain", ""]
    found = await editor.client.workspace_execute_command_async(lsp.ExecuteCommandParams("decgraph.show", given))
    assert found["title"] == "plain: check" and "refuted" in found["html"]
    assert await editor.close() == ""


@pytest.mark.nightly
def test_an_algorithm_is_traced_and_checked_as_a_page() -> None:
    asyncio.run(asyncio.wait_for(traced(), SECONDS))


MINE = """\
from rules import match


algorithm mine_alone(target: causal, k: int in 1..4 = 2):
    refines autoregressive(target) in tokens

    while not done:
        draft t:
            grow topk(target(t.leaves).raw, k)
        verify t by match against target(t)
        commit t.accepted
"""


def places(edit: lsp.WorkspaceEdit) -> set[tuple[str, int, int]]:
    return {
        (Path(uri.removeprefix("file://")).name, e.range.start.line, e.range.start.character)
        for uri, edits in edit.changes.items()
        for e in edits
    }


async def across(folder: Path) -> None:
    """A workspace that holds the library, as a checkout is, and a file that imports a rule of it."""
    file = folder / "mine.dec"
    editor, document = Editor(file.as_uri(), STDLIB), lsp.TextDocumentIdentifier(file.as_uri())
    client = editor.client
    await editor.open(MINE)
    assert await editor.diagnostics() == []
    expected = {  # in the library `match` stands behind `by`, and where it is defined
        (path.name, n, line.index("match"))
        for path in STDLIB.glob("*.dec")
        for n, line in enumerate(path.read_text(encoding="utf-8").splitlines())
        if re.match(r" +verify .* by match\b|rule match\b", line)
    }
    own = {("mine.dec", *at_word(MINE, word, word.removesuffix("match"))) for word in ("import match", "by match")}
    here = lsp.Position(*at_word(MINE, "by match", "by ma"))
    found = await client.text_document_references_async(
        lsp.ReferenceParams(lsp.ReferenceContext(include_declaration=True), document, here)
    )
    assert {(Path(f.uri).name, f.range.start.line, f.range.start.character) for f in found} == expected | own
    assert len(expected) > 50

    asked = lsp.RenameParams(document, here, "same_token")
    with pytest.raises(pygls.JsonRpcException, match="outside of this folder"):  # mine.dec is not in the workspace
        await client.text_document_rename_async(asked)
    client.workspace_did_change_workspace_folders(
        lsp.DidChangeWorkspaceFoldersParams(lsp.WorkspaceFoldersChangeEvent([lsp.WorkspaceFolder(folder.as_uri(), "mine")], []))
    )
    assert places(await client.text_document_rename_async(asked)) == expected | own
    every = "means something in every program"
    for taken, why in [("rejection", every), ("argmax", every), ("mine_alone", "already an algorithm in mine.dec")]:
        with pytest.raises(pygls.JsonRpcException, match=why):
            await client.text_document_rename_async(lsp.RenameParams(document, here, taken))
    outer = lsp.Position(*at_word(MINE, "refines auto", "refines auto"))
    with pytest.raises(pygls.JsonRpcException, match="name of its file"):
        await client.text_document_rename_async(lsp.RenameParams(document, outer, "plain"))
    assert await client.text_document_prepare_rename_async(lsp.PrepareRenameParams(document, here)) is not None

    symbols = await client.workspace_symbol_async(lsp.WorkspaceSymbolParams("mine_al"))
    assert ("mine_alone", file.as_uri()) in {(s.name, s.location.uri) for s in symbols}
    symbols = await client.workspace_symbol_async(lsp.WorkspaceSymbolParams("spculative"))
    assert ("speculative", lsp.SymbolKind.Class) in {(s.name, s.kind) for s in symbols}
    assert await editor.close() == ""


@pytest.mark.budget(12)
def test_names_of_the_library_are_followed_into_every_file(tmp_path: Path) -> None:
    asyncio.run(asyncio.wait_for(across(tmp_path), SECONDS))


def spent(pid: int) -> float:
    """Seconds of processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def timed() -> dict[str, float]:
    """Milliseconds of the server's processor time for an answer of each kind, in the longest program of the library."""
    path = max((p for p in STDLIB.glob("*.dec") if p.stem != "rules"), key=lambda p: len(p.read_text(encoding="utf-8")))
    text = path.read_text(encoding="utf-8")
    editor, document = Editor(path.as_uri(), STDLIB), lsp.TextDocumentIdentifier(path.as_uri())
    client = editor.client
    await editor.open(text)
    assert await editor.diagnostics() == []
    call = max((line for line in text.splitlines() if "(" in line), key=len)
    inside = lsp.Position(*at_word(text, call, call[: call.rindex("(") + 1]))
    name = lsp.Position(*at_word(text, "algorithm", "algorithm "))
    whole = lsp.Range(lsp.Position(0, 0), lsp.Position(len(text.splitlines()), 0))
    asked = {
        "workspace/symbol": lsp.WorkspaceSymbolParams("beam"),
        "textDocument/references": lsp.ReferenceParams(lsp.ReferenceContext(True), document, name),
        "textDocument/inlayHint": lsp.InlayHintParams(document, whole),
        "textDocument/documentSymbol": lsp.DocumentSymbolParams(document),
        "textDocument/semanticTokens/full": lsp.SemanticTokensParams(document),
        "textDocument/codeLens": lsp.CodeLensParams(document),
        "textDocument/formatting": lsp.DocumentFormattingParams(document, lsp.FormattingOptions(4, True)),
        "textDocument/hover": lsp.HoverParams(document, inside),
        "textDocument/completion": lsp.CompletionParams(document, inside),
        "textDocument/signatureHelp": lsp.SignatureHelpParams(document, inside),
        "textDocument/definition": lsp.DefinitionParams(document, inside),
        "textDocument/prepareRename": lsp.PrepareRenameParams(document, name),
    }
    assert await client.workspace_symbol_async(asked["workspace/symbol"])
    assert await client.text_document_references_async(asked["textDocument/references"])
    pid, took = client._server.pid, {}

    def rests() -> bool:
        before = spent(pid)
        time.sleep(0.3)
        return spent(pid) == before

    await asyncio.to_thread(until, "the files are read ahead", rests)
    for kind, params in asked.items():
        start = spent(pid)
        for _ in range(10):
            await client.protocol.send_request_async(kind, params)
        took[kind] = 100 * (spent(pid) - start)
    await editor.close()
    return took


def pace() -> float:
    """How many times longer this machine takes than one that adds a million squares in 50 ms of processor time, at least 1."""
    start = time.process_time()
    for _ in range(3):
        sum(i * i for i in range(1_000_000))
    return max(1.0, (time.process_time() - start) / 0.15)


@pytest.mark.budget(14)
def test_every_answer_takes_less_than_50_ms_of_processor_time(capsys: pytest.CaptureFixture[str]) -> None:
    took = asyncio.run(asyncio.wait_for(timed(), SECONDS))
    with capsys.disabled():
        print("\n" + ", ".join(f"{kind.rpartition('/')[2]} {ms:.0f}" for kind, ms in took.items()), "ms")
    assert max(took.values()) < 50 * pace()


def test_positions_are_counted_in_utf_16() -> None:
    source = Source("# é😀x\r\nsecond\rthird")
    assert language_server.position(source, source.text.index("x")) == lsp.Position(0, 5)
    assert language_server.position(source, source.text.index("third")) == lsp.Position(2, 0)
    for offset in range(len(source.text)):
        if source.text[offset] not in "\r\n":
            assert language_server.offset_of(source, language_server.position(source, offset)) == offset
    assert language_server.offset_of(source, lsp.Position(99, 99)) == len(source.text)


def test_semantic_tokens_are_the_pieces_of_the_text() -> None:
    text = "algorithm f(target: causal):\n    while not done:\n        commit argmax(target(ctx))\n"
    data, words, line, column = language_server.semantic(Source(text)), [], 0, 0
    lines = text.splitlines()
    for n in range(0, len(data), 5):
        down, right, length, kind, _ = data[n : n + 5]
        line, column = line + down, right + (0 if down else column)
        words.append((lines[line][column : column + length], language_server.LEGEND[kind]))
    assert words[0] == ("algorithm", "keyword")
    assert ("f", "function") in words and ("argmax", "function") in words and ("ctx", "variable") in words
