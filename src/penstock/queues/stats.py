"""What a queue tells of itself: how much it has moved, what that cost, and what recovery found."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.queues.planning.costs import ExtendedCost, UnitCost
from penstock.queues.store.scan import Flaw, Gap


@dataclass(frozen=True)
class QueueStats:
    """Counts of one queue, or of several together. Sizes are bytes of items.

    `reads` and `writes` are those of the planner; with `durable=True` a write only forgets, and what went to
    the journal is counted apart.
    """

    items: int
    head: int
    spilled: int
    tail: int
    memory: int
    reads: int
    writes: int
    bytes_read: int
    bytes_written: int
    journal_writes: int
    journal_bytes: int
    syncs: int
    dropped: int
    disk_bytes: int
    block: int

    @property
    def unit_cost(self) -> float:
        """Cost in the unit-cost model."""
        return UnitCost().of(self.reads + self.writes, self.bytes_read + self.bytes_written)

    @property
    def extended_cost(self) -> float:
        """Cost in the extended model: an access counts 1, and so does the transfer of T bytes."""
        model = ExtendedCost(c0=1, c1=1 / self.block)
        return model.of(self.reads + self.writes, self.bytes_read + self.bytes_written)


@dataclass(frozen=True)
class Recovery:
    """What was found when a queue was opened.

    `clean`: it had been closed. `torn` are the ends of files that a crash cut off, `damage` places that are
    bad though good ones follow, `lost` items that should be there and are not. `end_known` says whether the
    queue knew how far it had come; without that, as after a loss of power, items missing at the end are not
    noticed.
    """

    clean: bool
    items: int
    torn: list[Flaw] = field(default_factory=list)
    damage: list[Flaw] = field(default_factory=list)
    lost: list[Gap] = field(default_factory=list)
    end_known: bool = True

    @property
    def lost_items(self) -> int:
        """How many items are lost."""
        return sum(gap.after - gap.first for gap in self.lost)

    def __str__(self) -> str:
        lines = [f"{'closed cleanly' if self.clean else 'not closed'}, {self.items:,} items"]
        lines += [str(each) for each in (*self.torn, *self.damage, *self.lost)]
        if not self.end_known:
            lines.append("how far it had come is not known")
        return "; ".join(lines)
