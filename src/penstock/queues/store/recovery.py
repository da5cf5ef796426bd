"""Open a folder of queues after a crash: what its files hold, what is torn, and what is damaged."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.errors import QueueDamageError
from penstock.queues.stats import Recovery
from penstock.queues.store.chunks import Chunk
from penstock.queues.store.commits import Confirmed, read_commits
from penstock.queues.store.disk import Disk
from penstock.queues.store.lanes import Lane, Run
from penstock.queues.store.marks import COMMITTED, COMMITTED_ROW, GOT, PUT, PUT_ROWS, QueueMarks
from penstock.queues.store.scan import HEAD, Flaw, Gap, ScannedQueue, files_of, gaps, scan


@dataclass
class QueueFiles:
    """The files of one queue, and its items: from `start` up to but without `after`."""

    files: list[tuple[int, Path]]
    found: ScannedQueue
    chunks: list[Chunk]
    start: int
    after: int
    missing: list[Gap]

    @property
    def end_row(self) -> int:
        """The row after the last one that a chunk holds."""
        return max((chunk.row + chunk.rows for chunk in self.found.chunks), default=0)


@dataclass
class Examination:
    """All files of a folder of queues as they are; `flaws` are those of no single queue."""

    durable: bool
    marks: QueueMarks
    confirmed: Confirmed
    queues: list[QueueFiles]
    flaws: list[Flaw]

    @property
    def clean(self) -> bool:
        """Whether the queues had been closed, or never held anything."""
        return self.marks.clean or (not self.marks.known and not any(each.files for each in self.queues))

    @property
    def end_known(self) -> bool:
        """Whether it is known how far the queues had come, so that a missing end would be noticed."""
        return self.marks.known or not (self.confirmed.exists or any(each.files for each in self.queues))


def examine(folder: Path, queues: int, durable: bool) -> Examination:
    """Read and check all files of a folder of queues without changing it.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from penstock.queues.store.recovery import examine
    >>> found = examine(Path(tempfile.mkdtemp()), 1, durable=True)
    >>> found.clean, found.flaws, found.queues[0].after
    (True, [], 0)
    """
    # In this order: a queue at work confirms first and marks it then.
    marks = QueueMarks(folder / "marks", queues)
    confirmed = read_commits(folder / "commits", queues) if durable else Confirmed.none(queues)
    files = files_of(folder)
    flaws = [marks.flaw] if marks.flaw else []
    flaws += confirmed.flaws
    flaws += [
        Flaw(path.name, 0, path.stat().st_size, False, f"there are only the queues 0 to {queues - 1}")
        for lane, mine in files.items()
        if lane >= queues
        for _, path in mine
    ]
    states = []
    for lane in range(queues):
        mine = files.get(lane, [])
        found = scan(mine, lane)
        if durable:
            _cut_unfinished(found, {number: path.name for number, path in mine})
        start, after = _bounds(lane, found.chunks, marks, confirmed.items[lane] if durable else None)
        chunks = [chunk for chunk in found.chunks if chunk.first + chunk.count > start]
        states.append(QueueFiles(mine, found, chunks, start, after, gaps(chunks, start, after)))
    state = Examination(durable, marks, confirmed, states, flaws)
    if not any(not flaw.torn for flaw in flaws):
        flaws += _contradictions(state)
    return state


def _bounds(lane: int, chunks: list[Chunk], marks: QueueMarks, committed: int | None) -> tuple[int, int]:
    """The first item that is wanted, and the one after the last."""
    end = max((chunk.first + chunk.count for chunk in chunks), default=0)
    put = marks.get(lane, PUT) if marks.known else 0
    if committed is not None:
        start = committed
    else:
        start = marks.get(lane, GOT) if marks.known else chunks[0].first if chunks else 0
    return start, max(end, put, start)


def _contradictions(state: Examination) -> list[Flaw]:
    """Files that are whole, each for itself, and yet cannot belong together."""
    marks, confirmed = state.marks, state.confirmed
    segments = any(each.files for each in state.queues)
    if not state.durable:
        lost = segments and not marks.known
        why = "the file is missing or empty, and with it which items were delivered"
        return [Flaw("marks", 0, 0, False, why)] if lost else []
    used = marks.known and any(marks.get(lane, PUT) for lane in range(marks.queues))
    if not confirmed.exists and (segments or used):
        return [Flaw("commits", 0, 0, False, "the file is missing, and with it what was confirmed")]
    flaws = []
    for lane, each in enumerate(state.queues):
        if not marks.known:
            break
        item, row = confirmed.items[lane], confirmed.rows[lane]
        marked = (marks.get(lane, COMMITTED), marks.get(lane, COMMITTED_ROW)) if marks.has_commits else (0, 0)
        if (
            item < marked[0]
            or row < marked[1]
            or (marks.clean and marks.has_commits and (item, row) != marked)
        ):
            why = f"items before {item:,} of queue {lane} are confirmed, items before {marked[0]:,} were"
            flaws.append(Flaw("commits", confirmed.size, 0, False, why))
        end = max((chunk.first + chunk.count for chunk in each.found.chunks), default=0)
        last = max(each.end_row, row)
        if marks.get(lane, PUT) <= max(end, item) and marks.get(lane, PUT_ROWS) > last:
            why = f"{marks.get(lane, PUT_ROWS):,} rows are said to have come to queue {lane}, {last:,} have"
            flaws.append(Flaw("marks", 0, marks.size, False, why))
    return flaws


def recover(folder: Path, lanes: list[Lane], state: Examination, disk: Disk, salvage: bool) -> Recovery:
    """Fill the lanes from the files. Raise an error on damage, unless `salvage` is set."""
    flaws = [*state.flaws, *(flaw for each in state.queues for flaw in each.found.flaws)]
    torn = [flaw for flaw in flaws if flaw.torn]
    damage = [flaw for flaw in flaws if not flaw.torn]
    lost = [gap for each in state.queues for gap in each.missing]
    kept = state.durable or state.marks.clean
    if (damage or (lost and kept)) and not salvage:
        problems = "; ".join(str(each) for each in (*damage, *lost))
        raise QueueDamageError(
            f"The queue in '{folder}' is damaged: {problems}. Nothing was changed. "
            "`penstock queues verify` lists it; salvage=True opens what is left and reports what is lost."
        )
    for lane, each in zip(lanes, state.queues, strict=True):
        for flaw in each.found.flaws:
            if flaw.torn:
                _cut_off(folder / flaw.file, flaw, disk, each.found.sizes)
        for number, path in each.files:
            if number in each.found.sizes:
                lane.segments.adopt(number, path, each.found.sizes[number])
        if state.durable:
            # The row of a confirmation may lie within an item.
            lane.committed, lane.committed_row = each.start, state.confirmed.rows[lane.number]
            lane.producers = dict(state.confirmed.producers[lane.number])
        _fill(lane, each.chunks, each.start, each.after, state.durable)
    items = sum(lane.count for lane in lanes)
    return Recovery(state.clean, items, torn, damage, lost, state.end_known)


def _cut_off(path: Path, flaw: Flaw, disk: Disk, sizes: dict[int, int]) -> None:
    number = int(path.stem.partition("-")[2])
    if flaw.offset <= HEAD:
        disk.remove(path)
        del sizes[number]
    else:
        disk.truncate(path, flaw.offset)
        sizes[number] = flaw.offset


def _fill(lane: Lane, chunks: list[Chunk], start: int, after: int, durable: bool) -> None:
    run = Run(True)
    lane.got, lane.put = start, after
    for chunk in chunks:
        lane.segments.keep(chunk)
        run.add(chunk)
        lane.count += chunk.count - max(0, start - chunk.first)
        lane.put_row = max(lane.put_row, chunk.row + chunk.rows)
        if durable:
            lane.journal.append(chunk)
            name, number, _ = producer_of(chunk.tag)
            if name:
                lane.producers[name] = max(number, lane.producers.get(name, -1))
    lane.put_row = max(lane.put_row, lane.committed_row)
    lane.disk = run.size
    if run.parts:
        lane.runs.append(run)
    lane.segments.drop_unused()


def producer_tag(name: str, number: int, last: bool) -> bytes:
    """What a chunk keeps of its producer; what came under one number may be several chunks.

    >>> from penstock.queues.store.recovery import producer_of, producer_tag
    >>> producer_of(producer_tag("till", 3, last=True))
    ('till', 3, True)
    """
    return number.to_bytes(8, "little") + bytes([last]) + name.encode()


def producer_of(tag: bytes) -> tuple[str, int, bool]:
    """The producer, its number, and whether this is the last chunk of it; no name if the chunk has none."""
    return (tag[9:].decode(), int.from_bytes(tag[:8], "little"), bool(tag[8])) if tag else ("", -1, True)


def _cut_unfinished(found: ScannedQueue, names: dict[int, str]) -> None:
    """Chunks of a producer whose last one never came were not acknowledged, and will be sent again."""
    unfinished = []
    while found.chunks and not producer_of(found.chunks[-1].tag)[2]:
        unfinished.append(found.chunks.pop())
    if unfinished:
        first = unfinished[-1]
        found.flaws = [flaw for flaw in found.flaws if not flaw.torn]
        size = found.sizes[first.segment] - first.offset
        found.flaws.append(
            Flaw(names[first.segment], first.offset, size, True, "what a producer sent is not complete")
        )


def marked_row(marks: QueueMarks, lane: Lane) -> int:
    """The row after the last one that is known to have come."""
    return marks.get(lane.number, PUT_ROWS) if marks.known else 0
