"""Snapshots that are damaged, foreign or forged are refused, and nothing in them is run."""

from __future__ import annotations

import io
import pickle
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import SnapshotError
from penstock.snapshots.encoding import encode
from penstock.states import snapshot as snapshots

# Snapshots.


@pytest.fixture(scope="module")
def snapshot() -> bytes:
    state = ps.WindowJoin(within=10, budget=ps.Tuples(6), policy="prob", step="tick").start()
    state.process([0, 1, 0, 1], [5, 5, 6, 7], [0, 1, 1, 2], [0, 0, 1, 1])
    return state.snapshot()


def test_foreign_snapshots() -> None:
    for data in (b"", b"PENSTOCK", b"hello", pickle.dumps([1, 2, 3]), b"\0" * 500, b"PENSTOCK" + b"\0" * 500):
        with pytest.raises(SnapshotError):
            ps.JoinState.restore(data)


@pytest.mark.parametrize("data", [None, "text", 5, [1]])
def test_what_a_snapshot_cannot_be(data: Any) -> None:
    with pytest.raises(SnapshotError, match="bytes"):
        ps.JoinState.restore(data)


def test_a_snapshot_of_another_version(snapshot: bytes) -> None:
    other = snapshot[:8] + (99).to_bytes(2, "little") + snapshot[10:]
    with pytest.raises(SnapshotError, match="version 99"):
        ps.JoinState.restore(other)


def test_every_truncation_is_noticed(snapshot: bytes) -> None:
    for length in [*range(60), *range(60, len(snapshot), 37), len(snapshot) - 1]:
        with pytest.raises(SnapshotError):
            ps.JoinState.restore(snapshot[:length])
    with pytest.raises(SnapshotError):
        ps.JoinState.restore(snapshot + b"\0")


def test_every_flipped_bit_of_the_header_is_noticed(snapshot: bytes) -> None:
    """Whatever field a bit is in: a length that is wrong must not be believed either."""
    for at in range(40):
        for bit in range(8):
            damaged = bytearray(snapshot)
            damaged[at] ^= 1 << bit
            with pytest.raises(SnapshotError):
                ps.JoinState.restore(bytes(damaged))


def test_flipped_bits_are_noticed(snapshot: bytes) -> None:
    random = np.random.default_rng(0)
    for at in random.integers(40, len(snapshot), 300):
        damaged = bytearray(snapshot)
        damaged[at] ^= 1 << int(random.integers(8))
        with pytest.raises(SnapshotError):
            ps.JoinState.restore(bytes(damaged))


class Sneaky:
    """Pickles as a call of a function."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def record(module: str, name: str) -> bytes:
    """The beginning of a record of this class, without fields."""
    texts = [struct.pack("<q", len(each)) + each.encode() for each in (module, name)]
    return b"r" + b"".join(texts) + struct.pack("<q", 0)


def forged(body: bytes) -> bytes:
    packed = pa.compress(body, codec="zstd", asbytes=True)
    return snapshots.SEAL.seal(struct.pack("<Q", len(body)) + packed)


@pytest.mark.parametrize(
    "function",
    [np.savetxt, np.testing.assert_equal, np.load, np.fromfile, io.open, eval, print, ps.policies.unregister],
)
def test_a_forged_snapshot_calls_no_functions(function: Any, tmp_path: Any) -> None:
    """Good checksum, bad intent: only the classes of a state may be named."""
    target = tmp_path / "written"
    arguments = (str(target), [1.0]) if function is np.savetxt else ("1", "1")
    called = Sneaky(function, *arguments[: 1 if function is ps.policies.unregister else 2])
    with pytest.raises(SnapshotError):
        ps.JoinState.restore(forged(pickle.dumps((None, (), called, {}))))
    with pytest.raises(SnapshotError, match="no place"):
        ps.JoinState.restore(forged(record(function.__module__, function.__qualname__)))
    assert not target.exists()


def test_a_forged_snapshot_reaches_nothing_through_a_module() -> None:
    """Dotted names lead from a module of Penstock to whatever it imports."""
    for module, name in [
        ("penstock.columns", "pd.read_csv"),
        ("penstock.columns", "pd"),
        ("penstock.errors", "PenstockError"),
        ("os", "system"),
        ("nowhere.at.all", "Class"),
        ("penstock.budget", "Tuples.__init__"),
    ]:
        with pytest.raises(SnapshotError):
            ps.JoinState.restore(forged(record(module, name)))


@pytest.mark.parametrize("content", [None, (), (1, 2, 3, 4), (None, (), None, {}), "text"], ids=repr)
def test_a_snapshot_of_something_else(content: Any) -> None:
    with pytest.raises(SnapshotError):
        ps.JoinState.restore(forged(encode(content)))
