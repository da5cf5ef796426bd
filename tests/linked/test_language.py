"""The query language: what it reads, what it refuses and how it says so."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import PenstockError, QueryError, QuerySyntaxError, UnsupportedQueryError
from penstock.linked.language.nodes import Call, ConstantTerm, Var
from penstock.linked.language.parser import parse_query
from penstock.linked.terms import RDF_TYPE, XSD, Term

pytestmark = pytest.mark.interpreted

LISTING_1 = """SELECT ?sensor1, ?sensor2 FROM STREAM windSpeed
WHERE {
    ?sensor1 reports ?windSpeed ?T1 .
    ?sensor2 reports ?windSpeed ?T2 .
    FILTER (?sensor1 != ?sensor2) .
    FILTER(?windSpeed >= 10^^xsd:int) .
}
CONTEXT((?T1 - ?T2) <= 200^^xsd:millisecond) ."""
LISTING_2 = """SELECT ?userID , ?programID FROM STREAM Log , EPG
WHERE{
    ?userID    watches ?channelID    ?T_start_viewer ?T_end_viewer .
    ?channelID plays    ?programID    ?T_start_EPG    ?T_end_EPG .
}
CONTEXT ((!?T_end_viewer < ?T_start_EPG) && (!?T_end_EPG < ?T_start_viewer))."""
TEXTS = [
    LISTING_1,
    LISTING_2,
    "PREFIX ex: <http://e.org/> SELECT DISTINCT ?a (?b * 2 + 1 AS ?c) FROM STREAM w FROM <still.nt> "
    '{ ?a a ex:Thing ?T ; ex:p ?b , "x"@en , -3.5 . FILTER regex(str(?a), "^x", "i") } ',
    "select * from stream w { ?a p ?b ?T . FILTER (!bound(?z) || ?b / 2 > -1e3 && true) }",
    "SELECT $x FROM STREAM 'my w' WHERE { _:b <p> $x ?T1 ?T2 } CONTEXT (signed(?T2 - ?T1) > 2^^xsd:hours)",
]


@pytest.mark.parametrize("text", TEXTS)
def test_it_reads(text: str) -> None:
    query = ps.StreamQuery.parse(text)
    assert query.columns
    assert "join" in query.explain() or "pattern" in query.explain()


def test_the_parts_of_listing_1() -> None:
    query = parse_query(LISTING_1)
    assert query.streams == ("windSpeed",)
    assert [(pattern.start, pattern.end) for pattern in query.patterns] == [("T1", ""), ("T2", "")]
    assert query.patterns[0].shape == query.patterns[1].shape
    distance = Call("abs", (Call("-", (Var("T1"), Var("T2"))),))
    assert query.context == Call(
        "<=", (distance, ConstantTerm(Term("literal", "200", XSD + "millisecond"), "millisecond"))
    )


def test_negation_takes_the_whole_comparison() -> None:
    with_marks = LISTING_2.replace("(!?T_end_viewer", "(?!?T_end_viewer")  # as the paper prints it
    assert parse_query(LISTING_2) == parse_query(with_marks)
    first = parse_query(LISTING_2).context.arguments[0]
    assert first == Call("!", (Call("<", (Var("T_end_viewer"), Var("T_start_EPG"))),))


def test_lists_share_their_subject_and_predicate() -> None:
    query = parse_query("SELECT * FROM STREAM w { ?a a <C> ?T ; p ?x ?U , 5 . }")
    assert [str(pattern) for pattern in query.patterns] == [
        f"?a <{RDF_TYPE}> <C> ?T",
        "?a <p> ?x ?U",
        "?a <p> 5",
    ]


def test_one_time_variable_of_two_patterns_makes_their_times_equal() -> None:
    query = parse_query("SELECT ?a ?T FROM STREAM w { ?a p ?x ?T . ?b p ?x ?T }")
    assert query.patterns[1].start != "T"
    assert query.context == Call("=", (Var("T"), Var(query.patterns[1].start)))


@pytest.mark.parametrize(
    ("text", "line", "column", "said"),
    [
        ("SELECT ?a FROM STREAM w { ?a p ?b", 1, 34, "the end of the text"),
        ("SELECT ?a\nFROM STREAM w { ?a p }", 2, 22, "found '}'"),
        ("SELECT FROM STREAM w { ?a p ?b }", 1, 8, "expected '('"),
        ("SELECT ?a FROM w { ?a p ?b }", 1, 16, "STREAM"),
        ("SELECT ?a FROM STREAM w { ?a ex:p ?b }", 1, 30, "prefix"),
        ("SELECT ?a FROM STREAM w { ?a p ?b } CONTEXT (?a <", 1, 50, "the end"),
        ('SELECT ?a FROM STREAM w { ?a p ?b FILTER regex(?b, "(") }', 1, 42, "regular expression"),
        ("SELECT ?a FROM STREAM w { ?a p ?b FILTER (" + "(" * 80, 1, 102, "parentheses"),
    ],
)
def test_errors_show_the_place(text: str, line: int, column: int, said: str) -> None:
    with pytest.raises(QueryError) as caught:
        ps.StreamQuery.parse(text)
    message = str(caught.value)
    assert message.startswith(f"line {line}, column {column}:"), message
    assert said in message
    assert message.rstrip().endswith("^")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("SELECT * FROM STREAM w { ?a p ?b OPTIONAL { ?a q ?c } }", "OPTIONAL"),
        ("SELECT * FROM STREAM w { { ?a p ?b } UNION { ?a q ?c } }", "UNION"),
        ("SELECT * FROM STREAM w { { ?a p ?b } }", "GROUPS"),
        ("SELECT * FROM STREAM w { ?a p ?b MINUS { ?a q ?c } }", "MINUS"),
        ("SELECT * FROM STREAM w { ?a p ?b FILTER NOT EXISTS { ?a q ?c } }", "EXISTS"),
        ("SELECT * FROM STREAM w { ?a p ?b BIND (1 AS ?c) }", "BIND"),
        ("SELECT * FROM STREAM w { ?a p ?b VALUES ?b { 1 } }", "VALUES"),
        ("SELECT * FROM STREAM w { GRAPH <g> { ?a p ?b } }", "GRAPH"),
        ("SELECT * FROM STREAM w { SERVICE <g> { ?a p ?b } }", "SERVICE"),
        ("SELECT ?a FROM STREAM w { ?a p ?b } GROUP BY ?a", "GROUP"),
        ("SELECT ?a FROM STREAM w { ?a p ?b } ORDER BY ?a", "ORDER"),
        ("SELECT ?a FROM STREAM w { ?a p ?b } LIMIT 5", "LIMIT"),
        ("SELECT ?a FROM STREAM w { ?a p ?b } HAVING (?a > 1)", "HAVING"),
        ("SELECT (COUNT(?a) AS ?n) FROM STREAM w { ?a p ?b }", "COUNT"),
        ("CONSTRUCT { ?a p ?b } FROM STREAM w { ?a p ?b }", "CONSTRUCT"),
        ("ASK FROM STREAM w { ?a p ?b }", "ASK"),
        ("SELECT * FROM STREAM w [RANGE 5s] { ?a p ?b }", "RANGE"),
        ("SELECT * FROM STREAM w { ?a p/q ?b }", "Property paths"),
    ],
)
def test_what_is_not_part_of_the_language_is_named(text: str, word: str) -> None:
    with pytest.raises(UnsupportedQueryError, match=word):
        ps.StreamQuery.parse(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT ?user FROM STREAM w { ?userID p ?b }", "did you mean 'userID'"),
        ("SELECT * { ?a p ?b }", "FROM STREAM"),
        ("SELECT * FROM STREAM w, w { ?a p ?b }", "twice"),
        ("SELECT * FROM STREAM w { FILTER (true) }", "no triple pattern"),
        ("SELECT * FROM STREAM w { ?a p ?b ?a }", "as a time and as part of a triple"),
        ("SELECT * FROM STREAM w { ?a p ?b ?T ?T }", "the same variable"),
        ("SELECT * FROM STREAM w { 5 p ?b }", "subject"),
        ("SELECT * FROM STREAM w { ?a 'p' ?b }", "predicate"),
        ("SELECT * FROM STREAM w { ?a p ?b ?T } CONTEXT (?b < ?T)", "Use FILTER"),
        ("SELECT * FROM STREAM w { ?a p ?b ?T } CONTEXT (?U < ?T)", "no pattern binds"),
        ("SELECT * FROM STREAM w { ?a p ?b FILTER (?c > 1) }", "no pattern binds"),
        ("SELECT ?a ?a FROM STREAM w { ?a p ?b }", "twice"),
        ("SELECT (1 AS ?a) FROM STREAM w { ?a p ?b }", "that the patterns bind"),
        ("SELECT * FROM STREAM w { ?a p ?b ?T FILTER (signed(?T - 1) > 1) }", "CONTEXT"),
        ("SELECT * FROM STREAM w { " + "?a p ?b . " * 17 + "}", "at most 16"),
        (5, "a text"),
    ],
)
def test_what_makes_no_sense_is_refused(text: str, said: str) -> None:
    with pytest.raises(QueryError, match=said):
        ps.StreamQuery.parse(text)


KEYWORDS = ["SELECT", "DISTINCT", "FROM", "STREAM", "WHERE", "FILTER", "CONTEXT", "PREFIX", "AS", "OPTIONAL"]
SIGNS = [*"{}().,;*/+-<>=![]#\\\n\x00", "<=", ">=", "!=", "&&", "||", "^^", "?!"]
TERMS = [
    "?a",
    "?b",
    "?T",
    "w",
    "xsd:int",
    "10",
    "2.5",
    "1e9",
    '"x"',
    "'y'",
    "<iri>",
    "ex:",
    "ex:a",
    "a",
    "true",
]
WORDS = [
    *KEYWORDS,
    *SIGNS,
    *TERMS,
    "regex",
    "str",
    "bound",
    "signed",
    "@en",
    "_:b",
    "200^^xsd:millisecond",
    "é",
]


def mangled(random: Random) -> str:
    """A text near the language: words in any order, or a query with a few letters changed."""
    if random.random() < 0.5:
        return " ".join(random.choice(WORDS) for _ in range(random.randrange(30)))
    text = list(random.choice(TEXTS))
    for _ in range(random.randrange(1, 6)):
        at = random.randrange(len(text))
        action = random.randrange(3)
        if action == 0:
            text[at] = random.choice(random.choice(WORDS) or " ")
        elif action == 1:
            del text[at : at + random.randrange(1, 8)]
        else:
            text.insert(at, random.choice(WORDS))
        text = text or [" "]
    return "".join(text)


def parses_or_refuses(text: str) -> None:
    try:
        query = ps.StreamQuery.parse(text)
    except PenstockError:
        return
    query.explain()


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=60))
def test_any_text_parses_or_is_refused_cleanly(text: str) -> None:
    parses_or_refuses(text)


def test_texts_near_the_language_parse_or_are_refused_cleanly() -> None:
    random = Random(5)
    for _ in range(300):
        parses_or_refuses(mangled(random))


def test_a_variable_that_no_pattern_has_is_unbound() -> None:
    table = {"s": ["a", "b"], "p": ["p", "p"], "o": [4, -9000], "start": [0, 1]}
    for condition, results in (
        ("!bound(?z)", 2),
        ("bound(?z)", 0),
        ("!bound(?z) && ?b / 2 > -1e3", 1),
        ("bound(?z) || ?b / 2 > -1e3", 1),
    ):
        single = f"select * from stream w {{ ?a p ?b ?T . FILTER ({condition}) }}"
        assert ps.StreamQuery.parse(single).run({"w": table}).stats.results == results


@pytest.mark.soak
@pytest.mark.parametrize("part", range(10))
def test_a_million_texts(part: int) -> None:
    random = Random(6 + 1_000 * part)
    for _ in range(100_000):
        parses_or_refuses(mangled(random))


def test_syntax_errors_are_of_their_own_class() -> None:
    with pytest.raises(QuerySyntaxError):
        ps.StreamQuery.parse("SELECT")
