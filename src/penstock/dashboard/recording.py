"""A file of batches, one JSON object per line: written by a monitor, followed by `penstock dashboard`."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any


def write_line(path: Path, figures: dict[str, Any]) -> None:
    """Append the metrics of a batch.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from penstock.dashboard import follow, write_line
    >>> path = Path(tempfile.mkdtemp()) / "clicks.jsonl"
    >>> write_line(path, {"results": 3})
    >>> list(follow(path, until=lambda: True))
    [{'results': 3}]
    """
    with path.open("a", encoding="utf-8") as file:
        file.write(as_json(figures) + "\n")


def as_json(figures: dict[str, Any]) -> str:
    """Return metrics as valid JSON: infinities and NaN become null.

    >>> from penstock.dashboard.recording import as_json
    >>> as_json({"rate": float("inf"), "results": 3})
    '{"rate": null, "results": 3}'
    """
    plain = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in figures.items()
    }
    return json.dumps(plain, allow_nan=False)


def follow(path: Path, until: Callable[[], bool], every: float = 0.5) -> Iterator[dict[str, Any]]:
    """Yield the batches of a file as they are written, until stopped; wait for incomplete lines.

    Invalid lines are skipped. A file that becomes shorter is read again from its start.
    """
    at, rest = 0, b""
    while True:
        last = until()
        if path.exists():
            if path.stat().st_size < at:
                at, rest = 0, b""
            with path.open("rb") as file:
                file.seek(at)
                rest += file.read()
                at = file.tell()
            *lines, rest = rest.split(b"\n")
            for line in lines:
                try:
                    figures = json.loads(line)
                except ValueError:
                    continue
                if isinstance(figures, dict):
                    yield figures
        if last:
            return
        time.sleep(every)
