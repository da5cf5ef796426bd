"""What an operator brings to Spark: a spec, which the driver ships, and buckets, which workers run.

The packer, the stateful processor, the state log and the batch runner know no more of an operator than this.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from penstock.snapshots.encoding import Buffer
from penstock.spark.runtime.figures import Figures
from penstock.spark.runtime.packer import PackedBatch, Packing

TYPE_OF = "the type of"
COMPARED = "the type in which keys are compared"
ColumnTypes = Sequence[Sequence[tuple[str, str]]]  # per stream the columns, and the names of their types


class Spec(ABC):
    """An operator as every bucket runs it. Specs are frozen, and equal if their buckets would do the same."""

    kind: ClassVar[type[Bucket]]
    buckets: int
    event_time: str | None = None  # the column of a row's event time, if the output has a watermark

    @abstractmethod
    def packings(self, labels: tuple[int, ...]) -> list[Packing]:
        """How the rows of each input are divided among buckets with these labels."""

    @abstractmethod
    def figures(self) -> Figures:
        """The figures of a bucket that has done nothing."""

    @abstractmethod
    def fixed(self) -> dict[str, str]:
        """What may not change when a query is restarted from its checkpoint, in words."""

    def of_bucket(self, number: int) -> Self:
        """The spec of one bucket, where buckets differ."""
        return self

    @property
    def fill(self) -> dict[str, Any]:
        """The values of columns that some output tables lack; null if they are not named here."""
        return {}


class Bucket(ABC):
    """The state of one share of the keys. What it does depends on nothing but its batches."""

    replays: ClassVar[bool] = True  # batches can be processed again, so a log of them is enough

    def __init__(self, spec: Any) -> None:
        self.spec = spec
        self.figures: Any = spec.figures()  # of the last batch

    @abstractmethod
    def process(self, batch: PackedBatch, quiet: bool = False) -> Iterable[pa.Table]:
        """Process a batch of a stream; return the output, to be consumed before the next batch.

        `quiet` is for a replay, whose output is known already.
        """

    @abstractmethod
    def process_sorted(self, rows: pa.Table) -> Iterable[pa.Table]:
        """Process rows of a batch DataFrame, which come in order."""

    def finish(self) -> Iterable[pa.Table]:
        """The output that was waiting for the end of a batch DataFrame."""
        return ()

    def adapt(self) -> bool:
        """Go on under the budget and policy of the spec, if the state has others; return whether it had."""
        return False

    @abstractmethod
    def snapshot(self) -> bytes:
        """The state as bytes."""

    def snapshot_parts(self) -> Sequence[Buffer]:
        """The same in parts, which need not be put together to be stored."""
        return [self.snapshot()]

    @classmethod
    @abstractmethod
    def restore(cls, spec: Any, data: bytes) -> Self:
        """The inverse of `snapshot`; rejects anything else with a `SnapshotError`."""

    def close(self) -> None:  # noqa: B027 (most have nothing to release)
        """Release what is not memory."""


def fixed_types(
    streams: Sequence[str], column_types: ColumnTypes, key_types: Sequence[str] = ()
) -> dict[str, str]:
    """The types that may not change at a restart, or only to wider ones, in words.

    >>> from penstock.spark.runtime.operator import fixed_types
    >>> fixed_types(["left"], [[("id", "int")]], ["bigint"])
    {'the type in which keys are compared': 'bigint', "the type of 'id' of the left stream": 'int'}
    """
    told = {COMPARED: ", ".join(key_types)} if key_types else {}
    for stream, columns in zip(streams, column_types, strict=False):
        told |= {f"{TYPE_OF} {name!r} of the {stream} stream": kind for name, kind in columns}
    return told


def seed_of(seed: int, bucket: int) -> int:
    """The seed of a bucket; that of the first is the one that was given.

    >>> from penstock.spark.runtime.operator import seed_of
    >>> seed_of(7, 0), seed_of(7, 1) == seed_of(7, 2)
    (7, False)
    """
    return seed if bucket == 0 else int(np.random.SeedSequence((seed, bucket)).generate_state(1)[0])
