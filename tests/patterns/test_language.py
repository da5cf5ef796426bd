"""The language: what it reads, what it refuses and how it says so."""

from __future__ import annotations

import datetime
import re
from random import Random

import pytest

import penstock as ps
from penstock.errors import (
    ColumnError,
    EventLimitError,
    KleeneError,
    PatternError,
    PatternSyntaxError,
    PenstockError,
    SkipStrategyError,
    SnapshotError,
)
from penstock.patterns import And, Attr, Compare, E, Not, Or, PatternState, Seq

pytestmark = pytest.mark.interpreted

TEXTS = [
    "PATTERN A WITHIN 5",
    "PATTERN SEQ(A a, !B, C c, a.x = c.x) WITHIN 10 minutes",
    "PATTERN AND(A, !(B b, b.x > 3, b.y != -1.5), C) WITHIN 500 EVENTS RETURN A, C.price AS p",
    'PATTERN OR(SEQ("disk full" d, B), A) WITHIN 1 h 30 min',
    'PATTERN SEQ(A a, B b, a.ins-type = "sur\\"gery", b."odd name" >= 2) WITHIN 50 ms',
    "PATTERN SEQ(A a, B b, a.t < 2024-05-01T12:00:00) WITHIN 50 ms",
    "PATTERN SEQ(A, !SEQ(B, !AND(C, !D), E), F) WITHIN 1.5",
    "PATTERN SEQ(A a, B b, a.ok = true) WITHIN 5",
]


@pytest.mark.parametrize("text", TEXTS)
def test_round_trip(text: str) -> None:
    pattern = ps.Pattern.parse(text)
    assert str(pattern) == text
    assert ps.Pattern.parse(str(pattern)) == pattern


def test_the_text_may_be_written_in_many_ways() -> None:
    plain = ps.Pattern.parse("PATTERN SEQ(A a, B b, a.x = b.x, b.x = a.y, b.z != 1) WITHIN 5 RETURN a")
    other = "pattern seq(A a, B b, # the events\n a.x == b.x = a.y and b.z <> 1)\nwithin 5\nreturn a"
    assert ps.Pattern.parse(other) == plain


def test_the_builder_builds_what_the_text_says() -> None:
    built = ps.Pattern(
        Seq(E("A", "a"), Not(And(E("B"), E("C"))), Or(E("D", "d"), E("E")), where="a.x = 3 and d.y < a.y"),
        within="10 minutes",
        returns=["a", "d.y AS y"],
    )
    text = "PATTERN SEQ(A a, !AND(B, C), OR(D d, E), a.x = 3, d.y < a.y) WITHIN 10 minutes RETURN a, d.y AS y"
    assert built == ps.Pattern.parse(text)
    assert ps.Pattern(E("A", "a"), datetime.timedelta(seconds=2)).within.width("ms") == 2_000
    assert Compare(Attr("a", "x"), "<", 3) == Compare(Attr("a", "x"), "<", 3)
    assert Compare(Attr("a", "x"), "=", 1) != Compare(Attr("a", "x"), "=", True)


def test_types_are_their_own_variables_and_are_numbered() -> None:
    pattern = ps.Pattern.parse("PATTERN SEQ(UP, DOWN, UP, UP u, UP_2.x > UP.x) WITHIN 5")
    assert pattern.variables == ["UP", "DOWN", "UP_2", "u"]


