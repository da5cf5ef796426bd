"""The hooks of mkdocs: pages that are made from the code, and their places in the navigation.

`PENSTOCK_DOCS=quick` leaves out what takes long: the curves of the policies, and the notebooks' outputs.
"""

from __future__ import annotations

import os
from typing import Any

from mkdocs.structure.files import File
from site_pages import policies, reference, tutorials

QUICK = os.environ.get("PENSTOCK_DOCS") == "quick"
MADE = {"Policies": policies, "API reference": reference, "Notebooks": tutorials}
# Files of docs/ cannot link to pages that are made here: on GitHub they would lead nowhere.
LINKS = {
    "*Policies*": "[Policies](policies/index.md)",
    "*API reference*": "[API reference](reference/index.md)",
    "*Notebooks*": "[Notebooks](tutorials/join.md)",
}


def on_config(config: Any) -> Any:
    """Fill the sections of the navigation whose pages are made here."""
    config.nav = [_filled(entry) for entry in config.nav]
    return config


def _filled(entry: dict[str, Any]) -> dict[str, Any]:
    (title, place), *_ = entry.items()
    return {title: MADE[title].navigation()} if title in MADE else {title: place}


def on_files(files: Any, config: Any) -> Any:
    """Add the pages and pictures, which exist in memory only."""
    for module in MADE.values():
        for path, content in module.pages(QUICK).items():
            files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Link to the pages that are made here; the front page has no neighbours to show."""
    if page.file.src_uri == "index.md":
        page.meta["hide"] = ["navigation"]
    if "/" not in page.file.src_uri:
        for words, link in LINKS.items():
            markdown = markdown.replace(words, link)
    return markdown
