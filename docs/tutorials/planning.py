# %% [markdown]
# # How much memory, and which policy?
#
# Before you give a join a budget, run it on a sample of your streams with many
# budgets. That takes seconds, and it answers two questions: how much memory does the
# recall that you want need, and under which policy?

# %%
from matplotlib import pyplot as plt

import penstock as ps
from penstock import locality
from penstock.workloads import gdj_pair

shown, bought = gdj_pair(keys=200, rate=4, seed=3)  # a day; times are minutes
print(f"{len(shown):,} and {len(bought):,} rows")

# %% [markdown]
# ## Look at the stream first
#
# A policy can be better than chance only if keys repeat. They do so in two ways. Some
# keys are *popular* all the time, and keys come in *clusters*: one that has just been
# there is likely to come again. `locality` measures both.

# %%
locality.plot_locality(shown.key, shown.ts)

# %%
summary = locality.summary(shown.key)
print("policies to try first:", ", ".join(summary.policies))

# %% [markdown]
# ## The plan
#
# Budgets may be numbers of rows, bytes, or shares of what the exact join keeps at the
# average rate. `target` asks for the smallest budget that reaches a recall, between
# the budgets of the table, too.

# %%
plan = ps.plan(
    shown,
    bought,
    on="key",
    time="ts",
    within=60,
    budgets=["5 %", "10 %", "20 %", "40 %", "60 %", "100 %"],
    policies=["fifo", "lru", "prob", "gdj", "opt"],
    target=0.9,
)
plan.table.round(2)

# %%
plan.plot()

# %% [markdown]
# `opt` is the optimum: it knows the future, and no policy can exceed it. If it is far
# above all others, a better policy would pay. If it is close, only memory helps.
# `locality` has looked at one stream alone and named candidates; the plan has joined
# both, so believe the plan.

# %%
answer = plan.answer
print(f"{answer.policy} reaches {answer.recall:.1%} with {answer.budget}")
for note in plan.notes:
    print("note:", note)

# %% [markdown]
# ## Does it hold on another day?
#
# A plan is a run on a sample, so try its answer on other data before you rely on it.

# %%
recalls = []
for seed in range(4, 10):
    another = gdj_pair(keys=200, rate=4, seed=seed)
    join = ps.WindowJoin(
        within=60, budget=ps.Tuples(answer.tuples), policy=answer.policy
    )
    recalls.append(join.run(*another, on="key", time="ts").stats.recall)
print(f"recall on six other days: {min(recalls):.1%} to {max(recalls):.1%}")

# %%
fig, ax = plt.subplots(figsize=(8.4, 2.4))
ax.barh(range(6), recalls, color="tab:blue")
ax.axvline(plan.target, color="tab:red", ls="--", label="target")
ax.set(
    yticks=range(6),
    yticklabels=[f"day {n}" for n in range(4, 10)],
    xlabel="recall",
    xlim=(0, 1),
)
ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=1)
plt.show()

# %% [markdown]
# The budget was the smallest that reaches the target on one day, so on other days
# recall is a little above or below it. Give it a margin.
#
# The same on the command line, for two files whose times are timestamps:
#
#     penstock plan shown.parquet bought.parquet --on key --time ts --within "60 minutes" --target 0.9
#
# [Choosing](../choosing.md) says what to do with the answer, and
# [operations](../operations.md#memory-of-an-executor) how much memory an executor
# needs beside it.
