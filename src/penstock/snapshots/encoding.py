"""Encode values as bytes without pickle: plain values, arrays, and records of accepted classes.

Every value is a letter for its kind followed by its content. Reading runs no code: a class is named by its
module and name, and the reader decides whether to accept it. Lengths are checked against the available bytes,
so damage is an error and not a crash.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import struct
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.errors import SnapshotError

Accept = Callable[[type], bool]
Buffer = bytes | memoryview

DEEPEST = 100  # maximum nesting of values
KINDS = "?biufcSUMm"  # of NumPy's types; objects are encoded one by one

_LONG = struct.Struct("<q")
_FLOAT = struct.Struct("<d")


def encode(value: Any, accept: Accept = lambda kind: False) -> bytes:
    """Encode a value as bytes; classes of records must be accepted, as for reading.

    >>> import numpy as np
    >>> from penstock.snapshots.encoding import decode, encode
    >>> decode(encode({"rows": [1, 2], "name": ("x", None), "scores": np.array([0.5])}))
    {'rows': [1, 2], 'name': ('x', None), 'scores': array([0.5])}
    >>> encode(object())
    Traceback (most recent call last):
        ...
    penstock.errors.SnapshotError: A snapshot cannot hold a builtins.object; it takes plain values, ...
    """
    return b"".join(encoded(value, accept))


def encoded(value: Any, accept: Accept = lambda kind: False) -> list[Buffer]:
    """The same in parts. Arrays are not copied: use them before anything changes.

    >>> import numpy as np
    >>> from penstock.snapshots.encoding import encode, encoded
    >>> b"".join(encoded(np.arange(3))) == encode(np.arange(3))
    True
    """
    writer = _Writer(accept)
    writer.put(value)
    return writer.parts


def decode(data: bytes, accept: Accept = lambda kind: False) -> Any:
    """Return the value given to `encode`; classes of records must be accepted.

    >>> from penstock.budget import Tuples
    >>> from penstock.snapshots.encoding import decode, encode
    >>> decode(encode(Tuples(3), lambda kind: kind is Tuples), lambda kind: kind is Tuples)
    Tuples(n=3)
    """
    reader = _Reader(memoryview(data), accept)
    value = reader.get()
    if reader.at != len(data):
        raise SnapshotError(f"{len(data) - reader.at} bytes are left over.")
    return value


class _Writer:
    """Collects the parts of an encoded value."""

    def __init__(self, accept: Accept) -> None:
        self.parts: list[Buffer] = []
        self.accept = accept
        self._numbers: dict[int, int] = {}  # of what can change, by identity: what is shared stays one
        self._alive: list[Any] = []  # or something else could get the same identity

    def put(self, value: Any) -> None:
        """One value, with all that is in it."""
        put = _PUT.get(type(value))
        if type(value) in _SHARED or (put is None and _is_shared(value)):
            number = self._numbers.setdefault(id(value), len(self._alive))
            if number < len(self._alive):
                self._size(b"R", number)
                return
            self._alive.append(value)
        if put is not None:
            put(self, value)
        elif isinstance(value, np.generic):
            self._tag(b"g", value.dtype.str, value.tobytes())
        elif isinstance(value, np.dtype):
            self._tag(b"p", value.str)
        else:
            self._put_record(value)

    def _put_none(self, value: None) -> None:
        self.parts.append(b"N")

    def _put_bool(self, value: bool) -> None:
        self.parts.append(b"T" if value else b"F")

    def _put_int(self, value: int) -> None:
        if -(2**63) <= value < 2**63:
            self.parts.append(b"i" + _LONG.pack(value))
        else:
            self._tag(b"I", value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))

    def _put_float(self, value: float) -> None:
        self.parts.append(b"d" + _FLOAT.pack(value))

    def _put_text(self, value: str) -> None:
        self._tag(b"s", value)

    def _put_bytes(self, value: bytes) -> None:
        self._tag(b"b", value)

    def _put_list(self, value: list[Any]) -> None:
        """Lists of numbers alone, the most frequent large ones, as arrays."""
        kinds = set(map(type, value))
        try:
            if kinds == {int}:
                return self._tag(b"q", array("q", value).tobytes())
        except OverflowError:
            pass
        if kinds == {float}:
            return self._tag(b"D", array("d", value).tobytes())
        return self._put_items(b"l", value)

    def _put_tuple(self, value: tuple[Any, ...]) -> None:
        self._put_items(b"t", value)

    def _put_set(self, value: set[Any]) -> None:
        self._put_items(b"e", value)

    def _put_frozenset(self, value: frozenset[Any]) -> None:
        self._put_items(b"f", value)

    def _put_dict(self, value: dict[Any, Any]) -> None:
        self._size(b"m", len(value))
        for key, each in value.items():
            self.put(key)
            self.put(each)

    def _put_array(self, value: np.ndarray) -> None:
        if value.dtype.hasobject:
            self._size(b"O", value.ndim)
            self.parts.extend(map(_LONG.pack, value.shape))
            for each in value.ravel().tolist():
                self.put(each)
            return
        columns = value.flags.f_contiguous and not value.flags.c_contiguous
        self._tag(b"A" if columns else b"a", value.dtype.str)
        self.parts.extend(map(_LONG.pack, (value.ndim, *value.shape)))
        flat = value.ravel("F" if columns else "C")
        self.parts.append(flat.view(np.uint8).data if flat.dtype.itemsize else b"")

    def _put_record(self, value: Any) -> None:
        """A named tuple, a dataclass, or an object of a class that says that its attributes are its state."""
        kind = type(value)
        fields = field_names(kind)
        if fields is None or not self.accept(kind):
            raise SnapshotError(
                f"A snapshot cannot hold a {kind.__module__}.{kind.__qualname__}; it takes plain values, "
                "arrays, and named tuples and dataclasses of Penstock and of registered policies."
            )
        self._tag(b"r", kind.__module__, kind.__qualname__)
        values = {name: getattr(value, name) for name in fields or vars(value)}
        self.parts.append(_LONG.pack(len(values)))
        for field, each in values.items():
            self.put(field)
            self.put(each)

    def _put_items(self, tag: bytes, values: Any) -> None:
        self._size(tag, len(values))
        for each in values:
            self.put(each)

    def _size(self, tag: bytes, size: int) -> None:
        self.parts.append(tag + _LONG.pack(size))

    def _tag(self, tag: bytes, *texts: str | bytes) -> None:
        self.parts.append(tag)
        for each in texts:
            data = each.encode("utf-8", "surrogatepass") if isinstance(each, str) else each
            self.parts += (_LONG.pack(len(data)), data)


def field_names(kind: type) -> tuple[str, ...] | None:
    """The fields of a record, none of its own for an object with attributes; None if it is neither."""
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return tuple(kind._fields)
    if dataclasses.is_dataclass(kind):
        return tuple(each.name for each in dataclasses.fields(kind))
    return () if getattr(kind, "attributes_are_state", False) else None


def _is_shared(value: Any) -> bool:
    """Whether a record can change, so that two references to it must stay two references to one."""
    return not isinstance(value, tuple | np.generic | np.dtype)


_SHARED = {list, set, dict, np.ndarray}
_PUT: dict[type, Callable[[_Writer, Any], None]] = {
    type(None): _Writer._put_none,
    bool: _Writer._put_bool,
    int: _Writer._put_int,
    float: _Writer._put_float,
    str: _Writer._put_text,
    bytes: _Writer._put_bytes,
    list: _Writer._put_list,
    tuple: _Writer._put_tuple,
    set: _Writer._put_set,
    frozenset: _Writer._put_frozenset,
    dict: _Writer._put_dict,
    np.ndarray: _Writer._put_array,
}


class _Reader:
    """Takes an encoded value apart."""

    def __init__(self, data: memoryview, accept: Accept) -> None:
        self.data, self.accept, self.at = data, accept, 0
        self._shared: list[Any] = []
        self._deep = 0

    def get(self) -> Any:
        """One value, with all that is in it."""
        tag = bytes(self._take(1))
        get = _GET.get(tag)
        if get is None:
            raise SnapshotError(f"There is no kind of value {tag!r}.")
        self._deep += 1
        if self._deep > DEEPEST:
            raise SnapshotError(f"Values are more than {DEEPEST} deep in each other.")
        value = get(self)
        self._deep -= 1
        return value

    def _take(self, size: int) -> memoryview:
        if not 0 <= size <= len(self.data) - self.at:
            raise SnapshotError(f"{size} bytes are announced where {len(self.data) - self.at} are left.")
        self.at += size
        return self.data[self.at - size : self.at]

    def _long(self) -> int:
        return int(_LONG.unpack(self._take(8))[0])

    def _size(self) -> int:
        """How many values follow: each takes a byte at least."""
        size = self._long()
        if not 0 <= size <= len(self.data) - self.at:
            raise SnapshotError(
                f"{size} values are announced where {len(self.data) - self.at} bytes are left."
            )
        return size

    def _bytes(self) -> bytes:
        return bytes(self._take(self._long()))

    def _text(self) -> str:
        return self._bytes().decode("utf-8", "surrogatepass")

    def _float(self) -> float:
        return float(_FLOAT.unpack(self._take(8))[0])

    def _big(self) -> int:
        return int.from_bytes(self._bytes(), "little", signed=True)

    def _numbers(self, kind: str) -> list[Any]:
        numbers = array(kind)
        numbers.frombytes(self._bytes())
        return self._noted(numbers.tolist())

    def _items(self) -> list[Any]:
        return [self.get() for _ in range(self._size())]

    def _list(self) -> list[Any]:
        made: list[Any] = self._noted([])
        made.extend(self._items())
        return made

    def _set(self) -> set[Any]:
        made: set[Any] = self._noted(set())
        made.update(self._items())
        return made

    def _dict(self) -> dict[Any, Any]:
        made: dict[Any, Any] = self._noted({})
        made.update(self._pairs())
        return made

    def _pairs(self) -> dict[Any, Any]:
        return {self.get(): self.get() for _ in range(self._size())}

    def _type(self) -> np.dtype:
        kind = np.dtype(self._text())
        if kind.kind not in KINDS and kind.kind != "V":
            raise SnapshotError(f"There are no arrays of {kind}.")
        return kind

    def _scalar(self) -> Any:
        kind = self._type()
        return np.frombuffer(self._take(self._long()), kind, 1)[0]

    def _shape(self, ndim: int) -> tuple[int, ...]:
        if not 0 <= ndim <= 32:
            raise SnapshotError(f"There are no arrays of {ndim} dimensions.")
        shape = tuple(self._long() for _ in range(ndim))
        if any(size < 0 for size in shape):
            raise SnapshotError(f"There is no array of shape {shape}.")
        return shape

    def _array(self, order: str = "C") -> np.ndarray:
        kind = self._type()
        shape = self._shape(self._long())
        flat = np.frombuffer(self._take(math.prod(shape) * kind.itemsize), kind)
        return self._noted(flat.reshape(shape, order=order).copy(order))  # type: ignore[call-overload]

    def _objects(self) -> np.ndarray:
        number = len(self._shared)
        self._noted(None)
        shape = self._shape(self._long())
        size = math.prod(shape)
        if size > len(self.data) - self.at:
            raise SnapshotError(
                f"{size} values are announced where {len(self.data) - self.at} bytes are left."
            )
        made = np.empty(size, object)
        self._shared[number] = made.reshape(shape)
        made[:] = [self.get() for _ in range(size)]
        return self._shared[number]

    def _noted(self, made: Any) -> Any:
        self._shared.append(made)
        return made

    def _again(self) -> Any:
        number = self._long()
        if not 0 <= number < len(self._shared):
            raise SnapshotError(f"Value {number} is not there yet.")
        return self._shared[number]

    def _record(self) -> Any:
        module, name = self._text(), self._text()
        kind = getattr(importlib.import_module(module), name, None) if _plain(module, name) else None
        if not isinstance(kind, type) or kind.__module__ != module or not self.accept(kind):
            raise SnapshotError(f"{module}.{name} has no place in a snapshot.")
        made: Any = None if issubclass(kind, tuple) else self._noted(object.__new__(kind))
        fields, values = field_names(kind), self._pairs()
        if fields is None or (fields and tuple(values) != fields):
            raise SnapshotError(f"{module}.{name} has other fields than {', '.join(map(str, values))}.")
        if made is None:
            return kind(**values)
        for field, value in values.items():
            object.__setattr__(made, field, value)
        if hasattr(made, "__post_init__"):
            made.__post_init__()
        return made


def _plain(module: str, name: str) -> bool:
    """Whether these are the names of a module and of a class in it, without ways to elsewhere."""
    return name.isidentifier() and all(part.isidentifier() for part in module.split("."))


_GET: dict[bytes, Callable[[_Reader], Any]] = {
    b"N": lambda reader: None,
    b"T": lambda reader: True,
    b"F": lambda reader: False,
    b"i": _Reader._long,
    b"I": _Reader._big,
    b"d": _Reader._float,
    b"s": _Reader._text,
    b"b": _Reader._bytes,
    b"q": lambda reader: reader._numbers("q"),
    b"D": lambda reader: reader._numbers("d"),
    b"l": _Reader._list,
    b"t": lambda reader: tuple(reader._items()),
    b"e": _Reader._set,
    b"f": lambda reader: frozenset(reader._items()),
    b"m": _Reader._dict,
    b"a": _Reader._array,
    b"A": lambda reader: reader._array("F"),
    b"O": _Reader._objects,
    b"R": _Reader._again,
    b"g": _Reader._scalar,
    b"p": _Reader._type,
    b"r": _Reader._record,
}
