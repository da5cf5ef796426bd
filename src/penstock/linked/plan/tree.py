"""Choose the join tree of a plan from statistics of the streams.

A tree is the number of a pattern, or a pair of trees: `((0, 1), 2)` joins the first two patterns, and the
result with the third; `((0, 1), (2, 3))` is bushy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

import numpy as np

from penstock.arguments import is_number, shown
from penstock.errors import PenstockError
from penstock.linked.language.nodes import Query, Var
from penstock.linked.triples import Triples

Tree: TypeAlias = "int | tuple[Tree, Tree]"

MOST = 8  # patterns up to which all trees are compared
CHEAPER = 0.9  # of the partial solutions that the plain order makes: a tree is preferred if it makes fewer
SAMPLE = 100_000  # triples of a pattern whose distinct values are counted


def leaves(tree: Tree) -> list[int]:
    """The patterns of a tree from left to right.

    >>> from penstock.linked.plan.tree import leaves
    >>> leaves(((2, 0), (1, 3)))
    [2, 0, 1, 3]
    """
    return [tree] if isinstance(tree, int) else [*leaves(tree[0]), *leaves(tree[1])]


def joins(tree: Tree) -> list[tuple[Tree, Tree]]:
    """The joins of a tree, each after those it is made of.

    >>> from penstock.linked.plan.tree import joins
    >>> joins(((2, 0), 1))
    [(2, 0), ((2, 0), 1)]
    """
    return [] if isinstance(tree, int) else [*joins(tree[0]), *joins(tree[1]), tree]


def checked(given: Any, query: Query) -> Tree:
    """A tree as given by a caller, or an error that says what is wrong with it.

    >>> from penstock.linked.language.parser import parse_query
    >>> from penstock.linked.plan.tree import checked
    >>> query = parse_query("SELECT * FROM STREAM w { ?a p ?x ?T . ?b p ?x ?U . ?c p ?x ?V }")
    >>> checked([[2, 0], 1], query)
    ((2, 0), 1)
    """
    count = len(query.patterns)

    def built(part: Any) -> Tree:
        if isinstance(part, int | np.integer) and not isinstance(part, bool):
            return int(part)
        if isinstance(part, tuple | list) and len(part) == 2:
            return built(part[0]), built(part[1])
        raise PenstockError(
            f"joins={given!r} is not a plan; give a pattern's number or a pair, such as ((0, 1), 2)."
        )

    tree = built(given)
    if sorted(leaves(tree)) != list(range(count)):
        raise PenstockError(
            f"joins={given!r} must contain each of the patterns 0 to {count - 1} once; they are numbered in "
            "the order of the text."
        )
    for pair in joins(tree):
        if not _lasting(query, leaves(pair)):
            raise PenstockError(
                f"joins={given!r}: {pair!r} has no pattern with a time, so its results would never expire."
            )
    return tree


def asked_for(query: Query, joins: Any, rates: Sequence[float] | None) -> Tree | None:
    """The tree that a caller wants: as it is, or the rarest patterns first by their rates; None: no matter.

    >>> from penstock.linked.language.parser import parse_query
    >>> from penstock.linked.plan.tree import asked_for
    >>> query = parse_query("SELECT * FROM STREAM w { ?a p ?x ?T . ?b p ?x ?U . ?c p ?x ?V }")
    >>> asked_for(query, None, [3, 2, 1])
    ((2, 1), 0)
    """
    if rates is None:
        return None if joins is None else checked(joins, query)
    if joins is not None:
        raise PenstockError("Give either joins or rates, not both.")
    sequence = isinstance(rates, Sequence | np.ndarray) and not isinstance(rates, str)
    if not sequence or len(rates) != len(query.patterns) or not all(_is_rate(rate) for rate in rates):
        raise PenstockError(
            f"rates={shown(rates)} is not allowed; give a number of at least 0 for each of the "
            f"{len(query.patterns)} patterns."
        )
    return in_turn(query, rates)


def _is_rate(value: Any) -> bool:
    return is_number(value) and bool(value >= 0)


def _lasting(query: Query, patterns: Sequence[int]) -> bool:
    """Whether a join of these is bound by a time, in queries that have times at all."""
    timed = {i for i, pattern in enumerate(query.patterns) if pattern.start}
    return not timed or bool(timed & set(patterns))


def in_turn(query: Query, rates: Sequence[float] | None = None) -> Tree:
    """Left-deep: the rarest pattern first, then always the rarest that shares a variable with those before.

    Patterns with times come first: every partial solution then has a triple of a stream in it.

    >>> from penstock.linked.language.parser import parse_query
    >>> from penstock.linked.plan.tree import in_turn
    >>> query = parse_query("SELECT * FROM STREAM w { ?a p ?x ?T . ?b q ?y ?U . ?y r ?x ?V }")
    >>> in_turn(query, [1, 2, 9])
    ((0, 2), 1)
    """
    patterns = query.patterns
    weight = list(rates) if rates is not None else [1.0] * len(patterns)
    left = set(range(len(patterns)))
    order: list[int] = []
    known: set[str] = set()
    while left:
        linked = [i for i in left if known & set(patterns[i].names)] if order else []
        pool = linked or list(left)
        timed = [i for i in pool if patterns[i].start] or pool
        best = min(timed if not order else pool, key=lambda i: (weight[i], i))
        order.append(best)
        known |= set(patterns[best].names)
        left.discard(best)
    trees: list[Tree] = [*order]
    return reduce(lambda tree, leaf: (tree, leaf), trees)


@dataclass(frozen=True)
class Observed:
    """What is known of the triples that match each pattern."""

    rates: tuple[float, ...]
    distinct: tuple[dict[str, int], ...]  # per pattern: distinct values of each variable
    length: tuple[float, ...]  # per pattern: how long its facts last on average
    duration: float  # from the first triple to the last

    @classmethod
    def of(cls, query: Query, triples: Triples, mask: np.ndarray, values: np.ndarray) -> Observed:
        """What some triples show; `values` has the identities of their terms."""
        rates, distinct, length = [], [], []
        for i, pattern in enumerate(query.patterns):
            mine = np.flatnonzero((mask >> i) & 1)
            rates.append(float(len(mine)))
            some = mine[:: max(1, len(mine) // SAMPLE)] if len(query.patterns) > 2 else mine[:0]
            distinct.append(
                {
                    name: max(1, len(np.unique(values[some, pattern.triple.index(Var(name))])))
                    for name in pattern.names
                }
            )
            lasting = (triples.end[some] - triples.start[some])[triples.stream[some] >= 0]
            finite = lasting[np.isfinite(lasting)]
            length.append(float(finite.mean()) if len(finite) else 0.0)
        times = triples.start[(mask != 0) & (triples.stream >= 0)]
        duration = float(times.max() - times.min()) if len(times) else 0.0
        return cls(tuple(rates), tuple(distinct), tuple(length), duration)


def chosen(query: Query, observed: Observed, limits: np.ndarray) -> Tree:
    """The tree that makes the fewest partial solutions, by what was observed.

    `limits` say how long after the start and the end of one pattern's triple another's may start. Values are
    taken to be spread evenly, so estimates are rough: the rarest come first unless another tree is clearly
    better.
    """
    plain = in_turn(query, observed.rates)
    if not 2 < len(query.patterns) <= MOST:
        return plain
    estimate = _Estimate(query, observed, limits)
    best = _cheapest(query, estimate)
    return best if estimate.cost(best) < CHEAPER * estimate.cost(plain) else plain


class _Estimate:
    """How many solutions the join of some patterns has."""

    def __init__(self, query: Query, observed: Observed, limits: np.ndarray) -> None:
        self.query, self.observed = query, observed
        count = len(query.patterns)
        after = np.minimum(limits[:, :, 0], np.array(observed.length)[:, None] + limits[:, :, 1])
        spans = np.maximum(after + after.T, 0.0)
        self.meeting = np.minimum(1.0, spans / max(observed.duration, 1e-9))  # the share of pairs in time
        self.sizes = [1.0] * (1 << count)
        for mask in range(1, 1 << count):
            self.sizes[mask] = self._size([i for i in range(count) if mask >> i & 1])

    def _size(self, patterns: list[int]) -> float:
        observed = self.observed
        size = float(np.prod([max(observed.rates[i], 1.0) for i in patterns]))
        for name in {name for i in patterns for name in self.query.patterns[i].names}:
            counts = sorted(observed.distinct[i][name] for i in patterns if name in observed.distinct[i])
            size /= float(np.prod(counts[1:], dtype=np.float64))
        in_time = min(
            float(np.prod([self.meeting[i, one] for i in patterns if i != one])) for one in patterns
        )
        return size * in_time

    def cost(self, tree: Tree) -> float:
        """Partial solutions of a tree."""
        return sum(self.sizes[_mask(pair)] for pair in joins(tree)[:-1])


def _mask(tree: Tree) -> int:
    return sum(1 << i for i in leaves(tree))


def _cheapest(query: Query, estimate: _Estimate) -> Tree:
    """The best of all trees: that of a set of patterns is made of the best of two parts. O(3^n)."""
    count = len(query.patterns)
    best: dict[int, tuple[float, Tree]] = {1 << i: (0.0, i) for i in range(count)}
    whole = (1 << count) - 1
    for mask in range(1, whole + 1):
        if mask in best or not _lasting(query, [i for i in range(count) if mask >> i & 1]):
            continue
        own = 0.0 if mask == whole else estimate.sizes[mask]
        found = [
            (own + best[part][0] + best[mask ^ part][0], best[part][1], best[mask ^ part][1])
            for part in _parts(mask)
            if part in best and mask ^ part in best
        ]
        if found:
            cost, left, right = min(found, key=lambda each: each[0])
            best[mask] = cost, (left, right)
    return best[whole][1]


def _parts(mask: int) -> Iterator[int]:
    """The subsets of a set that are larger than their complement, or have its lowest member."""
    part = (mask - 1) & mask
    while part:
        mine, other = part.bit_count(), (mask ^ part).bit_count()
        if mine > other or (mine == other and part & -part == mask & -mask):
            yield part
        part = (part - 1) & mask
