"""The statistics of a join run: counts, recall and distortion."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.arguments import one_of
from penstock.engine.policy_race import Choice
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.joins.answers import WeighedInputs, WeighedResults
    from penstock.joins.weighted_sums import Estimate


@dataclass(frozen=True)
class Distortion:
    """The distance of the results' key distribution from that of the exact join (section 5.4 of GDJ).

    `sse` is the sum of squared differences of the normalised histograms, `kl` the Kullback-Leibler
    divergence of the results from the exact ones, in nats.

    >>> import penstock as ps
    >>> ps.Distortion(sse=0.0, kl=0.0)
    Distortion(sse=0.0, kl=0.0)
    """

    sse: float
    kl: float


@dataclass(frozen=True)
class JoinStats:
    """Counts of a run; arrivals = buffered + expired + evicted + dropped + released.

    `results` counts pairs, or left rows in a semi join. `unmatched` counts rows that came out without a
    partner, and `undecided` those of which it is not known whether they have one. `exact` counts all rows of
    the exact join.
    """

    results: int
    exact: int | None  # None: unknown, as there are too many pairs of equal keys to ask a condition about
    same_tick: int
    arrivals: int
    buffered: int
    expired: int
    evicted: int
    refused: int
    oversize: int
    dropped: int
    released: int
    unmatched: int
    undecided: int
    null_keys: tuple[int, int]
    peak_tuples: int
    peak_bytes: int
    seconds: float
    choice: Choice | None  # if the policy follows others
    _histograms: tuple[np.ndarray, np.ndarray, np.ndarray | None] = field(repr=False, compare=False)

    def _known_histograms(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Keys, results and exact results per arrival."""
        key, found, exact = self._histograms
        if exact is None:
            raise PenstockError(
                "The exact join is not known: it has too many pairs of equal keys to ask the condition about "
                "all of them. Use a shorter input."
            )
        return key, found, exact

    @property
    def recall(self) -> float | None:
        """The share of the exact join's rows that came out; 1 if there are none, None if it is not known.

        >>> import penstock as ps
        >>> data = {"key": [1, 2], "ts": [0, 1]}
        >>> join = ps.WindowJoin(within=5, budget=ps.Tuples(4), policy="lru")
        >>> join.run(data, data, on="key", time="ts").stats.recall
        1.0
        """
        if self.exact is None:
            return None
        return (self.results + self.unmatched) / self.exact if self.exact else 1.0

    def recalls(self, every: int) -> np.ndarray:
        """Return the recall in the course of the run: one per `every` arrivals; the last may cover fewer.

        >>> import penstock as ps
        >>> data = {"key": [1, 1, 2, 3], "ts": [0, 1, 2, 3]}
        >>> join = ps.WindowJoin(within=5, budget=ps.Tuples(2), policy="fifo")
        >>> join.run(data, data, on="key", time="ts").stats.recalls(every=4).tolist()
        [0.75, 1.0]
        """
        if isinstance(every, bool) or not isinstance(every, int | np.integer) or every < 1:
            raise PenstockError(f"every={every!r} is not allowed; it is a number of arrivals from 1 up.")
        _, found, exact = self._known_histograms()
        first = np.arange(0, len(exact), every)
        if len(first) == 0:
            return np.empty(0)
        found, exact = (np.add.reduceat(counts, first) for counts in (found, exact))
        return np.where(exact > 0, found / np.maximum(exact, 1), 1.0)

    @cached_property
    def _distortion(self) -> Distortion:
        key, found, exact = self._known_histograms()
        size = int(key.max(initial=-1)) + 1
        return distortion_of(
            np.bincount(key, weights=found, minlength=size), np.bincount(key, weights=exact, minlength=size)
        )

    def distortion(self, measure: str | None = None) -> Any:
        """Return the distortion of the results' key histogram, or one measure of it (`"sse"`, `"kl"`).

        >>> import penstock as ps
        >>> data = {"key": [1, 2], "ts": [0, 1]}
        >>> join = ps.WindowJoin(within=5, budget=ps.Tuples(4), policy="lru")
        >>> join.run(data, data, on="key", time="ts").stats.distortion("sse")
        0.0
        """
        if measure is None:
            return self._distortion
        one_of("measure", measure, ("sse", "kl"))
        return getattr(self._distortion, measure)

    def as_dict(self) -> dict[str, Any]:
        """Return the counts by name, including recall.

        >>> import penstock as ps
        >>> data = {"key": [1, 2], "ts": [0, 1]}
        >>> join = ps.WindowJoin(within=5, budget=ps.Tuples(4), policy="lru")
        >>> join.run(data, data, on="key", time="ts").stats.as_dict()["recall"]
        1.0
        """
        named = {f.name: getattr(self, f.name) for f in fields(self) if not f.name.startswith("_")}
        return named | {"recall": self.recall}


