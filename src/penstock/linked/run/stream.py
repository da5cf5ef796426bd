"""A query over streams without an end: batches in, rows out, and the state as bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.arguments import flags
from penstock.budget import Bytes, Tuples
from penstock.engine.policy_race import Choice
from penstock.errors import BudgetError, ColumnError, PenstockError, SnapshotError
from penstock.joins.estimate import RecallEstimate
from penstock.linked.files import read_background
from penstock.linked.language.parser import parse_query
from penstock.linked.plan.plan import QueryPlan, plan_of
from penstock.linked.plan.sharding import partition_variable, restricted
from penstock.linked.plan.tree import Tree
from penstock.linked.run.caches import LinkedConfig
from penstock.linked.run.estimate import LEAST, PART
from penstock.linked.run.follower import row_bytes
from penstock.linked.run.operands import masks_of
from penstock.linked.run.prepare import joins_of
from penstock.linked.run.results import Known, project
from penstock.linked.run.state import LinkedOutput, LinkedState
from penstock.linked.run.whole import QueryOptions, check_options, in_bytes
from penstock.linked.terms import Terms
from penstock.linked.triples import Triples, triples_of
from penstock.states import snapshot as snapshots
from penstock.states.checks import looked_over

if TYPE_CHECKING:
    from penstock.columns import Table

VERSION, BEFORE = 3, 2  # of what a snapshot of a query holds
ROOM = 1 << 16  # rows that are held besides those in use
SAMPLE_SHARE = 0.1  # of a budget in bytes, for the estimate of recall
TEXT_BYTES = 96  # of the terms of a triple, about


@dataclass(frozen=True)
class StreamOptions:
    """How to run a query over batches, as given to `StreamQuery.start`."""

    text: str
    budget: Any
    policy: Any
    objects: str = "literal"
    unit: str = "ms"
    gain: tuple[float, float] = (1.0, 0.5)
    joins: Tree | None = None
    seed: int = 0
    shard: tuple[int, int] | None = None  # which of how many buckets, by the variable that all patterns have


class QueryState:
    """The state of a `StreamQuery` over streams without an end; `StreamQuery.start` makes one.

    Triples must come in order of time, across batches too.

    >>> import penstock as ps
    >>> text = "SELECT ?a ?b FROM STREAM w { ?a r ?x ?T . ?b r ?x ?U } CONTEXT (signed(?U - ?T) = 1)"
    >>> state = ps.StreamQuery.parse(text).start(budget=ps.Tuples(100))
    >>> state.process({"w": {"s": ["a"], "p": ["r"], "o": [5], "start": [0]}}).rows.num_rows
    0
    >>> copy = type(state).restore(state.snapshot())
    >>> copy.process({"w": {"s": ["b"], "p": ["r"], "o": [5.0], "start": [1]}}).rows.to_pylist()
    [{'a': 'a', 'b': 'b'}]
    """

    def __init__(self, options: StreamOptions) -> None:
        self.options, self.query = options, parse_query(options.text)
        budget, self.policy = check_options(
            QueryOptions(
                budget=options.budget,
                policy=options.policy,
                objects=options.objects,
                unit=options.unit,
                gain=options.gain,
                seed=options.seed,
            )
        )
        if not isinstance(budget, Tuples | Bytes):
            raise BudgetError(
                f"A stream needs a budget in tuples or bytes, for its length is unknown; {options.budget!r} "
                "was given."
            )
        self.budget: Tuples | Bytes = budget
        self.state: LinkedState | None = None
        self.planned = options.joins is not None  # whether it is known what is joined with what
        self.offsets = np.zeros(len(self.query.streams), np.int64)
        self.latest = -np.inf

    def process(
        self, streams: Mapping[str, Table], *, collect: bool = True, log: bool = False
    ) -> LinkedOutput:
        """Process a batch: a table for each stream, or for some of them. A refused one changes nothing."""
        flags(collect=collect, log=log)
        before, offsets = (self.state, self.latest, self.planned), self.offsets.copy()
        counted = None if self.state is None else (self.state.matched, self.state.unmatched)
        try:
            return self._process(streams, collect, log)
        except PenstockError:
            (self.state, self.latest, self.planned), self.offsets = before, offsets
            if self.state is not None and counted is not None:
                self.state.matched, self.state.unmatched = counted
            raise

    def _process(self, streams: Mapping[str, Table], collect: bool, log: bool) -> LinkedOutput:
        # As long as nothing has matched, all begins anew: the first triples decide what times are, too.
        # Background triples alone may have made results, which come once.
        empty = self.latest == -np.inf
        began = self.state is not None and ((self.planned and not empty) or self.state.results > 0)
        before = self.state if began else None
        terms = Terms() if before is None else before.terms
        if not isinstance(streams, Mapping):
            raise ColumnError(f"A batch is a dict of name to table; {type(streams).__name__} was given.")
        names = [name for name in self.query.streams if name in streams]
        foreign = set(streams) - set(self.query.streams)
        if foreign or not names:
            raise ColumnError(
                f"A batch has tables for the streams {', '.join(self.query.streams)}; given: "
                f"{', '.join(map(str, streams)) or 'none'}."
            )
        background = [] if before is not None else read_background(self.query.background)
        triples = triples_of(
            streams,
            names,
            terms,
            unit=self.options.unit,
            objects=self.options.objects,
            background=background,
            scale=None if self.state is None or (empty and not began) else self.state.config.scale,
            stamp_unit="us",
        )
        triples = self._numbered(triples, [self.query.streams.index(name) for name in names])
        plan = plan_of(self.query, triples.scale) if before is None else before.plan
        mask = masks_of(plan, triples, terms)
        variable = partition_variable(self.query)
        if self.options.shard is not None and variable is not None:
            mask = restricted(self.query, variable, triples, mask, terms, self.options.shard)
        if before is None:
            self._begin(plan, triples, mask, terms)
        state = self.state
        assert state is not None
        out = state.process(triples, collect=collect, log=log, mask=mask)
        if state.buffered is not None and len(state.buffered) > 2 * state.totals()["buffered"] + ROOM:
            state.compact()
        return out

    def _begin(self, plan: QueryPlan, triples: Triples, mask: np.ndarray, terms: Terms) -> None:
        """A fresh state, whose plan goes by the first batch in which anything matches."""
        tree = self.options.joins
        if tree is None:
            tree = joins_of(plan, triples, mask, terms)
        empty, self.state = self.state, LinkedState(self._config(triples, tree), terms)
        if empty is not None:
            self.state.unmatched = empty.unmatched
        self.planned = self.planned or bool((mask[triples.stream >= 0] != 0).any())

    def _numbered(self, triples: Triples, places: list[int]) -> Triples:
        """Rows numbered across batches, streams by their place in the query, and in order."""
        timed = triples.stream >= 0
        stream = np.where(timed, np.array([*places, -1])[triples.stream], -1)
        row = triples.row + np.where(timed, self.offsets[stream], 0)
        for place in places:
            self.offsets[place] += int(np.count_nonzero(stream == place))
        order = np.lexsort((row, stream, triples.start))
        start = triples.start[timed]
        if len(start):
            if start.min() < self.latest:
                raise ColumnError(
                    f"Triples must come in order of time, across batches too; {start.min():g} came after "
                    f"{self.latest:g}."
                )
            self.latest = float(start.max())
        return Triples(**(vars(triples) | {"stream": stream, "row": row})).take(order)

    def _config(self, triples: Triples, tree: Tree | None) -> LinkedConfig:
        options = self.options
        config = LinkedConfig(
            text=options.text,
            scale=triples.scale,
            policy=self.policy,
            limits=(1,),
            still=int(np.count_nonzero(triples.stream < 0)),
            joins=tree,
            gain=options.gain,
            seed=options.seed,
        )
        if isinstance(self.budget, Bytes):
            plan = config.plan()
            return in_bytes(self.budget, config, plan, row_bytes(plan) + TEXT_BYTES, SAMPLE_SHARE)
        return replace(config, limits=(self.budget.n,), sample_tuples=max(LEAST, self.budget.n // PART))

    @property
    def totals(self) -> dict[str, int]:
        """The counters since the start."""
        return {} if self.state is None else self.state.totals()

    @property
    def choice(self) -> Choice | None:
        """Which policy runs and what the others are estimated to achieve, where a policy is followed.

        >>> import penstock as ps
        >>> text = "SELECT ?a FROM STREAM w { ?a r ?x ?T . ?b r ?x ?U } CONTEXT ((?U - ?T) <= 1)"
        >>> state = ps.StreamQuery.parse(text).start(budget="1000 tuples")
        >>> out = state.process({"w": {"s": ["a"], "p": ["r"], "o": [5], "start": [0]}})
        >>> state.choice.policy
        'gdj'
        """
        return None if self.state is None else self.state.choice

    def empty(self) -> pa.Table:
        """A table of no rows."""
        terms = Terms()
        triples = triples_of(dict.fromkeys(self.query.streams, _NOTHING), self.query.streams, terms)
        plan = plan_of(self.query, triples.scale)
        return project(plan, Known(triples, triples.end, None), np.empty((0, plan.patterns), np.int64), terms)

    def adapt(self, options: StreamOptions) -> bool:
        """Go on under the budget and policy of these options, where those so far are others; whether it did.

        The triples that cached bindings refer to enter fresh caches in the order in which they came, so that
        a smaller budget evicts and scores begin anew; what they bring is known already.
        """
        if (options.budget, options.policy) == (self.options.budget, self.options.policy):
            return False
        fresh, old = QueryState(options), self.state
        self.options, self.policy, self.budget = options, fresh.policy, fresh.budget
        if old is None or old.buffered is None:  # a query of one pattern holds nothing
            return True
        old.follower, sample, old.sample = (
            None,
            old.sample,
            None,
        )  # what only they have is not needed any more
        old.compact()
        order = np.lexsort((old.buffered.row, old.buffered.stream, old.buffered.start))
        buffered = old.buffered.take(order)
        self.state, old.sample = LinkedState(self._config(buffered, old.config.joins), old.terms), sample
        self.state.process(buffered, collect=False, mask=old.buffered_mask[order])
        self.state.count_on_from(old)
        return True

    @property
    def recall(self) -> RecallEstimate:
        """The estimated share of the exact solutions that was found.

        It comes from a sample of the triples, kept beside those of the budget. It is unknown if the sample is
        too small to tell, and an upper bound once the query has gone on under another budget or policy.

        >>> import penstock as ps
        >>> text = "SELECT ?a ?b FROM STREAM w { ?a r ?x ?T . ?b r ?x ?U } CONTEXT (signed(?U - ?T) > 0)"
        >>> state = ps.StreamQuery.parse(text).start(budget=ps.Tuples(1), policy="fifo")
        >>> triples = {"s": [*"abcd"], "p": ["r"] * 4, "o": [5] * 4, "start": range(4)}
        >>> state.process({"w": triples}).rows.num_rows, state.missed, str(state.recall)
        (3, 3.0, '50.0 %')
        """
        return RecallEstimate(1.0) if self.state is None else self.state.recall()

    @property
    def missed(self) -> float | None:
        """Estimated number of solutions that the exact query has in addition; None if unknown."""
        return 0.0 if self.state is None else self.state.missed

    @property
    def variance(self) -> float:
        """The variance of `missed`; 0 while all triples are in the sample."""
        sample = None if self.state is None else self.state.sample
        return 0.0 if sample is None else sample.variance

    def guessed(self, late: int) -> float:
        """How many results triples would have had that came too late and were left out, at a guess.

        >>> import penstock as ps
        >>> text = "SELECT ?a FROM STREAM w { ?a r ?x ?T . ?b r ?x ?U } CONTEXT ((?U - ?T) <= 1)"
        >>> ps.StreamQuery.parse(text).start(budget="1000 tuples").guessed(late=3)
        0.0
        """
        sample = None if self.state is None else self.state.sample
        return 0.0 if sample is None or self.state is None else sample.guessed(late, self.state.matched)

    def snapshot(self) -> bytes:
        """The whole state as bytes: what cached tuples refer to, and no more."""
        state = self.state
        own = {
            "version": VERSION,
            "options": self.options,
            "offsets": self.offsets,
            "latest": self.latest,
            "planned": self.planned,
        }
        if state is None:
            return snapshots.pack(_EMPTY, None, None, own)
        state.compact()
        extra = own | {
            "held": None if state.buffered is None else vars(state.buffered),
            "mask": state.buffered_mask,
            "terms": state.terms.stored,
            "bounded": state.bounded,
            "counters": (state.late_dropped, state.single, state.matched, state.unmatched, state.seconds),
        }
        parts = (
            state.caches.parts,
            state.follower and state.follower.parts,
            state.sample and state.sample.parts,
        )
        return snapshots.pack(state.config, None, parts, extra)

    @classmethod
    def restore(cls, data: bytes) -> QueryState:
        """The state that `snapshot` gave; it goes on exactly as the original would have."""
        config, _, parts, extra = snapshots.unpack(data, object, object)
        options = extra.get("options")
        if not isinstance(options, StreamOptions) or not isinstance(config, LinkedConfig | _Empty):
            raise SnapshotError("The snapshot is of another operator: it has no options of a query.")
        with looked_over():
            found = extra.get("version", 1)
            if found not in (BEFORE, VERSION):
                raise SnapshotError(
                    f"The query's snapshot has version {found}; this Penstock reads {VERSION}."
                )
            restored = cls(options)
            restored.offsets, restored.latest = extra["offsets"], extra["latest"]
            restored.planned = extra["planned"]
            if isinstance(config, _Empty):
                return restored
            caches, follower, *sample = parts
            state = LinkedState(config, Terms.from_stored(extra["terms"]))
            if state.follower is not None:
                state.follower.parts = follower
                state.caches.running = state.follower.policy
            state.caches.parts = caches
            if state.sample is not None and sample and sample[0] is not None:
                state.sample.parts = sample[0]
            state.bounded = extra.get("bounded", False)
            state.buffered = None if extra["held"] is None else Triples(**extra["held"])
            state.buffered_mask = extra["mask"]
            (state.late_dropped, state.single, state.matched, state.unmatched, state.seconds) = extra[
                "counters"
            ]
            state.check_restored()
        restored.state = state
        return restored

    def check(self) -> None:
        """Assert every invariant."""
        if self.state is not None:
            self.state.check()


@dataclass(frozen=True)
class _Empty:
    """Stands for the config of a query that has seen nothing yet."""

    seen: int = 0


_EMPTY = _Empty()
_NOTHING = pa.table({name: pa.array([], pa.string()) for name in "spo"} | {"start": pa.array([], pa.int64())})
