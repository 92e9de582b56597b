"""The language server for .dec texts, over the language server protocol by pygls.

It answers from `analysis.py` and the files beside it and keeps nothing but the last analysis of each open text, and what checks
said of the algorithms in it.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer

from decgraph.dsl import syntax as S
from decgraph.dsl.diagnostics import Diagnostic
from decgraph.dsl.format import format_source
from decgraph.dsl.source import Source, Span
from decgraph.editor import checking, navigation
from decgraph.editor.analysis import Analyser, Analysis
from decgraph.editor.completion import complete
from decgraph.editor.highlight import pieces
from decgraph.editor.hints import hints
from decgraph.editor.hover import hover
from decgraph.editor.names import Symbol
from decgraph.editor.quick_fixes import fixes
from decgraph.editor.signatures import Form, signature
from decgraph.editor.workspace import Workspace
from decgraph.errors import DecError, InternalError

PAUSE = 0.08
"""Seconds without a keystroke before a text is analysed."""
PAGES = "https://github.com/decgraph/decgraph/blob/main/docs/errors/"
ERROR_PAGES = Path(__file__).resolve().parents[1] / "decgraph" / "error_pages"
CHECK, SHOW = "decgraph.check", "decgraph.show"
WARM_UP = 0.02
"""Seconds between two files that are read ahead, so that requests in between do not wait."""

SEMANTIC = {
    "comment": "comment", "doc": "comment", "string": "string", "number": "number", "declaration": "keyword",
    "import": "keyword", "keyword": "keyword", "word": "keyword", "operator": "operator", "definition": "function",
    "type": "type", "constant": "enumMember", "special": "variable", "function": "function", "call": "method",
    "attribute": "property", "name": "variable",
}  # fmt: skip
LEGEND = sorted(set(SEMANTIC.values()))
SYMBOLS = {
    "algorithm": lsp.SymbolKind.Class, "rule": lsp.SymbolKind.Function, "policy": lsp.SymbolKind.Interface,
    "def": lsp.SymbolKind.Function, "extern": lsp.SymbolKind.Event, "parameter": lsp.SymbolKind.Variable,
    "state": lsp.SymbolKind.Field, "canvas": lsp.SymbolKind.Array, "modeldecl": lsp.SymbolKind.Object,
}  # fmt: skip
_K = lsp.CompletionItemKind
CHOICES = {
    "algorithm": _K.Class, "rule": _K.Function, "policy": _K.Interface, "def": _K.Function, "extern": _K.Event,
    "function": _K.Function, "method": _K.Method, "attribute": _K.Property, "keyword": _K.Keyword, "type": _K.TypeParameter,
    "module": _K.Module, "constant": _K.Constant, "option": _K.Property,
}  # fmt: skip


class RefusedRequest(JsonRpcException):
    """What cannot be done, in words for the author: LSP's RequestFailed."""

    CODE = -32803


def _not_refused(record: logging.LogRecord) -> bool:
    """pygls logs every error of an answer with its traceback; a refusal is no fault of the server."""
    return not (record.exc_info and isinstance(record.exc_info[1], RefusedRequest))


# ---- places