def distortion_of(found: np.ndarray, exact: np.ndarray) -> Distortion:
    """Return the distortion between two histograms over the same keys.

    >>> import numpy as np
    >>> from penstock.joins.stats import distortion_of
    >>> distortion_of(np.array([1.0, 1.0]), np.array([3.0, 1.0])).sse
    0.125
    """
    if exact.sum() == 0:
        return Distortion(0.0, 0.0)
    if found.sum() == 0:
        return Distortion(float((exact / exact.sum()) @ (exact / exact.sum())), float("inf"))
    p, q = found / found.sum(), exact / exact.sum()
    some = p > 0
    return Distortion(float(((p - q) ** 2).sum()), float((p[some] * np.log(p[some] / q[some])).sum()))


@dataclass(frozen=True)
class JoinRun:
    """The outcome of `WindowJoin.run`: its stats, and the pairs if collected."""

    stats: JoinStats
    pairs: pa.Table | None
    events: pa.Table | None = None  # when tuples entered and left, with log=True
    weighed: WeighedResults | None = field(default=None, repr=False, compare=False)

    def with_inputs(self, inputs: WeighedInputs) -> JoinRun:
        """Return the same run, which knows the columns of its inputs."""
        assert self.weighed is not None
        return replace(self, weighed=replace(self.weighed, inputs=inputs))

    def estimate(
        self, what: str, column: str | None = None, *, by: Any = None, confidence: float = 0.95
    ) -> Estimate | pa.Table:
        """Estimate a count, sum or mean over the exact results, from a run with `policy="sample"`.

        Parameters
        ----------
        what
            `"count"`, `"sum"` or `"mean"`.
        column
            The column to sum up or average: `"left.amount"`, `"right.amount"`, or bare if only one side has
            it. Rows without a value do not count. With `"count"`, the results that have a value are counted.
        by
            One or more columns to group by.
        confidence
            The probability with which the interval covers the exact answer.

        Returns
        -------
        An object with `value`, `lower`, `upper`, `variance` and `std_error`. With `by`, an Arrow table with a
        row per group that has results: the columns of `by`, `value`, `lower`, `upper` and `std_error`.

        Estimates of counts and sums are unbiased. Intervals are wider on the side where few rows with large
        values make up most of the variance. If the run did not collect its results (`collect=True`), the join
        runs once more, to find them.

        Examples
        --------
        >>> import penstock as ps
        >>> orders = {"id": list(range(300)), "ts": list(range(300))}
        >>> payments = orders | {"amount": [10.0] * 300}
        >>> join = ps.WindowJoin(within=100, budget=ps.Tuples(30), policy="sample", seed=1)
        >>> run = join.run(orders, payments, on="id", time="ts")
        >>> found = run.estimate("sum", "amount")
        >>> found.lower < 3_000 < found.upper
        True
        """
        if self.weighed is None:
            raise PenstockError(
                'Only a run with policy="sample" can estimate: results under other policies have no weights.'
            )
        return self.weighed.estimate(what, column, by, confidence)
