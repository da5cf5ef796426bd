"""`PipelineMonitor`: live metrics of running joins, in the terminal and for Prometheus.

Spark passes the metrics of every batch to a listener. `RunningTotals` adds them up for the terminal and
Prometheus.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql.streaming.listener import StreamingQueryListener

from penstock.dashboard import Board, Dashboard, write_line
from penstock.errors import PenstockError
from penstock.extras import require
from penstock.joins.late import MOST_LATE
from penstock.spark.monitor.progress import beside
from penstock.spark.monitor.prometheus import Exporter
from penstock.spark.monitor.terminal import View
from penstock.spark.monitor.totals import RunningTotals
from penstock.spark.runtime.figures import figures_of

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

LOG = logging.getLogger(__name__)
PATIENCE = 10.0  # seconds to wait for Spark's last events on a finished query


class PipelineMonitor:
    """Watches the joins of a session while the block runs, and shows and adds up their metrics.

    Parameters
    ----------
    spark
        The session.
    name
        The `name` given to `bounded_join` or another operator. Operators of the same name are added up. For
        their queries, the hits of lookups and the rows waiting in queues are shown too.
    console
        A rich console that shows a live table. Default: stderr if it is a terminal. `False` shows nothing.
    prometheus_port
        Port for Prometheus, with metrics named `penstock_*`; 0 picks a free port, see `url`. Default: none.
    address
        Address to listen on. Default: this machine only; use `"0.0.0.0"` to allow others.
    record
        A file to which the metrics of each batch are appended, one JSON object per line; `penstock dashboard`
        shows it live.

    Examples
    --------
    >>> import tempfile
    >>> from penstock.spark import bounded_join
    >>> from penstock.spark.monitor.pipeline import PipelineMonitor
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
        record: str | Path | None = None,
    ) -> None:
        self.name = name
        self.state = "waiting for a batch"
        self.url: str | None = None
        self._spark, self._console = spark, console
        self._port, self._address = prometheus_port, address
        self._totals = RunningTotals()
        self._record = None if record is None else Path(record)
        if self._record is not None and (self._record.is_dir() or not self._record.parent.is_dir()):
            raise PenstockError(
                f"record={str(record)!r} cannot be written; give a file in a folder that exists."
            )
        if prometheus_port is not None:
            require("prometheus_client", "prometheus_port")
        self._boards: list[Board] = []
        self._news = threading.Condition()
        self._begun: set[str] = set()  # runs of queries that Spark has reported
        self._ended: set[str] = set()
        self._ours: set[str] = set()  # runs with a join of this name
        self._warned: set[tuple[str, str]] = set()  # runs, and the kinds of warnings already logged
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
        """The metrics of all batches so far, the estimated recall, and the evictions of each bucket.

        `recall` is None if it is unknown; with `recall_at_most` it is an upper bound.
        """
        with self._news:
            return self._totals.totals()

    @property
    def history(self) -> list[dict[str, Any]]:
        """The metrics of each of the last thousand batches."""
        with self._news:
            return list(self._totals.history)

    def __rich__(self) -> RenderableType:
        """Return the live table."""
        with self._news:
            totals = self._totals
            return View(self.name, self.state, totals.streams, list(totals.history)[-8:], totals.totals())

    @property
    def streams(self) -> tuple[str, ...]:
        """The names of the streams of these metrics."""
        with self._news:
            return self._totals.streams

    def _progressed(self, progress: Any) -> None:
        """Handle a finished batch."""
        figures = figures_of(progress, self.name)
        with self._news:
            self._begun.add(str(progress["runId"]))
            if figures is None:
                return
            self._ours.add(str(progress["runId"]))
            self.state = "running"
            self._totals.add(
                figures,
                batch=progress["batchId"],
                rows=progress["numInputRows"] or 0,
                rows_per_second=_known(progress["inputRowsPerSecond"]),
                began=datetime.fromisoformat(progress["timestamp"]).timestamp(),
                seconds=(progress["batchDuration"] or 0) / 1_000,
                **beside(progress),
            )
            self._warn(str(progress["runId"]))
            self._tell(self._told(self._totals.history[-1]))
            self._news.notify_all()

    def _warn(self, run: str) -> None:
        """Log, once per query, that many of its rows are late, or that its sample is biased."""
        last = self._totals.history[-1]
        found = {
            "late": last["late_share"] > MOST_LATE and self._totals.late_advice(),
            "crowded": last["crowded"] > 0 and self._totals.sample_advice(),
        }
        for what, advice in found.items():
            if advice and (run, what) not in self._warned:
                self._warned.add((run, what))
                LOG.warning("%s: %s", self.name, advice)

    def _started(self, run: str) -> None:
        """A query begins."""
        with self._news:
            self._begun.add(run)

    def _terminated(self, run: str, error: str | None) -> None:
        """Handle the end of a query; the monitor continues, because the query may be restarted."""
        with self._news:
            self._ended.add(run)
            # A query that fails before its first batch does not say whether it has a join of this name.
            if run in self._ours or (error and not self._ours):
                self.state = f"failed: {error.splitlines()[0]}" if error else "stopped"
                self._tell({"state": self.state})
            self._news.notify_all()

    def serve(self, port: int = 0, address: str = "127.0.0.1", page: Dashboard | None = None) -> Dashboard:
        """Serve a live page of the metrics, by default on this machine only; see `url` of the result.

        The page is read-only. It ends with the monitor's block, or when it is closed. With `page`, the page
        of another monitor, this query is shown there as well.

        >>> import urllib.request
        >>> from penstock.spark.monitor.pipeline import PipelineMonitor
        >>> with PipelineMonitor(spark, console=False) as monitor:
        ...     page = urllib.request.urlopen(monitor.serve().url, timeout=10).read()
        >>> b"Penstock" in page
        True
        """
        board = Board(self.name)
        served = Dashboard((), port, address) if page is None else page
        with self._news:
            for each in self._totals.history:
                board.post(self._told(each))
            self._boards.append(board)
        served.add(board)
        self._open.callback(board.close if page is not None else served.close)
        return served

    def _told(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return a batch in the form that pages and files use."""
        about = {"state": self.state, "streams": list(self._totals.streams), "advice": self._totals.advice()}
        return batch | about

    def _tell(self, told: dict[str, Any]) -> None:
        """Send a batch, or only a state, to pages and the file."""
        for board in self._boards:
            board.post(told)
        if self._record is not None:
            write_line(self._record, told)

    def _wait(self) -> None:
        """Wait for Spark's last events on finished queries, which arrive a little late."""
        end = time.monotonic() + PATIENCE
        try:
            active = {str(query.runId) for query in self._spark.streams.active}
        except Exception:  # the session has ended
            return
        with self._news:
            self._news.wait_for(
                lambda: self._begun <= self._ended | active, timeout=max(0.0, end - time.monotonic())
            )

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        """Listen to Spark's events."""
        listener = _Listener(self)
        self._spark.streams.addListener(listener)
        try:
            yield
        finally:
            with contextlib.suppress(Exception):  # the session may have ended
                self._spark.streams.removeListener(listener)

    @contextlib.contextmanager
    def _shown(self) -> Iterator[None]:
        """Show the table, if there is a console."""
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
        from prometheus_client import CollectorRegistry, start_http_server

        registry = CollectorRegistry(auto_describe=False)
        registry.register(Exporter(self))
        try:
            server, thread = start_http_server(self._port or 0, self._address, registry)
        except OSError as error:
            raise PenstockError(
                f"Cannot listen on {self._address}:{self._port} ({error.strerror}); give another port, "
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
    """Forwards Spark's events."""

    def __init__(self, monitor: PipelineMonitor) -> None:
        self._monitor = monitor

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        """A query begins."""
        self._monitor._started(str(event.runId))

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Handle a finished batch."""
        self._monitor._progressed(event.progress)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Do nothing while idle."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Handle the end of a query."""
        self._monitor._terminated(str(event.runId), event.exception)


def _known(number: float | None) -> float | None:
    """Return a rate, or None if Spark does not know it."""
    return number if number is not None and math.isfinite(number) and number > 0 else None
