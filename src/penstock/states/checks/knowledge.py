"""Check what a snapshot has learnt about keys: counts, histories, examples and positions."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.engine.match_predictor import (
    CHANCE,
    DOUBT,
    E_DUE,
    E_ROW,
    E_STREAM,
    FLOOR,
    KEEP,
    OLDEST,
    PULL,
    SPAN,
    UNDER_WAY,
    WINDOW,
    MatchPredictor,
)
from penstock.engine.request_shares import KEYS, SEEN, Shares
from penstock.snapshots.array_checks import (
    FAR,
    check_lists,
    check_numbers,
    check_same,
    check_within,
    hashed,
    sound,
)
from penstock.states.checks.parts import checks
from penstock.structures.key_counts import FILLED, SKETCH, Counts
from penstock.structures.key_history import CLOCK, KEY, LAST, ROW_BITS, TAKEN, History
from penstock.structures.key_positions import LISTED, NOWHERE, Places
from penstock.structures.regression import Regression

MIXED = 20  # by how many bits a sketch shifts a hash


@checks(Counts)
def check_counts(counts: Counts, around: Any, fresh: Counts | None) -> None:
    """Whether a table of counts can be searched to the end."""
    size = counts.key.shape[1]
    sound(counts.meta[SKETCH] in (0, 1), "counts are of another kind")
    if fresh is not None:
        sound(counts.meta[SKETCH] == fresh.meta[SKETCH], "counts are of another kind")
    if counts.meta[SKETCH]:
        _check_sketch(counts, fresh)
        return
    sound(counts.key.shape[0] == counts.error.shape[0] == 1, "counts have another size")
    sound(counts.tally.shape == (size, 2) and counts.error.shape[1] == size, "counts have another size")
    sound(size > 0 and size & (size - 1) == 0, "counts have another size")
    taken = np.count_nonzero(counts.error)
    sound(taken == counts.meta[FILLED] and 2 * taken <= size, "counts are not as many as they say")


def _check_sketch(counts: Counts, fresh: Counts | None) -> None:
    streams, size = counts.key.shape
    buckets = counts.bucket.shape[1]
    sound(all(table.shape == (streams, size) for table in counts[:6]), "counts have another size")
    sound(counts.bucket.shape[0] == streams and buckets & (buckets - 1) == 0, "counts have another size")
    sound(fresh is None or counts.key.shape == fresh.key.shape, "counts have another size")
    check_within(counts.meta[:SKETCH], 0, size, "the number of counts")
    for stream in range(streams):
        filled = int(counts.meta[FILLED + stream])
        order, place = counts.heap[stream, :filled], counts.place[stream, :filled]
        check_within(order, 0, filled - 1, "a count")
        check_within(place, 0, filled - 1, "the place of a count")
        sound((order[place] == np.arange(filled)).all(), "a count is not at its place")
        links = np.append(0, counts.chain[stream])
        heads = np.flatnonzero(counts.bucket[stream])
        first = counts.bucket[stream, heads].astype(np.int64)
        members = np.arange(1, filled + 1)
        check_lists(first, links, members, "counts")
        home = np.append(-1, hashed(counts.key[stream], buckets, MIXED))
        after = links[members]
        sound((home[first] == heads).all(), "a count is in another bucket")
        sound((home[after[after > 0]] == home[members[after > 0]]).all(), "a count is in another bucket")


@checks(Shares)
def _check_shares(shares: Shares, around: Any, fresh: Shares) -> None:
    """Whether a table of shares can be searched to the end."""
    taken = np.count_nonzero(shares.used)
    sound(taken == shares.meta[KEYS] and 2 * taken <= len(shares.used), "shares are not as many as they say")
    check_within(shares.meta, 0, FAR, "a counter")
    check_numbers(shares.score, "a share")
    sound(np.isfinite(shares.memory).all() and (shares.memory > 0.0).all(), "a memory is out of range")
    sound(not np.isinf(shares.ring_value).any(), "a value is not finite")
    sound(shares.meta[SEEN] >= 0, "a counter is out of range")


@checks(Places)
def _check_places(places: Places, around: Any, fresh: Places | None) -> None:
    """Whether the line of each key is one that there is."""
    check_within(places.kind, NOWHERE, LISTED, "the kind of places")
    lines = len(places.usual)
    sound(lines > 0 and places.current.shape == (lines, 2) and len(places.kind) == 1, "a line is lost")
    sound(len(places.line) == len(places.value), "a key has no place")
    check_within(places.line, 0, lines - 1, "the line of a key")
    sound(places.kind[0] != LISTED or len(places.line) > 0, "a key has no place")
    listed = fresh is not None and fresh.kind[0] == LISTED
    sound(fresh is None or listed or len(places.line) == 0 or places.kind[0] == LISTED, "a key has a place")


@checks(History)
def _check_history(history: History, around: Any, fresh: History) -> None:
    check_same(history.scale, fresh.scale, "a time scale")
    check_within(history.meta, 0, FAR, "a counter")
    rows, taken = len(history.pins), int(history.meta[TAKEN])
    sound(taken <= rows, "more keys than there is room for")
    row = (history.place[history.place != 0] & ((1 << ROW_BITS) - 1)) - 1
    sound(np.array_equal(np.sort(row), np.arange(taken)), "a key is not at its place")
    sound(not history.word[taken:].any(), "a row has no key")
    check_within(history.word[:, LAST : LAST + 2], 0, int(history.meta[CLOCK]), "when a key came")
    sound(np.isfinite(history.norm).all() and (history.norm > 0.0).all(), "a rate is out of range")
    sound((np.isfinite(history.part[:, 6:]) & (history.part[:, 6:] >= 0.0)).all(), "a count is out of range")
    check_within(history.pins, 0, 2**15 - 1, "a pin")


@checks(Regression)
def _check_regression(regression: Regression, around: Any, fresh: Regression) -> None:
    check_same(regression.prior, fresh.prior, "what was known beforehand")
    check_within(regression.examples, 0, FAR, "the number of examples")
    check_numbers(regression.weight, "a weight")


@checks(MatchPredictor)
def check_predictor(predictor: MatchPredictor, around: Any, fresh: MatchPredictor) -> None:
    """Whether the examples under way are of rows that there are, which are pinned for them."""
    fixed = [SPAN, CHANCE, KEEP, PULL, DOUBT, FLOOR]
    check_same(predictor.parameters[fixed], fresh.parameters[fixed], "a parameter")
    check_numbers(predictor.parameters, "a parameter")
    check_same(predictor.horizon, fresh.horizon, "the window")
    sound(predictor.counters[WINDOW] == fresh.counters[WINDOW], "the window is another")
    for times in (predictor.clock, predictor.born):
        check_numbers(times, "a time")
    room = len(predictor.example)
    oldest, number = predictor.counters[OLDEST], predictor.counters[UNDER_WAY]
    sound(0 <= oldest < room and 0 <= number <= room, "more examples than there is room for")
    under_way = predictor.example[(oldest + np.arange(number)) % room]
    rows = len(predictor.history.pins)
    check_within(under_way[:, E_ROW], 0, rows - 1, "the key of an example")
    check_within(under_way[:, E_STREAM], 0, 1, "the stream of an example")
    check_within(under_way[:, E_DUE:], -FAR, FAR, "the time of an example")
    pins = np.bincount(under_way[:, E_ROW], minlength=rows)
    sound(np.array_equal(pins, predictor.history.pins), "a pin is lost")
    if predictor.places.kind[0] == LISTED:
        known = predictor.history.word[predictor.history.word[:, LAST : LAST + 2].any(axis=1), KEY]
        check_within(known, 0, len(predictor.places.line) - 1, "a key")
