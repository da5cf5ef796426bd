"""The registry of policies by short name. To add a built-in policy, add its class to `_BUILT_IN`."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from penstock.errors import PolicyOptionError, UnknownPolicyError, hint
from penstock.policies.age import Age
from penstock.policies.auto import Auto
from penstock.policies.base import Policy
from penstock.policies.clock import Clock
from penstock.policies.clock_exp import ClockExp
from penstock.policies.fifo import Fifo
from penstock.policies.flowexpect import FlowExpect
from penstock.policies.gdj import GreedyDualJoin
from penstock.policies.heeb.histograms import HeebHist
from penstock.policies.heeb.join import Heeb
from penstock.policies.learned import Learned
from penstock.policies.lfd import Lfd
from penstock.policies.lfu import Lfu
from penstock.policies.life import Life
from penstock.policies.lru import Lru
from penstock.policies.opt import Opt
from penstock.policies.prob import Prob
from penstock.policies.rand import Rand

_BUILT_IN: tuple[type[Policy], ...] = (
    Fifo,
    Rand,
    Lru,
    Lfu,
    Prob,
    Life,
    Age,
    GreedyDualJoin,
    Clock,
    ClockExp,
    Heeb,
    HeebHist,
    FlowExpect,
    Opt,
    Learned,
    Auto,
)

_FOR_CACHES: tuple[type[Policy], ...] = (Lfd,)  # these cannot run a join

_REGISTRY: dict[str, type[Policy]] = {policy.name: policy for policy in _BUILT_IN}

AnyPolicy = TypeVar("AnyPolicy", bound=type[Policy])


def names() -> list[str]:
    """Return the short names of all registered policies.

    >>> from penstock import policies
    >>> policies.names()[:3]
    ['fifo', 'rand', 'lru']
    """
    return list(_REGISTRY)


def caching_names() -> list[str]:
    """Return the short names of all policies that can run a cache.

    >>> from penstock import policies
    >>> policies.caching_names()
    ['fifo', 'rand', 'lru', 'lfu', 'prob', 'gdj', 'clock', 'clock-exp', 'heeb', 'heeb-hist', 'auto', 'lfd']
    """
    return [policy.name for policy in (*_REGISTRY.values(), *_FOR_CACHES) if policy.caches]


def registered() -> list[type[Policy]]:
    """Return the classes of all registered policies.

    >>> from penstock import policies
    >>> policies.registered()[0].name
    'fifo'
    """
    return list(_REGISTRY.values())


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
    known = _REGISTRY.get(policy.name) or {kind.name: kind for kind in _FOR_CACHES}.get(policy.name)
    if known is not None and known.__qualname__ != policy.__qualname__:
        raise UnknownPolicyError(f"The name {policy.name!r} is taken by {known.__name__}; choose another.")
    _REGISTRY[policy.name] = policy
    return policy


def unregister(name: str) -> None:
    """Remove a policy that was registered by hand; built-in ones stay.

    >>> from penstock import policies
    >>> policies.unregister("never-registered")
    """
    if name not in {policy.name for policy in _BUILT_IN}:
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
    known = _REGISTRY.get(name.strip()) or {kind.name: kind for kind in _FOR_CACHES}.get(name.strip())
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
