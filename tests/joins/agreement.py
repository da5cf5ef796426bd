"""What the tests of the window join share: random streams, every policy with its oracle, and a comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

import penstock as ps
from tests.oracles.exact import exact_pairs
from tests.oracles.join import Outcome, simulate
from tests.oracles.policies import POLICIES


def online(bytes_too: bool = False) -> list[str]:
    """The policies that can start by their names alone: without the future and without a model."""
    found = [(kind.name, ps.policies.get(kind.name)) for kind in ps.policies.registered()]
    return [
        name
        for name, policy in found
        if not (policy.needs_future or policy.needs_model) and (policy.counts_bytes or not bytes_too)
    ]


def steps(policy: str) -> list[str]:
    """The time models in which a policy can run."""
    return ["arrival", "tick"] if ps.policies.get(policy).ticks else ["arrival"]


Stream = list[tuple[Any, Any]]  # (time, key); a key may be None
SIDES = ("left", "right")


@dataclass(frozen=True)
class Case:
    """Two streams and a join, in the words of the oracle."""

    left: Stream
    right: Stream
    within: Any
    budget: int = 4
    allocation: str = "equal"
    step: str = "arrival"
    warmup: int = 0

    @property
    def arrivals(self) -> list[tuple[Any, int, int]]:
        """(time, stream, row) in the order of processing, null keys left out."""
        return sorted(
            (time, s, row)
            for s, stream in enumerate((self.left, self.right))
            for row, (time, key) in enumerate(stream)
            if key is not None
        )

    @property
    def rates(self) -> tuple[float, float]:
        """Arrivals of each stream per unit of time."""
        found = self.arrivals
        span = found[-1][0] - found[0][0] if found else 0
        counts = [sum(s == side for _, s, _ in found) for side in (0, 1)]
        return (counts[0] / span, counts[1] / span) if span > 0 else (float(counts[0]), float(counts[1]))

    def join(self, policy: Any, **options: Any) -> ps.WindowJoin:
        return ps.WindowJoin(
            within=window(self.within),
            budget=ps.Tuples(self.budget),
            policy=policy,
            allocation=self.allocation,
            step=self.step,
            warmup=self.warmup,
            **options,
        )

    def run(self, policy: Any, **options: Any) -> ps.JoinRun:
        return self.join(policy, **options).run(
            table(self.left), table(self.right), on="key", time="ts", collect=True, log=True
        )


def table(stream: Stream) -> dict[str, list[Any]]:
    return {"key": [key for _, key in stream], "ts": [time for time, _ in stream]}


def window(within: Any) -> Any:
    """The oracle's way to write a window in that of the library."""
    if isinstance(within, tuple) and within[0] == "rows":
        return ps.Rows(within[1])
    if isinstance(within, tuple) and within[0] == "landmark":
        return ps.Landmark(within[1])
    return within


def events(run: ps.JoinRun, kind: str) -> list[tuple[int, int]]:
    """The tuples (stream, row) to which something happened, in that order."""
    assert run.events is not None
    rows = run.events.to_pylist()
    return [(SIDES.index(row["stream"]), row["row"]) for row in rows if row["event"] == kind]


def pairs(run: ps.JoinRun) -> list[tuple[int, int]]:
    assert run.pairs is not None
    return list(
        zip(run.pairs.column("left_row").to_pylist(), run.pairs.column("right_row").to_pylist(), strict=True)
    )


# Random streams.


