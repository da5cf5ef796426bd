"""Look at a folder of queues without changing it: what is in it, and whether all of it is whole."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.queues.commits import read_commits
from penstock.queues.marks import GOT, PUT, read_marks
from penstock.queues.opening import describe
from penstock.queues.scan import Flaw, Gap, files_of, gaps, scan


@dataclass(frozen=True)
class QueueReport:
    """One queue of a folder: its files and items, and what is wrong with them."""

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
        """Items that a consumer has still to get."""
        return self.after - self.first - sum(gap.after - gap.first for gap in self.missing)


@dataclass(frozen=True)
class FolderReport:
    """A folder of queues."""

    folder: Path
    durable: bool
    arrow: bool
    clean: bool
    queues: list[QueueReport]

    @property
    def whole(self) -> bool:
        """Whether nothing is torn, damaged or missing."""
        return not any(each.flaws or each.missing for each in self.queues)


def verify(folder: str | Path) -> FolderReport:
    """Read and check every file of a folder of queues; nothing is changed, and nobody need have closed it.

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
    count, durable = int(about["queues"]), bool(about["durable"])
    marks, clean = read_marks(path / "marks", count)
    commits = read_commits(path / "commits", count)
    files = files_of(path)
    reports = []
    for lane in range(count):
        mine = files.get(lane, [])
        found = scan(mine, lane)
        end = max((chunk.first + chunk.count for chunk in found.chunks), default=0)
        put, got = (marks[lane][PUT], marks[lane][GOT]) if marks else (0, 0)
        lowest = found.chunks[0].first if found.chunks else 0
        first = commits[lane] if durable else (got if marks else lowest)
        after = max(end, put, first)
        # Without `durable`, only a closed queue has everything on disk.
        missing = gaps([c for c in found.chunks if c.first + c.count > first], first, after)
        reports.append(
            QueueReport(
                queue=lane,
                files=len(mine),
                bytes=sum(found.sizes.values()),
                chunks=len(found.chunks),
                first=first,
                after=after,
                delivered=got,
                flaws=found.flaws,
                missing=missing,
            )
        )
    return FolderReport(path, durable, about["schema"] is not None, clean, reports)