@pytest.mark.parametrize(
    ("text", "line", "column", "said"),
    [
        ("PATTERN SEQ(A, B", 1, 17, "the end of the text"),
        ("PATTERN SEQ(A,, B) WITHIN 5", 1, 15, "found ','"),
        ("PATTERN\nSEQ(A B C) WITHIN 5", 2, 9, "found 'C'"),
        ("SEQ(A, B) WITHIN 5", 1, 1, "expected PATTERN"),
        ("PATTERN SEQ(A, B) WITHIN soon", 1, 26, "expected a number"),
        ("PATTERN SEQ(A a, a. = 3) WITHIN 5", 1, 21, "an attribute"),
        ("PATTERN SEQ(A a, a.x ~ 3) WITHIN 5", 1, 22, "a comparison"),
        ("PATTERN SEQ() WITHIN 5", 1, 13, "found ')'"),
        ("PATTERN " + "SEQ(" * 200, 1, 412, "parentheses"),
    ],
)
def test_syntax_errors_show_the_place(text: str, line: int, column: int, said: str) -> None:
    with pytest.raises(PatternSyntaxError) as caught:
        ps.Pattern.parse(text)
    message = str(caught.value)
    assert message.startswith(f"line {line}, column {column}: found ")
    assert said in message
    head, shown, caret = message.split("\n")
    assert "expected" in head
    assert caret.strip() == "^"
    assert len(shown) >= 2


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("SEQ(A+, B) WITHIN 5", KleeneError, "Kleene"),
        ("SEQ(A*, B) WITHIN 5", KleeneError, "Kleene"),
        ("SEQ(A{2}, B) WITHIN 5", KleeneError, "Kleene"),
        ("SEQ(A a[], B) WITHIN 5", KleeneError, "Kleene"),
        ("SEQ(A? a, B) WITHIN 5", KleeneError, "Kleene"),
        ("SEQ(A, B)+ WITHIN 5", KleeneError, "Kleene"),
        ("SEQ(A, B) SKIP TILL NEXT WITHIN 5", SkipStrategyError, "skip till any match"),
        ("SEQ(A, B) WITHIN 5 SKIP TILL NEXT MATCH", SkipStrategyError, "skip till any match"),
        ("SEQ(A, B) WITHIN 5 AFTER MATCH SKIP PAST LAST ROW", SkipStrategyError, "skip till any match"),
        ("SEQ(A, B) WITHIN 5 s skip_till_next_match", SkipStrategyError, "skip till any match"),
        ("skip_till_next_match(A, B) WITHIN 5", SkipStrategyError, "skip till any match"),
        ("SEQ(A a, B b) WITHIN 5 STRICT", SkipStrategyError, "skip till any match"),
        ("SEQ(A -> B) WITHIN 5", SkipStrategyError, "skip till any match"),
        ("SEQ(A a, B b, a.x + 1 = b.x) WITHIN 5", PatternSyntaxError, "expected a comparison"),
        ("SEQ(A a, B b) WITHIN 5 RETURN *", PatternSyntaxError, "expected a name"),
        ("SEQ(A a, next_day b, partition ~ b) WITHIN 5", PatternSyntaxError, "found '~'"),
        ("SEQ(A a, B b) WITHIN 5;", PatternSyntaxError, "found ';'"),
        ("SEQ(A, !!B) WITHIN 5", PatternError, "a double negation"),
        ("SEQ(A, !(!B)) WITHIN 5", PatternError, "a double negation"),
        ("SEQ(!A, !B) WITHIN 5", PatternError, "only negations"),
        ("AND(!A) WITHIN 5", PatternError, "only negations"),
        ("OR(A, !B) WITHIN 5", PatternError, "directly inside OR"),
        ("SEQ(A, B)", PatternError, "needs a window"),
        ("SEQ(A a, B a) WITHIN 5", PatternError, "its own name"),
        ("SEQ(A a, B b, c.x = 3) WITHIN 5", PatternError, "no variable 'c'"),
        ("SEQ(A a, B b, 3 = 3) WITHIN 5", PatternError, "two constants"),
        ("SEQ(A a, !B b, !C c, D d, b.x = c.x) WITHIN 5", PatternError, "another negation"),
        ("SEQ(A a, OR(B b, C c), b.x = c.x) WITHIN 5", PatternError, "two branches"),
        ("SEQ(A a, !B b) WITHIN 5 RETURN b", PatternError, "negated"),
        ("SEQ(A a, B b) WITHIN 5 RETURN a, b AS a", PatternError, "more than once"),
        ("SEQ(A a, B b) WITHIN 5 RETURN z", PatternError, "no variable 'z'"),
        ("SEQ(A a, B b) WITHIN 0 EVENTS", PatternError, "from 1 up"),
        ("SEQ(A a, B b) WITHIN -3", PatternError, "not negative"),
        ("SEQ(A a, B b) WITHIN 3 moons", PatternError, "not a unit"),
        ("SEQ(A a, B b) WITHIN 1e999", PatternError, "too large"),
        ("SEQ(A a, a.x = 2024-13-45) WITHIN 5", PatternError, "not a timestamp"),
        (
            "SEQ(A a, a.x = 2024-05-01T12:00:00.123456789) WITHIN 5",
            PatternError,
            "a finer resolution than microseconds",
        ),
        ('SEQ("", B) WITHIN 5', PatternError, "is a text"),
        ("SEQ(A and, B) WITHIN 5", PatternError, "not a variable"),
        ("SEQ(true a, B) WITHIN 5", PatternSyntaxError, "found 'a'"),
    ],
)
def test_what_makes_no_sense_is_refused(text: str, kind: type[PatternError], said: str) -> None:
    with pytest.raises(kind) as caught:
        ps.Pattern.parse("PATTERN " + text)
    message = str(caught.value)
    assert type(caught.value) is kind
    assert said in message
    assert re.match(r"line 1, column \d+: found .+, expected .+\n  PATTERN .*\n +\^", message)


