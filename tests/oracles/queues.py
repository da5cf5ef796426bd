"""Queues that spill, tuple by tuple: every tuple knows where it is and how often it was written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Held:
    """One tuple of a queue."""

    number: int
    on_disk: bool = False
    written: int = 0


@dataclass
class Oracle:
    """The algorithms as the paper tells them; checks memory, order and invariants at every step."""

    name: str
    memory: int
    queues: int = 1
    block: int = 1
    reads: int = 0
    writes: int = 0
    read: int = 0
    written: int = 0
    rewritten: int = 0
    rows: list[list[Held]] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    given: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rows = [[] for _ in range(self.queues)]
        self.taken = [0] * self.queues
        self.given = [0] * self.queues
        self.share = self.memory // (2 * self.queues)

    # --- moves ----------------------------------------------------------------------------------------

    def held(self, q: int) -> list[Held]:
        return [t for t in self.rows[q] if not t.on_disk]

    def whole(self) -> int:
        return sum(len(self.held(q)) for q in range(self.queues))

    def fullest(self) -> int:
        return max(range(self.queues), key=lambda q: (len(self.held(q)), -q))

    def write(self, q: int, tuples: list[Held]) -> None:
        """Write tuples; those that lie together in the queue go in one write."""
        assert tuples
        last = None
        for t in tuples:
            assert not t.on_disk
            self.writes += last is None or t.number != last + 1
            self.rewritten += t.written > 0
            last, t.on_disk, t.written = t.number, True, t.written + 1
        self.written += len(tuples)

    def read_front(self, q: int, amount: int) -> None:
        run = []
        for t in self.rows[q]:
            if not t.on_disk or len(run) == amount:
                break
            run.append(t)
        for t in run:
            t.on_disk = False
        self.reads += 1
        self.read += len(run)
        assert self.whole() <= self.memory

    def front_run(self, q: int) -> int:
        count = 0
        for t in self.rows[q]:
            if not t.on_disk:
                break
            count += 1
        return count

    # --- the algorithms -------------------------------------------------------------------------------

    def head(self, q: int) -> list[Held]:
        found = []
        for t in self.rows[q]:
            if t.on_disk:
                break
            found.append(t)
        return found

    def tail(self, q: int) -> list[Held]:
        found: list[Held] = []
        for t in reversed(self.rows[q]):
            if t.on_disk:
                return found[::-1]
            found.append(t)
        return []

    def make_room(self, q: int, amount: int, reads: bool) -> None:
        half = self.memory // 2
        spilled = any(t.on_disk for t in self.rows[q])
        if self.name == "half":
            if reads:
                return
            if not spilled and len(self.rows[q]) + amount > self.memory:
                self.write(q, self.rows[q][half:])
            elif spilled and len(self.tail(q)) + amount > half:
                self.write(q, self.tail(q))
        elif self.name == "half-late":
            if self.whole() + amount > self.memory:
                self.write(q, self.tail(q) if spilled else self.rows[q][half:])
        elif self.name in ("greedy", "greedy-chunk"):
            over = self.whole() + amount - self.memory
            if over > 0:
                fullest = self.fullest()
                blocks = -(-over // self.block)
                free = self.free(fullest, self.block)
                self.write(fullest, free[-blocks * self.block :])
        else:
            while self.whole() + amount > self.memory:
                fullest = self.fullest()
                free = self.free(fullest, self.share)
                size = {
                    "buffered-head": self.share,
                    "buffered-head-rest": len(free),
                    "buffered-head-halves": -(-len(self.held(fullest)) // 2),
                }[self.name]
                self.write(fullest, free[-size:])

    def free(self, q: int, protected: int) -> list[Held]:
        """What may be written: all in memory but the oldest of the head."""
        kept = {t.number for t in self.head(q)[:protected]}
        return [t for t in self.held(q) if t.number not in kept]

    def fetch(self, q: int) -> None:
        unit = {"half": self.memory // 2, "half-late": self.memory // 2}.get(self.name, self.share)
        unit = self.block if self.name.startswith("greedy") else unit
        self.make_room(q, min(unit, self.front_run(q)), True)
        self.read_front(q, unit)

    # --- ticks ----------------------------------------------------------------------------------------

    def arrive(self, q: int) -> None:
        self.make_room(q, 1, False)
        self.rows[q].append(Held(self.given[q]))
        self.given[q] += 1
        self.check()

    def consume(self, q: int) -> None:
        if self.rows[q][0].on_disk:
            self.fetch(q)
        first = self.rows[q].pop(0)
        assert not first.on_disk
        assert first.number == self.taken[q]  # FIFO
        self.taken[q] += 1
        if self.rows[q] and self.rows[q][0].on_disk and not self.name.startswith("greedy"):
            self.fetch(q)
        self.check()

    def check(self) -> None:
        assert self.whole() <= self.memory
        if self.name in ("half", "half-late"):
            places = [t.on_disk for t in self.rows[0]]
            if True in places:  # Invariants 1 and 2 are what head and tail mean; 3 is their size
                assert len(self.head(0)) <= self.memory // 2
                tail = self.tail(0)
                assert len(self.head(0)) + sum(places) + len(tail) == len(places)
                assert self.name == "half-late" or len(tail) <= self.memory // 2

    def run(self, arrivals: Any, order: Any = ()) -> Oracle:
        """All ticks until everything is consumed."""
        turn = tick = 0
        while tick < len(arrivals) or any(self.rows):
            if tick < len(arrivals):
                for q in range(self.queues):
                    for _ in range(arrivals[tick][q]):
                        self.arrive(q)
            wanted = order[tick] if tick < len(order) else -1
            if wanted == -1:
                for step in range(self.queues):
                    q = (turn + step) % self.queues
                    if self.rows[q]:
                        wanted, turn = q, (q + 1) % self.queues
                        break
            if wanted >= 0 and self.rows[wanted]:
                self.consume(wanted)
            tick += 1
        return self