@st.composite
def streams(draw: st.DrawFn, size: int = 60, keys: int = 4, floats: bool = False) -> tuple[Stream, Stream]:
    """Two short streams: few keys, ties in time, a null now and then, perhaps one side much shorter."""
    gaps = [0, 0, 0, 1, 1, 2, 7]
    if floats:
        gaps = [0.0, 0.0, 0.1, 0.25, 0.7, 1.0, 3.3]
    lean = draw(st.sampled_from([(0, 1), (0, 1), (0, 1), (0, 0, 0, 1), (0, 1, 1, 1, 1), (0,), (1,)]))
    key = st.sampled_from([*range(keys), *range(keys), *range(keys // 2), None])
    time = draw(st.sampled_from([0, 0, 1_000_000_007, -25]))
    time = float(time) if floats else time
    both: tuple[Stream, Stream] = ([], [])
    least = draw(st.sampled_from([0, size // 3, size // 2]))  # left to itself, most lists would be very short
    event = st.tuples(st.sampled_from(gaps), st.sampled_from(lean), key)
    for gap, s, k in draw(st.lists(event, min_size=least, max_size=size)):
        time += gap
        both[s].append((time, k))
    return both


def windows(floats: bool = False, kinds: str = "symmetric one-sided rows landmark") -> st.SearchStrategy[Any]:
    span = st.sampled_from([0.0, 0.1, 0.8, 2.3, 7.0]) if floats else st.integers(0, 25)
    period = st.sampled_from([0.1, 0.7, 2.5]) if floats else st.integers(1, 20)
    known = {
        "symmetric": span,
        "one-sided": st.one_of(
            st.tuples(span, span), st.tuples(st.just(0), span), st.tuples(span, st.just(0))
        ),
        "rows": st.tuples(st.just("rows"), st.integers(1, 12)),
        "landmark": st.tuples(st.just("landmark"), period),
    }
    return st.one_of([known[kind] for kind in kinds.split()])


@st.composite
def cases(
    draw: st.DrawFn,
    step: str,
    unified: bool = True,
    floats: bool = False,
    size: int = 60,
    kinds: str = "symmetric one-sided rows landmark",
) -> Case:
    left, right = draw(streams(size=size, keys=draw(st.sampled_from([1, 2, 4, 9])), floats=floats))
    return Case(
        left,
        right,
        within=draw(windows(floats, kinds)),
        budget=draw(st.sampled_from([2, 3, 3, 4, 5, 6, 8, 13])),
        allocation=draw(
            st.sampled_from(["equal", "proportional", "unified"] if unified else ["equal", "proportional"])
        ),
        step=step,
        warmup=draw(st.sampled_from([0, 0, 0, 1, 5, 30])),
    )


# Every policy that does not draw at random, and what the oracle calls it.


@dataclass(frozen=True)
class Variant:
    """A policy to test: how to draw its parameters, and how to name it and them to the oracle."""

    name: str
    policies: st.SearchStrategy[Any]
    options: Callable[[Any, Case], dict[str, Any]] = lambda policy, case: vars(policy)
    windows: str = "symmetric one-sided rows landmark"

    def __str__(self) -> str:
        return self.name

    @property
    def oracle(self) -> str:
        return self.name.split(" ")[0]

    @property
    def unified(self) -> bool:
        return ps.policies.get(self.oracle).unified


def best_ages(case: Case) -> dict[str, list[float]]:
    """The best age of each tuple: the a with the most results up to a, divided by a.

    Results at age 0 count as of an age of a thousandth (of a bin, which is 1 for windows this small).
    """
    before, after = case.within if isinstance(case.within, tuple) else (case.within, case.within)
    order = case.arrivals
    best: dict[str, list[float]] = {"left": [0.0] * len(case.left), "right": [0.0] * len(case.right)}
    both = (case.left, case.right)
    for i, (time, s, row) in enumerate(order):
        horizon = (after, before)[s]
        found, ratio = 0, 0.0
        for later, t, other in order[i + 1 :]:
            if t == s or both[t][other][1] != both[s][row][1] or later - time > horizon:
                continue
            found += 1
            age = max(float(later - time), 0.001)
            if found / age > ratio:
                ratio, best[SIDES[s]][row] = found / age, age
    return best


def _of_age(policy: Any, case: Case) -> dict[str, Any]:
    return {"k": best_ages(case) if policy.k == "tuple" else policy.k, "rate": case.rates}


_KEYS = ps.models.Stationary(range(9), [0.25, 0.25, 0.125, 0.125, 0.0625, 0.0625, 0.0625, 0.0625, 0.0])
_TREND = ps.models.LinearTrend(slope=1, intercept=-20, noise=ps.models.BoundedUniform(30))
_FALL = ps.models.LinearTrend(slope=-2, intercept=20, noise=ps.models.BoundedUniform(40))


def _probability(model: Any) -> Callable[[Any, int], float]:
    """A model as the oracle takes it."""
    if isinstance(model, ps.models.Stationary):
        shares = dict(zip(model.values, model.probabilities, strict=True))
        return lambda value, time: shares.get(value, 0.0)
    bound = model.noise.bound
    return lambda value, time: (
        1 / (2 * bound + 1) if abs(value - model.slope * time - model.intercept) <= bound else 0.0
    )


def _of_heeb(policy: Any, case: Case) -> dict[str, Any]:
    pmfs = (_probability(policy.left), _probability(policy.right))
    return {"pmfs": pmfs, "alpha": policy.alpha, "rates": case.rates, "step": case.step}


_GDJ = ps.policies.GreedyDualJoin
_QUANTILES = st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0])
_WITH_OPTIONS = [
    *(
        Variant(
            f"gdj method {method}",
            st.builds(_GDJ, initial=_QUANTILES, method=st.just(method)),
        )
        for method in (1, 2, 3)
    ),
    Variant(
        "clock",
        st.builds(ps.policies.Clock, w0=st.sampled_from([0, 0.5, 1, 2, 5])),
    ),
    Variant(
        "clock-exp",
        st.builds(
            ps.policies.ClockExp,
            w0=st.sampled_from([0.005, 1.0, 3.0]),
            rho=st.sampled_from([0.1, 0.5, 0.95, 0.99]),
            threshold=st.sampled_from([0.01, 0.5]),
        ),
    ),
    Variant(
        "heeb",
        st.builds(
            ps.policies.Heeb,
            left=st.sampled_from([_KEYS, _TREND, _FALL]),
            right=st.sampled_from([_KEYS, _TREND]),
            alpha=st.sampled_from([0.5, 3.0, 8.0]),
            way=st.sampled_from(["auto", "direct"]),
        ),
        _of_heeb,
    ),
    # In a window of rows the age of a tuple is not one of time, so the oracle has nothing to say of it.
    Variant(
        "age with a number",
        st.builds(ps.policies.Age, k=st.integers(0, 15)),
        _of_age,
        "symmetric one-sided landmark",
    ),
    Variant(
        "age with a pair",
        st.builds(ps.policies.Age, k=st.tuples(st.integers(0, 15), st.integers(0, 15))),
        _of_age,
        "symmetric one-sided landmark",
    ),
    Variant("age per tuple", st.just(ps.policies.Age(k="tuple")), _of_age, "symmetric one-sided"),
]
# Every other oracle is compared with its policy as the name alone gives it.
VARIANTS = [
    Variant(name, st.just(name))
    for name in POLICIES
    if name not in {variant.oracle for variant in _WITH_OPTIONS}
] + _WITH_OPTIONS


def assert_agrees(
    case: Case,
    run: ps.JoinRun,
    variant: Variant,
    policy: Any,
    dropped: list[bool] | None = None,
    drop_at: str = "admission",
) -> Outcome:
    """The library did what the oracle does: the same results, and the same fate of every tuple."""
    options = variant.options(ps.policies.get(policy), case)
    expected = simulate(
        case.left,
        case.right,
        within=case.within,
        budget=case.budget,
        policy=variant.oracle,
        options=options,
        allocation=case.allocation,
        step=case.step,
        warmup=case.warmup,
        dropped=dropped,
        drop_at=drop_at,
    )
    stats = run.stats
    if case.step == "arrival":
        # Tuples that outlive an age of their own leave together; nothing says in which order.
        if variant.name != "age per tuple":
            assert events(run, "evicted") == expected.evicted
        assert pairs(run) == expected.pairs
    assert Counter(events(run, "evicted")) == Counter(expected.evicted)
    assert Counter(pairs(run)) == Counter(expected.pairs)
    assert Counter(events(run, "expired")) == Counter(expected.expired)
    assert Counter(events(run, "dropped")) == Counter(expected.dropped)
    assert stats.results == expected.results
    assert stats.same_tick == expected.same_tick
    assert stats.buffered == len(expected.buffered)
    assert stats.peak_tuples == expected.peak
    assert sum(stats.null_keys) == expected.nulls
    assert (stats.evicted, stats.expired, stats.dropped) == (
        len(expected.evicted),
        len(expected.expired),
        len(expected.dropped),
    )
    assert stats.arrivals == stats.buffered + stats.expired + stats.evicted + stats.dropped
    assert stats.exact == len(exact_pairs(case.left, case.right, case.within, case.warmup, case.step))
    return expected
