"""What may be told of a database's errors: their kind, and their words where these have no keys or values."""

from __future__ import annotations

from typing import Any

# Classes of SQLSTATE whose words are of connections, rights, statements and resources: statements have no
# keys, which are bound. Those of data (22), constraints (23) and raised by functions (P0) tell values.
_WORDED = ("08", "0A", "25", "26", "28", "3D", "3F", "40", "42", "53", "54", "55", "57", "58")


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
