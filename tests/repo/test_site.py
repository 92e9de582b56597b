"""The site of `make site`: it builds strictly, asks nothing of the network, and navigation and API leave nothing out."""

from __future__ import annotations

import html
import importlib.util
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from lib.chromium import browser, picture  # noqa: F401  # a fixture
from lib.chromium import page as visited  # noqa: F401  # a fixture
from lib.repository import ROOT
from lib.waiting import SECONDS

import decgraph
from lab import gallery, pages, pictures

if importlib.util.find_spec("mkdocs") is None:
    pytest.skip("the site needs the extra `site`", allow_module_level=True)


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs/site/hooks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


hooks = loaded()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site, as `make site` builds it: ten seconds of processor time in each worker, so its tests are slow."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "--quiet", "build", "--strict", "--site-dir", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


class Asked(HTMLParser):
    """What a page loads by itself: scripts, styles, images, frames; not the links that a reader may follow."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in ("script", "img", "iframe", "source"):
            self.found.append(given.get("src") or "")
        elif tag == "link" and given.get("rel") in ("stylesheet", "preload", "preconnect", "icon"):
            self.found.append(given.get("href") or "")
        if given.get("data-md-component") == "source":
            self.found.append("https://api.github.com")  # Material's script counts the stars of such a link's repository


def asked(page: str) -> list[str]:
    parser = Asked()
    parser.feed(page)
    return [url for url in parser.found if re.match(r"(https?:)?//", url)]


def text_of(page: Path) -> str:
    """The words of a built page's article."""
    article = re.search(r"<article.*?</article>", page.read_text(encoding="utf-8"), re.S)
    assert article is not None
    return html.unescape(re.sub(r"<[^>]+>", "", article[0]))


@pytest.mark.slow
def test_pages_ask_nothing_of_the_network(site: Path) -> None:
    pages = [*site.rglob("*.html")]
    assert len(pages) > 250
    assert {page.name: found for page in pages if (found := asked(page.read_text(encoding="utf-8")))} == {}
    assert not re.search(r"@import|url\((?!data:)[\"']?(https?:)?//", (site / "site/site.css").read_text(encoding="utf-8"))


@pytest.mark.slow
def test_the_search_knows_a_program_and_a_docstring(site: Path) -> None:
    found = json.loads((site / "search/search_index.json").read_text(encoding="utf-8"))["docs"]
    places = {entry["location"].partition("#")[0] for entry in found}
    assert {"gallery/eagle2.html", "api/algorithms.html", "cookbook/rule.html", "changelog.html"} <= places


FOUND = {
    "lossless rule": "cookbook/rule.html",
    "write an algorithm": "tutorial.html",
    "speculative decoding": "gallery/speculative.html",
    "prompt lookup": "gallery/prompt_lookup.html",
    "my own model": "cookbook/model.html",
    "docker": "serve.html",
    "lora": "your-model.html",
    "E423": "errors/E423.html",
    "undefined name": "errors/E230.html",
}
"""What a newcomer types, and the page that should come first."""


@pytest.mark.slow
def test_the_search_answers_from_a_disk_and_guides_come_first(site: Path, visited: Any) -> None:  # noqa: F811
    visited.goto((site / "index.html").as_uri())
    visited.click(".md-search__input")
    for words, page in FOUND.items():
        visited.fill(".md-search__input", "")
        visited.keyboard.type(words)
        visited.wait_for_selector(f".md-search-result__item:first-child a[href*='/{page}']", timeout=1000 * SECONDS)


@pytest.mark.slow
def test_the_page_for_an_address_without_one_needs_no_root(site: Path) -> None:
    page = (site / "404.html").read_text(encoding="utf-8")
    assert len(page) < 1000 and not re.search(r"<script|<link|src=|href=\"(?!https:)", page)


