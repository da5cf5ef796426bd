"""Kinds of joins: which rows come out, and how many partners a row has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.arguments import one_of
from penstock.engine import pair_join_decided as engine
from penstock.errors import PenstockError

HOWS = ("inner", "left", "right", "full", "left_semi", "left_anti")
MATCHES = ("all", "once", "one-to-one")
ALIASES = {
    "leftouter": "left",
    "rightouter": "right",
    "outer": "full",
    "fullouter": "full",
    "semi": "left_semi",
    "leftsemi": "left_semi",
    "anti": "left_anti",
    "leftanti": "left_anti",
}


@dataclass(frozen=True)
class JoinKind:
    """What comes out of a join.

    >>> from penstock.joins.kinds import JoinKind
    >>> JoinKind("left").preserved, JoinKind("left_semi").preserved, JoinKind("left_semi").tracked
    ((True, False), (False, False), (True, False))
    >>> JoinKind().plain, JoinKind(matches="once").plain
    (True, False)
    """

    how: str = "inner"
    matches: str = "all"

    @property
    def plain(self) -> bool:
        """Whether all pairs come out, and nothing else."""
        return self.how == "inner" and self.matches == "all"

    @property
    def preserved(self) -> tuple[bool, bool]:
        """Whether rows of each stream without a partner come out."""
        return self.how in ("left", "full", "left_anti"), self.how in ("right", "full")

    @property
    def tracked(self) -> tuple[bool, bool]:
        """Whether a row of each stream may be undecided."""
        left, right = self.preserved
        return left or self.how == "left_semi", right

    @property
    def releases(self) -> tuple[bool, bool]:
        """Whether the first match of a row of each stream is its last."""
        left = self.how in ("left_semi", "left_anti") or self.matches != "all"
        return left, self.matches == "one-to-one"

    @property
    def recorded(self) -> tuple[bool, bool]:
        """Whether it must be known of each stream which keys left early."""
        left, right = self.tracked
        if self.matches == "one-to-one":
            return left or right, left or right
        return right, left

    @property
    def strict(self) -> bool:
        """Whether late rows take no part."""
        return self.how != "inner"

    @property
    def for_samples(self) -> JoinKind:
        """The kind on which policies are compared: with the same matches, and each a result."""
        if self.releases == (False, False):
            return JoinKind()
        return JoinKind("left_semi" if self.how == "left_anti" else self.how, self.matches)

    def rules(self, together: bool, conditional: bool = False) -> np.ndarray:
        """Return the kind as the engine has it."""
        rules = np.zeros(engine.RULES, np.int64)
        rules[engine.TOGETHER] = together
        rules[engine.ALIKE] = self.alike(together, conditional)
        rules[engine.EMIT] = {
            "left_semi": engine.EMIT_LEFT,
            "left_anti": engine.EMIT_NOTHING,
        }.get(self.how, engine.EMIT_PAIRS)
        rules[engine.MOST] = MATCHES.index(self.matches)
        rules[engine.STRICT] = self.strict
        for first, each in (
            (engine.TRACKED, self.tracked),
            (engine.NULLS, self.preserved),
            (engine.RELEASES, self.releases),
        ):
            rules[first : first + 2] = each
        return rules

    def alike(self, together: bool, conditional: bool = False) -> bool:
        """Whether an arrival matches all buffered tuples of its key, or none."""
        return together and not conditional and self.matches == "all"


INNER = JoinKind()


def kind_of(how: Any, matches: Any) -> JoinKind:
    """Check what users give.

    >>> from penstock.joins.kinds import kind_of
    >>> kind_of("left_outer", "all")
    JoinKind(how='left', matches='all')
    >>> kind_of("lefty", "all")
    Traceback (most recent call last):
        ...
    penstock.errors.PenstockError: how='lefty' is not known; did you mean 'left'? Allowed: inner, left, ...
    """
    name = how
    if isinstance(how, str) and how not in HOWS:
        name = ALIASES.get(how.lower().replace("_", ""), how)
    name = one_of("how", name, HOWS)
    matches = one_of("matches", matches, MATCHES)
    if matches != "all" and name in ("left_semi", "left_anti"):
        raise PenstockError(
            f"matches={matches!r} cannot be combined with how={name!r}, which has at most one row per left "
            "row anyway; leave out matches."
        )
    return JoinKind(name, matches)
