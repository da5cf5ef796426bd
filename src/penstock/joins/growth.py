"""How the tables of a join grow: by how many rows, and how far a budget lets them.

A pool begins with room for a few tuples. When it is full and the budget allows more, the driver returns, its
tables grow, and the driver goes on. Under a budget in bytes a row of the tables has a fixed price, which it
costs from the moment when there is room for it; the rest of the pool's bytes is for payload. So decisions
depend on the tuples that have come, and on nothing else: not on batches, restarts or the kernels' tier.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.engine.store import P_BYTES, P_GROW, P_LIMIT, P_LIVE, P_USED, Store, grow_store

if TYPE_CHECKING:
    from penstock.joins.config import Config

FIRST = 4_096  # tuples that a pool has room for at first, if its budget is in tuples
FEW = 16  # the same if its budget is in bytes, where rows may be large
DOUBLING = 1 << 17  # tuples up to which tables double; larger ones grow by a quarter
LEAST = 64  # the part of its tuples by which a pool grows at least
MOST_TUPLES = 2**31 - 2  # table rows are numbered with 32 bits


def first_rooms(config: Config) -> tuple[int, ...]:
    """Return for how many tuples of each pool there is room at first."""
    if not config.grows:
        return config.capacities
    if config.pool_bytes is None:
        return tuple(min(FIRST, capacity) for capacity in config.capacities)
    row = config.row_bytes + config.mean_row
    return tuple(max(1, min(FEW, int(limit / row))) for limit in config.pool_bytes)


def rooms_of(store: Store) -> tuple[int, ...]:
    """Return for how many tuples of each pool a store has room."""
    return tuple(store.pools[:, P_LIMIT].tolist())


def limit_pools(config: Config, store: Store, rooms: tuple[int, ...]) -> None:
    """Set what the pools may hold in tables for so many tuples, and when these may grow."""
    pools = store.pools
    pools[:, P_LIMIT] = rooms
    if config.payload is not None:
        pools[:, P_BYTES] = config.payload
    if not config.grows:
        return
    for pool, room in enumerate(rooms):
        if config.pool_bytes is None:
            pools[pool, P_GROW] = 2**62 if room < config.capacities[pool] else -1
            continue
        limit, price, least = config.pool_bytes[pool], config.row_bytes, _least(room)
        pools[pool, P_BYTES] = limit - price * room
        # A quarter more rows of the same size would have to fit; at least some of them do.
        most = (limit - price * (room + least)) * room // (room + least)
        pools[pool, P_GROW] = most if most >= 0 and room + least <= MOST_TUPLES else -1


def next_rooms(config: Config, store: Store) -> tuple[int, ...] | None:
    """Return for how many tuples there is to be room; None if no pool is full that may grow."""
    rooms = list(rooms_of(store))
    for pool, row in enumerate(store.pools.tolist()):
        room, used = rooms[pool], row[P_USED]
        if row[P_LIVE] < room or used > row[P_GROW]:
            continue
        if config.pool_bytes is None:
            most = config.capacities[pool] - room
        else:
            left = config.pool_bytes[pool] - config.row_bytes * room - used
            most = min(left * room // (config.row_bytes * room + used), MOST_TUPLES - room)
        step = room if room < DOUBLING else room // 4
        rooms[pool] += most if most < step + step // 2 else step  # rather than a small step next
    return None if tuple(rooms) == rooms_of(store) else tuple(rooms)


def grow(config: Config, tables: dict[str, np.ndarray], rooms: tuple[int, ...]) -> Store:
    """Return the store with these arrays and room for more tuples."""
    grow_store(tables, rooms)
    store = Store(**tables)
    limit_pools(config, store, rooms)
    return store


def _least(room: int) -> int:
    return max(1, room // LEAST)
