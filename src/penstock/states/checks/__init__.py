"""Check that the arrays of a snapshot are safe for kernels, which check nothing.

A checksum detects accidents on the way. It does not detect arrays that were wrong before they were sealed,
and an index out of range ends the process. So a restored state is checked as a whole: every array has the
type and shape that a fresh one has, every index is in range, lists end, the accounts agree, and nothing is
so far off that a loop would go on for ever. What is no index (a credit, a time) cannot be distinguished
from a right one. All arrays are checked whole, in time that grows with their size.
"""

from penstock.snapshots.array_checks import (
    check_numbers,
    check_same,
    check_shapes,
    check_within,
    looked_over,
    sound,
)
from penstock.states.checks import knowledge, outlooks, policies
from penstock.states.checks.caches import check_cache
from penstock.states.checks.knowledge import check_predictor
from penstock.states.checks.orders import check_queue
from penstock.states.checks.parts import CHECKS, check_parts, needs_check
from penstock.states.checks.store import check_apart, check_store
from penstock.states.checks.streams import (
    check_decided,
    check_flow,
    check_index,
    check_many_fates,
    check_open,
    check_sample,
    check_sketch,
)

__all__ = [
    "CHECKS",
    "check_apart",
    "check_cache",
    "check_decided",
    "check_flow",
    "check_index",
    "check_many_fates",
    "check_numbers",
    "check_open",
    "check_parts",
    "check_predictor",
    "check_queue",
    "check_same",
    "check_sample",
    "check_shapes",
    "check_sketch",
    "check_store",
    "check_within",
    "knowledge",
    "looked_over",
    "needs_check",
    "outlooks",
    "policies",
    "sound",
]
