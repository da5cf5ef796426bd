"""RDF terms: parsed by pyoxigraph, compared by value, and numbered in a dictionary."""

from __future__ import annotations

import datetime
import decimal
import hashlib
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from penstock.errors import TermError
from penstock.extras import require

# Kinds of values.
ERROR = -1  # the value of an expression with a SPARQL error
IRI = 0
BLANK = 1
STRING = 2
LANG = 3
EXACT = 4  # integers and decimals
DOUBLE = 5  # floats and doubles
BOOLEAN = 6
TIME = 7  # a dateTime with a time zone
NAIVE = 8  # a dateTime without one, which cannot be compared with one that has it
OTHER = 9  # a literal of another datatype, or a malformed one: equal only to itself

XSD = "http://www.w3.org/2001/XMLSchema#"
RDF_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
INTEGERS = {
    *("integer", "int", "long", "short", "byte", "nonNegativeInteger", "positiveInteger"),
    *(
        "nonPositiveInteger",
        "negativeInteger",
        "unsignedInt",
        "unsignedLong",
        "unsignedShort",
        "unsignedByte",
    ),
}
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)")
_DOUBLE = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?INF|NaN")
_STAMP = re.compile(r"-?[0-9]{4,}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.(\d+))?(Z|[+-]\d\d:\d\d)?")
_UNMARKED = -2
_NUMBERS = {EXACT, DOUBLE}
_MEASURED = {*_NUMBERS, BOOLEAN, TIME, NAIVE}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class Term(NamedTuple):
    """An RDF term: `form` is "iri", "blank" or "literal"; a literal has a datatype and maybe a language.

    >>> from penstock.linked.terms import Term, XSD
    >>> Term("iri", "http://example.org/a").ntriples(), Term("literal", "10", XSD + "int").ntriples()
    ('<http://example.org/a>', '"10"^^<http://www.w3.org/2001/XMLSchema#int>')
    """

    form: str
    text: str
    datatype: str = ""
    language: str = ""

    def ntriples(self) -> str:
        """Return the term in N-Triples syntax.

        >>> from penstock.linked.terms import parse_term
        >>> parse_term('"chat"@fr').ntriples()
        '"chat"@fr'
        """
        if self.form == "iri":
            return f"<{self.text}>"
        if self.form == "blank":
            return f"_:{self.text}"
        quoted = '"' + "".join(_ESCAPES.get(letter, letter) for letter in self.text) + '"'
        if self.language:
            return f"{quoted}@{self.language}"
        return quoted if self.datatype == XSD + "string" else f"{quoted}^^<{self.datatype}>"


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


class Value(NamedTuple):
    """The value of a term: its kind, its number if it has one, and a key that equal values share."""

    kind: int
    number: float
    key: Any


def string(text: str) -> Term:
    """Return a plain string literal.

    >>> from penstock.linked.terms import string
    >>> string("a").ntriples()
    '"a"'
    """
    return Term("literal", text, XSD + "string")


def from_native(value: Any) -> Term:
    """Convert a Python number, boolean or timestamp to a typed literal.

    >>> from penstock.linked.terms import from_native
    >>> from_native(10).ntriples(), from_native(True).text
    ('"10"^^<http://www.w3.org/2001/XMLSchema#integer>', 'true')
    """
    if isinstance(value, bool | np.bool_):
        return Term("literal", "true" if value else "false", XSD + "boolean")
    if isinstance(value, int | np.integer):
        return Term("literal", str(int(value)), XSD + "integer")
    if isinstance(value, decimal.Decimal) and value.is_finite():
        return Term("literal", f"{value:f}", XSD + "decimal")
    if isinstance(value, float | np.floating | decimal.Decimal):
        return Term("literal", double_text(float(value)), XSD + "double")
    if isinstance(value, datetime.datetime):
        return Term("literal", value.isoformat().replace("+00:00", "Z"), XSD + "dateTime")
    raise TermError(f"{value!r} ({type(value).__name__}) is not an RDF term.")


