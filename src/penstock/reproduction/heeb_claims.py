"""The claims of section 8 of Xie, Yang and Chen 2005, checked against the reproduced tables."""

from __future__ import annotations

from typing import Any

import pandas as pd

from penstock.reproduction.figure import Claim

TRENDS = ("TOWER", "ROOF", "FLOOR")
RIVALS = ("RAND", "PROB", "LIFE")


def judge_8(table: Any, over_flows: Any) -> list[Claim]:
    """Figure 8: who finds how many results with memory for 10 tuples; `over_flows` is HEEB over FLOWEXPECT.

    >>> import pandas as pd
    >>> from penstock.reproduction.heeb_claims import judge_8
    >>> found = {"RAND": 5, "PROB": 1, "LIFE": 3, "HEEB": 8, "FLOWEXPECT": 9, "OPT": 10}
    >>> table = pd.DataFrame(
    ...     [{"configuration": "TOWER", "policy": p, "per_step": n} for p, n in found.items()]
    ... )
    >>> [claim.holds for claim in judge_8(table, pd.Series({"TOWER": 8 / 9}))]
    [True, True, False, True]
    """
    by = table.pivot(index="configuration", columns="policy", values="per_step")
    rivals = by[[name for name in RIVALS if name in by]].max(axis=1)
    lead, of_best = by["HEEB"] / rivals, by["HEEB"] / by["OPT"]
    ahead = over_flows > 1
    trends = by.loc[[name for name in TRENDS if name in by.index]]
    return [
        Claim(
            "OPT-offline wins across the board",
            _each(of_best, "HEEB has {} of it"),
            bool((of_best <= 1).all()),
        ),
        Claim("HEEB beats RAND, PROB and LIFE consistently", _each(lead, "by {}"), bool((lead > 1).all())),
        Claim(
            "HEEB beats FLOWEXPECT in most cases",
            _each(over_flows, "it has {} of FLOWEXPECT's results"),
            bool(ahead.sum() > len(ahead) / 2),
        ),
        Claim(
            "with a trend PROB does worst, LIFE fares better, RAND is competitive",
            _each(trends["PROB"] / trends["RAND"], "PROB has {} of RAND"),
            bool(((trends["PROB"] < trends["LIFE"]) & (trends["LIFE"] < trends["RAND"])).all()),
        ),
    ]


def judge_9_to_12(table: Any) -> list[Claim]:
    """Figures 9 to 12: the share of the optimum over the memory.

    >>> import pandas as pd
    >>> from penstock.reproduction.heeb_claims import judge_9_to_12
    >>> rows = [
    ...     ("TOWER", "HEEB", 1, 0.9),
    ...     ("TOWER", "HEEB", 50, 1.0),
    ...     ("TOWER", "RAND", 50, 0.99),
    ...     ("WALK", "HEEB", 1, 0.4),
    ...     ("WALK", "HEEB", 50, 0.5),
    ...     ("TOWER", "RAND", 1, 0.2),
    ... ]
    >>> table = pd.DataFrame(rows, columns=["configuration", "policy", "memory", "of_optimum"])
    >>> [claim.holds for claim in judge_9_to_12(table)]
    [True, True]
    """
    most, least = table["memory"].max(), table["memory"].min()
    by = table.set_index(["configuration", "policy", "memory"])["of_optimum"].unstack("memory")
    heeb = by.xs("HEEB", level="policy")
    trends = [name for name in TRENDS if name in heeb.index]
    sharp = by.drop(index=["OPT", "HEEB", "HEEB, learnt", "HIST"], level="policy", errors="ignore")
    steep = [name for name in ("TOWER", "ROOF") if name in heeb.index]
    ahead = min(float(heeb.loc[name, least] - sharp.loc[name, least].max()) for name in steep)
    return [
        Claim(
            "with more memory all catch up with OPT-offline, but for WALK",
            _each(heeb[most], f"HEEB with {most} has {{}} of it"),
            bool((heeb.loc[trends, most] >= 0.95).all() and (heeb.drop(index=trends)[most] < 0.95).all()),
        ),
        Claim(
            "on TOWER and ROOF HEEB comes near OPT-offline much sooner than other heuristics",
            f"with memory {least} it is ahead of them by {ahead:.2f} of the optimum or more",
            ahead > 0,
        ),
    ]


