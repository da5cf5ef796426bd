"""The optimum of the bounded join by trying every decision, and a plain replay of decisions.

After each step any part of what was buffered or has just come may stay, as long as it fits. All those
choices are followed, those that lead to the same buffer together.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, groupby
from typing import Any

from .join import arrivals_of, pools_of
from .policies import LEFT, Arrival, Now, window_of

Buffer = frozenset[int]  # arrival numbers


def steps_of(left: list[Any], right: list[Any], step: str) -> list[list[Arrival]]:
    """The arrivals of each step."""
    together = {"arrival": lambda x: x.number, "tick": lambda x: x.time}[step]
    return [list(group) for _, group in groupby(arrivals_of(left, right), key=together)]


def kept_choices(candidates: list[Arrival], capacities: dict[int, list[int]]) -> Iterator[Buffer]:
    """All parts of the candidates that fit; `capacities` has the streams of each pool by its capacity."""
    choices: list[Buffer] = [frozenset()]
    for capacity, streams in [(c, s) for c, pools in capacities.items() for s in pools]:
        mine = [x.number for x in candidates if streams & (1 << x.stream)]
        some = [
            frozenset(c) for size in range(min(capacity, len(mine)) + 1) for c in combinations(mine, size)
        ]
        choices = [a | b for a in choices for b in some]
    yield from choices


def best_results(
    left: list[Any],
    right: list[Any],
    *,
    within: Any,
    budget: int,
    allocation: str = "unified",
    step: str = "arrival",
    warmup: int = 0,
) -> int:
    """The most results, those of one tick included."""
    everyone = arrivals_of(left, right)
    pools = pools_of(budget, allocation, everyone)
    capacities: dict[int, list[int]] = {}
    if pools[0] is pools[1]:
        capacities[pools[0].capacity] = [0b11]
    else:
        for stream, pool in enumerate(pools):
            capacities.setdefault(pool.capacity, []).append(1 << stream)
    now = Now(window_of(within))
    known: dict[int, Arrival] = {}
    best: dict[Buffer, int] = {frozenset(): 0}
    for number, tick in enumerate(steps_of(left, right, step)):
        for x in tick:
            now.time = x.time
            now.newest[x.stream] += 1
            x.own = now.newest[x.stream]
            known[x.number] = x
        among = sum(x.stream == LEFT != y.stream and x.key == y.key for x in tick for y in tick)
        following: dict[Buffer, int] = {}
        for buffer, results in best.items():
            alive = [known[y] for y in buffer if not now.window.expired(known[y], now)]
            hits = sum(y.stream != x.stream and y.key == x.key for x in tick for y in alive)
            total = results + (hits + among if number >= warmup else 0)
            for choice in kept_choices([*alive, *tick], capacities):
                following[choice] = max(following.get(choice, 0), total)
        best = following
    return max(best.values())


def follow(
    left: list[Any],
    right: list[Any],
    decisions: list[dict[str, Any]],
    *,
    within: Any,
    step: str,
    warmup: int = 0,
) -> tuple[int, list[list[int]]]:
    """Results, and the tuples of each stream in memory after each step, if exactly the decisions are kept."""
    until = {(("left", "right").index(d["stream"]), d["row"]): d["until"] for d in decisions}
    now = Now(window_of(within))
    memory: list[Arrival] = []
    results, held = 0, []
    for number, tick in enumerate(steps_of(left, right, step)):
        for x in tick:
            now.time = x.time
            now.newest[x.stream] += 1
            x.own = now.newest[x.stream]
        memory = [y for y in memory if not now.window.expired(y, now)]
        if number >= warmup:
            results += sum(y.stream != x.stream and y.key == x.key for x in tick for y in memory)
            results += sum(x.stream == LEFT != y.stream and x.key == y.key for x in tick for y in tick)
        memory = [y for y in [*memory, *tick] if until.get(y.name, -1) > number]
        held.append([sum(y.stream == s for y in memory) for s in (0, 1)])
    return results, held
