"""A SELECT for one key, and how to put another expression in place of the bound key."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import Any

from penstock.errors import PenstockError

# Not searched for parameters: texts, quoted names and comments; then casts, escapes and parameters.
_TOKEN = re.compile(
    r"""(?P<skip> [eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*' | "(?:[^"]|"")*" | `[^`]*`
          | --[^\n]* | /\*.*?\*/ | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$ | :: )
      | (?P<escape>\\:)
      | (?<![\w:]):(?P<name>[A-Za-z_]\w*)""",
    re.X | re.S,
)
_AFTER = re.compile(
    r"\s*($|[);]|(and|or|limit|offset|order|group|having|union|intersect|except|for|fetch)\b)", re.I
)
_BEFORE = re.compile(r"(?<![<>!=~*])=\s*$")
_TAKEN = re.compile(r"(?<![:\w\x5c])(:[\w$]+)(?![:\w$])")  # what SQLAlchemy's text() reads as a parameter


@dataclass(frozen=True)
class OneKey:
    """A SELECT that finds the rows of one key, as text or as a SQLAlchemy SELECT.

    `pieces` is the text around the places of the key. `names` are the parameters of a SQLAlchemy SELECT and
    `kinds` their types, one per part of the key. If `compares`, the key is only compared by `=`, so a
    whole number and an equal float find the same rows.
    """

    names: tuple[str, ...]
    compares: bool
    pieces: tuple[str, ...] = ()
    select: Any = None
    kinds: tuple[Any, ...] = ()

    @property
    def is_text(self) -> bool:
        """Whether it is given as text."""
        return self.select is None

    def text_with(self, place: str) -> str:
        """Return the text of the statement with `place` in place of the key.

        >>> from penstock.lookup.statement import one_key
        >>> one_key("SELECT ':x' FROM a WHERE id = :id::int").text_with("($1)")
        "SELECT ':x' FROM a WHERE id = ($1)::int"
        """
        return place.join(self.pieces)

    def escaped_with(self, place: str) -> str:
        """Like `text_with`, escaped for SQLAlchemy's `text`, which would find further parameters."""
        return place.join(_TAKEN.sub(r"\\\1", piece) for piece in self.pieces)

    def select_with(self, places: tuple[Any, ...]) -> Any:
        """Return the SQLAlchemy SELECT with these expressions in place of the parts of the key."""
        import sqlalchemy as sa
        from sqlalchemy.sql import operators, visitors

        by_name = dict(zip(self.names, places, strict=True))

        def replace(part: Any, **_: Any) -> Any:
            if isinstance(part, sa.BinaryExpression) and part.operator in (
                operators.in_op,
                operators.not_in_op,
            ):
                right = part.right
                if isinstance(right, sa.BindParameter) and right.key in by_name:
                    same = part.operator is operators.in_op
                    return part.left == by_name[right.key] if same else part.left != by_name[right.key]
            if isinstance(part, sa.BindParameter) and part.key in by_name:
                return by_name[part.key]
            return None

        return visitors.replacement_traverse(self.select, {}, replace)  # type: ignore[call-overload]


def one_key(statement: Any) -> OneKey:
    """Parse a SELECT with one bound key, as text or as a SQLAlchemy object.

    >>> from penstock.lookup.statement import one_key
    >>> one_key("SELECT name FROM items WHERE id = :id").compares
    True
    >>> one_key("SELECT name FROM items WHERE id = :id / 2").compares
    False
    """
    if isinstance(statement, str):
        return _of_text(statement)
    import sqlalchemy as sa
    from sqlalchemy.sql import visitors

    binds = [
        part for part in visitors.iterate(statement) if isinstance(part, sa.BindParameter) and part.required
    ]
    name = _the_one({part.key for part in binds}, statement)
    return OneKey((name,), _compares(statement, name), select=statement, kinds=(binds[0].type,))


def of_table(columns: list[Any], values: list[Any]) -> OneKey:
    """Return the SELECT of these columns of a table by its key columns."""
    import sqlalchemy as sa

    names = tuple(f"penstock_key_{i}" for i in range(len(columns)))
    wanted = sa.select(*values) if values else sa.select(sa.literal_column("1").label("penstock_there"))
    for name, column in zip(names, columns, strict=True):
        wanted = wanted.where(column == sa.bindparam(name, required=True, type_=column.type))
    return OneKey(names, True, select=wanted, kinds=tuple(column.type for column in columns))


def _of_text(statement: str) -> OneKey:
    pieces, names, last = [""], set(), 0
    for token in _TOKEN.finditer(statement):
        pieces[-1] += statement[last : token.start()]
        last = token.end()
        if token["name"]:
            names.add(token["name"])
            pieces.append("")
        else:
            pieces[-1] += ":" if token["escape"] else token[0]
    pieces[-1] = (pieces[-1] + statement[last:]).rstrip()
    name = _the_one(names, statement)
    pieces[-1] = pieces[-1].rstrip(";")
    compares = all(
        _BEFORE.search(before) and _AFTER.match(after) for before, after in itertools.pairwise(pieces)
    )
    return OneKey((name,), compares, tuple(pieces))


def _compares(statement: Any, name: str) -> bool:
    """Whether every use of a parameter is one side of an `=`."""
    import sqlalchemy as sa
    from sqlalchemy.sql import operators, visitors

    def is_key(part: Any) -> bool:
        return isinstance(part, sa.BindParameter) and part.key == name

    uses = equals = 0
    for part in visitors.iterate(statement):
        uses += is_key(part)
        if isinstance(part, sa.BinaryExpression) and part.operator is operators.eq:
            equals += is_key(part.left) + is_key(part.right)
    return uses == equals


def _the_one(names: set[str], statement: Any) -> str:
    if len(names) != 1:
        given = ", ".join(sorted(names)) or "none"
        raise PenstockError(
            f"A SELECT for lookups has one bound key, such as WHERE id = :id; this one has {given}: "
            f"{str(statement)[:200]}"
        )
    return next(iter(names))
