"""Choose the policy of a join of many streams by small joins of a sample, one per candidate.

One join on one key is tried on a sample of the keys, as a join of two streams is. Several joins, and the
links of a chain, have no key in common: there every arrival probes the small joins, and only a sample of the
arrivals is let in, so that tuples compete as they do in the real join.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.engine.key_sample import COUNTS, SHARE, halvings_for, sampled
from penstock.engine.many_join import ManyBatch
from penstock.engine.policy_race import Follower, PolicyRace
from penstock.joins.follower import least_of
from penstock.joins.many_config import ManyConfig
from penstock.policies import Policy

if TYPE_CHECKING:
    from penstock.joins.many_state import ManyState


class ManyFollower(Follower[Policy]):
    """The small joins, and their results lately."""

    def __init__(self, config: ManyConfig, kind: type[ManyState], small: list[bytes] | None = None) -> None:
        self.config = config
        self.by_key = len(config.joins) == 1 and not config.chain
        policies = config.candidates
        self.allowance = _allowance(config)
        self.halvings = halvings_for(len(policies), self.allowance, self._sized)
        margin = config.policy.margin  # type: ignore[attr-defined]
        super().__init__(policies, sum(config.capacities), margin, self.halvings, fresh=not self.by_key)
        self.small: list[ManyState] = []
        if small is not None:
            self.small = [kind.restore(data) for data in small]
        elif self.halvings is not None:
            self.small = [kind(each) for each in self._small_configs(self.halvings)]
        for state in self.small:
            state._estimates = False

    def attend(self, batch: ManyBatch, start: int, stop: int, total: int) -> Policy | None:
        """Pass processed arrivals to the small joins; `total` is the number of matches of the real join.

        At the end of an epoch, return the policy to switch to if one is clearly ahead.
        """
        if start == stop:
            return None
        if self.small and not self.race.pausing:
            part = ManyBatch(*(array[start:stop] for array in batch))._replace(size=batch.size[:0])
            if self.by_key:
                mine = np.flatnonzero(sampled(part.key[:, 0], self.halvings or 0))
                part = ManyBatch(*(array[mine] if len(array) else array for array in part))
            else:
                numbers = self.race.arrivals + np.arange(stop - start)
                part = part._replace(kept=sampled(numbers, self.halvings or 0))
            for i, state in enumerate(self.small):
                counts = state._run(part, False, False).counts
                if self.by_key:
                    self.race.add(i, part.key[:, 0], counts)
                else:
                    self.race.tally(i, float(counts.sum()))
        return self.led(stop - start, total)

    @property
    def bytes(self) -> int:
        """Bytes of the small joins."""
        return sum(state.table_bytes for state in self.small)

    def pack(self) -> dict[str, Any]:
        """Pack everything for a snapshot."""
        return {"race": self.race.pack(), "small": [state.snapshot() for state in self.small]}

    @classmethod
    def unpack(cls, config: ManyConfig, kind: type[ManyState], packed: dict[str, Any]) -> ManyFollower:
        """The counterpart."""
        follower = cls(config, kind, packed["small"])
        follower.race = PolicyRace.unpack(packed["race"])
        return follower

    def _sized(self, halvings: float) -> tuple[int, float]:
        small = self._small_configs(halvings)
        return sum(small[0].capacities), sum(sum(each.bytes_of_tables(each.capacities)) for each in small)

    def _small_configs(self, halvings: float) -> list[ManyConfig]:
        """The join of the sample under each policy: a budget scaled alike, key counts in a sketch."""
        config, scale = self.config, 0.5**halvings
        window = config.windows
        if self.by_key:  # each stream has fewer arrivals, too
            pairs = zip(window.horizons, window.by_rows, strict=True)
            horizons = tuple(max(0, round((h + 1) * scale) - 1) if rows else h for h, rows in pairs)
            window = replace(window, horizons=horizons)
        counts = max(1024, int(COUNTS * self.allowance / len(config.candidates)))
        return [
            replace(
                config,
                policy=policy,
                window=window,
                capacities=tuple(max(1, round(capacity * scale)) for capacity in config.capacities),
                payload=None,
                costs=(),
                count_bytes=counts if policy.counts_keys else None,
                choosing_bytes=None,
                sample_bytes=0,
                warmup=0,
                mean_row=0.0,
                how="inner",
                lost_bytes=0,
            )
            for policy in config.candidates
        ]


def _allowance(config: ManyConfig) -> float:
    """Return the bytes for all small joins together."""
    if config.choosing_bytes is not None:
        return config.choosing_bytes
    alone = replace(config, choosing_bytes=0)
    return max(SHARE * min(alone.bytes_of_tables(config.capacities)), least_of(config.policy))
