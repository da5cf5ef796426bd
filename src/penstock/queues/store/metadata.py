"""The metadata of a folder of queues: `queue.json`, with a checksum."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import google_crc32c

from penstock.errors import QueueDamageError, QueueError
from penstock.queues.store.disk import Disk
from penstock.queues.store.items import Items, items_of

META = "queue.json"
VERSION = 1
_TYPES: dict[str, tuple[type, ...]] = {
    "version": (int,),
    "queues": (int,),
    "durable": (bool,),
    "schema": (str, type(None)),
}


def describe(folder: Path) -> dict[str, Any]:
    """Return the metadata of a folder of queues, or raise an error if it is not one.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from penstock.queues.store.metadata import describe
    >>> describe(Path(tempfile.mkdtemp()))
    Traceback (most recent call last):
    ...
    penstock.errors.QueueError: '...' holds no queue: there is no queue.json in it.
    """
    path = folder / META
    try:
        raw = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise QueueError(f"'{folder}' holds no queue: there is no {META} in it.") from error
    except OSError as error:
        raise QueueError(f"'{path}' cannot be read: {error.strerror}.") from error
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"it is not JSON ({error})") from error
    if not isinstance(found, dict):
        raise _damaged(path, f"it holds {type(found).__name__}, not an object")
    version = found.get("version")
    if type(version) is int and version > VERSION:
        raise QueueError(
            f"'{path}' is of version {version}; this Penstock reads up to {VERSION}. Use a newer Penstock."
        )
    for name, kinds in _TYPES.items():
        if name not in found:
            raise _damaged(path, f"{name!r} is missing")
        if type(found[name]) not in kinds:
            raise _damaged(path, f"{name!r} is {found[name]!r}")
    strange = sorted(set(found) - set(_TYPES) - {"checksum"})
    if strange:
        raise _damaged(path, f"{strange[0]!r} does not belong in it")
    # Folders made before there was a checksum have none.
    if "checksum" in found and found["checksum"] != _checksum(found):
        raise _damaged(path, "its checksum is wrong")
    _items(path, found["schema"])
    if version != VERSION or not 1 <= found["queues"] <= 99_999:
        raise _damaged(path, f"'version' is {version} and 'queues' {found['queues']}")
    return found


def _items(path: Path, schema: str | None) -> Items:
    try:
        return items_of(None, schema)
    except (ValueError, OSError) as error:
        raise _damaged(path, "its 'schema' cannot be read") from error


def _damaged(path: Path, reason: str) -> QueueDamageError:
    return QueueDamageError(
        f"'{path}' is damaged: {reason}. The items are in the other files; restore this file from a copy, or "
        "rewrite it, as docs/queues.md shows."
    )


def _checksum(content: dict[str, Any]) -> int:
    plain = {name: content[name] for name in _TYPES}
    return int(google_crc32c.value(json.dumps(plain).encode()))


def open_metadata(folder: Path, queues: int, durable: bool, schema: Any, disk: Disk) -> Items:
    """Create the metadata of a folder, or check it; return how its items are converted to bytes."""
    if (folder / META).exists():
        found = describe(folder)
        if found["queues"] != queues or found["durable"] != durable:
            raise QueueError(
                f"'{folder}' was made with queues={found['queues']}, durable={found['durable']}; "
                f"queues={queues}, durable={durable} were given."
            )
        items = _items(folder / META, found["schema"])
        if schema is not None and (items.schema is None or not items_of(schema).schema.equals(items.schema)):
            raise QueueError(f"The queue in '{folder}' has a different schema: {items.schema}.")
        return items
    if any(folder.glob("*.seg")):
        raise QueueDamageError(f"'{folder}' has segment files but no {META}; it cannot be opened.")
    left = [name for name in ("commits", "marks") if (folder / name).exists()]
    if left:
        raise QueueDamageError(
            f"'{folder}' has {' and '.join(left)} of a queue but no {META}; it cannot be opened. "
            "Restore the file, or give an empty folder."
        )
    items = items_of(schema)
    content = {"version": VERSION, "queues": queues, "durable": durable, "schema": items.describe()}
    content["checksum"] = _checksum(content)
    disk.replace(folder / META, json.dumps(content).encode())
    return items
