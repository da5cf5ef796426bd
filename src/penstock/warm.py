"""Compile kernels in advance, and pack them for machines that should not compile.

Each operator runs once on a few rows, which compiles every kernel it uses. The result on disk serves every
installation of the same version on the same kind of processor.
"""

from __future__ import annotations

import contextlib
import io
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.budget import Tuples
from penstock.caching import replay
from penstock.compiler.code_cache import touched
from penstock.compiler.tiers import only
from penstock.errors import PenstockError, UnknownPolicyError, hint
from penstock.joins.asof import AsofJoin
from penstock.joins.many import join_many
from penstock.joins.many_arrivals import Chain
from penstock.joins.many_stream import start_many
from penstock.joins.window import WindowJoin
from penstock.linked import StreamQuery
from penstock.patterns import Pattern
from penstock.policies import caching_names, get, names

ROWS = 64  # per stream
BUDGET = Tuples(16)
TIMES = (np.int64, np.float64)

Report = Callable[[int, int, str], None]


def warm(
    policies: Sequence[str] = ("auto",),
    operators: Sequence[str] | None = None,
    *,
    report: Report | None = None,
) -> list[Path]:
    """Compile the kernels of these operators and policies; return their files in the cache folder.

    The result includes kernels that this process has used before.

    `operators` are any of `join` (two streams, in process and on Spark), `outer` (the same with `how`,
    `matches` or `where`), `asof`, `many`, `cache` (also for lookups), `match` and `query`; default: all.
    Policies that an operator does not support are skipped.
    `report` is called with the number of steps done, the total, and the next step.

    >>> from penstock.warm import warm
    >>> files = warm(["fifo"], ["cache"])
    >>> any(path.name.startswith("penstock.engine.cache_loop.answer-") for path in files)
    True
    """
    for name in policies:
        if name.partition(":")[0] not in {*names(), *caching_names()}:
            raise UnknownPolicyError(f"There is no policy {name!r}{hint(name, [*names(), *caching_names()])}")
    chosen = list(OPERATORS) if operators is None else list(operators)
    for name in chosen:
        if name not in OPERATORS:
            raise PenstockError(f"There is no operator {name!r}{hint(name, OPERATORS)}")
    steps = [(operator, policy) for operator in chosen for policy in _policies_of(operator, policies)]
    with only("compiled"):
        for done, (operator, policy) in enumerate(steps):
            if report is not None:
                report(done, len(steps), f"{operator} {policy}".rstrip())
            for run in OPERATORS[operator](policy):
                _unless_refused(run)
    if report is not None:
        report(len(steps), len(steps), "done")
    return sorted(path for path in touched if path.exists())


def pack(files: Iterable[Path], out: Path) -> None:
    """Pack kernels into an archive; unpack it elsewhere and set `PENSTOCK_CACHE_DIR` to the folder.

    >>> import tarfile, tempfile
    >>> from penstock.warm import pack, warm
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     out = Path(folder, "kernels.tar")
    ...     pack(warm(["fifo"], ["cache"]), out)
    ...     with tarfile.open(out) as archive:
    ...         len(archive.getnames()) > 0
    True
    """
    with tarfile.open(out, "w") as archive:
        for path in files:
            data = path.read_bytes()
            entry = tarfile.TarInfo(path.name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))


def _policies_of(operator: str, policies: Sequence[str]) -> list[str]:
    """Return the policies of an operator: patterns have none; caches have others than joins."""
    if operator == "match":
        return [""]
    known = caching_names() if operator == "cache" else names()
    return [policy for policy in policies if policy.partition(":")[0] in known]


def _unless_refused(run: Callable[[], object]) -> None:
    """Skip policies that do not support ticks or unbounded streams, or that need options."""
    with contextlib.suppress(PenstockError):
        run()


def _stream(dtype: type = np.int64) -> dict[str, np.ndarray]:
    return {"k": np.arange(ROWS) * 7 % 11, "ts": np.arange(ROWS).astype(dtype)}


