"""How the tables of a join grow: by how many rows, and how far a budget lets them.

A pool begins with room for a few tuples. When it is full and the budget allows more, the driver returns, its
tables grow, and the driver goes on. Under a budget in bytes a row of the tables has a fixed price, which it
costs from the moment when there is room for it; the rest of the pool's bytes is for payload. So decisions
depend on the tuples that have come, and on nothing else: not on batches, restarts or the kernels' tier.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.engine.store import P_BYTES, P_GROW, P_LIMIT, P_LIVE, P_USED, Store, grow_store

if TYPE_CHECKING:
    from penstock.joins.config import Config
    from penstock.joins.many_config import ManyConfig

FIRST = 4_096  # tuples that a pool has room for at first, if its budget is in tuples
FEW = 16  # the same if its budget is in bytes, where rows may be large
DOUBLING = 1 << 17  # tuples up to which tables double; larger ones grow by a quarter
KEPT_OPEN = 0.92  # the share of its tuples to which the policy that runs is held for the sake of others
LEAST = 64  # the part of its tuples by which a pool grows at least
MOST_TUPLES = 2**31 - 2  # table rows are numbered with 32 bits


@dataclass(frozen=True)
class TableCost:
    """What the tables of a policy take under a byte budget, and what that leaves to each pool."""

    fixed: int  # bytes of all that does not grow with the tuples
    per_tuple: int  # bytes
    pool_bytes: tuple[int, ...]  # per pool, for rows of the tables and their payload


def first_rooms(config: Config | ManyConfig) -> tuple[int, ...]:
    """Return for how many tuples of each pool there is room at first."""
    if not config.grows:
        return config.capacities
    if not config.costs:
        return tuple(min(FIRST, capacity) for capacity in config.capacities)
    rooms = most_rooms(config)
    return tuple(max(1, min(FEW, room)) for room in rooms)


def most_rooms(config: Config | ManyConfig, row: float | None = None, best: bool = False) -> tuple[int, ...]:
    """Return how many tuples with a payload of so many bytes each pool can hold; by default, the average.

    It is for the candidate that can hold fewest, or for the `best` one.
    """
    row = config.mean_row if row is None else row
    limits = [[int(limit / (cost.per_tuple + row)) for limit in cost.pool_bytes] for cost in config.costs]
    return tuple(map(max if best else min, zip(*limits, strict=True)))


def fitting(config: Config, store: Store) -> np.ndarray:
    """Return which candidates could run with these tables and this payload within the budget."""
    rooms, used = rooms_of(store), store.pools[:, P_USED].tolist()
    return np.array(
        [
            all(_left(cost, pool, room) >= used[pool] for pool, room in enumerate(rooms))
            for cost in config.costs
        ],
        bool,
    )


def bound_by(config: Config, store: Store, running: int) -> Config:
    """Return the config with the costs that bind while this candidate runs: its own, and others' for a while.

    Other candidates have to fit, so that they can be followed, as long as that costs few of the tuples that
    the one that runs could keep. Which of them do depends on how large rows are.
    """
    if len(config.costs) < 2:
        return config
    row = store.pools[:, P_USED].sum() / max(1, store.pools[:, P_LIVE].sum())
    most = [sum(cost.pool_bytes) / (cost.per_tuple + row) for cost in config.costs]
    fits = fitting(config, store)
    costs = tuple(
        cost
        for i, cost in enumerate(config.costs)
        if i == running or (fits[i] and most[i] >= KEPT_OPEN * most[running])
    )
    return dataclasses.replace(config, costs=costs)


def rooms_of(store: Store) -> tuple[int, ...]:
    """Return for how many tuples of each pool a store has room."""
    return tuple(store.pools[:, P_LIMIT].tolist())


def limit_pools(config: Config | ManyConfig, store: Store, rooms: tuple[int, ...]) -> None:
    """Set what the pools may hold in tables for so many tuples, and when these may grow."""
    pools = store.pools
    pools[:, P_LIMIT] = rooms
    if config.payload is not None:
        pools[:, P_BYTES] = config.payload
    if not config.grows:
        return
    for pool, room in enumerate(rooms):
        if not config.costs:
            pools[pool, P_GROW] = 2**62 if room < config.capacities[pool] else -1
            continue
        more = room + max(1, room // LEAST)
        pools[pool, P_BYTES] = min(_left(cost, pool, room) for cost in config.costs)
        # Growth is granted if so many more rows of the same size fit.
        most = min(_left(cost, pool, more) for cost in config.costs) * room // more
        pools[pool, P_GROW] = most if most >= 0 and more <= MOST_TUPLES else -1


def next_rooms(config: Config | ManyConfig, store: Store) -> tuple[int, ...] | None:
    """Return for how many tuples there is to be room; None if no pool is full that may grow."""
    rooms = list(rooms_of(store))
    for pool, row in enumerate(store.pools.tolist()):
        room, used = rooms[pool], row[P_USED]
        if row[P_LIVE] < room or used > row[P_GROW]:
            continue
        most = config.capacities[pool] - room
        if config.costs:
            fitting = [
                (_left(cost, pool, room) - used) * room // (cost.per_tuple * room + used)
                for cost in config.costs
            ]
            most = min(*fitting, MOST_TUPLES - room)
        step = room if room < DOUBLING else room // 4
        rooms[pool] += most if most < step + step // 2 else step  # rather than a small step next
    return None if tuple(rooms) == rooms_of(store) else tuple(rooms)


def grow(config: Config | ManyConfig, tables: dict[str, np.ndarray], rooms: tuple[int, ...]) -> Store:
    """Return the store with these arrays and room for more tuples."""
    grow_store(tables, rooms)
    store = Store(**tables)
    limit_pools(config, store, rooms)
    return store


def touched_bytes(config: Config | ManyConfig, store: Store, allocated: int) -> int:
    """Return the bytes of tables, of which so many are allocated.

    Where each stream has its pool, tables are as long for the smaller as for the larger one. Of what only the
    larger one needs, nothing is ever touched, so that it takes no memory and does not count.
    """
    rooms = rooms_of(store)
    if not config.costs or len(rooms) == 1:
        return allocated
    return min(allocated, max(cost.fixed + cost.per_tuple * sum(rooms) for cost in config.costs))


def _left(cost: TableCost, pool: int, room: int) -> int:
    """Return the bytes that tables for so many tuples leave to the payload of a pool."""
    return cost.pool_bytes[pool] - cost.per_tuple * room