@pytest.mark.parametrize(
    ("text", "line", "column", "head"),
    [
        (
            "PATTERN SEQ(A a,\n  B b, a.x = c.x) WITHIN 5",
            2,
            14,
            "found 'c.x', expected a variable of the pattern",
        ),
        ("PATTERN SEQ(A a,\n  OR(B, !C)) WITHIN 5", 2, 9, "found '!C', expected an event, SEQ, AND or OR"),
        ("PATTERN SEQ(A a, B a) WITHIN 5", 1, 18, "found 'B a', expected another variable"),
        ("PATTERN SEQ(A, B)", 1, 18, "found the end of the text, expected WITHIN"),
        ("PATTERN SEQ(A, B) WITHIN 3 moons", 1, 28, "found 'moons', expected a unit of time or EVENTS"),
        (
            "PATTERN A WITHIN 5 RETURN A,\nB.x AS y",
            2,
            1,
            "found 'B.x AS y', expected a variable of the pattern",
        ),
        ("PATTERN SEQ(A a{2}, B) WITHIN 5", 1, 16, "found '{', expected ')', ','"),
    ],
)
def test_errors_of_sense_show_the_place(text: str, line: int, column: int, head: str) -> None:
    with pytest.raises(PatternError) as caught:
        ps.Pattern.parse(text)
    first, shown, caret, _ = str(caught.value).split("\n")
    assert first == f"line {line}, column {column}: {head}"
    assert shown == f"  {text.splitlines()[line - 1]}"
    assert caret.index("^") == column + 1


def test_what_cannot_be_built_is_refused() -> None:
    tall = E("A")
    for _ in range(99):
        tall = Seq(tall)
    assert ps.Pattern.parse(str(ps.Pattern(tall, 5))).expression == tall
    with pytest.raises(PatternError, match="flatter"):
        Seq(Seq(tall))
    with pytest.raises(PatternError, match="more than 1,000 events"):
        ps.Pattern(Seq(*[E("A")] * 1_001), 5)
    for wrong in (5, None, [None]):
        with pytest.raises(PatternError, match="returns takes"):
            ps.Pattern(E("A"), 5, wrong)
    for variable in ("disk full", "", 5):
        with pytest.raises(PatternError, match="not a variable"):
            Attr(variable, "x")
    for name in ("", None):
        with pytest.raises(PatternError, match="name of an attribute"):
            Attr("a", name)
    with pytest.raises(PatternError, match="from 1 up"):
        ps.Pattern(E("A"), "² events")


def test_numpy_and_pandas_values_are_numbers_and_times() -> None:
    import numpy as np
    import pandas as pd

    a = Attr("a", "x")
    where = [Compare(a, "=", each) for each in (np.int64(3), np.float64(2.5), pd.Timestamp("2024-05-01"))]
    pattern = ps.Pattern(Seq(E("A", "a"), where=where), np.int64(5))
    text = "PATTERN SEQ(A a, a.x = 3, a.x = 2.5, a.x = 2024-05-01T00:00:00) WITHIN 5"
    assert str(pattern) == text
    assert ps.Pattern.parse(text) == pattern
    with pytest.raises(PatternError, match="a finer resolution than microseconds"):
        Compare(a, "=", pd.Timestamp("2024-05-01T00:00:00.123456789"))


@pytest.mark.parametrize("within", ["5ms", "1h30min", "1 h, 30 min", " 2   minutes "])
def test_windows_are_spelled_in_one_way(within: str) -> None:
    pattern = ps.Pattern(E("A"), within)
    assert ps.Pattern.parse(str(pattern)) == pattern


EVENTS = {"type": ["A", "B", "B"], "ts": [1, 2, 9], "x": [1, 2, None], "s": ["u", "v", "w"]}


@pytest.mark.parametrize("strategy", ps.patterns.STRATEGIES)
def test_bad_events_are_refused(strategy: str) -> None:
    def run(text: str, events: object = EVENTS, **options: object) -> object:
        return ps.Pattern.parse(f"PATTERN {text} WITHIN 5").run(events, strategy=strategy, **options)

    with pytest.raises(ColumnError, match="no column 'typ'; did you mean 'type'"):
        run("SEQ(A, B)", type="typ")
    with pytest.raises(ColumnError, match="no column 'price'"):
        run("SEQ(A a, B, a.price > 3)")
    with pytest.raises(ColumnError, match="compares a text with a number"):
        run("SEQ(A a, B, a.s > 3)")
    with pytest.raises(ColumnError, match="compares a number with a text"):
        run("SEQ(A a, B b, a.s = b.x)")
    with pytest.raises(EventLimitError, match="max_events is 1"):
        run("SEQ(A, B)", EVENTS | {"ts": [1, 2, 3]}, max_events=1)
    with pytest.raises(PatternError, match="limit=-1"):
        run("SEQ(A, B)", limit=-1)
    state = ps.Pattern.parse("PATTERN SEQ(A, B) WITHIN 5").start(strategy=strategy)
    state.process(EVENTS)
    with pytest.raises(ColumnError, match="sort the events by time"):
        state.process(EVENTS)


