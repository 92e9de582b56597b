"""decgraph convert: Write published drafting heads in decgraph's own layout, or say what a folder holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from decgraph.cli import options, output
from decgraph.extras import needs_models
from decgraph.runtime.placement import AUTO, Placement


@needs_models()
def command(
    folder: Annotated[Path, typer.Argument(help="A folder with drafting heads in a published layout (docs/heads.md).")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The folder to write; left out, nothing is written.")] = None,
    target: Annotated[str | None, typer.Option("--target", help="The target: the heads are checked with it.")] = None,
    share_output: Annotated[
        bool, typer.Option("--share-output", help="Leave out an output matrix that is the target's; needs --target.")
    ] = False,
    device: options.Device = AUTO,
    dtype: options.Dtype = AUTO,
    json: options.Json = False,
) -> None:
    """Read drafting heads in the layout of their authors; write them in decgraph's, or say what they are."""
    placed = Placement.of(device, dtype)
    from decgraph.runtime.models.heads import convert
    from decgraph.zoo import folder_of

    output.check_folder(out)
    home = None if target is None else folder_of(target)
    found = convert.convert(folder, out=out, target=home, share_output=share_output, placed=placed)
    if json:
        output.emit_json(found.as_dict())
        return
    print(f"{folder}: {found.layout}, {found.parameters:,} parameters in {found.dtype}")
    print(f"an algorithm takes it as {found.takes}")
    if target is not None:
        print(f"it fits {target}")
    for path in found.files:
        print(f"wrote {path}")
