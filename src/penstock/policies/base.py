"""The base class of policies: a frozen spec with parameters and capabilities that builds the mutable state.

The spec says what the policy can do. Its state is a NamedTuple of arrays, and the class of the state selects
the kernels (see `penstock.engine.hooks`). Operators know policies only through this interface.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from penstock.arguments import is_number
from penstock.engine.match_predictor import MatchPredictor
from penstock.engine.store import TIMED, Store
from penstock.errors import PolicyOptionError, UnknownPolicyError
from penstock.structures.key_positions import Places


@dataclass(frozen=True)
class Trace:
    """The whole input of a run in processing order, for policies that may look ahead."""

    stream: np.ndarray
    key: np.ndarray
    time: np.ndarray  # the times by which tuples expire
    row: np.ndarray
    step: np.ndarray  # the step number of each arrival
    keep: np.ndarray | None = None  # for `opt`, precomputed decisions: per arrival, the step it is kept to


@dataclass(frozen=True)
class Setting:
    """What an operator passes to a policy to build its state."""

    capacities: tuple[int, ...]  # the maximum number of tuples in each pool
    time_dtype: np.dtype
    horizons: tuple[Any, ...]  # per stream, in the unit of the time column
    rates: tuple[float, ...] | None = None  # arrivals per unit of time and stream, if known
    count_bytes: int | None = None  # under a byte budget: the memory for key counts
    trace: Trace | None = None
    streams: int = 2
    apart: bool = False  # every tuple has its own key row, and the operator counts for it
    partial: bool = False  # an arrival may match some tuples of a key and not others
    window: int = TIMED  # kind of window
    warmup: int = 0  # number of first steps whose results do not count
    step: str = "arrival"  # or "tick"
    labels: np.ndarray | None = None  # the key of each code; None: the codes are whole-number keys
    places: Places | None = None  # positions of keys that are numbers or contain one; None: none do
    rooms: tuple[int, ...] | None = None  # tuples per pool that tables are for at first; None: all
    soon_decided: tuple[bool, ...] = (False, False)  # per stream: a row is a result if it is kept a moment
    in_bytes: bool = False  # the budget is in bytes: a pool may get more or fewer tuples than its capacity

    @property
    def total(self) -> int:
        """The maximum number of tuples in all pools together."""
        return sum(self.capacities)

    @property
    def at_first(self) -> tuple[int, ...]:
        """The number of tuples of each pool for which a policy that `grows` makes its tables."""
        return self.capacities if self.rooms is None else self.rooms


@dataclass(frozen=True)
class CacheSetting:
    """What a cache passes to a policy to build its state."""

    capacity: int  # entries
    requests: np.ndarray | None = None  # the keys of the whole trace, for policies that may look ahead
    count_bytes: int | None = None  # under a byte budget: the memory for key counts
    costs: bool = False  # every request comes with the cost of its miss
    number: Callable[[Any], int | None] | None = None  # the key of a value that is not a whole number

    def key_of(self, value: Any) -> int | None:
        """Return the whole number by which the cache knows a value of its model; `None` if it has none."""
        if self.number is not None:
            return self.number(value)
        whole = is_number(value) and float(value).is_integer()
        return int(value) if whole else None


@dataclass(frozen=True)
class Policy:
    """Base of all policies. A subclass is a frozen dataclass whose fields are its parameters.

    >>> from penstock import policies
    >>> policies.get("clock-exp:rho=0.5")
    ClockExp(w0=1.0, rho=0.5, threshold=0.01)
    """

    name: ClassVar[str] = ""
    summary: ClassVar[str] = ""  # one line for lists
    wins: ClassVar[str] = ""  # the streams on which it does well, and why: "Use it when ..."
    loses: ClassVar[str] = ""  # the streams on which it does not: "Not when ..."
    cost: ClassVar[str] = ""  # per arrival and per match
    paper: ClassVar[str] = ""
    selective: ClassVar[bool] = False  # may refuse the arrival itself
    lets_decide: ClassVar[bool] = False  # lets rows in that are decided at once, if no match comes before
    one_by_one: ClassVar[bool] = False  # admits the arrivals of a tick in order, without competition
    unified: ClassVar[bool] = True  # can manage one pool for all streams
    many: ClassVar[bool] = True  # defined for joins of many streams
    has_credits: ClassVar[bool] = False  # has credits by which memory can be divided among streams
    counts_keys: ClassVar[bool] = False  # keeps key counts: in a sketch under a byte budget
    joins: ClassVar[bool] = True  # can run a join
    caches: ClassVar[bool] = False  # can run a cache, see `build_cache`
    weighs_costs: ClassVar[bool] = False  # can run a cache whose misses differ in cost
    counts_bytes: ClassVar[bool] = True  # works under a byte budget
    bound: ClassVar[bool] = False  # an upper bound for all policies (the optimum), not a policy to run
    needs_model: ClassVar[bool] = False
    by_recency: ClassVar[bool] = False  # every use counts the same, however small its share in a result
    reads_values: ClassVar[bool] = False  # uses the values of keys, not only their equality
    sees_places: ClassVar[bool] = False  # uses the distance between keys that are numbers or contain one
    chooses: ClassVar[bool] = False  # follows other policies, see `penstock.joins.follower`
    candidate_for: ClassVar[Mapping[str, int]] = {}  # operators in which `auto` tries it: lowest rank first
    starter: ClassVar[bool] = False  # fast to compile and to run: `penstock plan` starts with it
    ticks: ClassVar[bool] = True  # can run with step="tick"
    weighs_results: ClassVar[bool] = False  # can say how many exact results a result stands for
    grows: ClassVar[bool] = False  # its tables grow with the tuples, see `grow`
    compiled: ClassVar[bool] = True  # its state is for kernels; False: plain Python objects

    @property
    def needs_future(self) -> bool:
        """Whether it must know the whole stream before it starts."""
        return False

    @property
    def needs_whole_stream(self) -> bool:
        """Whether it must see all arrivals of a stream, not only those of some keys."""
        return False

    @property
    def queries(self) -> bool:
        """Whether it supports stream queries; by default, if it supports joins of many streams."""
        return self.many

    def build(self, setting: Setting) -> Any:
        """Build the mutable state for one operator."""
        raise PolicyOptionError(f"{type(self).__name__} has no build(); a policy must define it")

    def build_cache(self, setting: CacheSetting) -> Any:
        """Build the mutable state for one cache (see `penstock.engine.cache_loop`)."""
        raise UnknownPolicyError(f"{self.name} cannot run a cache.")

    def grow(self, state: Any, store: Store, rooms: tuple[int, ...]) -> Any:
        """Return the same state with room for this many tuples per pool, if the policy `grows`.

        `build` makes tables for `setting.at_first`. By default, this calls `grown(rooms)` of all parts of the
        state that have it. What the policy decides must not depend on when its tables grow.
        """
        return type(state)(*(part.grown(rooms) if hasattr(part, "grown") else part for part in state))

    def reserve(self, state: Any, arrivals: int) -> Any:
        """Return the same state with room for the given number of further arrivals."""
        return state

    def note_results(self, state: Any, room: int) -> Any:
        """Return the same state, which has room to note the weights of so many results, if it weighs them."""
        return state

    def noted_results(self, state: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return t and the identity of the kept tuple of each result since the last call, in order.

        A result stands for 1/t exact ones.
        """
        return np.empty(0), np.empty(0, np.int64)

    def inform(self, state: Any, predictor: MatchPredictor) -> Any:
        """Return the same, still empty state, with the knowledge of a history of the stream."""
        return state

    def predictor_of(self, state: Any) -> MatchPredictor | None:
        """Return the state's own predictor; None if the policy does not predict matches."""
        return None

    def predictor_options(self) -> tuple[float, float] | None:
        """Return the span and the memory of its predictor; None if it has none."""
        return None

    def check_many(self) -> None:
        """Reject parameters that are not defined for joins of many streams."""

    def check(self, state: Any, store: Store) -> None:
        """Assert the invariants of the state."""

    def bytes_beyond(self, state: Any) -> int:
        """Return the bytes of the state outside the budget (exact key counts under a tuple budget)."""
        return 0

    def default_allocation(self, rates_known: bool) -> str:
        """Return the default division of memory among the streams: one pool, if the policy supports it.

        >>> from penstock import policies
        >>> policies.get("lru").default_allocation(rates_known=False)
        'unified'
        >>> [policies.get("age").default_allocation(rates_known) for rates_known in (True, False)]
        ['proportional', 'equal']
        """
        if self.unified:
            return "unified"
        return "proportional" if rates_known else "equal"

    def check_joins(self) -> None:
        """Reject parameters that work in a cache only, and missing packages that a join needs."""

    def require(self, condition: bool, option: str, allowed: str) -> None:
        """Reject a parameter value that is out of range."""
        if not condition:
            given = getattr(self, option)
            raise PolicyOptionError(f"{self.name}: {option}={given!r} is not allowed; it must be {allowed}.")

    def spell(self) -> str:
        """Return the policy as a string that `policies.get` parses, without defaults."""
        options = [
            f"{field.name}={_spelled(getattr(self, field.name))}"
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default
        ]
        return self.name + (":" + ",".join(options) if options else "")


def _spelled(value: Any) -> str:
    """Spell a parameter: tuples with "/" between their members, pairs of tuples with "|"."""
    if not isinstance(value, tuple):
        return str(value)
    between = "|" if any(isinstance(part, tuple) for part in value) else "/"
    text = between.join(_spelled(part) for part in value)
    return text if len(value) > 1 else text + between
