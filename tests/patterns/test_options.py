"""Every option acts under a strategy, or is refused there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import penstock as ps
from penstock.errors import PenstockError, UnitWarning
from penstock.patterns import STRATEGIES

TEXT = "PATTERN SEQ(A, SEQ(B, C), D) WITHIN 10"
STREAM = {"type": list("ABCDBCD"), "ts": [1, 2, 3, 4, 5, 6, 7]}
ENTRIES: dict[str, Callable[..., Any]] = {
    "run": lambda **given: ps.Pattern.parse(TEXT).run(STREAM, **given),
    "start": lambda **given: ps.Pattern.parse(TEXT).start(**given),
    "set run": lambda **given: ps.PatternSet([TEXT]).run(STREAM, **given),
    "set start": lambda **given: ps.PatternSet([TEXT]).start(**given),
}
each_entry = pytest.mark.parametrize("entry", ENTRIES)


@each_entry
@pytest.mark.parametrize("strategy", [None, "columnar", "iterative"])
@pytest.mark.parametrize(
    "option", [{"budget": 1_000}, {"budget": "1 MiB"}, {"policy": "lru"}, {"policy": "gdj"}, {"seed": 0}]
)
def test_strategies_without_caches_refuse_what_is_for_caches(
    entry: str, strategy: str | None, option: dict[str, Any]
) -> None:
    given = option if strategy is None else option | {"strategy": strategy}
    name = next(iter(option))
    with pytest.raises(PenstockError, match=rf"{name}=.* for the caches of .*'semantic'.* max_events="):
        ENTRIES[entry](**given)


@each_entry
@pytest.mark.parametrize("strategy", ["object", "semantic"])
def test_a_policy_needs_a_budget(entry: str, strategy: str) -> None:
    for option in ({"policy": "gdj"}, {"seed": 3}):
        with pytest.raises(PenstockError, match="without budget="):
            ENTRIES[entry](strategy=strategy, **option)
        ENTRIES[entry](strategy=strategy, budget=1_000, **option)


@pytest.mark.parametrize("strategy", ["object", "semantic"])
def test_budget_policy_and_seed_act(strategy: str) -> None:
    text = "PATTERN SEQ(A a, SEQ(B b, C c, b.k = a.k), D d, d.k = a.k) WITHIN 40"
    events = {"type": list("ABCD") * 60, "ts": list(range(240)), "k": [i // 4 % 3 for i in range(240)]}

    def stats(**given: Any) -> Any:
        return ps.Pattern.parse(text).run(events, strategy=strategy, **given).stats

    free = stats()
    assert free.evicted == 0
    tight = {name: stats(budget=6_000, policy=name) for name in ("fifo", "lfu", "rand")}
    for each in tight.values():
        assert each.matches == free.matches
        assert each.evicted > 0
        assert each.peak_bytes <= 6_000
    assert len({(each.hits, each.evicted, each.recomputations) for each in tight.values()}) > 1
    seeds = {seed: stats(budget=6_000, policy="rand", seed=seed) for seed in range(6)}
    assert len({(each.hits, each.evicted, each.recomputations) for each in seeds.values()}) > 1


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_snapshots_of_earlier_versions_are_read(strategy: str) -> None:
    """They name a policy and a seed under every strategy."""
    from penstock.patterns.options import PatternOptions

    old = {
        "type": "type",
        "time": "ts",
        "strategy": strategy,
        "unit": "ms",
        "count_only": False,
        "limit": None,
    }
    read = PatternOptions.from_plain(old | {"max_events": None, "budget": None, "policy": "lru", "seed": 0})
    assert read == PatternOptions(strategy=strategy)
    state = ps.Pattern.parse(TEXT).start(strategy=strategy)
    state.process({name: values[:4] for name, values in STREAM.items()})
    again = ps.patterns.PatternState.restore(state.snapshot())
    assert again.options == state.options


def test_times_that_seem_to_be_in_another_unit_are_told_of() -> None:
    events = {"type": ["A", "B"], "ts": [1_700_000_000, 1_700_000_005]}
    with pytest.warns(UnitWarning, match="look like seconds since 1970") as told:
        ps.Pattern.parse("PATTERN SEQ(A a, B b) WITHIN 10 minutes").run(events)
    assert len(told) == 1
    assert told[0].filename == __file__
    for text, unit in (("10 minutes", "s"), ("600", "ms")):
        ps.Pattern.parse(f"PATTERN SEQ(A a, B b) WITHIN {text}").run(events, unit=unit)
