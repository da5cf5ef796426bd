# %% [markdown]
# # A join in a burst
#
# Two streams of a shop: products *shown* and products *clicked*. A click belongs to a
# showing of the same product that is at most five seconds away. Most of the time there
# are 40 rows a second on each side, but twice in this minute there are fifteen times
# as many. What does that do to the memory of the join, and what does a budget cost?

# %%
import numpy as np
from matplotlib import pyplot as plt

import penstock as ps
from penstock.workloads import bursty_pair

shown, clicked = bursty_pair(
    60, keys=400, rate=40, factor=15, bursts=2, burst_seconds=2, seed=1
)
shown.head(3)

# %% [markdown]
# ## Without a limit
#
# The exact join keeps every row until its window has passed. `log=True` notes when
# each row leaves, so that the number of buffered rows can be drawn over time.

# %%
ask = {"on": "key", "time": "ts"}
exact = ps.WindowJoin(within="5 s", budget=ps.Tuples(20_000), policy="fifo")
exact = exact.run(shown, clicked, **ask, log=True)
stats = exact.stats
print(f"{stats.results:,} results, at most {stats.peak_tuples:,} rows in memory")

# %%
seconds = np.sort(np.concatenate([shown.ts, clicked.ts])) / 1_000


def buffered(run):
    """The rows in memory after each arrival: those that came minus those that left."""
    left = np.bincount(run.events["step"], minlength=len(seconds))[: len(seconds)]
    return np.arange(1, len(seconds) + 1) - np.cumsum(left)


fig, ax = plt.subplots()
ax.plot(seconds, buffered(exact), color="tab:red")
ax.set(
    xlabel="seconds",
    ylabel="rows in memory",
    title="The exact join: memory follows the traffic",
    ylim=0,
)
plt.show()

# %% [markdown]
# ## With a budget
#
# Now there is room for 800 rows, less than a third of that peak. A policy decides
# which rows to evict. `fifo` evicts the oldest row, whatever it is. `prob` evicts the
# row whose key is rarest in the other stream.

# %%
runs = {}
for policy in ("fifo", "prob"):
    join = ps.WindowJoin(within="5 s", budget=ps.Tuples(800), policy=policy)
    runs[policy] = join.run(shown, clicked, **ask, log=True)
    stats = runs[policy].stats
    print(f"{policy}: recall {stats.recall:.0%}, {stats.evicted:,} rows evicted")
    assert stats.peak_tuples <= 800

# %%
fig, (above, below) = plt.subplots(2, 1, sharex=True, figsize=(8.4, 5))
above.plot(seconds, buffered(exact), color="tab:red", label="exact")
above.plot(
    seconds, buffered(runs["prob"]), color="tab:blue", label="budget of 800 rows"
)
above.set(ylabel="rows in memory", ylim=0)
above.legend()
for policy, run in runs.items():
    parts = run.stats.recalls(every=200)
    below.plot(seconds[::200][: len(parts)], parts, label=policy)
below.set(xlabel="seconds", ylabel="recall", ylim=(0, 1.05))
below.legend()
plt.show()

# %% [markdown]
# Outside the bursts nothing is lost. In a burst the budget holds, and recall falls:
# far with `fifo`, little with `prob`, which keeps the rows that are likely to match.
# Which policy is best depends on the stream, and [planning](planning.md) finds it.
#
# ## What is known while it runs
#
# On a stream nobody knows the exact number of results. A state that is started with
# `lateness=` estimates it from a sketch of the rows that left. Here it takes a second
# of arrivals at a time; on Spark a batch does the same.

# %%
stream = np.concatenate([np.zeros(len(shown), np.int8), np.ones(len(clicked), np.int8)])
key, ts = (
    np.concatenate([shown.key, clicked.key]),
    np.concatenate([shown.ts, clicked.ts]),
)
order = np.lexsort((stream, ts))
state = ps.WindowJoin(within="5 s", budget=ps.Tuples(800), policy="prob").start(
    lateness=0
)
estimated = []
for second in range(60):
    part = order[ts[order] // 1_000 == second]
    state.process(stream[part], key[part], ts[part], part)
    estimated.append(state.estimated_recall)
true = runs["prob"].stats.recall
print(f"estimated {estimated[-1]:.1%}, true {true:.1%}")
assert abs(estimated[-1] - true) < 0.05

# %%
fig, ax = plt.subplots()
ax.plot(np.arange(1, 61), estimated, label="estimated so far")
ax.axhline(true, color="tab:green", ls="--", label="true, at the end")
ax.set(xlabel="seconds", ylabel="recall", ylim=(0, 1.05))
ax.legend()
plt.show()

# %% [markdown]
# On Spark, [`PipelineMonitor`](../spark.md#see-the-loss) shows this figure for every
# batch, and [`reconcile`](../spark.md#recover-what-was-lost) recovers the missing
# results. The [tutorial](../tutorial.md) does both.
