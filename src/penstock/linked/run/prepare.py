"""Prepare whole streams for a query: read and code them, match the patterns, and choose the tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import PenstockError
from penstock.linked.files import read_background, read_triples
from penstock.linked.language.nodes import Query
from penstock.linked.plan.plan import QueryPlan, plan_of
from penstock.linked.plan.tree import Observed, Tree, checked, chosen
from penstock.linked.run.operands import masks_of
from penstock.linked.terms import Terms
from penstock.linked.triples import Triples, triples_of

if TYPE_CHECKING:
    from penstock.columns import Table


@dataclass(frozen=True)
class Prepared:
    """The triples that a query can use, and the plan for them."""

    plan: QueryPlan
    triples: Triples
    mask: np.ndarray  # the patterns that each matches
    terms: Terms
    total: int  # triples that were given


def prepared(
    query: Query,
    streams: Mapping[str, Table | str | Path],
    *,
    unit: str = "ms",
    objects: str = "literal",
    joins: Any = None,
) -> Prepared:
    """Read streams, tables or files, and plan the query by what they show.

    >>> from penstock.linked.language.parser import parse_query
    >>> from penstock.linked.run.prepare import prepared
    >>> query = parse_query("SELECT * FROM STREAM w { ?a p ?x ?T . ?b q ?x ?U }")
    >>> table = {"s": [*"abc"], "p": [*"ppq"], "o": [1, 2, 1], "start": [0, 1, 2]}
    >>> prepared(query, {"w": table}).plan.tree
    (1, 0)
    """
    if joins is not None:
        joins = checked(joins, query)
    terms = Terms()
    triples = triples_of(
        _opened(streams),
        query.streams,
        terms,
        unit=unit,
        objects=objects,
        background=read_background(query.background),
    )
    plan = plan_of(query, triples.scale)
    mask = masks_of(plan, triples, terms)
    total, keep = len(triples), np.flatnonzero((mask != 0) | triples.closes)
    if len(keep) < total:
        triples, mask = triples.take(keep), mask[keep]
    tree = joins_of(plan, triples, mask, terms) if joins is None else joins
    return Prepared(plan_of(query, triples.scale, tree), triples, mask, terms, total)


def joins_of(plan: QueryPlan, triples: Triples, mask: np.ndarray, terms: Terms) -> Tree:
    """Which patterns are joined with which, by what the triples show; any plan of the query will do."""
    values = terms.worth().value[triples.terms] if len(triples) else triples.terms
    return chosen(plan.query, Observed.of(plan.query, triples, mask, values), plan.limits)


def _opened(streams: Any) -> Any:
    """Streams whose files have been read."""
    if not isinstance(streams, Mapping):
        raise PenstockError(f"streams takes a dict of name to table; {type(streams).__name__} was given.")
    return {
        name: read_triples(Path(table)) if isinstance(table, str | Path) else table
        for name, table in streams.items()
    }
