"""`check_policy`: the contract of a policy, checked on random streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from penstock import policies
from penstock.errors import PenstockError, hint
from penstock.policies import Policy
from penstock.testing.cache_checks import CACHE_CHECKS, ONLINE_CACHE_CHECKS
from penstock.testing.join_checks import (
    RUN_CHECKS,
    STATE_CHECKS,
    STEPS,
    check_budget,
    check_bytes,
    check_shared_arrays,
    check_tiers,
)
from penstock.testing.many_checks import check_many
from penstock.testing.spec_checks import SPEC_CHECKS

OPERATORS = ("join", "many", "cache")
SEEDS = (0, 1)

Check = Callable[[], None]


def check_policy(policy: type[Policy] | Policy | str, operators: Sequence[str] | None = None) -> list[str]:
    """Check that a policy keeps its contract, on random streams that are the same each time.

    Its capabilities decide which checks apply; their names are returned. The first that fails raises an
    `AssertionError` that says what is wrong. A compiled policy runs interpreted and compiled, which takes a
    minute or two the first time on a machine.

    Parameters
    ----------
    policy
        A class that can be built without arguments, a name, or an object. A policy that needs a model is
        checked as an object that has one.
    operators
        Some of `join`, `many` and `cache`; by default all that the policy can run.

    Examples
    --------
    >>> from penstock.testing import check_policy
    >>> [name for name in check_policy("lfd") if "cache" in name]
    ['check_cache_batches', 'check_cache_accounts']
    """
    found = policies.get(policy)  # type: ignore[arg-type]
    able = {"join": found.joins, "many": found.joins and found.many, "cache": found.caches}
    for operator in operators or ():
        if operator not in OPERATORS:
            raise PenstockError(
                f"There is no operator {operator!r} to check{hint(operator, list(OPERATORS))}"
            )
        if not able[operator]:
            raise AssertionError(
                f"{found.spell()}: it does not say that it can run the operator {operator!r}."
            )
    wanted = [operator for operator in operators or OPERATORS if able[operator]]
    names: dict[str, None] = {}
    for name, check in _checks(found, wanted):
        names[name] = None
        try:
            check()
        except Exception as error:
            reason = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
            raise AssertionError(f"{found.spell()}, {name}: {reason}") from error
    return list(names)


def _checks(policy: Policy, operators: Sequence[str]) -> Iterator[tuple[str, Check]]:
    """The checks that apply, with their names; the cheap ones first."""
    yield from (_named(check, policy) for check in SPEC_CHECKS)
    if "join" in operators:
        yield from _join_checks(policy)
    if "many" in operators and not policy.needs_future:
        yield _named(check_many, policy)
        yield _named(check_many, policy, allocation="equal")
    if "cache" in operators:
        yield from (_named(check, policy) for check in CACHE_CHECKS)
        if not policy.needs_future:
            yield from (_named(check, policy) for check in ONLINE_CACHE_CHECKS)


def _join_checks(policy: Policy) -> Iterator[tuple[str, Check]]:
    steps = [step for step in STEPS if step != "tick" or policy.ticks]
    for step in steps:
        yield from (_named(check, policy, step) for check in RUN_CHECKS)
    if policy.needs_future:  # it cannot start before the whole input is there
        return
    for step in steps:
        for check in STATE_CHECKS:
            yield from (_named(check, policy, step, seed=seed) for seed in SEEDS)
        for allocation in ("equal", "unified"):
            yield _named(check_budget, policy, step, allocation)
        if policy.counts_bytes:
            yield _named(check_bytes, policy, step)
    if policy.compiled:
        yield _named(check_shared_arrays, policy)
        yield from (_named(check_tiers, policy, step) for step in steps)


def _named(check: Callable[..., None], *arguments: Any, **options: Any) -> tuple[str, Check]:
    return check.__name__, partial(check, *arguments, **options)
