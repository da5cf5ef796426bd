"""Policies: which tuple is evicted when memory is full. One file each; `built_in` lists them.

>>> from penstock import policies
>>> policies.get("lru").summary
'evicts the tuple whose last match is longest ago'
"""

from penstock.policies.base import Policy
from penstock.policies.built_in import *  # noqa: F403 (every built-in policy is public)
from penstock.policies.python import Item, PythonPolicy
from penstock.policies.registry import (
    built_in_classes,
    caching_names,
    get,
    names,
    register,
    registered,
    unregister,
)

__all__ = [
    "Item",
    "Policy",
    "PythonPolicy",
    "caching_names",
    "get",
    "names",
    "register",
    "registered",
    "unregister",
]
__all__ += [policy.__name__ for policy in built_in_classes()]
