# %% [markdown]
# # Event patterns
#
# A price that rises, falls and rises again within a minute, without a halt of trading
# in between: such a sentence is a pattern. Spark has no operator for it. Penstock
# finds patterns with sequence, alternatives and absence, nested to any depth.

# %%
import numpy as np
import pandas as pd
from matplotlib import pyplot as plt

import penstock as ps

rng = np.random.default_rng(11)
n = 240
ts = np.cumsum(rng.integers(2, 8, n))  # seconds
price = 100 + np.cumsum(rng.normal(0, 0.35, n))
step = np.diff(price, prepend=price[0])
kind = np.select([step > 0.25, step < -0.25], ["UP", "DOWN"], "flat")
kind[rng.choice(n, 8, replace=False)] = "HALT"
events = pd.DataFrame({"kind": kind, "ts": ts * 1_000, "price": price})
events.kind.value_counts()

# %% [markdown]
# ## The pattern
#
# `SEQ` puts events in order, `!` excludes one between its neighbours, and predicates
# compare attributes. Times are milliseconds.

# %%
pattern = ps.Pattern.parse("""
    PATTERN SEQ(UP a, !HALT, DOWN b, !HALT, UP c, c.price > a.price)
    WITHIN 1 minute
    RETURN a.price AS first, b.price AS low, c.price AS last
""")
print(pattern.explain())

# %%
run = pattern.run(events, type="kind", time="ts")
print(run.stats.matches, "matches")
run.matches.to_pandas().head().round(2)

# %% [markdown]
# Without `RETURN` a match has the row numbers of its events, so it can be drawn:

# %%
places = ps.Pattern.parse(
    "PATTERN SEQ(UP a, !HALT, DOWN b, !HALT, UP c, c.price > a.price) WITHIN 1 minute"
).run(events, type="kind", time="ts")
assert places.stats.matches == run.stats.matches

fig, ax = plt.subplots()
ax.plot(ts, price, color="grey", lw=0.8)
for match in places.matches.to_pylist():
    at = [match["a"], match["b"], match["c"]]
    ax.plot(ts[at], price[at], color="tab:blue", alpha=0.5, marker="o", ms=4)
for halt in ts[kind == "HALT"]:
    ax.axvline(halt, color="tab:red", lw=1, ls=":")
ax.set(
    xlabel="seconds (dotted: HALT)",
    ylabel="price",
    title="Every match, from its first rise to its last",
)
plt.show()

# %% [markdown]
# No match crosses a dotted line. All combinations match: two rises before the same
# fall are two matches.
#
# ## What absence changes
#
# The same pattern with and without its negations, and with windows of several lengths.
# `count_only=True` counts matches without building them.

# %%
windows = [10, 20, 30, 45, 60, 90, 120]
counts = {"with !HALT": [], "without": []}
for seconds in windows:
    for name, halt in (("with !HALT", "!HALT, "), ("without", "")):
        text = (
            f"PATTERN SEQ(UP a, {halt}DOWN b, {halt}UP c, c.price > a.price) "
            f"WITHIN {seconds} s"
        )
        found = ps.Pattern.parse(text).run(
            events, type="kind", time="ts", count_only=True
        )
        counts[name].append(found.stats.matches)

fig, ax = plt.subplots()
for name, values in counts.items():
    ax.plot(windows, values, "o-", label=name)
ax.set(xlabel="window in seconds", ylabel="matches", ylim=0)
ax.legend()
plt.show()
assert all(few <= many for few, many in zip(*counts.values(), strict=True))

# %% [markdown]
# ## On a stream
#
# `start()` gives a state that takes batches in order of time; `match_pattern` runs it
# on Spark. Batches change nothing:

# %%
state = pattern.start(type="kind", time="ts")
found = sum(
    state.process(events[first : first + 40]).num_rows for first in range(0, n, 40)
)
print(found, "matches in batches,", run.stats.matches, "in one run")
assert found == run.stats.matches

# %% [markdown]
# [Event patterns](../patterns.md) has the whole language, and
# [`match_pattern`](../patterns.md#on-spark) for Spark.
