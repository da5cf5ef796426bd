"""What joins of many streams accept: the kind of join, policies, allocations, and samples."""

from __future__ import annotations

from typing import Any

from penstock.arguments import one_of, probability, whole
from penstock.budget import Budget, Bytes
from penstock.errors import BudgetError, PenstockError, UnknownPolicyError
from penstock.joins.kinds import kind_of
from penstock.policies import Policy, registered

ALLOCATIONS = ("unified", "equal", "proportional", "credit")


def check_how(how: Any, joins: int = 1, chain: bool = False) -> str:
    """Return the kind of join, `"inner"` or `"left"`; reject any other, and left joins beside other joins.

    >>> from penstock.joins.many_options import check_how
    >>> check_how("inner"), check_how("left_outer")
    ('inner', 'left')
    """
    kind = kind_of(how, "all").how
    if kind not in ("inner", "left"):
        raise PenstockError(
            f"how={how!r} is not supported for joins of many streams, only 'inner' and 'left' (which keeps "
            "the rows of the first stream). Put the stream whose rows are to be kept first."
        )
    if kind == "left" and joins > 1 and not chain:
        raise PenstockError(
            "how='left' keeps the rows of the first stream that are in no result of one join, but on= has "
            f"{joins} joins. Give one join over all streams or a Chain, or run each join by itself."
        )
    return kind


def check_sampling(drop_rate: Any, warmup: Any) -> None:
    """Reject a drop rate or a warm-up that cannot be.

    >>> from penstock.joins.many_options import check_sampling
    >>> check_sampling(0.5, 100)
    """
    if isinstance(drop_rate, str) and drop_rate == "unbiased":
        raise PenstockError(
            "drop_rate='unbiased' is for joins of two streams, where a result has one older member, kept "
            "with one probability. A result of more streams needs all of its older members, so joins of "
            "different sizes would be sampled differently. Give a probability, and divide counts by "
            "(1 - drop_rate) to the power of the members but one."
        )
    probability("drop_rate", drop_rate)
    whole("warmup", warmup)


def check_options(
    budget: Budget, policy: Policy, allocation: str | None, seed: int, rates_known: bool
) -> str:
    """Reject options that joins of many streams do not support; return the allocation or its default."""
    if policy.predictor_options() is not None:
        raise UnknownPolicyError(
            f"{policy.spell()} predicts the matches of a tuple with one other stream on one key, and a "
            "result of a join of many streams needs several at once. Use 'auto', 'gdj', 'prob' or 'lru'."
        )
    if policy.needs_future or not (policy.many or policy.chooses):
        works = ", ".join(known.name for known in registered() if known.many)
        raise UnknownPolicyError(
            f"{policy.spell()} is not defined for joins of many streams. Use one of: {works}"
        )
    policy.check_many()
    if allocation is None:
        allocation = policy.default_allocation(rates_known)
    allocation = one_of("allocation", allocation, ALLOCATIONS)
    if allocation == "credit" and not policy.has_credits:
        raise PenstockError(
            f"allocation='credit' needs the credits of gdj, but {policy.name} has none; use 'unified', "
            "'equal' or 'proportional'."
        )
    if allocation == "credit" and isinstance(budget, Bytes):
        raise PenstockError(
            "allocation='credit' divides a budget in tuples; use another allocation for Bytes, or Tuples(n)."
        )
    if allocation == "unified" and not policy.unified:
        raise UnknownPolicyError(
            f"{policy.name} cannot manage one pool for all streams; use allocation='equal' or 'proportional'."
        )
    whole("seed", seed)
    return allocation


def enough(tuples: int, streams: int, given: str) -> None:
    """Reject a budget without room for one tuple per stream."""
    if tuples < streams:
        raise BudgetError(f"A join needs room for at least one tuple per stream, {streams} in all; {given}.")