def _join(policy: str) -> Iterator[Callable[[], object]]:
    for dtype in TIMES:
        both = _stream(dtype), _stream(dtype)
        for step in ("arrival", "tick"):
            if step == "tick" and not get(policy).ticks:
                continue
            join = WindowJoin(within=9, budget=BUDGET, policy=policy, step=step)
            yield partial(join.run, *both, on="k", time="ts", collect=True)
        late = WindowJoin(within=9, budget=BUDGET, policy=policy)
        yield partial(_warm_state, late, dtype=dtype, lateness=0, rates=(1.0, 1.0))


def _outer(policy: str) -> Iterator[Callable[[], object]]:
    names = {"columns": ({"ts": pa.int64()}, {"ts": pa.int64()})}
    for dtype in TIMES:
        both = _stream(dtype), _stream(dtype)
        for where, columns in ((None, {}), ("left.ts < right.ts", names)):
            join = WindowJoin(within=9, budget=BUDGET, policy=policy, how="full", where=where)
            yield partial(join.run, *both, on="k", time="ts", collect=True)
            yield partial(_warm_state, join, dtype=dtype, lateness=0, rates=(1.0, 1.0), **columns)


def _warm_state(join: WindowJoin, **options: Any) -> None:
    join.start(**options).warm()


def _asof(policy: str) -> Iterator[Callable[[], object]]:
    for dtype in TIMES:
        yield partial(_warm_asof, policy, dtype)


def _warm_asof(policy: str, dtype: type) -> None:
    join = AsofJoin(tolerance=9, budget=BUDGET, policy=policy)
    both = _stream(dtype), _stream(dtype)
    join.run(*both, on="k", time="ts")
    state = join.start(dtype=dtype, lateness=0)
    state.warm()
    join.start(dtype=dtype, lateness=0).take_over(state)


def _many(policy: str) -> Iterator[Callable[[], object]]:
    for dtype in TIMES:
        options: dict[str, Any] = {"within": 9, "budget": BUDGET, "policy": policy}
        yield partial(join_many, {name: _stream(dtype) for name in "abc"}, on="k", time="ts", **options)
        yield partial(_warm_many, options | {"dtype": np.dtype(dtype)})
        chained = options | {"on": Chain(("a.k", "b.k"), ("b.k", "c.k")), "time": "ts"}
        yield partial(join_many, {name: _stream(dtype) for name in "abc"}, **chained)
        linked = {"dtype": np.dtype(dtype), "joins": [(0, 1), (1, 2)], "chain": True}
        yield partial(_warm_many, options | linked)


def _warm_many(options: dict[str, Any]) -> None:
    start_many(3, **{"joins": [(0, 1, 2)]} | options).warm()


def _cache(policy: str) -> Iterator[Callable[[], object]]:
    yield partial(replay, np.arange(ROWS) % 7, policy, budget=5)


def _match(policy: str) -> Iterator[Callable[[], object]]:
    events = {"type": ["A", "B", "C", "D"] * 4, "k": [1, 2] * 8, "ts": list(range(16))}
    for text in ("SEQ(A, !B, C)", "SEQ(A a, B b, C c, a.k = c.k)", "AND(A, B, !D)", "SEQ(A, OR(B, C), D)"):
        pattern = Pattern.parse(f"PATTERN {text} WITHIN 9")
        yield partial(pattern.run, events)
        yield partial(pattern.run, events, count_only=True)


def _query(policy: str) -> Iterator[Callable[[], object]]:
    query = StreamQuery.parse(
        "SELECT ?a, ?b FROM STREAM s WHERE { ?a p ?v ?T1 . ?b p ?v ?T2 . FILTER (?a != ?b) . } "
        "CONTEXT ((?T1 - ?T2) <= 9^^xsd:millisecond) ."
    )
    times = np.arange(ROWS)
    triples = {"s": [f"n{i % 5}" for i in times], "p": ["p"] * ROWS, "o": times % 7, "start": times}
    yield lambda: query.run({"s": triples}, budget=BUDGET, policy=policy)
    yield lambda: query.start(budget=BUDGET, policy=policy).process({"s": triples})


OPERATORS: dict[str, Callable[[str], Iterator[Callable[[], object]]]] = {
    "join": _join,
    "outer": _outer,
    "asof": _asof,
    "many": _many,
    "cache": _cache,
    "match": _match,
    "query": _query,
}