def position(source: Source, offset: int) -> lsp.Position:
    """The LSP position (0-based line, UTF-16 units) of an offset in code points."""
    line, column = source.locate(offset)
    before = source.text[source.line_start(line) : source.line_start(line) + column - 1]
    return lsp.Position(line - 1, len(before.encode("utf-16-le", "surrogatepass")) // 2)


def place(source: Source, span: Span) -> lsp.Range:
    """The LSP range of a span."""
    return lsp.Range(position(source, span.start), position(source, max(span.start, span.end)))


def offset_of(source: Source, at: lsp.Position) -> int:
    """The offset in code points of an LSP position; positions outside of the text are clamped."""
    number = min(at.line + 1, source.line_count)
    line = source.line(number)
    units, column = 0, 0
    while column < len(line) and units < at.character:
        units += 2 if ord(line[column]) > 0xFFFF else 1
        column += 1
    return source.line_start(number) + column


def path_of(uri: str) -> str:
    """What messages call the text of a URI: a file's path, or the URI."""
    parsed = urlparse(uri)
    return unquote(parsed.path) if parsed.scheme == "file" else uri


def file_of(uri: str) -> Path:
    """The file of a URI, as the workspace knows it."""
    path = path_of(uri)
    return Path(path).resolve() if path != uri else Path(uri)


class TextServer(LanguageServer):
    """The server, with the open texts and their analyses."""

    def __init__(self) -> None:
        from decgraph.version import __version__

        super().__init__("decgraph", __version__, text_document_sync_kind=lsp.TextDocumentSyncKind.Full)
        self.analyser = Analyser()
        self.analyses: dict[str, tuple[int, Analysis]] = {}
        self.waiting: dict[str, asyncio.TimerHandle] = {}
        self.verdicts: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {}
        """By URI and algorithm: the text of the file that was checked, and the report."""
        self._files = Workspace([])
        self.buttons: list[tuple[str, str]] = []
        """Further lenses of an algorithm: what they say, and the editor's own command, which takes a URI and a name."""

    @property
    def files(self) -> Workspace:
        """The files of the folders that the editor has open."""
        folders = [file_of(folder.uri) for folder in self.workspace.folders.values()]
        if not folders and self.workspace.root_path:
            folders = [Path(self.workspace.root_path).resolve()]
        if self._files.folders != folders:
            self._files = Workspace(folders)
        self._files.opened = {file_of(uri): self.text(uri) for uri in self.workspace.text_documents}
        return self._files

    def uri_of(self, path: Path) -> str:
        """The URI of a file, as the editor calls it where it has it open."""
        return next((uri for uri in self.workspace.text_documents if file_of(uri) == path), path.as_uri())

    def everywhere(self, uri: str, analysis: Analysis, offset: int) -> tuple[Path, Symbol] | None:
        """The file of the library that defines the name at an offset, and what it is called there."""
        occurrence = analysis.index.at(offset)
        return self.files.home(file_of(uri), analysis.file, occurrence.symbol) if occurrence is not None else None

    async def read_ahead(self) -> None:
        """Reads the files of the workspace one by one, so that the first question about all of them is answered at once."""
        for path in self.files.files():
            await asyncio.sleep(WARM_UP)
            self.files.known(path)

    def analysis(self, uri: str) -> Analysis:
        """The analysis of the text as it now is."""
        document = self.workspace.get_text_document(uri)
        version, text = document.version or 0, self.text(uri)
        known = self.analyses.get(uri)
        if known is None or known[0] != version or known[1].source.text != text:
            known = self.analyses[uri] = (version, self.analyser.analyse(text, path_of(uri)))
        return known[1]

    def text(self, uri: str) -> str:
        """The text of a document: the editor's, else the file's; "" where there is none that can be read."""
        try:
            return self.workspace.get_text_document(uri).source
        except (OSError, ValueError):  # not opened and not there, or no UTF-8
            return ""

    def later(self, uri: str) -> None:
        """Publishes what is wrong with a text when the keys have been still for a moment."""
        if uri in self.waiting:
            self.waiting.pop(uri).cancel()
        self.waiting[uri] = asyncio.get_running_loop().call_later(PAUSE, self.publish, uri)

    def publish(self, uri: str) -> None:
        """Publishes what is wrong with a text."""
        self.waiting.pop(uri, None)
        if uri not in self.workspace.text_documents:
            return
        found = self.analysis(uri)
        items = [shown(d, found, uri) for d in found.diagnostics if d.source is None or d.source.path == found.source.path]
        for name, (text, report) in self.verdicts.get(uri, {}).items():
            item = found.file.named(name)
            if report.get("verdict") == "refuted" and text == found.source.text and item is not None:
                said = f"{name} is refuted\n{report.get('shown', '')}"
                span = item.name_span or item.span
                items.append(lsp.Diagnostic(place(found.source, span), said, lsp.DiagnosticSeverity.Warning, source="decgraph"))
        version = self.workspace.get_text_document(uri).version
        self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, items, version))

    def said(self, uri: str, text: str) -> dict[str, str]:
        """The verdicts on a text's algorithms; for one that was edited since, a note that it was."""
        known = self.verdicts.get(uri, {})
        return {
            name: checking.said(report) if checked == text else f"{report.get('verdict', 'not checked')} before the last edit"
            for name, (checked, report) in known.items()
        }


