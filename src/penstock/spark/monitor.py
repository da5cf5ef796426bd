"""`PipelineMonitor`: what a running join finds and loses, in the terminal and for Prometheus.

Spark hands the figures of every batch to a listener. Here they are added up in a `Tally`, from which the
terminal and Prometheus are told.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql.streaming.listener import StreamingQueryListener

from penstock.errors import PenstockError
from penstock.spark.figures import Figures
from penstock.spark.metrics import figures_of

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from rich.console import Console, RenderableType

REMEMBERED = 1_000  # batches in the history
HOT = 4.0  # a bucket with more than this many times its share of the evictions is worth a word
PATIENCE = 10.0  # seconds to wait for what Spark has still to tell of a query that is over

COUNTED = {  # the figures that only grow, as Prometheus is told of them
    "results": ("results", "Results found."),
    "expired": ("expired_rows", "Rows that left because nothing can match them any more."),
    "dropped": ("dropped_rows", "Rows dropped by chance."),
    "late": ("late_rows", "Rows that came behind the progress of their stream."),
    "skipped": ("skipped_rows", "Rows without a key or a time."),
    "behind_watermark": ("behind_watermark_rows", "Rows dropped because they are behind the watermark."),
    "state_written": ("state_written_bytes", "Bytes written to the state store."),
    "state_read": ("state_read_bytes", "Bytes read from the state store."),
    "replayed": ("replayed_batches", "Batches that buckets replayed from their logs."),
    "batches": ("batches", "Batches seen."),
}


class Tally:
    """What the batches of a join add up to.

    >>> from penstock.spark.monitor import Tally
    >>> tally = Tally()
    >>> row = {"bucket": 0, "results": 30, "missed": 10.0, "evicted_left": 7, "buffered_left": 4}
    >>> tally.add(row | {"buckets": [row]}, batch=0)
    >>> tally.totals()["results"], tally.totals()["recall"], tally.totals()["evicted_per_bucket"]
    (30, 0.75, {0: 7})
    """

    def __init__(self) -> None:
        self.history: deque[dict[str, Any]] = deque(maxlen=REMEMBERED)
        self._sums = Figures()
        self._batches = 0
        self._rows = 0
        self._first, self._until = math.inf, -math.inf  # when the first batch began and the last one ended
        self._last: dict[int, dict[str, Any]] = {}  # of each bucket, what it last said
        self._evicted: Counter[int] = Counter()

    def add(self, figures: dict[str, Any], **about: Any) -> None:
        """One more batch: its figures as `figures_of` gives them, and what else is known of it."""
        buckets = figures.get("buckets") or []
        for each in buckets:
            self._last[each["bucket"]] = each
            self._evicted[each["bucket"]] += _evicted(each)
        batch = Figures.from_flat(figures)
        # A bucket without rows says nothing, and keeps what it had.
        last = [Figures.from_flat(each) for each in self._last.values()]
        batch.buffered = {name: sum(each.buffered.get(name, 0) for each in last) for name in batch.buffered}
        batch.peak_bytes = sum(each.peak_bytes for each in last)
        self._sums.add(batch)
        self._batches += 1
        self._rows += about.get("rows", 0)
        if "began" in about:
            self._first = min(self._first, about["began"])
            self._until = max(self._until, about["began"] + about["seconds"])
        evicted = {each["bucket"]: _evicted(each) for each in buckets}
        self.history.append(
            about
            | batch.flat()
            | {
                "recall": recall(batch.results, batch.missed),
                "overall_recall": recall(self._sums.results, self._sums.missed),
            }
            | _hottest(evicted)
        )

    def totals(self) -> dict[str, Any]:
        """The figures of all batches; of what is buffered the last, of the bytes the most."""
        elapsed = self._until - self._first
        return self._sums.flat() | {
            "batches": self._batches,
            "rows": self._rows,
            "rows_per_second": self._rows / elapsed if elapsed > 0 else None,
            "recall": recall(self._sums.results, self._sums.missed),
            **_hottest(self._evicted),
            "evicted_per_bucket": dict(sorted(self._evicted.items())),
            "advice": self.advice(),
        }

    @property
    def streams(self) -> tuple[str, ...]:
        """The names of the streams."""
        return tuple(self._sums.buffered)

    def advice(self) -> str | None:
        """What to do if one bucket has far more than its share of the evictions."""
        bucket, share = _hottest(self._evicted).values()
        times = share * len(self._evicted)
        if times <= HOT:
            return None
        return (
            f"Bucket {bucket} has {100 * share:.0f} % of all evictions, {times:.1f} times its share. More "
            "memory helps. If the bucket has many keys, so do more buckets; they do not if one key is that "
            "hot. Such a key can be salted: a random number below n beside the key on one side, and each row "
            "n times, once with each of these numbers, on the other."
        )


def recall(results: int, missed: float | None) -> float | None:
    """The estimated share of the exact results that was found; 1 where there are none, None if unknown.

    >>> from penstock.spark.monitor import recall
    >>> recall(30, 10.0), recall(5, -2.0), recall(0, 0.0), recall(7, None)
    (0.75, 1.0, 1.0, None)
    """
    if missed is None:
        return None
    exact = results + max(0.0, missed)
    return results / exact if exact > 0 else 1.0


def _evicted(figures: dict[str, Any]) -> int:
    """Rows that a bucket has evicted, of all streams."""
    return sum(Figures.from_flat(figures).evicted.values())


def _hottest(evicted: dict[int, int]) -> dict[str, Any]:
    """The bucket with the most evictions, and its share of them."""
    whole = sum(evicted.values())
    if not whole:
        return {"hottest_bucket": None, "hottest_share": 0.0}
    bucket = max(evicted, key=lambda each: evicted[each])
    return {"hottest_bucket": bucket, "hottest_share": evicted[bucket] / whole}


class PipelineMonitor:
    """Watches the joins of a session while the block runs, and shows and adds up their figures.

    Parameters
    ----------
    spark
        The session.
    name
        Of the join: the `name` that was given to `bounded_join`. Joins of one name are added up.
    console
        A rich console that shows a live table. By default the error output if that is a terminal; with
        `False` nothing is shown.
    prometheus_port
        Where Prometheus finds the figures as `penstock_*`; 0 takes a free port, see `url`. By default nothing
        listens.
    address
        Of the interface to listen on; beyond this machine, if so wanted, with `"0.0.0.0"`.

    Examples
    --------
    >>> import tempfile
    >>> from penstock.spark import bounded_join
    >>> from penstock.spark.monitor import PipelineMonitor
    >>> folder = tempfile.mkdtemp()
    >>> rows = spark.createDataFrame([("a", 0), ("b", 1)], "ad string, ts long")
    >>> rows.coalesce(1).write.mode("overwrite").parquet(folder)
    >>> shown = spark.readStream.schema("ad string, ts long").parquet(folder)
    >>> joined = bounded_join(shown, shown, on="ad", time="ts", within=10, budget="1 MiB")
    >>> with PipelineMonitor(spark, console=False) as monitor:
    ...     query = joined.writeStream.format("noop").trigger(availableNow=True).start()
    ...     query.awaitTermination()
    >>> monitor.totals["results"], monitor.totals["recall"], len(monitor.history)
    (2, 1.0, 1)
    """

    def __init__(
        self,
        spark: Any,
        name: str = "penstock",
        *,
        console: Console | Literal[False] | None = None,
        prometheus_port: int | None = None,
        address: str = "127.0.0.1",
    ) -> None:
        self.name = name
        self.state = "waiting for a batch"
        self.url: str | None = None
        self._spark, self._console = spark, console
        self._port, self._address = prometheus_port, address
        self._tally = Tally()
        self._news = threading.Condition()
        self._begun: set[str] = set()  # runs of queries that Spark has told of
        self._ended: set[str] = set()
        self._ours: set[str] = set()  # those with a join of this name
        self._open = contextlib.ExitStack()

    def __enter__(self) -> PipelineMonitor:
        with contextlib.ExitStack() as opened:
            if self._port is not None:
                opened.enter_context(self._served())
            opened.enter_context(self._listening())
            opened.enter_context(self._shown())
            self._open = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._wait()
        finally:
            self._open.close()

    @property
    def totals(self) -> dict[str, Any]:
        """The figures of all batches so far, the estimated recall, and what each bucket has evicted."""
        with self._news:
            return self._tally.totals()

    @property
    def history(self) -> list[dict[str, Any]]:
        """The figures of each of the last thousand batches."""
        with self._news:
            return list(self._tally.history)

    def __rich__(self) -> RenderableType:
        """The table that is shown."""
        with self._news:
            tally = self._tally
            return _View(self.name, self.state, tally.streams, list(tally.history)[-8:], tally.totals())

    @property
    def streams(self) -> tuple[str, ...]:
        """The names of the streams whose figures these are."""
        with self._news:
            return self._tally.streams

    def _progressed(self, progress: Any) -> None:
        """A batch is done."""
        figures = figures_of(progress, self.name)
        with self._news:
            self._begun.add(str(progress["runId"]))
            if figures is None:
                return
            self._ours.add(str(progress["runId"]))
            self.state = "running"
            self._tally.add(
                figures,
                batch=progress["batchId"],
                rows=progress["numInputRows"] or 0,
                rows_per_second=_known(progress["inputRowsPerSecond"]),
                began=datetime.fromisoformat(progress["timestamp"]).timestamp(),
                seconds=(progress["batchDuration"] or 0) / 1_000,
            )
            self._news.notify_all()

    def _started(self, run: str) -> None:
        """A query begins."""
        with self._news:
            self._begun.add(run)

    def _terminated(self, run: str, error: str | None) -> None:
        """A query is over, well or not; the monitor goes on, for it may be started again."""
        with self._news:
            self._ended.add(run)
            # One that fails before its first batch does not tell whether it has a join of this name.
            if run in self._ours or (error and not self._ours):
                self.state = f"failed: {error.splitlines()[0]}" if error else "stopped"
            self._news.notify_all()

    def _wait(self) -> None:
        """Spark tells of a batch a little later; wait for the last words on queries that are over."""
        end = time.monotonic() + PATIENCE
        try:
            active = {str(query.runId) for query in self._spark.streams.active}
        except Exception:  # the session is gone, and will say no more
            return
        with self._news:
            self._news.wait_for(
                lambda: self._begun <= self._ended | active, timeout=max(0.0, end - time.monotonic())
            )

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        """Hear what Spark tells."""
        listener = _Listener(self)
        self._spark.streams.addListener(listener)
        try:
            yield
        finally:
            with contextlib.suppress(Exception):  # the session may be gone
                self._spark.streams.removeListener(listener)

    @contextlib.contextmanager
    def _shown(self) -> Iterator[None]:
        """Show the table, if there is where to."""
        from rich.console import Console
        from rich.live import Live

        console = Console(stderr=True) if self._console is None else self._console
        if console is False or (self._console is None and not console.is_terminal):
            yield
            return
        with Live(get_renderable=self.__rich__, console=console, refresh_per_second=2):
            yield

    @contextlib.contextmanager
    def _served(self) -> Iterator[None]:
        """Answer Prometheus."""
        try:
            from prometheus_client import CollectorRegistry, start_http_server
        except ImportError as error:
            raise PenstockError(
                "prometheus_port needs the package prometheus-client; install penstock[spark]."
            ) from error
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Exporter(self))
        try:
            server, thread = start_http_server(self._port or 0, self._address, registry)
        except OSError as error:
            raise PenstockError(
                f"Nothing can listen on {self._address}:{self._port} ({error.strerror}); give another port, "
                "or 0 for a free one."
            ) from error
        host = f"[{self._address}]" if ":" in self._address else self._address
        self.url = f"http://{host}:{server.server_port}/metrics"
        try:
            yield
        finally:
            self.url = None
            server.shutdown()
            server.server_close()
            thread.join()


class _Listener(StreamingQueryListener):
    """Hands Spark's events on."""

    def __init__(self, monitor: PipelineMonitor) -> None:
        self._monitor = monitor

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        """A query begins."""
        self._monitor._started(str(event.runId))

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """A batch is done."""
        self._monitor._progressed(event.progress)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Nothing to do is nothing to tell."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """A query is over."""
        self._monitor._terminated(str(event.runId), event.exception)


class _Exporter:
    """Says the figures in Prometheus' words, whenever it asks."""

    def __init__(self, monitor: PipelineMonitor) -> None:
        self._monitor = monitor

    def collect(self) -> Iterator[Metric]:
        """All figures as they are now."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        totals, history = self._monitor.totals, self._monitor.history
        streams = self._monitor.streams

        def told(kind: Any, name: str, text: str, values: Any, label: str | None = None) -> Metric:
            """One figure: a number, or one per value of a label."""
            family = kind(f"penstock_{name}", text, labels=["join", *([label] if label else [])])
            for each, value in values.items() if label else [(None, values)]:
                family.add_metric([self._monitor.name, *([str(each)] if label else [])], value)
            return family

        def per_stream(name: str) -> dict[str, Any]:
            """A figure of each stream."""
            return {stream: totals[f"{name}_{stream}"] for stream in streams}

        count, gauge = CounterMetricFamily, GaugeMetricFamily
        for figure, (name, text) in COUNTED.items():
            yield told(count, name, text, totals[figure])
        yield told(count, "arrived_rows", "Rows that came.", per_stream("arrived"), "stream")
        yield told(count, "evicted_rows", "Rows evicted for want of room.", per_stream("evicted"), "stream")
        buckets = totals["evicted_per_bucket"]
        yield told(count, "bucket_evicted_rows", "Rows evicted in each bucket.", buckets, "bucket")
        yield told(gauge, "buffered_rows", "Rows in memory.", per_stream("buffered"), "stream")
        yield told(gauge, "memory_peak_bytes", "The most that all buckets took.", totals["peak_bytes"])
        known = totals["missed"] is not None
        if known:
            missed = max(0, totals["missed"])
            yield told(gauge, "missed_results", "About how many results were missed.", missed)
            yield told(gauge, "recall", "Estimated share of the exact results.", totals["recall"])
        for last in history[-1:]:
            yield told(gauge, "memory_bytes", "What all buckets take.", last["peak_bytes"])
            if known:
                yield told(gauge, "batch_recall", "The same of the last batch alone.", last["recall"])
            yield told(gauge, "batch_rows", "Rows of the last batch.", last["rows"])
            yield told(gauge, "batch_seconds", "What the last batch took.", last["seconds"])


class _View:
    """The table in the terminal: figures down, the last batches and all of them across."""

    def __init__(
        self,
        title: str,
        state: str,
        streams: tuple[str, ...],
        batches: list[dict[str, Any]],
        totals: dict[str, Any],
    ) -> None:
        self.title, self.state, self.streams = title, state, streams
        self.batches, self.totals = batches, totals

    def __rich_console__(self, console: Console, options: Any) -> Iterator[RenderableType]:
        """As many batches as there is room for."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        colour = "red" if self.state.startswith("failed") else "green" if self.state == "running" else "dim"
        yield Text.assemble(
            (self.title, "bold"), "  ", (self.state, colour), no_wrap=True, overflow="ellipsis"
        )
        if not self.batches:
            return
        room = max(1, (options.max_width - 36) // 12)
        shown = self.batches[-room:]
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
        table.add_column("", style="cyan", no_wrap=True)
        for each in shown:
            table.add_column(f"batch {each['batch']}", justify="right", no_wrap=True)
        table.add_column("all", justify="right", no_wrap=True, style="bold")
        for label, cell in _lines(self.streams).items():
            table.add_row(label, *[cell(each) for each in shown], cell(self.totals))
        yield table
        if self.totals["advice"]:
            yield Text(self.totals["advice"], style="yellow")


def _known(number: float | None) -> float | None:
    """A rate, or nothing where Spark does not know it."""
    return number if number is not None and math.isfinite(number) and number > 0 else None


def _count(number: float | None) -> str:
    """A number in few characters: 98,765 or 1.2 M."""
    if number is None:
        return "–"
    for size, unit in ((1e9, "G"), (1e6, "M")):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number:,.0f}"


