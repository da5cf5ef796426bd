"""The data of the live page: the metrics of the last batches, and a way to wait for more."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

REMEMBERED = 1_000  # batches


class Board:
    """Figures of batches, numbered as they come; safe to use from several threads.

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
        """One more batch."""
        with self._news:
            self._number += 1
            self._batches.append((self._number, figures))
            self._news.notify_all()

    def since(self, number: int, patience: float) -> list[tuple[int, dict[str, Any]]]:
        """The batches after a number; waits for one, but no longer than so many seconds."""
        with self._news:
            self._news.wait_for(lambda: self._closed or self._number > number, timeout=patience)
            return [each for each in self._batches if each[0] > number]

    def close(self) -> None:
        """Nothing more will come: let nobody wait."""
        with self._news:
            self._closed = True
            self._news.notify_all()

    @property
    def closed(self) -> bool:
        """Whether nothing more will come."""
        return self._closed
