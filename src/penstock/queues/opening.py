"""Opening a folder of queues: what it remembers, what its files hold, and what a crash has left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from penstock.errors import QueueDamageError, QueueError
from penstock.queues.commits import Commits
from penstock.queues.disk import Disk
from penstock.queues.items import Items, items_of
from penstock.queues.lanes import Lane, Run
from penstock.queues.marks import GOT, PUT, PUT_ROWS, Marks
from penstock.queues.scan import HEAD, Flaw, Found, Gap, files_of, gaps, scan
from penstock.queues.stats import Recovery

META = "queue.json"
VERSION = 1


def describe(folder: Path) -> dict[str, Any]:
    """What a folder of queues remembers of itself, or an error if it is none.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from penstock.queues.opening import describe
    >>> describe(Path(tempfile.mkdtemp()))
    Traceback (most recent call last):
    ...
    penstock.errors.QueueError: '...' holds no queue: there is no queue.json in it.
    """
    path = folder / META
    if not path.is_file():
        raise QueueError(f"'{folder}' holds no queue: there is no {META} in it.")
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        if found["version"] != VERSION:
            raise QueueError(f"'{path}' is of version {found['version']}; this Penstock reads {VERSION}.")
        int(found["queues"]), bool(found["durable"])
    except (json.JSONDecodeError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise QueueDamageError(f"'{path}' is damaged: {error}.") from error
    return found


def settle(folder: Path, queues: int, durable: bool, schema: Any, disk: Disk) -> Items:
    """Make a folder one of queues, or see that it is one of these; how its items become bytes."""
    if (folder / META).exists():
        found = describe(folder)
        if found["queues"] != queues or found["durable"] != durable:
            raise QueueError(
                f"'{folder}' was made with queues={found['queues']}, durable={found['durable']}; "
                f"queues={queues}, durable={durable} were given."
            )
        items = items_of(None, found["schema"])
        if schema is not None and (items.schema is None or not items_of(schema).schema.equals(items.schema)):
            raise QueueError(
                f"The queue in '{folder}' has another schema than the one given: {items.schema}."
            )
        return items
    if any(folder.glob("*.seg")):
        raise QueueDamageError(f"'{folder}' has segment files but no {META}; it cannot be opened.")
    items = items_of(schema)
    content = {"version": VERSION, "queues": queues, "durable": durable, "schema": items.describe()}
    disk.replace(folder / META, json.dumps(content).encode())
    return items


def recover(
    folder: Path,
    lanes: list[Lane],
    marks: Marks,
    commits: Commits | None,
    disk: Disk,
    salvage: bool,
) -> Recovery:
    """Fill the lanes with what the files hold. Raises on damage, unless told to save what can be saved."""
    files = files_of(folder)
    torn: list[Flaw] = []
    damage: list[Flaw] = []
    lost: list[Gap] = []
    plans = []
    for lane in lanes:
        mine = files.get(lane.number, [])
        found = scan(mine, lane.number)
        if commits is not None:
            _cut_unfinished(found, {number: path.name for number, path in mine})
        torn += [flaw for flaw in found.flaws if flaw.torn]
        damage += [flaw for flaw in found.flaws if not flaw.torn]
        start, after = _bounds(lane, found.chunks, marks, commits)
        chunks = [chunk for chunk in found.chunks if chunk.first + chunk.count > start]
        missing = gaps(chunks, start, after)
        lost += missing
        plans.append((lane, mine, found, chunks, start, after))
    kept = commits is not None or marks.clean
    if (damage or (lost and kept)) and not salvage:
        told = "; ".join(str(each) for each in (*damage, *lost))
        raise QueueDamageError(
            f"The queue in '{folder}' is damaged: {told}. Nothing was changed. "
            "`penstock queues verify` lists it; salvage=True opens what is left and tells what is lost."
        )
    for lane, mine, found, chunks, start, after in plans:
        for flaw in found.flaws:
            if flaw.torn:
                _cut_off(folder / flaw.file, flaw, disk, found.sizes)
        for number, path in mine:
            if number in found.sizes:
                lane.segments.adopt(number, path, found.sizes[number])
        _fill(lane, chunks, start, after, commits is not None)
    clean = marks.clean or (not marks.known and not files)
    return Recovery(clean, sum(lane.count for lane in lanes), torn, damage, lost)


def _bounds(lane: Lane, chunks: list[Any], marks: Marks, commits: Commits | None) -> tuple[int, int]:
    """The first item that is wanted, and the one after the last."""
    end = max((chunk.first + chunk.count for chunk in chunks), default=0)
    put = marks.get(lane.number, PUT) if marks.known else 0
    if commits is not None:
        start = commits.items[lane.number]
        # The row of a confirmation may lie within an item.
        lane.committed, lane.committed_row = start, commits.rows[lane.number]
        lane.producers = dict(commits.producers[lane.number])
        return start, max(end, put, start)
    first = chunks[0].first if chunks else 0
    start = marks.get(lane.number, GOT) if marks.known else first
    return start, max(end, put, start)


def _cut_off(path: Path, flaw: Flaw, disk: Disk, sizes: dict[int, int]) -> None:
    number = int(path.stem.partition("-")[2])
    if flaw.offset <= HEAD:
        disk.remove(path)
        del sizes[number]
    else:
        disk.truncate(path, flaw.offset)
        sizes[number] = flaw.offset


def _fill(lane: Lane, chunks: list[Any], start: int, after: int, durable: bool) -> None:
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

    >>> from penstock.queues.opening import producer_of, producer_tag
    >>> producer_of(producer_tag("till", 3, last=True))
    ('till', 3, True)
    """
    return number.to_bytes(8, "little") + bytes([last]) + name.encode()


def producer_of(tag: bytes) -> tuple[str, int, bool]:
    """The producer, its number, and whether this is the last chunk of it; no name if the chunk has none."""
    return (tag[9:].decode(), int.from_bytes(tag[:8], "little"), bool(tag[8])) if tag else ("", -1, True)


def _cut_unfinished(found: Found, names: dict[int, str]) -> None:
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


def marked_row(marks: Marks, lane: Lane) -> int:
    """The row after the last one that is known to have come."""
    return marks.get(lane.number, PUT_ROWS) if marks.known else 0
