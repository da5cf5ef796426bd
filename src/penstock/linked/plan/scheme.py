"""Convert a tree of joins to the kernel's form: caches, the ports where their tuples are found, and keys."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from penstock.engine.triple_index import Scheme
from penstock.linked.plan.tree import Tree, joins, leaves

Position = Callable[[int, str], int]  # of a variable in a pattern


def scheme_of(
    tree: Tree,
    shared: list[list[str]],
    twice: list[bool],
    caches: list[list[int]],
    position: Position,
    owner: Callable[[Tree, str], int],
    limits: np.ndarray,
    gain: tuple[float, float],
) -> tuple[Scheme, list[tuple[int, ...]]]:
    """The scheme of a tree, and per port of single triples the positions of its key.

    `shared` has the variables that the sides of each join have in common, `twice` whether the triple that
    arrives may be on both, `caches` the patterns that use each cache of single triples; `owner` gives the
    first pattern of a part of the tree that has a variable.
    """
    steps, count = joins(tree), len(leaves(tree))
    home = {pattern: cache for cache, users in enumerate(caches) for pattern in users}
    found: dict[tuple[int, tuple[int, ...]], int] = {}
    roles: list[int] = []

    def leaf_port(pattern: int, names: list[str]) -> int:
        key = home[pattern], tuple(position(pattern, name) for name in names)
        port = found.setdefault(key, len(found))
        if port == len(roles):
            roles.append(0)
        roles[port] |= 1 << pattern
        return port

    # Steps are numbered from 1; a side is a pattern, or minus the step that makes it.
    made = {pair: step for step, pair in enumerate(steps, start=1)}
    side = np.zeros((count, 2), np.int64)
    port_of = np.zeros((count, 2), np.int64)
    for (step, pair), names in zip(enumerate(steps, start=1), shared, strict=True):
        for place, part in enumerate(pair):
            side[step, place] = part if isinstance(part, int) else -made[part]
            if isinstance(part, int):
                port_of[step, place] = leaf_port(part, names)
    port_step, port_side = [0] * len(found), [0] * len(found)
    per_cache: list[list[int]] = [[] for _ in range(len(caches) + max(0, count - 2))]
    for (cache, _), port in found.items():
        per_cache[cache].append(port)
    members, waits = np.zeros(count, np.int64), np.zeros(count, np.int64)
    partners = np.zeros(count, np.int64)
    for step, pair in enumerate(steps, start=1):
        for place, part in enumerate(pair):
            other = sum(1 << i for i in leaves(pair[1 - place]))
            if isinstance(part, int):
                partners[part] = other
                continue
            waits[made[part]] = other
            port_of[step, place] = len(port_step)
            per_cache[len(caches) + made[part] - 1].append(len(port_step))
            port_step.append(step)
            port_side.append(place)
            roles.append(0)
        members[step] = sum(1 << i for i in leaves(pair))
    widest = max([1, *map(len, shared)])
    key_part = np.zeros((count, 2, widest, 2), np.int64)
    for (step, pair), names in zip(enumerate(steps, start=1), shared, strict=True):
        for place, part in enumerate(pair):
            for i, name in enumerate(names):
                pattern = owner(part, name)
                key_part[step, place, i] = pattern, position(pattern, name)
    degree = [len(ports) for ports in per_cache]
    port_table = np.zeros((len(per_cache), max([*degree, 1])), np.int64)
    for cache, ports in enumerate(per_cache):
        port_table[cache, : len(ports)] = ports
    scheme = Scheme(
        side=side,
        members=members,
        waits=waits,
        cache_roles=np.array([sum(1 << i for i in users) for users in caches], np.int64),
        degree=np.array(degree, np.int64),
        port=port_table,
        port_roles=np.array(roles, np.int64),
        port_step=np.array(port_step, np.int64),
        port_side=np.array(port_side, np.int64),
        port_of=port_of,
        twice=np.array([True, *twice]),
        key_size=np.array([0, *map(len, shared)], np.int64),
        key_part=key_part,
        limit=limits,
        partners=partners,
        gain=np.array(gain, np.float64),
    )
    by_port = sorted(found.items(), key=lambda item: item[1])
    return scheme, [positions for (_, positions), _ in by_port]
