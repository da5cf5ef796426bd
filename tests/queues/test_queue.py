"""`SpillQueue` and `SpillQueues` against plain deques, and what they promise beyond that."""

from __future__ import annotations

import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import (
    PenstockError,
    QueueEmptyError,
    QueueError,
    QueueFullError,
    QueueLockedError,
    UnknownPolicyError,
)

POLICIES = [
    "half",
    "half-late",
    "greedy",
    "greedy-chunk:block=40",
    "hybrid:block=30",
    "buffered-head",
    "buffered-head-rest",
    "buffered-head-halves",
    "buffered-head-wide",
]
MANY = [policy for policy in POLICIES if not policy.startswith("half")]

steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 12)),
        st.tuples(st.just("put_many"), st.lists(st.integers(0, 12), max_size=25)),
        st.tuples(st.just("get"), st.just(0)),
        st.tuples(st.just("get_many"), st.integers(0, 30)),
        st.tuples(st.just("peek"), st.just(0)),
        st.tuples(st.just("commit"), st.just(0)),
        st.tuples(st.just("reopen"), st.just(0)),
    ),
    max_size=40,
)


def item(number: int, size: int) -> bytes:
    """Bytes that differ from those of other numbers, as far as their size allows."""
    return (b"%012d" % number)[12 - size :] if size else b""


def drive(open_queues: Any, lanes: int, steps: Any, choose: Any, durable: bool) -> None:
    """The same steps on queues and on deques."""
    queues, models, number = open_queues(), [deque() for _ in range(lanes)], 0
    pending = [deque() for _ in range(lanes)]  # delivered, not confirmed
    for position, (name, value) in enumerate(steps):
        at = choose(position)
        queue, model = queues[at], models[at]
        if name in ("put", "put_many"):
            sizes = [value] if name == "put" else value
            items = [item(number + i, size) for i, size in enumerate(sizes)]
            number += len(items)
            assert queue.put_many(items) == len(items) if name == "put_many" else queue.put(items[0])
            model.extend(items)
        elif name == "get" and model:
            got = queue.get(timeout=5)
            assert got == model.popleft()
            pending[at].append(got)
        elif name == "get_many":
            wanted = [model.popleft() for _ in range(min(value, len(model)))]
            assert queue.get_many(value) == wanted
            pending[at].extend(wanted)
        elif name == "peek" and model:
            assert queue.peek() == model[0]
        elif name == "commit":
            queue.commit()
            pending[at].clear()
        elif name == "reopen":
            queues.close()
            queues = open_queues()
            assert queues.recovery.clean
            if durable:  # what was not confirmed comes again
                models = [deque([*p, *m]) for p, m in zip(pending, models, strict=True)]
                pending = [deque() for _ in range(lanes)]
        queues.check()
        assert [len(queues[i]) for i in range(lanes)] == [len(m) for m in models]
    for at in range(lanes):
        assert queues[at].get_many(10**6) == list(models[at])
        queues[at].commit()
    assert queues.stats().spilled == 0
    queues.close()


@pytest.mark.parametrize("durable", [False, True], ids=["", "durable"])
@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=8)
@given(steps=steps)
def test_one_queue_is_a_deque(
    tmp_path_factory: pytest.TempPathFactory, policy: str, durable: bool, steps: Any
) -> None:
    folder = tmp_path_factory.mktemp("queue")

    class One(ps.SpillQueue):
        def __getitem__(self, _: int) -> Any:
            return self

    drive(lambda: One(folder, memory=90, policy=policy, durable=durable), 1, steps, lambda _: 0, durable)


