"""`plan`: measure the recall of a join for every policy and budget by running it."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arguments import is_number, shown
from penstock.budget import Budget, Bytes, Fraction, Tuples, budget_of
from penstock.columns import Table
from penstock.errors import (
    BudgetError,
    PenstockError,
    ShortSampleWarning,
    UnitWarning,
    UnknownPolicyError,
    warn_user,
)
from penstock.joins.arrivals import Arrivals, arrivals_of
from penstock.joins.budgets import in_tuples
from penstock.joins.conditions.exact import MOST_PAIRS
from penstock.joins.conditions.parser import parse_condition
from penstock.joins.kinds import kind_of
from penstock.joins.need import allocation_note, need_note, peak_need
from penstock.joins.plan_result import Plan, PlanRow
from penstock.joins.window import WindowJoin
from penstock.payload import mean_row_bytes
from penstock.policies import Policy, get, registered
from penstock.units import unit_word
from penstock.window import Window, unit_doubt, window_of

if TYPE_CHECKING:
    pass

ALL = "all"
SHARES = (0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)
MOST_MATCHES = 500_000  # beyond this the optimum is skipped: its flow would take minutes
PRECISION = 100  # the answer to a target is exact to 1/100 of itself, or to one tuple

Report = Callable[[int, int, str], None]


def plan(
    left: Table,
    right: Table,
    *,
    on: Any,
    time: Any,
    within: Any,
    budgets: Iterable[Any] | None = None,
    policies: Iterable[Any] | None = None,
    target: float | None = None,
    allocation: str | None = None,
    step: str = "arrival",
    seed: int = 0,
    unit: str = "ms",
    progress: Report | None = None,
    how: str = "inner",
    matches: str = "all",
    where: str | None = None,
) -> Plan:
    """Run the join under every policy and budget, to find how much memory a recall needs under which policy.

    Parameters
    ----------
    left, right, on, time, within, allocation, step, seed, unit, how, matches, where
        As in `WindowJoin` and its `run`.
    budgets
        `Tuples`, `Bytes` or `Fraction`, or texts such as "20 %". Default: shares from 5 % to 100 % of what
        the exact join needs, except those below one tuple per stream.
    policies
        Names or policy objects. Default: all registered policies that need neither the future nor a model;
        so does the name "all", which may stand beside others.
        `opt` is the optimum, an upper bound for all others: it comes first, is never the answer to a target,
        and is skipped if the exact join has more than 500,000 results.
    target
        A recall to reach. `answer` is then the smallest budget over all policies that reaches it: the
        smallest of `budgets`, refined by bisection on the number of tuples (or bytes) to 1 % or one tuple.
        The answer is an actual run, not an interpolation. Recall does not always rise with memory, so a
        still smaller budget may reach the target by luck.
    progress
        Called with (runs done, total runs, label of the current run).

    Examples
    --------
    >>> import penstock as ps
    >>> from penstock.workloads import gdj_pair
    >>> left, right = gdj_pair(keys=20, rate=1)
    >>> plan = ps.plan(left, right, on="key", time="ts", within=60, policies=["fifo", "lru"], target=0.8)
    >>> plan.table.shape
    (2, 7)
    >>> plan.answer.recall >= 0.8
    True
    """
    if target is not None and (not is_number(target) or not 0 < target <= 1):
        raise PenstockError(
            f"target={shown(target)} is not allowed; it is a recall above 0 and up to 1, such as 0.95."
        )
    if progress is not None and not callable(progress):
        raise PenstockError(
            f"progress={progress!r} is not allowed; it is a function of (done, total, label)."
        )
    wanted = _budgets(budgets)
    chosen, skipped = _policies(policies)
    options: dict[str, Any] = {
        "within": window_of(within),
        "allocation": allocation,
        "step": step,
        "seed": seed,
        "how": how,
        "matches": matches,
        "where": where,
    }
    kind_of(how, matches)
    if where is not None:
        parse_condition(where)
    joins: dict[str, list[WindowJoin]] = {}
    for policy in chosen:
        try:
            joins[policy.spell()] = [WindowJoin(budget=b, policy=policy, **options) for b in wanted]
        except UnknownPolicyError as error:
            skipped[policy.spell()] = str(error)
    sized = any(isinstance(b, Bytes) for b in wanted)
    arrivals = arrivals_of(left, right, on, time, unit, sized, keyless=True, where=where)
    bench = _Bench(arrivals, (mean_row_bytes(left) + mean_row_bytes(right)) / 2, options["within"], progress)
    for doubt, kind in bench.doubts:
        warn_user(doubt, kind)
    for name in [name for name, row in joins.items() if row[0].policy.bound]:
        results = bench.matches(joins[name][0])
        if results > MOST_MATCHES:
            skipped[name] = f"the join has {results:,} results; it is computed for up to {MOST_MATCHES:,}"
            del joins[name]
    if not joins:
        raise UnknownPolicyError("No policy can run. " + " ".join(skipped.values()))
    cells = _cells(joins, bench, skipped, keep=budgets is not None)
    bench.total = len(cells)
    rows = [bench.run(join) for join in cells]
    answer = None
    if target is not None:
        runners = {name: joins[name][0] for name in joins}
        found = [_smallest(bench, runners, rows, kind, target) for kind in (Tuples, Bytes)]
        answer = min((row for row in found if row is not None), key=lambda row: row.peak_bytes, default=None)
    bench.finish()
    return Plan(
        rows,
        skipped,
        target,
        answer,
        need=bench.need,
        unit=bench.plain.unit,
        warnings=tuple(doubt for doubt, _ in bench.doubts),
        peak_need=bench.peak_need,
        notes=_notes(bench, joins, rows),
    )


def _notes(bench: _Bench, joins: dict[str, list[WindowJoin]], rows: list[PlanRow]) -> tuple[str, ...]:
    """Return notes for readers of the table."""
    cells = {(name, _label(join.budget)): join for name, row in joins.items() for join in row}
    divided = {
        name: row[0].policy.default_allocation(rates_known=True)
        for name, row in joins.items()
        if row[0].allocation is None and not row[0].policy.unified
    }

    def rerun(row: PlanRow, allocation: str) -> float:
        join = dataclasses.replace(cells[row.policy, row.budget], allocation=allocation)
        return join.run_arrivals(bench.arrivals(join), mean_row=bench.mean_row).stats.recall or 0.0

    found = (need_note(bench.need, bench.peak_need, rows), allocation_note(rows, divided, rerun))
    return tuple(note for note in found if note is not None)


class _Bench:
    """The arrivals, prepared once, and the runs made with them."""

    def __init__(self, arrivals: Arrivals, mean_row: float, window: Window, report: Report | None) -> None:
        self.sized = arrivals
        self.plain = dataclasses.replace(self.sized, size=np.empty(0, np.int64))
        self.mean_row = mean_row
        self.window = window
        self.report = report or (lambda done, total, label: None)
        self.done = self.total = 0

    def arrivals(self, join: WindowJoin) -> Arrivals:
        return self.sized if isinstance(join.budget, Bytes) else self.plain

    def size(self, join: WindowJoin) -> int:
        """Return the budget of a join in tuples or bytes, or raise a BudgetError."""
        config = join.configure(self.arrivals(join), self.mean_row)
        return join.budget.n if isinstance(join.budget, Bytes) else sum(config.capacities)

    def matches(self, join: WindowJoin) -> int:
        """Number of results of the exact join."""
        arrivals = join.suited(self.plain)
        counts = join.exact_counts(arrivals, join.within.resolve(arrivals.unit))
        return MOST_MATCHES + 1 if counts is None else int(counts.sum())

    @functools.cached_property
    def peak_need(self) -> int:
        """Maximum number of tuples that the exact join keeps at once."""
        return peak_need(self.plain, self.window.resolve(self.plain.unit))

    @property
    def need(self) -> int:
        """Tuples that the exact join keeps at the average rate; 0 if fewer than one per stream."""
        try:
            window = self.window.resolve(self.plain.unit)
            return in_tuples(Fraction(1.0), self.plain.per_stream, window, self.plain.span)
        except BudgetError:
            return 0

    @property
    def doubts(self) -> list[tuple[str, type[Warning]]]:
        """Return why the plan may mislead: times that look misread, or too short a sample."""
        found: list[tuple[str, type[Warning]]] = []
        unit = unit_doubt(self.window, self.plain.unit, self.plain.numbers, self.plain.stamped)
        if unit is not None:
            found.append((unit, UnitWarning))
        if self.need > len(self.plain):
            found.append(
                (
                    f"The sample is shorter than the window: at the average rate the exact join keeps "
                    f"{self.need:,} tuples, but the sample has {len(self.plain):,} rows. Recall on a longer "
                    f"stream may be lower. Use a longer sample, and check that the times are in "
                    f"{unit_word(self.plain.unit)}.",
                    ShortSampleWarning,
                )
            )
        return found

    def run(self, join: WindowJoin) -> PlanRow:
        name, label, size = join.policy.spell(), _label(join.budget), self.size(join)
        self.report(self.done, max(self.total, self.done + 1), f"{name}, {label}")
        stats = join.run_arrivals(self.arrivals(join), mean_row=self.mean_row).stats
        if stats.exact is None or stats.recall is None:
            raise PenstockError(
                f"The plan needs to know the exact join, but it has more than {MOST_PAIRS:,} pairs of equal "
                "keys to ask the condition about. Give a shorter sample."
            )
        self.done += 1
        in_bytes = isinstance(join.budget, Bytes)
        return PlanRow(
            policy=name,
            budget=label,
            tuples=None if in_bytes else size,
            bytes=size if in_bytes else None,
            results=stats.results,
            exact=stats.exact,
            recall=stats.recall,
            peak_tuples=stats.peak_tuples,
            peak_bytes=stats.peak_bytes,
            seconds=stats.seconds,
            unit=self.plain.unit,
            need=self.need,
            peak_need=self.peak_need,
            bound=join.policy.bound,
        )

    def finish(self) -> None:
        self.report(self.done, self.done, "done")


def _cells(
    joins: dict[str, list[WindowJoin]], bench: _Bench, skipped: dict[str, str], keep: bool
) -> list[WindowJoin]:
    """Return the joins to run, by policy and rising budget; raise if no policy can run in a budget."""
    sizes: dict[tuple[str, Budget], int] = {}
    problem: BudgetError | None = None
    for column in zip(*joins.values(), strict=True):
        errors = {}
        for join in column:
            try:
                sizes[join.policy.spell(), join.budget] = bench.size(join)
            except BudgetError as error:
                errors[join.policy.spell()] = problem = error
        if keep and len(errors) == len(column):
            raise next(iter(errors.values()))
        if len(errors) < len(column):
            budget = _label(column[0].budget)
            skipped.update({f"{name} in {budget}": str(error) for name, error in errors.items()})
    if problem is not None and not sizes:
        raise problem
    cells = [join for row in joins.values() for join in row if (join.policy.spell(), join.budget) in sizes]
    order = {name: number for number, name in enumerate(joins)}

    def place(join: WindowJoin) -> tuple[int, bool, int]:
        name = join.policy.spell()
        return order[name], isinstance(join.budget, Bytes), sizes[name, join.budget]

    return sorted(cells, key=place)


def _smallest(
    bench: _Bench,
    joins: dict[str, WindowJoin],
    rows: list[PlanRow],
    kind: type[Tuples] | type[Bytes],
    target: float,
) -> PlanRow | None:
    """Return the run with the smallest budget of a kind that reaches the target.

    It starts from the smallest budget of the grid at which any policy reaches the target, and bisects down to
    the next smaller one, one policy after the other; a later policy must first beat the best so far.
    """
    grid = [row for row in rows if (row.bytes is None) == (kind is Tuples) and not row.bound]
    reached = [row for row in grid if row.recall >= target]
    if not reached:
        return None
    high = min(row._size for row in reached)
    below = max((row._size for row in grid if row._size < high), default=1)
    candidates = sorted((row for row in reached if row._size == high), key=lambda row: -row.recall)
    best = dataclasses.replace(candidates[0], budget=_label(kind(high)))
    bench.total = bench.done + len(candidates) + math.ceil(math.log2(min(PRECISION, high)))
    for candidate in candidates:
        low, first = below, candidate is candidates[0]
        while (step := max(1, best._size // PRECISION)) < best._size - low:
            size = (low + best._size) // 2 if first else best._size - step
            first = True
            try:
                row = bench.run(dataclasses.replace(joins[candidate.policy], budget=kind(size)))
            except BudgetError:  # too few bytes for the tables of this policy
                low = size
                continue
            if row.recall >= target:
                best = row
            else:
                low = size
    return best


def _budgets(given: Any) -> list[Budget]:
    if given is None:
        return [Fraction(share) for share in SHARES]
    parts = [given] if isinstance(given, str | Tuples | Bytes | Fraction) else given
    if not isinstance(parts, Iterable):
        parts = [parts]
    budgets = list(dict.fromkeys(budget_of(part) for part in parts))
    if not budgets:
        raise BudgetError(
            "No budget was given; leave budgets out, or give some such as ['10 %', '2000 tuples']."
        )
    return budgets


def _policies(given: Any) -> tuple[list[Policy], dict[str, str]]:
    """Return the requested policies, or all that can run; and those that cannot, with the reason."""
    if given is None:
        given = ALL
    single = isinstance(given, str | Policy | type) or not isinstance(given, Iterable)
    parts: list[Any] = [given] if single else [*given]
    chosen, skipped = _all_policies() if ALL in parts else ([], {})
    wanted = [*chosen, *(get(part) for part in parts if part != ALL)]
    if not wanted:
        raise UnknownPolicyError("No policy was given; leave policies out for all of them.")
    chosen = list({policy.spell(): policy for policy in wanted}.values())
    chosen.sort(key=lambda policy: not policy.bound)  # the upper bound first
    for policy in chosen:
        skipped.pop(policy.name, None)
    return chosen, skipped


def _all_policies() -> tuple[list[Policy], dict[str, str]]:
    """Return all policies that can run; and those that cannot, with the reason."""
    chosen: list[Policy] = []
    skipped: dict[str, str] = {}
    for kind in registered():
        if kind.needs_model:
            skipped[kind.name] = "needs a model of the streams"
            continue
        try:
            policy = kind()
        except TypeError:
            skipped[kind.name] = "has options without defaults; name it with them"
            continue
        if policy.needs_future:
            skipped[kind.name] = "needs to know the future"
        else:
            chosen.append(policy)
    return chosen, skipped


def _label(budget: Budget) -> str:
    """Return a budget as text that `budget_of` parses."""
    if isinstance(budget, Fraction):
        return f"{100 * budget.share:.10g} %"
    text = str(budget)
    return text if budget_of(text) == budget else f"{budget.n} bytes"
