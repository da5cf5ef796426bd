"""AUTO: follows the policy that does best on a sample of the keys while the join runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.errors import PolicyOptionError
from penstock.policies.base import Policy, Setting, is_number

CANDIDATES = ("learned", "prob", "life", "lru", "gdj", "clock-exp")


@dataclass(frozen=True)
class Auto(Policy):
    """Follow the candidate that does best on a small sample of the keys, in buffers of the same scale.

    The sample is chosen by the hash of the keys. Beside the real buffer, every candidate joins the sampled
    keys in a small buffer of its own. The real buffer switches to the leader once it is ahead by `margin` and
    by more than chance explains. A switch keeps the tuples; their scores under the new policy come from a
    history of all keys. The small buffers take at most 5 % of the memory, or 64 KiB if that is more (but at
    most a quarter of a byte budget). If fewer than 16 tuples per candidate fit, the first candidate runs
    alone. A cache chooses in the same way, by hits, among `lru`, `lfu`, `prob`, `gdj` and `clock-exp` by
    default; a stream query chooses among `gdj`, `prob` and `lru`, by a sample of its triples.

    Candidates may have options: `auto:candidates=learned/gdj:initial=0.5/clock-exp:rho=0.99`. Separate
    several options of one candidate by colons: `gdj:initial=0.5:method=2`.

    >>> import penstock as ps
    >>> left, right = {"key": [1, 2, 1], "ts": [1, 2, 4]}, {"key": [1, 1, 2], "ts": [0, 3, 5]}
    >>> join = ps.WindowJoin(within=10, budget=ps.Tuples(4), policy="auto:candidates=lru/prob")
    >>> stats = join.run(left, right, on="key", time="ts").stats
    >>> stats.results, stats.choice.policy
    (4, 'lru')
    """

    candidates: tuple[str, ...] = CANDIDATES
    margin: float = 0.01

    name: ClassVar[str] = "auto"
    summary: ClassVar[str] = "follows the candidate that does best on a sample of the keys"
    wins: ClassVar[str] = (
        "nothing is known in advance, or the stream changes its nature: it follows what does best on a "
        "sample of the keys"
    )
    loses: ClassVar[str] = (
        "one policy is known to be right: the race costs time and a little memory, and it follows a "
        "change some windows late"
    )
    cost: ClassVar[str] = "the cost of the policy it follows, of learned's history, and of small simulations"
    paper: ClassVar[str] = "none; miniature simulation follows Waldspurger, Saemundsson and Ahmad 2017"
    counts_keys: ClassVar[bool] = True
    sees_places: ClassVar[bool] = True
    caches: ClassVar[bool] = True
    many: ClassVar[bool] = False
    chooses: ClassVar[bool] = True
    trial_bytes: ClassVar[int] = 64 << 10  # minimum bytes for the small buffers (else 5 % of the memory)

    def __post_init__(self) -> None:
        given = (self.candidates,) if isinstance(self.candidates, str | Policy) else self.candidates
        fine = isinstance(given, tuple | list) and len(given) > 0
        fine = fine and all(isinstance(each, str | Policy) for each in given)
        self.require(fine, "candidates", "names of policies")
        object.__setattr__(self, "candidates", tuple(_inner(each) for each in given))
        self.require(is_number(self.margin) and 0 <= self.margin <= 1, "margin", "from 0 to 1")
        for policy in self.among():
            unfit = policy.chooses or policy.needs_future or policy.needs_model or policy.reads_values
            if unfit or not (policy.joins and policy.compiled and policy.unified and policy.counts_bytes):
                raise PolicyOptionError(
                    f"auto: {policy.name} cannot be a candidate; use compiled policies that need neither the "
                    "future nor a model and can manage one pool."
                )

    def among(self, default: tuple[str, ...] = CANDIDATES) -> list[Policy]:
        """Return the candidates as policies, by default those of the operator.

        >>> from penstock import policies
        >>> policies.Auto(candidates=("lru", "gdj:initial=0.5")).among()
        [Lru(), GreedyDualJoin(initial=0.5, method=1)]
        >>> policies.get("auto:candidates=lru/gdj:initial=0.5:method=2").among()
        [Lru(), GreedyDualJoin(initial=0.5, method=2)]
        """
        from penstock.policies.registry import get

        return [get(_outer(each)) for each in (default if self.candidates == CANDIDATES else self.candidates)]

    def build(self, setting: Setting) -> Any:
        """Build the state of the first candidate; the others are built when they take over."""
        return self.among()[0].build(setting)


def _inner(candidate: str | Policy) -> str:
    """Spell a candidate as an option of another policy, without commas."""
    text = candidate.spell() if isinstance(candidate, Policy) else candidate
    return text.replace(",", ":")


def _outer(candidate: str) -> str:
    """Spell the same candidate on its own."""
    name, colon, options = candidate.partition(":")
    return name + colon + options.replace(":", ",")
