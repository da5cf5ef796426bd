"""The light core: an installed Penstock without extras. Run it from any folder, by the Python that has it.

Every operator runs once on a few rows, and what needs an extra names it with the command that installs it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from smoke_checks import run_checks

import penstock as ps
from penstock.errors import MissingExtraError
from penstock.extras import EXTRAS

LEFT = {"k": [1, 2, 1, 3, 2, 1], "ts": [0, 1, 2, 3, 4, 5]}
RIGHT = {"k": [2, 1, 3, 1], "ts": [1, 3, 4, 6]}
ASK = {"on": "k", "time": "ts"}
EXACT = sum(
    k == other and abs(ts - at) <= 3
    for k, ts in zip(*LEFT.values(), strict=True)
    for other, at in zip(*RIGHT.values(), strict=True)
)


def no_extras() -> None:
    assert [package for package in EXTRAS if find_spec(package) is not None] == []


def window_join() -> None:
    """The default policy, with enough memory and with little."""
    assert ps.WindowJoin(within=3, budget=ps.Tuples(100)).run(LEFT, RIGHT, **ASK).stats.results == EXACT
    few = ps.WindowJoin(within=3, budget=ps.Tuples(2)).run(LEFT, RIGHT, **ASK).stats
    assert few.exact == EXACT
    assert 0 < few.results < EXACT


def asof_join() -> None:
    run = ps.asof_join(LEFT, RIGHT, tolerance=3, budget=ps.Tuples(100), **ASK)
    assert run.pairs["right_row"].to_pylist() == [None, 0, None, None, 0, 1]
    assert run.stats.undecided == 0


def join_many() -> None:
    streams = {"a": LEFT, "b": RIGHT}
    run = ps.join_many(streams, within=3, budget=ps.Tuples(100), policy="lru", **ASK)
    assert run.stats.results == EXACT


def plan() -> None:
    made = ps.plan(LEFT, RIGHT, within=3, budgets=["2 tuples"], policies=["fifo", "gdj"], target=0.1, **ASK)
    assert made.answer is not None


def lookup() -> None:
    cache = ps.LookupCache(
        lambda keys: {key: {"name": f"n{key}"} for key in keys}, key="k", budget=ps.Tuples(2)
    )
    assert cache.run(LEFT, on="k").table["name"].to_pylist() == [f"n{key}" for key in LEFT["k"]]


def pattern() -> None:
    events = {"type": ["A", "B", "C", "A", "C"], "ts": [0, 1, 2, 3, 4]}
    found = ps.Pattern.parse("PATTERN SEQ(A a, !B b, C c) WITHIN 10").run(events, type="type", time="ts")
    assert found.matches.to_pylist() == [{"a": 3, "c": 4}]


def stream_query() -> None:
    """Plain values need no extra."""
    triples = {"s": ["a", "b"], "p": ["reports"] * 2, "o": [12, 12], "start": [0, 100]}
    text = """
        SELECT ?x, ?y FROM STREAM wind
        WHERE { ?x reports ?w ?T1 . ?y reports ?w ?T2 . FILTER (?x != ?y) . }
        CONTEXT ((?T1 - ?T2) <= 200^^xsd:millisecond) .
    """
    run = ps.StreamQuery.parse(text).run({"wind": triples}, budget=ps.Tuples(100))
    assert {(row["x"], row["y"]) for row in run.rows.to_pylist()} == {("a", "b"), ("b", "a")}


def queue() -> None:
    items = [f"item {i}".encode() * 20 for i in range(2_000)]
    with tempfile.TemporaryDirectory() as folder, ps.SpillQueue(f"{folder}/q", memory="64 KiB") as made:
        made.put_many(items)
        assert made.get_many(2_000) == items


def command_line() -> None:
    """A plan draws nothing unless asked to; then it says what is missing."""
    command = Path(sys.executable).parent / "penstock"
    with tempfile.TemporaryDirectory() as folder:
        for name, rows in (("left", LEFT), ("right", RIGHT)):
            lines = ["k,ts", *(f"{k},{ts}" for k, ts in zip(*rows.values(), strict=True))]
            Path(folder, f"{name}.csv").write_text("\n".join(lines) + "\n")
        words = ["plan", "left.csv", "right.csv", "--on", "k", "--time", "ts", "--within", "3"]
        words += ["--budgets", "2", "--policies", "fifo,lru"]
        for more, code, told in (
            (["--json", "plan.json"], 0, "penstock[plots]"),
            (["--plot", "plan.png"], 1, "error: --plot needs matplotlib"),
        ):
            done = subprocess.run(
                [command, *words, *more], cwd=folder, capture_output=True, text=True, timeout=300
            )
            assert done.returncode == code, done.stderr
            assert told in done.stderr, done.stderr
        assert sorted(path.name for path in Path(folder).iterdir()) == ["left.csv", "plan.json", "right.csv"]
        done = subprocess.run([command, "doctor"], cwd=folder, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr


def missing_extras() -> None:
    """Each part that needs an extra names the package and the command."""

    def join(policy: str) -> None:
        ps.WindowJoin(within=3, budget=ps.Tuples(2), policy=policy)

    def table(url: str) -> None:
        ps.LookupCache((url, "names"), key="id", budget=ps.Tuples(2))

    def monitor() -> None:
        from penstock.spark import PipelineMonitor  # noqa: F401

    def triples() -> None:
        from penstock.linked.files import parse_ntriples

        parse_ntriples("<a> <b> <c> 1 .")

    def reproduction() -> None:
        from penstock.reproduction import Scope, figures_of

        figures_of("gdj", Scope(quick=True))

    asked: list[tuple[Callable[[], object], str]] = [
        (lambda: ps.models.RandomWalk(0, 1), "models"),
        (lambda: ps.models.select(range(20)), "models"),
        (lambda: join("opt"), "optimal"),
        (lambda: ps.optimal_join(LEFT, RIGHT, within=3, budget=ps.Tuples(2), **ASK), "optimal"),
        (lambda: ps.plan_lookup([1, 2], sizes=[1], policies=["lru"]).plot("x.png"), "plots"),
        (lambda: table("sqlite:///x.db"), "lookup"),
        (monitor, "spark"),
        (triples, "linked"),
        (reproduction, "reproduction"),
    ]
    for ask, extra in asked:
        told = ""
        try:
            ask()
        except MissingExtraError as error:
            told = str(error)
        assert f"pip install 'penstock[{extra}]'" in told, (extra, told)


CHECKS: list[Callable[[], None]] = [
    no_extras,
    window_join,
    asof_join,
    join_many,
    plan,
    lookup,
    pattern,
    stream_query,
    queue,
    command_line,
    missing_extras,
]


if __name__ == "__main__":
    sys.exit(run_checks(CHECKS, "penstock (no extras)"))
