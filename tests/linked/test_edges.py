"""The edges of what streams may hold: nothing, open ends, truth values among numbers, timestamps, junk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import penstock as ps
from penstock.errors import BudgetError, ColumnError, PenstockError, QueryError, TermError, UnitWarning
from penstock.linked import parse_ntriples

pytestmark = [
    pytest.mark.interpreted,
    pytest.mark.filterwarnings("ignore::penstock.linked.query.UnboundedContextWarning"),
]

PAIRS = "SELECT * FROM STREAM w, v { ?a p ?x ?T . ?b p ?x ?U } CONTEXT ((?T - ?U) <= 5)"
NOTHING: dict[str, list[Any]] = {"s": [], "p": [], "o": [], "start": []}


def events(start: Any, objects: Any = None) -> dict[str, Any]:
    n = len(start)
    names = [f"s{i}" for i in range(n)]
    return {"s": names, "p": ["p"] * n, "o": [1] * n if objects is None else objects, "start": start}


def rows(text: str, *tables: Any, **options: Any) -> list[dict[str, Any]]:
    streams = dict(zip(("w", "v"), tables, strict=False))
    run = ps.StreamQuery.parse(text).run(streams, policy="lru", **options)
    assert run.rows is not None
    return run.rows.to_pylist()


@pytest.mark.parametrize("empty", [NOTHING, pd.DataFrame(NOTHING), pd.DataFrame(columns=[*"spo", "start"])])
@pytest.mark.parametrize("start", [[0, 1], [0.5, 1], pd.to_datetime(["2020-01-01"] * 2)])
def test_a_stream_may_be_empty(empty: Any, start: Any) -> None:
    assert rows(PAIRS, empty, empty) == []
    assert len(rows(PAIRS, empty, events(start))) == 4
    for joins in (None, (0, 1)):
        state = ps.StreamQuery.parse(PAIRS).start(budget=ps.Tuples(9), policy="lru", joins=joins)
        found = [state.process({"w": table}).rows for table in (empty, events(start), empty)]
        assert [table.num_rows for table in found if table is not None] == [0, 4, 0]


def test_times_of_another_kind_are_named() -> None:
    state = ps.StreamQuery.parse(PAIRS).start(budget=ps.Tuples(9), policy="lru")
    state.process({"w": events([0, 1])})
    with pytest.raises(ColumnError, match="from numbers of ms to timestamps without a time zone"):
        state.process({"w": events(pd.to_datetime(["2020-01-01"]))})


def test_all_facts_may_be_open() -> None:
    table = events([0, 3]) | {"end": [None, None]}
    assert [row["E"] for row in rows("SELECT * FROM STREAM w { ?a p ?x ?T ?E }", table)] == [None, None]


def test_an_open_fact_is_asked_again_with_its_end() -> None:
    text = "SELECT ?a ?b FROM STREAM w { ?a p ?x ?T ?E . ?b q ?x ?U } CONTEXT ((?E - ?T) <= 5)"
    table = {
        "s": ["fact", "early", "fact", "late"],
        "p": ["p", "q", "p", "q"],
        "o": [1] * 4,
        "start": [0, 1, None, 4],
        "end": [None, 1, 3, 4],
    }
    assert rows(text, table) == [{"a": "fact", "b": "late"}]


def test_truth_values_among_floats_stay_what_they_are() -> None:
    text = "SELECT ?x FROM STREAM w { ?a p ?x ?T }"
    objects = pd.Series([2.5, 2, False], dtype=object)
    assert [row["x"] for row in rows(text, events([0, 1, 2], objects))] == ["2.5", "2", "false"]


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ('-"5"', None),
        ('-"2020-01-01T00:00:00Z"^^xsd:dateTime', None),
        ("-5^^xsd:int", -5),
        ("str(?x / 2)", "0.75"),
    ],
)
def test_expressions(expression: str, value: Any) -> None:
    text = f"SELECT ({expression} AS ?y) FROM STREAM w {{ ?a p ?x ?T }}"
    assert rows(text, events([0], [1.5])) == [{"y": value}]


def test_distinct_is_by_value() -> None:
    text = "SELECT DISTINCT ?x FROM STREAM w { ?a p ?x ?T }"
    objects = pd.Series([1, 1.0, "a", "<a>", "a", True], dtype=object)
    assert [row["x"] for row in rows(text, events([*range(6)], objects))] == ["1", "a", "a", "true"]
    state = ps.StreamQuery.parse(text).start(budget=ps.Tuples(9), policy="lru")
    out = state.process({"w": events([0, 1], [1, 1.0])})
    assert out.rows is not None
    assert out.rows.num_rows == 1


@pytest.mark.parametrize("unit", ["ms", "us"])
@pytest.mark.parametrize("apart", [8, 9])
@pytest.mark.parametrize("finer", [0, 7])
def test_beside_timestamps_a_bare_number_is_in_the_unit_of_the_column(
    apart: int, finer: int, unit: str
) -> None:
    text = PAIRS.replace("<= 5", "<= 2 * 3 + 2")
    table = events(
        np.array([1_600_000_000_000 + finer, 1_600_000_000_000 + finer + apart], f"datetime64[{unit}]")
    )
    expected = 4 if apart == 8 else 2
    assert len(rows(text, table, NOTHING)) == expected
    out = ps.StreamQuery.parse(text).start(budget=ps.Tuples(9), policy="lru").process({"w": table})
    assert out.rows is not None
    assert out.rows.num_rows == expected
    join = ps.WindowJoin(within=8, budget=ps.Tuples(9), policy="lru")
    frame = pd.DataFrame({"key": 1, "ts": table["start"]})
    with pytest.warns(UnitWarning, match=f"within=8 is 8 {'milli' if unit == 'ms' else 'micro'}"):
        assert join.run(frame, frame, on="key", time="ts").stats.results == expected


def test_a_stream_has_timestamps_to_the_microsecond() -> None:
    stamps = pd.date_range("2020-01-01", periods=100, freq="50ms").astype("datetime64[ns]")
    state = ps.StreamQuery.parse("SELECT ?T FROM STREAM w { ?a p ?x ?T }").start(budget=ps.Tuples(9))
    out = state.process({"w": events(stamps)})
    assert out.rows is not None
    assert out.rows["T"].to_pylist() == [stamp.to_pydatetime() for stamp in stamps]


def test_background_alone_gives_its_results_once(tmp_path: Path) -> None:
    file = tmp_path / "still.nt"
    file.write_text('<http://e.org/a> <http://e.org/p> "1" .\n')
    query = ps.StreamQuery.parse(f"SELECT ?a FROM STREAM w FROM <{file}> {{ ?a <http://e.org/p> ?x }}")
    state = query.start(budget=ps.Tuples(9), policy="lru")
    found = [state.process({"w": table}).rows for table in (NOTHING, events([0]), events([1]))]
    assert [table.num_rows for table in found if table is not None] == [1, 0, 0]


def test_a_line_ends_where_n_triples_says() -> None:
    table = parse_ntriples('<a> <p> "b\u2028c\x85d" 5 .\r\n<a> <p> "e" 6 .\n')
    assert table["start"].to_pylist() == [5, 6]


@pytest.mark.parametrize(
    "table",
    [
        events([0], [10**400]),
        events([0, 1], [10**400, 1]),
        events([0, 1], [1j, 2j]),
        events([0], ["\ud800"]),
        events([0, 1], pd.Series([pd.NaT, 1], dtype=object)),
        events([2**60 + 1, 2**60]),
        events(np.array(["2020-01-01T00:00:00.000000001"], "datetime64[ns]")),
    ],
)
def test_refused_columns(table: Any) -> None:
    with pytest.raises(PenstockError):
        rows(PAIRS, table, NOTHING)


@pytest.mark.parametrize("budget", [ps.Tuples(10**30), ps.Tuples(2**44), "99999 TiB"])
def test_budgets_beyond_all_memory(budget: Any) -> None:
    with pytest.raises(BudgetError, match="no memory"):
        rows(PAIRS, events([0, 1]), NOTHING, budget=budget)


def test_refused_texts() -> None:
    for inner in ("1" + " + 1" * 20_000 + " > 0", '?x = "\\ud800"'):
        with pytest.raises(QueryError):
            ps.StreamQuery.parse(f"SELECT ?a FROM STREAM w {{ ?a p ?x ?T . FILTER ({inner}) }}")


@pytest.mark.parametrize("name", ["a.nt", "a.nq", "a.csv", "a.csv.gz", "a.parquet"])
def test_junk_files(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"\x00\xff\xfe" * 50)
    with pytest.raises(TermError, match="cannot be read"):
        rows(PAIRS, tmp_path / name, NOTHING)


@pytest.mark.parametrize("streams", [None, [events([0])]])
def test_a_batch_is_a_dict(streams: Any) -> None:
    with pytest.raises(ColumnError, match="A batch is a dict"):
        ps.StreamQuery.parse(PAIRS).start(budget=ps.Tuples(9), policy="lru").process(streams)
