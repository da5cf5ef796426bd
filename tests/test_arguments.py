"""Whatever is given for an option: it works, or a `PenstockError` says what is wrong."""

from __future__ import annotations

import dataclasses
import inspect
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import penstock as ps
from penstock import locality, models, workloads
from penstock.errors import PenstockError
from penstock.joins import follow_decisions, start_many
from penstock.policies.registry import registered

VALUES = {
    "None": None,
    "NaN": float("nan"),
    "NaT": pd.NaT,
    "infinity": float("inf"),
    "-1": -1,
    "0": 0,
    "1.5": 1.5,
    "2**70": 2**70,
    "int64": np.int64(3),
    "complex": 1j,
    "True": True,
    "no text": "",
    "text": "x",
    "NUL": "\0",
    "list": [],
    "list of lists": [[1]],
    "pair": ("a", None),
    "dict": {},
    "set": {1},
    "numbers": np.zeros(3),
    "texts": np.array(["a", "b"]),
    "object": object(),
    "function": len,
}
FUNCTIONS_OF_USERS = {
    ("plan", "progress"),
    ("plan_lookup", "progress"),
    ("LookupCache", "clock"),
}  # which may raise what they like

LEFT = {"k": [1, 2, 1, 3], "ts": [0, 1, 2, 5]}
RIGHT = {"k": [1, 2, 2, 3], "ts": [1, 2, 3, 6]}
TABLES = {"left": LEFT, "right": RIGHT, "on": "k", "time": "ts"}
EVENTS = {"type": ["A", "B", "A", "B"], "ts": [0, 1, 2, 3]}
TRIPLES = {"w": {"s": ["a", "b"], "p": ["r", "r"], "o": [5, 5.0], "start": [0, 1]}}
BATCH = {"stream": [0, 1], "key": [5, 5], "time": [0, 1], "row": [0, 0], "size": None, "collect": False}
FEW = ps.Tuples(4)
JOIN = ps.WindowJoin(within=5, budget=FEW, policy="fifo")
ASOF = ps.AsofJoin(budget=FEW, policy="fifo")
PATTERN = ps.Pattern.parse("PATTERN SEQ(A, B) WITHIN 2")
QUERY = ps.StreamQuery.parse(
    "SELECT ?a ?b FROM STREAM w { ?a r ?x ?T . ?b r ?x ?U } CONTEXT (signed(?U - ?T) = 1)"
)


def _many() -> Any:
    return start_many(2, [(0, 1)], within=10, budget="9 tuples", policy="lru")


def _queue(**options: Any) -> None:
    with tempfile.TemporaryDirectory() as folder, ps.SpillQueue(Path(folder) / "queue", **options) as queue:
        queue.put(b"item")


def _lookup(**options: Any) -> None:
    cache = ps.LookupCache(lambda keys: {key: {"name": "x"} for key in keys}, **options)
    cache.run({"k": [1, 2]}, on="k")


def _with_defaults(function: Callable[..., Any], **given: Any) -> dict[str, Any]:
    """Return the options of a function: those given, and the defaults of all others."""
    found = {
        name: parameter.default
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.default is not inspect.Parameter.empty
    }
    return found | given


def _without(option: str, options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name != option}