def judge_13_14(table: Any) -> list[Claim]:
    """Figures 13 and 14: histograms that learn against computed benefits.

    >>> import pandas as pd
    >>> from penstock.reproduction.heeb_claims import judge_13_14
    >>> low, high = {"HEEB": 9.0, "HIST": 8.9, "RAND": 5.0}, {"HEEB": 6.0, "HIST": 5.0, "RAND": 4.0}
    >>> rows = [("noise 1", *each) for each in low.items()] + [("noise 8", *each) for each in high.items()]
    >>> table = pd.DataFrame(rows, columns=["configuration", "policy", "results"]).assign(memory=10)
    >>> [claim.holds for claim in judge_13_14(table)]
    [True, False, True]
    """
    by = table.pivot(index=["configuration", "memory"], columns="policy", values="results")
    share = (by["HIST"] / by["HEEB"]).groupby("configuration").min()
    low, high = share["noise 1"], share["noise 8"]
    return [
        Claim(
            "with low noise HIST is almost as good as HEEB", f"{low:.3f} of it at least", bool(low >= 0.95)
        ),
        Claim(
            "with high noise it has roughly 90 % or more", f"{high:.3f} of it at least", bool(high >= 0.88)
        ),
        Claim(
            "HIST is better than RAND",
            f"{(by['HIST'] / by['RAND']).min():.2f} times its results at least",
            bool((by["HIST"] > by["RAND"]).all()),
        ),
    ]


def judge_15(table: Any) -> list[Claim]:
    """Figure 15: hits on daily temperatures.

    >>> import pandas as pd
    >>> from penstock.reproduction.heeb_claims import judge_15
    >>> found = {"HEEB": 12, "HEEB, season": 15, "LRU": 13, "LFU": 9, "RAND": 8, "LFD": 20}
    >>> table = pd.DataFrame([{"policy": p, "memory": 50, "hits": n} for p, n in found.items()])
    >>> [claim.holds for claim in judge_15(table)]
    [False, True]
    """
    by = table.pivot(index="memory", columns="policy", values="hits")
    rivals = by[["LRU", "LFU", "RAND"]].max(axis=1)
    found = []
    for name, model in (("HEEB", "AR(1)"), ("HEEB, season", "a yearly season")):
        lead = by[name] / rivals
        sizes = ", ".join(str(size) for size in lead.index[lead >= 1]) or "none"
        said = "leads the pack" if name == "HEEB" else "leads (ours: the model knows the season)"
        found.append(
            Claim(
                f"HEEB with {model} {said}, beating LRU and LFU",
                f"with memory for {sizes}; {lead.min():.2f} to {lead.max():.2f} of the best of them and RAND",
                bool((lead >= 1).all()),
            )
        )
    return found


def judge_16(table: Any) -> list[Claim]:
    """Figure 16: memory goes to the stream that leads, and to the one with less noise.

    >>> import pandas as pd
    >>> from penstock.reproduction.heeb_claims import judge_16
    >>> shares = {
    ...     "alike": 0.5,
    ...     "left lags by 2": 0.4,
    ...     "left lags by 4": 0.2,
    ...     "right has twice the noise": 0.6,
    ...     "right has four times the noise": 0.55,
    ... }
    >>> table = pd.DataFrame({"setting": list(shares), "left share": list(shares.values())})
    >>> [claim.holds for claim in judge_16(table)]
    [True, False]
    """
    share = table.set_index("setting")["left share"]
    lags = share[["alike", "left lags by 2", "left lags by 4"]]
    noise = share[["alike", "right has twice the noise", "right has four times the noise"]]
    return [
        Claim(
            "a stream that lags gets less memory, the more it lags",
            ", ".join(f"{value:.2f}" for value in lags),
            bool(lags.is_monotonic_decreasing),
        ),
        Claim(
            "a stream gets more memory, the noisier the other is",
            ", ".join(f"{value:.2f}" for value in noise),
            bool(noise.is_monotonic_increasing),
        ),
    ]


def _each(values: pd.Series, text: str) -> str:
    shown = ", ".join(f"{value:.2f} on {name}" for name, value in values.items())
    return text.format(shown)
