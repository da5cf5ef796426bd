"""One of each operator and policy that can be snapshotted, and how to feed and restore it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import penstock as ps
from penstock import policies
from penstock.caching import Cache
from penstock.engine.cache_loop import Cache as Entries
from penstock.errors import PenstockError
from penstock.joins import start_many
from penstock.joins.many_state import ManyConfig, ManyState
from penstock.patterns import snapshot as pattern_snapshots
from penstock.states import snapshot as snapshots
from penstock.testing import ManualClock
from penstock.window import window_of

BATCH = 60
TREND = ps.models.LinearTrend(slope=1, intercept=0, noise=ps.models.BoundedUniform(3))
WALK = ps.models.RandomWalk(drift=0.0, sd=1.0)
REPEATED = ps.models.Sequence(tuple(range(9)) * 40)
STATIC = ps.models.Stationary(tuple(range(9)), (1 / 9,) * 9)
MODELLED = {
    "heeb:trend": policies.Heeb(left=TREND, right=TREND, alpha=4),
    "heeb:time": policies.Heeb(left=TREND, right=TREND, alpha=4, way="time"),
    "heeb:walk": policies.Heeb(left=WALK, right=WALK),
    "heeb:known": policies.Heeb(left=REPEATED, right=REPEATED, alpha=4),
    "heeb:static": policies.Heeb(left=STATIC, right=STATIC),
    "flowexpect": policies.FlowExpect(left=TREND, right=TREND, lookahead=3),
}
REQUESTED = {
    "heeb:known": policies.Heeb(model=REPEATED),
    "heeb:walk": policies.Heeb(model=WALK),
    "heeb:trend": policies.Heeb(model=TREND),
    "heeb:static": policies.Heeb(model=STATIC),
}
OPTIONS = ("gdj:method=2", "gdj:method=3,initial=auto", "clock-exp:rho=auto", "auto:candidates=learned/gdj")
QUERY = """
SELECT ?a ?b ?c FROM STREAM w { ?a r ?x ?T . ?b r ?x ?U . ?c s ?x ?V }
CONTEXT ((?T - ?U) <= 9 && (?U - ?V) <= 9)
"""


@dataclass(frozen=True)
class Operator:
    """How a state is made, fed with a batch, stored and restored."""

    start: Callable[[], Any]
    feed: Callable[..., Any]  # state, random numbers, number of the batch, whether to collect; what came out
    again: Callable[[Any, bytes], Any] = lambda state, data: type(state).restore(data)
    seal: Any = snapshots.SEAL
    store: Callable[[Any], bytes] = lambda state: state.snapshot()

    def fed(self) -> Any:
        """A state that is full."""
        state, rng = self.start(), np.random.default_rng(0)
        for number in range(4):
            self.feed(state, rng, number)
        return state


def join_names() -> list[str]:
    """The policies of joins of two streams, with options that have states of their own."""
    plain = [name for name in policies.names() if name not in ("opt", "lfd", "flowexpect")]
    return [*plain, *OPTIONS, *MODELLED]


def many_names() -> list[str]:
    """Those of joins of many streams."""
    return [name for name in policies.names() if policies.get(name).many]


def cache_names() -> list[str]:
    """Those of caches."""
    return [*policies.caching_names(), "gdj:method=2", "gdj:costs", *REQUESTED]


def names() -> list[str]:
    """All operators that `operators` knows."""
    return [
        *(f"join {name}" for name in join_names()),
        *(f"asof {name}" for name in ("fifo", "lru", "prob", "rand", "auto")),
        *(f"many {name}" for name in many_names()),
        *(f"cache {name}" for name in cache_names() if name != "lfd"),
        *(f"query {name}" for name in ("fifo", "lru", "gdj", "prob", "life", "clock-exp", "rand", "auto")),
        *(f"lookup {name}" for name in ("lru", "gdj", "prob", "auto")),
        *(f"pattern {name}" for name in ps.patterns.STRATEGIES),
    ]


def operators(name: str) -> list[Operator]:
    """The operator of a name, with each window, step and budget that it can have."""
    kind, _, policy = name.partition(" ")
    made = {
        "join": joins,
        "asof": asof_joins,
        "many": many,
        "cache": caches,
        "query": queries,
        "lookup": lookups,
    }
    return list(patterns(policy) if kind == "pattern" else made[kind](policy))


def joins(name: str) -> Iterator[Operator]:
    """Over time, in ticks, over rows, over periods, in bytes, and out of step."""
    policy = MODELLED.get(name, name)
    variants: list[tuple[dict[str, Any], int | None]] = [
        ({}, None),
        ({}, 5),
        ({"step": "tick", "allocation": "equal"}, None),
        ({"within": ps.Rows(20)}, None),
        ({"within": ps.Landmark(35)}, None),
        ({"budget": ps.Bytes(60_000)}, None),
        ({"budget": ps.Bytes(90_000)}, 5),
    ]
    for options, lateness in variants:
        given = {"within": 30, "budget": ps.Tuples(24), "policy": policy, "seed": 1} | options
        sized = isinstance(given["budget"], ps.Bytes)
        try:
            join = ps.WindowJoin(**given)
            join.start(lateness=lateness)
        except PenstockError:  # not every policy has every variant
            continue
        yield Operator(lambda j=join, late=lateness: j.start(lateness=late), _feed_join(sized))


def _feed_join(sized: bool) -> Callable[..., Any]:
    def feed(state: Any, rng: np.random.Generator, number: int, collect: bool = False) -> Any:
        time = np.sort(rng.integers(40 * number, 40 * number + 40, BATCH))
        size = rng.integers(1, 99, BATCH) if sized else None
        stream, key = rng.integers(0, 2, BATCH), rng.integers(0, 9, BATCH)
        return state.process(stream, key, time, np.arange(BATCH), size, collect=collect, log=collect)

    return feed


def asof_joins(name: str) -> Iterator[Operator]:
    """In order and out of step, in both directions, and in bytes."""
    variants: list[tuple[dict[str, Any], int | None]] = [
        ({}, None),
        ({"direction": "nearest", "allow_exact_matches": False}, 5),
        ({"budget": ps.Bytes(120_000), "direction": "forward"}, 5),
    ]
    for options, lateness in variants:
        given = {"tolerance": 30, "budget": ps.Tuples(12), "policy": name, "seed": 1} | options
        join = ps.AsofJoin(**given)
        sized = isinstance(join.budget, ps.Bytes)
        yield Operator(lambda j=join, late=lateness: j.start(lateness=late), _feed_join(sized))


def many(name: str) -> Iterator[Operator]:
    """In order, and out of step; left joins, too."""

    def feed(state: Any, rng: np.random.Generator, number: int, collect: bool = False) -> Any:
        time = np.sort(rng.integers(40 * number, 40 * number + 40, BATCH))
        stream, key = rng.integers(0, 3, BATCH), rng.integers(0, 5, (BATCH, len(state.config.joins)))
        return state.process(stream, key, time, np.arange(BATCH), collect=collect, log=collect)

    within, found = window_of(20).resolve("ms"), policies.get(name)
    common = {"streams": 3, "joins": ((0, 1, 2), (0, 1)), "window": within, "policy": found}
    yield Operator(lambda: ManyState(ManyConfig(**common, capacities=(24,))), feed)
    yield Operator(lambda: ManyState(ManyConfig(**common, capacities=(9, 9, 9), every=20)), feed)
    late = {"within": 20, "budget": ps.Tuples(24), "policy": found, "lateness": 5}
    yield Operator(lambda: start_many(3, [(0, 1, 2), (0, 1)], **late), feed)
    left = common | {"joins": ((0, 1, 2),), "how": "left", "lost_bytes": 900}
    yield Operator(lambda: ManyState(ManyConfig(**left, capacities=(24,))), feed)
    yield Operator(lambda: start_many(3, [(0, 1, 2)], **late, how="left"), feed)


def caches(name: str) -> Iterator[Operator]:
    """Of so many entries, and of so many bytes."""
    costs, given = name == "gdj:costs", REQUESTED.get(name, name)
    policy = "gdj" if costs else given
    for limit in (None, 900):

        def start(limit: int | None = limit) -> Cache:
            return Cache(policy, budget=24, limit=limit, seed=1, costs=costs)

        def feed(
            state: Cache,
            rng: np.random.Generator,
            number: int,
            collect: bool = False,
            limit: int | None = limit,
        ) -> Any:
            keys = rng.integers(0, 60, 120)
            sizes = None if limit is None else rng.integers(1, 99, len(keys))
            return state.request(keys, sizes, rng.random(len(keys)) if costs else None)

        def again(state: Cache, data: bytes, start: Any = start) -> Cache:
            _, entries, parts, extra = snapshots.unpack(data, object, Entries)
            restored = start()
            restored.parts = (entries, parts, extra["room"])
            return restored

        def store(state: Cache) -> bytes:
            entries, parts, room = state.parts
            return snapshots.pack(None, entries, parts, {"room": room})

        yield Operator(start, feed, again, store=store)


def queries(name: str) -> Iterator[Operator]:
    """A query of three patterns."""
    query = ps.StreamQuery.parse(QUERY)

    def feed(state: Any, rng: np.random.Generator, number: int, collect: bool = False) -> Any:
        start = np.sort(rng.integers(20 * number, 20 * number + 20, BATCH))
        triples = {
            "s": [f"n{i}" for i in rng.integers(0, 30, BATCH)],
            "p": rng.choice(["r", "s"], BATCH).tolist(),
            "o": rng.integers(0, 9, BATCH),
            "start": start,
        }
        return state.process({"w": triples}, log=collect)

    yield Operator(lambda: query.start(budget=ps.Tuples(60), policy=name), feed)


def lookups(name: str) -> Iterator[Operator]:
    """With the rows, and without."""
    for budget in (24, ps.Bytes(40_000)):
        lookup = ps.LookupCache(
            lambda keys: {key: {"name": f"row {key}"} for key in keys},
            key="id",
            budget=budget,
            policy=name,
            clock=ManualClock(1e9),
        )

        def feed(state: Any, rng: np.random.Generator, number: int, collect: bool = False) -> Any:
            return state.process({"id": rng.integers(0, 60, 120)}, on="id")

        def again(state: Any, data: bytes, lookup: Any = lookup) -> Any:
            return lookup.start().restore(data)

        yield Operator(lookup.start, feed, again)


def patterns(strategy: str) -> Iterator[Operator]:
    """A sequence with a negation and a comparison."""
    pattern = ps.Pattern.parse(
        "PATTERN SEQ(A a, !(B b, b.x = a.x), C c, a.x = c.x) WITHIN 20 RETURN a.y, c.y"
    )

    def feed(state: Any, rng: np.random.Generator, number: int, collect: bool = False) -> Any:
        time = np.sort(rng.integers(30 * number, 30 * number + 30, BATCH))
        kind = rng.choice(["A", "B", "C"], BATCH, p=[0.4, 0.1, 0.5]).tolist()
        x, y = rng.integers(0, 4, BATCH), rng.random(BATCH)
        return state.process({"type": kind, "ts": time, "x": x, "y": y})

    yield Operator(lambda: pattern.start(strategy=strategy), feed, seal=pattern_snapshots.SEAL)