@pytest.mark.slow
def test_the_gallery_is_filtered(site: Path, visited: Any) -> None:  # noqa: F811
    visited.goto((site / "gallery/index.html").as_uri())
    rows = visited.locator("article tbody tr:visible")
    assert visited.locator("article h2").first.inner_text().startswith("Well known")
    visited.fill("#gallery-filter input", "Suffix trees")
    assert visited.inner_text("#gallery-filter output").startswith("1 of ") and rows.count() == 1
    visited.fill("#gallery-filter input", "")
    visited.select_option("#gallery-filter select[aria-label=family]", "Diffusion")
    visited.select_option("#gallery-filter select[aria-label=verdict]", "proved")
    visited.select_option("#gallery-filter select[aria-label=status]", "recorded")
    found = rows.all_inner_texts()
    assert found and all("proved" in row and "recorded" in row for row in found)
    assert visited.inner_text("#gallery-filter output").startswith(f"{len(found)} of ")
    visited.select_option("#gallery-filter select[aria-label=claim]", "support kept")
    assert all("support kept" in row for row in rows.all_inner_texts())


@pytest.mark.slow
def test_pages_of_the_gallery_show_a_step_and_their_paper(site: Path) -> None:
    for name in gallery.WELL_KNOWN:
        shown = (site / f"gallery/{name}.html").read_text(encoding="utf-8")
        assert ("step-picture" in shown) is (name in pages.read(pictures.STEPS)), name
        assert re.search(r'href="https://(arxiv\.org|scholar\.google\.com)/', shown), name
    assert "step-picture" in (site / "index.html").read_text(encoding="utf-8")


def test_pages_with_a_weight_in_the_search_are_there() -> None:
    assert {page for page in hooks.BULK | hooks.FIRST if not (ROOT / "docs" / page).is_file()} == {"changelog.md"}


@pytest.mark.slow
def test_every_public_name_has_its_docstring_in_the_api(site: Path) -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in (site / "api").glob("*.html"))
    alias = {"check": "check.check_algorithm", "hf": "hf.custom_generate", "testing": "testing.assert_refines"}
    ids = set(re.findall(r'id="decgraph\.([\w.]+)"', pages))
    assert [name for name in decgraph.__all__ if alias.get(name, name) not in ids] == []
    api = text_of(site / "api/algorithms.html")
    assert "An algorithm of the standard library by name" in api and '>>> load("speculative")' in api


@pytest.mark.slow
def test_the_fields_of_a_request_are_shown(site: Path) -> None:
    assert "temperature: " in text_of(site / "api/sessions.html")


@pytest.mark.slow
def test_programs_have_their_file_as_title(site: Path) -> None:
    page = (site / "tutorial.html").read_text(encoding="utf-8")
    assert '<span class="filename">first.dec</span>' in page and "file=first.dec" not in page


@pytest.mark.slow
def test_the_gallery_is_looked_at(site: Path, browser: Any, pytestconfig: pytest.Config) -> None:  # noqa: F811
    opened = browser.new_page(viewport={"width": 1360, "height": 1000})
    opened.goto((site / "gallery/eagle2.html").as_uri())
    assert opened.inner_text("h1").rstrip("\u00b6").strip() == "eagle2"
    code = opened.locator("article .highlight code").first
    colours = code.evaluate("e => new Set([...e.querySelectorAll('span')].map(s => getComputedStyle(s).color)).size")
    assert colours > 2  # the lexer of .dec files is at work
    for width in (400, 1280, 2560):
        opened.set_viewport_size({"width": width, "height": 1000})
        wide = opened.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"the page is {wide} pixels wider than a window of {width}"
        cut = opened.evaluate(
            "[...document.querySelectorAll('article pre code')].filter(e => e.scrollWidth > e.clientWidth).length"
        )
        assert width == 400 or cut == 0, f"programs are cut at {width} pixels"
    opened.set_viewport_size({"width": 1360, "height": 1000})
    picture(opened, "gallery", pytestconfig)
    opened.close()


@pytest.mark.slow
def test_links_out_of_docs_lead_to_the_repository(site: Path) -> None:
    page = (site / "tutorial.html").read_text(encoding="utf-8")
    assert f'href="{hooks.REPOSITORY}/blob/main/stdlib/rules.dec"' in page


@pytest.mark.slow
def test_a_dead_link_stops_a_strict_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text("# Home\n\n[nowhere](#nothing) and [nothing](nothing.md)\n", encoding="utf-8")
    own = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    checks = own[own.index("\nvalidation:") :]
    (tmp_path / "mkdocs.yml").write_text(f"site_name: x\nplugins: []\n{checks}", encoding="utf-8")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode != 0
    assert "#nothing" in done.stderr and "nothing.md" in done.stderr


