"""Tables of a result file in every form: what they say, and that names do not break them."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import Any

import pytest
import torch
from lib.bench_runs import document, ratio, row, run_of_two

from decgraph.bench import render
from decgraph.bench.machine import facts


def test_the_summary_has_a_row_a_method() -> None:
    headings, rows = render.summary(run_of_two())
    assert headings == [
        "method",
        "tokens/call",
        "tokens/s",
        "times generate",
        "by CPU time",
        "drafting",
        "outside models",
        "same tokens",
    ]
    assert rows[0][:4] == ["transformers generate", "1.00", "60.0", "-"]
    assert rows[1] == [
        "speculative",
        "2.50",
        "120.0",
        "2.00 (1.50 to 2.50)",
        "1.90 (1.40 to 2.40)",
        "30%",
        "20%",
        "3 of 4, 1 near-tie",
    ]


def test_a_counterpart_has_columns_of_its_own() -> None:
    run = run_of_two()
    run["rows"][1]["ratios"]["transformers assisted"] = ratio(1.25, 1.0, 1.5)
    run["rows"].append(row("autoregressive", "decgraph", "code", 1.0, 90.0, {"transformers generate": ratio(1.5, 1.4, 1.6)}))
    headings, rows = render.summary(run)
    at = headings.index("times its counterpart")
    assert [cells[at] for cells in rows] == ["-", "1.25 (1.00 to 1.50)", "1.50 (1.40 to 1.60)"]


def test_on_a_gpu_the_wall_clock_alone_counts() -> None:
    run = run_of_two(("a", "b"))
    run["models"]["device"] = "cuda:0"
    assert "by CPU time" not in render.summary(run)[0]
    found = render.by_kind(run)
    assert found is not None and found[1][1][1] == "2.00 (1.50 to 2.50), 2.50 a call"


def test_kinds_are_columns() -> None:
    assert render.by_kind(run_of_two()) is None
    found = render.by_kind(run_of_two(("chat", "code")))
    assert found is not None
    assert found[0] == ["method", "all", "chat", "code"]
    assert found[1][1] == ["speculative", "1.90 (1.40 to 2.40), 2.50 a call", "2.90 (2.40 to 3.40), 3.50 a call",
                           "3.90 (3.40 to 4.40), 4.50 a call"]  # fmt: skip


def few() -> dict[str, Any]:
    """A run of two prompts of each kind."""
    run = run_of_two(("chat", "code"))
    for found in run["rows"]:
        for clock in [clock for other in found["ratios"].values() for clock in other.values()]:
            clock.update(n=2, low=None, high=None)
    return run


@pytest.mark.parametrize("form", sorted(render.TEXT))
def test_few_prompts_have_no_interval_in_any_form(form: str) -> None:
    made, whole = (render.TEXT[form](document(run)) for run in (few(), run_of_two(("chat", "code"))))
    assert ("1.40" in whole or "1.4," in whole) and "1.40" not in made and "1.4," not in made
    if form == "csv":
        (line,) = (r for r in csv.DictReader(io.StringIO(made)) if (r["algorithm"], r["kind"]) == ("speculative", "all"))
        assert (line["cpu_ratio"], line["cpu_ratio_low"], line["cpu_ratio_high"], line["cpu_ratio_n"]) == ("1.9", "", "", "2")
    else:
        assert made.count("(n=2, no interval)") == 5 and "of 5 prompts and more" in made
    for headings, rows in render.tables(few()):
        assert len({len(cells) for cells in (headings, *rows)}) == 1


@pytest.mark.parametrize("form", ["md", "latex"])
def test_accepted_drafts_are_counted_by_depth(form: str) -> None:
    assert "by depth: speculative 20/40 15/20." in render.TEXT[form](document(run_of_two()))
    assert "speculative 20/40 15/20." in "".join(render.notes(document(run_of_two()), run_of_two()))  # the terminal's


def test_the_processors_instructions_stand_beside_the_figures() -> None:
    made = document(run_of_two())
    assert "Abacus_2 & Co, 2 cores" in "".join(render.notes(made, made["runs"][0])), "a file from before they were kept"
    made["machine"]["instructions"] = "AVX2"
    assert "Abacus_2 & Co with AVX2, 2 cores" in "".join(render.notes(made, made["runs"][0]))
    assert facts()["instructions"] == torch.backends.cpu.get_cpu_capability()


def test_a_ratio_of_one_pair_has_no_interval() -> None:
    assert render.shown({"value": 1.5, "low": 1.5, "high": 1.5}) == "1.50"


def test_below_a_table_stands_how_it_was_measured() -> None:
    run = run_of_two(failed={"eagle2": "eagle2 needs features"}, interrupted=True)
    said = "\n".join(render.notes(document(run), run))
    for part in ("Abacus_2 & Co", "torch 2.13.0", "load 0.25 before and 0.5 after", "decgraph bench speculative", "p_1.jsonl",
                 "model.safetensors efefefef", "speculative cdcdcdcd", "seed 7", "bootstrap", "Interrupted: 2 groups",
                 "Not measured: eagle2: eagle2 needs features"):  # fmt: skip
        assert part in said, part
    assert "config.json" not in said  # the file has it
    assert "other work" not in said and "other work" in "\n".join(render.notes(document(run), {**run, "load": 7.0}))


def test_markdown_keeps_its_columns() -> None:
    run = run_of_two(("a|b", "code"))
    run["rows"][3]["algorithm"] = "mine|yours"
    for table in render.tables(run):
        lines = render.markdown_table(table).splitlines()
        assert {len(re.split(r"(?<!\\)\|", line)) for line in lines} == {len(table[0]) + 2}
    assert "| mine\\|yours |" in render.markdown(document(run))


def unescaped(text: str) -> list[str]:
    """Characters with a meaning in LaTeX that stand in a line without a backslash, where they may not."""
    bare = re.sub(r"\\(textbackslash|textasciitilde|textasciicircum|textless|textgreater|textbar)\{\}|\\[_%&#${}]", "", text)
    return re.findall(r"[_%#$~^{}]", bare)


def test_latex_compiles_as_text() -> None:
    """No LaTeX here: every environment is closed, every row has as many cells as its tabular has columns, names are escaped."""
    run = run_of_two(("copy-edit", "50%_off & more"))
    run["models"]["name"] = "model_#1 {x}~^\\"
    for found in run["rows"][1::2]:
        found["algorithm"] = "my_algorithm:gamma=6"
    made = render.latex(document(run, run_of_two()))
    assert made.count("\\begin{table}") == made.count("\\end{table}") == 3
    assert made.count("\\begin{tabular}") == made.count("\\end{tabular}") == 3
    assert made.count("\\toprule") == made.count("\\midrule") == made.count("\\bottomrule") == 3
    assert "my\\_algorithm:gamma=6" in made and "50\\%\\_off \\& more" in made and "1.90 [1.40, 2.40]" in made
    columns = 0
    for line in made.splitlines():
        if line.startswith("%"):
            continue  # a comment
        if match := re.search(r"\\begin\{tabular\}\{l(r*)\}", line):
            columns = 1 + len(match[1])
        elif line.endswith("\\\\"):
            assert len(re.split(r"(?<!\\)&", line)) == columns, line
            assert not unescaped(line.removesuffix("\\\\")), line
        elif "\\caption" in line:
            assert not unescaped(line.strip().removeprefix("\\caption{").removesuffix("}")), line
    comments = [line for line in made.splitlines() if "Abacus_2" in line]
    assert comments and all(line.startswith("% ") for line in comments)


def test_csv_has_a_row_for_every_method_and_kind() -> None:
    run = run_of_two(("chat", "code"))
    run["rows"][3]["ratios"]["transformers assisted"] = ratio(1.25, 1.0, 1.5)
    found = list(csv.DictReader(io.StringIO(render.comma_separated(document(run)))))
    names = ("transformers generate", "speculative")
    assert sorted((r["algorithm"], r["kind"]) for r in found) == sorted((n, k) for n in names for k in ("all", "chat", "code"))
    chat = next(r for r in found if (r["algorithm"], r["kind"]) == ("speculative", "all"))
    assert (chat["wall_ratio"], chat["wall_ratio_low"], chat["cpu_ratio_high"]) == ("2.0", "1.5", "2.4")
    assert (
        chat["acceptance"] == "20/40 15/20"
        and chat["wall_ratio_n"] == "8"
        and chat["near_ties"] == "1"
        and chat["draft_share"] == "0.3"
    )
    other = [r for r in found if r["counterpart_baseline"]]
    assert len(other) == 1 and other[0]["counterpart_wall_ratio"] == "1.25"


@pytest.mark.parametrize("form", sorted(render.TEXT))
def test_every_form_takes_a_run_in_which_all_failed(form: str) -> None:
    run = run_of_two(failed={"speculative": "no drafter"})
    run["rows"] = run["rows"][:1]
    made = render.TEXT[form](document(run))
    assert "transformers generate" in made and json.dumps(made)