def shown(d: Diagnostic, analysis: Analysis, uri: str) -> lsp.Diagnostic:
    """A diagnostic as editors show it: message, label, reason and advice, with the page of its code."""
    source = analysis.source
    message = "\n".join(
        [
            d.message,
            *([d.label] if d.label else []),
            *([f"why: {d.why}"] if d.why else []),
            *([f"try: {d.help}"] if d.help else []),
        ]
    )
    related = [lsp.DiagnosticRelatedInformation(lsp.Location(uri, place(source, span)), text) for span, text in d.notes if span]
    for other, span, label in d.inside:
        path = navigation.stdlib_path(other)
        where = path.as_uri() if path else uri
        related.append(lsp.DiagnosticRelatedInformation(lsp.Location(where, place(other, span)), label))
    span = d.span if d.span else Span(0, 0, 1, 1)
    if span.end == span.start:  # editors do not draw an empty place
        span = (
            span._replace(end=span.start + 1) if span.start < len(source.text) else span._replace(start=max(0, span.start - 1))
        )
    return lsp.Diagnostic(
        place(source, span),
        message,
        lsp.DiagnosticSeverity.Error if d.severity == "error" else lsp.DiagnosticSeverity.Warning,
        code=d.code,
        code_description=lsp.CodeDescription(f"{PAGES}{d.code}.md") if (ERROR_PAGES / f"{d.code}.md").exists() else None,
        source="decgraph",
        related_information=related or None,
    )


