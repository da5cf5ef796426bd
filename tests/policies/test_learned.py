"""What `learned` is for: near the best policy whichever that is, in fixed memory."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import penstock as ps
from penstock.errors import PolicyOptionError
from penstock.joins import arrivals_of
from penstock.reproduction.streams import streams


def recall(name: str, policy: str, budget: float = 0.2) -> float:
    [stream] = streams(names=[name], quick=True)
    join = ps.WindowJoin(stream.within, ps.Fraction(budget), policy=policy, warmup=stream.warmup)
    return join.run(stream.left, stream.right, on=stream.on, time="ts").stats.recall


@pytest.mark.parametrize("name", ["zipf", "gdj", "drift"])
def test_it_is_near_the_best_whichever_that_is(name: str) -> None:
    best = max(recall(name, policy) for policy in ("lru", "prob"))
    assert recall(name, "learned") > 0.95 * best


def test_it_learns_what_comes_and_goes() -> None:
    """Keys are hot for a while and never again: the count since the beginning says nothing."""
    random = np.random.default_rng(1)
    n = 12_000
    hot = np.arange(n) // 300
    key = np.where(random.random(n) < 0.7, hot - (random.random(n) < 0.5), 10_000 + random.integers(0, 40, n))
    ts, left = np.arange(n), random.random(n) < 0.5
    sides = [pd.DataFrame({"key": key[mine], "ts": ts[mine]}) for mine in (left, ~left)]
    found = {
        policy: ps.WindowJoin(1_000, ps.Tuples(200), policy=policy)
        .run(*sides, on="key", time="ts")
        .stats.results
        for policy in ("learned", "prob", "lru")
    }
    assert found["learned"] > 1.2 * found["prob"]
    assert found["learned"] > 0.95 * found["lru"]


def prices(n: int = 6_000, symbols: int = 3) -> list[pd.DataFrame]:
    """Offers and bids of several symbols, whose prices walk each on its own."""
    random = np.random.default_rng(3)
    symbol = random.integers(0, symbols, n)
    price = np.zeros(n)
    for each in range(symbols):
        mine = symbol == each
        price[mine] = 100 * each + np.cumsum(random.choice([-0.25, 0, 0.25], mine.sum()))
    price += 0.25 * random.integers(-2, 3, n)
    frame = pd.DataFrame({"symbol": np.array(["a", "b", "c"])[symbol], "price": price, "ts": np.arange(n)})
    left = random.random(n) < 0.5
    return [frame[left], frame[~left]]


def test_it_looks_at_how_near_prices_are() -> None:
    """The same prices in an order without sense are keys and nothing else."""
    sides = prices()
    shuffled = np.random.default_rng(4).permutation(10_000)
    odd = [side.assign(price=shuffled[(4 * side["price"]).astype(int) + 2_000].astype(str)) for side in sides]
    join = ps.WindowJoin(2_000, ps.Tuples(200), policy="learned", warmup=2_000)
    near, far = (join.run(*each, on=["symbol", "price"], time="ts").stats for each in (sides, odd))
    assert near.exact == far.exact
    assert near.results > 1.02 * far.results
    assert near.peak_bytes > far.peak_bytes  # the list of places is told


@pytest.mark.parametrize("policy", ["learned", "auto"])
def test_whole_numbers_need_no_list(policy: str) -> None:
    """So that they may be near to each other under a budget of bytes and on streams, whatever the batches."""
    sides = [side.assign(key=(4 * side["price"]).astype(int))[["key", "ts"]] for side in prices(3_000)]
    join = ps.WindowJoin(1_000, ps.Tuples(100), policy=policy)
    whole = join.run(*sides, on="key", time="ts").stats
    arrivals = arrivals_of(*sides, "key", "ts")
    key, places = arrivals.placed(listed=False)
    assert places is not None
    for numeric, same in ((True, True), (False, False)):
        state = join.start(numeric=numeric)
        for cut in np.array_split(np.arange(len(arrivals)), 7):
            state.process(arrivals.stream[cut], key[cut], arrivals.time[cut], arrivals.row[cut])
            state = type(state).restore(state.snapshot())
        assert (state.totals()["results"] == whole.results) is same
    bounded = ps.WindowJoin(1_000, ps.Bytes("600 KiB"), policy=policy).run(*sides, on="key", time="ts").stats
    assert bounded.peak_bytes <= 600 << 10


@pytest.mark.parametrize("options", ["span=0", "span=x", "memory=1", "memory=-3"])
def test_options_out_of_range_are_refused(options: str) -> None:
    with pytest.raises(PolicyOptionError, match="learned"):
        ps.policies.get(f"learned:{options}")


def test_its_memory_does_not_grow_with_the_keys() -> None:
    state = ps.WindowJoin(50, ps.Tuples(20), policy="learned").start()
    sizes = []
    for first in range(0, 30_000, 10_000):
        n = np.arange(first, first + 10_000)
        state.process(n % 2, n, n, n)
        sizes.append(state.peak_bytes)
    assert len(set(sizes)) == 1
    state.check()


@pytest.mark.parametrize("window", [ps.Rows(60), ps.Landmark(300), (0, 200)])
@pytest.mark.parametrize("allocation", ["equal", "proportional", "unified"])
def test_every_window_and_allocation(window: object, allocation: str) -> None:
    random = np.random.default_rng(2)
    n = 2_000
    table = {"key": random.zipf(1.4, n) % 50, "ts": np.sort(random.integers(0, 5_000, n))}
    for step in ("arrival", "tick"):
        join = ps.WindowJoin(window, ps.Tuples(30), policy="learned", allocation=allocation, step=step)
        stats = join.run(table, table, on="key", time="ts").stats
        assert 0 < stats.results < stats.exact
