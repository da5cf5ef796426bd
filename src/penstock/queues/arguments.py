"""Check the arguments of queues (folders, timeouts, numbers), and word disk errors."""

from __future__ import annotations

import errno
import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from penstock.errors import PenstockError, QueueDiskError, QueueError

LARGEST = 2**63 - 1
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def positive_number(queues: Any) -> int:
    """Return a number of queues, or raise an error.

    >>> from penstock.queues.arguments import positive_number
    >>> positive_number(3)
    3
    """
    if isinstance(queues, bool) or not isinstance(queues, int | np.integer) or not 1 <= queues <= 99_999:
        raise PenstockError(f"queues takes a whole number from 1 to 99,999; {queues!r} was given.")
    return int(queues)


def whole_number(name: str, given: Any) -> int:
    """Return the number of an item, row or batch, or raise an error that names it.

    >>> from penstock.queues.arguments import whole_number
    >>> whole_number("row", -1)
    Traceback (most recent call last):
    ...
    penstock.errors.QueueError: row takes a whole number from 0 to 9223372036854775807; -1 was given.
    """
    if isinstance(given, bool) or not isinstance(given, int | np.integer) or not 0 <= given <= LARGEST:
        raise QueueError(f"{name} takes a whole number from 0 to {LARGEST}; {given!r} was given.")
    return int(given)


def seconds(name: str, given: Any) -> float:
    """Return a timeout in seconds, or raise an error that names it.

    >>> from penstock.queues.arguments import seconds
    >>> seconds("timeout", 0.5)
    0.5
    >>> seconds("timeout", "soon")
    Traceback (most recent call last):
    ...
    penstock.errors.QueueError: timeout takes seconds, such as 0.5; 'soon' was given.
    """
    numeric = isinstance(given, int | float | np.integer | np.floating) and not isinstance(given, bool)
    if not numeric or math.isnan(given):
        raise QueueError(f"{name} takes seconds, such as 0.5; {given!r} was given.")
    # A lock waits for at most 292 years.
    return float(min(given, 1e9))


def producer_of_batch(given: Any) -> tuple[str, int]:
    """Return a producer's name and number, or raise an error.

    >>> from penstock.queues.arguments import producer_of_batch
    >>> producer_of_batch(("till 7", 3))
    ('till 7', 3)
    """
    if (
        not isinstance(given, tuple | list)
        or len(given) != 2
        or not isinstance(given[0], str)
        or not given[0]
        or not _encodable(given[0])
    ):
        raise QueueError(f"producer takes a name and a number, such as ('till 7', 3); {given!r} was given.")
    return given[0], whole_number("The number of a producer", given[1])


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def token_text(given: Any) -> str | None:
    """Return a token that fits into a header, or raise an error that does not show it.

    >>> from penstock.queues.arguments import token_text
    >>> token_text("two" + chr(10) + "lines")
    Traceback (most recent call last):
    ...
    penstock.errors.QueueError: token takes printable ASCII characters on one line; something else was given.
    """
    if given is None:
        return None
    if isinstance(given, str) and given and given.isascii() and given.isprintable():
        return given
    what = "an empty text" if given == "" else "something else"  # an empty token would admit everybody
    raise QueueError(f"token takes printable ASCII characters on one line; {what} was given.")


def yes_or_no(name: str, given: Any) -> bool:
    """Return True or False, or raise an error that names the argument.

    >>> from penstock.queues.arguments import yes_or_no
    >>> yes_or_no("durable", "no")
    Traceback (most recent call last):
    ...
    penstock.errors.QueueError: durable takes True or False; 'no' was given.
    """
    if not isinstance(given, bool | np.bool_):
        raise QueueError(f"{name} takes True or False; {given!r} was given.")
    return bool(given)


def existing_folder(path: Any) -> Path:
    """Return a folder, created if necessary, or raise an error that says why it cannot be used.

    >>> import tempfile
    >>> from penstock.queues.arguments import existing_folder
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     existing_folder(file.name)
    Traceback (most recent call last):
    ...
    penstock.errors.QueueError: '...' is a file; a queue takes a folder of its own.
    """
    try:
        folder = Path(os.fspath(path))
        if "\0" in str(folder):
            raise TypeError
    except TypeError as error:
        raise QueueError(f"A queue takes the path of a folder; {path!r} was given.") from error
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise QueueError(f"'{folder}' is a file; a queue takes a folder of its own.") from error
    except OSError as error:
        raise unusable(folder, error) from error
    return folder


def unusable(folder: Path, error: OSError) -> QueueError:
    """Return the error for a folder that a queue cannot use.

    >>> from pathlib import Path
    >>> from penstock.queues.arguments import unusable
    >>> print(unusable(Path("spool"), PermissionError(13, "Permission denied", "spool/lock")))
    A queue cannot be opened in 'spool': Permission denied (spool/lock). It needs a folder ...
    """
    if error.errno in _FULL:
        return disk_error(folder, error, "The queue was not opened; free space and open it again.")
    where = f" ({error.filename})" if error.filename else ""
    return QueueError(
        f"A queue cannot be opened in '{folder}': {error.strerror or error}{where}. "
        "It needs a folder in which it can create, read and write files."
    )


def disk_error(folder: Path, error: OSError, consequence: str, taken: int = 0) -> QueueDiskError:
    """Return the error for a failed write.

    >>> import errno
    >>> from pathlib import Path
    >>> from penstock.queues.arguments import disk_error
    >>> print(disk_error(Path("spool"), OSError(errno.ENOSPC, "No space left on device"), "Free some."))
    The disk of the queue in 'spool' is full (No space left on device). Free some.
    """
    state = "is full" if error.errno in _FULL else "cannot be written"
    found = QueueDiskError(
        f"The disk of the queue in '{folder}' {state} ({error.strerror or error}). {consequence}",
        error.errno,
        taken,
    )
    found.__cause__ = error
    return found
