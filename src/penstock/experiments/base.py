"""What an experiment is, and what it is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

Report = Callable[[int, int, str], None]


def _silent(done: int, total: int, label: str) -> None:
    pass


@dataclass(frozen=True)
class Options:
    """How much is run, where real data are, and who is told of the progress."""

    quick: bool = False
    runs: int | None = None  # instead of the paper's number
    data: Path | None = None
    report: Report = _silent

    def repeated(self, full: int, quick: int) -> int:
        """How many runs there are.

        >>> from penstock.experiments import Options
        >>> Options().repeated(50, 3), Options(quick=True).repeated(50, 3), Options(runs=7).repeated(50, 3)
        (50, 3, 7)
        """
        if self.runs is not None:
            return self.runs
        return quick if self.quick else full


@dataclass(frozen=True)
class Experiment:
    """A figure or table of a paper: `run` gives a tidy table, which is shown with `index` down and `columns`
    across.
    """

    name: str
    title: str
    run: Callable[[Options], pd.DataFrame]
    index: str
    columns: str
    value: str
