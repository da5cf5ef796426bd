"""Drivers: kernels that process items slice by slice under a policy.

A driver is compiled once, for all policies, which are bound to it late (see `binding`). With its policy
inside it is up to a third faster, which pays for another compilation in runs of `MANY` items and more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types
from numba.core import config

from penstock.compiler.binding import bind, bind_at
from penstock.compiler.hook import Bound
from penstock.compiler.jit import implementations
from penstock.compiler.parts import Implementations
from penstock.compiler.tiers import Kernel, Work, chosen_tier, expected, fingerprint, only

MANY = 10_000_000  # items from which on a driver is compiled with its policy inside

_WORDS = types.Array(types.int64, 1, "C")
_BOUND = types.NamedUniTuple(_WORDS, 2, Bound)


def driver(function: Callable[..., Any]) -> Any:
    """A kernel whose work follows the number of items that `tiers.expecting` tells.

    If it has a policy, that is its first argument, and the second is what the hooks work on, whose class says
    in `hooks` which these are.
    """
    return function if getattr(config, "DISABLE_JIT", False) else Driver(function, implementations)


class Driver(Kernel):
    """A kernel in two forms: for any policy, and with one inside."""

    def __init__(self, function: Callable[..., Any], implementations: Implementations) -> None:
        super().__init__(function, implementations)
        self.late = Kernel(function, implementations)
        self._bindable: set[Any] = set()  # fingerprints of arguments for which there is code to be bound

    def __call__(self, *given: Any) -> Any:
        """Call what is there; Numba's dispatcher would look for its own code for a millisecond at first."""
        if self._bindable and not _inlining(expected()) and fingerprint(given) in self._bindable:
            return self._call_bound(*given)
        return super().__call__(*given)

    def _call_bound(self, policy: Any, store: Any, *rest: Any) -> Any:
        with only("compiled"):  # a table of addresses means nothing to interpreted kernels
            return self.late(bind(policy, store), store, *rest)

    def _work(self, arguments: tuple[Any, ...]) -> Work:
        """What was announced: its arrays are tables, whose length says nothing."""
        return expected() or super()._work(arguments)

    def _compiled(self, signature: Any, work: Work) -> Callable[..., Any]:
        if not _takes_policy(signature) or _inlining(work) or super().cached(signature):
            self._bindable.clear()  # what is compiled here is found by Numba's dispatcher
            return super()._compiled(signature, work)
        self._compile_late(signature)

        def run(*given: Any) -> Any:
            self._bindable.add(fingerprint(given))
            return self._call_bound(*given)

        return run

    def _compile_late(self, signature: Any) -> None:
        """Compile both halves; first the second if another process is at the first, as workers often are."""
        halves = [(self.late, _late(signature)), (bind_at, _binding(signature))]
        if self.late.compiling_elsewhere(_late(signature)):
            halves.reverse()
        for kernel, types_of_call in halves:
            kernel.compile(types_of_call)

    def get_ready(self, signature: Any) -> None:
        """Have the form for any policy on disk, and what binds this one."""
        if _takes_policy(signature):
            self._compile_late(signature)
        else:
            super().get_ready(signature)

    def cached(self, signature: Any) -> bool:
        """Whether there is compiled code in either form."""
        if super().cached(signature):
            return True
        return (
            _takes_policy(signature)
            and self.late.cached(_late(signature))
            and bind_at.cached(_binding(signature))
        )


def _inlining(work: Work | None) -> bool:
    """Whether the form with the policy inside pays, or somebody insists on it."""
    return (work is not None and work.items >= MANY) or chosen_tier() == "inlined"


def _takes_policy(signature: Any) -> bool:
    return len(signature) > 1 and hasattr(getattr(signature[1], "instance_class", None), "hooks")


def _late(signature: Any) -> Any:
    return (_BOUND, *signature[1:])


def _binding(signature: Any) -> Any:
    return (*signature[:2], _WORDS, _WORDS)
