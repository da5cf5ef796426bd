"""Convert items to bytes: bytes as they are, Arrow record batches as messages after their number of rows."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable
from typing import Any

from penstock.errors import QueueError

_ROWS = struct.Struct("<q")


def listed(items: Any, kind: str) -> list[Any]:
    """Return the items given to `put_many`, or raise an error that says what it takes.

    >>> from penstock.queues.store.items import listed
    >>> listed(5, "bytes")
    Traceback (most recent call last):
    ...
    penstock.errors.QueueError: put_many takes several items, such as a list of bytes; 5 was given.
    """
    name = type(items).__name__
    if isinstance(items, bytes | bytearray | memoryview | str) or name in ("RecordBatch", "Table"):
        advice = "For a table, use to_batches()." if name == "Table" else "For one item, use put(item)."
        raise QueueError(
            f"put_many takes several items, such as a list of {kind}; one {name} was given. {advice}"
        )
    try:
        each = iter(items)
    except TypeError as error:
        raise QueueError(
            f"put_many takes several items, such as a list of {kind}; {items!r} was given."
        ) from error
    return list(each)


class BytesItems:
    """Items that are bytes already; each counts as one row.

    >>> from penstock.queues.store.items import BytesItems
    >>> BytesItems().encode([b"a", bytearray(b"b")])
    [b'a', b'b']
    """

    kind = "bytes"
    schema: Any = None

    def encode(self, items: Iterable[Any]) -> list[bytes]:
        """The items, checked."""
        given = listed(items, "bytes")
        kinds = set(map(type, given))
        if kinds <= {bytes}:
            return given
        strange = [kind for kind in kinds if not issubclass(kind, bytes | bytearray | memoryview)]
        if strange:
            raise QueueError(
                f"This queue takes bytes; {strange[0].__name__} was given. "
                "Encode it first, or open the queue with schema=... for Arrow record batches."
            )
        return [bytes(item) for item in given]

    def decode(self, item: bytes) -> Any:
        """The item."""
        return item

    def decode_many(self, items: list[bytes]) -> list[Any]:
        """The items."""
        return items

    def rows(self, items: list[bytes]) -> int:
        """How many rows the items have together."""
        return len(items)

    def describe(self) -> str | None:
        """What the folder of the queue remembers of the schema."""
        return None


class ArrowItems:
    """Record batches of one schema.

    >>> import pyarrow as pa
    >>> from penstock.queues.store.items import ArrowItems
    >>> batch = pa.record_batch({"n": [1, 2, 3]})
    >>> items = ArrowItems(batch.schema)
    >>> encoded = items.encode([batch])
    >>> items.rows(encoded), items.decode(encoded[0]).equals(batch)
    (3, True)
    """

    kind = "arrow"

    def __init__(self, schema: Any) -> None:
        self.schema = schema

    def encode(self, items: Iterable[Any]) -> list[bytes]:
        """The batches as messages, checked."""
        import pyarrow as pa

        found = []
        for item in listed(items, "record batches"):
            if not isinstance(item, pa.RecordBatch):
                raise QueueError(
                    f"This queue takes Arrow record batches; {type(item).__name__} was given. "
                    "For a table, use to_batches()."
                )
            if not item.schema.equals(self.schema):
                raise QueueError(
                    f"A batch with the columns {item.schema.names} was given; the queue has the schema "
                    f"{', '.join(f'{f.name}: {f.type}' for f in self.schema)}."
                )
            found.append(b"".join((_ROWS.pack(item.num_rows), item.serialize())))
        return found

    def decode(self, item: bytes) -> Any:
        """The batch; it uses the bytes, and copies nothing."""
        import pyarrow as pa

        return pa.ipc.read_record_batch(pa.py_buffer(item)[_ROWS.size :], self.schema)

    def decode_many(self, items: list[bytes]) -> list[Any]:
        """The batches."""
        return [self.decode(item) for item in items]

    def rows(self, items: list[bytes]) -> int:
        """How many rows the items have together."""
        return sum(_ROWS.unpack_from(item)[0] for item in items)

    def describe(self) -> str | None:
        """What the folder of the queue remembers of the schema."""
        return base64.b64encode(self.schema.serialize().to_pybytes()).decode()


Items = BytesItems | ArrowItems


def items_of(schema: Any, described: str | None = None) -> Items:
    """How items become bytes: by a schema, by what a folder remembers, or not at all.

    >>> from penstock.queues.store.items import items_of
    >>> items_of(None).kind
    'bytes'
    """
    if schema is None and described is None:
        return BytesItems()
    import pyarrow as pa

    if schema is None:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(described or "")))
    if not isinstance(schema, pa.Schema):
        raise QueueError(f"schema takes a pyarrow.Schema; {type(schema).__name__} was given.")
    return ArrowItems(schema)
