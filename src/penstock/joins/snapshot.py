"""Snapshots: the configuration and the arrays of an operator as bytes.

Only descriptions whose parts are plain values, NumPy and Penstock classes are accepted back.
"""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

from penstock.engine.store import Store
from penstock.errors import SnapshotError
from penstock.policies import registered
from penstock.policies.python import PythonState
from penstock.snapshots.sealed import Seal

SEAL = Seal(b"PENSTOCK", 4, "snapshot")


def pack(config: Any, store: Any, policy: Any, extra: dict[str, Any]) -> bytes:
    """A state as bytes."""
    return SEAL.dump(_each_tuple((config, store, policy, extra), "without_views"))


def unpack(
    data: bytes, config_class: type, store_class: type = Store
) -> tuple[Any, Any, Any, dict[str, Any]]:
    """The parts of a snapshot of an operator with this config, or an error that says what is wrong."""
    content = SEAL.load(data, _accepted)
    try:
        config, store, policy, extra = _each_tuple(content, "with_views")
    except Exception as error:
        raise SnapshotError(f"The snapshot cannot be read: {error}") from error
    if not (isinstance(config, config_class) and isinstance(store, store_class) and isinstance(extra, dict)):
        raise SnapshotError(
            f"The snapshot is of another operator: it has a {type(config).__name__}, "
            f"not a {config_class.__name__}."
        )
    return config, store, policy, extra


def _each_tuple(value: Any, method: str) -> Any:
    """A nested tuple in which each part that has the method went through it."""
    if not isinstance(value, tuple):
        return value
    parts = [_each_tuple(part, method) for part in value]
    whole = type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return getattr(whole, method)() if hasattr(whole, method) else whole


def _accepted(module: str, name: str) -> bool:
    """Whether this is a record or named tuple that Penstock or a registered policy defines."""
    if (module, name) == ("builtins", "set"):
        return True
    if "." in name or not (module.split(".")[0] == "penstock" or _is_policy(module, name)):
        return False
    found = getattr(importlib.import_module(module), name)
    record = isinstance(found, type) and (dataclasses.is_dataclass(found) or _keeps_state(found))
    return record and found.__module__ == module


def _keeps_state(found: type) -> bool:
    """Whether a class is a named tuple, or the state of a policy in plain Python."""
    return issubclass(found, PythonState) or (issubclass(found, tuple) and hasattr(found, "_fields"))


def _is_policy(module: str, name: str) -> bool:
    """Whether this is a policy that the user has registered in this process."""
    return any(cls.__module__ == module and cls.__qualname__ == name for cls in registered())
