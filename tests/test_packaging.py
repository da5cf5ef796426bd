"""What is said in more than one place about the project is the same everywhere."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import penstock

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_changelog_begins_with_what_is_unreleased_and_this_version() -> None:
    headings = re.findall(r"^## \[?([^\]\s]+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert headings[:2] == ["Unreleased", penstock.__version__]


def test_every_requirement_is_pinned() -> None:
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pinned = {normal(line.partition("==")[0]) for line in pins.splitlines() if "==" in line}
    extras = PROJECT["optional-dependencies"]
    wanted = [*PROJECT["dependencies"], *(each for extra in extras.values() for each in extra)]
    names = {normal(re.split(r"[\[<>=]", each)[0]) for each in wanted} - {"penstock"}
    assert names - pinned == set()


def normal(name: str) -> str:
    """A name as the package index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_hooks_run_the_tools_of_make_check() -> None:
    make = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = re.search(r"^check:.*\n((?:\t.*\n)+)", make, re.M)
    assert recipe is not None
    checks = re.findall(r"\$\(BIN\)/(\S+(?: (?:check|format --check))?)", recipe[1])
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    assert re.findall(r"entry: \.venv/bin/(\S+(?: (?:check|format --check))?)", hooks) == checks
    assert "http" not in hooks
