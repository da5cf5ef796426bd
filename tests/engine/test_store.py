"""The tables of a store do not tell their number of rows, so that no kernel may ask for it."""

from __future__ import annotations

import re
from pathlib import Path

import penstock
from penstock.engine.store import Store

SOURCES = Path(penstock.__file__).parent


def test_no_kernel_asks_a_table_for_its_rows() -> None:
    tables = "|".join(Store.tables)  # type: ignore[attr-defined]
    asking = re.compile(rf"store\.({tables})\.(shape\[0\]|size)|len\(store\.({tables})\)")
    for folder in ("engine", "policies"):
        for path in (SOURCES / folder).rglob("*.py"):
            assert not asking.search(path.read_text()), path
