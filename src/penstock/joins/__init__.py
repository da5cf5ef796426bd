"""Bounded joins: `WindowJoin` for two streams, `join_many` for more, `plan` to choose a budget."""

from penstock.joins.arrivals import Arrivals, arrivals_of
from penstock.joins.asof import AsofJoin, asof_join
from penstock.joins.asof_state import AsofState
from penstock.joins.asof_stats import AsofRun, AsofStats
from penstock.joins.many import join_many
from penstock.joins.many_arrivals import Chain
from penstock.joins.many_config import ManyConfig
from penstock.joins.many_output import ManyOutput
from penstock.joins.many_state import ManyState
from penstock.joins.many_stats import ManyRun, ManyStats
from penstock.joins.many_stream import ManyStreamState, start_many
from penstock.joins.optimal import Optimum, follow_decisions, optimal_join
from penstock.joins.plan import plan
from penstock.joins.plan_result import Plan, PlanRow
from penstock.joins.state import JoinState, Output
from penstock.joins.stats import Distortion, JoinRun, JoinStats
from penstock.joins.stream import StreamState
from penstock.joins.window import WindowJoin

__all__ = [
    "Arrivals",
    "AsofJoin",
    "AsofRun",
    "AsofState",
    "AsofStats",
    "Chain",
    "Distortion",
    "JoinRun",
    "JoinState",
    "JoinStats",
    "ManyConfig",
    "ManyOutput",
    "ManyRun",
    "ManyState",
    "ManyStats",
    "ManyStreamState",
    "Optimum",
    "Output",
    "Plan",
    "PlanRow",
    "StreamState",
    "WindowJoin",
    "arrivals_of",
    "asof_join",
    "follow_decisions",
    "join_many",
    "optimal_join",
    "plan",
    "start_many",
]
