# %% [markdown]
# # A cache in front of a database
#
# Every click has a product number, and the name and the price are in a table of a
# database. Asking the database for each click is slow, and the table does not fit in
# memory. `LookupCache` keeps a part of the table and asks for the rest, all missing
# keys of a batch at once.

# %%
import sqlite3

import numpy as np
from matplotlib import pyplot as plt

import penstock as ps
from penstock.workloads import zipf_probabilities

with sqlite3.connect("shop.db") as database:
    database.execute(
        "CREATE TABLE products (id INTEGER PRIMARY KEY, name TEXT, price REAL)"
    )
    rows = [(i, f"product {i}", round(1 + i % 97 / 10, 2)) for i in range(5_000)]
    database.executemany("INSERT INTO products VALUES (?, ?, ?)", rows)

# %% [markdown]
# Some products are far more popular than others, and a part of the clicks goes to what
# is on offer this hour.

# %%
rng = np.random.default_rng(5)
popular = rng.choice(5_000, 40_000, p=zipf_probabilities(5_000, 0.9))
hour = np.arange(40_000) // 4_000
on_offer = 500 * hour + rng.integers(0, 60, 40_000)
clicks = {"product": np.where(rng.random(40_000) < 0.3, on_offer, popular)}
print(f"{len(np.unique(clicks['product'])):,} of 5,000 products are asked for")

# %% [markdown]
# ## How large must the cache be?
#
# `plan_lookup` replays the requests with several sizes and policies. `lfd` knows the
# future: it shows what is possible at best.

# %%
plan = ps.plan_lookup(
    clicks["product"],
    sizes=[50, 100, 200, 500, 1_000],
    policies=["lru", "lfu", "gdj", "clock-exp", "lfd"],
    target=0.6,
)
plan.table.round(2)

# %%
fig, ax = plt.subplots()
for policy, rates in plan.table.iterrows():
    style = {"color": "grey", "ls": "--"} if policy == "lfd" else {"marker": "o"}
    ax.plot(rates.index, rates, label=policy, **style)
ax.axhline(plan.target, color="tab:red", lw=1, ls=":", label="target")
ax.set(xscale="log", xlabel="rows in the cache", ylabel="hits", ylim=(0, 1))
ax.legend(ncols=3)
plt.show()

# %%
print(f"{plan.answer.policy} needs {plan.answer.size} rows for {plan.target:.0%} hits")

# %% [markdown]
# ## The lookup
#
# With that cache, batches of 1,000 clicks are enriched. `stats` counts hits, misses,
# and the queries that were sent.

# %%
lookup = ps.LookupCache(
    ("sqlite:///shop.db", "products"),
    key="id",
    budget=ps.Tuples(plan.answer.size),
    policy=plan.answer.policy,
)
state = lookup.start()
hits = []
for first in range(0, 40_000, 1_000):
    before = state.stats.hits
    out = state.process(
        {"product": clicks["product"][first : first + 1_000]}, on="product"
    )
    hits.append((state.stats.hits - before) / 1_000)
stats = state.stats
print(f"{stats.hits:,} hits, {stats.misses:,} misses")
print(f"{stats.queries} queries for {stats.loads:,} rows")
out.slice(0, 3).to_pandas()

# %%
fig, ax = plt.subplots()
ax.plot(np.arange(1_000, 41_000, 1_000), hits)
for change in range(4_000, 40_000, 4_000):
    ax.axvline(change, color="grey", lw=0.6, ls=":")
ax.set(
    xlabel="clicks (dotted: other products are on offer)",
    ylabel="hits per batch",
    ylim=(0, 1),
)
plt.show()

# %% [markdown]
# One query per batch, however many keys are missing. Where other products are on
# offer, the cache has them within a batch.
#
# On Spark, [`lookup_join`](../lookup.md#on-spark) does the same for a streaming
# DataFrame. [Lookups](../lookup.md) has the options: what to do with missing keys, how
# long a row may age, and what to do while the database is away.

# %%
lookup.source.close()