def _calls() -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    decisions = ps.optimal_join(**TABLES, within=5, budget=FEW).decisions
    found: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
        "Tuples": (ps.Tuples, {"n": 1}),
        "Bytes": (ps.Bytes, {"n": 100}),
        "Fraction": (ps.Fraction, {"share": 0.5}),
        "Rows": (ps.Rows, {"n": 1}),
        "Landmark": (ps.Landmark, {"every": 4}),
        "Within": (ps.Within, {"before": 1, "after": 1}),
        "WindowJoin": (ps.WindowJoin, _with_defaults(ps.WindowJoin, within=5, budget=FEW, policy="fifo")),
        "WindowJoin.run": (JOIN.run, _with_defaults(JOIN.run, **TABLES)),
        "WindowJoin.start": (JOIN.start, _with_defaults(JOIN.start)),
        "JoinState.process": (lambda **given: JOIN.start().process(**given), BATCH | {"log": False}),
        "JoinState.finish": (lambda **given: JOIN.start().finish(**given), {"collect": False, "log": False}),
        "StreamState.process": (lambda **given: JOIN.start(lateness=1).process(**given), BATCH),
        "StreamState.advance": (lambda *, left: JOIN.start(lateness=1).advance(left, 1), {"left": 1}),
        "asof_join": (
            ps.asof_join,
            _with_defaults(ps.asof_join, **TABLES, budget=FEW, policy="fifo"),
        ),
        "AsofJoin.run": (ASOF.run, _with_defaults(ASOF.run, **TABLES)),
        "AsofJoin.start": (ASOF.start, _with_defaults(ASOF.start)),
        "AsofState.process": (lambda **given: ASOF.start(lateness=0).process(**given), BATCH),
        "join_many": (
            ps.join_many,
            _with_defaults(
                ps.join_many,
                streams={"a": LEFT, "b": RIGHT},
                on="k",
                time="ts",
                within=5,
                budget=FEW,
                policy="fifo",
            ),
        ),
        "start_many": (
            start_many,
            _with_defaults(
                start_many, streams=3, joins=[(0, 1, 2)], within=10, budget="9 tuples", policy="lru"
            ),
        ),
        "ManyStreamState.process": (lambda **given: _many().process(**given), BATCH | {"log": False}),
        "ManyStreamState.advance": (lambda *, left: _many().advance(left, 1), {"left": 1}),
        "Chain": (
            lambda *, one, other: ps.Chain(one, other),
            {"one": ("a.k", "b.k"), "other": ("b.k", "c.k")},
        ),
        "plan": (
            ps.plan,
            _with_defaults(ps.plan, **TABLES, within=5, budgets=["4 tuples"], policies=["fifo"]),
        ),
        "optimal_join": (
            ps.optimal_join,
            _with_defaults(ps.optimal_join, **TABLES, within=5, budget=FEW),
        ),
        "follow_decisions": (
            follow_decisions,
            _with_defaults(follow_decisions, **TABLES, decisions=decisions, within=5, budget=FEW),
        ),
        "StreamQuery.parse": (ps.StreamQuery.parse, {"text": QUERY.text}),
        "StreamQuery.explain": (QUERY.explain, _with_defaults(QUERY.explain)),
        "StreamQuery.plan_for": (QUERY.plan_for, _with_defaults(QUERY.plan_for, streams=TRIPLES)),
        "StreamQuery.run": (
            QUERY.run,
            _with_defaults(QUERY.run, streams=TRIPLES, budget=FEW, policy="clock"),
        ),
        "StreamQuery.start": (QUERY.start, _with_defaults(QUERY.start, budget=FEW, policy="clock")),
        "QueryState.process": (
            lambda **given: QUERY.start(budget=FEW, policy="clock").process(**given),
            {"streams": TRIPLES, "collect": True, "log": False},
        ),
        "Pattern.parse": (ps.Pattern.parse, {"text": "PATTERN SEQ(A, B) WITHIN 2"}),
        "Pattern.run": (PATTERN.run, _with_defaults(PATTERN.run, events=EVENTS)),
        "LookupCache": (
            _lookup,
            _with_defaults(
                ps.LookupCache, key="k", budget=FEW, policy="lru", schema=pa.schema([("name", pa.string())])
            ),
        ),
        "plan_lookup": (
            ps.plan_lookup,
            _with_defaults(ps.plan_lookup, requests=[1, 2, 1], sizes=[1], policies=["lru"]),
        ),
        "SpillQueue": (_queue, _without("disk", _with_defaults(ps.SpillQueue))),
        "policies.get": (ps.policies.get, {"policy": "fifo"}),
        "models.select": (models.select, {"series": [1.0, 2.0, 1.5, 2.5] * 20, "criterion": "bic"}),
        "models.survival_of": (models.survival_of, {"given": "exp", "alpha": 2.0, "steps": None}),
        "models.alpha_for": (models.alpha_for, {"lifetime": 12.5}),
        "locality.popularity": (locality.popularity, {"keys": [1, 2, 1], "min_count": 1}),
        "locality.stack_distance": (locality.stack_distance, {"keys": [1, 2, 1], "seed": 0}),
        "locality.inter_arrival": (locality.inter_arrival, {"keys": [1, 2, 1], "times": None}),
    }
    for policy in registered("any"):
        fields = [field for field in dataclasses.fields(policy) if field.init]
        if fields and all(field.default is not dataclasses.MISSING for field in fields):
            found[f"policy {policy.name}"] = (policy, {field.name: field.default for field in fields})
    for generator in (workloads.gdj_pair, workloads.zipf_pair, workloads.bursty_pair):
        options = _with_defaults(generator)
        found[generator.__name__] = (generator, options)
    return found


CALLS = _calls()
OPTIONS = [(name, option) for name, (_, options) in CALLS.items() for option in options]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("name", CALLS)
def test_the_calls_work(name: str) -> None:
    function, options = CALLS[name]
    function(**options)


@pytest.mark.parametrize(("name", "option"), OPTIONS)
def test_nonsense_is_refused(name: str, option: str) -> None:
    function, options = CALLS[name]
    for given, value in VALUES.items():
        if callable(value) and (name, option) in FUNCTIONS_OF_USERS:
            continue
        try:
            function(**options | {option: value})
        except PenstockError:
            pass
        except Exception as error:
            raise AssertionError(f"{name}({option}={given}): {type(error).__name__}: {error}") from error


def test_what_was_given_and_what_is_allowed() -> None:
    with pytest.raises(PenstockError, match=r"how=array\(\['a', 'b'\].* is not known\. Allowed: inner, left"):
        ps.WindowJoin(within=5, budget=FEW, how=np.array(["a", "b"]))
    with pytest.raises(PenstockError, match=r"rates=1\.5 is not allowed; give a number"):
        QUERY.start(budget=FEW, rates=1.5)
    with pytest.raises(PenstockError, match=r"tolerance takes a number .* NaT was given"):
        ps.asof_join(**TABLES, budget=FEW, tolerance=pd.NaT)
    with pytest.raises(PenstockError, match=r"joins=\[\(0, 5\)\] is not allowed with streams=2"):
        start_many(2, [(0, 5)], within=1, budget="9 tuples")
    with pytest.raises(PenstockError, match=r"seed=4611686018427387904 is not allowed; .* below 2"):
        ps.WindowJoin(within=5, budget=FEW, seed=2**62)
