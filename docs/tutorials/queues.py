# %% [markdown]
# # A queue in front of Spark
#
# Some streams must not lose a row. If a burst is more than Spark can take, the rows
# have to wait somewhere: in memory as long as there is room, on disk after that, and
# in order. `SpillQueue` is such a queue, with a fixed amount of memory.

# %%
import numpy as np
import pyarrow as pa
from matplotlib import pyplot as plt

import penstock as ps
from penstock.queues import QueueClient, QueueServer, compare

rng = np.random.default_rng(2)
ticks = 120
arriving = rng.poisson(30, ticks)
arriving[30:45] += 400  # a burst
arriving[80:85] += 700
print(f"{arriving.sum():,} items arrive, up to {arriving.max()} in a tick")
print("120 are taken in a tick")

# %% [markdown]
# ## Memory that does not grow
#
# Items of 1 KiB each. The queue may keep 1 MiB in memory; everything else waits on
# disk.

# %%
memory, disk, waiting = [], [], []
taken = []
with ps.SpillQueue("spool", memory="1 MiB") as queue:
    number = 0
    for count in arriving:
        queue.put_many(
            b"%08d" % i + bytes(1_016) for i in range(number, number + count)
        )
        number += count
        taken += [int(item[:8]) for item in queue.get_many(120)]
        stats = queue.stats()
        memory.append(stats.memory / 2**20)
        waiting.append(len(queue))
        disk.append(waiting[-1] / 2**10 - memory[-1])
assert taken == list(range(len(taken)))  # in order, and none is lost
print(f"up to {max(waiting):,} items waited, {max(memory):.2f} MiB of them in memory")

# %%
fig, ax = plt.subplots()
ax.stackplot(
    range(ticks),
    memory,
    np.maximum(disk, 0),
    labels=["in memory", "on disk"],
    colors=["tab:blue", "0.6"],
)
ax.axhline(1, color="tab:red", lw=1, ls="--", label="memory limit")
ax.set(xlabel="tick", ylabel="MiB waiting")
ax.legend()
plt.show()

# %% [markdown]
# ## What the algorithm saves
#
# Moving items costs reads and writes. `compare` simulates the algorithms on counts
# alone, here on a short stream with a memory of 8 items, and compares them with the
# cheapest schedule, or a bound on it.

# %%
found = compare(np.minimum(arriving // 60, 9)[25:90], ["half", "greedy"], memory=8)
for row in found.rows():
    cost, written = row["cost"], row["tuples_written"]
    print(f"{row['planner']:7}{cost:4.0f} accesses, {written} items written")
print(f"{'best' if found.exact else 'bound':7}{found.best:4.0f} accesses")

# %% [markdown]
# ## Into Spark
#
# A server puts queues on the network, and Spark reads them as a streaming source. The
# producer sends everything at once; `maxRowsPerTrigger` bounds what a batch takes.

# %%
from pyspark.sql import SparkSession

from penstock.spark import register_queue_source

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.sql.shuffle.partitions", "2")
    .getOrCreate()
)
register_queue_source(spark)
server = QueueServer(
    "served", memory="1 MiB"
)  # in a process of its own: penstock queues serve served
batch = pa.record_batch({"n": np.arange(20_000), "payload": rng.random(20_000)})
with (
    QueueClient(server.location) as client,
    client.producer("rows", batch.schema, name="till 7") as producer,
):
    producer.put(batch)

rows = (
    spark.readStream.format("penstock_queue")
    .option("location", server.location)
    .option("queue", "rows")
    .option("maxRowsPerTrigger", 6_000)
    .load()
)
query = (
    rows.writeStream.format("memory")
    .queryName("queue_rows")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
print(f"{spark.table('queue_rows').count():,} rows in the table")

# %%
sizes = [progress["numInputRows"] for progress in query.recentProgress]
server.close()
fig, ax = plt.subplots(figsize=(8.4, 2.4))
ax.bar(range(1, len(sizes) + 1), sizes, color="tab:blue")
ax.axhline(6_000, color="tab:red", lw=1, ls="--")
ax.set(
    xlabel="batch",
    ylabel="rows",
    xticks=range(1, len(sizes) + 1),
    title="Batches of a bounded size",
)
plt.show()
assert sum(sizes) == 20_000

# %% [markdown]
# Together with Spark's checkpoint every row is processed exactly once.
# [Queues](../queues.md) has durable queues, several queues in one memory, and what
# survives a crash.
