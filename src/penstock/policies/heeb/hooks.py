"""Hooks of HEEB: what happens on arrival, entry and exit, and how the victim is found."""

from __future__ import annotations

import math

import numpy as np

from penstock.compiler.jit import jit
from penstock.engine.hooks import arrive, before_tick, enter, filed, leave, lowest, newcomer, open_key, score
from penstock.engine.score_queue import file_newcomer, front
from penstock.engine.store import (
    ARRIVAL,
    BASE,
    ENTRY,
    HEAD,
    KEY,
    LANDMARK,
    NEXT,
    NODE,
    PLACE,
    PREV,
    ROWS,
    STREAM,
    TIME,
    USE,
    WINDOW,
    lifetime,
)
from penstock.models.kernels.benefit import added_up, build, center, chance, last_step, locate, looked_up
from penstock.models.kernels.fitting import fit, fit_is_due
from penstock.models.kernels.offset_histogram import (
    adapt,
    fade,
    mean_inverse,
    observe_lifetime,
    observe_new_offset,
    offset_of,
    start_again,
)
from penstock.models.kernels.outlook import (
    ALPHA,
    EXPONENTIAL,
    KNOWN,
    LOW,
    NONE,
    SLOPE,
    STATIC,
    STEP,
    TREND,
    WALK,
    WHOLE,
    WIDTH,
    A,
    set_exponential,
)
from penstock.policies.heeb.state import (
    ALL,
    ANCHOR,
    APART,
    BEGAN,
    BUCKETS,
    COMMON_ALPHA,
    DIRECT,
    FADING,
    FITTED,
    FORM,
    GONE,
    HIGH,
    LEARNING,
    LEARNT_LEFT_OUT,
    LIVED,
    MOST_ALPHA,
    NOW,
    NUMERIC,
    OBSERVE,
    OBSERVING,
    STARTED,
    TICK,
    TICKING,
    TIMED,
    VALUED,
    WAITING,
    WAY,
    HeebState,
    Hopeless,
)

LOW_BITS = 0x7FFFFFFF  # of a time in 32 bits; a longer time is too old to update from


@jit
def value_of(policy, key):
    """Return the number that a key stands for."""
    return policy.values[key] if policy.values.shape[0] > 0 else np.float64(key)


@jit
def _time(policy, r):
    """Return the current time of a stream: the tick, or the number of its last arrival."""
    return policy.counters[TICK] if policy.counters[TICKING] != 0 else policy.seen[r] - 1


@jit
def _pace(policy, store, stream, r):
    """Return how many steps of stream r pass per unit of the clock of `stream`."""
    if store.meta[WINDOW] == ROWS:
        if policy.counters[TICKING] != 0 or policy.seen[stream] == 0:
            return 1.0
        if policy.rate[stream] > 0.0:
            return policy.rate[r] / policy.rate[stream]
        return policy.seen[r] / policy.seen[stream]
    elapsed = policy.moments[NOW] - policy.moments[BEGAN]
    if policy.counters[TICKING] != 0:
        return policy.counters[TICK] / elapsed if elapsed > 0.0 and policy.counters[TICK] > 0 else 1.0
    if policy.rate[r] > 0.0:
        return policy.rate[r]
    return policy.seen[r] / elapsed if elapsed > 0.0 else 1.0


@jit
def _steps_left(store, stream, time, pace):
    """Return how many steps of the other stream a tuple's window still covers."""
    left = np.float64(lifetime(store, stream, time)) * pace
    if store.meta[WINDOW] == LANDMARK:
        left = math.ceil(left - 1e-9) - 1.0
    return np.int64(max(0.0, min(math.floor(left + 1e-9), 1e15)))


@jit
def _benefit(policy, r, at, left):
    """Return H of a tuple with this value and this many steps left."""
    if policy.counters[WAY] == DIRECT:
        found = added_up(policy.outlook, r, at, _time(policy, r), policy.last[r], left)
    else:
        found = looked_up(policy.outlook, r, at, _time(policy, r), policy.last[r], left)
    return policy.factor[r] * found


