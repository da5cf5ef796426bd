"""The registry: short names to policies. `built_in` lists those that come with Penstock."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from penstock.errors import PolicyOptionError, UnknownPolicyError, hint
from penstock.policies import built_in
from penstock.policies.base import Policy

AnyPolicy = TypeVar("AnyPolicy", bound=type[Policy])


def built_in_classes() -> list[type[Policy]]:
    """The classes of all built-in policies, those for caches only included.

    >>> from penstock.policies.registry import built_in_classes
    >>> built_in_classes()[0].__name__
    'Fifo'
    """
    listed = vars(built_in).values()
    return [each for each in listed if isinstance(each, type) and issubclass(each, Policy)]


_REGISTRY: dict[str, type[Policy]] = {policy.name: policy for policy in built_in_classes()}


def names() -> list[str]:
    """The short names of all registered policies that can run a join.

    >>> from penstock import policies
    >>> policies.names()[:3]
    ['fifo', 'rand', 'lru']
    """
    return [policy.name for policy in registered()]


def caching_names() -> list[str]:
    """Return the short names of all policies that can run a cache.

    >>> from penstock import policies
    >>> "lfd" in policies.caching_names(), "age" in policies.caching_names()
    (True, False)
    """
    return [policy.name for policy in registered("cache")]


def registered(operator: str = "join") -> list[type[Policy]]:
    """The classes of all registered policies that can run a join, a `cache`, or `any` of both.

    >>> from penstock import policies
    >>> policies.registered()[0].name
    'fifo'
    >>> [policy.name for policy in policies.registered("any") if not policy.joins]
    ['lfd']
    """
    return [
        policy
        for policy in _REGISTRY.values()
        if operator == "any" or (policy.caches if operator == "cache" else policy.joins)
    ]


def starters() -> list[str]:
    """The short names of the policies that are fast to compile and to run, with which a plan starts.

    >>> from penstock.policies.registry import starters
    >>> starters()
    ['fifo', 'lru', 'prob', 'gdj']
    """
    return [policy.name for policy in registered() if policy.starter]


def candidates(operator: str) -> list[Policy]:
    """The policies that `auto` tries by default in an operator: `join`, `cache` or `query`.

    Each class says so itself (`candidate_for`, which subclasses do not inherit); the lowest rank is first.

    >>> from penstock.policies.registry import candidates
    >>> candidates("join")[0].name, candidates("query")[0].name
    ('learned', 'gdj')
    """
    ranks = {policy: vars(policy).get("candidate_for", {}).get(operator) for policy in _REGISTRY.values()}
    found = [policy for policy, rank in ranks.items() if rank is not None]
    return [policy() for policy in sorted(found, key=lambda policy: ranks[policy])]


def register(policy: AnyPolicy) -> AnyPolicy:
    """Class decorator: register your own policy under its name, like a built-in one.

    >>> from penstock import policies
    >>> @policies.register
    ... class Newest(policies.PythonPolicy):
    ...     name = "newest"
    ...
    ...     def score(self, item, now):
    ...         return -item.arrival
    >>> policies.get("newest")
    Newest()
    >>> policies.unregister("newest")
    """
    if not (isinstance(policy, type) and issubclass(policy, Policy)):
        raise UnknownPolicyError(f"register() takes a subclass of Policy; {policy!r} was given.")
    if not policy.name or ":" in policy.name or "," in policy.name:
        raise UnknownPolicyError(
            f"A policy needs a short name without ':' or ','; {policy.__name__}.name is {policy.name!r}."
        )
    known = _REGISTRY.get(policy.name)
    if known is not None and known.__qualname__ != policy.__qualname__:
        raise UnknownPolicyError(f"The name {policy.name!r} is taken by {known.__name__}; choose another.")
    _REGISTRY[policy.name] = policy
    return policy


def unregister(name: str) -> None:
    """Remove a policy that was registered by hand; built-in ones stay.

    >>> from penstock import policies
    >>> policies.unregister("never-registered")
    """
    if name not in {policy.name for policy in built_in_classes()}:
        _REGISTRY.pop(name, None)


def get(policy: str | Policy) -> Policy:
    """Return a policy from its name, or from its name with options; a policy object is returned as it is.

    >>> from penstock import policies
    >>> policies.get("gdj:initial=0.8,method=3")
    GreedyDualJoin(initial=0.8, method=3)
    """
    if isinstance(policy, Policy):
        return policy
    if isinstance(policy, type) and issubclass(policy, Policy):
        return policy()
    if not isinstance(policy, str):
        raise UnknownPolicyError(
            f"A policy is a name, a name with options, or a policy object; {policy!r} was given."
        )
    name, _, options = policy.partition(":")
    known = _REGISTRY.get(name.strip())
    if known is None:
        raise UnknownPolicyError(f"There is no policy {name!r}{hint(name, names())}")
    return known(**_options(known, options))


def _options(policy: type[Policy], text: str) -> dict[str, Any]:
    """Parse the options after the colon into keyword arguments."""
    fields = [field.name for field in dataclasses.fields(policy)]
    options: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        option, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not value:
            raise PolicyOptionError(f"{policy.name}: an option is written name=value; {part!r} was given.")
        if option not in fields:
            raise PolicyOptionError(
                f"{policy.name} has no option {option!r}{hint(option, fields or ['(it has none)'])}"
            )
        options[option] = _value(value)
    return options


def _value(text: str) -> Any:
    """Parse a number, a boolean or a tuple ("1/2", "1/2|3/4"); anything else stays text."""
    for between in ("|", "/"):
        if between in text:
            return tuple(_value(part) for part in text.removesuffix(between).split(between))
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text.lower(), text)
