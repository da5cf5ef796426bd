"""What the tests of patterns share: random patterns and streams, and a comparison with the oracle."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import Any

import penstock as ps
from penstock.errors import PatternError
from penstock.patterns import And, Attr, Compare, E, Not, Or, Seq
from tests.oracles.patterns import Event, Oracle

TYPES = "ABC"


@dataclass(frozen=True)
class Case:
    """A pattern, and a stream in stream order."""

    pattern: ps.Pattern
    events: list[Event]

    def table(self, start: int = 0, stop: int | None = None) -> dict[str, list[Any]]:
        part = self.events[start:stop]
        return {
            "type": [kind for kind, _, _ in part],
            "ts": [time for _, time, _ in part],
            **{name: [attrs[name] for _, _, attrs in part] for name in ("x", "y", "s")},
        }

    def expected(self) -> Counter[Any]:
        oracle = Oracle(self.pattern, self.events, self.pattern.within.width("ms"))
        return Counter(tuple(m.get(v) for v in self.pattern.variables) for m in oracle.matches())


def random_expression(random: Random, depth: int, names: list[str], leaves: int) -> Any:
    """A random part; every event has a variable of its own."""

    def event() -> E:
        names.append(f"v{len(names)}")
        return E(random.choice(TYPES), names[-1])

    if depth == 0 or random.random() < 0.3 or len(names) >= leaves:
        return event()
    kind = random.choice([Seq, Seq, Seq, And, And, Or])
    parts: list[Any] = []
    for _ in range(random.choice([1, 2, 2, 3, 3])):
        if len(names) >= leaves and parts:
            break
        part = random_expression(random, depth - 1, names, leaves)
        if kind is not Or and random.random() < 0.4:
            part = Not(part)
        parts.append(part)
    if all(isinstance(part, Not) for part in parts):
        parts.insert(random.randint(0, len(parts)), event())
    return kind(*parts)


def with_predicates(random: Random, part: Any, names: list[str]) -> Any:
    """The same part with predicates strewn over its groups and negations."""

    def compare() -> Compare:
        left = Attr(random.choice(names), random.choice("xy"))
        op = random.choice(["=", "=", "=", "<", "!=", ">="])
        if random.random() < 0.25:
            if random.random() < 0.3:
                return Compare(Attr(left.var, "s"), op, random.choice("abc"))
            return Compare(left, op, random.randint(0, 3))
        return Compare(left, op, Attr(random.choice(names), random.choice("xy")))

    def some() -> list[Compare]:
        return [compare() for _ in range(random.choice([0, 0, 0, 1, 1, 2]))]

    if isinstance(part, E):
        return part
    if isinstance(part, Not):
        return Not(with_predicates(random, part.part, names), tuple(some()))
    parts = [with_predicates(random, piece, names) for piece in part.parts]
    return type(part)(*parts, where=some())


def random_case(random: Random, size: int = 14, depth: int = 4, leaves: int = 6) -> Case:
    """A random pattern with predicates that make sense, and a stream with ties."""
    names: list[str] = []
    bare = random_expression(random, depth, names, leaves)
    while isinstance(bare, E) and random.random() < 0.8:
        names.clear()
        bare = random_expression(random, depth, names, leaves)
    if random.random() < 0.5:
        within: Any = f"{random.randint(1, 10)} events"
    else:
        within = random.choice([0, 1, 2, 3, 5, 8, 13])
    pattern = None
    for _ in range(6):
        try:
            pattern = ps.Pattern(with_predicates(random, bare, names), within)
            break
        except PatternError:
            continue
    pattern = pattern or ps.Pattern(bare, within)
    scale = random.choice(
        [1, 1, 1, 0.1]
    )  # tenths are not exact: what is in the window is a matter of rounding
    if scale != 1 and not pattern.within.events:
        pattern = ps.Pattern(pattern.expression, pattern.within.size * scale)
    time, events = random.choice([0, 1_000_000]), []
    values = [0, 1, 2, None] if random.random() < 0.5 else [0, 1]
    types = TYPES + "D" * random.choice([0, 1])
    for _ in range(random.randint(1, size)):
        time += random.choice([0, 0, 1, 1, 2, 4])
        attrs = {"x": random.choice(values), "y": random.choice(values), "s": random.choice("abc")}
        events.append((random.choice(types), time * scale, attrs))
    return Case(pattern, events)


def found(table: Any) -> Counter[Any]:
    return Counter(zip(*(table[name].to_pylist() for name in table.column_names), strict=True))


def assert_agrees(case: Case, strategy: str, random: Random, **options: Any) -> None:
    """Whole, counted, and in batches with snapshots: what the oracle says."""
    expected = case.expected()
    said = f"{case.pattern} over {case.events}"
    run = case.pattern.run(case.table(), strategy=strategy, **options)
    assert found(run.matches) == expected, said
    assert run.stats.matches == expected.total(), said
    counted = case.pattern.run(case.table(), strategy=strategy, count_only=True, **options)
    assert counted.stats.matches == expected.total(), said
    state = case.pattern.start(strategy=strategy, **options)
    at, total = 0, Counter[Any]()
    while at < len(case.events):
        stop = at + random.randint(1, 6)
        total += found(state.process(case.table(at, stop)))
        state.check()
        if random.random() < 0.3:
            state = ps.patterns.PatternState.restore(state.snapshot())
        at = stop
    total += found(state.finish())
    assert total == expected, said
