"""The site: every public name is in the API reference, links lead somewhere, and it works from a folder.

It is built once without curves and notebooks' outputs (`PENSTOCK_DOCS=quick`). In a browser, where there is
one, a page is opened from the folder and searched; it asks for nothing outside of it.
"""

from __future__ import annotations

import inspect
import os
import pkgutil
import subprocess
import sys
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import pytest
from site_pages.docstrings import rewritten
from site_pages.reference import INTERNAL, MODULES, public_names

import penstock
import penstock as ps
from tests.dashboard.browser import Browser

ROOT = Path(__file__).parents[2]
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src"}


class Page(HTMLParser):
    """What a page links to, what it loads, and its anchors."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors |= {value for name, value in attrs if name in ("id", "name") and value}
        if tag == "a" and given.get("href"):
            self.links.append(str(given["href"]))
        if tag in LOADED and given.get(LOADED[tag]):
            self.loads.append(str(given[LOADED[tag]]))
        if tag == "link" and given.get("rel") != "canonical" and given.get("href"):
            self.loads.append(str(given["href"]))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"PENSTOCK_DOCS": "quick", "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in sorted(site.rglob("*.html"))}


def exports() -> Iterator[tuple[str, object]]:
    """Every public name with its module, and what it stands for."""
    for module in MODULES:
        for name in public_names(import_module(module)):
            yield f"{module}.{name}", getattr(import_module(module), name)


def test_every_public_name_is_described(site: Path, pages: dict[Path, Page]) -> None:
    anchors = {
        each for path, page in pages.items() if path.parent.name == "reference" for each in page.anchors
    }
    names: dict[int, list[str]] = {}
    for name, value in exports():
        names.setdefault(id(value), []).append(name)
    missing = []
    for name, value in exports():
        if isinstance(value, ModuleType) and value.__name__ in MODULES:
            continue
        module, _, short = name.rpartition(".")
        listed = f">{short}</code>" in pages[site / f"reference/{module}.html"].source
        if not listed or not any(each in anchors for each in names[id(value)]):
            missing.append(name)
    assert missing == []


def test_every_public_function_and_class_has_a_docstring() -> None:
    assert [name for name, value in exports() if callable(value) and not inspect.getdoc(value)] == []


def test_every_module_with_public_names_has_a_page() -> None:
    found = {
        f"penstock.{each.name}"
        for each in pkgutil.iter_modules(penstock.__path__)
        if hasattr(import_module(f"penstock.{each.name}"), "__all__")
    }
    assert found - set(INTERNAL) <= set(MODULES)


def test_examples_in_docstrings_are_code(pages: dict[Path, Page]) -> None:
    """As plain Markdown, a prompt would be a quotation in a quotation."""
    wrong = [path.name for path, page in pages.items() if "<blockquote>\n<blockquote>" in page.source]
    assert wrong == []


def test_docstrings_are_rewritten_part_by_part() -> None:
    text = "Idea.\n\nParameters\n----------\nx\n    A number.\n\nMore.\n\n>>> 1\n1"
    assert rewritten(text) == (
        "Idea.\n\nMore.\n\nParameters\n----------\nx\n    A number.\n\nExamples\n--------\n>>> 1\n1"
    )
    assert rewritten("Idea.\n\n>>> print()\n<BLANKLINE>") == "Idea.\n\n```pycon\n>>> print()\n\n```"
    assert rewritten("Idea.\n\nReturns\n-------\nOne row\nper match.", "DataFrame") == (
        "Idea.\n\nReturns\n-------\nDataFrame\n    One row\n    per match."
    )


def test_links_lead_somewhere(site: Path, pages: dict[Path, Page]) -> None:
    wrong = []
    for path, page in pages.items():
        for link in page.links:
            to = urlsplit(link)
            if to.scheme or to.netloc or path.name == "404.html":
                continue
            target = (path.parent / unquote(to.path)).resolve() if to.path else path
            target = target / "index.html" if target.is_dir() else target
            there = target.exists() and (
                not to.fragment or target not in pages or unquote(to.fragment) in pages[target].anchors
            )
            if not there and to.fragment != "__codelineno":
                wrong.append(f"{path.relative_to(site)}: {link}")
    assert wrong == []


def test_nothing_is_loaded_from_the_network(pages: dict[Path, Page]) -> None:
    wrong = {load for page in pages.values() for load in page.loads if urlsplit(load).netloc}
    assert wrong == set()


def test_a_policy_begins_with_when_to_use_it(site: Path) -> None:
    for kind in ps.policies.registered("any"):
        text = (site / f"policies/{kind.name}.html").read_text(encoding="utf-8")
        article = text[text.index("<article") :]
        assert 0 < article.index("Use it when") < article.index("Not when") < article.index("How it works")
        assert kind.wins[1:20] in article


def test_search_works_from_a_folder(site: Path, tmp_path: Path) -> None:
    with Browser(tmp_path) as browser:
        browser.resize(1280, 900)
        browser.open((site / "index.html").as_uri())
        field = "document.querySelector('.md-search__input')"
        browser.look(
            f"{field}.focus(); {field}.value = 'reconcile'; {field}.dispatchEvent(new Event('keyup'))"
        )
        found = browser.until(
            "[...document.querySelectorAll('.md-search-result__link')].map(a => a.href).join(' ')"
        )
        time.sleep(0.5)  # the list fades in
        browser.screenshot(ROOT / "artifacts" / "docs-search.png")
        asked = browser.look("performance.getEntriesByType('resource').map(each => each.name).join(' ')")
    assert "spark.html" in found
    assert all(each.startswith("file:") for each in asked.split())


@pytest.mark.parametrize(
    "page", ["index", "choosing", "tutorials/join", "reference/penstock.spark", "policies/gdj"]
)
def test_pages_fit_a_phone(site: Path, tmp_path: Path, page: str) -> None:
    with Browser(tmp_path) as browser:
        browser.resize(390, 800)
        browser.open((site / f"{page}.html").as_uri())
        wide = browser.look("document.documentElement.scrollWidth")
        browser.screenshot(ROOT / "artifacts" / f"docs-phone-{page.replace('/', '-')}.png")
    assert wide <= 390
