"""Prints what a run under coverage has reached, a line per package: `make coverage` ends with it."""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

import coverage

SOURCE = Path(__file__).parents[1] / "src" / "penstock"


def totals() -> dict[str, tuple[int, int]]:
    """Lines and lines that did not run, by package; modules beside the packages count as `penstock`."""
    measured = coverage.Coverage()
    measured.load()
    found: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for name in measured.get_data().measured_files():
        inside = Path(name).relative_to(SOURCE)
        package = inside.parts[0] if len(inside.parts) > 1 else "penstock"
        _, lines, _, missing, _ = measured.analysis2(name)
        before = found[package]
        found[package] = before[0] + len(lines), before[1] + len(missing)
    return dict(found)


def main() -> int:
    """Print the table."""
    found = totals()
    found = dict(sorted(found.items())) | {
        "all": (sum(lines for lines, _ in found.values()), sum(missing for _, missing in found.values()))
    }
    print(f"{'package':14}{'lines':>8}{'missed':>8}{'covered':>9}")
    for package, (lines, missing) in found.items():
        print(f"{package:14}{lines:8,}{missing:8,}{(lines - missing) / max(lines, 1):9.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
