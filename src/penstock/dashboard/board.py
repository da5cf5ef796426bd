"""The data of the live page: the metrics of the last batches of each query, and a way to wait for more."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

REMEMBERED = 1_000  # batches
EVERY = 0.2  # seconds between two looks at several boards


class Board:
    """Metrics of batches, numbered as they come; thread-safe.

    >>> from penstock.dashboard import Board
    >>> board = Board("clicks")
    >>> board.post({"results": 3})
    >>> board.since(0, patience=0)
    [(1, {'results': 3})]
    >>> board.since(1, patience=0)
    []
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._batches: deque[tuple[int, dict[str, Any]]] = deque(maxlen=REMEMBERED)
        self._news = threading.Condition()
        self._number = 0
        self._closed = False

    def post(self, figures: dict[str, Any]) -> None:
        """Add a batch."""
        with self._news:
            self._number += 1
            self._batches.append((self._number, figures))
            self._news.notify_all()

    def since(self, number: int, patience: float) -> list[tuple[int, dict[str, Any]]]:
        """Return the batches after a number; wait for one up to the given number of seconds."""
        with self._news:
            self._news.wait_for(lambda: self._closed or self._number > number, timeout=patience)
            return [each for each in self._batches if each[0] > number]

    def close(self) -> None:
        """Say that no more batches will come, and end all waits."""
        with self._news:
            self._closed = True
            self._news.notify_all()

    @property
    def closed(self) -> bool:
        """Whether no more batches will come."""
        return self._closed


def news(
    boards: Sequence[Board], seen: Sequence[int], patience: float
) -> list[tuple[int, int, dict[str, Any]]]:
    """Return the batches of several boards after those seen, as (board, number, metrics); wait for one.

    >>> from penstock.dashboard.board import Board, news
    >>> boards = Board("clicks"), Board("views")
    >>> boards[1].post({"results": 3})
    >>> news(boards, (0, 0), patience=0)
    [(1, 1, {'results': 3})]
    """
    if len(boards) == 1:
        return [(0, number, figures) for number, figures in boards[0].since(seen[0], patience)]
    until = time.monotonic() + patience
    while True:
        found = [
            (place, number, figures)
            for place, (board, after) in enumerate(zip(boards, seen, strict=True))
            for number, figures in board.since(after, 0)
        ]
        if found or all(board.closed for board in boards) or time.monotonic() >= until:
            return found
        time.sleep(EVERY)
