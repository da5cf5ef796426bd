"""Options that cannot be are refused before any work, with what was given and what is allowed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import BudgetError, PenstockError, PolicyOptionError, UnknownPolicyError, WindowError
from tests.joins.agreement import online
from tests.joins.refusals import GOOD, TABLE, refuse, refuse_run

# Policies.


@pytest.mark.interpreted
@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("gjd", "gdj"),
        ("fif", "fifo"),
        ("clok", "clock"),
        ("clock-ex", "clock-exp"),
        ("LRU", "lru"),
        ("Clock-Exp", "clock-exp"),
    ],
)
def test_unknown_policy(given: str, meant: str) -> None:
    refuse(UnknownPolicyError, repr(given), f"did you mean {meant!r}?", "Allowed: fifo", policy=given)


@pytest.mark.parametrize("given", ["", " ", "no such thing at all", None, 3, ["lru"], object])
def test_no_policy_at_all(given: Any) -> None:
    refuse(UnknownPolicyError, "policy", policy=given)


def test_unknown_option() -> None:
    refuse(PolicyOptionError, "'initail'", "did you mean 'initial'?", policy="gdj:initail=0.3")
    refuse(PolicyOptionError, "has no option", policy="fifo:size=3")
    refuse(PolicyOptionError, "name=value", policy="gdj:0.3")
    refuse(PolicyOptionError, "name=value", policy="gdj:initial=")
    for policy in ps.policies.names():
        refuse(PolicyOptionError, "has no option", "'colour'", policy=f"{policy}:colour=red")


RANGES = [
    *(f"gdj:initial={bad}" for bad in ("-0.1", "1.1", "nan", "inf", "median", "true")),
    *(f"gdj:method={bad}" for bad in ("0", "4", "1.5", "first", "true")),
    *(f"clock:w0={bad}" for bad in ("-1", "nan", "inf", "high", "true")),
    *(f"clock-exp:rho={bad}" for bad in ("0", "-0.5", "1", "1.5", "nan", "inf", "slow")),
    *(f"clock-exp:w0={bad}" for bad in ("-1", "nan", "inf", "high")),
    *(f"clock-exp:threshold={bad}" for bad in ("0", "-1", "nan", "low")),
    *(f"age:k={bad}" for bad in ("-1", "nan", "best", "true")),
    *(f"age:curve={bad}" for bad in ("future", "-1", "3", "nan", "true")),
]


@pytest.mark.parametrize("spec", RANGES)
def test_option_out_of_range(spec: str) -> None:
    name, _, option = spec.partition(":")
    refuse(PolicyOptionError, name, option.partition("=")[0], "must be", policy=spec)


OBJECTS: list[Callable[[], Any]] = [
    lambda: ps.policies.Age(k=(1, 2, 3)),
    lambda: ps.policies.Age(k=(1, -2)),
    lambda: ps.policies.Age(k=()),
    lambda: ps.policies.Age(k=None),
    lambda: ps.policies.Age(k=[1, 2]),
    lambda: ps.policies.Age(curve=()),
    lambda: ps.policies.Age(curve=(0.1, -0.2)),
    lambda: ps.policies.Age(curve=(0.1, "x")),
    lambda: ps.policies.Age(curve=None),
    lambda: ps.policies.Age(curve=((0.1,), ())),
    lambda: ps.policies.GreedyDualJoin(initial=None),
    lambda: ps.policies.GreedyDualJoin(initial=(0.5, 0.5)),
    lambda: ps.policies.GreedyDualJoin(method="1"),
    lambda: ps.policies.Clock(w0=None),
    lambda: ps.policies.ClockExp(rho=None),
]


@pytest.mark.parametrize("number", range(len(OBJECTS)))
def test_option_of_an_object_out_of_range(number: int) -> None:
    with pytest.raises(PolicyOptionError, match="must be"):
        OBJECTS[number]()


def test_age_has_no_unified_pool() -> None:
    refuse(UnknownPolicyError, "age", "allocation='equal'", policy="age", allocation="unified")


def test_registering_what_is_no_policy() -> None:
    with pytest.raises(UnknownPolicyError, match="subclass"):
        ps.policies.register(dict)  # type: ignore[type-var]

    class Nameless(ps.policies.PythonPolicy):
        pass

    class Taken(ps.policies.PythonPolicy):
        name = "lru"

    class Colon(ps.policies.PythonPolicy):
        name = "a:b"

    for policy, words in ((Nameless, "short name"), (Taken, "taken"), (Colon, "short name")):
        with pytest.raises(UnknownPolicyError, match=words):
            ps.policies.register(policy)


# Budgets.


@pytest.mark.interpreted
def test_budget_below_one_tuple_per_stream() -> None:
    refuse(BudgetError, "one tuple per stream", "Tuples(n=1)", budget=ps.Tuples(1))
    refuse_run(BudgetError, "one tuple per stream", "Fraction(share=1e-06)", budget=ps.Fraction(1e-6))
    refuse_run(BudgetError, "one tuple per stream", "100 bytes", "Give at least", budget=ps.Bytes(100))
    refuse_run(BudgetError, "one tuple per stream", "1 bytes", budget=ps.Bytes(1))


@pytest.mark.parametrize("allocation", ["equal", "proportional", "unified"])
@pytest.mark.parametrize("policy", online(bytes_too=True))
def test_the_budget_that_the_message_asks_for_is_enough(policy: str, allocation: str) -> None:
    if allocation == "unified" and not ps.policies.get(policy).unified:
        return
    options = GOOD | {"policy": policy, "allocation": allocation}
    with pytest.raises(BudgetError) as caught:
        ps.WindowJoin(**(options | {"budget": ps.Bytes(50)})).run(TABLE, TABLE, on="key", time="ts")
    enough = int(str(caught.value).rsplit("Give at least ", 1)[1].split()[0])
    stats = (
        ps.WindowJoin(**(options | {"budget": ps.Bytes(enough)})).run(TABLE, TABLE, on="key", time="ts").stats
    )
    assert stats.peak_bytes <= enough


@pytest.mark.parametrize("given", [0, -1, 1.5, "10", None, True, float("nan")])
def test_tuples_that_are_no_number_of_tuples(given: Any) -> None:
    with pytest.raises(BudgetError, match="whole number from 1"):
        ps.Tuples(given)


@pytest.mark.parametrize("given", [0, -5, 1.5, None, True, "", "many", "64 Mops", "-1 MiB", "MiB", "1e3"])
def test_bytes_that_are_no_size(given: Any) -> None:
    with pytest.raises(BudgetError, match=r"byte|size"):
        ps.Bytes(given)


@pytest.mark.parametrize("given", [0, -0.1, float("nan"), float("inf"), "half", None, True])
def test_fractions_that_are_no_share(given: Any) -> None:
    with pytest.raises(BudgetError, match="share above 0"):
        ps.Fraction(given)


@pytest.mark.parametrize(
    "given", [100, None, "100", "lots", "0 %", "-5 %", "nan %", "0 tuples", "x tuples", (5, 5), {}]
)
def test_budgets_that_are_none(given: Any) -> None:
    refuse(BudgetError, budget=given)


def test_a_fraction_needs_the_whole_input() -> None:
    with pytest.raises(BudgetError, match="give Tuples or Bytes"):
        ps.WindowJoin(**(GOOD | {"budget": ps.Fraction(0.5)})).start()


# Windows.


@pytest.mark.interpreted
@pytest.mark.parametrize(
    "given", [-1, -0.5, float("nan"), float("inf"), "-1 s", (-1, 5), (5, float("nan")), ("1 s", "-1 s")]
)
def test_negative_and_endless_windows(given: Any) -> None:
    refuse(WindowError, "within", "not negative", within=given)


@pytest.mark.parametrize(
    "given", ["", "soon", "10", "10 parsecs", "minutes 10", "10 minutes or so", "1 h 30", "1..5 s"]
)
def test_durations_that_are_none(given: str) -> None:
    refuse(WindowError, "s", within=given)
    with pytest.raises(WindowError):
        ps.Landmark(given)


def test_a_unit_that_is_nearly_one() -> None:
    refuse(WindowError, "'mims'", "Allowed: ns", "min (minutes)", "d (days)", within="10 mims")
    refuse(WindowError, "did you mean 'minutes'?", within="10 mints")
    with pytest.raises(WindowError, match="unit of time"):
        ps.WindowJoin(**GOOD).run(TABLE, TABLE, on="key", time="ts", unit="fortnights")


@pytest.mark.parametrize("given", [None, True, [], (1,), (1, 2, 3), {}, object(), b"1 s", (None, 1), 1j])
def test_windows_that_are_none(given: Any) -> None:
    refuse(WindowError, "within", within=given)


@pytest.mark.parametrize("given", [0, -1, 1.5, None, True, "5"])
def test_rows_that_are_no_number(given: Any) -> None:
    with pytest.raises(WindowError, match="whole number from 1"):
        ps.Rows(given)


@pytest.mark.parametrize("given", [0, -1, float("nan"), float("inf"), "0 s", None, True])
def test_periods_that_are_none(given: Any) -> None:
    with pytest.raises(WindowError):
        ps.Landmark(given).resolve("ms")


def test_a_period_finer_than_the_clock() -> None:
    # A state for whole-number times cannot keep such periods; a run sees the times and takes them as floats.
    join = ps.WindowJoin(**(GOOD | {"within": ps.Landmark(2.5)}))
    with pytest.raises(WindowError, match="whole number"):
        join.start()
    table = {"key": [1, 1, 1], "ts": [2, 3, 4]}
    assert join.run(table, table, on="key", time="ts").stats.exact == 5


@pytest.mark.parametrize("given", [1e30, 10**30, 2**63, "100000000000 weeks", (0, 1e30)])
def test_windows_beyond_64_bits_are_endless_or_refused(given: Any) -> None:
    """All tuples join, or the window is refused; an arithmetic error is neither."""
    try:
        run = ps.WindowJoin(**(GOOD | {"within": given})).run(TABLE, TABLE, on="key", time="ts")
    except PenstockError:
        return
    assert run.stats.results == run.stats.exact == 2


# Other options.


@pytest.mark.parametrize(
    ("option", "given"),
    [
        ("allocation", "unifed"),
        ("allocation", ["equal"]),
        ("step", "tock"),
        ("step", 1),
        ("drop_at", "probe"),
        ("drop_at", None),
    ],
)
def test_words_that_are_not_known(option: str, given: Any) -> None:
    refuse(PenstockError, f"{option}={given!r}", "Allowed", **{option: given})


def test_did_you_mean_a_word() -> None:
    refuse(PenstockError, "did you mean 'unified'?", allocation="unifed")
    refuse(PenstockError, "did you mean 'tick'?", step="ticks")


@pytest.mark.parametrize("given", [-0.1, 1.1, float("nan"), float("inf"), "biased", None, True, (0.1, 0.2)])
def test_drop_rates(given: Any) -> None:
    refuse(PenstockError, f"drop_rate={given!r}", "from 0 to 1, or 'unbiased'", drop_rate=given)


@pytest.mark.parametrize("option", ["warmup", "seed"])
@pytest.mark.parametrize("given", [-1, 1.5, "3", None, True, float("nan")])
def test_whole_numbers(option: str, given: Any) -> None:
    refuse(PenstockError, f"{option}={given!r}", "whole number from 0", **{option: given})


@pytest.mark.parametrize("changes", [{"allocation": "proportional"}, {"drop_rate": "unbiased"}])
def test_a_stream_must_tell_its_rates(changes: dict[str, Any]) -> None:
    with pytest.raises(PenstockError, match="rates="):
        ps.WindowJoin(**(GOOD | changes)).start()


@pytest.mark.parametrize("rates", [(-1, 1), (1,), (float("nan"), 1), "fast", (1, 2, 3), 5])
def test_rates_that_are_none(rates: Any) -> None:
    with pytest.raises(PenstockError, match="rates"):
        ps.WindowJoin(**(GOOD | {"allocation": "proportional"})).start(rates=rates)


@pytest.mark.parametrize("rates", [(0, 0), (0, 1)])
def test_unbiased_drops_need_rates_above_zero(rates: Any) -> None:
    with pytest.raises(PenstockError, match="above 0"):
        ps.WindowJoin(**(GOOD | {"drop_rate": "unbiased"})).start(rates=rates)


@pytest.mark.parametrize(
    ("option", "given"),
    [("unit", "foo"), ("row_bytes", -1), ("row_bytes", "x"), ("sketch_bytes", -5), ("sketch_bytes", True)],
)
def test_options_of_a_stream(option: str, given: Any) -> None:
    with pytest.raises(PenstockError, match=str(given)):
        ps.WindowJoin(**GOOD).start(**{option: given})


def test_what_arrays_cannot_be() -> None:
    state = ps.WindowJoin(**GOOD).start()
    with pytest.raises(PenstockError, match="missing values"):
        state.process([0, 1], np.ma.array([1, 2], mask=[0, 1]), [0, 1], [0, 0])
    assert state.buffered == 0
    with pytest.raises(PenstockError, match="not an array"):
        ps.WindowJoin(**GOOD).run({"key": np.array(1), "ts": np.array(1)}, TABLE, on="key", time="ts")
    with pytest.raises(PenstockError, match="at most"):
        ps.WindowJoin(**(GOOD | {"budget": ps.Tuples(2**70)})).run(TABLE, TABLE, on="key", time="ts")
    wide = {"key": [10**30, 1], "ts": [1, 2]}
    assert ps.WindowJoin(**GOOD).run(wide, wide, on="key", time="ts").stats.results == 2


def test_unknown_measure_of_distortion() -> None:
    stats = ps.WindowJoin(**GOOD).run(TABLE, TABLE, on="key", time="ts").stats
    with pytest.raises(PenstockError, match="'sse'"):
        stats.distortion("see")


@pytest.mark.parametrize("every", [0, -1, 1.5, True, "all"])
def test_recalls_are_of_some_arrivals_each(every: Any) -> None:
    stats = ps.WindowJoin(**GOOD).run(TABLE, TABLE, on="key", time="ts").stats
    with pytest.raises(PenstockError, match="every="):
        stats.recalls(every)


def test_a_budget_that_no_machine_has() -> None:
    with pytest.raises(BudgetError, match="cannot be allocated"):
        ps.WindowJoin(**(GOOD | {"budget": ps.Bytes(2**80)})).run(TABLE, TABLE, on="key", time="ts")


def test_keys_that_are_not_unicode() -> None:
    with pytest.raises(PenstockError, match="'key' holds a text that is not valid Unicode"):
        ps.WindowJoin(**GOOD).run(
            {"key": ["\ud800"], "ts": [1]}, {"key": ["a"], "ts": [1]}, on="key", time="ts"
        )


@pytest.mark.parametrize("dtype", ["x", str, bool, object, "datetime64[ms]"])
def test_times_of_a_state_are_numbers(dtype: Any) -> None:
    with pytest.raises(PenstockError, match="times of a state are int or float"):
        ps.WindowJoin(**GOOD).start(dtype=dtype)
