"""Run checks one after the other and report each, for the smoke tests."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import penstock as ps


def run_checks(checks: Sequence[Callable[[], None]], what: str = "penstock") -> int:
    """Run all checks and return how many failed."""
    print(f"{what} {ps.__version__} in {Path(ps.__file__).parent}")
    failed = 0
    for check in checks:
        try:
            check()
            print("ok ", check.__name__, flush=True)
        except Exception:
            failed += 1
            print("BAD", check.__name__, flush=True)
            traceback.print_exc()
    print(f"smoke: {len(checks) - failed} passed, {failed} failed")
    return failed
