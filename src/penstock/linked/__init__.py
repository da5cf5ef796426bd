"""Linked-data streams: continuous queries over timed triples in a fixed amount of memory."""

from penstock.linked.files import parse_nquads, parse_ntriples, read_triples
from penstock.linked.query import StreamQuery, UnboundedContextWarning
from penstock.linked.run.stats import LinkedRun, LinkedStats

__all__ = [
    "LinkedRun",
    "LinkedStats",
    "StreamQuery",
    "UnboundedContextWarning",
    "parse_nquads",
    "parse_ntriples",
    "read_triples",
]
