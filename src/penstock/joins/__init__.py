"""Bounded joins: `WindowJoin` for two streams, `join_many` for more, `plan` to choose a budget."""

from penstock.joins.arrivals import Arrivals, arrivals_of
from penstock.joins.state import JoinState, Output
from penstock.joins.stats import Distortion, JoinRun, JoinStats
from penstock.joins.window import WindowJoin

__all__ = ["Arrivals", "Distortion", "JoinRun", "JoinState", "JoinStats", "Output", "WindowJoin", "arrivals_of"]
