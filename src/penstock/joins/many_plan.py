"""The plan by which the results of joins of many streams are searched (see `engine.many_search`)."""

from __future__ import annotations

import math

import numpy as np

from penstock.engine.many_index import Scheme
from penstock.engine.many_search import (
    ALONG,
    BY,
    CHECK_WIDTH,
    CHECKS,
    FROM,
    OTHER,
    OURS,
    PART,
    STEP_WIDTH,
    THEIRS,
    TO,
    SearchPlan,
)

Bounds = tuple[tuple[tuple[float, ...], ...], ...]


def new_search_plan(scheme: Scheme, streams: int, chain: bool, bounds: Bounds, dtype: np.dtype) -> SearchPlan:
    """Return the plan for joins with the keys of a scheme, or for one join whose links are in the scheme."""
    members = [list(range(streams))] if chain else [_members(scheme, j) for j in range(len(scheme.size))]
    widest, degree = max(map(len, members)), np.zeros(streams, np.int64)
    most = 1 if chain else scheme.join.shape[1]
    checks = max(1, len(scheme.size))
    plan = SearchPlan(
        size=np.array([len(join) for join in members], np.int64),
        degree=degree,
        join=np.zeros((streams, most), np.int64),
        part=np.zeros((streams, most), np.int64),
        step=np.zeros((streams, most, widest - 1, STEP_WIDTH), np.int64),
        check=np.zeros((streams, most, widest - 1, checks, CHECK_WIDTH), np.int64),
        bound=np.zeros((len(members), widest, widest), dtype),
    )
    for j, join in enumerate(members):
        for part, stream in enumerate(join):
            place = degree[stream]
            plan.join[stream, place], plan.part[stream, place] = j, part
            if chain:
                _walk(plan, scheme, stream, streams)
            else:
                _meet(plan, scheme, stream, place, j, part)
            degree[stream] += 1
        for a, row in enumerate(bounds[j]):
            plan.bound[j, a, : len(row)] = [_limit(span, dtype) for span in row]
    return plan


def _members(scheme: Scheme, join: int) -> list[int]:
    return [int(stream) for stream in scheme.stream[join, : scheme.size[join]]]


def _limit(span: float, dtype: np.dtype) -> float:
    """A span that any difference of two times is below, if there is no limit."""
    return np.iinfo(np.int64).max if span == math.inf and dtype == np.int64 else span


def _meet(plan: SearchPlan, scheme: Scheme, stream: int, place: int, join: int, own: int) -> None:
    """All participants of a join have one key: every step begins at the arrival."""
    others = [part for part in range(scheme.size[join]) if part != own]
    for number, part in enumerate(others):
        step = plan.step[stream, place, number]
        step[FROM], step[ALONG] = own, scheme.place[join, own]
        step[TO], step[BY], step[PART] = part, scheme.place[join, part], part


def _walk(plan: SearchPlan, scheme: Scheme, start: int, streams: int) -> None:
    """From one stream of a chain to the next, along the first link that leads to a new one."""
    links = [(j, *_members(scheme, j)) for j in range(len(scheme.size))]
    bound = {start}
    for number in range(streams - 1):
        j, came, to = next(
            (j, one, other)
            for j, first, second in links
            for one, other in ((first, second), (second, first))
            if one in bound and other not in bound
        )
        step = plan.step[start, 0, number]
        step[FROM], step[ALONG] = came, _place(scheme, j, came)
        step[TO], step[BY], step[PART] = to, _place(scheme, j, to), _part(scheme, j, to)
        more = [
            (k, one if two == to else two)
            for k, one, two in links
            if k != j and to in (one, two) and (one if two == to else two) in bound
        ]
        for at, (k, other) in enumerate(more):
            check = plan.check[start, 0, number, at]
            check[OTHER], check[THEIRS], check[OURS] = other, _place(scheme, k, other), _place(scheme, k, to)
        step[CHECKS] = len(more)
        bound.add(to)


def _part(scheme: Scheme, join: int, stream: int) -> int:
    return _members(scheme, join).index(stream)


def _place(scheme: Scheme, join: int, stream: int) -> int:
    return int(scheme.place[join, _part(scheme, join, stream)])
