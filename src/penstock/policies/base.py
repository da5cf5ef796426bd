"""What a policy is: a frozen spec with parameters and capabilities that builds the mutable state.

The spec says what the policy can do; its state is a NamedTuple of arrays, whose class tells the drivers
which kernels to run (see `penstock.engine.hooks`). Operators know policies only through this interface.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from penstock.engine.match_predictor import MatchPredictor
from penstock.engine.store import TIMED, Store
from penstock.errors import PolicyOptionError, UnknownPolicyError
from penstock.structures.key_positions import Places


@dataclass(frozen=True)
class Trace:
    """The whole input of a run in processing order, for policies that may look ahead."""

    stream: np.ndarray
    key: np.ndarray
    time: np.ndarray  # by which tuples expire
    row: np.ndarray
    step: np.ndarray  # the number of the step to which each arrival belongs
    keep: np.ndarray | None = None  # for `opt`, decisions made before: per arrival, the step it is kept to


@dataclass(frozen=True)
class Setting:
    """What an operator tells a policy when it builds its state."""

    capacities: tuple[int, ...]  # the most tuples each pool can hold
    time_dtype: np.dtype
    horizons: tuple[Any, ...]  # per stream, in the unit of the time column
    rates: tuple[float, ...] | None = None  # arrivals per unit of time and stream, where known
    count_bytes: int | None = None  # under a byte budget: what key counts may take
    trace: Trace | None = None
    streams: int = 2
    apart: bool = False  # every tuple has a key row to itself, which its operator counts for it
    partial: bool = False  # an arrival may match some tuples of a key and not others
    window: int = TIMED  # kind of window
    warmup: int = 0  # first steps whose results do not count
    step: str = "arrival"  # or "tick"
    labels: np.ndarray | None = None  # the key of each code; None: codes are whole numbers that are keys
    places: Places | None = None  # where keys lie that are numbers or carry one; None: nowhere

    @property
    def total(self) -> int:
        """The most tuples all pools can hold together."""
        return sum(self.capacities)


@dataclass(frozen=True)
class CacheSetting:
    """What a cache tells a policy when it builds its state."""

    capacity: int  # entries
    requests: np.ndarray | None = None  # the keys of the whole trace, for policies that may look ahead
    count_bytes: int | None = None  # under a byte budget: what key counts may take
    costs: bool = False  # what a miss costs is told with every request
    number: Callable[[Any], int | None] | None = None  # the key of a value that is no whole number

    def key_of(self, value: Any) -> int | None:
        """The whole number by which the cache knows a value of its model; `None` if it will never come."""
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
    wins: ClassVar[str] = ""  # on which streams it does well, and why
    loses: ClassVar[str] = ""
    cost: ClassVar[str] = ""  # per arrival and per match
    paper: ClassVar[str] = ""
    selective: ClassVar[bool] = False  # the arrival itself may be the one that goes
    one_by_one: ClassVar[bool] = False  # admits the arrivals of a tick in order, without competition
    unified: ClassVar[bool] = True  # can manage one pool for all streams
    many: ClassVar[bool] = True  # defined for joins of many streams
    has_credits: ClassVar[bool] = False  # by which memory can be divided among streams
    counts_keys: ClassVar[bool] = False  # keeps key counts: in a sketch under a byte budget
    joins: ClassVar[bool] = True  # can run a join
    caches: ClassVar[bool] = False  # can run a cache, see `build_cache`
    weighs_costs: ClassVar[bool] = False  # can run a cache whose misses do not cost the same
    counts_bytes: ClassVar[bool] = True  # works under a byte budget
    bound: ClassVar[bool] = False  # no policy to run but the bound of all: the optimum
    needs_model: ClassVar[bool] = False
    by_recency: ClassVar[bool] = False  # any use counts alike, however small its share in a result
    reads_values: ClassVar[bool] = False  # looks at the values of keys, not only at which are equal
    sees_places: ClassVar[bool] = False  # uses how near keys are that are numbers or carry one, if told
    chooses: ClassVar[bool] = False  # follows other policies, see `penstock.joins.follower`
    compiled: ClassVar[bool] = True  # its state is for kernels; False: plain Python objects

    @property
    def needs_future(self) -> bool:
        """Whether the whole stream must be known before it starts."""
        return False

    @property
    def needs_whole_stream(self) -> bool:
        """Whether it must see all arrivals of a stream, not those of some keys only."""
        return False

    @property
    def queries(self) -> bool:
        """Whether it is defined for stream queries: by default, if it is for joins of many streams."""
        return self.many

    def build(self, setting: Setting) -> Any:
        """The mutable state for one operator."""
        raise PolicyOptionError(f"{type(self).__name__} has no build(); a policy must define it")

    def build_cache(self, setting: CacheSetting) -> Any:
        """The mutable state for one cache (see `penstock.engine.cache_loop`)."""
        raise UnknownPolicyError(f"{self.name} cannot run a cache.")

    def reserve(self, state: Any, arrivals: int) -> Any:
        """The same state with room for so many further arrivals."""
        return state

    def inform(self, state: Any, predictor: MatchPredictor) -> Any:
        """The same state, still empty, with what a history of the stream so far can tell it."""
        return state

    def predictor_of(self, state: Any) -> MatchPredictor | None:
        """The predictor that a state has of its own; None if the policy foresees nothing."""
        return None

    def predictor_options(self) -> tuple[float, float] | None:
        """The span and the memory of its predictor; None if it has none."""
        return None

    def check_many(self) -> None:
        """Refuse parameters that are not defined for joins of many streams."""

    def check(self, state: Any, store: Store) -> None:
        """Assert the invariants of the state."""

    def bytes_beyond(self, state: Any) -> int:
        """Bytes of the state that the budget does not count (exact key counts under a tuple budget)."""
        return 0

    def default_allocation(self, rates_known: bool) -> str:
        """How memory is divided among the streams where the user does not say: one pool if it can manage one.

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
        """Refuse parameters with which it can run a cache only, and missing packages that a join needs."""

    def require(self, condition: bool, option: str, allowed: str) -> None:
        """Refuse a parameter value that is out of range."""
        if not condition:
            given = getattr(self, option)
            raise PolicyOptionError(f"{self.name}: {option}={given!r} is not allowed; it must be {allowed}.")

    def spell(self) -> str:
        """The policy as a string that `policies.get` understands, defaults left out."""
        options = [
            f"{field.name}={_spelled(getattr(self, field.name))}"
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default
        ]
        return self.name + (":" + ",".join(options) if options else "")


def _spelled(value: Any) -> str:
    """A parameter as text: tuples with "/" between their members, pairs of tuples with "|"."""
    if not isinstance(value, tuple):
        return str(value)
    between = "|" if any(isinstance(part, tuple) for part in value) else "/"
    text = between.join(_spelled(part) for part in value)
    return text if len(value) > 1 else text + between


def is_number(value: object) -> bool:
    """Whether a parameter is a plain number (bool is not)."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
