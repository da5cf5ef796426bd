"""The exceptions and warnings that Penstock raises, and helpers for wording their messages.

Every message says what was received, what is allowed and, where a guess is possible, what was
probably meant.
"""

from __future__ import annotations

import difflib
import queue
import sys
import warnings
from collections.abc import Iterable

LONGEST = 60  # characters of the offending text that a message quotes
END = "the end of the text"


class PenstockError(ValueError):
    """Root of all errors that Penstock raises on purpose.

    >>> from penstock.errors import PenstockError, UnknownPolicyError
    >>> issubclass(UnknownPolicyError, PenstockError)
    True
    """


class UnknownPolicyError(PenstockError):
    """The policy name is not in the registry, or the policy cannot run in this operator."""


class PolicyOptionError(PenstockError):
    """The policy does not have this option, or the value is out of range."""


class BudgetError(PenstockError):
    """A memory budget is malformed, or too small to hold one tuple per stream."""


class WindowError(PenstockError):
    """A window is malformed or negative."""


class ColumnError(PenstockError):
    """A column is missing, has the wrong type, or holds values that cannot be used."""


class ConditionError(PenstockError):
    """A condition (`where=`) is invalid: its syntax, columns or types; or it has no value for a pair."""


class SnapshotError(PenstockError):
    """A snapshot is damaged, or was written by another version or another operator."""


class MissingExtraError(PenstockError, ImportError):
    """A package that an optional part needs is not installed; the message has the command that installs it.

    `name` is the package.

    >>> from penstock.errors import MissingExtraError, PenstockError
    >>> issubclass(MissingExtraError, PenstockError), issubclass(MissingExtraError, ImportError)
    (True, True)
    """


class SparkSetupError(PenstockError):
    """Spark cannot run Penstock here: Java is missing, or the Python workers cannot import Penstock."""


class PatternError(PenstockError):
    """An event pattern is invalid: its names, negations, predicates or window.

    `about` is the part that is wrong and `expected` is what should be there instead. If the pattern was
    parsed from text, the message starts with the position of that part.
    """

    def __init__(self, message: str, about: object = None, expected: str = "") -> None:
        super().__init__(message)
        self.expected = expected
        self.place: tuple[int, int] | None = getattr(about, "place", None)

    def shown(self, text: str, offset: int = 0) -> PatternError:
        """Return the same error with line, column and a caret; positions are counted from `offset`.

        >>> from penstock.errors import PatternError
        >>> error = PatternError("There is no such thing.", expected="a thing")
        >>> error.place = 4, 7
        >>> print(error.shown("SEQ(abc)"))
        line 1, column 5: found 'abc', expected a thing
          SEQ(abc)
              ^
        There is no such thing.
        """
        if self.place is None:
            return self
        start, end = (each + offset for each in self.place)
        words = " ".join(text[start:end].split())
        found = repr(words if len(words) <= LONGEST else f"{words[:LONGEST]}...") if words else END
        return type(self)(f"{pointed(text, start, found, self.expected)}\n{self}")


class PatternSyntaxError(PatternError):
    """The text of a pattern cannot be parsed; the message gives line, column and a caret."""


class UnsupportedPatternError(PatternError):
    """A pattern uses a feature that the language does not support."""


class KleeneError(UnsupportedPatternError):
    """A pattern uses repetition (`A+`, `A*`, `A{2}`), which is not supported."""


class SkipStrategyError(UnsupportedPatternError):
    """A pattern asks for a skip strategy or strict contiguity; only skip-till-any-match is supported."""


class EventLimitError(PenstockError):
    """The matcher would have to hold more events than `max_events` allows."""


class QueueError(PenstockError):
    """A queue cannot do what was asked: the item is too large or of another type, or the queue is closed."""


class QueueEmptyError(QueueError, queue.Empty):
    """No item arrived before the timeout."""


class QueueFullError(QueueError, queue.Full):
    """The queue has reached its disk limit; `taken` is the number of given items that are in the queue.

    >>> from penstock.errors import QueueFullError
    >>> QueueFullError("full", taken=3).taken
    3
    """

    def __init__(self, message: str, taken: int = 0) -> None:
        super().__init__(message)
        self.taken = taken