def make() -> TextServer:
    """A server with everything it answers to."""
    server = TextServer()
    logging.getLogger("pygls.protocol.json_rpc").addFilter(_not_refused)

    @server.feature(lsp.INITIALIZE)
    def initialized(params: lsp.InitializeParams) -> None:
        given = params.initialization_options
        buttons = given.get("buttons") if isinstance(given, dict) else getattr(given, "buttons", None)
        server.buttons = [(str(word), str(name)) for word, name in buttons or ()]

    @server.feature(lsp.INITIALIZED)
    async def started(params: lsp.InitializedParams) -> None:
        await server.read_ahead()

    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    def opened(params: lsp.DidOpenTextDocumentParams) -> None:
        server.publish(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    async def changed(params: lsp.DidChangeTextDocumentParams) -> None:
        server.later(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    def closed(params: lsp.DidCloseTextDocumentParams) -> None:
        uri = params.text_document.uri
        server.analyses.pop(uri, None)
        server.verdicts.pop(uri, None)
        server.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, []))

    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    def hovered(params: lsp.HoverParams) -> lsp.Hover | None:
        found = server.analysis(params.text_document.uri)
        said = hover(found, offset_of(found.source, params.position))
        if said is None:
            return None
        return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, said[0]), place(found.source, said[1]))

    @server.feature(lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=[".", " ", "("]))
    def completed(params: lsp.CompletionParams) -> list[lsp.CompletionItem]:
        found = server.analysis(params.text_document.uri)
        choices = complete(server.analyser, found, offset_of(found.source, params.position))
        made = []
        for rank, choice in enumerate(choices):
            doc = lsp.MarkupContent(lsp.MarkupKind.Markdown, choice.doc) if choice.doc else None
            text = f"{choice.label} = " if choice.kind == "option" else None
            kind = CHOICES.get(choice.kind, _K.Variable)
            item = lsp.CompletionItem(
                choice.label, kind=kind, detail=choice.detail or None, documentation=doc, insert_text=text
            )
            item.sort_text = f"{rank:04}"
            made.append(item)
        return made

    @server.feature(lsp.TEXT_DOCUMENT_DEFINITION)
    def defined(params: lsp.DefinitionParams) -> lsp.Location | None:
        found = server.analysis(params.text_document.uri)
        there = navigation.definition(found, offset_of(found.source, params.position))
        if there is None:
            return None
        uri = there.path.as_uri() if there.path else params.text_document.uri
        return lsp.Location(uri, place(there.source, there.span))

    @server.feature(lsp.TEXT_DOCUMENT_REFERENCES)
    def referred(params: lsp.ReferenceParams) -> list[lsp.Location]:
        uri = params.text_document.uri
        found = server.analysis(uri)
        at = offset_of(found.source, params.position)
        if (there := server.everywhere(uri, found, at)) is not None:
            places = server.files.references(*there)
            return [
                lsp.Location(server.uri_of(f.path), place(f.source, f.span))
                for f in places
                if params.context.include_declaration or not f.defines
            ]
        spans = navigation.references(found, at, params.context.include_declaration)
        return [lsp.Location(uri, place(found.source, span)) for span in spans]

    @server.feature(lsp.TEXT_DOCUMENT_RENAME, lsp.RenameOptions(prepare_provider=True))
    def renamed(params: lsp.RenameParams) -> lsp.WorkspaceEdit:
        uri = params.text_document.uri
        found = server.analysis(uri)
        at = offset_of(found.source, params.position)
        try:
            if (there := server.everywhere(uri, found, at)) is not None:
                edits: dict[str, list[lsp.TextEdit]] = {}
                for f in navigation.renamed_everywhere(server.files, *there, params.new_name):
                    edits.setdefault(server.uri_of(f.path), []).append(lsp.TextEdit(place(f.source, f.span), params.new_name))
                return lsp.WorkspaceEdit(edits)
            spans = navigation.renamed(found, at, params.new_name)
        except DecError as error:
            raise RefusedRequest(str(error).removeprefix("error: ")) from None
        return lsp.WorkspaceEdit({uri: [lsp.TextEdit(place(found.source, span), params.new_name) for span in spans]})

    @server.feature(lsp.TEXT_DOCUMENT_PREPARE_RENAME)
    def renamable(params: lsp.PrepareRenameParams) -> lsp.Range | None:
        uri = params.text_document.uri
        found = server.analysis(uri)
        at = offset_of(found.source, params.position)
        occurrence = found.index.at(at)
        if occurrence is None:
            return None
        there = server.everywhere(uri, found, at)
        known = server.files.owns(there[0]) if there else found.index.kinds.get(occurrence.symbol) not in (None, "import")
        return place(found.source, occurrence.span) if known else None

    @server.feature(lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    def symbols(params: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol]:
        found = server.analysis(params.text_document.uri)

        def symbol(o: navigation.Outline) -> lsp.DocumentSymbol:
            kind = SYMBOLS.get(o.kind, lsp.SymbolKind.Variable)
            where, name = place(found.source, o.span), place(found.source, o.name_span)
            return lsp.DocumentSymbol(o.name, kind, where, name, o.detail, children=[symbol(i) for i in o.inside])

        return [symbol(o) for o in navigation.outline(found)]

    @server.feature(lsp.WORKSPACE_SYMBOL)
    def everything(params: lsp.WorkspaceSymbolParams) -> list[lsp.SymbolInformation]:
        made = []
        for d in server.files.symbols(params.query):
            start = lsp.Position(d.line, d.column)  # names are ASCII, and so is the text before them
            where = lsp.Range(start, lsp.Position(d.line, d.column + len(d.name)))
            location = lsp.Location(server.uri_of(d.path), where)
            made.append(lsp.SymbolInformation(location, d.name, SYMBOLS[d.kind], container_name=d.path.name))
        return made

    @server.feature(lsp.TEXT_DOCUMENT_SIGNATURE_HELP, lsp.SignatureHelpOptions(trigger_characters=["(", ","]))
    def called(params: lsp.SignatureHelpParams) -> lsp.SignatureHelp | None:
        found = server.analysis(params.text_document.uri)
        said = signature(found, offset_of(found.source, params.position))
        if said is None:
            return None

        def information(form: Form) -> lsp.SignatureInformation:
            doc = lsp.MarkupContent(lsp.MarkupKind.Markdown, form.doc) if form.doc else None
            units = [tuple(len(form.label[:at].encode("utf-16-le")) // 2 for at in p) for p in form.params]
            return lsp.SignatureInformation(form.label, doc, [lsp.ParameterInformation((low, high)) for low, high in units])

        return lsp.SignatureHelp([information(form) for form in said.forms], said.form, said.param)

    @server.feature(lsp.TEXT_DOCUMENT_INLAY_HINT)
    def hinted(params: lsp.InlayHintParams) -> list[lsp.InlayHint]:
        uri = params.text_document.uri
        found = server.analysis(uri)
        low, high = (offset_of(found.source, at) for at in (params.range.start, params.range.end))
        known = {n: checking.said(r) for n, (text, r) in server.verdicts.get(uri, {}).items() if text == found.source.text}
        return [
            lsp.InlayHint(
                position(found.source, h.offset),
                h.text,
                lsp.InlayHintKind.Type if h.is_type else None,
                tooltip=h.more or None,
                padding_left=not h.is_type,
            )
            for h in hints(found, low, high, known)
        ]

    @server.feature(lsp.TEXT_DOCUMENT_FORMATTING)
    def formatted(params: lsp.DocumentFormattingParams) -> list[lsp.TextEdit]:
        source = server.analysis(params.text_document.uri).source
        try:
            text = format_source(source.text, source.path)
        except (DecError, InternalError):  # its diagnostics say what is wrong; the text stays
            return []
        whole = lsp.Range(lsp.Position(0, 0), position(source, len(source.text)))
        return [lsp.TextEdit(whole, text)] if text != source.text else []

    @server.feature(lsp.TEXT_DOCUMENT_CODE_ACTION, lsp.CodeActionOptions(code_action_kinds=[lsp.CodeActionKind.QuickFix]))
    def mended(params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
        uri = params.text_document.uri
        found = server.analysis(uri)
        first, last = (offset_of(found.source, at) for at in (params.range.start, params.range.end))
        own = [d for d in found.diagnostics if d.source is None or d.source.path == found.source.path]
        here = [d for d in own if d.span is not None and d.span.start <= last and d.span.end >= first]
        return [
            lsp.CodeAction(
                f"write `{fix.word}`",
                lsp.CodeActionKind.QuickFix,
                [shown(fix.diagnostic, found, uri)],
                edit=lsp.WorkspaceEdit({uri: [lsp.TextEdit(place(found.source, fix.span), fix.word)]}),
            )
            for fix in fixes(found.source, here)
        ]

    @server.feature(lsp.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL, lsp.SemanticTokensLegend(LEGEND, []))
    def coloured(params: lsp.SemanticTokensParams) -> lsp.SemanticTokens:
        source = Source(server.text(params.text_document.uri))
        return lsp.SemanticTokens(semantic(source))

    @server.feature(lsp.TEXT_DOCUMENT_CODE_LENS)
    def lensed(params: lsp.CodeLensParams) -> list[lsp.CodeLens]:
        uri = params.text_document.uri
        found = server.analysis(uri)
        made = []
        for lens in navigation.lenses(found, server.said(uri, found.source.text)):
            arguments = [uri, lens.check] if lens.check else None
            command = lsp.Command(title=lens.title, command=CHECK if lens.check else "", arguments=arguments)
            made.append(lsp.CodeLens(range=place(found.source, lens.span), command=command))
        for item in found.file.items:
            if isinstance(item, S.Algorithm):
                where = place(found.source, item.name_span or item.span)
                made += [lsp.CodeLens(where, lsp.Command(word, name, None, [uri, item.name])) for word, name in server.buttons]
        return made

    @server.command(SHOW)
    async def show(what: str, uri: str, where: Any, prompt: str) -> dict[str, str]:
        """A page about the algorithm of a name, or at a line and column: a check, a trace or an explanation.
        `prompt`: what a trace begins with; "" for the usual."""
        found = server.analysis(uri)
        if not isinstance(where, str):
            item = found.item_at(offset_of(found.source, lsp.Position(*where)))
            where = item.name if isinstance(item, S.Algorithm) else ""
        if what not in checking.WHAT or not isinstance(found.file.named(where), S.Algorithm):
            raise RefusedRequest(f"there is no algorithm here to {what}; put the cursor into one")
        answer = await checking.asked(what, found.source.text, path_of(uri), where, prompt)
        if what == "check":
            keep(uri, where, found.source.text, answer)
        if "page" not in answer:
            raise RefusedRequest(answer["error"])
        return {"title": f"{where}: {what}", "html": answer["page"]}

    @server.command(CHECK)
    async def check(uri: str, name: str) -> str:
        text = server.text(uri)
        report = await checking.asked("check", text, path_of(uri), name)
        keep(uri, name, text, report)
        return checking.said(report)

    def keep(uri: str, name: str, text: str, report: dict[str, Any]) -> None:
        """Shows in the text what a check said."""
        server.verdicts.setdefault(uri, {})[name] = (text, report)
        server.publish(uri)
        capabilities = server.client_capabilities.workspace
        if capabilities and capabilities.code_lens and capabilities.code_lens.refresh_support:
            server.workspace_code_lens_refresh(None)
        if capabilities and capabilities.inlay_hint and capabilities.inlay_hint.refresh_support:
            server.workspace_inlay_hint_refresh(None)

    return server


def semantic(source: Source) -> list[int]:
    """The pieces of a text as LSP encodes them: five numbers each, relative to the piece before."""
    data: list[int] = []
    line = character = 0
    for piece in pieces(source.text):
        name = SEMANTIC.get(piece.kind)
        if name is None:
            continue
        start, end = position(source, piece.start), position(source, piece.end)
        if start.line != end.line:  # a docstring over several lines: its grammar colours it
            continue
        data += [
            start.line - line, start.character - (character if start.line == line else 0), end.character - start.character,
            LEGEND.index(name), 0,
        ]  # fmt: skip
        line, character = start.line, start.character
    return data
