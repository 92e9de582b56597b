"""decgraph lsp: The language server: diagnostics, hover, completion and more in your editor."""

from __future__ import annotations

from typing import Annotated

import typer

from decgraph import extras
from decgraph.errors import DecError


def command(
    tcp: Annotated[bool, typer.Option("--tcp", help="Listen on a port instead of standard input and output.")] = False,
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="The port to listen on.")] = 2087,
    stdio: Annotated[bool, typer.Option("--stdio", help="Standard input and output: what happens anyway.")] = False,
) -> None:
    """The language server: diagnostics, hover, completion and more in your editor.

    Editors start it themselves; docs/editors.md says how to set them up. It needs the extra `editor`.
    """
    if tcp and stdio:
        raise DecError("--tcp and --stdio exclude each other", hint="one of them; editors use --stdio")
    try:
        from decgraph.editor.server import make
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("pygls", "lsprotocol"):
            raise
        raise extras.needed("editor", first=error.name or "") from None
    server = make()
    if tcp:
        server.start_tcp(host, port)
    else:
        server.start_io()
