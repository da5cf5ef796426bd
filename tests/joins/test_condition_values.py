"""Conditions: their kernel, and their evaluation for many rows at once, against a plain evaluator."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.compiler.interpreter import interpret
from penstock.engine.pair_condition import BY_ZERO, KNOWN, outcome
from penstock.errors import ConditionError, PenstockError
from penstock.joins.conditions.cells import read
from penstock.joins.conditions.evaluate import evaluate
from penstock.joins.conditions.kinds import kind_of
from penstock.joins.conditions.leaves import Leaves
from penstock.joins.conditions.parser import parse_condition
from penstock.joins.conditions.program import compile_condition
from penstock.joins.conditions.semantic_checks import checked
from tests.oracles.condition import UndefinedError, value_of

pytestmark = pytest.mark.interpreted

TYPES = {
    "i": pa.int64(),
    "j": pa.int32(),
    "x": pa.float64(),
    "f": pa.float32(),
    "b": pa.bool_(),
    "s": pa.string(),
    "n": pa.decimal128(9, 2),
    "w": pa.decimal128(30, 3),
    "d": pa.date32(),
    "t": pa.timestamp("us"),
    "y": pa.binary(),
}
BIG = st.sampled_from([-(2**63), -(2**53) - 1, -1, 0, 1, 2, 3, 2**53 + 1, 2**62, 2**63 - 1])
FLOATS = st.sampled_from([0.0, -0.0, 1.0, 1.5, -2.0, 3.0, math.nan, math.inf, -math.inf, 1e300])
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i": BIG | st.integers(-3, 3),
    "j": st.integers(-3, 3) | st.sampled_from([-(2**31), 2**31 - 1]),
    "x": FLOATS,
    "f": FLOATS.filter(lambda x: abs(x) != 1e300).map(np.float32),
    "b": st.booleans(),
    "s": st.sampled_from(["", "a", "b", "ab", "\u00e9", "\U0001f600"]),
    "n": st.integers(-300, 300).map(lambda n: Decimal(n).scaleb(-2)),
    "w": st.sampled_from([Decimal("1.500"), Decimal("-2.000"), Decimal(10**26), Decimal("0.001")]),
    "d": st.dates(datetime.date(2026, 1, 1), datetime.date(2026, 1, 4)),
    "t": st.datetimes(datetime.datetime(2026, 1, 1), datetime.datetime(2026, 1, 3)).map(
        lambda t: t.replace(hour=12 * (t.hour // 12), minute=0, second=0, microsecond=0)
    ),
    "y": st.sampled_from([b"", b"a", b"\x00"]),
}
ROWS = st.fixed_dictionaries({name: st.none() | each for name, each in VALUES.items()})
TABLE = st.lists(ROWS, min_size=1, max_size=4)


def numbers(depth: int) -> st.SearchStrategy[str]:
    column = st.tuples(st.sampled_from(["left", "right"]), st.sampled_from("ixf")).map(".".join)
    simple = column | st.sampled_from(["1", "-2", "1e0", "3"])
    if depth == 0:
        return simple
    inner = numbers(depth - 1)
    return (
        simple
        | st.builds("({} {} {})".format, inner, st.sampled_from("+-*/%"), inner)
        | st.builds("(-{})".format, inner)
    )


SIDE = st.sampled_from(["left", "right"])
OPERATOR = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
SAME = "ss yy nw ww dt bb iw ni xw ji nx tt"  # columns that can be compared
EXACT = st.sampled_from(["left.i", "right.i", "right.n", "1", "-2"])
PLAIN = (
    st.builds("{} {} {}".format, numbers(1), OPERATOR, numbers(1))
    | st.builds(
        lambda a, b, op, both: f"{a}.{both[0]} {op} {b}.{both[1]}",
        SIDE,
        SIDE,
        OPERATOR,
        st.sampled_from(SAME.split()),
    )
    | st.builds("{} is null".format, numbers(1))
    | st.builds("{}.s in ('a', {}.s, 'ab')".format, SIDE, SIDE)
    | st.builds("{} not in (1, {}, 2.5)".format, EXACT, EXACT)
    | st.builds("{}.n + {}.n < 2.5".format, SIDE, SIDE)
    | st.builds("{}.n * {}.n = {}.x".format, SIDE, SIDE, SIDE)
    | st.builds("{}.n + {}.j > {}.n".format, SIDE, SIDE, SIDE)
    | st.sampled_from(
        [
            "left.b",
            "right.b",
            "true",
            "left.s = 'a'",
            "left.d = date '2026-01-02'",
            "right.t > timestamp '2026-01-02 00:00:00'",
            "left.s is not null",
        ]
    )
)


def truths(depth: int) -> st.SearchStrategy[str]:
    if depth == 0:
        return PLAIN
    inner = truths(depth - 1)
    both = st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or"]), inner)
    return PLAIN | both | st.builds("not ({})".format, inner)


def table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.table({name: pa.array([row[name] for row in rows], kind) for name, kind in TYPES.items()})


def expected(text: str, left: dict[str, Any], right: dict[str, Any]) -> Any:
    try:
        return value_of(parse_condition(text), (left, right))
    except UndefinedError:
        return "undefined"


@settings(max_examples=300)
@given(
    text=truths(2), left=st.lists(ROWS, min_size=1, max_size=4), right=st.lists(ROWS, min_size=1, max_size=4)
)
def test_same_value_for_every_pair(text: str, left: list[Any], right: list[Any]) -> None:
    program = compile_condition(text, (TYPES, TYPES))
    tables = (table(left), table(right))
    leaves = Leaves(program)
    stream = np.repeat(np.array([0, 1], np.int8), [len(left), len(right)])
    arriving = leaves.of_tables(tables, stream, None)
    condition = program.build(len(arriving)).hearing(arriving)
    condition.kept[: len(arriving)] = arriving
    typed = checked(parse_condition(text), text, [{n: kind_of(k) for n, k in TYPES.items()}] * 2)
    pairs = [(a, b) for a in range(len(left)) for b in range(len(right))]
    rows = [pa.array([pair[side] for pair in pairs]) for side in (0, 1)]

    def column(side: int, name: str) -> Any:
        values = tables[side][name].combine_chunks()
        return read(values.take(rows[side]), kind_of(TYPES[name]))

    whole = evaluate(typed, column)
    values, states = (np.broadcast_to(part, len(pairs)) for part in whole)
    for n, (a, b) in enumerate(pairs):
        wanted = expected(text, left[a], right[b])
        for arrives, (i, kept) in ((0, (a, len(left) + b)), (1, (len(left) + b, a))):
            state, truth = interpret(outcome, (condition, arrives, i, kept))
            assert _said(state, truth) == wanted, (left[a], right[b])
        assert _said(states[n], values[n] != 0) == wanted, (left[a], right[b])


def _said(state: int, truth: bool) -> Any:
    return "undefined" if state >= BY_ZERO else bool(truth) if state == KNOWN else None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("left.price < right.prize", "line 1, column 14: found right.prize.*did you mean 'price'"),
        ("left.price < right.name", "column 12.*left.price is of type int64, right.name is of type string"),
        ("left.price", "column 1: .*expected a condition\n.*\n.*left.price is of type int64"),
        ("price < 3", "column 1: found 'price', expected a column with its side.*left.price or right.price"),
        ("left.price <", "column 13: found the end of the text"),
        ("left.price = null", "column 14.*is null"),
        ("left.price && true", "column 12.*Write 'and'"),
        ("abs(left.price) > 1", "Functions are not supported"),
        ("left.at > '2026-01-01'", "column 9.*Write date"),
        ("left.at - right.at < 3", "within="),
        ("left.name + 1 > 2", "column 1: found left.name, expected a number"),
        ("left.price > 1 and", "column 19: found the end"),
        ("left.tags = right.tags", "Select a field"),
        ("left.cost / 2 > 1", "column 11.*multiply one operand by 1e0"),
        ("not " * 300 + "true", "nested more than 60"),
        ("(" * 70 + "true" + ")" * 70, "more than 60 nested"),
        ("left.price > 99999999999999999999", "at most 18 digits"),
        ("left.price > 1e999", "such as 1e20"),
        ("left.name = 'a\\q'", "column 15"),
        ("", "found the end"),
    ],
)
def test_what_cannot_be_is_told_with_its_place(text: str, told: str) -> None:
    types = {
        "price": pa.int64(),
        "name": pa.string(),
        "at": pa.timestamp("us"),
        "tags": pa.list_(pa.string()),
        "cost": pa.decimal128(9, 2),
    }
    with pytest.raises(ConditionError, match="(?s)" + told):
        compile_condition(text, (types, types))


def test_nothing_but_a_text() -> None:
    with pytest.raises(PenstockError, match="where takes a text"):
        parse_condition(3)  # type: ignore[arg-type]


def test_names_in_backticks_and_texts_with_escapes() -> None:
    assert str(parse_condition("left.`a b``c` = 'it\\'s' and RIGHT . x <> \"q\"")) == (
        "((left.`a b``c` = \"it's\") and (right.x != 'q'))"
    )
