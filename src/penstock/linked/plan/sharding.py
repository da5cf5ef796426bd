"""Distribute triples to buckets by the value of a variable that all patterns have."""

from __future__ import annotations

import zlib

import numpy as np

from penstock.linked.language.nodes import Query, Var
from penstock.linked.terms import Terms, value_of
from penstock.linked.triples import Triples


def partition_variable(query: Query) -> str | None:
    """A variable that every pattern has in its triple: equal values must meet, others need not.

    >>> from penstock.linked.language.parser import parse_query
    >>> from penstock.linked.plan.sharding import partition_variable
    >>> partition_variable(parse_query("SELECT * FROM STREAM w { ?a p ?x ?T . ?b p ?x ?U }"))
    'x'
    """
    common = [name for name in query.patterns[0].names if all(name in one.names for one in query.patterns)]
    return min(common, key=lambda name: name in ("s", "p")) if common else None


def bucket_numbers(numbers: np.ndarray, terms: Terms, buckets: int) -> np.ndarray:
    """The bucket of each term: equal values, equal buckets, in every process."""
    distinct, places = np.unique(numbers, return_inverse=True)
    found = np.empty(len(distinct), np.int64)
    for i, number in enumerate(distinct.tolist()):
        key = value_of(terms.term(number)).key
        if isinstance(key, tuple) and key[0] == "number":
            amount = key[1]
            text = str(int(amount)) if amount == amount // 1 and abs(amount) != float("inf") else repr(amount)
        else:
            text = repr(key)
        found[i] = zlib.crc32(text.encode("utf-8", "surrogatepass")) % buckets
    return found[places.ravel()]


def role_buckets(
    query: Query, variable: str, triples: Triples, mask: np.ndarray, terms: Terms, buckets: int
) -> np.ndarray:
    """Per pattern and triple, the bucket that receives it in that role; -1 if it does not have the role."""
    out = np.full((len(query.patterns), len(triples)), -1, np.int64)
    hashed: dict[int, np.ndarray] = {}
    for role, pattern in enumerate(query.patterns):
        position = pattern.triple.index(Var(variable))
        if position not in hashed:
            hashed[position] = bucket_numbers(triples.terms[:, position], terms, buckets)
        out[role] = np.where((mask >> role) & 1, hashed[position], -1)
    return out


def restricted(
    query: Query, variable: str, triples: Triples, mask: np.ndarray, terms: Terms, shard: tuple[int, int]
) -> np.ndarray:
    """The masks with only the roles that belong to a bucket, given as (bucket, buckets)."""
    roles = role_buckets(query, variable, triples, mask, terms, shard[1])
    bits = (roles == shard[0]).astype(np.int64) << np.arange(len(roles))[:, None]
    return np.where(triples.stream < 0, mask, bits.sum(axis=0))