def double_text(value: float) -> str:
    """Format a double as XSD does.

    >>> from penstock.linked.terms import double_text
    >>> double_text(10.0), double_text(float("inf"))
    ('10.0', 'INF')
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "INF" if value > 0 else "-INF"
    return repr(float(value))


def parse_term(text: str) -> Term:
    """Parse a term in N-Triples syntax; IRIs may be relative, like bare names.

    >>> from penstock.linked.terms import parse_term
    >>> parse_term("<reports>"), parse_term('"5"^^<http://www.w3.org/2001/XMLSchema#int>').text
    (Term(form='iri', text='reports', datatype='', language=''), '5')
    """
    require("pyoxigraph", "A column of RDF terms")
    import pyoxigraph

    try:
        parsed = list(
            pyoxigraph.parse(f"<s:s> <p:p> {text} .", format=pyoxigraph.RdfFormat.N_TRIPLES, lenient=True)
        )
    except (SyntaxError, ValueError) as error:
        raise TermError(f"{text!r} is not a term in N-Triples syntax: {error}") from error
    if len(parsed) != 1:
        raise TermError(f"{text!r} is not exactly one term in N-Triples syntax.")
    return from_oxigraph(parsed[0].object)


def from_oxigraph(node: Any) -> Term:
    """Convert a term of pyoxigraph.

    >>> import pyoxigraph
    >>> from penstock.linked.terms import from_oxigraph
    >>> from_oxigraph(pyoxigraph.BlankNode("x")).ntriples()
    '_:x'
    """
    kind = type(node).__name__
    if kind == "NamedNode":
        return Term("iri", node.value)
    if kind == "BlankNode":
        return Term("blank", node.value)
    if kind == "Literal":
        return Term("literal", node.value, node.datatype.value, node.language or "")
    raise TermError(f"{node} is not supported as a term of a stream: quoted triples are not supported.")


def value_of(term: Term) -> Value:
    """Return the value of a term.

    >>> from penstock.linked.terms import parse_term, value_of
    >>> ten = '"10"^^<http://www.w3.org/2001/XMLSchema#{}>'
    >>> value_of(parse_term(ten.format("int"))).key == value_of(parse_term(ten.format("double"))).key
    True
    """
    if term.form == "iri":
        return Value(IRI, 0.0, term)
    if term.form == "blank":
        return Value(BLANK, 0.0, term)
    if term.language:
        return Value(LANG, 0.0, term)
    if not term.datatype.startswith(XSD):
        return Value(OTHER, 0.0, term)
    kind, text = term.datatype[len(XSD) :], term.text
    if kind == "string":
        return Value(STRING, 0.0, term)
    if kind in INTEGERS and _INTEGER.fullmatch(text):
        return _exact(int(text)) if len(text) < 300 else Value(OTHER, 0.0, term)
    if kind == "decimal" and _DECIMAL.fullmatch(text) and len(text) < 300:
        whole = decimal.Decimal(text)
        return _exact(int(whole) if whole == int(whole) else float(whole))
    if kind in ("double", "float") and _DOUBLE.fullmatch(text):
        number = float(text.replace("INF", "inf"))
        if kind == "float":
            number = float(np.float32(number)) if abs(number) < 3.5e38 else math.copysign(math.inf, number)
        return Value(DOUBLE, number, _number_key(number))
    if kind == "boolean" and text in ("true", "false", "1", "0"):
        truth = text in ("true", "1")
        return Value(BOOLEAN, float(truth), ("boolean", truth))
    if kind == "dateTime" and (found := _STAMP.fullmatch(text)):
        return _stamp(term, found.group(1), found.group(2))
    return Value(OTHER, 0.0, term)


def _exact(number: int | float) -> Value:
    return Value(EXACT, float(number), _number_key(number))


def _number_key(number: int | float) -> Any:
    """Python's numbers are equal across types; NaN is equal to nothing and has no key."""
    return None if number != number else ("number", number)


def _stamp(term: Term, fraction: str | None, zone: str | None) -> Value:
    """Microseconds since 1970."""
    text = term.text
    if fraction is not None and len(fraction) > 6:
        text = text.replace("." + fraction, "." + fraction[:6])
    try:
        stamp = datetime.datetime.fromisoformat(text)
        if zone is None:
            stamp = stamp.replace(tzinfo=datetime.UTC)
        micro = (stamp - _EPOCH) // datetime.timedelta(microseconds=1)
    except (ValueError, OverflowError):
        return Value(OTHER, 0.0, term)
    kind = NAIVE if zone is None else TIME
    return Value(kind, float(micro), (kind, micro))


@dataclass(frozen=True)
class Worth:
    """The values of all terms of a dictionary, as arrays by the number of the term."""

    kind: np.ndarray
    number: np.ndarray
    value: np.ndarray  # equal values share it; -1: equal to nothing, not even to itself


