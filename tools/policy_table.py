"""Write the table of policies in the README from the registry; `make format` runs it."""

from __future__ import annotations

import re
from pathlib import Path

import penstock as ps

README = Path(__file__).parents[1] / "README.md"
HEAD = "| name | what it does | cost |\n|---|---|---|\n"


def table() -> str:
    """The rows, one per policy that can run a join."""
    rows = [f"| `{kind.name}` | {kind.summary} | {kind.cost} |" for kind in ps.policies.registered()]
    return HEAD + "\n".join(rows) + "\n"


def main() -> None:
    """Replace the table, and nothing else."""
    text = README.read_text(encoding="utf-8")
    place = re.compile(re.escape(HEAD) + r"(\|.*\n)*")
    README.write_text(place.sub(lambda _: table(), text), encoding="utf-8")


if __name__ == "__main__":
    main()
