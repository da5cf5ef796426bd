"""Switch the policy of a running query: the cached tuples stay and get scores from the new policy."""

from __future__ import annotations

import numpy as np

from penstock.compiler.tiers import expecting
from penstock.engine.conditions import Columns
from penstock.engine.policy_switch import MOST
from penstock.engine.store import ARRIVAL, ROW, STREAM, TIME
from penstock.engine.triple_index import EAGER, LAST_USE, USED
from penstock.engine.triple_switch import CarriedTriples, reenter_triples
from penstock.joins.policy_switch import OF_THE_STORE
from penstock.linked.run.caches import QueryCaches
from penstock.policies import Policy


def carried_tuples(caches: QueryCaches) -> CarriedTriples:
    """The cached tuples, and what they have been used for."""
    store, index, live = caches.store, caches.index, caches.live
    uses = index.uses[live]
    return CarriedTriples(
        stream=store.t32[live, STREAM].astype(np.int64),
        cache=index.cache[live].astype(np.int64),
        row=store.t64[live, ROW],
        life=store.time[live, TIME].copy(),
        arrival=store.t64[live, ARRIVAL],
        members=index.members[live] if len(index.members) else index.members,
        uses=uses,
        matches=np.minimum(uses[:, USED], MOST).astype(np.int64),
    )


def switched(before: QueryCaches, policy: Policy, columns: Columns) -> QueryCaches:
    """Caches with the same tuples, counters and clocks, and another policy in charge of them."""
    carried = carried_tuples(before)
    after = QueryCaches(before.config, before.plan, policy)
    store, old = after.store, before.store
    kept = store.meta[OF_THE_STORE].copy()
    store.meta[:] = old.meta
    store.meta[OF_THE_STORE] = kept
    store.clock[:], store.random[:] = old.clock, old.random
    after.index = after.index._replace(counts=before.index.counts)
    if after.index.meta[EAGER]:
        carried = carried._replace(matches=(carried.uses[:, USED] > 0).astype(np.int64))
    used = np.flatnonzero(carried.matches > 0)
    n = len(carried.row)
    # A use comes before what the same arrival has let in.
    number = np.concatenate([2 * carried.arrival + 1, 2 * carried.uses[used, LAST_USE].astype(np.int64)])
    events = np.concatenate([np.arange(n), n + used])[np.argsort(number, kind="stable")]
    with expecting(n, apart=True):
        reenter_triples(
            after.policy, store, after.index, after.expiry, after.plan.scheme, columns, carried, events
        )
    return after
