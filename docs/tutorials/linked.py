# %% [markdown]
# # A query over linked data
#
# Weather stations send triples such as `<station7> <reports> 12`, each with a time.
# Which stations have measured the same wind at almost the same moment? That is a query
# over a stream of RDF, which keeps the triples that may still find a partner.

# %%
import pandas as pd
from matplotlib import pyplot as plt

import penstock as ps
from penstock.workloads import sensor_bursts

readings = sensor_bursts(60, 1_000, seed=4)
triples = pd.DataFrame(
    {
        "s": "station" + readings.station.astype(str),
        "p": "reports",
        "o": readings.windspeed,
        "start": readings.ts,
    }
)
triples.head(3)

# %% [markdown]
# ## The query
#
# `WHERE` says what is joined, and `CONTEXT` how far apart the times may be. From the
# context follows how long a triple can be of use: `explain()` shows it.

# %%
query = ps.StreamQuery.parse("""
    SELECT ?a ?b ?wind FROM STREAM stations
    WHERE {
        ?a reports ?wind ?T1 .
        ?b reports ?wind ?T2 .
        FILTER (?a != ?b) .
        FILTER (?wind >= 10) .
    }
    CONTEXT ((?T1 - ?T2) <= 200^^xsd:millisecond) .
""")
print(query.explain())

# %%
run = query.run({"stations": triples}, budget=ps.Tuples(1_000), policy="lru")
print(f"{run.stats.results:,} rows, all of them: {run.stats.recall == 1}")
run.rows.slice(0, 3).to_pandas()

# %% [markdown]
# ## Less memory
#
# A triple is worth keeping if others with its wind are about to come. Stations of one
# region report together, so a triple that has just matched is likely to match again.

# %%
budgets = [5, 10, 20, 40, 60]
recalls = {}
for policy in ("fifo", "lru", "prob"):
    recalls[policy] = [
        query.run(
            {"stations": triples}, budget=ps.Tuples(n), policy=policy
        ).stats.recall
        for n in budgets
    ]
pd.DataFrame(recalls, index=budgets).rename_axis("triples in memory").round(2)

# %%
fig, ax = plt.subplots()
for policy, values in recalls.items():
    ax.plot(budgets, values, "o-", label=policy)
ax.set(xlabel="triples in memory", ylabel="recall", ylim=(0, 1.05))
ax.legend()
plt.show()

# %% [markdown]
# `auto`, the default, follows the policy that does best on a sample. On Spark,
# `stream_query` runs the same text over streaming DataFrames.
# [Linked-data streams](../linked.md) has the language, facts with a validity, files of
# triples and background knowledge.
