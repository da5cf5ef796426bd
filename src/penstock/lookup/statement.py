"""A SELECT with one bound key as a statement that takes many keys at once, where that means the same."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from penstock.errors import PenstockError

# With any of these a query for many keys is not the union of the queries for each.
_WHOLE = re.compile(
    r"\b(limit|offset|fetch|group|distinct|union|intersect|except|over|having|count|with)\b", re.I
)
_BOUND = re.compile(r"(?<![:\w]):([A-Za-z_]\w*)")


class Bound(NamedTuple):
    """A statement, the name of its parameter, and whether that takes many keys or one."""

    statement: Any
    parameter: str
    many: bool


def bound_of(statement: Any, key: str) -> Bound:
    """A SELECT, or its text, prepared for lists of keys if it can be.

    >>> from penstock.lookup.statement import bound_of
    >>> bound = bound_of("SELECT id, name FROM items WHERE id = :id", "id")
    >>> bound.many, str(bound.statement)
    (True, 'SELECT id, name FROM items WHERE id IN (__[POSTCOMPILE_id])')
    >>> bound_of("SELECT id, name FROM items WHERE id = :id LIMIT 1", "id").many
    False
    """
    import sqlalchemy as sa
    from sqlalchemy.sql import operators, visitors

    if isinstance(statement, str):
        names = set(_BOUND.findall(statement))
        name = _the_one(names, statement)
        equal = re.compile(rf"=\s*:{name}\b")
        if len(equal.findall(statement)) == 1 and not _WHOLE.search(statement) and "*" not in statement:
            many = sa.text(equal.sub(f"IN :{name}", statement)).bindparams(sa.bindparam(name, expanding=True))
            return Bound(many, name, True)
        return Bound(sa.text(statement), name, False)
    binds = [
        part for part in visitors.iterate(statement) if isinstance(part, sa.BindParameter) and part.required
    ]
    name = _the_one({part.key for part in binds}, statement)
    if binds[0].expanding:
        return Bound(statement, name, True)
    if _WHOLE.search(str(statement)) or key not in statement.selected_columns:
        return Bound(statement, name, False)
    found = []

    def replace(part: Any, **_: Any) -> Any:
        equals = isinstance(part, sa.BinaryExpression) and part.operator is operators.eq
        if equals and isinstance(part.right, sa.BindParameter) and part.right.key == name:
            found.append(part)
            return part.left.in_(sa.bindparam(name, expanding=True))
        return None

    replaced: Any = visitors.replacement_traverse(statement, {}, replace)  # type: ignore[call-overload]
    return (
        Bound(replaced, name, True) if len(found) == 1 and len(binds) == 1 else Bound(statement, name, False)
    )


def _the_one(names: set[str], statement: Any) -> str:
    if len(names) != 1:
        given = ", ".join(sorted(names)) or "none"
        raise PenstockError(
            f"A SELECT for lookups has one bound key, such as WHERE id = :id; this one has {given}: "
            f"{str(statement)[:200]}"
        )
    return next(iter(names))