@jit
def _carried(policy, store, slot, r, at, left):
    """Update H of a tuple from its last value (Corollary 3); recompute it where errors would grow."""
    now = _time(policy, r)
    since = np.int64(store.t32[slot, NODE])
    anchor = policy.counters[ANCHOR]
    outlook = policy.outlook
    if left < last_step(outlook, r, at, now):  # the window ends first
        store.t32[slot, NODE] = -1
        return policy.factor[r] * added_up(outlook, r, at, now, policy.last[r], left)
    if since < 0 or now - since > anchor or now // anchor != since // anchor:
        found = added_up(outlook, r, at, now, policy.last[r], left)
    else:
        found = store.f64[slot, BASE]
        growth = math.exp(1.0 / outlook.par[r, ALPHA])
        for time in range(since + 1, now + 1):
            found = max(0.0, growth * found - chance(outlook, r, at, time))
    store.f64[slot, BASE] = found
    store.t32[slot, NODE] = now & LOW_BITS
    return policy.factor[r] * found


@jit
def _from_neighbour(policy, store, stream, r, at, left):
    """Compute H of a newcomer from that of the tuple with the nearest value (Corollary 5)."""
    outlook, now = policy.outlook, _time(policy, r)
    slope = outlook.ints[r, SLOPE]
    nearest, distance = 0, np.int64(policy.counters[ANCHOR]) + 1
    pool = store.pool_of[stream]
    if outlook.ints[r, WHOLE] != 0 and left >= last_step(outlook, r, at, now):
        for i in range(policy.length[pool]):
            slot = policy.members[pool, i]
            if store.t32[slot, STREAM] == stream and store.t32[slot, NODE] == now:
                away = store.k64[store.t32[slot, ENTRY], USE + stream] - at
                if away % slope == 0 and abs(away // slope) < distance:
                    nearest, distance = slot, abs(away // slope)
    if nearest == 0:
        return policy.factor[r] * added_up(outlook, r, at, now, policy.last[r], left)
    known = store.k64[store.t32[nearest, ENTRY], USE + stream]
    found, away = store.f64[nearest, BASE], (known - at) // slope
    decay = math.exp(-1.0 / outlook.par[r, ALPHA])
    for i in range(abs(away)):
        if away > 0:
            found = max(0.0, found / decay - chance(outlook, r, known, now + 1 + i))
        else:
            found = decay * (found + chance(outlook, r, known, now - i))
    return policy.factor[r] * found


@arrive.on(HeebState)
def _arrive(policy, store, stream, key, entry):
    now = np.float64(store.clock[1 - stream])
    if policy.moments[STARTED] == 0.0:
        _begin(policy, now)
    policy.moments[NOW] = max(policy.moments[BEGAN], now)
    before = policy.last[stream]
    policy.last[stream] = np.int64(np.rint(value_of(policy, key) / policy.outlook.par[stream, STEP]))
    seen = policy.seen[stream]
    policy.seen[stream] = seen + 1
    if policy.counters[LEARNING + stream] != 0:
        if policy.counters[FITTED + stream] != NONE:
            offset = np.float64(offset_of(policy.outlook, stream, policy.last[stream], before, seen))
            high = policy.counters[HIGH + stream]
            policy.counters[HIGH + stream] = observe_new_offset(policy.buckets[stream], offset, high)
        policy.history[stream, seen % policy.history.shape[1]] = policy.last[stream]
        if fit_is_due(seen + 1):
            _learn(policy, store, stream)
    if policy.counters[OBSERVING] != 0 and (policy.seen[0] + policy.seen[1]) % OBSERVE == 0:
        _observe(policy)


@jit
def _begin(policy, now):
    policy.moments[STARTED] = 1.0
    policy.moments[BEGAN] = now


@jit
def _learn(policy, store, stream):
    """Fit a model to the last values of a stream."""
    seen, room = policy.seen[stream], np.int64(policy.history.shape[1])
    n = min(seen, room)
    values = np.empty(n, np.int64)
    for i in range(n):
        values[i] = policy.history[stream, (seen - n + i) % room]
    fit(policy.outlook, stream, values, seen - n, policy.counters[NUMERIC] != 0, policy.counters[FORM])
    if policy.counters[BUCKETS] != 0:
        _bring_up(policy, stream, values, seen - n)
    _reweigh(policy, stream)
    _revive(policy, store)


@jit
def _bring_up(policy, r, values, first):
    """Decay and adapt the histogram of a stream and derive the noise; start again if the form changed."""
    counters, kind = policy.counters, policy.outlook.kind[r]
    if kind != TREND and kind != WALK:
        counters[FITTED + r] = NONE
        return
    buckets = policy.buckets[r]
    if counters[FITTED + r] != kind:
        counters[FITTED + r] = kind
        counters[HIGH + r] = start_again(buckets, policy.outlook, r, values, first)
    else:
        fade(buckets, policy.moments[FADING])
    adapt(buckets, counters[HIGH + r], policy.outlook, r)


@jit
def _revive(policy, store):
    """Let hopeless tuples compete again, because the model has changed."""
    for pool in range(policy.length.shape[0]):
        slot, _ = front(policy.hopeless, policy.hopeless.queue, store, pool)
        while slot != 0:
            _compete(policy, store, slot, pool)
            slot, _ = front(policy.hopeless, policy.hopeless.queue, store, pool)


@jit
def _reweigh(policy, r):
    """Set exponential weights to the current alpha and rates, and rebuild the tables."""
    outlook = policy.outlook
    if outlook.ints[r, EXPONENTIAL] != 0:
        alpha = policy.moments[COMMON_ALPHA]
        learning = policy.counters[LEARNING] + policy.counters[LEARNING + 1] != 0
        if learning and policy.seen[r] > 0:
            alpha *= 2.0 * policy.seen[r] / (policy.seen[0] + policy.seen[1])
        else:
            alpha *= policy.stretch[r]
        set_exponential(outlook, r, max(alpha, 0.1), LEARNT_LEFT_OUT if learning else 1e-6)
    build(outlook, r)


@jit
def _observe(policy):
    """Set alpha to the average lifetime of evicted tuples, if that has changed by a tenth."""
    moments = policy.moments
    if moments[GONE] < 32.0:
        return
    lived = max(moments[LIVED] / moments[GONE], 1.05)
    if policy.counters[BUCKETS] != 0:
        inverse = 0.5 * (mean_inverse(policy.buckets[0]) + mean_inverse(policy.buckets[1]))
        lived = max(1.0 / inverse, 1.05) if inverse > 0.0 else lived
    moments[LIVED] = 0.0
    moments[GONE] = 0.0
    room = (policy.outlook.weight.shape[1] - 1) / 9.3
    target = min(-1.0 / math.log(1.0 - 1.0 / lived), room, MOST_ALPHA)
    alpha = 0.5 * (moments[COMMON_ALPHA] + target)
    if abs(alpha - moments[COMMON_ALPHA]) > 0.1 * moments[COMMON_ALPHA]:
        moments[COMMON_ALPHA] = alpha
        for r in range(2):
            _reweigh(policy, r)


@open_key.on(HeebState)
def _open_key(policy, store, entry):
    value = value_of(policy, store.k64[entry, KEY])
    store.k64[entry, USE] = locate(policy.outlook, 1, value)
    store.k64[entry, USE + 1] = locate(policy.outlook, 0, value)


@before_tick.on(HeebState)
def _before_tick(policy, store):
    if policy.counters[TICKING] != 0 and policy.moments[STARTED] == 0.0:  # the first tick was dropped whole
        _begin(policy, np.float64(store.clock[0]))
    policy.counters[TICK] += 1


@score.on(Hopeless)
def _arrival(hopeless, store, slot):
    return np.float64(store.t64[slot, ARRIVAL])


@filed.on(Hopeless)
def _waits(hopeless, store, slot):
    """Remove tuples from the queue that compete again."""
    return store.t32[slot, PLACE] == WAITING


@jit
def _is_hopeless(policy, stream, at):
    """Whether a value will certainly not occur in the other stream any more."""
    r = 1 - stream
    outlook, kind, now = policy.outlook, policy.outlook.kind[r], _time(policy, r)
    if kind == TREND:
        slope, ints = outlook.par[r, A], outlook.ints[r]
        offset = at - center(outlook, r, now + 1) - ints[LOW]
        return (slope > 0.0 and offset < 0) or (slope < 0.0 and offset >= ints[WIDTH])
    if kind == STATIC:
        return at < 0 or outlook.noise[r, at] == 0.0
    return kind == KNOWN and (at < 0 or outlook.spots[r, outlook.starts[r, at + 1] - 1] <= now)


@jit
def _compete(policy, store, slot, pool):
    """Add a tuple to the competing ones."""
    place = policy.length[pool]
    policy.members[pool, place] = slot
    store.t32[slot, PLACE] = place
    store.t32[slot, NODE] = -1
    policy.length[pool] = place + 1


@jit
def _withdraw(policy, store, slot, pool, state):
    """Remove a tuple from the competing ones; its place stores the reason."""
    place, end = store.t32[slot, PLACE], policy.length[pool] - 1
    moved = policy.members[pool, end]
    policy.members[pool, place] = moved
    store.t32[moved, PLACE] = place
    store.t32[slot, PLACE] = state
    policy.length[pool] = end


@enter.on(HeebState)
def _enter(policy, store, slot):
    stream = store.t32[slot, STREAM]
    pool = store.pool_of[stream]
    if policy.counters[ALL] == 0 and store.k32[store.t32[slot, ENTRY], HEAD + stream] != slot:
        store.t32[slot, PLACE] = APART
        return
    _compete(policy, store, slot, pool)
    if policy.counters[WAY] == VALUED:
        r = 1 - stream
        at = store.k64[store.t32[slot, ENTRY], USE + stream]
        left = _steps_left(store, stream, store.time[slot, TIME], _pace(policy, store, stream, r))
        if left >= last_step(policy.outlook, r, at, _time(policy, r)):
            found = _from_neighbour(policy, store, stream, r, at, left)
            store.f64[slot, BASE] = found / policy.factor[r]
            store.t32[slot, NODE] = _time(policy, r) & LOW_BITS


@leave.on(HeebState)
def _leave(policy, store, slot):
    stream = store.t32[slot, STREAM]
    pool = store.pool_of[stream]
    if store.t32[slot, PLACE] >= 0:
        _withdraw(policy, store, slot, pool, APART)
    after = store.t32[slot, NEXT]
    if after != 0 and store.t32[slot, PREV] == 0 and store.t32[after, PLACE] == APART:
        _compete(policy, store, after, pool)
    if policy.counters[OBSERVING] != 0:
        age = np.float64(store.clock[stream] - store.time[slot, TIME])
        pace = 0.5 * (_pace(policy, store, stream, 0) + _pace(policy, store, stream, 1))
        policy.moments[LIVED] += age * pace
        policy.moments[GONE] += 1.0
        r = 1 - stream
        if policy.counters[FITTED + r] != NONE:
            at = store.k64[store.t32[slot, ENTRY], USE + stream]
            now = offset_of(policy.outlook, r, at, policy.last[r], policy.seen[r] - 1)
            drift = policy.outlook.par[r, A] if policy.outlook.kind[r] == TREND else 0.0
            observe_lifetime(policy.buckets[r], now + drift * age * pace, age * pace)


@jit
def _present(policy, store, slot, pace):
    stream = np.int64(store.t32[slot, STREAM])
    at = store.k64[store.t32[slot, ENTRY], USE + stream]
    left = _steps_left(store, stream, store.time[slot, TIME], pace)
    way = policy.counters[WAY]
    if way in (TIMED, VALUED):
        return _carried(policy, store, slot, 1 - stream, at, left)
    return _benefit(policy, 1 - stream, at, left)


@score.on(HeebState)
def _score(policy, store, slot):
    stream = np.int64(store.t32[slot, STREAM])
    return _present(policy, store, slot, _pace(policy, store, stream, 1 - stream))


@newcomer.on(HeebState)
def _newcomer(policy, store, stream, entry):
    r = 1 - stream
    at = store.k64[entry, USE + stream]
    left = _steps_left(store, stream, store.entering[0], _pace(policy, store, stream, r))
    way, head = policy.counters[WAY], store.k32[entry, HEAD + stream]
    if way in (TIMED, VALUED) and head != 0 and left >= last_step(policy.outlook, r, at, _time(policy, r)):
        return _carried(policy, store, head, r, at, left)  # bit for bit equal to that of its key
    if way == VALUED:
        return _from_neighbour(policy, store, stream, r, at, left)
    return _benefit(policy, r, at, left)


@lowest.on(HeebState)
def _lowest(policy, store, pool):
    pace_left, pace_right = _pace(policy, store, 0, 1), _pace(policy, store, 1, 0)
    best, low, arrival = np.int64(0), 0.0, np.int64(0)
    i = 0
    while i < policy.length[pool]:
        slot = np.int64(policy.members[pool, i])
        stream = np.int64(store.t32[slot, STREAM])
        if _is_hopeless(policy, stream, store.k64[store.t32[slot, ENTRY], USE + stream]):
            _withdraw(policy, store, slot, pool, WAITING)
            number = np.float64(store.t64[slot, ARRIVAL])
            file_newcomer(policy.hopeless.queue, store, pool, slot, number)
            continue
        found = _present(policy, store, slot, pace_left if stream == 0 else pace_right)
        number = store.t64[slot, ARRIVAL]
        if best == 0 or found < low or (found == low and number < arrival):
            best, low, arrival = slot, found, number
        i += 1
    waiting, _ = front(policy.hopeless, policy.hopeless.queue, store, pool)
    if waiting != 0 and (best == 0 or low > 0.0 or store.t64[waiting, ARRIVAL] < arrival):
        return np.int64(waiting), 0.0
    return best, low
