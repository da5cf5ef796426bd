"""Inspect a folder of queues without changing it: its contents, and whether it is undamaged."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.errors import QueueError
from penstock.queues.store.marks import GOT
from penstock.queues.store.metadata import describe
from penstock.queues.store.recovery import examine
from penstock.queues.store.scan import Flaw, Gap


@dataclass(frozen=True)
class QueueReport:
    """One queue of a folder: its files and items, and their flaws."""

    queue: int
    files: int
    bytes: int
    chunks: int
    first: int
    after: int
    delivered: int
    flaws: list[Flaw]
    missing: list[Gap]

    @property
    def items(self) -> int:
        """Number of items that are not confirmed yet."""
        return self.after - self.first - sum(gap.after - gap.first for gap in self.missing)


@dataclass(frozen=True)
class FolderReport:
    """A folder of queues; `flaws` are those of the files that its queues share."""

    folder: Path
    durable: bool
    arrow: bool
    clean: bool
    queues: list[QueueReport]
    flaws: list[Flaw]

    @property
    def whole(self) -> bool:
        """Whether nothing is torn, damaged or missing."""
        return not self.flaws and not any(each.flaws or each.missing for each in self.queues)


def verify(folder: str | Path) -> FolderReport:
    """Read and check every file of a folder of queues without changing it; it may be open elsewhere.

    >>> import tempfile, penstock as ps
    >>> from penstock.queues import verify
    >>> folder = tempfile.mkdtemp()
    >>> with ps.SpillQueue(folder, memory=100, durable=True) as queue:
    ...     _ = queue.put_many([b"x" * 10] * 50)
    >>> report = verify(folder)
    >>> report.whole, report.queues[0].items
    (True, 50)
    """
    path = Path(folder)
    about: dict[str, Any] = describe(path)
    try:
        state = examine(path, about["queues"], about["durable"])
    except OSError as error:
        raise QueueError(f"'{error.filename}' cannot be read: {error.strerror}.") from error
    reports = [
        QueueReport(
            queue=lane,
            files=len(each.files),
            bytes=sum(path.stat().st_size for _, path in each.files if path.exists()),
            chunks=len(each.found.chunks),
            first=each.start,
            after=each.after,
            delivered=state.marks.get(lane, GOT) if state.marks.known else 0,
            flaws=each.found.flaws,
            missing=each.missing,
        )
        for lane, each in enumerate(state.queues)
    ]
    flaws = list(state.flaws)
    if not state.end_known:
        why = "missing or empty, so items missing at the end would not be noticed"
        flaws.append(Flaw("marks", 0, 0, True, why))
    return FolderReport(path, state.durable, about["schema"] is not None, state.marks.clean, reports, flaws)
