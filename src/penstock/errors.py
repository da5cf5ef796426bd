"""The errors Penstock raises: one root class, and one way to word a message.

Every message says what was received, what is allowed, and, where a guess is possible, what was
probably meant.
"""

from __future__ import annotations

import difflib
import queue
import sys
import warnings
from collections.abc import Iterable

LONGEST = 60  # letters of what was found
END = "the end of the text"


class PenstockError(ValueError):
    """Root of all errors that Penstock raises on purpose.

    >>> from penstock.errors import PenstockError, UnknownPolicyError
    >>> issubclass(UnknownPolicyError, PenstockError)
    True
    """


class UnknownPolicyError(PenstockError):
    """A policy was named that is not in the registry, or that cannot run in this operator."""


class PolicyOptionError(PenstockError):
    """A policy was given an option it does not have, or a value outside its range."""


class BudgetError(PenstockError):
    """A memory budget is malformed, or too small for one tuple per stream."""


class WindowError(PenstockError):
    """A window is malformed or negative."""


class ColumnError(PenstockError):
    """A column is missing, of the wrong type, or holds values that cannot be used."""


class SnapshotError(PenstockError):
    """A snapshot is damaged, of another version, or of another operator."""


class MissingExtraError(PenstockError, ImportError):
    """A package that an optional part needs is not installed; the message has the command that installs it.

    `name` is the package.

    >>> from penstock.errors import MissingExtraError, PenstockError
    >>> issubclass(MissingExtraError, PenstockError), issubclass(MissingExtraError, ImportError)
    (True, True)
    """


class SparkSetupError(PenstockError):
    """Spark cannot run Penstock here: there is no Java, or its Python workers lack Penstock."""


class PatternError(PenstockError):
    """An event pattern does not make sense: names, negations, predicates or its window.

    `about` is the part that is wrong and `expected` what should stand there instead. Where the pattern was
    read from a text, the message begins with the place of that part.
    """

    def __init__(self, message: str, about: object = None, expected: str = "") -> None:
        super().__init__(message)
        self.expected = expected
        self.place: tuple[int, int] | None = getattr(about, "place", None)

    def shown(self, text: str, offset: int = 0) -> PatternError:
        """The same error with line, column and a caret; `offset` is where in the text places count from.

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
    """The text of a pattern cannot be read; the message has line, column and a caret."""


class UnsupportedPatternError(PatternError):
    """A pattern asks for something that the language does not have."""


class KleeneError(UnsupportedPatternError):
    """A pattern asks for repetition (`A+`, `A*`, `A{2}`)."""


class SkipStrategyError(UnsupportedPatternError):
    """A pattern asks for a skip strategy or strict contiguity; there is only skip till any match."""


class EventLimitError(PenstockError):
    """More events would have to be held than `max_events` allows."""


class QueueError(PenstockError):
    """A queue was asked for what it cannot do: an item too large or of another kind, a closed queue."""


class QueueEmptyError(QueueError, queue.Empty):
    """There was nothing to get within the time."""


class QueueFullError(QueueError, queue.Full):
    """The disk limit of a queue is reached; `taken` says how many of the given items are in the queue.

    >>> from penstock.errors import QueueFullError
    >>> QueueFullError("full", taken=3).taken
    3
    """

    def __init__(self, message: str, taken: int = 0) -> None:
        super().__init__(message)
        self.taken = taken


class QueueDiskError(QueueError, OSError):
    """The disk refused a queue's write: it is full, or it fails.

    `taken` says how many of the given items are in the queue. Nothing that was taken is lost by it.

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
    """Another process, or another object of this one, has the queue open."""


class QueueDamageError(QueueError):
    """Files of a queue are damaged; the message has the file and the offset."""


class FetchError(PenstockError):
    """A table could not be asked: its database is away for longer than the deadline, or refuses the query."""


class MissingKeyError(PenstockError):
    """A stream asks for a key that a table does not have, where that was said to be an error."""


class TermError(PenstockError):
    """A text or a value is no RDF term, or a file of triples cannot be read; the message has the line."""


class QueryError(PenstockError):
    """A stream query does not make sense: its variables, its streams or its context."""


class QuerySyntaxError(QueryError):
    """The text of a stream query cannot be read; the message has line, column and a caret."""


class UnsupportedQueryError(QueryError):
    """A stream query asks for a part of SPARQL that the language does not have."""


class PenstockWarning(UserWarning):
    """Root of the warnings that Penstock gives."""


class BiasedSampleWarning(PenstockWarning):
    """`drop_rate="unbiased"` was asked for where its assumptions do not hold."""


class UnitWarning(PenstockWarning):
    """Numeric times look like seconds (or another unit) since 1970, but are read in a different unit."""


class LateRowsWarning(PenstockWarning):
    """Many rows came behind the progress of their stream, so that results may be missing."""


class ShortSampleWarning(PenstockWarning):
    """A plan was made from a sample that is shorter than the window."""


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn in the name of the code that called Penstock, so that the warning shows that line, and once.

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
    """The tail of a message: the closest allowed word, and the list of all of them.

    >>> from penstock.errors import hint
    >>> hint("gjd", ["gdj", "lru"])
    "; did you mean 'gdj'? Allowed: gdj, lru"
    """
    words = [str(word) for word in allowed]
    close = difflib.get_close_matches(str(given), words, n=1, cutoff=0.5)
    guess = f"; did you mean {close[0]!r}?" if close else "."
    return f"{guess} Allowed: {', '.join(words)}"


def pointed(text: str, at: int, found: str, expected: str) -> str:
    """Line and column, what was found and expected, the line itself, and a caret below the place.

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
