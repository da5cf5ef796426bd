"""Check that the arrays of a query's snapshot are safe for the kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.engine.conditions import Columns
from penstock.engine.store import ARRIVAL, FREE_KEY, HIGH_KEY, ROW
from penstock.engine.triple_index import HELD, LAST_USE, LINK_WIDTH, USED, Index, relink
from penstock.linked.plan.tree import leaves
from penstock.linked.terms import Terms
from penstock.linked.triples import Triples
from penstock.states.checks import (
    CHECKS,
    check_apart,
    check_numbers,
    check_parts,
    check_queue,
    check_same,
    check_shapes,
    check_within,
    sound,
)

if TYPE_CHECKING:
    from penstock.linked.run.caches import QueryCaches

FAR = 2.0**62


def check_buffered_triples(triples: Triples, mask: np.ndarray, terms: Terms, patterns: int) -> None:
    """Whether the triples that cached tuples refer to are whole, and their terms are known."""
    fresh = Triples.none(triples.scale)
    for name in ("terms", "start", "end", "stream", "row", "closes"):
        mine, other = getattr(triples, name), getattr(fresh, name)
        sound(isinstance(mine, np.ndarray) and mine.dtype == other.dtype, f"{name} has another type")
        sound(mine.shape == (len(mask), *other.shape[1:]), f"{name} has another size")
    check_within(triples.terms, 0, len(terms) - 1, "a term")
    check_numbers(triples.start, "a time")
    check_numbers(triples.end, "a time")
    sound(mask.dtype == np.int64 and mask.ndim == 1, "the patterns of triples have another type")
    check_within(mask, 0, (1 << patterns) - 1, "the patterns of a triple")


def check_caches(caches: QueryCaches, fresh: tuple[Any, ...], rows: int, columns: Columns | None) -> None:
    """Whether caches are sound, given empty ones and the triples they refer to."""
    store, index, expiry, policy = caches.parts
    check_shapes((store, index, expiry), fresh[:3], "the caches")
    if caches.running.compiled:
        check_shapes(policy, fresh[3], "the state of the policy")
    live = check_apart(store, fresh[0])
    check_queue(expiry.queue, store, owner=np.zeros(len(store.t64), np.int64))
    check_parts(index, store, fresh[1])
    check_parts(policy, store, fresh[3])
    singles = len(caches.plan.caches)
    check_within(index.cache[live], 0, len(caches.plan.scheme.degree) - 1, "the cache of a tuple")
    check_within(store.t64[live, ROW], 0, rows - 1, "the row of a tuple")
    for number, step in enumerate(caches.plan.steps):
        mine = live[index.cache[live] == singles + number]
        if len(mine):
            check_within(index.members[mine][:, leaves(step.sides)], 0, rows - 1, "the row of a tuple")
    check_within(index.owed[live], 0.0, np.nextafter(1.0, 0.0), "what a tuple is owed")
    if len(index.uses):
        check_within(index.uses[live, USED], 0.0, FAR, "the uses of a tuple")
        check_within(index.uses[live, LAST_USE], -1.0, FAR, "the uses of a tuple")
    if columns is not None:
        _check_chains(caches, live[np.argsort(store.t64[live, ARRIVAL])], columns)


def _check_index(index: Index, store: Any, fresh: Index) -> None:
    flags = np.setdiff1d(np.arange(len(fresh.meta)), [FREE_KEY, HIGH_KEY])
    check_same(index.meta[flags], fresh.meta[flags], "a setting")


CHECKS[Index] = _check_index


def _check_chains(caches: QueryCaches, live: np.ndarray, columns: Columns) -> None:
    """Whether the chains are those that the tuples make: a snapshot has them as they are built anew."""
    index, scheme = caches.index, caches.plan.scheme
    members = index.members
    if len(members):  # of patterns that a partial solution does not have: anything
        members = np.clip(members, 0, max(0, len(columns.mask) - 1))
    again = index._replace(
        k64=np.zeros_like(index.k64),
        buckets=np.zeros_like(index.buckets),
        links=np.zeros_like(index.links),
        members=members,
        meta=index.meta.copy(),
    )
    again = again.with_views()
    relink(caches.store, again, scheme, columns, live)
    check_same(index.meta[[FREE_KEY, HIGH_KEY]], again.meta[[FREE_KEY, HIGH_KEY]], "the number of keys")
    check_same(index.k64, again.k64, "a chain")
    check_same(index.buckets, again.buckets, "a bucket")
    in_use = np.arange(index.links.shape[1]) < scheme.degree[index.cache[live]][:, None]
    mine, other = index.links[live][in_use], again.links[live][in_use]
    check_same(mine[:, HELD], other[:, HELD], "a link")
    linked = other[:, HELD] > 0
    check_same(mine[linked, : LINK_WIDTH - 1], other[linked, : LINK_WIDTH - 1], "a link")
