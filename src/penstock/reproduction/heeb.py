"""Section 8 of Xie, Yang and Chen 2005: TOWER, ROOF, FLOOR, WALK and REAL, histograms and allocation.

Results are those from memory: tuples of one tick match without it. All policies see the same streams. A trial
is one run of one policy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

import penstock as ps
from penstock import models
from penstock.engine.store import ARRIVAL, STREAM
from penstock.reproduction.figure import Figure, Row, Scope, Trial
from penstock.reproduction.heeb_claims import judge_8, judge_9_to_12, judge_13_14, judge_16
from penstock.reproduction.heeb_curves import figure_2, figure_4, figure_5, figure_6
from penstock.reproduction.heeb_real import figure_15
from penstock.reproduction.heeb_rivals import LASTS, from_memory_knowing
from penstock.reproduction.plots import finish, lines, one_legend, panels
from penstock.reproduction.tables import draw
from penstock.workloads import floor, roof, tower, trends, walk

MEMORY = 10
SIZES = (2, 5, 10, 20, 30, 50)  # a join has one tuple per stream at least
RUNS = 50
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

    >>> from penstock.reproduction.heeb import from_memory
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

    >>> from penstock.reproduction.heeb import heeb_for
    >>> heeb_for("WALK", 20).alpha
    20
    """
    left, right = CONFIGURATIONS[name][1]
    if name == "WALK":
        return ps.policies.Heeb(left=left, right=right, alpha=memory)
    return ps.policies.Heeb(left=left, right=right, lifetime=LIFETIME)


def _entrants(name: str, memory: int = MEMORY) -> dict[str, Callable[[Any, Any, int], int]]:
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
    one, other = CONFIGURATIONS[name][1]
    found["FLOWEXPECT"] = run(ps.policies.FlowExpect(left=one, right=other, lookahead=LOOKAHEAD))
    found["OPT"] = run("opt")
    return found


# --- Trials -------------------------------------------------------------------------------------------


def played(configuration: str, policy: str, memory: int, steps: int, seed: int) -> list[Row]:
    """The results of one algorithm in one run.

    >>> from penstock.reproduction.heeb import played
    >>> heeb, rand = (played("TOWER", policy, 10, 300, 0)[0]["results"] for policy in ("HEEB", "RAND"))
    >>> heeb > rand
    True
    """
    left, right = _streams(configuration, steps, seed)
    found = _entrants(configuration, memory)[policy](left, right, seed)
    return [{"results": found, "per_step": found / (steps - 4 * memory)}]


@functools.lru_cache(maxsize=64)
def _streams(name: str, steps: int, seed: int) -> tuple[Any, Any]:
    left, right = CONFIGURATIONS[name][0](steps=steps, seed=seed)
    return left, right


def with_noise(noise: float, policy: str, memory: int, steps: int, seed: int) -> list[Row]:
    """The results of HEEB that is told the parameters, of HIST with 10 buckets, or of RAND.

    >>> from penstock.reproduction.heeb import with_noise
    >>> with_noise(1.0, "HIST", 10, 300, 0)[0]["configuration"]
    'noise 1'
    """
    left, right = _normal(noise, noise)
    policies = {
        "HEEB": ps.policies.Heeb(left=left, right=right, lifetime=LIFETIME),
        "HIST": ps.policies.HeebHist(form="trend", buckets=10),
        "RAND": "rand",
    }
    streams = trends(steps=steps, left_sd=noise, right_sd=noise, seed=seed)
    found = from_memory(policies[policy], *streams, memory)
    return [{"configuration": f"noise {noise:g}", "results": found}]


def allocated(setting: str, lag: int, noise: float, steps: int, seed: int) -> list[Row]:
    """The share of memory that HEEB gives to the left stream, which lags, or whose partner is noisier.

    >>> from penstock.reproduction.heeb import allocated
    >>> late, alike = (allocated("", lag, 1.0, 300, 0)[0]["left share"] for lag in (4, 0))
    >>> late < alike
    True
    """
    left, right = _normal(1.0, noise, lag)
    policy = ps.policies.Heeb(left=left, right=right, lifetime=LIFETIME)
    streams = trends(steps=steps, right_sd=noise, lag=lag, seed=seed)
    return [{"left share": _left_share(policy, *streams)}]


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


# --- Figures ------------------------------------------------------------------------------------------


def averaged(table: pd.DataFrame) -> pd.DataFrame:
    """The mean of the runs, and the share of the optimum, where that is of as many and as long runs.

    >>> import pandas as pd
    >>> from penstock.reproduction.heeb import averaged
    >>> rows = [("TOWER", policy, 10, 300, results) for policy, results in (("HEEB", 6), ("OPT", 8))]
    >>> table = pd.DataFrame(rows, columns=["configuration", "policy", "memory", "steps", "results"])
    >>> averaged(table).of_optimum.tolist()
    [0.75, 1.0]
    """
    by = table.groupby(["configuration", "policy", "memory"], sort=False)
    means = by.agg(results=("results", "mean"), runs=("results", "size"), steps=("steps", "max"))
    means = means.reset_index()
    best = means[means.policy == "OPT"].set_index(["configuration", "memory"])
    best = best.reindex(pd.MultiIndex.from_frame(means[["configuration", "memory"]])).reset_index()
    alike = (means.runs == best.runs) & (means.steps == best.steps)
    return means.assign(of_optimum=(means.results / best.results).where(alike))


