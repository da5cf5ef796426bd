"""Snapshots: the configuration and the arrays of an operator as bytes.

Restoring accepts only plain values, NumPy types and Penstock classes.
"""

from __future__ import annotations

from typing import Any

from penstock.engine.store import Store
from penstock.errors import SnapshotError
from penstock.policies import Policy, registered
from penstock.snapshots.encoding import field_names
from penstock.snapshots.sealed import Seal

SEAL = Seal(b"PENSTOCK", 6, "snapshot")


def pack(config: Any, store: Any, policy: Any, extra: dict[str, Any]) -> bytes:
    """Return a state as bytes."""
    return SEAL.dump(_each_tuple((config, store, policy, extra), "without_views"), _accepted)


def unpack(
    data: bytes, config_class: type, store_class: type = Store
) -> tuple[Any, Any, Any, dict[str, Any]]:
    """Return the parts of a snapshot of an operator with this config, or raise an error."""
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
    """Return a nested tuple with the method applied to each part that has it."""
    if not isinstance(value, tuple):
        return value
    parts = [_each_tuple(part, method) for part in value]
    whole = type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return getattr(whole, method)() if hasattr(whole, method) else whole


def _accepted(kind: type) -> bool:
    """Whether this is a record or state of Penstock, or of the module of a registered policy."""
    if field_names(kind) is None:
        return False
    if kind.__module__.partition(".")[0] == "penstock":
        return True
    known = registered("any")
    return (
        kind in known if issubclass(kind, Policy) else kind.__module__ in {each.__module__ for each in known}
    )