@pytest.mark.parametrize("durable", [False, True], ids=["", "durable"])
@pytest.mark.parametrize("policy", MANY)
@settings(max_examples=8)
@given(steps=steps, seed=st.integers(0, 5))
def test_several_queues_are_deques(
    tmp_path_factory: pytest.TempPathFactory, policy: str, durable: bool, steps: Any, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("queues")
    drive(
        lambda: ps.SpillQueues(folder, 3, memory=270, policy=policy, durable=durable),
        3,
        steps,
        lambda position: (position * (seed + 1)) % 3,
        durable,
    )


@pytest.mark.parametrize("policy", ["half", "half-late", "buffered-head"])
def test_bytes_cost_what_tuples_cost(tmp_path: Path, policy: str) -> None:
    """With items of one byte, a queue does what the simulation says."""
    from penstock.queues import simulate

    arrivals = [3, 0, 3, 3, 0, 0, 3, 3, 1, 1, 0, 9, 9, 0, 4]
    run = simulate(arrivals, policy, memory=6)
    with ps.SpillQueue(tmp_path, memory=6, policy=policy) as queue:
        queue._store.spiller.grain = 1
        for count in [*arrivals, *[0] * 60]:
            for _ in range(count):
                queue.put(b"x")
            if len(queue):
                queue.get()
        stats = queue.stats()
    assert (stats.reads, stats.writes, stats.bytes_read, stats.bytes_written) == (
        run.reads,
        run.writes,
        run.read,
        run.written,
    )
    assert stats.unit_cost == run.cost()


def test_files_go_when_they_are_consumed(tmp_path: Path) -> None:
    with ps.SpillQueue(tmp_path, memory=1_000) as queue:
        queue.put_many([b"x" * 100] * 200)
        assert queue.stats().spilled > 15_000
        assert list(tmp_path.glob("*.seg"))
        queue.get_many(200)
        assert not list(tmp_path.glob("*.seg"))
        assert queue.stats().disk_bytes == 0


def test_arrow_batches(tmp_path: Path) -> None:
    batches = [pa.record_batch({"n": list(range(i)), "s": ["é" * i] * i}) for i in range(1, 40)]
    with ps.SpillQueue(tmp_path, memory="16 KiB", schema=batches[0].schema) as queue:
        queue.put_many(batches[:30])
        with pytest.raises(QueueError, match="schema"):
            queue.put(pa.record_batch({"n": [1.5]}))
        with pytest.raises(QueueError, match="bytes was given"):
            queue.put(b"no")
    with ps.SpillQueue(tmp_path, memory="16 KiB") as queue:
        assert queue.schema == batches[0].schema
        queue.put_many(batches[30:])
        assert queue.stats().writes
        got = queue.get_many(100)
    assert [each.equals(batch) for each, batch in zip(got, batches, strict=True)] == [True] * 39


def test_threads(tmp_path: Path) -> None:
    """Producers and consumers at once: nothing lost or doubled, each producer's order kept."""
    got: list[bytes] = []
    with ps.SpillQueue(tmp_path, memory=2_000, durable=True) as queue:

        def produce(name: int) -> None:
            for i in range(0, 300, 3):
                queue.put_many([b"%d %d" % (name, i + k) for k in range(3)])

        def consume() -> None:
            while True:
                one = queue.get(timeout=30)
                if one == b"end":
                    return
                got.append(one)

        consumer = threading.Thread(target=consume)
        producers = [threading.Thread(target=produce, args=(n,)) for n in range(4)]
        for thread in [consumer, *producers]:
            thread.start()
        for thread in producers:
            thread.join()
        queue.put(b"end")
        consumer.join()
        syncs = queue.stats().syncs
    for name in range(4):
        mine = [int(each.split()[1]) for each in got if each.startswith(b"%d " % name)]
        assert mine == list(range(300))
    assert syncs <= 402


def test_get_waits(tmp_path: Path) -> None:
    with ps.SpillQueue(tmp_path) as queue:
        start = time.monotonic()
        with pytest.raises(QueueEmptyError):
            queue.get(timeout=0.05)
        assert time.monotonic() - start >= 0.04
        with pytest.raises(QueueEmptyError):
            queue.get(block=False)
        threading.Timer(0.05, queue.put, [b"late"]).start()
        assert queue.get(timeout=10) == b"late"


@pytest.mark.parametrize("durable", [False, True], ids=["", "durable"])
def test_disk_limit(tmp_path: Path, durable: bool) -> None:
    options: dict[str, Any] = {"memory": 2_000, "durable": durable, "disk_limit": "64 KiB"}
    items = [b"%0100d" % i for i in range(800)]

    def fill(queue: Any) -> int:
        for taken, each in enumerate(items):
            try:
                if not queue.put(each):
                    return taken
            except QueueFullError:
                return taken
        return len(items)

    with ps.SpillQueue(tmp_path / "fail", on_full="fail", **options) as queue:
        taken = fill(queue)
        assert 300 < taken < 700
        assert queue.stats().disk_bytes <= 64 << 10
        assert queue.get_many(10**6) == items[:taken]
        queue.commit()
        assert queue.put(b"again")
    with ps.SpillQueue(tmp_path / "drop", on_full="drop-newest", **options) as queue:
        taken = fill(queue)
        assert queue.stats().dropped == 1
        assert queue.get_many(10**6) == items[:taken]
    with ps.SpillQueue(tmp_path / "block", **options) as queue:
        for each in items[:200]:
            queue.put(each)
        big = items[200:] * 3
        with pytest.raises(QueueFullError, match="disk limit"):
            queue.put_many(big, timeout=0.05)
        count = len(queue)
        rest = threading.Thread(target=lambda: [queue.put(each) for each in items[count:]])
        rest.start()
        got = []
        while len(got) < len(items):
            got += queue.get_many(50) or [queue.get(timeout=10)]
            queue.commit()
        rest.join()
        assert got == items


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with ps.SpillQueue(tmp_path), pytest.raises(QueueLockedError, match="is open in process"):
        ps.SpillQueue(tmp_path)
    ps.SpillQueue(tmp_path).close()


def test_producers_are_remembered(tmp_path: Path) -> None:
    """A number that was there is not taken twice: not after reopening, nor when its chunk is long gone."""
    for _ in range(3):
        with ps.SpillQueue(tmp_path, durable=True) as queue:
            queue.put_many([b"a", b"b"], producer=("till", 1))
            queue.put_many([b"c"], producer=("till", 2))
            queue.put_many([b"d"], producer=("other", 1))
            queue.commit(queue.committed)
    with ps.SpillQueue(tmp_path, durable=True) as queue:
        assert queue.get_many(9) == [b"a", b"b", b"c", b"d"]
        queue.commit()
    with ps.SpillQueue(tmp_path, durable=True) as queue:
        queue.put_many([b"a", b"b"], producer=("till", 1))
        queue.put_many([b"e"], producer=("till", 3))
        assert queue.get_many(9) == [b"e"]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"policy": "haf"}, UnknownPolicyError),
        ({"policy": "lru"}, UnknownPolicyError),
        ({"memory": "lots"}, PenstockError),
        ({"memory": 1}, PenstockError),
        ({"on_full": "explode"}, QueueError),
        ({"disk_limit": 10}, QueueError),
        ({"schema": "n: int"}, QueueError),
    ],
)
def test_bad_options_are_refused(tmp_path: Path, options: Any, error: Any) -> None:
    with pytest.raises(error):
        ps.SpillQueue(tmp_path, **options)
    ps.SpillQueue(tmp_path).close()


def test_bad_calls_are_refused(tmp_path: Path) -> None:
    with ps.SpillQueue(tmp_path, memory=100) as queue:
        for call in (
            lambda: queue.put("text"),
            lambda: queue.put(b"x" * 51),
            lambda: queue.get_many(-1),
            lambda: queue.commit(1),
            lambda: queue.put_many([b"a"], producer=("p", 1)),
        ):
            with pytest.raises(QueueError):
                call()
    with pytest.raises(QueueError, match="closed"):
        queue.put(b"x")
    with pytest.raises(QueueError, match="durable=False"):
        ps.SpillQueue(tmp_path, durable=True)
    with pytest.raises(QueueError), ps.SpillQueues(tmp_path / "many", 2) as queues:
        queues.put(2, b"x")
