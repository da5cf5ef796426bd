"""The queries of the CLOCK paper and the streams they run on, as triples with times.

The paper's SRBench and ViSTA-TV streams are not public in the form it used. Both are generated in the shape
that it describes; a sample of SRBench's observations is real, where its file is at hand.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from penstock.errors import PenstockError, hint
from penstock.linked import StreamQuery
from penstock.linked.run.stats import LinkedRun
from penstock.reproduction.inputs import file_of
from penstock.workloads import sensor_bursts, viewers_and_guide, zipf_pair

LISTING_1 = """SELECT ?sensor1, ?sensor2 FROM STREAM windSpeed
WHERE {
    ?sensor1 reports ?windSpeed ?T1 .
    ?sensor2 reports ?windSpeed ?T2 .
    FILTER (?sensor1 != ?sensor2) .
    FILTER (?windSpeed >= 10^^xsd:int) .
}
CONTEXT ((?T1 - ?T2) <= 200^^xsd:millisecond) ."""
LISTING_2 = """SELECT ?userID, ?programID FROM STREAM Log, EPG
WHERE {
    ?userID    watches ?channelID ?T_start_viewer ?T_end_viewer .
    ?channelID plays   ?programID ?T_start_EPG    ?T_end_EPG .
}
CONTEXT ((!?T_end_viewer < ?T_start_EPG) && (!?T_end_EPG < ?T_start_viewer)) ."""
# The sample has 117 readings from 10 up, at times that are five minutes apart: with the paper's numbers a few
# tuples would do.
LISTING_1_SAMPLE = LISTING_1.replace("10^^", "1^^").replace("200^^xsd:millisecond", "30^^xsd:minutes")

SRBENCH = "srbench_observations.csv"
PER_PROGRAMME = 59  # viewings: the paper has 1,887,256 and 31,960 programmes
MINUTE = 60_000


class Workload(NamedTuple):
    """A query, its streams, and the moment over which their load is measured.

    >>> from penstock.reproduction.clock_queries import workload_of
    >>> found = workload_of("sensors", 2_000, seed=0)
    >>> list(found.streams), found.moment
    (['windSpeed'], 1000)
    """

    query: StreamQuery
    streams: dict[str, pa.Table]
    objects: str  # what a text as object is
    moment: int  # milliseconds
    source: str
    warmup: float = 1 / 3  # of the arrivals

    def run(self, **options: Any) -> LinkedRun:
        """A run that counts: the results of every triple that matches a pattern.

        >>> import penstock as ps
        >>> from penstock.reproduction.clock_queries import workload_of
        >>> run = workload_of("sensors", 2_000, seed=0).run(budget=ps.Tuples(10), policy="clock")
        >>> len(run.times) == len(run.counts) == run.stats.matched
        True
        """
        return self.query.run(self.streams, object=self.objects, collect=False, exact=False, **options)


@cache
def workload_of(name: str, size: int, seed: int, data: str | None = None) -> Workload:
    """A workload by its name; `size` is the readings or viewings to generate.

    `sensors` is listing 1 on generated bursts, `srbench` on the real sample, for wind speeds from 1 up within
    30 minutes, `television` is listing 2, and `regimes` is listing 2 where viewers give way to popular keys.

    >>> from penstock.reproduction.clock_queries import workload_of
    >>> workload_of("television", 1_000, seed=0).streams["EPG"].column_names
    ['s', 'p', 'o', 'start', 'end']
    """
    made = {"sensors": _sensors, "srbench": _srbench, "television": _television, "regimes": _regimes}
    if name not in made:
        raise PenstockError(f"There is no workload {name!r}{hint(name, list(made))}")
    return made[name](size, seed, data)


def _triples(s: Any, verb: str, o: Any, start: Any, end: Any = None) -> pa.Table:
    columns = {"s": s, "p": verb, "o": o, "start": start} | ({} if end is None else {"end": end})
    return pa.Table.from_pandas(pd.DataFrame(columns), preserve_index=False)


def _named(kind: str, numbers: pd.Series) -> pd.Series:
    return kind + numbers.astype(str)


def _sensors(size: int, seed: int, data: str | None) -> Workload:
    found = sensor_bursts(readings=size, stations=400, seed=seed)
    wind = _triples(_named("station", found.station), "reports", found.windspeed, found.ts)
    source = "generator of figure 2a's shape (sensor_bursts)"
    return Workload(StreamQuery.parse(LISTING_1), {"windSpeed": wind}, "literal", 1_000, source)


def _srbench(size: int, seed: int, data: str | None) -> Workload:
    path = file_of(data, SRBENCH)
    if path is None:
        raise PenstockError(f"The workload 'srbench' is a real stream; {SRBENCH} is not in {data!r}.")
    found = pd.read_csv(path, usecols=["samplingtime", "stationid", "windspeed"])
    when = pd.to_datetime(found.samplingtime.str.slice(0, 19)).astype("datetime64[ms]").astype(np.int64)
    wind = _triples(_named("station", found.stationid), "reports", found.windspeed, when)
    query = StreamQuery.parse(LISTING_1_SAMPLE)
    return Workload(query, {"windSpeed": wind}, "literal", 5 * MINUTE, path.name)


def _television(size: int, seed: int, data: str | None) -> Workload:
    viewers, guide = viewers_and_guide(size, max(2, size // PER_PROGRAMME), seed=seed)
    source = "generator of figure 2b's shape (viewers_and_guide)"
    return Workload(StreamQuery.parse(LISTING_2), _viewing(viewers, guide), "iri", MINUTE, source)


def _viewing(viewers: pd.DataFrame, guide: pd.DataFrame) -> dict[str, pa.Table]:
    channel = [_named("channel", each.channel) for each in (viewers, guide)]
    user, programme = _named("user", viewers.user), _named("programme", guide.programme)
    return {
        "Log": _triples(user, "watches", channel[0], viewers.start, viewers.end),
        "EPG": _triples(channel[1], "plays", programme, guide.start, guide.end),
    }


def _regimes(size: int, seed: int, data: str | None) -> Workload:
    """Viewers and the guide, and then a stationary popularity of as many keys as are of use at a time.

    Programmes are best forgotten as their viewers leave, popular keys slowly: no one rate suits both.
    """
    viewers, guide = viewers_and_guide(size, max(2, size // PER_PROGRAMME), seed=seed)
    end = int(max(viewers.end.max(), guide.end.max()))
    lasting, alive = 40 * MINUTE, max(10, size // 120)
    popular = zipf_pair(size // 4, keys=1_000, alpha=0.9, seed=seed)
    viewing, streams = _viewing(viewers, guide).values(), []
    for verb, first, side in zip(("watches", "plays"), viewing, popular, strict=True):
        start = end + lasting + np.arange(len(side)) * lasting // alive
        key, own = _named("key", side.key), pd.Series([f"{verb}{i}" for i in range(len(side))])
        s, o = (own, key) if verb == "watches" else (key, own)
        streams.append(pa.concat_tables([first, _triples(s, verb, o, start, start + lasting)]))
    source = "viewers_and_guide, then zipf_pair"
    query = StreamQuery.parse(LISTING_2)
    return Workload(query, dict(zip(query.streams, streams, strict=True)), "iri", MINUTE, source, 0.0)
