"""Published decoding algorithms, one .dec file each, and what is read from them without running one.

>>> "speculative" in names()
True
"""

from __future__ import annotations

import csv
import difflib
import hashlib
import re
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from decgraph.errors import DecError

if TYPE_CHECKING:
    from decgraph.dsl import syntax as S

__all__ = ["STATUSES", "CatalogueRow", "Entry", "catalogue", "entries", "entry", "names", "owed", "path", "text"]

FOLDER = Path(__file__).parent


STATUSES = {
    "recorded": "equal to recorded runs of the authors' code (docs/fidelity.md)",
    "compared": "equal to our transcription of the authors' code, which itself was not run",
    "as the paper": "it follows the text, without code of the authors",
    "not compared": "code of the authors is public, and was not compared yet",
    "stand-in": "differs from what was published; the note says in what",
    "none": "no program; the note says why",
}
"""What is known of a program's faithfulness to its publication, by the word that catalogue.csv and `decgraph list` use."""


@dataclass(frozen=True)
class CatalogueRow:
    """One published algorithm, a row of catalogue.csv.

    wave: the part of the catalogue that it came with. status: one of STATUSES. code: the repository of the authors' code on
    GitHub (`owner/name`), "" where none was found. note: what a program leaves open or lacks, or why there is none.
    about: what it does in a few words; "" without a program. searched: where no code was found, when and by what searches.
    """

    name: str
    family: str
    wave: int
    status: str
    code: str
    note: str
    about: str = ""
    searched: str = ""


@dataclass(frozen=True)
class Entry:
    """One algorithm of the standard library: its file, how it works in a word, what it claims, and where it was published.

    title: the first paper's. status, code, note, about, searched: as in its row of catalogue.csv; a file without one is "not
    compared" and of wave 0. kinds: of its models. externs: the functions that it calls and that its user hands over. promises:
    what it claims, in words of PROMISES, in brackets where it does so under a condition.
    """

    name: str
    family: str
    claim: str
    source: str
    file: Path
    title: str = ""
    wave: int = 0
    status: str = "not compared"
    code: str = ""
    note: str = ""
    about: str = ""
    searched: str = ""
    kinds: tuple[str, ...] = ()
    externs: tuple[str, ...] = ()
    promises: tuple[str, ...] = ()


@lru_cache(maxsize=1)
def names() -> tuple[str, ...]:
    """The algorithms that have a file of their name, sorted; files of rules and helpers are not among them."""
    heads = re.compile(r"^algorithm[ \t]+(\w+)", re.M)
    return tuple(f.stem for f in sorted(FOLDER.glob("*.dec")) if f.stem in heads.findall(f.read_text(encoding="utf-8")))


def path(name: str) -> Path:
    """The file of an algorithm. Raises DecError for a name that is not in the standard library."""
    if name not in names():
        raise missing(name)
    return FOLDER / f"{name}.dec"


def missing(name: str) -> DecError:
    """What to say of a name that the standard library has no algorithm of: of one of the catalogue what it waits for, of
    another the nearest names, also of the catalogue."""
    row = catalogue().get(name)
    if row is not None:
        be = "is" if row.note.startswith("a technique") else "needs"
        hint = "`decgraph list --owed` shows all that have no program"
        return DecError(
            f"{name} is a published algorithm that is not in the library yet, because it {be} {row.note}", hint=hint
        )
    near = difflib.get_close_matches(name, [*names(), *(row.name for row in owed())], 2)
    told = " or ".join(n if n in names() else f"{n} (not in the library yet)" for n in near)
    hint = f"did you mean {told}?" if near else "`decgraph list` shows what there is; a file needs its .dec"
    return DecError(f"there is no algorithm called {name!r}", hint=hint)


def text(name: str) -> str:
    """The text of an algorithm's file. Raises DecError for a name that is not in the standard library."""
    return path(name).read_text(encoding="utf-8")


def entry(name: str) -> Entry:
    """What `decgraph list` shows of an algorithm, read from its text. Raises DecError if that does not parse."""
    from decgraph.dsl import syntax as S
    from decgraph.dsl.parse import parse_text

    source = text(name)
    file = parse_text(source, f"stdlib/{name}.dec")
    item = file.named(name)
    assert isinstance(item, S.Algorithm)
    claims = [s for s in item.body if isinstance(s, S.Claim)]
    claim = "; ".join(source[s.span.start : s.span.end].strip() for s in claims)
    doc, row = item.doc or "", catalogue().get(name)
    made = Entry(
        name, family(item), claim, published(doc), path(name), titled(doc),
        kinds=tuple(dict.fromkeys(p.type.name for p in item.params if p.type is not None and p.type.name in KINDS)),
        externs=tuple(one.name for one in file.items if isinstance(one, S.Extern)),
        promises=tuple(dict.fromkeys(promise(s) for s in claims)),
    )  # fmt: skip
    return made if row is None else replace(made, **{k: v for k, v in asdict(row).items() if k != "name"})