class Terms:
    """A dictionary of terms: it numbers each term and each distinct value.

    >>> from penstock.linked.terms import Terms, parse_term
    >>> terms = Terms()
    >>> one = '"1"^^<http://www.w3.org/2001/XMLSchema#{}>'
    >>> a, b = (terms.add(parse_term(one.format(kind))) for kind in ("int", "decimal"))
    >>> a, b, terms.worth().value[[a, b]].tolist()
    (0, 1, [0, 0])
    """

    def __init__(self) -> None:
        self._terms: list[Any] = []  # terms; numbers of native columns are kept as they are
        self._number: dict[Any, int] = {}
        self._by_value: dict[Any, int] = {}
        self._kind: list[int] = []
        self._worth_of: list[float] = []
        self._value: list[int] = []
        self._cached: Worth | None = None
        self._places: np.ndarray | None = None
        self._marks = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._kind)

    def add(self, term: Term) -> int:
        """Return the number of a term, adding it if it is new."""
        found = self._number.get(term)
        return self._append(term, term, value_of(term)) if found is None else found

    def add_native(self, value: int | float) -> int:
        """Return the number of an integer or double of a native column."""
        if isinstance(value, float):
            key = ("double", value) if value == value else ("double", "NaN")
            found = self._number.get(key)
            if found is None:
                found = self._append(key, value, Value(DOUBLE, value, _number_key(value)))
            return found
        key = ("integer", value)
        found = self._number.get(key)
        return self._append(key, value, _exact(value)) if found is None else found

    def add_iris(self, texts: Iterable[str]) -> np.ndarray:
        """The numbers of IRIs."""
        number, numbers = self._number, []
        for text in texts:
            term = Term("iri", text)
            found = number.get(term)
            if found is None:
                found = self._append(term, term, Value(IRI, 0.0, term))
            numbers.append(found)
        return np.array(numbers, np.int64)

    def _append(self, key: Any, stored: Any, value: Value) -> int:
        number = len(self._kind)
        self._number[key] = number
        self._terms.append(stored)
        self._kind.append(value.kind)
        self._worth_of.append(value.number)
        self._value.append(-1 if value.key is None else self._by_value.setdefault(value.key, number))
        self._cached = self._places = None
        return number

    def term(self, number: int) -> Term:
        """The term of a number."""
        stored = self._terms[number]
        return stored if isinstance(stored, Term) else from_native(stored)

    def worth(self) -> Worth:
        """The values as arrays."""
        if self._cached is None:
            self._cached = Worth(
                np.array(self._kind, np.int8), np.array(self._worth_of), np.array(self._value, np.int64)
            )
        return self._cached

    def marks(self, numbers: np.ndarray) -> np.ndarray:
        """Hashes of the values of terms, the same in every dictionary and process; -1: equal to nothing."""
        if len(self._marks) < len(self):
            more = np.full(len(self) - len(self._marks), _UNMARKED, np.int64)
            self._marks = np.concatenate([self._marks, more])
        asked = np.zeros(len(self), bool)
        asked[numbers] = True
        for number in np.flatnonzero(asked & (self._marks == _UNMARKED)).tolist():
            self._marks[number] = self._mark(number)
        return self._marks[numbers]

    def _mark(self, number: int) -> int:
        if self._value[number] < 0:
            return -1
        stored, kind = self._terms[number], self._kind[number]
        if kind in _MEASURED:
            amount = value_of(stored).key[1] if isinstance(stored, Term) else stored
            amount = int(amount) if amount == amount // 1 else amount
            text = f"{'' if kind in _NUMBERS else kind} {amount!r}"
        else:
            text = f"{stored.form} {stored.datatype} {stored.language} {stored.text}"
        return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).digest())

    def places(self) -> np.ndarray:
        """The place of each string in their order, 0 for other terms."""
        if self._places is None:
            texts = [i for i, kind in enumerate(self._kind) if kind == STRING]
            self._places = np.zeros(len(self))
            self._places[sorted(texts, key=lambda i: self._terms[i].text)] = np.arange(1.0, len(texts) + 1)
        return self._places

    def kept(self, numbers: np.ndarray) -> tuple[Terms, np.ndarray]:
        """A dictionary of these terms alone, and where each number went (-1: nowhere)."""
        fewer, places = Terms(), np.full(len(self) + 1, -1, np.int64)
        for number in np.unique(numbers[numbers >= 0]).tolist():
            stored = self._terms[number]
            places[number] = fewer.add(stored) if isinstance(stored, Term) else fewer.add_native(stored)
        return fewer, places

    @property
    def stored(self) -> list[Any]:
        """The terms in order of their numbers, numbers of native columns as they are."""
        return self._terms

    @classmethod
    def from_stored(cls, stored: list[Any]) -> Terms:
        """The dictionary that `stored` came from."""
        terms = cls()
        for one in stored:
            if isinstance(one, Term):
                terms.add(one)
            else:
                terms.add_native(one)
        return terms

    def natives(self, number: int) -> Any:
        """A term as a Python value: a number, truth value or timestamp if it is one, else a text."""
        stored = self._terms[number]
        if not isinstance(stored, Term):
            return stored
        kind = self._kind[number]
        if kind in (IRI, STRING):
            return stored.text
        if kind == EXACT:
            whole = stored.datatype.removeprefix(XSD) in INTEGERS
            return int(stored.text) if whole else float(stored.text)
        if kind == DOUBLE:
            return self._worth_of[number]
        if kind == BOOLEAN:
            return bool(self._worth_of[number])
        if kind == TIME:
            return _EPOCH + datetime.timedelta(microseconds=self._worth_of[number])
        return stored.ntriples()
