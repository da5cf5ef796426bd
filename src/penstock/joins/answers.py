"""Answers to questions about the exact results of a join, from the weighted results of `policy="sample"`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arguments import shown
from penstock.columns import Table, column, column_names
from penstock.errors import BiasedSampleWarning, ColumnError, PenstockError, hint, warn_user
from penstock.joins.arrivals import SIDES, key_names
from penstock.joins.state import Output
from penstock.joins.weighted_sums import Estimate, check_question, interval_of, moments_of


@dataclass(frozen=True)
class WeighedInputs:
    """The tables of a join, in which values of its results are looked up."""

    tables: tuple[Table, Table]
    keys: tuple[Sequence[str], Sequence[str]]

    @classmethod
    def of(cls, left: Table, right: Table, on: Any) -> WeighedInputs:
        """Take two tables and their key columns."""
        bare = isinstance(on, tuple | list) and len(on) == 0
        return cls((left, right), ([], []) if bare else key_names(on))

    def find(self, name: Any) -> tuple[int, str]:
        """Return the side and the name of a column: `left.amount`, `right.amount`, or bare if it is clear.

        A key column that both sides have is the same on both.

        >>> from penstock.joins.answers import WeighedInputs
        >>> inputs = WeighedInputs.of({"key": [1], "ts": [0]}, {"key": [1], "ts": [0], "amount": [2]}, "key")
        >>> inputs.find("amount"), inputs.find("left.ts"), inputs.find("key")
        ((1, 'amount'), (0, 'ts'), (0, 'key'))
        """
        if not isinstance(name, str):
            raise ColumnError(f"A column is given by its name; {name!r} was given.")
        names = [column_names(table) for table in self.tables]
        sides = [side for side in (0, 1) if name in names[side]]
        if len(sides) == 1:
            return sides[0], name
        if sides:
            if (name, name) in zip(*self.keys, strict=True):
                return 0, name
            raise ColumnError(
                f"Both streams have a column {name!r}; say which is meant: 'left.{name}' or 'right.{name}'."
            )
        side_name, dot, own = name.partition(".")
        if dot and side_name in SIDES:
            side = SIDES.index(side_name)
            column(self.tables[side], own, side_name)
            return side, own
        every = [f"{side}.{own}" for side, mine in zip(SIDES, names, strict=True) for own in mine]
        raise ColumnError(f"No stream has a column {name!r}{hint(name, every)}")

    def numbers(self, name: str) -> tuple[int, np.ndarray]:
        """Return the side of a column of numbers and its values; NaN where there is none."""
        side, own = self.find(name)
        series = column(self.tables[side], own, SIDES[side])
        try:
            return side, series.to_numpy(np.float64, na_value=np.nan)
        except (TypeError, ValueError) as error:
            raise ColumnError(
                f"The column {own!r} of the {SIDES[side]} stream is not one of numbers: {error}"
            ) from error

    def groups(self, by: Sequence[str], pairs: np.ndarray) -> tuple[np.ndarray, int, pa.Table]:
        """Return the group of each pair, their number, and their values in the columns `by`."""
        code, columns = np.zeros(len(pairs), np.int64), []
        for name in by:
            side, own = self.find(name)
            values = pa.array(column(self.tables[side], own, SIDES[side]), from_pandas=True)
            values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
            taken = values.take(pa.array(pairs[:, side]))
            encoded = taken.dictionary_encode(null_encoding="encode")
            both = code * max(len(encoded.dictionary), 1) + encoded.indices.to_numpy()
            code = np.unique(both, return_inverse=True)[1].astype(np.int64)
            columns.append(taken)
        _, first = np.unique(code, return_index=True)
        shown = pa.array(first)
        return code, len(first), pa.table([each.take(shown) for each in columns], names=list(by))


@dataclass(frozen=True)
class WeighedResults:
    """What `JoinRun.estimate` needs: the results with their weights, or a way to find them."""

    lost: dict[str, int]  # rows whose results no weight makes up for, by what happened to them
    collect: Callable[[], list[Output]]  # the results, in pieces
    inputs: WeighedInputs | None = None

    @cached_property
    def _found(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Pairs, t, and the identity of the kept tuples."""
        parts = self.collect()
        pairs = np.concatenate([part.pairs for part in parts])
        t = np.concatenate([part.t for part in parts])
        return pairs, t, np.concatenate([part.kept for part in parts]).astype(np.int64)

    def estimate(self, what: str, name: str | None, by: Any, confidence: float) -> Estimate | pa.Table:
        """Answer a question, see `JoinRun.estimate`."""
        check_question(what, name, confidence)
        lost = ", ".join(f"{number:,} {fate}" for fate, number in self.lost.items() if number)
        if lost:
            warn_user(
                f"Some rows have results that no weight makes up for ({lost}), so estimates are too small.",
                BiasedSampleWarning,
            )
        inputs = self.inputs or WeighedInputs(({}, {}), ((), ()))
        if self.inputs is None and not (name is None and by is None):
            raise PenstockError("Only a run of tables has columns to estimate; this one is of bare arrivals.")
        names = [by] if isinstance(by, str) else by if isinstance(by, list | tuple) else [by]
        if by is None:
            names = []
        elif not names or not all(isinstance(each, str) for each in names):
            raise ColumnError(f"by takes a column name or several of them; {shown(by)} was given.")
        if clash := set(names) & {"value", "lower", "upper", "std_error"}:
            raise ColumnError(f"by has a column {min(clash)!r}, as the table of estimates has; rename it.")
        value = None if name is None else inputs.numbers(name)
        for each in names:
            inputs.find(each)
        pairs, t, kept = self._found
        numbers = np.ones(len(t))
        if value is not None:
            side, column_values = value
            numbers = column_values[pairs[:, side]]
            some = ~np.isnan(numbers)
            pairs, t, kept, numbers = pairs[some], t[some], kept[some], numbers[some]
            if what == "count":
                numbers = np.ones(len(t))
        if by is None:
            moments = moments_of(what, np.zeros(len(t), np.int64), 1, kept, t, numbers)
            ends = interval_of(moments, confidence)
            return Estimate(*(float(each[0]) for each in (moments.value, *ends, moments.variance)))
        group, count, table = inputs.groups(names, pairs)
        moments = moments_of(what, group, count, kept, t, numbers)
        lower, upper = interval_of(moments, confidence)
        answers = {"value": moments.value, "lower": lower, "upper": upper}
        for column_name, values in (answers | {"std_error": np.sqrt(moments.variance)}).items():
            table = table.append_column(column_name, pa.array(values))
        return table