def entries() -> tuple[Entry, ...]:
    """The entries of all algorithms, by name. They are kept in the user's cache: to read the files takes a second."""
    import decgraph.dsl
    from decgraph import cache

    files = [
        *FOLDER.glob("*.dec"),
        *FOLDER.glob("*.csv"),
        *FOLDER.glob("*.py"),
        *Path(decgraph.dsl.__file__).parent.glob("*.*"),
    ]
    read = sorted(f"{f}:{f.stat().st_mtime_ns}:{f.stat().st_size}" for f in files)
    stamp = hashlib.sha256("\n".join(read).encode()).hexdigest()
    stored = cache.folder() / "stdlib.json"
    held = cache.read(stored)
    if held.get("stamp") != stamp:
        made = [asdict(entry(name)) | {"file": ""} for name in names()]
        held = {"stamp": stamp, "entries": made}
        cache.replace(stored, held)
    lists = ("kinds", "externs", "promises")
    return tuple(
        Entry(**{**one, "file": path(one["name"]), **{part: tuple(one[part]) for part in lists}}) for one in held["entries"]
    )


KINDS = ("causal", "masked", "features", "layers", "head")
"""The kinds of models that algorithms take."""
PROMISES = ("tokens", "distribution", "support", "ensures", "cost")
"""What algorithms claim: the tokens of another with the same seed, its distribution, no token that it never gives, a bound,
and how much it asks of a model or takes back."""


def promise(claim: S.Claim) -> str:
    """The word of PROMISES for a claim, in brackets where it has a condition."""
    from decgraph.dsl import syntax as S

    match claim:
        case S.Refines():
            word = claim.mode or "tokens"
        case S.KeepsSupport():
            word = "support"
        case S.Ensures():
            word = "ensures"
        case S.AtMost():
            word = "cost"
    return f"({word})" if claim.when is not None else word


@lru_cache(maxsize=1)
def catalogue() -> dict[str, CatalogueRow]:
    """catalogue.csv, by name: the published algorithms, with and without a program. An algorithm's name is its id there, and in
    searches.csv, which says how code was looked for where none was found."""
    with (FOLDER / "searches.csv").open(encoding="utf-8", newline="") as file:
        searched = {r["id"]: f"none was found on {r['date']} by these searches: {r['searches']}" for r in csv.DictReader(file)}
    with (FOLDER / "catalogue.csv").open(encoding="utf-8", newline="") as file:
        rows = [
            CatalogueRow(
                r["id"], r["family"], int(r["wave"]), r["status"], r["code"], r["note"], r["about"], searched.get(r["id"], "")
            )
            for r in csv.DictReader(file)
        ]
    return {row.name: row for row in rows}


def owed() -> tuple[CatalogueRow, ...]:
    """The algorithms of the catalogue that have no file, in its order."""
    return tuple(row for name, row in catalogue().items() if name not in names())


def published(doc: str) -> str:
    """The papers that a docstring cites: every parenthesis that ends in a year, or in a year and a title.

    >>> published("Medusa (Cai et al., 2024): heads (three of them) guess ahead")
    'Cai et al., 2024'
    """
    found = re.findall(r"\(([^()\"]*\b(?:19|20)\d\d[a-z]?)(?:: \"[^\"]*\")?\)", " ".join(doc.split()))
    return "; ".join(dict.fromkeys(found))


def titled(doc: str) -> str:
    """The title of the first paper that a docstring cites with one.

    >>> titled('Medusa (Cai et al., 2024: "Simple Acceleration"): heads guess ahead')
    'Simple Acceleration'
    """
    found = re.search(r"\([^()\"]*\b(?:19|20)\d\d[a-z]?: \"([^\"]*)\"", " ".join(doc.split()))
    return found[1] if found else ""


def family(item: S.Algorithm) -> str:
    """What an algorithm is, by the models and stores that it drafts with.

    A canvas makes it diffusion; several draws below a node make it a tree; what drafts without a model, heads or a store
    iterates (Jacobi).
    """
    from decgraph.dsl import syntax as S

    inside = list(S.walk(item))
    types = [p.type for p in item.params if p.type is not None]
    kinds = [t.name for t in types if t.name in ("causal", "masked", "features", "layers")]
    drafts = any(isinstance(s, S.Draft) for s in inside)
    calls = {c.func.name for c in inside if isinstance(c, S.Call) and isinstance(c.func, S.Attr)}
    if "masked" in kinds or any(isinstance(s, S.Canvas) for s in inside):
        return "diffusion"
    if any(isinstance(s, S.Return) for s in inside):
        return "search"
    if not drafts:
        return "baseline"
    if "features" in kinds or "heads" in calls:
        return "heads"
    if "layers" in kinds or calls & {"exit", "skip", "quantized"}:
        return "self"
    if kinds.count("causal") > 1:
        plain = {c.func.name for c in inside if isinstance(c, S.Call) and isinstance(c.func, S.Name)}
        wide = plain & {"sample", "topk", "race"} or any(t.name == "topology" for t in types)
        return "tree" if wide else "model drafter"
    stores = [s for s in inside if isinstance(s, S.State) and s.type.name in ("token", "ngrams", "suffixes", "lru")]
    if stores or calls & {"after", "path"} or any(isinstance(e, S.Name) and e.name == "ngrams" for e in inside):
        return "retrieval"
    return "jacobi"
