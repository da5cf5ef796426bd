"""`WindowJoin`: the bounded sliding-window join of two streams, in process."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arguments import MOST_BYTES, flag, flags, number, one_of, probability, whole
from penstock.arrays import check_reach, exact_floats, time_dtype
from penstock.budget import Budget, Bytes, Fraction, Tuples, budget_of
from penstock.columns import Table
from penstock.compiler.tiers import expecting
from penstock.engine.exact_decided import exact_decided
from penstock.engine.exact_join import exact_counts
from penstock.engine.join_loop import Batch
from penstock.engine.store import LANDMARK, ROWS
from penstock.errors import BudgetError, PenstockError, UnknownPolicyError, hint
from penstock.joins.answers import WeighedInputs, WeighedResults
from penstock.joins.arrivals import Arrivals, arrivals_of
from penstock.joins.budgets import in_tuples, lost_bytes_of, lost_share_of, shares_of, with_byte_budget
from penstock.joins.conditions.parser import parse_condition
from penstock.joins.conditions.program import ConditionProgram, compile_condition
from penstock.joins.config import Config, behind_of, fitting
from penstock.joins.kinds import JoinKind, kind_of
from penstock.joins.late import LateWatch
from penstock.joins.sample_bias import CROWDED, unequal_shares, warn_biased
from penstock.joins.state import JoinState, Output, without_partner
from penstock.joins.stats import JoinRun, JoinStats
from penstock.joins.stream import StreamState
from penstock.payload import mean_row_bytes
from penstock.policies import get, names
from penstock.policies.base import Trace
from penstock.units import time_unit
from penstock.window import Resolved, Rows, UnitWatch, warn_unit, window_of

ALLOCATIONS = ("equal", "proportional", "unified")
STEPS = ("arrival", "tick")
DROPS = ("admission", "arrival")
EVENTS = ("evicted", "expired", "dropped", "late", "released", "undecided")


@dataclass(frozen=True)
class WindowJoin:
    """Joins two streams on equal keys within a window, in a fixed amount of memory.

    Parameters
    ----------
    within
        The window: a number in the unit of the time column or a duration (in both directions), a pair
        `(before, after)`, `Rows(n)` or `Landmark(every)`.
    budget
        `Tuples(n)`, `Bytes("64 MiB")` or `Fraction(0.2)`, for both streams together.
    policy
        The eviction policy: a name, a name with options, or a policy object. Default: `"auto"`.
    allocation
        `"unified"` is one pool for both streams, `"equal"` halves the budget, and `"proportional"` divides
        it by arrival rate. Default: `"unified"`. For a policy that cannot manage one pool (`age`) the default
        is `"proportional"`, or `"equal"` if `start` is not given the rates.
    step
        `"arrival"`: process one arrival at a time. `"tick"`: process all arrivals of a timestamp at once.
    drop_rate
        The probability that an arrival is not admitted, or `"unbiased"`: the rate at which a FIFO or GDJ
        buffer needs no eviction and the results are an unbiased sample. This assumes constant rates and, for
        drops at admission, that both streams are kept equally: a budget divided by rate (`"proportional"`,
        `"unified"`) and a symmetric window. If that does not hold, a `BiasedSampleWarning` is issued;
        `policy="sample"` needs none of it.
    drop_at
        `"admission"`: a dropped arrival still probes. `"arrival"`: it does not.
    warmup
        Results of this many first steps are not counted.
    seed
        Seed for `rand`, `sample` and drops.
    how
        `"inner"`, `"left"`, `"right"`, `"full"`, `"left_semi"` or `"left_anti"`. Every row that comes out is
        a row of the exact join: a row without a partner comes out once it is certain that it has none. If it
        is evicted before that, or a partner may have been, it is `undecided`.
    where
        A condition beyond the keys on both rows of a pair, such as
        `"left.price < right.price and right.side in ('buy', 'sell')"`: comparison, arithmetic, `and or not`,
        `in`, `is null`, as in Spark SQL with ANSI on. Pairs that fail it are no results and earn nothing.
    matches
        `"all"`: every match is a result. `"once"`: a left row joins the first right row that fits, and leaves
        memory. `"one-to-one"`: both leave.

    Examples
    --------
    >>> import penstock as ps
    >>> impressions = {"ad": ["a", "b", "a"], "ts": [0, 1_000, 2_000]}
    >>> clicks = {"ad": ["a", "b"], "ts": [2_500, 90_000]}
    >>> join = ps.WindowJoin(within="1 minute", budget=ps.Tuples(1_000), policy="gdj")
    >>> run = join.run(impressions, clicks, on="ad", time="ts", collect=True)
    >>> run.stats.results, run.stats.recall
    (2, 1.0)
    >>> run.pairs.to_pydict()
    {'left_row': [0, 2], 'right_row': [0, 0]}

    Impressions without a click, too:

    >>> outer = ps.WindowJoin(within="1 minute", budget=ps.Tuples(1_000), policy="gdj", how="left")
    >>> run = outer.run(impressions, clicks, on="ad", time="ts", collect=True)
    >>> run.stats.results, run.stats.unmatched, run.stats.undecided
    (2, 1, 0)
    >>> run.pairs.to_pydict()
    {'left_row': [0, 2, 1], 'right_row': [0, 0, None]}
    """

    within: Any
    budget: Budget
    policy: Any = "auto"
    allocation: str | None = None
    step: str = "arrival"
    drop_rate: float | str = 0.0
    drop_at: str = "admission"
    warmup: int = 0
    seed: int = 0
    how: str = "inner"
    matches: str = "all"
    where: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "within", window_of(self.within))
        object.__setattr__(self, "budget", budget_of(self.budget))
        object.__setattr__(self, "policy", get(self.policy))
        for option, allowed in (("allocation", ALLOCATIONS), ("step", STEPS), ("drop_at", DROPS)):
            given = getattr(self, option)
            if given is not None or option != "allocation":
                one_of(option, given, allowed)
        if not self.policy.joins:
            raise UnknownPolicyError(f"{self.policy.name} is for caches, not for joins{hint('', names())}")
        self.policy.check_joins()
        if self.allocation == "unified" and not self.policy.unified:
            raise UnknownPolicyError(
                f"{self.policy.name} cannot manage one pool for both streams; use allocation='equal' or "
                "'proportional'."
            )
        object.__setattr__(self, "how", self.kind.how)
        if self.where is not None:
            parse_condition(self.where)
        self._check_kind()
        if self.step == "tick" and not self.policy.ticks:
            raise UnknownPolicyError(
                f"{self.policy.name} cannot run with step='tick', in which arrivals match before they are "
                "kept; use step='arrival'."
            )
        _check_drop_rate(self.drop_rate)
        if self.policy.bound and self.drop_at == "arrival" and self.drop_rate != 0:
            raise UnknownPolicyError(
                f"{self.policy.name} plans with every arrival in advance, so it cannot run with "
                "drop_at='arrival'; use drop_at='admission' or no drops."
            )
        for option in ("warmup", "seed"):
            whole(option, getattr(self, option))
        if isinstance(self.budget, Tuples):
            in_tuples(self.budget, (0, 0), Resolved(0, (0, 0), 0), 0)
        if self.policy.weighs_results:
            self._check_weighed()

    def _check_weighed(self) -> None:
        """Reject kinds of joins whose rows are not all pairs: a sample cannot weigh them."""
        for option, plain in (("how", "inner"), ("matches", "all")):
            given = getattr(self, option, plain)
            if given != plain:
                raise UnknownPolicyError(
                    f"{self.policy.name} estimates inner joins with all matches; {option}={given!r} was "
                    f"given. Use {option}={plain!r}, or another policy."
                )

    @property
    def kind(self) -> JoinKind:
        """What comes out.

        >>> import penstock as ps
        >>> ps.WindowJoin(within=5, budget=ps.Tuples(4), how="leftouter").kind
        JoinKind(how='left', matches='all')
        """
        return kind_of(self.how, self.matches)

    def _check_kind(self) -> None:
        """Reject what cannot be combined with anything but the plain inner join."""
        if self.kind.plain and self.where is None:
            return
        given = f"how={self.how!r}" if self.how != "inner" else f"matches={self.matches!r}"
        if self.kind.plain:
            given = f"where={self.where!r}"
        if self.step == "tick":
            raise PenstockError(f"step='tick' cannot be combined with {given}; use step='arrival'.")
        if self.policy.bound:
            raise UnknownPolicyError(
                f"{self.policy.name} maximises the results of the inner join; it cannot be combined with "
                f"{given}."
            )
        if self.kind.plain:
            return
        if self.drop_at == "arrival" and self.drop_rate != 0 and isinstance(self.within, Rows):
            raise PenstockError(
                f"drop_at='arrival' cannot be combined with {given} and a window of rows, which would be "
                "other rows than those of the exact join; use drop_at='admission'."
            )

    def run(
        self,
        left: Table,
        right: Table,
        *,
        on: Any,
        time: Any,
        unit: str = "ms",
        collect: bool = False,
        log: bool = False,
    ) -> JoinRun:
        """Join two whole streams.

        `on` is a column name, several names, or pairs `(left name, right name)`; `time` is a name or a pair.
        `on=()` compares no keys: every arrival looks at all of the other stream's buffer, O(buffer).
        `unit` is the unit of numeric time columns. `collect=True` returns the pairs as row numbers of the
        inputs; `log=True` returns when each tuple entered and left, and why.

        >>> import penstock as ps
        >>> left = {"key": [1, 1, 2], "ts": [0, 1, 2]}
        >>> right = {"id": [1, 2], "at": [3, 4]}
        >>> join = ps.WindowJoin(within=(0, 10), budget=ps.Tuples(2), policy="fifo")
        >>> join.run(left, right, on=[("key", "id")], time=("ts", "at")).stats.results
        2
        """
        flags(collect=collect, log=log)
        sized = isinstance(self.budget, Bytes)
        arrivals = arrivals_of(left, right, on, time, unit, sized, keyless=True, where=self.where)
        warn_unit(self.within, arrivals.unit, arrivals.numbers, arrivals.stamped)
        mean_row = (mean_row_bytes(left) + mean_row_bytes(right)) / 2
        run = self.run_arrivals(arrivals, collect=collect, log=log, mean_row=mean_row)
        return run if run.weighed is None else run.with_inputs(WeighedInputs.of(left, right, on))

    def run_arrivals(
        self,
        arrivals: Arrivals,
        *,
        collect: bool = False,
        log: bool = False,
        mean_row: float = 0.0,
        keep: np.ndarray | None = None,
    ) -> JoinRun:
        """Join arrivals that are already in processing order (see `penstock.joins.arrivals_of`).

        `keep` holds precomputed decisions for the policy `opt`: per arrival, the step it is kept to.
        """
        arrivals = self.suited(arrivals)
        config = self.configure(arrivals, mean_row)
        trace = None
        if config.policy.needs_future:
            trace = arrivals.trace(config.window.kind, config.step, keep)
        state, parts = self._process(arrivals, config, trace, collect=collect, log=log)
        warn_biased(unequal_shares(config) or (CROWDED if state.crowded else None), stacklevel=3)
        counts = np.concatenate([part.counts for part in parts])
        exact = self.exact_counts(arrivals, config.window)
        state.check_answered()
        nulls = self._without_key(arrivals)
        totals = state.totals()
        totals["unmatched"] += len(nulls)
        for part in parts:
            _count_unmatched(counts, arrivals, part.unmatched)
        stats = JoinStats(
            **totals,
            exact=None if exact is None else int(exact.sum()) + len(nulls),
            null_keys=arrivals.nulls,
            peak_bytes=state.peak_bytes,
            seconds=state.seconds,
            choice=state.choice,
            _histograms=(arrivals.key, counts, exact),
        )
        weighed = None
        if config.policy.weighs_results:
            weighed = WeighedResults(
                lost={"dropped": stats.dropped, "larger than their buffer": stats.oversize},
                collect=lambda: parts if collect else self._process(arrivals, config, None, collect=True)[1],
            )
        pairs = _pairs(parts, nulls) if collect else None
        return JoinRun(stats, pairs, _events(parts) if log else None, weighed)

    def _process(
        self,
        arrivals: Arrivals,
        config: Config,
        trace: Trace | None,
        *,
        collect: bool,
        log: bool = False,
    ) -> tuple[JoinState, list[Output]]:
        """Process all arrivals; return the state after the last one, and the output."""
        key, labels = arrivals.valued() if config.policy.reads_values else (arrivals.key, None)
        places = None
        if config.policy.sees_places:  # the list grows with the keys, which a byte budget does not allow
            key, places = arrivals.placed(listed=not isinstance(self.budget, Bytes))
        state = JoinState(config, trace, labels, places)
        state.warns = False  # one warning for the whole run, below
        state.lists_unmatched = True
        size = arrivals.size if len(arrivals.size) else None
        with expecting(len(key)):
            state.warm()
            parts = [
                state.process(
                    arrivals.stream,
                    key,
                    arrivals.time,
                    arrivals.row,
                    size,
                    columns=None if arrivals.condition is None else arrivals.condition.leaves,
                    collect=collect,
                    log=log,
                ),
                state.finish(collect=collect, log=log),
            ]
        return state, parts

    def _without_key(self, arrivals: Arrivals) -> np.ndarray:
        """Return stream and row of the rows that come out because their key is null."""
        rows = [
            np.stack([np.full(len(null), side), null], axis=1)
            for side, null in enumerate(arrivals.null_rows)
            if self.kind.preserved[side]
        ]
        return np.concatenate([np.empty((0, 2), np.int64), *rows])

    def suited(self, arrivals: Arrivals) -> Arrivals:
        """Return the arrivals, with float times if a landmark period is not a whole number of their unit."""
        window = self.within.resolve(arrivals.unit)
        if window.kind == LANDMARK and not float(window.horizons[0]).is_integer():
            return dataclasses.replace(arrivals, time=exact_floats(arrivals.time, "The time column"))
        return arrivals

    def start(
        self,
        *,
        unit: str = "ms",
        dtype: Any = np.int64,
        rates: tuple[float, float] | None = None,
        row_bytes: float = 64.0,
        lateness: Any = None,
        sketch_bytes: int = 1 << 16,
        numeric: bool = True,
        columns: Any = None,
    ) -> JoinState:
        """Return a state that takes arrivals in batches, for unbounded streams.

        `rates` are the arrivals of each stream per unit of time; allocation, drop rate or policy may need
        them. `row_bytes` is a hint at the average payload in bytes: tables follow the rows' real sizes,
        but where they cannot grow they are sized by it under a byte budget (see docs/semantics.md). A
        `Fraction` cannot be used, because the exact need is not known in advance.

        Arrivals must be in order of time unless `lateness` is given, as a span or one per stream. Then each
        stream has its own progress, which stays that far behind its largest time. Late arrivals are
        processed, and the number of exact results is estimated from a sketch of `sketch_bytes` bytes (see
        `StreamState`).

        Keys are whole numbers, and `learned` and `auto` use the distances between them. `numeric=False` says
        that the keys are codes whose order means nothing.

        With `where=`, `columns` is a pair (left, right) of Arrow schemas, or of dicts from names to Arrow
        types, and `process` takes the columns of each batch.

        >>> import penstock as ps
        >>> state = ps.WindowJoin(within=10, budget=ps.Tuples(100), policy="lru").start()
        >>> state.process([0, 1], [5, 5], [0, 1], [0, 0]).counts.tolist()
        [0, 1]
        """
        state = self.new_state(
            unit=unit,
            dtype=dtype,
            rates=rates,
            row_bytes=row_bytes,
            lateness=lateness,
            sketch_bytes=sketch_bytes,
            numeric=numeric,
            columns=columns,
        )
        warn_biased(unequal_shares(state.config), stacklevel=2)
        state.unit_watch = UnitWatch(self.within, unit)
        if lateness is not None:
            state.late_watch = LateWatch()
        return state

    def new_state(
        self,
        *,
        unit: str,
        dtype: Any,
        rates: tuple[float, float] | None,
        row_bytes: float,
        lateness: Any,
        sketch_bytes: int,
        numeric: bool,
        columns: Any = None,
    ) -> JoinState:
        """Return what `start` returns, without warnings: the driver warns, not every worker."""
        if isinstance(self.budget, Fraction):
            raise BudgetError(
                f"{self.budget!r} is a share of what the whole input needs, which is not known for a stream; "
                "give Tuples or Bytes."
            )
        if self.policy.needs_future:
            raise UnknownPolicyError(
                f"{self.policy.spell()} needs the whole stream before it starts; it works with run() only."
            )
        if rates is None and (self.allocation == "proportional" or self.drop_rate == "unbiased"):
            raise PenstockError(
                "allocation='proportional' and drop_rate='unbiased' need rates=(left, right), the arrivals "
                "of each stream per unit of time."
            )
        if rates is not None:
            check_rates(rates)
            if self.drop_rate == "unbiased" and not min(rates) > 0:
                raise PenstockError(
                    f"rates={rates!r} is not allowed with drop_rate='unbiased', which divides by them; give "
                    "the arrivals of each stream per unit of time, above 0."
                )
        for option, given in (("row_bytes", row_bytes), ("sketch_bytes", sketch_bytes)):
            number(option, given, 0, MOST_BYTES, what="a number of bytes from 0 up")
        numeric = flag("numeric", numeric)
        window = self.within.resolve(time_unit(unit))
        dtype = time_dtype(dtype)
        config = self._config(
            window,
            dtype,
            rates,
            rates or (1, 1),
            0.0,
            row_bytes,
            None if lateness is None else behind_of(lateness, unit, window),
            sketch_bytes,
            self._compiled(columns),
        )
        config = dataclasses.replace(config, numeric=numeric)
        if lateness is None:
            return JoinState(config)
        if self.step == "tick":
            raise PenstockError("step='tick' needs arrivals in order; leave out lateness=.")
        return StreamState(config)

    def configure(self, arrivals: Arrivals, mean_row: float = 0.0) -> Config:
        """Resolve window and budget for an input."""
        window = self.within.resolve(arrivals.unit)
        if window.kind != ROWS and len(arrivals):
            horizons = fitting(window, arrivals.time.dtype).horizons
            check_reach(arrivals.time[0].item(), arrivals.time[-1].item(), horizons)
        left, right = arrivals.per_stream
        span = arrivals.span
        rates = (left / span, right / span) if span > 0 else (float(left), float(right))
        if len(arrivals.size):
            mean_row = float(arrivals.size.mean())
        program = None if arrivals.condition is None else arrivals.condition.program
        dtype = arrivals.time.dtype
        return self._config(window, dtype, rates, (left, right), span, mean_row, where=program)

    def _compiled(self, columns: Any) -> ConditionProgram | None:
        """Return the condition for columns of these types."""
        if self.where is None:
            if columns is not None:
                raise PenstockError("columns= is for joins with where=.")
            return None
        types = [
            dict(zip(side.names, side.types, strict=True)) if isinstance(side, pa.Schema) else side
            for side in (columns if isinstance(columns, tuple | list) else ())
        ]
        if len(types) != 2 or not all(isinstance(side, Mapping) for side in types):
            raise PenstockError(
                "With where=, start needs columns=(left, right): the Arrow schemas of both streams, or dicts "
                "from column names to Arrow types."
            )
        return compile_condition(self.where, types)

    def _config(
        self,
        window: Resolved,
        dtype: np.dtype,
        rates: tuple[float, float] | None,
        weights: tuple[float, float],  # arrivals per stream, or rates
        span: float,
        mean_row: float,
        lateness: tuple[float, ...] | None = None,
        sketch_bytes: int = 0,
        where: ConditionProgram | None = None,
    ) -> Config:
        config = Config(
            window=fitting(window, dtype),
            policy=self.policy,
            step=self.step,
            time_dtype=np.dtype(np.int64) if window.kind == ROWS else dtype,
            input_dtype=dtype,
            capacities=(1, 1),
            shed=self.drop_at == "arrival",
            unbiased=self.drop_rate == "unbiased",
            warmup=int(self.warmup),
            seed=int(self.seed),
            rates=(1.0, 1.0) if window.kind == ROWS else rates,
            mean_row=mean_row,
            lateness=lateness,
            sketch_bytes=0 if lateness is None else sketch_bytes,
            kind=self.kind,
            where=where,
        )
        allocation = self.allocation or self.policy.default_allocation(rates_known=rates is not None)
        if isinstance(self.budget, Bytes):
            config = dataclasses.replace(config, lost_bytes=lost_share_of(self.kind, self.budget))
            config = with_byte_budget(config, self.budget, allocation, weights)
        else:
            tuples = in_tuples(self.budget, weights, window, span)
            config = dataclasses.replace(
                config,
                capacities=shares_of(tuples, allocation, weights),
                lost_bytes=lost_bytes_of(self.kind, tuples),
            )
        return dataclasses.replace(config, chances=self._chances(config, weights))

    def _chances(self, config: Config, weights: tuple[float, float]) -> tuple[float, float]:
        """Return the drop probability per stream."""
        if self.drop_rate != "unbiased":
            return float(self.drop_rate), float(self.drop_rate)
        tuples = [float(capacity) for capacity in config.capacities]
        rates = config.rates or weights
        length = config.window.horizons if config.window.kind != ROWS else (config.window.length,) * 2
        need = [rate * horizon for rate, horizon in zip(rates, length, strict=True)]
        if len(tuples) == 1:  # one pool: each stream has the share that it needs
            tuples = [tuples[0] * share / (sum(need) or 1) for share in need]
        left, right = (max(0.0, 1.0 - b / n) if n > 0 else 0.0 for b, n in zip(tuples, need, strict=True))
        return left, right

    def exact_counts(self, arrivals: Arrivals, window: Resolved) -> np.ndarray | None:
        """Return the rows of the exact join per arrival, without those of the warm-up and of null keys.

        Results count for the arrival that completes them, rows without a partner for their own. None if there
        are too many pairs of equal keys to ask the condition about all of them.
        """
        if arrivals.condition is not None:
            horizons = np.array(window.horizons, np.int64 if window.kind == ROWS else arrivals.time.dtype)
            return arrivals.condition.exact_counts(
                Batch(arrivals.stream, arrivals.key, arrivals.time, arrivals.row, arrivals.row[:0]),
                arrivals.keys,
                (window.kind, horizons),
                self.kind.rules(together=True, conditional=True),
                self.warmup,
            )
        if not self.kind.plain:
            return exact_decided(
                arrivals.stream,
                arrivals.key,
                arrivals.time,
                arrivals.keys,
                window.kind,
                np.array(window.horizons, np.int64 if window.kind == ROWS else arrivals.time.dtype),
                self.kind.rules(together=True),
                self.warmup,
            )
        counts = exact_counts(
            arrivals.stream,
            arrivals.key,
            arrivals.time,
            arrivals.keys,
            window.kind,
            np.array(window.horizons, np.int64 if window.kind == ROWS else arrivals.time.dtype),
            self.step == "tick",
        )
        if self.warmup and len(arrivals):
            counts[arrivals.steps(self.step) < self.warmup] = 0
        return counts


def check_rates(rates: Any) -> None:
    """Reject anything but a pair of rates.

    >>> from penstock.joins.window import check_rates
    >>> check_rates((2.5, 1))
    """
    try:
        left, right = (float(rate) for rate in rates)
    except (TypeError, ValueError):
        left = right = -1.0
    if not (0 <= left < math.inf and 0 <= right < math.inf):
        raise PenstockError(
            f"rates={rates!r} is not allowed; give a pair (left, right) of arrivals per unit of time."
        )


def _check_drop_rate(given: Any) -> None:
    if not isinstance(given, str) or given != "unbiased":
        probability("drop_rate", given, also=", or 'unbiased'")


def _pairs(parts: list[Output], nulls: np.ndarray) -> pa.Table:
    pairs = np.concatenate([*(part.pairs for part in parts), without_partner(nulls)])
    rows = [pa.array(pairs[:, side], mask=pairs[:, side] < 0) for side in (0, 1)]
    return pa.table({"left_row": rows[0], "right_row": rows[1]})


def _count_unmatched(counts: np.ndarray, arrivals: Arrivals, unmatched: np.ndarray) -> None:
    """Count rows that came out without a partner for their own arrivals."""
    for side in (0, 1):
        rows = unmatched[unmatched[:, 0] == side, 1]
        if len(rows):
            mine = np.flatnonzero(arrivals.stream == side)
            place = np.empty(int(arrivals.row[mine].max()) + 1, np.int64)
            place[arrivals.row[mine]] = mine
            counts[place[rows]] += 1


def _events(parts: list[Output]) -> pa.Table:
    log = np.concatenate([part.log for part in parts])
    return pa.table(
        {
            "event": pa.array(np.array(EVENTS)[log[:, 0]]),
            "stream": pa.array(np.array(["left", "right"])[log[:, 1]]),
            "row": log[:, 2],
            "step": log[:, 3],
        }
    )
