"""The card of a trained folder: what it is, how it was made, what was measured."""

from __future__ import annotations

from typing import Any

WHAT = {
    "drafter": "A small Llama with the target's tokenizer, for `speculative` and its relatives.",
    "eagle": "An EAGLE-3 head in the layout of its authors (`midlayer.*`, `fc`, `norm`, `d2t`, `t2d`); the "
    "embedding and the rows of the output matrix are the target's. Features are the inputs of layers 2, L/2 and L-3.",
    "medusa": "Medusa heads in decgraph's layout (`decgraph_medusa`): the output matrix is the target's.",
    "exit": "A Kangaroo adapter in decgraph's layout (`decgraph_exit`): final norm and output matrix are the target's.",
}


def text(kind: str, told: dict[str, Any]) -> str:
    """The card as Markdown, from what training.json holds."""
    settings, measured = told["settings"], told["acceptance"]
    rows = {
        "target": settings["target"],
        "sha256 of the target's weights": settings["target_sha256"],
        "text": settings["text"],
        "tokens of text": f"{settings['training_tokens']:,}",
        "seed": told["seed"],
        "steps": f"{told['steps']:,}" + ("" if told["finished"] else " (the run had not finished)"),
        "training time": f"{told['seconds'] / 60:.1f} minutes",
        "loss (mean of the last 50 steps)": told["loss"],
    }
    known = {"target", "target_sha256", "text", "training_tokens", "held_out_answers", "seed", "steps", "minutes"}
    rows |= {name.replace("_", " "): value for name, value in settings.items() if name not in known and value is not None}
    table = "\n".join(f"| {name} | {value} |" for name, value in rows.items())
    gammas = measured["tokens_per_call_by_gamma"]
    depths = "\n".join(
        f"| {depth} | {share:.3f} | {tokens:.3f} |"
        for depth, (share, tokens) in enumerate(zip(measured["by_depth"], gammas, strict=True), 1)
    )
    return f"""# {kind}

{WHAT[kind]}

Trained by `decgraph train {kind}`.

| | |
|---|---|
{table}

## Held-out acceptance

On {settings["held_out_answers"]} prompts that were not trained on, answered greedily by the target
({measured["places"]:,} places): a chain of {measured["gamma"]} drafts commits
**{measured["tokens_per_call"]:.2f} tokens per target call**.

| depth | share of drafts right up to here | tokens per call of a chain this long |
|---|---|---|
{depths}
"""
