"""The notebooks of `docs/tutorials`, executed: pages with outputs and pictures, and files for Jupyter."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from site_pages.notebooks import as_ipynb, as_markdown, cells_of, run

FOLDER = Path(__file__).parents[2] / "docs" / "tutorials"
ORDER = ("join", "planning", "lookups", "patterns", "queues")  # the others follow by their names


def sources() -> list[Path]:
    """The notebooks, in the order of the navigation."""
    found = {path.stem: path for path in sorted(FOLDER.glob("*.py"))}
    return [found[name] for name in sorted(found, key=lambda name: (name not in ORDER, _place(name), name))]


def _place(name: str) -> int:
    return ORDER.index(name) if name in ORDER else 0


def navigation() -> list[Any]:
    """A page per notebook."""
    return [f"tutorials/{path.stem}.md" for path in sources()]


def pages(quick: bool = False) -> dict[str, str | bytes]:
    """Pages, pictures and notebooks by their paths; `quick` runs nothing and shows no outputs."""
    made: dict[str, str | bytes] = {}
    for path in sources():
        with in_a_folder_of_its_own():
            cells = cells_of(path) if quick else run(path)
        text, pictures = as_markdown(cells, path.stem)
        link = f"\n[Download this notebook]({path.stem}.ipynb), with its outputs, for Jupyter.\n"
        made[f"tutorials/{path.stem}.md"] = text + link
        made[f"tutorials/{path.stem}.ipynb"] = as_ipynb(cells)
        made |= {f"tutorials/{file}": picture for file, picture in pictures.items()}
    return made


@contextlib.contextmanager
def in_a_folder_of_its_own() -> Iterator[None]:
    """What a notebook writes goes to a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="penstock-docs-") as folder:
        before = os.getcwd()
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)
