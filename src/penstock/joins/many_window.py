"""Windows of joins of many streams: one for all, one per stream, or one per pair of streams."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.engine.store import LANDMARK, ROWS, TIMED
from penstock.errors import WindowError, hint
from penstock.window import Landmark, Resolved, Rows, Window, Within, unit_doubt, window_of

FORMS = (
    "within takes one window for all streams, a dict of stream to window, or a dict of pairs of streams to "
    "(before, after)"
)


@dataclass(frozen=True)
class ManyWindow:
    """The windows of a join in the unit of the data, as the kernels use them."""

    kind: int  # TIMED; LANDMARK; ROWS if some streams count rows
    horizons: tuple[Any, ...]  # per stream: how long its tuples can match
    by_rows: tuple[bool, ...]  # per stream: whether its horizon counts its own arrivals
    # Per join, participant and other participant: how much later the other may be; None: as horizons say.
    bounds: tuple[tuple[tuple[Any, ...], ...], ...] | None = None

    @property
    def uniform(self) -> bool:
        """Whether there is one window of time for all streams."""
        return self.kind == TIMED and self.bounds is None and len(set(self.horizons)) == 1

    @property
    def timed(self) -> tuple[Any, ...]:
        """The horizons that are spans of time."""
        pairs = zip(self.horizons, self.by_rows, strict=True)
        return tuple(horizon for horizon, rows in pairs if not rows) or (0,)


@dataclass(frozen=True)
class ManyWithin:
    """What `within` says, with streams by their numbers.

    >>> from penstock.joins.many_window import many_window_of
    >>> within = many_window_of({("a", "b"): (0, 5), ("b", "c"): 9}, ["a", "b", "c"], [(0, 1, 2)])
    >>> within.resolve("ms").horizons
    (14, 9, 9)
    """

    one: Window | None  # for all streams
    each: tuple[tuple[int, Window], ...]
    pairs: tuple[tuple[int, int, Within], ...]
    joins: tuple[tuple[int, ...], ...]
    streams: int
    given: str  # as the user gave it, for messages

    @property
    def has_unit(self) -> bool:
        """Whether a window is a duration, so that the unit of the time column matters."""
        return any(window.has_unit for window in self.windows)

    @property
    def windows(self) -> list[Window]:
        """All windows, whatever they are of."""
        one = [] if self.one is None else [self.one]
        return one + [window for _, window in self.each] + [window for _, _, window in self.pairs]

    def doubts(self, unit: str, times: tuple[float, float] | None, stamped: bool) -> list[str]:
        """Why times or windows are probably read in the wrong unit, if they do not look right."""
        found = {unit_doubt(window, unit, times, stamped) for window in self.windows}
        return sorted(doubt for doubt in found if doubt is not None)

    def resolve(self, unit: str, dtype: np.dtype | None = None) -> ManyWindow:
        """The windows in the unit of the time column, and on the scale of the times."""
        whole = dtype == np.dtype(np.int64)
        if self.one is not None:
            resolved = self.one.resolve(unit)
            horizon = resolved.horizons[0]
            if resolved.kind == LANDMARK:
                if whole and not float(horizon).is_integer():
                    raise WindowError(
                        "A landmark period must be a whole number in the unit of the time column."
                    )
            else:
                horizon = _scaled(horizon, whole)
            plain = (False,) * self.streams
            return ManyWindow(resolved.kind, (horizon,) * self.streams, plain)
        spans: list[Any] = [None] * self.streams
        by_rows = [False] * self.streams
        for stream, window in self.each:
            by_rows[stream] = isinstance(window, Rows)
            spans[stream] = window.resolve(unit).horizons[0]
            if not by_rows[stream]:
                spans[stream] = _scaled(spans[stream], whole)
        kind = ROWS if any(by_rows) else TIMED
        if not self.pairs:
            return ManyWindow(kind, tuple(spans), tuple(by_rows))
        limits: dict[tuple[int, int], Any] = {}
        for left, right, pair in self.pairs:
            after, before = pair.resolve(unit).horizons
            for key, span in (((left, right), after), ((right, left), before)):
                limits[key] = min(limits.get(key, math.inf), _scaled(span, whole))
        bounds = tuple(_closed(join, spans, limits) for join in self.joins)
        horizons = []
        for stream in range(self.streams):
            mine = [
                max(
                    bound
                    for other, bound in enumerate(bounds[j][join.index(stream)])
                    if join[other] != stream
                )
                for j, join in enumerate(self.joins)
                if stream in join
            ]
            horizons.append(max(mine))
        return ManyWindow(kind, tuple(horizons), tuple(by_rows), bounds)


def many_window_of(
    within: Any, names: Sequence[Any], joins: Sequence[tuple[int, ...]] | None = None
) -> ManyWithin:
    """Parse `within` of a join of many streams with these names.

    >>> from penstock.joins.many_window import many_window_of
    >>> many_window_of("10 s", ["a", "b"]).resolve("ms").horizons
    (10000, 10000)
    """
    streams = len(names)
    members = tuple(tuple(join) for join in joins) if joins is not None else (tuple(range(streams)),)
    if isinstance(within, ManyWithin):
        return within
    if not isinstance(within, Mapping):
        return ManyWithin(_common(within), (), (), members, streams, repr(within))
    number = {name: s for s, name in enumerate(names)}
    each: dict[int, Window] = {}
    pairs: list[tuple[int, int, Within]] = []
    for key, value in within.items():
        if isinstance(key, tuple):
            if len(key) != 2 or key[0] == key[1]:
                raise WindowError(f"A pair of streams is (one, other); {key!r} was given. {FORMS}.")
            left, right = (_number(name, number, names) for name in key)
            if not any(left in join and right in join for join in members):
                raise WindowError(f"within has {key!r}, but no join has both of these streams.")
            window = window_of(value)
            if not isinstance(window, Within):
                raise WindowError(
                    f"The window of a pair of streams is a span or (before, after); within has {value!r} "
                    f"for {key!r}."
                )
            pairs.append((left, right, window))
        else:
            each[_number(key, number, names)] = _own(key, value)
    if pairs and any(isinstance(window, Rows) for window in each.values()):
        raise WindowError(
            "Windows of pairs are windows of time and cannot be combined with Rows(n) of a stream; "
            f"{within!r} was given."
        )
    if not pairs and len(each) < streams:
        missing = ", ".join(repr(name) for name in names if number[name] not in each)
        raise WindowError(
            f"within has no window for {missing}, whose rows would never expire. Give every stream one."
        )
    parsed = ManyWithin(None, tuple(sorted(each.items())), tuple(pairs), members, streams, repr(within))
    if pairs:
        _check_ends(parsed, names)
    return parsed


def bounds_of_horizons(window: ManyWindow, join: tuple[int, ...]) -> tuple[tuple[Any, ...], ...]:
    """How much later another participant of a join may be, if the horizons are all that counts."""
    return tuple(
        tuple(math.inf if window.by_rows[a] or window.by_rows[b] else window.horizons[a] for b in join)
        for a in join
    )


def as_many(window: Any, streams: int) -> ManyWindow:
    """The windows of a config, which may be given as one for all streams."""
    if isinstance(window, Resolved):
        return ManyWindow(window.kind, (window.horizons[0],) * streams, (False,) * streams)
    assert isinstance(window, ManyWindow)
    return window


def _common(within: Any) -> Window:
    """Check one window for all streams."""
    if isinstance(within, Rows):
        raise WindowError(
            "Joins of many streams need a window of time if it is one for all; "
            f"{within!r} was given. Give a duration, or a dict with Rows(n) for each stream."
        )
    window = window_of(within)
    if isinstance(window, Within) and not _symmetric(window):
        raise WindowError(
            "Joins of many streams have no left and right, so their one window must be symmetric; "
            f"{(window.before, window.after)!r} was given. Give one span, or a dict with "
            "(before, after) for pairs of streams."
        )
    return window


def _own(name: Any, value: Any) -> Window:
    """Check the window of one stream."""
    window = window_of(value)
    if isinstance(window, Landmark):
        raise WindowError(
            f"A landmark window is one for all streams; within has {value!r} for {name!r} alone."
        )
    if isinstance(window, Within) and not _symmetric(window):
        raise WindowError(
            f"The window of one stream says how much older than the newest member its rows may be, one span; "
            f"within has {value!r} for {name!r}. Give (before, after) for a pair of streams."
        )
    return window


def _symmetric(window: Within) -> bool:
    after, before = window.resolve("ns").horizons
    return bool(after == before)


def _number(name: Any, number: Mapping[Any, int], names: Sequence[Any]) -> int:
    if name not in number:
        known = [str(each) for each in names]
        raise WindowError(f"within names {name!r}, which is no stream{hint(str(name), known)}")
    return number[name]


def _scaled(span: Any, whole: bool) -> Any:
    """A span on the scale of the times: on whole numbers, a span of 1.5 is a span of 1."""
    if not whole:
        return span
    span = math.floor(span)
    if span >= 2**62:
        raise WindowError(f"A window of {span} does not fit into 62 bits.")
    return span


def _closed(
    join: tuple[int, ...], spans: Sequence[Any], limits: Mapping[tuple[int, int], Any]
) -> tuple[tuple[Any, ...], ...]:
    """How much later each participant may be than each other, directly or through the others."""
    size = len(join)
    bound = [
        [0 if a == b else _direct(join[a], join[b], spans, limits) for b in range(size)] for a in range(size)
    ]
    for through in range(size):
        for a in range(size):
            for b in range(size):
                bound[a][b] = min(bound[a][b], bound[a][through] + bound[through][b])
    return tuple(tuple(row) for row in bound)


def _direct(a: int, b: int, spans: Sequence[Any], limits: Mapping[tuple[int, int], Any]) -> Any:
    """How much later stream b may be than stream a, by its own windows."""
    span = math.inf if spans[a] is None else spans[a]
    return min(span, limits.get((a, b), math.inf))


def _check_ends(within: ManyWithin, names: Sequence[Any]) -> None:
    """Reject windows of pairs that leave two streams of a join without any bound."""
    bounds = within.resolve("ns").bounds
    assert bounds is not None
    for join, bound in zip(within.joins, bounds, strict=True):
        for a, row in enumerate(bound):
            for b, span in enumerate(row):
                if span == math.inf:
                    raise WindowError(
                        f"within says nothing of how far {names[join[a]]!r} and {names[join[b]]!r} may be "
                        "apart, directly or through other streams, so rows would never expire. Give that "
                        f"pair a window too; {within.given} was given."
                    )
