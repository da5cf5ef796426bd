"""What may be told of a database's errors: their kind, and their words where these have no keys or values."""

from __future__ import annotations

from typing import Any

# Classes of SQLSTATE whose words are of connections, rights, statements and resources: statements have no
# keys, which are bound. Those of data (22), constraints (23) and raised by functions (P0) tell values.
_WORDED = ("08", "0A", "25", "26", "28", "3D", "3F", "40", "42", "53", "54", "55", "57", "58")

# Of those of data: texts that are no value of a type, or in no encoding.
_UNREADABLE = ("22007", "22018", "22021", "22P02", "22P03", "22P04", "22P05")
# Of SQLite's words for a value that it cannot compute with, those without the value.
_SQLITE_WORDS = ("integer overflow", "string or blob too big", "datatype mismatch", "malformed JSON")


class KeyFaultError(Exception):
    """A query fails with one of its keys. `reason` has neither keys nor values.

    `unreadable` says that a text cannot be read: the key, if it is one.
    """

    def __init__(self, reason: str, unreadable: bool) -> None:
        super().__init__(reason)
        self.reason, self.unreadable = reason, unreadable


def fault_of(error: Any) -> KeyFaultError:
    """What a driver's error with some keys is.

    >>> from penstock.lookup.refusals import fault_of
    >>> fault_of(ValueError("invalid input for type uuid: 'secret'"))
    KeyFaultError('ValueError')
    """
    cause = getattr(error, "orig", None) or error
    name = getattr(cause, "sqlite_errorname", None)
    if name is not None:
        words = str(cause)
        return KeyFaultError(
            words if words in _SQLITE_WORDS else name, "JSON" in words or name == "SQLITE_MISMATCH"
        )
    state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    return KeyFaultError(reason_of(error), state is None or state in _UNREADABLE)


def reason_of(error: Any) -> str:
    """Why a database refuses, without keys or values.

    >>> from penstock.lookup.refusals import reason_of
    >>> reason_of(ValueError("invalid input for type uuid: 'secret'"))
    'ValueError'
    """
    import sqlalchemy as sa

    cause = getattr(error, "orig", None) or error
    state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    kind = type(cause).__name__
    if state is not None:
        words = getattr(getattr(cause, "diag", None), "message_primary", None)
        if words and str(state)[:2] in _WORDED:
            return _line(words)
        return f"{kind} (SQLSTATE {state})"
    if hasattr(cause, "sqlite_errorname"):  # keys that SQLite cannot read are told apart before
        return _line(cause)
    if isinstance(error, sa.exc.OperationalError | sa.exc.TimeoutError | OSError):
        return _line(cause) or kind  # the connection
    if isinstance(error, sa.exc.CompileError | sa.exc.ArgumentError | sa.exc.NoSuchTableError):
        return _line(error)
    return kind


def _line(words: Any) -> str:
    return next(iter(str(words).splitlines()), "")
