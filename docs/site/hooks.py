"""What MkDocs does to the pages of docs/ besides rendering them. The pages are written for GitHub, and stay as they are.

- A relative link to a file outside docs/ becomes a link to the repository, and a link to the repository's own docs/ a link
  to the page of the site.
- A fence says its language alone (`dec broken E031` is for tests/repo/test_docs.py), and the file after `file=`,
  `new=`, `edit=` or `try=` becomes its title.
- CHANGELOG.md is a page.
- `<!-- step NAME -->` becomes the picture of a step of that algorithm (lab/pictures.py) in the page's own colours, which every
  page of the gallery has. The gallery's own page gets what filters its tables (filter.js).
- In the search, guides count for more than the gallery and other generated pages.
- The navigation has what is there: entries without a file are left out, patterns stand for their files, and the gallery is
  grouped by family as its own README is.
"""

from __future__ import annotations

import posixpath
import re
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from lab import gallery, pages, pictures  # noqa: E402  # they are no package that is installed

REPOSITORY = "https://github.com/decgraph/decgraph"
OWN = re.compile(rf"{REPOSITORY}/(?:blob|tree)/main/")
FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^\n`]+)$", re.M)
CODE = re.compile(r"^(?P<indent> *)```.*?^(?P=indent)```[ \t]*$|`[^`\n]*`", re.M | re.S)
LINK = re.compile(r"(?<=\]\()(?P<inline>[^()\s]+)(?=\))|^(?P<before>\[[^\]]+\]: )(?P<defined>\S+)$", re.M)
BULK = frozenset(
    (
        "architecture.md",
        "architectures.md",
        "changelog.md",
        "leaderboard.md",
        "lists.md",
        "tradeoffs.md",
        "tradeoffs-causal.md",
        "fidelity.md",
        "museum.md",
    )
)
ROOMS = ("api", "decisions", "errors", "gallery", "recipes", "reference")
FIRST = frozenset(("language.md", "functions.md", "glossary.md"))
FAMILY = re.compile(r"^## (?P<name>.*)$|^\| \[[^\]]*\]\((?P<page>[^)]+)\)", re.M)


def moved(link: str, page: str) -> str:
    """A link of a page (its path below the repository's root, such as `docs/tutorial.md`) as the site has it."""
    own = OWN.match(link)
    if own is None and (link.startswith("#") or re.match(r"[a-z]+:", link)):
        return link
    path, mark, place = (link[own.end() :] if own else link).partition("#")
    target = path if own else posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
    if target == "CHANGELOG.md":
        target = "docs/changelog.md"
    elif (ROOT / target).is_dir() and (ROOT / target / "README.md").exists() and target.startswith("docs/"):
        target += "/README.md"
    if target.startswith("docs/") and target.endswith((".md", ".png", ".svg")):
        home = "docs" if page == "CHANGELOG.md" else posixpath.dirname(page)
        return posixpath.relpath(target, home) + mark + place
    kind = "tree" if (ROOT / target).is_dir() else "blob"
    return f"{REPOSITORY}/{kind}/main/{target}{mark}{place}"


def rewritten(text: str, page: str) -> str:
    """The Markdown of a page with the links and the fences of the site."""

    def link(match: re.Match[str]) -> str:
        if match["inline"]:
            return moved(match["inline"], page)
        return match["before"] + moved(match["defined"], page)

    pieces, last = [], 0
    for code in CODE.finditer(text):
        pieces += [LINK.sub(link, text[last : code.start()]), FENCE.sub(fence, code[0], count=1)]
        last = code.end()
    return "".join([*pieces, LINK.sub(link, text[last:])])


def fence(match: re.Match[str]) -> str:
    """The first line of a fence, with its language and the name of the file that it shows."""
    words = match["info"].split()
    named = (word.partition("=") for word in words[1:])
    title = next((f' title="{name}"' for mark, _, name in named if mark in ("file", "new", "edit", "try")), "")
    return f"{match['indent']}```{words[0]}{title}"


def families(readme: str) -> list[dict[str, list[str]]]:
    """The gallery's pages by family, in the order of its README."""
    found: list[dict[str, list[str]]] = []
    for match in FAMILY.finditer(readme[max(0, readme.find("\n## ", readme.find(f"## {gallery.KNOWN}\n"))) :]):
        if match["name"]:
            found.append({match["name"]: []})
        elif found:
            next(iter(found[-1].values())).append(f"gallery/{match['page']}")
    return [family for family in found if any(family.values())]


def filled(entries: list[Any], there: list[str], named: set[str]) -> list[Any]:
    """Navigation entries with the files that are there in place of patterns, and without those that are not.

    `named`: the pages that the whole navigation names, which patterns leave out; it grows by what patterns stand for.
    """
    found: list[Any] = []
    for entry in entries:
        title, value = next(iter(entry.items())) if isinstance(entry, dict) else (None, entry)
        if isinstance(value, list):
            if inner := filled(value, there, named):
                found.append({title: inner})
        elif value == "gallery/*.md":
            found += families((ROOT / "docs/gallery/README.md").read_text(encoding="utf-8"))
        elif "*" in value:
            pages = [page for page in there if fnmatch(page, value) and page not in named]
            named.update(pages)
            found += pages
        elif value in there:
            found.append(entry)
    return found


def pages_named(entries: list[Any]) -> set[str]:
    """Every page that navigation entries name."""
    found: set[str] = set()
    for entry in entries:
        value = next(iter(entry.values())) if isinstance(entry, dict) else entry
        found |= pages_named(value) if isinstance(value, list) else {value}
    return found


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    files.append(File.generated(config, "changelog.md", abs_src_path=str(ROOT / "CHANGELOG.md")))
    there = sorted(file.src_uri for file in files.documentation_pages())
    config.nav = filled(config.nav or [], there, pages_named(config.nav or []))
    return files


def weight(source: str) -> float:
    """How much a match on a page counts in the search: guides before pages to look things up, which have the same words.

    A page of an error is found by its code and the words of its title, which few other pages have.
    """
    room, _, name = source.rpartition("/")
    if room == "gallery" and name.removesuffix(".md") in gallery.WELL_KNOWN:
        return 0.6
    if source in BULK or (room in ROOMS and name != "README.md"):
        return 0.3
    return 2.0 if source in FIRST else 1.0


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    source = page.file.src_uri
    page.meta.setdefault("search", {"boost": weight(source)})
    markdown = rewritten(markdown, "CHANGELOG.md" if source == "changelog.md" else f"docs/{source}")
    markdown = re.sub(r"<!-- step (\w+) -->", lambda found: figure_of(found[1]), markdown)
    if source == "index.md":
        page.meta["hide"] = ["navigation"]
    if posixpath.dirname(source) in ("errors", "gallery"):
        page.meta["hide"] = ["toc"]  # programs are wide, and the headings are the same on every page
    if source == "gallery/README.md":
        return markdown.replace("<!-- filter -->", '<div id="gallery-filter"></div>', 1)
    if posixpath.dirname(source) != "gallery":
        return markdown
    figure = figure_of(posixpath.basename(source).removesuffix(".md"))
    return markdown.replace("## A step\n", f"## A step\n\n{figure}\n", 1)


def on_page_content(html: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """A name alone in a cell may be broken behind its underscores, and nowhere else: at 400 pixels columns are narrow."""
    return re.sub(r"(?<=\w_)(?=\w+(?:</a>)?</td>)", "<wbr>", html)


def figure_of(name: str) -> str:
    """The picture of a step of an algorithm, or "" where there is none."""
    return pictures.figure(name, pages.read(pictures.STEPS))


def on_post_build(*, config: MkDocsConfig) -> None:
    """The colours of the pictures join the site's own style."""
    style = Path(config.site_dir) / "site/site.css"
    rules = [
        pictures.styled(".step-picture", pictures.COLOURS["light"]),
        pictures.variables('[data-md-color-scheme="slate"] .step-picture', pictures.COLOURS["dark"]),
    ]
    style.write_text("\n".join([style.read_text(encoding="utf-8"), *rules]) + "\n", encoding="utf-8")