def test_bad_options_are_refused() -> None:
    pattern = ps.Pattern.parse("PATTERN SEQ(A, B) WITHIN 5")
    with pytest.raises(PatternError, match="did you mean 'columnar'"):
        pattern.run(EVENTS, strategy="columnr")
    with pytest.raises(PatternError, match="cannot manage the caches"):
        pattern.run(EVENTS, strategy="object", policy="age")
    with pytest.raises(PenstockError, match="in bytes"):
        pattern.run(EVENTS, strategy="object", budget="10 %")
    with pytest.raises(SnapshotError):
        PatternState.restore(b"nothing of the kind, really")
    data = bytearray(pattern.start().snapshot())
    data[-1] ^= 1
    with pytest.raises(SnapshotError, match="damaged"):
        PatternState.restore(bytes(data))


@pytest.mark.parametrize("strategy", ps.patterns.STRATEGIES)
def test_return_projects_and_limit_cuts(strategy: str) -> None:
    text = "PATTERN SEQ(A a, OR(B b, C c)) WITHIN 5 RETURN a, b.x AS bx, c.s"
    events = {"type": ["A", "B", "C"], "ts": [1, 2, 3], "x": [7, 8, 9], "s": ["u", "v", "w"]}
    pattern = ps.Pattern.parse(text)
    expected = [{"a": 0, "bx": 8, "c.s": None}, {"a": 0, "bx": None, "c.s": "w"}]
    assert pattern.run(events, strategy=strategy).matches.to_pylist() == expected
    state = pattern.start(strategy=strategy)
    got = []
    for i in range(3):
        got += state.process({name: values[i : i + 1] for name, values in events.items()}).to_pylist()
        state = PatternState.restore(state.snapshot())
    assert got == expected
    run = pattern.run(events, strategy=strategy, limit=1)
    assert (run.matches.num_rows, run.stats.matches, run.stats.cut) == (1, 2, 1)


@pytest.mark.parametrize("strategy", ps.patterns.STRATEGIES)
def test_timestamps_and_texts_compare(strategy: str) -> None:
    import pandas as pd

    frame = pd.DataFrame(
        {
            "type": ["A", "B", "B"],
            "ts": pd.to_datetime(["2024-05-01T12:00:00", "2024-05-01T12:00:05", "2024-05-01T12:30:00"]),
            "due": pd.to_datetime(["2024-05-02", "2024-05-01", None]),
            "s": ["m", "k", "z"],
        }
    )
    pattern = ps.Pattern.parse(
        'PATTERN SEQ(A a, B b, b.s < a.s, a.due > 2024-05-01T18:00:00, b.due = "2024-05-01") WITHIN 10 s'
    )
    assert pattern.run(frame, strategy=strategy).matches.to_pylist() == [{"a": 0, "b": 1}]


WORDS = [
    *("PATTERN", "SEQ(", "AND(", "OR(", "(", ")", ",", "!", "A", "a.x", "=", "<", "and", "3", "WITHIN", "5"),
    *("minutes", "EVENTS", "RETURN", "a", "AS", ".", "+", "*", "#"),
    *("B b", '"t"', "2024-05-01", "true", "\n", "é", "\x00", "'", "\\"),
]


def fuzzed(random: Random) -> str:
    """A text of random words, or a good one with a few letters changed."""
    if random.random() < 0.4:
        return " ".join(random.choice(WORDS) for _ in range(random.randint(0, 25)))
    text = list(random.choice(TEXTS))
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(text) + 1)
        kind = random.random()
        if kind < 0.4 and at < len(text):
            del text[at]
        elif kind < 0.7:
            text.insert(at, random.choice(WORDS))
        else:
            text.insert(at, chr(random.choice([random.randrange(32, 127), random.randrange(0x3000)])))
    return "".join(text)


def fuzz(seeds: range) -> None:
    for seed in seeds:
        text = fuzzed(Random(seed))
        try:
            pattern = ps.Pattern.parse(text)
        except PatternError:
            continue
        assert ps.Pattern.parse(str(pattern)) == pattern, text


def test_fuzzed_texts_give_clean_errors() -> None:
    fuzz(range(2_000))


@pytest.mark.soak
@pytest.mark.parametrize("part", range(10))
def test_a_million_fuzzed_texts(part: int) -> None:
    fuzz(range(part * 100_000, (part + 1) * 100_000))
