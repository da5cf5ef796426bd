"""Extract lookup hits and waiting queue rows from a query's progress."""

from __future__ import annotations

import json
from typing import Any


def beside(progress: Any) -> dict[str, Any]:
    """Return `hits`, `requests`, `malformed` and `failed_keys` of the lookups of a batch.

    `waiting` has the rows in queues behind it. Keys that do not apply to a query are left out.

    >>> from penstock.spark.monitor.progress import beside
    >>> behind = {"endOffset": '{"row": 30}', "latestOffset": '{"queue": "clicks", "row": 100}'}
    >>> lookup = {"hitCount": 8, "missCount": 2}
    >>> beside({"observedMetrics": {"items": lookup}, "sources": [behind]})
    {'hits': 8, 'requests': 10, 'waiting': {'clicks': 70}}
    """
    found: dict[str, Any] = {}
    lookups = [row for row in (progress["observedMetrics"] or {}).values() if is_lookup(row)]
    if lookups:
        hits = sum(row["hitCount"] or 0 for row in lookups)
        found |= {"hits": hits, "requests": hits + sum(row["missCount"] or 0 for row in lookups)}
        malformed = sum(row["malformedCount"] or 0 for row in lookups if "malformedCount" in row)
        found |= {"malformed": malformed} if malformed else {}
        failed = sum(row["failedKeyCount"] or 0 for row in lookups if "failedKeyCount" in row)
        found |= {"failed_keys": failed} if failed else {}
    waiting: dict[str, int] = {}
    for source in progress["sources"] or []:
        end, latest = (_offset(source[name]) for name in ("endOffset", "latestOffset"))
        if "queue" in latest and "row" in end:
            name = str(latest["queue"])
            waiting[name] = waiting.get(name, 0) + max(0, int(latest["row"]) - int(end["row"]))
    return found | ({"waiting": waiting} if waiting else {})


def is_lookup(row: Any) -> bool:
    """Whether an observed metric is from a `lookup_join`; it is a row in an event, a dict in the past."""
    return row is not None and "hitCount" in (row.asDict() if hasattr(row, "asDict") else row)


def _offset(text: str | None) -> dict[str, Any]:
    """Return the offset of a source, if it has parts."""
    try:
        parts = json.loads(text or "null")
    except ValueError:
        return {}
    return parts if isinstance(parts, dict) else {}
