"""Read files of timed triples: N-Triples with a time annotation, and N-Quads whose graph is the time."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from penstock.errors import TermError
from penstock.extras import require

_TIME = r'(?:-?\d+(?:\.\d+)?|-?\d{4,}-\d\d-\d\dT[0-9:.]+(?:Z|[+-]\d\d:\d\d)?|"[^"]*"\^\^<[^<>]*>)'
_ANNOTATED = re.compile(
    rf"^(?P<triple>.*\S)\s+(?:(?P<event>{_TIME})|\[\s*(?P<start>{_TIME})?\s*"
    rf"(?:,\s*(?P<end>{_TIME})?\s*)?\])\s*\.\s*(?:#.*)?$"
)
_END_OF_LINE = re.compile(r"\r\n|\r|\n")  # Python's other line ends may occur in a literal
_GRAPH = re.compile(r"^(?:urn:)?time:(?P<start>[^/]*)(?:/(?P<end>.*))?$")


def read_triples(path: Path, timed: bool = True) -> pa.Table:
    """Read a table of triples: `.nt` with annotations, `.nq` with times as graphs, `.csv` or `.parquet`.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from penstock.linked.files import read_triples
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "wind.nt")
    ...     _ = file.write_text('<a> <reports> "5" 100 .\\n<b> <watches> <c> [100, 200] .\\n')
    ...     read_triples(file).to_pydict()["end"]
    [100, 200]
    """
    name = path.name.lower()
    if not path.is_file():
        raise TermError(f"There is no file '{path}'.")
    if name.endswith((".csv", ".csv.gz")):
        try:
            table: Any = pa.Table.from_pandas(pd.read_csv(path, low_memory=False), preserve_index=False)
            return _parsed_times(table)
        except (ValueError, OSError, EOFError, pa.ArrowException) as error:
            raise TermError(f"'{path}' cannot be read: {str(error).splitlines()[0]}") from error
    if name.endswith((".parquet", ".pq")):
        import pyarrow.parquet as pq

        try:
            return pq.read_table(path)
        except (pa.ArrowException, OSError) as error:
            raise TermError(f"'{path}' cannot be read: {error}") from error
    if not timed or name.endswith((".nt", ".nq")):
        require("pyoxigraph", f"Reading '{path}'")
    if not timed:
        return _still(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (UnicodeDecodeError, OSError) as error:
        raise TermError(f"'{path}' cannot be read: {error}") from error
    if name.endswith(".nt"):
        return parse_ntriples(text, str(path))
    if name.endswith(".nq"):
        return parse_nquads(text, str(path))
    raise TermError(f"'{path}' has an unsupported extension; allowed are .nt, .nq, .csv and .parquet.")


def read_background(names: tuple[str, ...]) -> list[pa.Table]:
    """Read the files of a query's FROM clauses, triples without times."""
    paths = [Path(name.removeprefix("file://").removeprefix("file:")) for name in names]
    return [read_triples(path, timed=False) for path in paths]


def _parsed_times(table: pa.Table) -> pa.Table:
    """Parse text times of a CSV file as timestamps."""
    for name in ("start", "end"):
        if name in table.column_names and pa.types.is_string(table.schema.field(name).type):
            stamps = pd.to_datetime(table[name].to_pandas(), format="ISO8601", utc=True)
            place = table.column_names.index(name)
            table = table.set_column(place, name, pa.array(stamps))
    return table


def _still(path: Path) -> pa.Table:
    """Read triples without times, in any format that pyoxigraph reads."""
    import pyoxigraph

    try:
        quads = list(pyoxigraph.parse(path=str(path), lenient=True, base_iri=None))
    except (SyntaxError, ValueError, OSError) as error:
        raise TermError(f"'{path}' cannot be read: {error}") from error
    return _table(quads, None, None)


def _table(quads: list[Any], start: Any, end: Any) -> pa.Table:
    columns = {
        "s": pa.array([str(quad.subject) for quad in quads], pa.string()),
        "p": pa.array([str(quad.predicate) for quad in quads], pa.string()),
        "o": pa.array([str(quad.object) for quad in quads], pa.string()),
    }
    if start is not None:
        columns |= {"start": start, "end": end}
    return pa.table(columns)