@pytest.mark.parametrize(
    ("link", "page", "becomes"),
    [
        ("language.md#claims", "docs/tutorial.md", "language.md#claims"),
        ("#claims", "docs/language.md", "#claims"),
        ("https://arxiv.org/abs/1", "docs/language.md", "https://arxiv.org/abs/1"),
        ("../stdlib", "docs/language.md", f"{hooks.REPOSITORY}/tree/main/stdlib"),
        ("../../stdlib/rules.dec", "docs/cookbook/rule.md", f"{hooks.REPOSITORY}/blob/main/stdlib/rules.dec"),
        ("../README.md", "docs/index.md", f"{hooks.REPOSITORY}/blob/main/README.md"),
        (f"{hooks.REPOSITORY}/blob/main/docs/proof.md#x", "docs/cookbook/rule.md", "../proof.md#x"),
        (f"{hooks.REPOSITORY}/tree/main/docs/gallery", "CHANGELOG.md", "gallery/README.md"),
        ("docs/tutorial.md", "CHANGELOG.md", "tutorial.md"),
        ("../CHANGELOG.md", "docs/install.md", "changelog.md"),
        ("images/x.svg", "docs/tradeoffs.md", "images/x.svg"),
    ],
)
def test_links_of_the_site(link: str, page: str, becomes: str) -> None:
    assert hooks.moved(link, page) == becomes


def test_code_keeps_its_links_and_loses_its_marks() -> None:
    text = "[a](../stdlib)\n\n```dec broken E031 file=x.dec\n[a](../stdlib)\n```\n\n`[a](../stdlib)`\n\n[b]: ../README.md\n"
    assert hooks.rewritten(text, "docs/page.md") == (
        f"[a]({hooks.REPOSITORY}/tree/main/stdlib)\n\n"
        '```dec title="x.dec"\n[a](../stdlib)\n```\n\n'
        f"`[a](../stdlib)`\n\n[b]: {hooks.REPOSITORY}/blob/main/README.md\n"
    )


@pytest.mark.parametrize("mark", ["file", "new", "edit", "try"])
def test_the_file_of_a_fence_is_its_title(mark: str) -> None:
    assert hooks.rewritten(f"```diff {mark}=a/b.py\n+x\n```\n", "docs/page.md") == '```diff title="a/b.py"\n+x\n```\n'


def test_a_name_in_a_cell_is_broken_behind_its_underscores() -> None:
    cells = '<td><a href="a_b.html">fast_dllm_v2</a></td><td>eagle2_x</td><td><code>a_b</code> and a_b c</td>'
    broken = hooks.on_page_content(cells, page=None, config=None, files=None)
    assert broken == cells.replace("fast_dllm_v2", "fast_<wbr>dllm_<wbr>v2").replace("eagle2_x", "eagle2_<wbr>x")


def test_the_navigation_holds_what_is_there() -> None:
    entries: list[Any] = ["index.md", {"A": ["a.md", {"Not yet": "later.md"}, "b/*.md"]}, {"None": ["gone.md"]}]
    there = ["a.md", "b/one.md", "b/two.md", "index.md"]
    assert hooks.filled(entries, there, hooks.pages_named(entries)) == ["index.md", {"A": ["a.md", "b/one.md", "b/two.md"]}]


def test_the_gallery_is_grouped_as_its_own_page_is() -> None:
    readme = "# Gallery\n\n## Well known\n\n| [x](x.md) | y |\n\n## Audio order\n\n| algorithm |\n|---|\n| [x](x.md) | y |\n"
    readme += "\n## empty\n\n## Tree\n\n| [z](z.md) |\n"
    assert hooks.families(readme) == [{"Audio order": ["gallery/x.md"]}, {"Tree": ["gallery/z.md"]}]
    pages = {p.name for p in (ROOT / "docs/gallery").glob("*.md")} - {"README.md"}
    assert pages == {
        page.removeprefix("gallery/")
        for family in hooks.families((ROOT / "docs/gallery/README.md").read_text(encoding="utf-8"))
        for found in family.values()
        for page in found
    }


@pytest.mark.parametrize(
    "page",
    [
        '<script src="https://unpkg.com/x"></script>',
        '<link rel="stylesheet" href="//fonts.googleapis.com/x">',
        '<a class="md-source" data-md-component="source" href="https://github.com/x/y">',
    ],
)
def test_the_check_sees_what_a_page_asks_for(page: str) -> None:
    assert asked(page)
