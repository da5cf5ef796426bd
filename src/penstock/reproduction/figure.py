"""The parts of a reproduced figure: trials, a drawing, and claims that hold or do not."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure as Drawing

Row = dict[str, Any]


@dataclass(frozen=True)
class Scope:
    """How much to run, and on what: `quick` takes fewer and smaller runs, `data` is a folder of real streams.

    >>> from penstock.reproduction import Scope
    >>> Scope(quick=True).pick([1, 2], full=[1, 2, 3, 4])
    [1, 2]
    """

    quick: bool = False
    data: Path | None = None
    seed: int = 0

    def pick(self, quick: Any, full: Any) -> Any:
        """One value for a quick run, another for a full one."""
        return quick if self.quick else full

    @property
    def folder(self) -> str | None:
        """The folder of real streams as trials are given it."""
        return None if self.data is None else str(self.data)


@functools.cache
def _source(module: str) -> str:
    """The source of a module as it was first seen: a file that is edited meanwhile changes no key."""
    return inspect.getsource(sys.modules[module])


@dataclass(frozen=True)
class Trial:
    """One run: a function of a module and what it is given, which stands beside the rows it returns.

    Everything a trial draws comes from a seed among what it is given, so that it gives the same rows wherever
    and in whatever order it runs.
    """

    run: Callable[..., list[Row]]
    given: dict[str, Any]

    @property
    def key(self) -> str:
        """What tells this trial from others, and from itself after a change of its module.

        >>> from penstock.reproduction import Trial
        >>> from penstock.reproduction.queues import ratio_of_half
        >>> one, two = (Trial(ratio_of_half, {"memory": m, "seed": 0}) for m in (4, 6))
        >>> one.key == two.key
        False
        """
        what = [self.run.__module__, self.run.__qualname__, self.given, _source(self.run.__module__)]
        text = json.dumps(what, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    def rows(self) -> list[Row]:
        """Run it."""
        shown = {name: value for name, value in self.given.items() if name != "data"}
        return [shown | row for row in self.run(**self.given)]


@dataclass(frozen=True)
class Claim:
    """What the paper says, what was measured, and whether it holds; None where the data cannot tell."""

    paper: str
    measured: str
    holds: bool | None

    @property
    def verdict(self) -> str:
        """In a word or two.

        >>> from penstock.reproduction import Claim
        >>> Claim("GDJ is best", "PROB is", holds=False).verdict
        'does not hold'
        """
        return {True: "holds", False: "does not hold", None: "undecided"}[self.holds]


@dataclass(frozen=True)
class Figure:
    """A figure: its trials, how their table is drawn, and what the paper claims of it.

    `alone` is for trials that are timed: they run one after the other, in this process.
    """

    name: str  # of its files: figure-4
    title: str
    where: str  # in the paper
    trials: list[Trial]
    draw: Callable[[Any], Drawing]  # of the table; what a column holds no type checker knows
    claims: Callable[[Any], list[Claim]]
    alone: bool = False
    note: str = ""
    layout: tuple[str, str, str] | None = None  # where the table itself is shown: down, across, in the cells


@dataclass(frozen=True)
class Outcome:
    """A figure that has run: its table, its files and its claims."""

    paper: str
    figure: Figure
    table: pd.DataFrame
    csv: Path
    png: Path
    claims: list[Claim]
    sources: list[str] = field(default_factory=list)
