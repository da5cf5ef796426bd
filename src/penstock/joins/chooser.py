"""Which policy a join follows: beside the real one, small joins of a sample of keys, one per candidate."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.joins.config import CHOOSING_SHARE, Config, table_bytes
from penstock.joins.settle import settle, settlers_of
from penstock.kernels.drive import Batch
from penstock.kernels.layout import ROWS, Store
from penstock.kernels.scholar import Scholar, attend_batch, new_scholar
from penstock.policies import Policy, get
from penstock.policies.learned import Learned

if TYPE_CHECKING:
    from penstock.joins.state import JoinState

SHARE = 0.05  # of the memory, for the small joins together
LEAST_TUPLES = 16  # of a small join, unless the real one has fewer
MOST_HALVINGS = 20
COUNTS = 0.3  # of a small join's memory, for its key counts
EPOCH = (512, 65_536)  # arrivals between two looks at the results, at least and at most
FADE = 0.9  # what is left of an epoch's results when the next one is over
CERTAIN = 2.5  # standard errors by which the leader must be ahead
REST = 4  # epochs that a policy is given before it is compared


@dataclass(frozen=True)
class Choice:
    """Which policy runs, since which arrival, and which share of the best candidate's results each finds.

    >>> import penstock as ps
    >>> data = {"key": [1, 2], "ts": [0, 1]}
    >>> join = ps.WindowJoin(within=5, budget=ps.Tuples(4), policy="auto:candidates=lru/prob")
    >>> join.run(data, data, on="key", time="ts").stats.choice
    Choice(policy='lru', since=0, switches=0, sample=1.0, estimates={'lru': 1.0, 'prob': 1.0})
    """

    policy: str
    since: int
    switches: int
    sample: float  # the share of the keys in the sample; 0: there is no room for one
    estimates: dict[str, float]  # relative to the best candidate, over the last epochs


class Chooser:
    """The small joins, their results lately, and the history that tells a new policy what has been."""

    def __init__(self, config: Config, small: list[JoinState] | None = None) -> None:
        self.config = config
        self.policies = config.policy.among()  # type: ignore[attr-defined]
        self.policy: Policy = self.policies[0]
        self.allowance = allowance(config)
        self.halvings = sampling(config, self.allowance)
        self.small = self._small() if small is None else small
        self.scholar = new_scholar_for(config)
        total = sum(config.capacities)
        self.epoch = min(max(EPOCH[0], total), EPOCH[1])
        self.due = self.epoch
        self.arrivals = self.since = self.switches = self.rested = self.peak = 0
        n = len(self.policies)
        self.results = np.zeros(n)  # per candidate, faded
        self.before = np.zeros(n, np.int64)
        self.ahead = np.zeros((n, 2))  # of the one that runs, faded: the sum and the sum of squares
        self.weight = 0.0

    def _small(self) -> list[JoinState]:
        if self.halvings is None:
            return []
        kind = type_of(self.config)
        most = self.allowance
        return [kind(small_config(self.config, policy, self.halvings, most)) for policy in self.policies]

    @property
    def left(self) -> int:
        """Arrivals until the next look at the results."""
        return max(1, self.due - self.arrivals)

    def warm(self, store: Store) -> None:
        """Load or compile all that may be needed later, on nothing."""
        nothing = settlers_of(self.config.build(policy=self.policy)[0])
        for policy, state in zip(self.policies, self.small, strict=False):
            state.warm()
            settle(self.config, policy, nothing, store, self.scholar)

    def attend(self, batch: Batch, start: int, stop: int) -> None:
        """Arrivals have been processed: the history and the small joins hear of them."""
        if start == stop:
            return
        if not isinstance(self.policy, Learned):
            attend_batch(self.scholar, batch.stream, batch.key, batch.time, start, stop)
        if self.small:
            mine = np.flatnonzero(sampled(batch.key[start:stop], self.halvings or 0)) + start
            if len(mine):
                part = Batch(*(array[mine] if len(array) else array for array in batch))
                for state in self.small:
                    state._run(part, False, False)
        self.arrivals += stop - start

    def review(self) -> Policy | None:
        """Once an epoch is over: the policy to change to, if one is ahead for certain."""
        if self.arrivals < self.due:
            return None
        self.due = (self.arrivals // self.epoch + 1) * self.epoch
        if len(self.small) < 2:
            return None
        found = np.array([state.totals()["results"] for state in self.small])
        gained = (found - self.before).astype(np.float64)
        self.before = found
        running = self.policies.index(self.policy)
        self.results = FADE * self.results + gained
        ahead = gained - gained[running]
        self.ahead = FADE * self.ahead + np.stack([ahead, ahead**2], axis=1)
        self.weight = FADE * self.weight + 1.0
        self.rested += 1
        leader = int(np.argmax(self.results))
        if leader == running or self.rested < REST or self.results[leader] <= 0:
            return None
        mean = self.ahead[leader, 0] / self.weight
        variance = max(0.0, self.ahead[leader, 1] / self.weight - mean**2)
        certain = mean > CERTAIN * math.sqrt(variance / self.weight)
        margin = self.config.policy.margin  # type: ignore[attr-defined]
        if not certain or self.results[leader] < (1.0 + margin) * self.results[running]:
            return None
        return self.policies[leader]

    def change(self, policy: Policy) -> None:
        """The join follows this policy from now on."""
        self.policy, self.since, self.rested = policy, self.arrivals, 0
        self.switches += 1
        self.ahead[:] = 0.0
        self.weight = 0.0

    @property
    def bytes(self) -> int:
        """What the small joins take."""
        return sum(state.table_bytes for state in self.small)

    def choice(self) -> Choice:
        """What a caller is told."""
        best = self.results.max() if len(self.results) else 0.0
        shares = self.results / best if best > 0 else np.ones(len(self.policies))
        names = [policy.spell() for policy in self.policies]
        return Choice(
            policy=self.policy.spell(),
            since=self.since,
            switches=self.switches,
            sample=0.0 if self.halvings is None else 0.5**self.halvings,
            estimates={name: round(float(share), 4) for name, share in zip(names, shares, strict=True)},
        )

    def pack(self) -> dict[str, Any]:
        """All but the history, for a snapshot."""
        plain = {name: getattr(self, name) for name in _PLAIN}
        return plain | {
            "policy": self.policy.spell(),
            "small": [state.snapshot() for state in self.small],
        }

    @classmethod
    def unpack(cls, config: Config, packed: dict[str, Any], scholar: Scholar) -> Chooser:
        """The counterpart."""
        kind = type_of(config)
        chooser = cls(config, [kind.restore(data) for data in packed["small"]])
        for name in _PLAIN:
            setattr(chooser, name, packed[name])
        chooser.policy = get(packed["policy"])
        chooser.scholar = scholar
        return chooser


_PLAIN = (
    "arrivals",
    "since",
    "switches",
    "due",
    "rested",
    "peak",
    "results",
    "before",
    "ahead",
    "weight",
)


def type_of(config: Config) -> type[JoinState]:
    """The class of the state of a config."""
    if config.lateness is not None:
        from penstock.joins.stream import StreamState

        return StreamState
    from penstock.joins.state import JoinState

    return JoinState


def new_scholar_for(config: Config) -> Scholar:
    """The history that a join keeps whichever policy it follows."""
    known = next((p for p in config.policy.among() if isinstance(p, Learned)), Learned())  # type: ignore[attr-defined]
    return new_scholar(
        sum(config.capacities),
        float(known.span),
        float(known.memory),
        config.time_dtype,
        config.window.horizons,
        config.window.kind,
        config.count_bytes,
    )


def sampled(key: np.ndarray, halvings: int) -> np.ndarray:
    """Which keys are in a sample of one in 2^halvings: by bits of a hash that no table uses."""
    mixed = (key.astype(np.uint64) + np.uint64(0x632BE59BD9B4E019)) * np.uint64(0xD6E8FEB86659FD93)
    mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return (mixed >> np.uint64(40)) & np.uint64((1 << halvings) - 1) == 0


def small_config(config: Config, policy: Policy, halvings: int, most: float) -> Config:
    """The join of the sample: a budget scaled alike, and a window too where that counts rows."""
    scale = 0.5**halvings
    window = config.window
    if window.kind == ROWS:
        left, right = (max(0, round((horizon + 1) * scale) - 1) for horizon in window.horizons)
        window = dataclasses.replace(window, horizons=(left, right))
    capacities = tuple(max(1, round(capacity * scale)) for capacity in config.capacities)
    counts = None
    if policy.counts_keys:
        counts = max(1024, int(COUNTS * most / len(config.policy.among())))  # type: ignore[attr-defined]
    return dataclasses.replace(
        config,
        policy=policy,
        window=window,
        capacities=capacities,
        payload=None,
        count_bytes=counts,
        warmup=0,
        rates=None,
        sketch_bytes=min(config.sketch_bytes, 1024),
    )


def allowance(config: Config) -> float:
    """Bytes for all small joins together."""
    if config.choosing_bytes is not None:
        return config.choosing_bytes
    return max(SHARE * min(_tables(config)), least_of(config.policy))


def allowance_of(policy: Policy, budget: int) -> int:
    """Bytes for all small joins together, of a budget of so many."""
    return int(min(max(SHARE * budget, least_of(policy)), CHOOSING_SHARE * budget))


def least_of(policy: Policy) -> int:
    """Bytes that the small joins may take however small the real one is."""
    return policy.trial_bytes  # type: ignore[attr-defined]


def _tables(config: Config) -> list[int]:
    """What the tables and the history take under each candidate."""
    scholar, found = new_scholar_for(config), []
    for policy in config.policy.among():  # type: ignore[attr-defined]
        store, state = config.build(policy=policy)
        found.append(table_bytes(store, policy.inform(state, scholar), scholar))
    return found


def tables_of(config: Config) -> int:
    """What a join that chooses takes in all, whichever candidate runs; for budgets of bytes."""
    return max(_tables(config)) + table_bytes(config.build_flow()) + (config.choosing_bytes or 0)


def sampling(config: Config, most: float) -> int | None:
    """How often the keys are halved until the small joins fit into what they may take; None if never."""
    policies = config.policy.among()  # type: ignore[attr-defined]
    if len(policies) == 1:
        return None
    for halvings in range(MOST_HALVINGS):
        scaled = [small_config(config, policy, halvings, most) for policy in policies]
        if halvings > 0 and sum(scaled[0].capacities) < LEAST_TUPLES:
            return None
        if sum(table_bytes(small.build(), small.build_flow()) for small in scaled) <= most:
            return halvings
    return None
