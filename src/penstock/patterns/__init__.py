"""Nested complex-event patterns: SEQ, AND, OR and negation, to any depth, within a window.

>>> import penstock as ps
>>> pattern = ps.Pattern.parse("PATTERN SEQ(A a, !B, C c, a.id = c.id) WITHIN 10 minutes")
>>> pattern.run({"type": ["A", "C"], "ts": [0, 60_000], "id": [7, 7]}).matches.to_pylist()
[{'a': 0, 'c': 1}]
"""

from penstock.patterns.language.nodes import And, Attr, Compare, E, Not, Or, Seq
from penstock.patterns.language.span import Span
from penstock.patterns.options import STRATEGIES
from penstock.patterns.pattern import Pattern
from penstock.patterns.pattern_set import PatternSet
from penstock.patterns.result import PatternRun, PatternStats
from penstock.patterns.state import PatternSetState, PatternState

__all__ = [
    "STRATEGIES",
    "And",
    "Attr",
    "Compare",
    "E",
    "Not",
    "Or",
    "Pattern",
    "PatternRun",
    "PatternSet",
    "PatternSetState",
    "PatternState",
    "PatternStats",
    "Seq",
    "Span",
]
