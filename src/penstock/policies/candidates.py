"""Which policies a policy that chooses (`auto`) can follow in an operator: `join`, `cache` or `query`."""

from __future__ import annotations

from collections.abc import Callable

from penstock.errors import PolicyOptionError
from penstock.policies.base import Policy


def _in_join(policy: Policy) -> bool:
    unfit = policy.chooses or policy.needs_future or policy.needs_model or policy.reads_values
    return not unfit and policy.joins and policy.compiled and policy.unified and policy.counts_bytes


def _in_cache(policy: Policy) -> bool:
    return policy.caches and not (policy.chooses or policy.needs_future or policy.reads_values)


def _in_query(policy: Policy) -> bool:
    return policy.queries and policy.compiled and not policy.chooses


OPERATORS: dict[str, Callable[[Policy], bool]] = {"join": _in_join, "cache": _in_cache, "query": _in_query}


def can_be_candidate(policy: Policy, operator: str) -> bool:
    """Whether `auto` can follow a policy in an operator.

    >>> from penstock import policies
    >>> from penstock.policies.candidates import can_be_candidate
    >>> [can_be_candidate(policies.get("lru"), operator) for operator in ("join", "cache", "query")]
    [True, True, True]
    >>> can_be_candidate(policies.get("age"), "join"), can_be_candidate(policies.get("lfd"), "cache")
    (False, False)
    """
    return OPERATORS[operator](policy)


def checked_candidates(policy: Policy, operator: str) -> list[Policy]:
    """Return the candidates of a policy that chooses; raise an error if one does not fit the operator.

    >>> from penstock import policies
    >>> from penstock.policies.candidates import checked_candidates
    >>> checked_candidates(policies.get("auto"), "cache")[0].name
    'lru'
    >>> [each.name for each in checked_candidates(policies.get("auto:candidates=lru/prob"), "query")]
    ['lru', 'prob']
    """
    from penstock.policies.registry import get, registered

    found: list[Policy] = policy.among(operator)  # type: ignore[attr-defined]
    for each in found:
        if not can_be_candidate(each, operator):
            known = registered("cache" if operator == "cache" else "join")
            fit = [kind.name for kind in known if can_be_candidate(get(kind.name), operator)]
            raise PolicyOptionError(
                f"{policy.name}: {each.name} cannot be a candidate for a {operator}; "
                f"choose from {', '.join(fit)}."
            )
    return found
