"""The state of a bucket in Spark's state store: a snapshot, and a log of the batches since.

What a batch writes follows what the batch brought: it is appended to the log. Once the log has grown to a
share of the snapshot, a new snapshot takes the place of both. A worker keeps the buckets it has had in its
hands; a token tells which batch it last saw, and what it has missed since is replayed from the log.

Every value has a header with a checksum, so that a damaged or foreign one is refused.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from penstock.errors import PenstockError, SnapshotError
from penstock.snapshots.encoding import Buffer
from penstock.snapshots.sealed import Seal
from penstock.spark.runtime.operator import COMPARED, TYPE_OF, Bucket, Spec
from penstock.spark.runtime.packer import PackedBatch

PART = 4 << 20  # bytes per value
FULL = 0.5  # of the snapshot: a log of this size is replaced
LEAST = 1 << 17  # bytes: a shorter log stays a log
IDLE = 60.0  # seconds: a bucket without a batch for so long is read again when one comes
WIDER = (("tinyint", "smallint", "int", "bigint"), ("float", "double"))  # what a type may become
SEAL = Seal(b"PENSTATE", 1, "state")


@dataclass
class Head:
    """What is said of a bucket: which snapshot, which log, and for which operator it is."""

    identity: str
    fixed: dict[str, str]
    snapshot_parts: int = 0
    snapshot_bytes: int = 0
    snapshot_token: str = ""
    log: list[tuple[str, int]] = field(default_factory=list)  # token and number of parts of each batch
    log_bytes: int = 0

    @property
    def token(self) -> str:
        """Of the last batch."""
        return self.log[-1][0] if self.log else self.snapshot_token


@dataclass
class Opened:
    """A bucket that is ready for its next batch, and what it took to get there."""

    head: Head
    bucket: Bucket
    changed: bool = False  # it is not what snapshot and log say
    read: int = 0  # bytes
    replayed: int = 0  # batches


class Remembered(NamedTuple):
    """A bucket as this worker last had it."""

    token: str  # of the last batch it saw
    bucket: Bucket
    at: float  # when, in seconds
    batch: tuple[str, int] | None  # the query, and the number of its batch


class StateLog:
    """The three state variables of a bucket, and the buckets this worker remembers."""

    remembered: ClassVar[dict[str, Remembered]] = {}  # by the identity of the bucket

    def __init__(self, head: Any, snapshot: Any, log: Any, batch: tuple[str, int] | None = None) -> None:
        self.head, self.snapshot, self.log = head, snapshot, log
        self.batch = batch  # the query, and the number of its batch, if Spark tells them

    def register(self, spec: Spec) -> None:
        """Note which operator the query runs, or refuse one that is not as noted.

        Every bucket has a note of its own, but with another number of buckets the rows of a batch may all
        go to buckets that were not there before.
        """
        stored = self.head.get()
        if stored is None:
            self.head.update((_sealed(Head(identity="", fixed=spec.fixed())),))
        else:
            head = _head_of(stored[0])
            refuse_changes(head.fixed, spec.fixed())
            if head.fixed != spec.fixed():
                head.fixed = spec.fixed()
                self.head.update((_sealed(head),))

    def open(self, spec: Spec) -> Opened:
        """The bucket as the last batch left it, or a new one."""
        stored = self.head.get()
        if stored is None:
            return Opened(Head(uuid.uuid4().hex, spec.fixed()), spec.kind(spec), changed=True)
        head = _head_of(stored[0])
        refuse_changes(head.fixed, spec.fixed())
        head.fixed = spec.fixed()
        read = 0
        self.forget_idle()
        self.forget_passed_on()
        token, bucket = "", None
        if head.identity in self.remembered:
            token, bucket, *_ = self.remembered.pop(head.identity)
        tokens = [head.snapshot_token, *(token for token, _ in head.log)]
        restored = bucket is None or bucket.spec != spec or token not in tokens
        if restored:
            data = b"".join(self._parts(self.snapshot, [(i,) for i in range(head.snapshot_parts)]))
            read += len(data)
            bucket, token = spec.kind.restore(spec, SEAL.unseal(data)), head.snapshot_token
        missed = head.log[tokens.index(token) :]
        assert bucket is not None
        for name, parts in missed:
            data = b"".join(self._parts(self.log, [(name, i) for i in range(parts)]))
            read += len(data)
            bucket.process(PackedBatch.from_bytes(SEAL.unseal(data)), quiet=True)
        # One that was remembered has been under this spec from the start. To find out costs a fresh state.
        return Opened(head, bucket, restored and bucket.adapt(), read, len(missed))

    def commit(self, opened: Opened, batch: PackedBatch) -> int:
        """Write what the batch brought, or a new snapshot; the bytes written."""
        head, bucket = opened.head, opened.bucket
        token = uuid.uuid4().hex
        room = max(LEAST, FULL * head.snapshot_bytes) - head.log_bytes
        logs = bucket.replays and not opened.changed and batch.nbytes <= room
        if logs:
            written = count = 0
            for part in _cut(_sealed_parts(batch.parts())):
                self.log.updateValue((token, count), (part,))
                written, count = written + len(part), count + 1
            head.log.append((token, count))
            head.log_bytes += written
        else:
            if head.log:
                self.log.clear()
            written = count = 0
            for part in _cut(_sealed_parts(bucket.snapshot_parts())):
                self.snapshot.updateValue((count,), (part,))
                written, count = written + len(part), count + 1
            for i in range(count, head.snapshot_parts):
                self.snapshot.removeKey((i,))
            head.snapshot_parts, head.snapshot_bytes, head.snapshot_token = count, written, token
            head.log, head.log_bytes = [], 0
        said = _sealed(head)
        self.head.update((said,))
        self.remembered[head.identity] = Remembered(token, bucket, time.monotonic(), self.batch)
        return written + len(said)

    @classmethod
    def forget_idle(cls) -> None:
        """Forget buckets that had no batch for a while: a worker serves one query after the other."""
        now = time.monotonic()
        for identity, each in list(cls.remembered.items()):
            if now - each.at > IDLE:
                del cls.remembered[identity]
                each.bucket.close()

    def forget_passed_on(self) -> None:
        """Forget buckets of this query that another worker had in the batch before, or that had no rows then.

        Spark gives the tasks of a batch to whichever workers are idle, so that a worker may have a bucket in
        every other batch. Such a bucket only replays the batch that it has missed.
        """
        if self.batch is None:
            return
        query, number = self.batch
        for identity, each in list(self.remembered.items()):
            if each.batch is not None and each.batch[0] == query and not 0 <= number - each.batch[1] <= 1:
                del self.remembered[identity]
                each.bucket.close()

    @staticmethod
    def _parts(state: Any, keys: list[tuple[Any, ...]]) -> Iterator[bytes]:
        for key in keys:
            value = state.getValue(key)
            if value is None:
                raise SnapshotError(f"The state of a bucket is damaged: part {key} is missing.")
            yield value[0]


def _sealed(head: Head) -> bytes:
    return SEAL.seal(json.dumps(vars(head)).encode())


def _head_of(data: bytes) -> Head:
    try:
        head = Head(**json.loads(SEAL.unseal(data)))
        head.log = [(token, parts) for token, parts in head.log]
    except SnapshotError:
        raise
    except Exception as error:
        raise SnapshotError(f"The state of a bucket cannot be read: {error}") from error
    return head


def refuse_changes(stored: dict[str, str], given: dict[str, str]) -> None:
    """A restarted query may change its budget and its policy, and have wider columns; nothing else.

    >>> from penstock.spark.runtime.state_log import refuse_changes
    >>> refuse_changes({"the type of 'id'": "int"}, {"the type of 'id'": "bigint"})
    >>> refuse_changes({"the window": "5"}, {"the window": "6"})
    Traceback (most recent call last):
    ...
    penstock.errors.PenstockError: the window cannot change when a query is restarted ...
    """
    for what, value in given.items():
        before = stored.get(what)
        if before == value or (what.startswith(TYPE_OF) and (before is None or _is_wider(before, value))):
            continue
        if what == COMPARED and before is None:  # an older version did not note it
            continue
        raise PenstockError(
            f"{what} cannot change when a query is restarted from its checkpoint: it was {before} and is now "
            f"{value}. Change it back, or start with a new checkpoint."
        )


def _is_wider(before: str, now: str) -> bool:
    """Whether a type holds all values of the type that a column had."""
    return any(
        before in family and now in family and family.index(before) < family.index(now) for family in WIDER
    )


def _sealed_parts(parts: Sequence[Buffer]) -> list[Buffer]:
    return [SEAL.header(parts), *parts]


def _cut(parts: Iterable[Buffer]) -> Iterator[bytes]:
    """Values for the store, each of `PART` bytes but the last, made one by one."""
    held = bytearray()
    for part in parts:
        view = memoryview(part).cast("B")
        while len(held) + len(view) >= PART:
            taken = PART - len(held)
            held += view[:taken]
            view = view[taken:]
            yield bytes(held)
            held.clear()
        held += view
    if held:
        yield bytes(held)
