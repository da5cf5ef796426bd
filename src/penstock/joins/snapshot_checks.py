"""Whether the arrays of a restored join of two streams can be given to kernels."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from penstock.engine.store import COMPETE
from penstock.joins.follower import new_predictor_for
from penstock.policies import get
from penstock.states.checks import check_parts, check_shapes, check_store

if TYPE_CHECKING:
    from penstock.joins.state import JoinState


def check_restored(state: JoinState) -> None:
    """Refuse arrays that kernels would not survive."""
    config, running, follower, policy = state.config, state.running, state.follower, None
    if running.needs_future:  # what it is built from is in no snapshot
        fresh, _ = dataclasses.replace(config, policy=get("fifo")).build()
        fresh.meta[COMPETE] = state.store.meta[COMPETE]
    else:
        fresh, policy = config.build(policy=running)
    predictor = None if follower is None else new_predictor_for(config)
    if follower is not None and predictor is not None:
        check_shapes(follower.predictor, predictor, "the history")
        if running.predictor_of(policy) is not None:
            policy = running.inform(policy, predictor)
    if running.compiled and not running.needs_future:
        check_shapes(state.policy, policy, "the state of the policy")
    check_store(state.store, fresh)
    check_parts(state.policy, state.store, policy)
    if follower is not None:
        check_parts(follower.predictor, state.store, predictor)