def parse_ntriples(text: str, name: str = "the text") -> pa.Table:
    """Parse lines such as `<s> <p> <o> 100 .` (an event) and `<s> <p> <o> [100, 200] .` (a fact).

    A fact without an end, `[100]` or `[100, ]`, is open; `[, 200]` closes it. Times are numbers, or
    timestamps such as 2004-08-08T06:05:00Z.

    >>> from penstock.linked.files import parse_ntriples
    >>> parse_ntriples('<a> <reports> "5" 2004-08-08T06:05:00Z .')["start"].type
    TimestampType(timestamp[us, tz=UTC])
    """
    require("pyoxigraph", "A text of triples")
    import pyoxigraph

    plain, starts, ends = [], [], []
    for number, line in enumerate(_END_OF_LINE.split(text), start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        found = _ANNOTATED.match(stripped)
        if found is None:
            raise TermError(
                f"{name}, line {number}: {stripped[:80]!r} has no time; an event is <s> <p> <o> 100 . "
                "and a fact <s> <p> <o> [100, 200] ."
            )
        plain.append(f"{found['triple']} .")
        if found["event"] is not None:
            starts.append(found["event"])
            ends.append(found["event"])
        else:
            if found["start"] is None and found["end"] is None:
                raise TermError(f"{name}, line {number}: a fact needs a start or an end.")
            starts.append(found["start"])
            ends.append(found["end"])
    quads = _quads("\n".join(plain), pyoxigraph.RdfFormat.N_TRIPLES, name)
    if len(quads) != len(plain):
        raise TermError(f"{name}: a line does not have exactly one triple.")
    return _table(quads, _times(starts, name), _times(ends, name))


def parse_nquads(text: str, name: str = "the text") -> pa.Table:
    """Parse quads whose graph is `<time:100>` (an event) or `<time:100/200>` (a fact).

    >>> from penstock.linked.files import parse_nquads
    >>> parse_nquads('<a> <reports> "5" <time:100/200> .').to_pydict()["end"]
    [200]
    """
    require("pyoxigraph", "A text of triples")
    import pyoxigraph

    quads = _quads(text, pyoxigraph.RdfFormat.N_QUADS, name)
    starts, ends = [], []
    for number, quad in enumerate(quads, start=1):
        graph = getattr(quad.graph_name, "value", "")
        found = _GRAPH.match(graph)
        if found is None or not (found["start"] or found["end"]):
            raise TermError(
                f"{name}, quad {number}: its graph {graph!r} is not a time; write <time:100> for an event "
                "and <time:100/200> for a fact."
            )
        starts.append(found["start"] or None)
        ends.append((found["start"] if found["end"] is None else found["end"]) or None)
    return _table(quads, _times(starts, name), _times(ends, name))


def _quads(text: str, form: Any, name: str) -> list[Any]:
    import pyoxigraph

    try:
        return list(pyoxigraph.parse(text.encode(), format=form, lenient=True))
    except (SyntaxError, ValueError) as error:
        raise TermError(f"{name} cannot be read: {error}") from error


def _times(texts: list[str | None], name: str) -> pa.Array:
    """Parse times as whole numbers, floats or timestamps."""
    bare = [None if text is None else re.sub(r'^"([^"]*)"\^\^<[^<>]*>$', r"\1", text) for text in texts]
    given = [text for text in bare if text is not None]
    if all(re.fullmatch(r"-?\d{1,18}", text) for text in given):
        return pa.array([None if text is None else int(text) for text in bare], pa.int64())
    if all(re.fullmatch(r"-?\d+(?:\.\d+)?", text) for text in given):
        return pa.array([None if text is None else float(text) for text in bare], pa.float64())
    try:
        stamps = pd.to_datetime(pd.Series(bare, dtype=object), format="ISO8601", utc=True)
    except (ValueError, TypeError) as error:
        raise TermError(
            f"{name} mixes kinds of times, or has an invalid one: {str(error).splitlines()[0]}"
        ) from error
    return pa.array(stamps.astype("datetime64[us, UTC]")) if len(stamps) else pa.array(np.empty(0, np.int64))
