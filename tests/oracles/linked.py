"""Stream queries by their plain meaning: every assignment of triples to patterns, tried one by one.

Terms are (form, text, datatype, language); a triple is (s, p, o, start, end). Expressions are evaluated one
value at a time, errors being exceptions, as SPARQL 1.1 defines them.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from penstock.linked.language.nodes import ConstantTerm, Query, Var, variables
from penstock.linked.terms import Term

from .policies import Arrival, Clock, ClockExp, Fifo, Gdj, Lfu, Lru, Now, Policy, Pool, TimeWindow

XSD = "http://www.w3.org/2001/XMLSchema#"
INTEGERS = {"integer", "int", "long", "short", "byte", "nonNegativeInteger", "unsignedInt"}
UNITS = {"millisecond": 1, "second": 1_000, "minute": 60_000, "hour": 3_600_000}


class ExpressionError(Exception):
    """What SPARQL calls a type error."""


@dataclass(frozen=True)
class Triple:
    """A timed triple and its number in the order of processing."""

    terms: tuple[Term, Term, Term]
    start: float
    end: float
    number: int


def value(term: Any) -> Any:
    """A number, a truth value, a text, or the term itself where it is none of these."""
    if not isinstance(term, Term) or term.form != "literal" or term.language:
        return term
    kind = term.datatype.removeprefix(XSD)
    if kind in INTEGERS:
        return Fraction(int(term.text))
    if kind == "decimal":
        return Fraction(term.text)
    if kind == "double":
        return float(term.text.replace("INF", "inf"))
    if kind == "boolean":
        return term.text in ("true", "1")
    if kind == "string":
        return term.text
    return term


def is_number(x: Any) -> bool:
    return isinstance(x, Fraction | float) and not isinstance(x, bool)


def same(x: Any, y: Any) -> bool:
    """Whether two terms have the same value, so that a shared variable can stand for both."""
    a, b = value(x), value(y)
    if is_number(a) and is_number(b):
        return as_float(a) == as_float(b)
    return type(a) is type(b) and a == b


def as_float(x: Any) -> float:
    return float(x)


def equals(a: Any, b: Any) -> bool:
    if is_number(a) and is_number(b):
        return as_float(a) == as_float(b)
    others = [x for x in (a, b) if isinstance(x, Term) and x.form == "literal" and not x.language]
    nodes = [x for x in (a, b) if isinstance(x, Term) and x.form != "literal"]
    if others and not nodes and a != b:
        raise ExpressionError("literals of unknown types")
    return type(a) is type(b) and a == b


def compare(name: str, a: Any, b: Any) -> bool:
    if name == "=":
        return equals(a, b)
    if name == "!=":
        return not equals(a, b)
    if is_number(a) and is_number(b):
        a, b = as_float(a), as_float(b)
    elif type(a) is not type(b) or not isinstance(a, bool | str):
        raise ExpressionError("no order")
    return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[name]


def truth(x: Any) -> bool:
    if isinstance(x, bool):
        return x
    if is_number(x):
        return x != 0 and x == x
    if isinstance(x, str):
        return x != ""
    raise ExpressionError("no truth value")


def evaluate(expression: Any, binding: dict[str, Any]) -> Any:
    """The value of an expression."""
    if isinstance(expression, Var):
        if expression.name not in binding:
            raise ExpressionError("unbound")
        return value(binding[expression.name])
    if isinstance(expression, ConstantTerm):
        if expression.unit:
            return Fraction(expression.term.text) * UNITS[expression.unit]
        return value(expression.term)
    name, parts = expression.name, expression.arguments
    if name in ("&&", "||"):
        return junction(name, parts, binding)
    if name == "bound":
        return parts[0].name in binding
    if name == "str":
        return lexical(parts[0], binding)
    found = [evaluate(part, binding) for part in parts]
    if name == "!":
        return not truth(found[0])
    if name == "regex":
        if not all(isinstance(x, str) for x in found[:2]):
            raise ExpressionError("regex takes texts")
        return re.search(found[1], found[0]) is not None
    if name in ("=", "!=", "<", "<=", ">", ">="):
        return compare(name, *found)
    if not all(is_number(x) for x in found):
        raise ExpressionError("not a number")
    return arithmetic(name, found)


def arithmetic(name: str, found: list[Any]) -> Any:
    if name == "neg":
        return -found[0]
    if name == "abs":
        return abs(found[0])
    a, b = found
    if any(isinstance(x, float) for x in found):
        a, b = float(a), float(b)
        if name == "/" and b == 0.0:
            return math.nan if a == 0.0 or a != a else math.copysign(math.inf, a) * math.copysign(1.0, b)
    elif name == "/" and b == 0:
        raise ExpressionError("division by zero")
    return {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "/": lambda: a / b}[name]()


def junction(name: str, parts: Any, binding: dict[str, Any]) -> bool:
    decisive, wrong = name == "||", False
    for part in parts:
        try:
            if truth(evaluate(part, binding)) is decisive:
                return decisive
        except ExpressionError:
            wrong = True
    if wrong:
        raise ExpressionError("undecided")
    return not decisive


def lexical(part: Any, binding: dict[str, Any]) -> str:
    term = (
        binding[part.name] if isinstance(part, Var) else part.term if isinstance(part, ConstantTerm) else None
    )
    if not isinstance(term, Term) or term.form == "blank":
        raise ExpressionError("no text")
    return term.text


def holds(expression: Any, binding: dict[str, Any]) -> bool:
    try:
        return truth(evaluate(expression, binding))
    except ExpressionError:
        return False


def number(time: float) -> Any:
    return Fraction(int(time)) if math.isfinite(time) else time


def extended(query: Query, i: int, triple: Triple, binding: dict[str, Any]) -> dict[str, Any] | None:
    """The binding with a triple as pattern `i`, None if it does not fit."""
    pattern, out = query.patterns[i], dict(binding)
    for part, term in zip(pattern.triple, triple.terms, strict=True):
        if isinstance(part, ConstantTerm):
            if not same(part.term, term):
                return None
        elif part.name in out:
            if not same(out[part.name], term):
                return None
        else:
            nan = value(term)
            out[part.name] = term
            if isinstance(nan, float) and nan != nan:
                out[part.name] = term
    if pattern.start and triple.start == -math.inf:
        return None
    if pattern.start:
        out[pattern.start] = number(triple.start)
    if pattern.end:
        out[pattern.end] = number(triple.end)
    return out


def solutions(query: Query, triples: list[Triple]) -> Iterator[tuple[tuple[Triple, ...], dict[str, Any]]]:
    """All solutions, each with its triples, with unlimited memory."""

    def search(i: int, chosen: tuple[Triple, ...], binding: dict[str, Any]) -> Any:
        if i == len(query.patterns):
            conditions = [*query.filters, *([] if query.context is None else [query.context])]
            if all(holds(condition, binding) for condition in conditions):
                yield chosen, binding
            return
        for triple in triples:
            wider = extended(query, i, triple, binding)
            if wider is not None:
                yield from search(i + 1, (*chosen, triple), wider)

    yield from search(0, (), {})


def answers(query: Query, triples: list[Triple]) -> Counter[tuple[int, ...]]:
    """The bag of solutions, each as the numbers of its triples."""
    return Counter(tuple(triple.number for triple in chosen) for chosen, _ in solutions(query, triples))


class Prob(Policy):
    """Score: how often its key was asked for, by the arrivals of each pattern that can be its partner."""

    selective = True

    def __init__(self, query: Query, life: Any) -> None:
        self.query, self.life = query, life
        (self.shared,) = set(query.patterns[0].names) & set(query.patterns[1].names)
        self.asked: Counter[Any] = Counter()

    def key(self, triple: Triple) -> Any:
        worth = value(triple.terms[self.query.patterns[0].triple.index(Var(self.shared))])
        return ("number", as_float(worth)) if is_number(worth) else (type(worth), worth)

    def came(self, triple: Triple) -> None:
        """A triple asks for its key in each role that it has."""
        for i in (0, 1):
            binding = extended(self.query, i, triple, {})
            if binding is not None:
                own = [part for part in self.query.filters if set(variables(part)) <= set(binding)]
                self.asked[self.key(triple)] += all(holds(part, binding) for part in own)

    def score(self, y: Arrival, now: Now) -> float:
        return self.asked[self.key(y.key)]


class Life(Prob):
    """Score: that count times how long it can still be of use."""

    def score(self, y: Arrival, now: Now) -> float:
        return super().score(y, now) * (self.life(y.key) - now.time)


def bounded_pairs(
    query: Query, triples: list[Triple], life: Any, budget: int, policy: str, **options: Any
) -> tuple[Counter[tuple[int, int]], int]:
    """Two patterns of one shape in one cache of fixed size: the solutions that come out, and the evictions.

    `life(triple)` is the last time at which a triple can meet a partner.
    """
    kinds: dict[str, Any] = {
        "fifo": Fifo,
        "lru": Lru,
        "lfu": Lfu,
        "gdj": Gdj,
        "clock": Clock,
        "clock-exp": ClockExp,
    }
    counting = {"prob": Prob, "life": Life}
    rules: Policy = counting[policy](query, life) if policy in counting else kinds[policy](**options)
    pool, now = Pool(budget), Now(TimeWindow(0, 0))
    rules.prepare([], [pool])
    found: Counter[tuple[int, int]] = Counter()
    evicted = 0
    conditions = [*query.filters, *([] if query.context is None else [query.context])]

    def fits(first: Triple, second: Triple) -> bool:
        one = extended(query, 0, first, {})
        both = None if one is None else extended(query, 1, second, one)
        return both is not None and all(holds(condition, both) for condition in conditions)

    for triple in triples:
        now.time = triple.start
        x = Arrival(0, triple.number, triple.start, triple, number=triple.number)
        for y in [y for y in pool.members if life(y.key) < triple.start]:
            pool.members.remove(y)
            rules.gone(y, pool)
        found[triple.number, triple.number] += fits(triple, triple)
        for y in list(pool.members):
            here = [(triple, y.key), (y.key, triple)]
            hits = [(a.number, b.number) for a, b in here if fits(a, b)]
            found.update(hits)
            if hits:
                rules.matched(x, [y], pool)
        if isinstance(rules, Prob):
            rules.came(triple)
        if len(pool.members) >= budget:
            victim = rules.victim(x, pool, now)
            evicted += 1
            if victim is x:
                continue
            pool.members.remove(victim)
            rules.gone(victim, pool)
        rules.enter([x], pool)
        pool.members.append(x)
    return +found, evicted
