"""Describe database errors without disclosing keys or values."""

from __future__ import annotations

from typing import Any

# SQLSTATE classes whose messages are about connections, privileges, statements and resources. Statements
# contain no keys, which are bound. Messages on data (22), constraints (23) and functions (P0) contain values.
_WORDED = ("08", "0A", "25", "26", "28", "3D", "3F", "40", "42", "53", "54", "55", "57", "58")

# Data errors for texts that are not a value of the type or not in the encoding.
_UNREADABLE = ("22007", "22018", "22021", "22P02", "22P03", "22P04", "22P05")
# SQLite messages about values it cannot compute with that do not contain the value.
_SQLITE_WORDS = ("integer overflow", "string or blob too big", "datatype mismatch", "malformed JSON")


class KeyFaultError(Exception):
    """A query fails for one of its keys. `reason` contains neither keys nor values.

    `unreadable` says that a text cannot be read, such as the key.
    """

    def __init__(self, reason: str, unreadable: bool) -> None:
        super().__init__(reason)
        self.reason, self.unreadable = reason, unreadable


def fault_of(error: Any) -> KeyFaultError:
    """Classify a driver's error for some keys.

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
    """Return why a database rejects a query, without keys or values.

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
    if hasattr(cause, "sqlite_errorname"):  # keys that SQLite cannot read are handled earlier
        return _line(cause)
    if isinstance(error, sa.exc.OperationalError | sa.exc.TimeoutError | OSError):
        return _line(cause) or kind  # the connection
    if isinstance(error, sa.exc.CompileError | sa.exc.ArgumentError | sa.exc.NoSuchTableError):
        return _line(error)
    return kind


def _line(words: Any) -> str:
    return next(iter(str(words).splitlines()), "")
