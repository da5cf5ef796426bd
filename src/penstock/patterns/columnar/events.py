"""The events as a pattern sees them, and what the patterns over a batch have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.patterns.columnar.chain_kernel import latest_chain
from penstock.patterns.compile.analysis import Analysis, Predicate
from penstock.patterns.compile.forms import Form, alone_form
from penstock.patterns.compile.values import Codes, local_mask
from penstock.structures.window_ends import window_ends


class Shared:
    """What the patterns over a batch have in common: each thing is made once, by the first that needs it."""

    def __init__(self) -> None:
        self.made: dict[Any, tuple[int, Any]] = {}  # by name: for which pattern, and what
        self.member = 0  # the pattern at work
        self.taken = 0  # things that another pattern had made

    def get(self, name: Any, make: Callable[[], Any]) -> Any:
        """The value with this name; it is computed when it is first needed."""
        if name not in self.made:
            self.made[name] = self.member, make()
        owner, thing = self.made[name]
        self.taken += owner != self.member
        return thing


@dataclass
class Input:
    """The events that matter, in stream order, coded for a pattern."""

    axis: np.ndarray  # times, or positions in the stream
    by_events: bool  # which of the two
    width: float
    codes: Codes
    names: list[Form]  # per slot: what could fill it alone
    candidates: list[np.ndarray]  # per slot: the positions of these events
    shared: Shared
    attributes: list[str] = field(init=False)
    first_in: np.ndarray = field(init=False)
    last_in: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.attributes = sorted(self.codes.columns)
        self.first_in, self.last_in = self.shared.get(
            ("window", self.by_events, self.width), lambda: window_ends(self.axis, self.width)
        )

    def __len__(self) -> int:
        return len(self.axis)

    def fills(self, slots: tuple[int, ...]) -> np.ndarray:
        """Per position a bit for each of the slots that the event could fill."""
        fills = np.zeros(len(self.axis), np.int64)
        for bit, slot in enumerate(slots):
            fills[self.candidates[slot]] |= 1 << bit
        return fills

    def latest(self, slots: tuple[int, ...]) -> np.ndarray:
        """Per position the latest start of a sequence of the slots that ends at or before it."""
        name = ("latest", *(self.names[slot] for slot in slots))
        found: np.ndarray = self.shared.get(name, lambda: latest_chain(self.fills(slots), len(slots)))
        return found


def input_of(
    analysis: Analysis,
    axis: np.ndarray,
    by_events: bool,
    width: float,
    types: np.ndarray,
    numbers: dict[str, int],
    codes: Codes,
    shared: Shared,
) -> Input:
    """Events as a pattern sees them: per slot those of its type that pass the predicates about it alone."""
    names, candidates = [], []
    for slot in analysis.slots:
        mine = [
            p
            for p in analysis.predicates
            if p.slots == {slot.number} and p.scope == slot.scope and set(p.branches) <= set(slot.branches)
        ]
        name = (slot.type, *(alone_form(predicate) for predicate in mine))

        def passing(kind: int = numbers[slot.type], tests: list[Predicate] = mine) -> np.ndarray:
            rows = np.flatnonzero(types == kind)
            for predicate in tests:
                rows = rows[local_mask(predicate, codes, rows)]
            return rows.astype(np.int64)

        names.append(name)
        candidates.append(shared.get(("slot", name), passing))
    return Input(axis, by_events, width, codes, names, candidates, shared)


def filtered(analysis: Analysis, predicate: Predicate) -> bool:
    """Whether a predicate is tested when candidates are chosen, so that the search need not."""
    if not predicate.local:
        return False
    slot = analysis.slots[next(iter(predicate.slots))]
    return predicate.scope == slot.scope and set(predicate.branches) <= set(slot.branches)
