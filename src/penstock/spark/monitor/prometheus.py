"""Export the metrics of a monitor to Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from penstock.spark.monitor.pipeline import PipelineMonitor

COUNTED = {  # metrics that only grow, with their names and descriptions in Prometheus
    "results": ("results", "Results found."),
    "expired": ("expired_rows", "Rows that left because nothing can match them any more."),
    "released": ("released_rows", "Rows that left because their first match was their last."),
    "unmatched": ("unmatched_rows", "Rows that came out because they have no partner."),
    "undecided": ("undecided_rows", "Rows of which it is not known whether they have a partner."),
    "dropped": ("dropped_rows", "Rows dropped at random by drop_rate."),
    "late": ("late_rows", "Rows that arrived behind the progress of their stream."),
    "unestimated": ("unestimated_rows", "Rows too late to estimate the results they missed."),
    "skipped": ("skipped_rows", "Rows without a key or a time."),
    "behind_watermark": ("behind_watermark_rows", "Rows dropped because they were behind the watermark."),
    "state_written": ("state_written_bytes", "Bytes written to the state store."),
    "state_read": ("state_read_bytes", "Bytes read from the state store."),
    "replayed": ("replayed_batches", "Batches that buckets replayed from their logs."),
    "batches": ("batches", "Batches seen."),
    "requests": ("lookup_requests", "Lookup requests."),
    "hits": ("lookup_hits", "Lookup requests whose key was cached."),
    "malformed": ("lookup_malformed_keys", "Keys that the table of a lookup cannot read; they have no row."),
    "failed_keys": ("lookup_failed_keys", "Keys whose lookup query failed; they have no row."),
}


class Exporter:
    """Exports the metrics whenever Prometheus asks."""

    def __init__(self, monitor: PipelineMonitor) -> None:
        self._monitor = monitor

    def collect(self) -> Iterator[Metric]:
        """Return all metrics as they are now."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        totals, history = self._monitor.totals, self._monitor.history
        streams = self._monitor.streams

        def told(kind: Any, name: str, text: str, values: Any, label: str | None = None) -> Metric:
            """Return one metric: a number, or one per value of a label."""
            family = kind(f"penstock_{name}", text, labels=["join", *([label] if label else [])])
            for each, value in values.items() if label else [(None, values)]:
                family.add_metric([self._monitor.name, *([str(each)] if label else [])], value)
            return family

        def per_stream(name: str) -> dict[str, Any]:
            """Return a metric of each stream."""
            return {stream: totals[f"{name}_{stream}"] for stream in streams}

        count, gauge = CounterMetricFamily, GaugeMetricFamily
        for figure, (name, text) in COUNTED.items():
            yield told(count, name, text, totals[figure])
        yield told(count, "arrived_rows", "Rows that arrived.", per_stream("arrived"), "stream")
        yield told(count, "evicted_rows", "Rows evicted for lack of memory.", per_stream("evicted"), "stream")
        buckets = totals["evicted_per_bucket"]
        yield told(count, "bucket_evicted_rows", "Rows evicted in each bucket.", buckets, "bucket")
        yield told(gauge, "buffered_rows", "Rows in memory.", per_stream("buffered"), "stream")
        yield told(gauge, "memory_peak_bytes", "Peak memory of all buckets.", totals["peak_bytes"])
        workers = totals["workers"]
        text = "Memory that each Python worker with a bucket has to itself."
        yield told(gauge, "worker_memory_bytes", text, workers, "worker")
        yield told(gauge, "queue_waiting_rows", "Rows waiting in each queue.", totals["waiting"], "queue")

        def shares(name: str, text: str, figures: dict[str, Any]) -> Iterator[Metric]:
            """Return the recall if it is estimated, or its upper bound; nothing if it is unknown."""
            value, bound = figures["recall"], figures["recall_at_most"]
            if value is not None and not bound:
                yield told(gauge, name, f"Estimated share of the exact results{text}.", value)
            if value is not None:
                yield told(gauge, f"{name}_upper_bound", f"Upper bound of the recall{text}.", value)

        if totals["missed"] is not None:
            missed = max(0, totals["missed"])
            yield told(gauge, "missed_results", "Estimated number of missed results, a lower bound.", missed)
        yield from shares("recall", "", totals)
        for last in history[-1:]:
            yield told(gauge, "memory_bytes", "Memory of all buckets.", last["peak_bytes"])
            yield from shares("batch_recall", ", of the last batch alone", last)
            yield told(gauge, "batch_rows", "Rows of the last batch.", last["rows"])
            yield told(gauge, "batch_seconds", "Duration of the last batch.", last["seconds"])
