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
