"""Writing decgraph programs with help: colours, the language server, the VS Code extension, notebooks.

`highlight.py` classifies each word of a text, wherever texts are coloured. `analysis.py` is a text as the editor knows
it: the compiler's own diagnostics, names and types. `features/` answers an editor's questions from it, `server.py` speaks the
language server protocol (`decgraph lsp`). `notebook.py` has the cell magic, `fragments.py` the HTML of values.
"""