def _bytes(number: int) -> str:
    """A size with its unit."""
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if number >= 1024**power:
            return f"{number / 1024**power:.1f} {unit}"
    return f"{number} B"


def _memory(figures: dict[str, Any], streams: tuple[str, ...]) -> str:
    """The share of each stream in the buffered rows, in percent that add up."""
    rows = [figures[f"buffered_{stream}"] for stream in streams]
    if not sum(rows):
        return "–"
    shares = [round(100 * count / sum(rows)) for count in rows[:-1]]
    return " / ".join(map(str, [*shares, 100 - sum(shares)])) + " %"


def _recall(figures: dict[str, Any]) -> str:
    """In percent, where there is anything to find."""
    if figures["recall"] is None or not (figures["results"] or figures["missed"] > 0):
        return "–"
    return f"{100 * figures['recall']:.1f} %"


def _bucket(figures: dict[str, Any]) -> str:
    """The bucket with the most evictions, and its share of them."""
    if figures["hottest_bucket"] is None:
        return "–"
    return f"{figures['hottest_bucket']}: {100 * figures['hottest_share']:.0f} %"


def _lines(streams: tuple[str, ...]) -> dict[str, Callable[[dict[str, Any]], str]]:
    """The lines of the table: what they are called, and how they are told."""
    evicted = {f"evicted, {stream}": _counted(f"evicted_{stream}") for stream in streams}
    return {
        "input rows/s": _counted("rows_per_second"),
        "results": _counted("results"),
        "estimated recall": _recall,
        **evicted,
        f"memory {' / '.join(streams)}": lambda f: _memory(f, streams),
        "peak memory": lambda f: _bytes(f["peak_bytes"]),
        "late rows": _counted("late"),
        "behind the watermark": _counted("behind_watermark"),
        "state written": lambda f: _bytes(f["state_written"]),
        "state read": lambda f: _bytes(f["state_read"]),
        "hottest bucket": _bucket,
    }


def _counted(name: str) -> Callable[[dict[str, Any]], str]:
    """How a figure is told that counts something."""
    return lambda figures: _count(figures[name])
