"""Prints the oldest versions that `pyproject.toml` allows, as constraints for pip."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
REQUIREMENT = re.compile(r"(?P<name>[\w-]+)(\[[\w,]+\])?>=(?P<bound>[\d.]+)(,<[\d.]+)?")
NOT_TESTED = {"docs", "dev"}  # extras that are tools of this repository


def lower_bounds() -> dict[str, str]:
    """The bound of every package that users install.

    >>> lower_bounds()["lark"]
    '1.2'
    """
    project = tomllib.loads(PROJECT.read_text())["project"]
    wanted = list(project["dependencies"])
    for extra, packages in project["optional-dependencies"].items():
        if extra not in NOT_TESTED:
            wanted += packages
    found = {}
    for each in wanted:
        if each.startswith("penstock["):
            continue
        parts = REQUIREMENT.fullmatch(each)
        if parts is None:
            raise SystemExit(f"'{each}' in {PROJECT.name} has no lower bound.")
        found[parts["name"]] = parts["bound"]
    return found


def main() -> int:
    """Print the constraints."""
    for name, bound in lower_bounds().items():
        print(f"{name}=={bound}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
