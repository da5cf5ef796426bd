"""Real streams, which are no part of the repository.

They are looked for in the directory that `PENSTOCK_DATA` names, or beside the repository in `shared/data`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

DATA = Path(os.environ.get("PENSTOCK_DATA") or Path(__file__).parents[2] / "shared" / "data")


def real(name: str) -> Path:
    """A file of real data; the test is skipped where it is absent."""
    path = DATA / name
    if not path.exists():
        pytest.skip(f"no {name} in the directory of PENSTOCK_DATA or beside the repository")
    return path
