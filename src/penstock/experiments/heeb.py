"""Section 8 of Xie, Yang and Chen 2005: TOWER, ROOF, FLOOR, WALK and REAL, histograms and allocation.

Results are those from memory: tuples of one tick match without it. All policies see the same streams.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

import penstock as ps
from penstock import models
from penstock.errors import PenstockError
from penstock.experiments.base import Experiment, Options
from penstock.experiments.heeb_claims import CLAIMS
from penstock.experiments.heeb_curves import FIGURES
from penstock.experiments.heeb_real import figure_15
from penstock.experiments.heeb_rivals import LASTS, from_memory_knowing
from penstock.kernels.layout import ARRIVAL, STREAM
from penstock.workloads import floor, roof, tower, trends, walk

MEMORY = 10
SIZES = (2, 5, 10, 20, 30, 50)  # a join has one tuple per stream at least
LIFETIME = 12.5  # half of the bounds 10 and 15, the paper's estimate
LOOKAHEAD = 20
FLOWEXPECT_RUNS = 5  # a flow a step takes its time
FOREVER = 10**9

Pair = tuple[models.Model, models.Model]


def _normal(left: float, right: float, lag: int = 1) -> Pair:
    return (
        models.LinearTrend(1, -lag, models.BoundedNormal(left, 10)),
        models.LinearTrend(1, 0, models.BoundedNormal(right, 15)),
    )


CONFIGURATIONS: dict[str, tuple[Callable[..., Any], Pair]] = {
    "TOWER": (tower, _normal(1, 2)),
    "ROOF": (roof, _normal(3.3, 5)),
    "FLOOR": (
        floor,
        (
            models.LinearTrend(1, -1, models.BoundedUniform(10)),
            models.LinearTrend(1, 0, models.BoundedUniform(15)),
        ),
    ),
    "WALK": (walk, (models.RandomWalk(0, 1), models.RandomWalk(0, 1))),
}


def from_memory(policy: Any, left: Any, right: Any, memory: int = MEMORY) -> int:
    """Results of a run that needed memory, after a warm-up of four times its size.

    >>> from penstock.experiments.heeb import from_memory
    >>> from penstock.workloads import tower
    >>> left, right = tower(steps=300)
    >>> from_memory("opt", left, right) > from_memory("rand", left, right)
    True
    """
    join = ps.WindowJoin(
        within=FOREVER,
        budget=ps.Tuples(memory),
        policy=policy,
        step="tick",
        allocation="unified",
        warmup=4 * memory,
    )
    stats = join.run(left, right, on="key", time="ts").stats
    return int(stats.results - stats.same_tick)


def heeb_for(name: str, memory: int = MEMORY) -> ps.policies.Heeb:
    """HEEB as section 7 has it for a configuration: alpha by the lifetime, or of the size for a walk.

    >>> from penstock.experiments.heeb import heeb_for
    >>> heeb_for("WALK", 20).alpha
    20
    """
    left, right = CONFIGURATIONS[name][1]
    if name == "WALK":
        return ps.policies.Heeb(left=left, right=right, alpha=memory)
    return ps.policies.Heeb(left=left, right=right, lifetime=LIFETIME)


def _entrants(name: str, memory: int, flowexpect: bool) -> dict[str, Callable[[Any, Any, int], int]]:
    """The algorithms of Figure 8 for a configuration, and HEEB that learns; each counts the results."""

    def known(policy: str) -> Callable[[Any, Any, int], int]:
        return lambda left, right, seed: from_memory_knowing(
            policy, left, right, memory, None if name == "WALK" else LASTS, seed
        )

    def run(policy: Any) -> Callable[[Any, Any, int], int]:
        return lambda left, right, seed: from_memory(policy, left, right, memory)

    found = {"RAND": known("rand"), "PROB": known("prob")}
    if name != "WALK":  # which has no window
        found["LIFE"] = known("life")
    found["HEEB"] = run(heeb_for(name, memory))
    found["HEEB, learnt"] = run("heeb")
    found["HIST"] = run("heeb-hist")
    if flowexpect:
        one, other = CONFIGURATIONS[name][1]
        found["FLOWEXPECT"] = run(ps.policies.FlowExpect(left=one, right=other, lookahead=LOOKAHEAD))
    found["OPT"] = run("opt")
    return found


def figure_8(options: Options) -> pd.DataFrame:
    """All algorithms on all synthetic configurations, memory for 10 tuples.

    >>> from penstock.experiments import Options
    >>> from penstock.experiments.heeb import figure_8
    >>> table = figure_8(Options(quick=True, runs=1))  # doctest: +SKIP
    """
    runs = options.repeated(50, 3)
    steps = 1_000 if options.quick else 5_000
    rows: list[dict[str, Any]] = []
    tasks = [(name, policy) for name in CONFIGURATIONS for policy in _entrants(name, MEMORY, flowexpect=True)]
    for done, (name, policy) in enumerate(tasks):
        options.report(done, len(tasks), f"{name}, {policy}")
        count = min(runs, 1 if options.quick else FLOWEXPECT_RUNS) if policy == "FLOWEXPECT" else runs
        play = _entrants(name, MEMORY, flowexpect=True)[policy]
        found = [
            _play(play, name, 200 if options.quick and policy == "FLOWEXPECT" else steps, seed)
            for seed in range(count)
        ]
        rows.append(_row(name, policy, MEMORY, found))
    return _with_shares(pd.DataFrame(rows))


def figures_9_to_12(options: Options) -> pd.DataFrame:
    """The same over the size of the memory, without FLOWEXPECT."""
    runs, steps = options.repeated(50, 2), 1_000 if options.quick else 5_000
    sizes = (2, 10, 50) if options.quick else SIZES
    rows = []
    tasks = [(name, memory) for name in CONFIGURATIONS for memory in sizes]
    for done, (name, memory) in enumerate(tasks):
        options.report(done, len(tasks), f"{name}, memory {memory}")
        for policy, play in _entrants(name, memory, flowexpect=False).items():
            found = [_play(play, name, steps, seed) for seed in range(runs)]
            rows.append(_row(name, policy, memory, found))
    return _with_shares(pd.DataFrame(rows))


def figures_13_14(options: Options) -> pd.DataFrame:
    """HIST with 10 buckets beside HEEB that is told the parameters, with low and high noise.

    >>> from penstock.experiments import Options
    >>> from penstock.experiments.heeb import figures_13_14
    >>> table = figures_13_14(Options(quick=True, runs=1))
    >>> set(table.policy) == {"HEEB", "HIST", "RAND"}
    True
    """
    runs, steps = options.repeated(50, 2), 1_000 if options.quick else 5_000
    rows = []
    tasks = [(sd, memory) for sd in (1.0, 8.0) for memory in (5, 10, 20, 50)]
    for done, (sd, memory) in enumerate(tasks):
        options.report(done, len(tasks), f"noise {sd:g}, memory {memory}")
        left, right = _normal(sd, sd)
        policies = {
            "HEEB": ps.policies.Heeb(left=left, right=right, lifetime=LIFETIME),
            "HIST": ps.policies.HeebHist(form="trend", buckets=10),
            "RAND": "rand",
        }
        for name, policy in policies.items():
            found = [
                from_memory(policy, *trends(steps=steps, left_sd=sd, right_sd=sd, seed=seed), memory)
                for seed in range(runs)
            ]
            rows.append(_row(f"noise {sd:g}", name, memory, found))
    return pd.DataFrame(rows)


def figure_16(options: Options) -> pd.DataFrame:
    """The share of memory that HEEB gives to the left stream as it lags, or as the right one is noisier.

    >>> from penstock.experiments import Options
    >>> from penstock.experiments.heeb import figure_16
    >>> shares = figure_16(Options(quick=True, runs=1)).set_index("setting")["left share"]
    >>> bool(shares["left lags by 4"] < shares["alike"])
    True
    """
    runs, steps = options.repeated(50, 2), 500 if options.quick else 5_000
    settings = {
        "alike": (0, 1.0),
        "left lags by 2": (2, 1.0),
        "left lags by 4": (4, 1.0),
        "right has twice the noise": (0, 2.0),
        "right has four times the noise": (0, 4.0),
    }
    rows = []
    for done, (label, (lag, noise)) in enumerate(settings.items()):
        options.report(done, len(settings), label)
        left, right = _normal(1.0, noise, lag)
        policy = ps.policies.Heeb(left=left, right=right, lifetime=LIFETIME)
        found = [
            _left_share(policy, *trends(steps=steps, right_sd=noise, lag=lag, seed=seed))
            for seed in range(runs)
        ]
        rows.append({"setting": label, "left share": float(np.mean(found)), "runs": runs})
    return pd.DataFrame(rows)


def _left_share(policy: Any, left: pd.DataFrame, right: pd.DataFrame) -> float:
    """How much of the memory left tuples have, looked at every 20 steps."""
    join = ps.WindowJoin(
        within=FOREVER, budget=ps.Tuples(MEMORY), policy=policy, step="tick", allocation="unified"
    )
    state = join.start()
    shares = []
    for begin in range(0, len(left), 20):
        part = slice(begin, begin + 20)
        ts = left["ts"].to_numpy()[part]
        keys = np.column_stack([left["key"].to_numpy()[part], right["key"].to_numpy()[part]]).ravel()
        sides = np.tile(np.array([0, 1], np.int8), len(ts))
        state.process(sides, keys, np.repeat(ts, 2), np.repeat(ts, 2))
        if begin >= 4 * MEMORY:
            live = state.store.t64[:, ARRIVAL] >= 0
            live[0] = False
            of_left = int(np.count_nonzero(state.store.t32[live, STREAM] == 0))
            shares.append(of_left / max(1, state.buffered))
    return float(np.mean(shares))


def _play(play: Callable[[Any, Any, int], int], name: str, steps: int, seed: int) -> int:
    left, right = _streams(name, steps, seed)
    return play(left, right, seed)


@functools.lru_cache(maxsize=64)
def _streams(name: str, steps: int, seed: int) -> tuple[Any, Any]:
    left, right = CONFIGURATIONS[name][0](steps=steps, seed=seed)
    return left, right


def _row(name: str, policy: str, memory: int, found: list[int]) -> dict[str, Any]:
    if not found:
        raise PenstockError("An experiment needs one run at least.")
    return {
        "configuration": name,
        "policy": policy,
        "memory": memory,
        "results": float(np.mean(found)),
        "sd": float(np.std(found)),
        "runs": len(found),
    }


def _with_shares(table: pd.DataFrame) -> pd.DataFrame:
    """The share of the optimum that each reached; over all runs, so not where runs differ in number."""
    best = table[table.policy == "OPT"].set_index(["configuration", "memory"])
    key = pd.MultiIndex.from_frame(table[["configuration", "memory"]])
    same = table["runs"].to_numpy() == best["runs"].reindex(key).to_numpy()
    share = table["results"].to_numpy() / best["results"].reindex(key).to_numpy()
    return table.assign(of_optimum=np.where(same, share, np.nan))


EXPERIMENTS = (
    Experiment(
        "figure-8", "Results with memory for 10 tuples", figure_8, "policy", "configuration", "results"
    ),
    Experiment(
        "figures-9-12", "Share of OPT over the memory", figures_9_to_12, "configuration,policy", "memory",
        "of_optimum",
    ),
    Experiment(
        "figures-13-14", "Histograms, results over the memory", figures_13_14, "configuration,policy",
        "memory", "results",
    ),
    Experiment("figure-15", "REAL: hits over the memory", figure_15, "policy", "memory", "hits"),
    Experiment("figure-16", "Share of memory of the left stream", figure_16, "setting", "", "left share"),
)  # fmt: skip

__all__ = [
    "CLAIMS",
    "EXPERIMENTS",
    "FIGURES",
    "figure_8",
    "figure_15",
    "figure_16",
    "figures_9_to_12",
    "figures_13_14",
]
