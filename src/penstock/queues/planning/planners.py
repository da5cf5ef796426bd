"""The planners: named algorithms that decide what a queue writes and reads, as frozen specs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.errors import PenstockError, PolicyOptionError, UnknownPolicyError, hint
from penstock.queues.planning import decisions
from penstock.queues.planning.decisions import SizedPlanner

PAGING = -1  # LRU paging has no decisions in common with the others


@dataclass(frozen=True)
class Planner:
    """A named algorithm and its parameters; `sized` applies it to a memory.

    >>> from penstock.queues import planner
    >>> planner("half").paper
    'section 2'
    >>> planner("greedy-chunk:block=8").block
    8
    """

    name: str
    summary: str
    paper: str
    kind: int
    many: bool = False  # several queues share the memory
    block: int | None = None  # T of the extended cost model
    split: bool = False  # every queue has its own part of the memory
    stores: bool = True  # a queue of real items can run it

    def sized(self, memory: int, queues: int = 1) -> SizedPlanner:
        """Return the algorithm for a memory and a number of queues.

        >>> from penstock.queues import planner
        >>> planner("buffered-head").sized(80, queues=4).largest
        10
        """
        if queues > 1 and not (self.many or self.split):
            raise UnknownPolicyError(
                f"{self.name!r} supports one queue; {queues} were given. "
                f"For several: {', '.join(p.name for p in _ALL if p.many or p.split)}."
            )
        if memory < 2 * queues:
            raise PolicyOptionError(
                f"A memory of {memory} was given for {queues} queue{'s' * (queues > 1)}; "
                f"{self.name!r} needs at least {2 * queues}."
            )
        kind, room, block = self.kind, memory // queues if self.split else memory, self.block or 1
        share = room // (2 * queues) if not self.split else room // 2
        if self.name == "hybrid" and block > share:
            kind = decisions.HALF if queues == 1 else decisions.HEADS
        elif self.name in ("hybrid", "greedy-chunk") and block > share:
            raise PolicyOptionError(
                f"{self.name!r} takes blocks of at most {share} here (M / 2n); {block} was given. "
                "'hybrid' uses HALF or BUFFEREDHEAD instead."
            )
        if kind == decisions.HEADS_WIDE:
            share = max(1, room // (3 * queues))
        largest = share if kind != decisions.HALF and kind != decisions.HALF_LATE else room // 2
        if kind == decisions.GREEDY:
            largest = room // (2 * queues)
        return SizedPlanner(kind, room, share, block, self.split, largest)


_ALL = (
    Planner("half", "keeps both ends in memory, moves half of it", "section 2", decisions.HALF),
    Planner("half-late", "HALF that writes only when memory is full", "footnote 2", decisions.HALF_LATE),
    Planner(
        "greedy",
        "writes and reads as few tuples as possible",
        "section 3",
        decisions.GREEDY,
        many=True,
        block=1,
    ),
    Planner("greedy-chunk", "greedy in blocks of T = c0 / c1", "section 3", decisions.GREEDY, many=True),
    Planner(
        "hybrid",
        "HALF or BUFFEREDHEAD if T is large, else greedy-chunk",
        "corollary 3.1",
        decisions.GREEDY,
        many=True,
    ),
    Planner(
        "buffered-head",
        "protects every head, writes the newest of the fullest queue",
        "section 4.1",
        decisions.HEADS,
        many=True,
    ),
    Planner(
        "buffered-head-rest",
        "writes all but the protected head",
        "footnote 4",
        decisions.HEADS_REST,
        many=True,
    ),
    Planner(
        "buffered-head-halves", "writes the newest half", "footnote 4", decisions.HEADS_HALVES, many=True
    ),
    Planner(
        "buffered-head-wide", "writes two shares at once", "section 4.3", decisions.HEADS_WIDE, many=True
    ),
    Planner(
        "static",
        "baseline: HALF with an equal part for each queue",
        "section 4",
        decisions.HALF,
        split=True,
        stores=False,
    ),
    Planner(
        "lru", "baseline: evicts the least recently used page", "section 1.1", PAGING, many=True, stores=False
    ),
)
_BY_NAME = {each.name: each for each in _ALL}


def names() -> list[str]:
    """Return the names of all planners.

    >>> from penstock.queues.planning import planners
    >>> planners.names()[:2]
    ['half', 'half-late']
    """
    return list(_BY_NAME)


def planner(given: str | Planner) -> Planner:
    """Return a planner by name or by name with its block size; a planner is returned as it is.

    >>> from penstock.queues import planner
    >>> planner("hybrid:block=4").name
    'hybrid'
    >>> planner("haf")
    Traceback (most recent call last):
    ...
    penstock.errors.UnknownPolicyError: There is no planner 'haf'; did you mean 'half'? Allowed: half, ...
    """
    if isinstance(given, Planner):
        return given
    name, colon, options = str(given).partition(":")
    if name not in _BY_NAME:
        raise UnknownPolicyError(f"There is no planner {name!r}{hint(name, _BY_NAME)}")
    found = _BY_NAME[name]
    if not colon:
        return found
    option, _, value = options.partition("=")
    if option.strip() != "block" or found.name not in ("greedy-chunk", "hybrid", "lru"):
        raise PolicyOptionError(
            f"{given!r}: only greedy-chunk, hybrid and lru have an option, which is block=N; "
            f"{options!r} was given."
        )
    if not value.strip().isdigit() or int(value) < 1:
        raise PolicyOptionError(f"{given!r}: block takes a whole number from 1 up; {value!r} was given.")
    return replace(found, block=int(value))


def with_block(given: Planner, block: int) -> Planner:
    """Return the planner with this block size, unless it already has one or takes none.

    >>> from penstock.queues import planner
    >>> from penstock.queues.planning.planners import with_block
    >>> with_block(planner("hybrid"), 5).block, with_block(planner("half"), 5).block
    (5, None)
    """
    if block < 1:
        raise PenstockError(f"A block must be at least 1; {block} was given.")
    takes = given.name in ("greedy-chunk", "hybrid", "lru")
    return replace(given, block=block) if takes and given.block is None else given
