"""Find which of several candidates does best on a sample of the keys while a stream runs.

Beside the real buffer or cache, each candidate has a small one, which serves the keys of a sample. What they
find is compared epoch by epoch. The followers of joins, of caches and of stream queries run the small ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from penstock.engine.key_sample import mixed

EPOCH = (512, 65_536)  # arrivals between two looks at the results, at least and at most
FRESH_EPOCH = 32  # at first, where the sample is not the same all the time
FADE = 0.9  # what is left of an epoch's results when the next one is over
CERTAIN = 2.5  # standard errors by which the leader must be ahead, as epochs differ
ALIKE_CERTAIN = 1.5  # the same among candidates that are alike, where a wrong one costs little
GROUPS = 16  # of the keys of the sample, by their hash
AGREED = 3.0  # standard errors by which the leader must be ahead, as groups of keys differ
REST = 4  # epochs that a policy is given before it is compared
WATCHED = 24  # epochs before the first pause, and after a change; pauses are for fresh samples
PAUSE = 9  # looks of a pause, of so many epochs each: whether the stream finds as many results as it did
LOOK = 4
TRIED = 4  # epochs before and after a change whose results are compared, the first one after it apart
WORSE = 0.1  # the share of the results by which these may fall
DISTRUST = 32  # epochs for which a candidate is not followed again that has done worse, then twice as many
SURPRISE = (0.25, 4.0)  # the share of the usual results, and standard deviations, by which these must differ
BETWEEN = 6  # epochs between two pauses whose results count; in the one before them caches fill again
ENOUGH = 100  # results lately of a leader that is followed: looking often, one sees leads in a few by chance


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
    sample: float  # the share of the keys, or of triples, in the sample; 0: there is no room for one
    estimates: dict[str, float]  # relative to the best candidate, over the last epochs


class PolicyRace:
    """The results of candidates lately, and which of them is followed.

    >>> import numpy as np
    >>> from penstock.engine.policy_race import PolicyRace
    >>> race = PolicyRace(2, size=512, margin=0.01, halvings=1)
    >>> for _ in range(5):
    ...     race.add(1, np.arange(100), np.ones(100))
    ...     leader = race.after(512)
    >>> leader, race.running
    (1, 0)

    By a sample that is not the same all the time (`fresh`), policies are compared rather than keys. Such a
    race pauses again and again: small caches that took every arrival would take as long as the real one.
    A pause ends at once when the real one finds clearly more or fewer results than before.
    Candidates that are one policy with other parameters are `alike`, and so are their results: they are
    compared without pauses, and followed on less evidence.
    """

    def __init__(
        self,
        candidates: int,
        size: int,
        margin: float,
        halvings: float | None,
        fresh: bool = False,
        alike: bool = False,
    ) -> None:
        self.margin, self.halvings, self.fresh, self.alike = margin, halvings, fresh, alike
        self.longest = min(max(EPOCH[0], size), EPOCH[1])
        self.epoch = max(size, min(FRESH_EPOCH, EPOCH[0])) if fresh else self.longest
        self.epoch = min(self.epoch, self.longest)
        self.running = self.arrivals = self.since = self.switches = self.rested = 0
        self.due = self.epoch
        self.gained = np.zeros((candidates, GROUPS))  # results per candidate and group of keys, in this epoch
        self.grouped = np.zeros((candidates, GROUPS))  # the same, faded, over all
        self.ahead = np.zeros((candidates, 2))  # of the one that runs, faded: the sum and the sum of squares
        self.weight = 0.0
        self.phase, self.epochs_left = "watching", WATCHED
        self.found = np.zeros(2)  # results of the real one per arrival, faded: the sum and the sum of squares
        self.looks = 0.0  # the weight of these
        self.began = 0  # the arrival with which this epoch, or look, began
        self.lately = 0.0  # results of the real one since then
        self.total = 0  # its results since the beginning
        self.rates: list[float] = []  # its results per arrival in the last epochs
        self.before: list[float] = []  # the same when it last changed, until that change has proved right
        self.came_from = 0  # who was followed then
        self.allowed = np.ones(candidates, bool)  # whether there is memory for it
        self.barred = np.zeros((candidates, 2), np.int64)  # until which arrival, and how often so far

    @property
    def pausing(self) -> bool:
        """Whether candidates need not be tried at present."""
        return self.phase == "pausing"

    @property
    def left(self) -> int:
        """Arrivals until the next look at the results."""
        return max(1, self.due - self.arrivals)

    def add(self, candidate: int, key: np.ndarray, found: np.ndarray) -> None:
        """What a candidate has found for each of some keys of the sample."""
        group = ((mixed(key) >> np.uint64(33)) % np.uint64(GROUPS)).astype(np.int64)
        self.gained[candidate] += np.bincount(group, found, GROUPS)

    def tally(self, candidate: int, found: float) -> None:
        """What a candidate has found, of whichever keys: for a sample that is not the same all the time."""
        self.gained[candidate, 0] += found

    def after(self, arrivals: int, total: int = 0) -> int | None:
        """So many more have arrived: once an epoch is over, the candidate to change to, if one is ahead.

        `total` is how many results the real one has had with all so far.
        """
        self.arrivals += arrivals
        self.lately += total - self.total
        self.total = total
        if self.arrivals < self.due:
            return None
        rate = self.lately / (self.arrivals - self.began)
        leader = self._regretted(rate)
        if leader is None and self.phase == "watching":
            leader = self._compared()
        self.due = (self.arrivals // self.epoch + 1) * self.epoch
        if self.epoch < self.longest:
            self.epoch = min(self.epoch + self.epoch // 8, self.longest)
            self.due = self.arrivals + self.epoch
        self.gained = np.zeros_like(self.gained)
        if self.fresh and not self.alike:
            self._next_phase(rate, stays=leader is not None)
        self.began, self.lately = self.arrivals, 0.0
        return leader

    def _regretted(self, rate: float) -> int | None:
        """Who was followed before, if the last change has cost the real one results.

        The sample may have said what is not so of all: where a few keys make most of the results, it may have
        none of them.
        """
        if self.pausing:
            return None
        self.rates = [*self.rates[-TRIED:], rate]
        if not self.before or len(self.rates) <= TRIED:
            return None
        before, after = np.array(self.before), np.array(self.rates[1:])
        self.before = []
        if not self.allowed[self.came_from]:
            return None
        error = math.sqrt((before.var() + after.var()) / TRIED)
        fallen = before.mean() - after.mean()
        if fallen <= max(WORSE * before.mean(), CERTAIN * error):
            return None
        times = int(self.barred[self.running, 1])
        self.barred[self.running] = self.arrivals + DISTRUST * 2 ** min(times, 10) * self.epoch, times + 1
        return self.came_from

    def _next_phase(self, rate: float, stays: bool) -> None:
        """An epoch, or a look of a pause, is over, in which the real one had so many results per arrival."""
        if self.pausing and self._surprised(rate):
            # What is known is of another regime, and must not stand in the way of what comes.
            self.grouped *= 0.1
            self.ahead[:] = self.weight = 0.0
            self.found[:] = self.looks = 0.0
            self.phase, self.epochs_left = "filling", 1
            return
        if self.phase == "watching":
            self.found = FADE * self.found + (rate, rate**2)
            self.looks = FADE * self.looks + 1.0
        self.epochs_left -= 0 if stays else 1
        if self.epochs_left == 0 and self.phase == "filling":
            self.phase, self.epochs_left = "watching", BETWEEN
        elif self.epochs_left == 0:
            self.phase, self.epochs_left = ("pausing", PAUSE) if self.phase == "watching" else ("filling", 1)
        if self.pausing:
            self.due = self.arrivals + LOOK * self.epoch

    def _surprised(self, rate: float) -> bool:
        """Whether the results of a look are not what they were while the race was watched."""
        if self.looks == 0.0:
            return False
        usual = self.found[0] / self.looks
        spread = math.sqrt(max(0.0, self.found[1] / self.looks - usual**2))
        return bool(abs(rate - usual) > max(SURPRISE[0] * usual, SURPRISE[1] * spread))

    def _compared(self) -> int | None:
        """The candidate to change to, by the results up to the end of this epoch."""
        gained = self.gained.sum(axis=1)
        ahead = gained - gained[self.running]
        self.ahead = FADE * self.ahead + np.stack([ahead, ahead**2], axis=1)
        self.weight = FADE * self.weight + 1.0
        self.grouped = FADE * self.grouped + self.gained
        self.rested += 1
        results = self.grouped.sum(axis=1)
        ruled_out = (self.barred[:, 0] > self.arrivals) | ~self.allowed
        leader = int(np.argmax(np.where(ruled_out, -1.0, results)))
        if leader == self.running or self.rested < REST or results[leader] <= 0:
            return None
        if not self.fresh and results[leader] < ENOUGH:
            return None
        if results[leader] < (1.0 + self.margin) * results[self.running] or not self._certain(leader):
            return None
        return leader

    def _certain(self, leader: int) -> bool:
        """Whether the lead is more than chance explains: that of the epochs, and that of the sample.

        A sample that is the same all the time lets epochs agree on what a few keys of it do. How much groups
        of its keys differ tells what another sample might have said. A fresh one differs by epochs.
        """
        mean = self.ahead[leader, 0] / self.weight
        variance = max(0.0, self.ahead[leader, 1] / self.weight - mean**2)
        if mean <= (ALIKE_CERTAIN if self.alike else CERTAIN) * math.sqrt(variance / self.weight):
            return False
        if self.fresh:
            return True
        lead = self.grouped[leader] - self.grouped[self.running]
        both = self.grouped[leader] + self.grouped[self.running]
        share = lead.sum() / both.sum()
        left_out = 1.0 - 0.5 ** (self.halvings or 0)
        error = math.sqrt(left_out * GROUPS / (GROUPS - 1) * float(((lead - share * both) ** 2).sum()))
        return bool(lead.sum() > AGREED * error)

    def change(self, leader: int) -> None:
        """This candidate is followed from now on."""
        going_back = self.barred[self.running, 0] > self.arrivals
        self.before = [] if going_back or len(self.rates) < TRIED else self.rates[-TRIED:]
        self.came_from, self.rates = self.running, []
        self.running, self.since, self.rested = leader, self.arrivals, 0
        self.switches += 1
        self.phase, self.epochs_left = "watching", WATCHED
        self.found[:] = self.looks = 0.0
        self.ahead[:] = self.weight = 0.0

    def choice(self, names: list[str]) -> Choice:
        """What a caller is told, who knows the candidates by these names."""
        results = self.grouped.sum(axis=1)
        best = float(results.max())
        shares = results / best if best > 0 else np.ones(len(names))
        return Choice(
            policy=names[self.running],
            since=self.since,
            switches=self.switches,
            sample=0.0 if self.halvings is None else 0.5**self.halvings,
            estimates={name: round(float(share), 4) for name, share in zip(names, shares, strict=True)},
        )

    def pack(self) -> dict[str, Any]:
        """All of it, for a snapshot."""
        return dict(vars(self))

    @classmethod
    def unpack(cls, packed: dict[str, Any]) -> PolicyRace:
        """The counterpart."""
        race = cls(len(packed["gained"]), 1, packed["margin"], packed["halvings"])
        vars(race).update(packed)
        return race


class Named(Protocol):
    """What a candidate has to have: a name by which a caller knows it."""

    def spell(self) -> str:
        """The name, with options."""
        ...


Candidate = TypeVar("Candidate", bound=Named)


class Follower(Generic[Candidate]):
    """Candidates, of which the one that leads in a race is followed.

    >>> from penstock import policies
    >>> from penstock.engine.policy_race import PolicyRace, Follower
    >>> follower = Follower([policies.get("lru"), policies.get("gdj")], 100, 0.01, None)
    >>> follower.change(follower.policies[1])
    >>> follower.policy.name, follower.choice().switches
    ('gdj', 1)
    """

    def __init__(
        self,
        policies: Sequence[Candidate],
        size: int,
        margin: float,
        halvings: float | None,
        fresh: bool = False,
        alike: bool = False,
    ) -> None:
        self.policies = list(policies)
        self.race = PolicyRace(len(self.policies), size, margin, halvings, fresh, alike)

    @property
    def policy(self) -> Candidate:
        """The one that is followed."""
        return self.policies[self.race.running]

    def led(self, arrivals: int, total: int) -> Candidate | None:
        """So many more have arrived: once an epoch is over, the policy to change to, if one is ahead."""
        leader = self.race.after(arrivals, total)
        return None if leader is None else self.policies[leader]

    def change(self, policy: Candidate) -> None:
        """This one is followed from now on."""
        self.race.change(self.policies.index(policy))

    def choice(self) -> Choice:
        """What a caller is told."""
        return self.race.choice([policy.spell() for policy in self.policies])
