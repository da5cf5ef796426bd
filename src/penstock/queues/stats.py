"""Statistics of a queue: what it moved, the cost, and what recovery found."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.queues.planning.costs import ExtendedCost, UnitCost
from penstock.queues.store.scan import Flaw, Gap


@dataclass(frozen=True)
class QueueStats:
    """Counts of one queue, or of several together. Sizes are bytes of items.

    `reads` and `writes` are those of the planner. With `durable=True` a write only drops items from memory,
    and writes to the journal are counted separately.
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

    `clean`: it had been closed. `torn` lists ends of files that a crash cut off, `damage` bad places followed
    by good ones, `lost` items that should exist but do not. `end_known` says whether the queue knew its end;
    if not, as after a power loss, items missing at the end are not noticed.
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
            lines.append("its end is not known")
        return "; ".join(lines)