class QueueDiskError(QueueError, OSError):
    """A write to the queue's disk failed, because the disk is full or faulty.

    `taken` is the number of given items that are in the queue. Items that were taken are not lost.

    >>> import errno
    >>> from penstock.errors import QueueDiskError
    >>> error = QueueDiskError("full", errno.ENOSPC, taken=3)
    >>> error.taken, error.errno == errno.ENOSPC, isinstance(error, OSError)
    (3, True, True)
    """

    def __init__(self, message: str, number: int | None = None, taken: int = 0) -> None:
        super().__init__(message)
        self.errno, self.taken = number, taken


class QueueLockedError(QueueError):
    """The queue is already open, in another process or through another object of this one."""


class QueueDamageError(QueueError):
    """Files of a queue are damaged; the message gives the file and the offset."""


class FetchError(PenstockError):
    """A table could not be queried: its database was unreachable past the deadline, or rejects the query."""


class MissingKeyError(PenstockError):
    """A stream requests a key that is not in the table, and `missing="error"` is set."""


class TermError(PenstockError):
    """A text or value is not an RDF term, or a file of triples cannot be read; the message gives the line."""


class QueryError(PenstockError):
    """A stream query is invalid: its variables, its streams or its context."""


class QuerySyntaxError(QueryError):
    """The text of a stream query cannot be parsed; the message gives line, column and a caret."""


class UnsupportedQueryError(QueryError):
    """A stream query uses a part of SPARQL that the language does not support."""


class PenstockWarning(UserWarning):
    """Root of all warnings that Penstock issues."""


class BiasedSampleWarning(PenstockWarning):
    """`drop_rate="unbiased"` is used on streams for which its assumptions do not hold."""


class SparkSetupWarning(PenstockWarning):
    """A Spark session does not let an option be set that a query needs, or needs to be fast."""


class UnitWarning(PenstockWarning):
    """Numeric times look like seconds (or another unit) since 1970, but are read in a different unit."""


class LateRowsWarning(PenstockWarning):
    """Many rows arrived after their stream's progress had passed them, so results may be missing."""


class ShortSampleWarning(PenstockWarning):
    """A plan was made from a sample that is shorter than the window."""


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn once, pointing at the line of user code that called Penstock.

    >>> import warnings
    >>> from penstock.errors import UnitWarning, warn_user
    >>> with warnings.catch_warnings(record=True, action="always") as caught:
    ...     warn_user("Check the unit.", UnitWarning)
    >>> str(caught[0].message)
    'Check the unit.'
    """
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "penstock":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def hint(given: object, allowed: Iterable[object]) -> str:
    """Return the end of a message: the closest allowed word, whatever its case, and all allowed words.

    >>> from penstock.errors import hint
    >>> hint("gjd", ["gdj", "lru"])
    "; did you mean 'gdj'? Allowed: gdj, lru"
    >>> hint("LRU", ["gdj", "lru"])
    "; did you mean 'lru'? Allowed: gdj, lru"
    """
    words = [str(word) for word in allowed]
    close = difflib.get_close_matches(str(given), words, n=1, cutoff=0.5)
    if not close:
        folded = {word.casefold(): word for word in words}
        found = difflib.get_close_matches(str(given).casefold(), folded, n=1, cutoff=0.5)
        close = [folded[word] for word in found]
    guess = f"; did you mean {close[0]!r}?" if close else "."
    return f"{guess} Allowed: {', '.join(words)}"


def pointed(text: str, at: int, found: str, expected: str) -> str:
    """Return line and column, what was found and expected, the line itself, and a caret under the position.

    >>> from penstock.errors import pointed
    >>> print(pointed("SEQ(A B)", 6, "B", "a comma"))
    line 1, column 7: found B, expected a comma
      SEQ(A B)
            ^
    """
    at = min(at, len(text))
    line = text.count("\n", 0, at) + 1
    start = text.rfind("\n", 0, at) + 1
    stop = text.find("\n", at)
    shown = text[start : stop if stop >= 0 else len(text)]
    column = at - start + 1
    first = max(0, column - 60)
    clean = "".join(" " if letter in "\t\r\f\v" else letter for letter in shown[first : first + 100])
    return (
        f"line {line}, column {column}: found {found}, expected {expected}\n"
        f"  {clean}\n  {' ' * (column - 1 - first)}^"
    )
