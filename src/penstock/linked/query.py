"""`StreamQuery`: a continuous query over streams of timed triples."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.linked.language.nodes import Query
from penstock.linked.language.parser import parse_query

if TYPE_CHECKING:
    from penstock.columns import Table
    from penstock.linked.plan.plan import QueryPlan
    from penstock.linked.run.stats import LinkedRun
    from penstock.linked.run.stream import QueryState


class UnboundedContextWarning(UserWarning):
    """The context of a query lets some triples never expire."""


@dataclass(frozen=True)
class StreamQuery:
    """A query for triples of one or several streams that match in their terms and in their times.

    Examples
    --------
    Sensors that report the same wind speed within 200 ms (listing 1 of the CLOCK paper):

    >>> import penstock as ps
    >>> query = ps.StreamQuery.parse('''
    ...     SELECT ?sensor1, ?sensor2 FROM STREAM windSpeed
    ...     WHERE {
    ...         ?sensor1 reports ?windSpeed ?T1 .
    ...         ?sensor2 reports ?windSpeed ?T2 .
    ...         FILTER (?sensor1 != ?sensor2) .
    ...         FILTER (?windSpeed >= 10^^xsd:int) .
    ...     }
    ...     CONTEXT ((?T1 - ?T2) <= 200^^xsd:millisecond) .''')
    >>> readings = {
    ...     "s": ["a", "b", "c", "d"],
    ...     "p": ["reports"] * 4,
    ...     "o": [12, 12, 7, 12],
    ...     "start": [0, 100, 150, 250],
    ... }
    >>> run = query.run({"windSpeed": readings}, budget=ps.Tuples(10), policy="clock")
    >>> run.rows.to_pylist()[0], run.stats.results
    ({'sensor1': 'b', 'sensor2': 'a'}, 4)
    """

    text: str
    query: Query

    @classmethod
    def parse(cls, text: str) -> StreamQuery:
        """Parse a query from its text.

        >>> import penstock as ps
        >>> ps.StreamQuery.parse("SELECT ?s FROM STREAM w WHERE { ?s reports ?v ?T }").streams
        ('w',)
        """
        return cls(text, parse_query(text))

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that the query reads.

        >>> import penstock as ps
        >>> ps.StreamQuery.parse("SELECT ?s FROM STREAM w, v WHERE { ?s reports ?v ?T }").streams
        ('w', 'v')
        """
        return self.query.streams

    @property
    def columns(self) -> list[str]:
        """The columns of its rows.

        >>> import penstock as ps
        >>> ps.StreamQuery.parse("SELECT * FROM STREAM w WHERE { ?s reports ?v ?T }").columns
        ['s', 'v', 'T']
        """
        return [item.name for item in self.query.items]

    def explain(self, unit: str = "ms", rates: Sequence[float] | None = None, joins: Any = None) -> str:
        """Return the plan as text: caches, joins, when triples expire, and where conditions are checked.

        Patterns are joined in the order of the text unless `rates` or `joins` are given, as for `start`.

        >>> import penstock as ps
        >>> text = "SELECT * FROM STREAM w { ?a r ?x ?T . ?b r ?x ?U } CONTEXT ((?T - ?U) <= 5)"
        >>> print(ps.StreamQuery.parse(text).explain())
        SELECT ?a ?x ?b ?T ?U from w
        cache 1: ?a <r> ?x ?T, shared with ?b <r> ?x ?U
          a triple expires 5 ms after its start
        join 1: ?a <r> ?x ?T with ?b <r> ?x ?U on ?x
          every pair: abs((?T - ?U)) <= 5
        """
        from penstock.linked.plan.plan import plan_of
        from penstock.linked.plan.show import explain
        from penstock.linked.plan.tree import asked_for
        from penstock.linked.triples import Scale
        from penstock.units import time_unit

        tree = asked_for(self.query, joins, rates)
        return explain(plan_of(self.query, Scale(time_unit(unit)), tree))

    def plan_for(self, streams: Mapping[str, Table], *, object: str = "literal", unit: str = "ms") -> str:
        """Return the plan that `run` would choose for these streams, as text, without running it.

        >>> import penstock as ps
        >>> text = "SELECT * FROM STREAM w { ?a p ?x ?T . ?b q ?x ?U . ?c r ?x ?V } CONTEXT ((?T - ?V) <= 5)"
        >>> table = {"s": [*"abcd"], "p": [*"ppqr"], "o": [1] * 4, "start": range(4)}
        >>> print(ps.StreamQuery.parse(text).plan_for({"w": table}).splitlines()[-4])
        join 1: ?b <q> ?x ?U with ?c <r> ?x ?V on ?x
        """
        from penstock.linked.plan.show import explain
        from penstock.linked.run.prepare import prepared

        return explain(prepared(self.query, streams, unit=unit, objects=object).plan)

    def run(
        self,
        streams: Mapping[str, Table],
        *,
        budget: Any = None,
        policy: Any = "auto",
        allocation: str | None = None,
        object: str = "literal",
        unit: str = "ms",
        collect: bool = True,
        exact: bool = True,
        warmup: int = 0,
        gain: tuple[float, float] = (1.0, 0.5),
        joins: Any = None,
        seed: int = 0,
        log: bool = False,
    ) -> LinkedRun:
        """Run the query over whole streams.

        Parameters
        ----------
        streams
            A dict of name to table: pandas, Arrow or dicts of arrays with the columns `s`, `p`, `o`, `start`
            and, for facts, `end`; or the path of a file of timed triples.
        budget
            `Tuples(n)`, `Fraction(0.2)` or `Bytes("64 MiB")` for all caches together. Default: no limit.
        policy
            The eviction policy: `"clock"`, `"lru"`, `"clock-exp:rho=0.5"`, ... By default the one that does
            best on a sample of the triples; `stats.choice` names it.
        allocation
            `"unified"` (the default): one pool for all caches; `"equal"` or `"proportional"` to the matching
            triples: a pool per cache.
        object
            How to read a text in the column `o` that is not in N-Triples syntax: `"literal"` or `"iri"`.
        unit
            Unit of numeric times. Default: milliseconds.
        collect, exact
            Whether to return rows, and whether to count the results with unlimited memory.
        warmup
            Results of this many first triples are not counted.
        gain
            What a full and a partial result add to the score of a cached tuple.
        joins
            Which patterns are joined with which, by their numbers in the text: `((0, 1), 2)` joins the first
            two and then the third, `((0, 1), (2, 3))` two pairs. By default it is chosen by the number of
            triples that match each pattern and their distinct values; see the run's `plan`.

        Examples
        --------
        >>> import penstock as ps
        >>> table = {"s": ["a", "b"], "p": ["r", "r"], "o": [5, 5.0], "start": [0, 1]}
        >>> text = "SELECT ?a ?b FROM STREAM w { ?a r ?x ?T . ?b r ?x ?U } CONTEXT (signed(?U - ?T) = 1)"
        >>> ps.StreamQuery.parse(text).run({"w": table}).rows.to_pylist()
        [{'a': 'a', 'b': 'b'}]
        """
        from penstock.linked.run.whole import QueryOptions, run_query

        options = QueryOptions(
            budget=budget,
            policy=policy,
            allocation=allocation,
            objects=object,
            unit=unit,
            collect=collect,
            exact=exact,
            warmup=warmup,
            gain=gain,
            joins=joins,
            seed=seed,
            log=log,
        )
        return run_query(self, streams, options)

    def start(
        self,
        *,
        budget: Any,
        policy: Any = "auto",
        object: str = "literal",
        unit: str = "ms",
        gain: tuple[float, float] = (1.0, 0.5),
        rates: Sequence[float] | None = None,
        joins: Any = None,
        seed: int = 0,
    ) -> QueryState:
        """Return a state that takes triples in batches, for unbounded streams.

        `joins` says which patterns are joined with which, as for `run`. Alternatively, `rates` says how many
        triples match each pattern, and the rarest are joined first. With neither, the first batch with any
        match decides. The other parameters are those of `run`.

        >>> import penstock as ps
        >>> text = "SELECT ?a FROM STREAM w { ?a r ?x ?T . ?b r ?x ?U } CONTEXT ((?U - ?T) <= 1)"
        >>> ps.StreamQuery.parse(text).start(budget="1000 tuples").budget
        Tuples(n=1000)
        """
        from penstock.linked.plan.tree import asked_for
        from penstock.linked.run.stream import QueryState, StreamOptions

        return QueryState(
            StreamOptions(
                text=self.text,
                budget=budget,
                policy=policy,
                objects=object,
                unit=unit,
                gain=gain,
                joins=asked_for(self.query, joins, rates),
                seed=seed,
            )
        )


def warn_unbounded(plan: QueryPlan, budget: Any) -> None:
    """Warn if the context lets some triples never expire."""
    forever = plan.unbounded
    if not forever:
        return
    shown = "; ".join(str(plan.query.patterns[i]) for i in forever)
    only = (
        "and there is no budget" if budget is None else f"and only the budget ({budget}) bounds their memory"
    )
    warnings.warn(
        f"The context does not bound how long these patterns keep their triples, {only}: {shown}.",
        UnboundedContextWarning,
        stacklevel=4,
    )