def over_flows(table: pd.DataFrame) -> pd.Series:
    """HEEB's results over FLOWEXPECT's: in the runs that both have had, or else a step.

    >>> import pandas as pd
    >>> from penstock.reproduction.heeb import over_flows
    >>> rows = [("HEEB", 0, 6.0), ("HEEB", 1, 9.0), ("FLOWEXPECT", 0, 8.0)]
    >>> table = pd.DataFrame(rows, columns=["policy", "seed", "per_step"])
    >>> over_flows(table.assign(configuration="ROOF", steps=500)).to_dict()
    {'ROOF': 0.75}
    """
    heeb, flows = (table[table.policy == name] for name in ("HEEB", "FLOWEXPECT"))
    run = ["configuration", "steps", "seed"]
    shared = heeb.merge(flows[run], on=run)
    of_both = (shared if len(shared) == len(flows) else heeb, flows)
    ours, theirs = (part.groupby("configuration", sort=False).per_step.mean() for part in of_both)
    return ours / theirs


def _side_by_side(table: pd.DataFrame, value: str, label: str) -> Any:
    """Lines over the memory, a panel per configuration."""
    groups = list(table.groupby("configuration", sort=False))
    drawing, axes = panels(len(groups), width=max(3.2, 8 / len(groups)))
    for ax, (name, part) in zip(axes, groups, strict=True):
        lines(ax, part, "memory", value, "policy")
        finish(ax, str(name), "memory, tuples", label, ylim=(0, None))
    one_legend(drawing, axes)
    return drawing


def _runs(name: str, policy: str, memory: int, steps: int, runs: int) -> list[Trial]:
    given = {"configuration": name, "policy": policy, "memory": memory, "steps": steps}
    return [Trial(played, given | {"seed": seed}) for seed in range(runs)]


def _span(steps: int, runs: int) -> str:
    return f"{runs} run{'s' if runs > 1 else ''} of {steps:,} steps"


def figure_8(scope: Scope) -> Figure:
    """All algorithms on all synthetic configurations, memory for 10 tuples."""
    length = scope.pick((1_000, 3), full=(5_000, RUNS))
    flows = scope.pick((200, 1), full=(5_000, FLOWEXPECT_RUNS))
    trials = [
        trial
        for name in CONFIGURATIONS
        for policy in _entrants(name)
        for trial in _runs(name, policy, MEMORY, *(flows if policy == "FLOWEXPECT" else length))
    ]
    title, layout = "Results a step with memory for 10 tuples", ("policy", "configuration", "per_step")
    return Figure(
        "figure-8",
        title,
        "figure 8",
        trials,
        lambda table: draw(table, title, *layout, per_step="results a step after the warm-up"),
        lambda table: judge_8(
            table.groupby(["configuration", "policy"]).per_step.mean().reset_index(), over_flows(table)
        ),
        note=f"FLOWEXPECT solves a flow a step and has {_span(*flows)}; the others have {_span(*length)}.",
        layout=layout,
    )


def figures_9_to_12(scope: Scope) -> Figure:
    """The same over the size of the memory, without FLOWEXPECT."""
    steps, runs = scope.pick((1_000, 2), full=(5_000, RUNS))
    trials = [
        trial
        for name in CONFIGURATIONS
        for memory in scope.pick((2, 10, 50), full=SIZES)
        for policy in _entrants(name)
        if policy != "FLOWEXPECT"
        for trial in _runs(name, policy, memory, steps, runs)
    ]
    title = "Share of OPT over the memory"
    return Figure(
        "figures-9-12",
        title,
        "figures 9 to 12",
        trials,
        lambda table: _side_by_side(averaged(table), "of_optimum", "share of OPT"),
        lambda table: judge_9_to_12(averaged(table)),
        layout=("configuration,policy", "memory", "results"),
    )


def figures_13_14(scope: Scope) -> Figure:
    """Histograms that learn beside benefits that are computed, with low and high noise."""
    steps, runs = scope.pick((1_000, 2), full=(5_000, RUNS))
    trials = [
        Trial(with_noise, {"noise": noise, "policy": policy, "memory": memory, "steps": steps, "seed": seed})
        for noise in (1.0, 8.0)
        for memory in (5, 10, 20, 50)
        for policy in ("HEEB", "HIST", "RAND")
        for seed in range(runs)
    ]
    title, layout = "Histograms, results over the memory", ("configuration,policy", "memory", "results")
    return Figure(
        "figures-13-14",
        title,
        "figures 13 and 14",
        trials,
        lambda table: _side_by_side(averaged(table), "results", "results"),
        lambda table: judge_13_14(averaged(table)),
        layout=layout,
    )


def figure_16(scope: Scope) -> Figure:
    """The share of memory that HEEB gives to the left stream as it lags, or as the right one is noisier."""
    steps, runs = scope.pick((500, 2), full=(5_000, RUNS))
    settings = {
        "alike": (0, 1.0),
        "left lags by 2": (2, 1.0),
        "left lags by 4": (4, 1.0),
        "right has twice the noise": (0, 2.0),
        "right has four times the noise": (0, 4.0),
    }
    trials = [
        Trial(allocated, {"setting": setting, "lag": lag, "noise": noise, "steps": steps, "seed": seed})
        for setting, (lag, noise) in settings.items()
        for seed in range(runs)
    ]

    def mean(table: Any) -> Any:
        return table.groupby("setting", sort=False)["left share"].mean().reset_index()

    title = "Share of the memory that the left stream gets"
    return Figure(
        "figure-16",
        title,
        "figure 16",
        trials,
        lambda table: draw(mean(table), title, "setting", "", "left share"),
        lambda table: judge_16(mean(table)),
        layout=("setting", "", "left share"),
    )


FIGURES = (
    figure_2,
    figure_4,
    figure_5,
    figure_6,
    figure_8,
    figures_9_to_12,
    figures_13_14,
    figure_15,
    figure_16,
)
