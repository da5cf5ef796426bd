"""Queries and streams drawn at random, small enough for brute force and for pyoxigraph."""

from __future__ import annotations

import math
import re
from random import Random
from typing import Any

import pandas as pd

from penstock.linked.terms import XSD, parse_term
from tests.oracles.linked import Triple

E = "http://e.org/"
IRIS = [f"<{E}{name}>" for name in "abc"]
VERBS = [f"<{E}p>", f"<{E}q>"]
LITERALS = [
    f'"1"^^<{XSD}int>',
    f'"1.0"^^<{XSD}decimal>',
    f'"2"^^<{XSD}integer>',
    f'"1.0E0"^^<{XSD}double>',
    f'"true"^^<{XSD}boolean>',
    '"1"',
    '"x"',
    '"x"@en',
]


def stream(random: Random, rows: int, facts: bool) -> pd.DataFrame:
    """A table of triples in order of time."""
    starts = sorted(random.randrange(rows) for _ in range(rows))
    table = {
        "s": [random.choice(IRIS) for _ in range(rows)],
        "p": [random.choice(VERBS) for _ in range(rows)],
        "o": [random.choice(IRIS + LITERALS * 2) for _ in range(rows)],
        "start": starts,
    }
    if facts:
        table["end"] = [start + random.randrange(6) for start in starts]
    return pd.DataFrame(table)


def triples_of(table: pd.DataFrame) -> list[Triple]:
    """The same for the oracles; rows must be in order of time."""
    ends = table["end"] if "end" in table else table["start"]
    return [
        Triple((parse_term(s), parse_term(p), parse_term(o)), start, math.inf if end != end else end, i)
        for i, (s, p, o, start, end) in enumerate(
            zip(table["s"], table["p"], table["o"], table["start"], ends, strict=True)
        )
    ]


def pattern(random: Random, number: int, alike: bool) -> str:
    subject = random.choice(["?a", "?b", f"?s{number}", f"?s{number}", random.choice(IRIS)])
    verb = random.choice(VERBS[:1] if alike else [*VERBS, *VERBS, "?v"])
    thing = random.choice(["?x", "?x", "?a", f"?o{number}", random.choice(LITERALS)])
    return f"{subject} {verb} {thing} ?T{number} ?E{number}"


def condition(random: Random, names: list[str]) -> str:
    """A filter over the variables of terms."""
    a, b = random.choice(names), random.choice(names)
    constant = random.choice(LITERALS + IRIS)
    ordered = random.choice(LITERALS[:-1])  # pyoxigraph also orders what is equal, of kinds without an order
    return random.choice(
        [
            f"{a} != {b}",
            f"{a} = {b}",
            f"{a} < {b}",
            f"{a} >= {ordered}",
            f"!({a} = {constant})",
            f"{a} + {b} > 1",
            f"{a} = 1 || {b} = 1",
            f"{a} != {b} && {a} != {constant}",
            f"str({a}) = str({b})",
            f'regex(str({a}), "x|1")',
            f"regex(str({a}), str({b}))",
            f"{a} * 2 / {b} = 2",
            f"({a} = {b}) = ({b} < {ordered})",
            f"bound({a})",
            f"{a}",
        ]
    )


def context(random: Random, patterns: int) -> str:
    """A condition over the times."""
    i, j = random.randrange(patterns), random.randrange(patterns)
    span = random.randrange(6)
    return random.choice(
        [
            f"(?T{i} - ?T{j}) <= {span}",
            f"(?T{i} - ?T{j}) < {span}",
            f"signed(?T{i} - ?T{j}) <= {span}",
            f"signed(?E{i} - ?T{j}) >= {span}",
            f"!?E{i} < ?T{j}",
            f"?T{i} <= ?E{j}",
            f"?T{i} + {span} > ?T{j}",
            f"{span} >= (?T{i} - ?T{j})",
            f"(?E{i} - ?E{j}) = {span}",
            f"(?T{i} - ?T{j}) > {span}",
            f"?T{i} < {span} + 8",
        ]
    )


def query(random: Random, patterns: int, alike: bool = False) -> str:
    """A query of so many patterns, which are more often alike than by chance."""
    parts = [pattern(random, i, alike) for i in range(patterns)]
    names = sorted(
        {word for part in parts for word in part.split() if word[0] == "?" and word[1] not in "TE"}
    )
    filters = [f"FILTER ({condition(random, names)})" for _ in range(random.randrange(3))] if names else []
    body = " . ".join(parts) + " . " + " ".join(filters)
    conditions = [context(random, patterns) for _ in range(random.randrange(3))]
    near = [i for i in range(1, patterns) if random.random() < 0.7]
    conditions += [f"(?T{i - 1} - ?T{i}) <= {random.randrange(1, 7)}" for i in near]
    joined = random.choice([" && ", " && ", " || "]).join(f"({part})" for part in conditions)
    return f"SELECT * FROM STREAM w WHERE {{ {body} }}" + (f" CONTEXT ({joined})" if conditions else "")


def tree(random: Random, patterns: int) -> Any:
    """One of the ways to join so many patterns."""
    parts: list[Any] = list(range(patterns))
    while len(parts) > 1:
        one, other = (parts.pop(random.randrange(len(parts))) for _ in range(2))
        parts.append((one, other))
    return parts[0]


def as_sparql(query: Any) -> str:
    """The query over rows with ids: shared variables written apart, and compared by value.

    A store of pyoxigraph does not keep how a number was written, so that texts of terms are columns too.
    """
    lines, first, equal = [], {}, []
    for i, pattern in enumerate(query.patterns):
        texts = " ; ".join(f"<text:{name}> ?p{i}_{at}_text" for at, name in enumerate("spo"))
        lines.append(
            f"?r{i} <row:s> ?p{i}_0 ; <row:p> ?p{i}_1 ; <row:o> ?p{i}_2 ; {texts} ; "
            f"<row:t> ?{pattern.start} ; <row:e> ?{pattern.end} ."
        )
        for position, part in enumerate(pattern.triple):
            here = f"?p{i}_{position}"
            if not hasattr(part, "name"):
                equal.append(f"{here} = {part}")
            elif part.name in first:
                equal.append(f"{here} = {first[part.name]}")
            else:
                first[part.name] = here
    conditions = [*equal, *map(str, query.filters), *([str(query.context)] if query.context else [])]
    text = " ".join(lines) + " ".join(f" FILTER ({condition})" for condition in conditions)
    for name, here in sorted(first.items(), key=lambda item: -len(item[0])):
        text = _renamed(text, name, here)
    text = re.sub(r"str\(\?(\w+)\)", r"?\1_text", text)
    rows = " ".join(f"?r{i}" for i in range(len(query.patterns)))
    return f"PREFIX xsd: <{XSD}> SELECT {rows} WHERE {{ {text} }}"


def _renamed(text: str, name: str, here: str) -> str:
    return re.sub(rf"\?{name}\b", here, text)
