"""Decide which kernels run compiled: those already compiled, and those whose work is worth the wait.

A kernel takes seconds to compile and a fraction of a millisecond per arrival to interpret. So a call whose
code is neither in this process nor on disk is compiled at once if there is much to do, and interpreted
otherwise. A kernel that has been interpreted for some time is compiled by another process meanwhile. Both
give the same results.

`PENSTOCK_TIER` may be `compiled` or `interpreted`, to have one of them always, or `inlined`, for drivers with
their policy inside (see `driver`).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np
from numba._dispatcher import compute_fingerprint
from numba.core import sigutils

from penstock.compiler.background import request
from penstock.compiler.interpreter import interpret
from penstock.compiler.notice import compiling
from penstock.compiler.parts import Implementations, Whole

PATIENCE = 1.0  # seconds of interpreting until another process is asked to compile a kernel
SOON = 4.0  # seconds in which interpreting will be done, so that compiling meanwhile would only slow it down
MOST = 15.0  # seconds of interpreting until a kernel is compiled here all the same
WORTH = 8.0  # seconds of interpreting ahead for which a driver is compiled at once: about what that takes
FEW = 20_000  # items: more are compiled for at once
SLICE = 0.25  # seconds that a call of a driver takes, about
FIRST = 32  # items of the first such call
LOOK = 0.05  # seconds until code that was not there is looked for again
TIERS = ("interpreted", "compiled", "inlined")


class Work:
    """What drivers are expected to do, and how far they have come."""

    def __init__(self, items: int) -> None:
        self.items = items
        self.handed = 0
        self.spent = 0.0  # seconds of interpreting

    @property
    def ahead(self) -> float:
        """Seconds that it would take to interpret the rest."""
        return self.spent * max(0, self.items - self.handed) / max(1, self.handed)


_work: ContextVar[Work | None] = ContextVar("work", default=None)
_ahead: ContextVar[bool] = ContextVar("ahead", default=False)
_only: ContextVar[str | None] = ContextVar("only", default=None)


@contextlib.contextmanager
def only(tier: str) -> Iterator[None]:
    """Within this block kernels without code in this process are of one tier, all of them.

    >>> from penstock.compiler.tiers import only
    >>> with only("compiled"):
    ...     pass  # a benchmark, or a machine that is prepared for others
    """
    token = _only.set(tier)
    try:
        yield
    finally:
        _only.reset(token)


@contextlib.contextmanager
def expecting(items: int, *, apart: bool = False) -> Iterator[None]:
    """Within this block drivers will be given about so many items in all.

    It counts as a part of a larger block around it, unless it is `apart`, as what runs once in a while.
    Other kernels, and drivers without such a block, take the length of their longest array for their work.

    >>> from penstock.compiler.tiers import expecting
    >>> with expecting(1_000_000):
    ...     pass  # drivers that are called here are compiled at once
    """
    outer = _work.get()
    inner = apart or outer is None or outer.items < items
    token = _work.set(Work(items) if inner else outer)
    try:
        yield
    finally:
        _work.reset(token)


@contextlib.contextmanager
def ahead() -> Iterator[None]:
    """Within this block kernels that have no compiled code yet are asked for, because others will need them.

    >>> from penstock.compiler.tiers import ahead
    >>> with ahead():
    ...     pass  # a Spark query is prepared here, whose workers will look for kernels on disk
    """
    token = _ahead.set(True)
    try:
        yield
    finally:
        _ahead.reset(token)


class Pace:
    """How many items to give a driver at a time: as many as it does in a quarter of a second.

    Nothing can interrupt a compiled kernel, and compiled code can take over from interpreted between two
    calls only. What a driver does with its items does not depend on how they are cut.

    >>> from penstock.compiler.tiers import Pace
    >>> pace = Pace()
    >>> pace.cut(0, 1_000)
    32
    >>> pace.took(32, seconds=0.125)
    >>> pace.cut(32, 1_000)
    96
    """

    def __init__(self, first: int = FIRST) -> None:
        self._size = first

    def cut(self, start: int, stop: int) -> int:
        """Where the next slice of the items from `start` to `stop` ends."""
        cut = min(stop, start + self._size)
        if (work := _work.get()) is not None:
            work.handed += cut - start
        return cut

    def took(self, items: int, seconds: float) -> None:
        """So long it took to do so many."""
        wanted = max(items, 1) * SLICE / max(seconds, 1e-9)
        self._size = max(1, int(min(max(wanted, self._size / 8), self._size * 8)))


class Kernel(Whole):
    """A function that Numba compiles when that pays, and that is interpreted until then."""

    def __init__(self, function: Callable[..., Any], implementations: Implementations) -> None:
        super().__init__(function, implementations)
        self._spent: dict[Any, float] = {}  # seconds of interpreting, per signature
        self._signatures: dict[Any, Any] = {}  # by fingerprint: Numba takes ten times as long to find one
        self._missing: Any = None  # the signature that had no code when it was last looked for
        self._look_again = 0.0

    def _compile_for_args(self, *arguments: Any, **named: Any) -> Any:
        """What to call for arguments for which no code is in this process yet; Numba asks this."""
        if named:
            return super()._compile_for_args(*arguments, **named)  # type: ignore[misc]
        signature = self._signature(arguments)
        work = self._work(arguments)
        if not self._had_better_wait(signature, work):
            return self._compiled(signature, work)

        def run(*arguments: Any) -> Any:
            began = time.thread_time()
            found = interpret(self, arguments)
            seconds = time.thread_time() - began
            self._spent[signature] = self._spent.get(signature, 0.0) + seconds
            work.spent += seconds
            return found

        return run

    def _signature(self, arguments: tuple[Any, ...]) -> Any:
        """The types of arguments."""
        try:
            mark = fingerprint(arguments)
        except NotImplementedError:  # an argument that only Numba's slow way knows
            return tuple(map(self.typeof_pyval, arguments))
        found = self._signatures.get(mark)
        if found is None:
            found = self._signatures[mark] = tuple(map(self.typeof_pyval, arguments))
        return found

    def _work(self, arguments: tuple[Any, ...]) -> Work:
        """What this call is a part of: by itself, as many items as its longest array has."""
        return Work(_longest(arguments))

    def _compiled(self, signature: Any, work: Work) -> Callable[..., Any]:
        """The code for a signature."""
        return self.compile(signature)

    def compile(self, sig: Any) -> Any:
        """The code for a signature: that of this process, that on disk, or newly compiled, with a notice."""
        arguments = sigutils.normalize_signature(sig)[0]
        if arguments in self.overloads or self._cache.has(arguments, self.targetctx):
            return super().compile(sig)
        with compiling(self.py_func.__name__), self._cache.alone(arguments, self.targetctx):
            return super().compile(sig)

    def get_ready(self, signature: Any) -> None:
        """Have what a call with this signature needs on disk, for the other process that asked for it."""
        self.compile(signature)

    def cached(self, signature: Any) -> bool:
        """Whether there is compiled code for a signature, in this process or on disk."""
        return signature in self.overloads or self._cache.has(signature, self.targetctx)

    def compiling_elsewhere(self, signature: Any) -> bool:
        """Whether another process is compiling this signature at the moment."""
        return not self.cached(signature) and self._cache.compiling_elsewhere(signature, self.targetctx)

    def _appeared(self, signature: Any) -> bool:
        """Whether there is compiled code by now. Small calls do not look for it every time."""
        now = time.monotonic()
        if signature is self._missing and now < self._look_again:
            return False
        self._missing, self._look_again = signature, now + LOOK
        return self.cached(signature)

    def _had_better_wait(self, signature: Any, work: Work) -> bool:
        """Whether a call is interpreted, because its code is not there and would take longer to come."""
        if tier := chosen_tier():
            return tier == "interpreted"
        if work.items > FEW or work.ahead > WORTH or self._appeared(signature):
            return False
        if _ahead.get():
            request(self, signature)
        spent = self._spent.get(signature, 0.0)
        if spent <= PATIENCE or (spent <= SOON and work.ahead <= SOON - spent):
            return True
        return spent <= MOST and request(self, signature)


def fingerprint(arguments: tuple[Any, ...]) -> Any:
    """What arguments of the same types have in common: their classes, and what Numba makes out of them."""
    return compute_fingerprint(arguments), _classes(arguments)


def _classes(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The classes of arguments, with those in named tuples."""
    return tuple(
        [(type(each), _classes(each)) if isinstance(each, tuple) else type(each) for each in arguments]
    )


def chosen_tier() -> str | None:
    """The tier that somebody insists on."""
    tier = _only.get() or os.environ.get("PENSTOCK_TIER") or None
    if tier not in (None, *TIERS):
        raise ValueError(f"PENSTOCK_TIER is {tier!r}; allowed: {', '.join(TIERS)}, or nothing.")
    return tier


def expected() -> Work | None:
    """The work that drivers are a part of, if its size is known."""
    return _work.get()


def _longest(arguments: Iterable[Any]) -> int:
    """The length of the longest array, in named tuples too."""
    lengths = (
        max(each.shape, default=0)
        if isinstance(each, np.ndarray)
        else _longest(each)
        if isinstance(each, tuple)
        else 0
        for each in arguments
    )
    return max(lengths, default=0)
