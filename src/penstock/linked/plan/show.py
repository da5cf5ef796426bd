"""Show a plan as text."""

from __future__ import annotations

import numpy as np

from penstock.linked.plan.plan import QueryPlan
from penstock.linked.plan.tree import Tree, joins, leaves


def explain(plan: QueryPlan) -> str:
    """The plan as text, one line per cache, rule, join and condition."""
    query = plan.query
    sources = ", ".join((*query.streams, *(f"<{name}>" for name in query.background)))
    distinct = "DISTINCT " if query.distinct else ""
    lines = [f"SELECT {distinct}{' '.join(map(str, query.items))} from {sources}"]
    for number, users in enumerate(plan.caches, start=1):
        first, *others = (str(query.patterns[i]) for i in users)
        shared = f", shared with {' and '.join(others)}" if others else ""
        if plan.patterns == 1:
            lines.append(f"pattern: {first}")
        else:
            lines.append(f"cache {number}: {first}{shared}")
        for i in users:
            for expression in plan.rows[i]:
                where = f" for {query.patterns[i]}" if others else ""
                lines.append(f"  before{where}: {_bare(str(expression))}")
        if plan.patterns > 1:
            lines += [f"  {rule}" for rule in dict.fromkeys(_expiry(plan, i) for i in users)]
    for at, step in enumerate(plan.steps, start=1):
        left, right = (_side(plan, side) for side in step.sides)
        on = " on " + ", ".join(f"?{name}" for name in step.shared) if step.shared else ", every pair"
        lines.append(f"join {at}: {left} with {right}{on}")
        for one, other in (step.sides, step.sides[::-1]):
            if not isinstance(one, int):
                lines.append(f"  {_waits(plan, one, other)}")
        lines += [f"  every pair: {_bare(text)}" for text in step.shown]
    lines += [f"on results: {_bare(str(expression))}" for expression in plan.late]
    return "\n".join(lines)


def _bare(text: str) -> str:
    return text[1:-1] if text.startswith("(") and text.endswith(")") else text


def _span(limit: float, unit: str) -> str:
    number = int(limit) if float(limit).is_integer() else limit
    return f"{number:,} {unit}"


def _rule(limits: np.ndarray, unit: str) -> str:
    """When a triple can meet another pattern's no more."""
    parts = []
    for name, limit in zip(("start", "end"), limits[:2], strict=True):
        if np.isfinite(limit):
            parts.append(f"at its {name}" if limit == 0 else f"{_span(limit, unit)} after its {name}")
    if np.isfinite(limits[2]):
        parts.append(f"at {_span(limits[2], unit)}")
    if len(parts) > 1 and limits[0] <= limits[1]:
        parts.pop(1)  # the start comes first
    return ", or ".join(parts) or "never: only the budget bounds its memory"


def _expiry(plan: QueryPlan, pattern: int) -> str:
    others = [other for other in range(plan.patterns) if (plan.scheme.partners[pattern] >> other) & 1]
    rules = dict.fromkeys(_rule(plan.limits[pattern, other], plan.scale.unit) for other in others)
    if any(rule.startswith("never") for rule in rules):
        rules = dict.fromkeys(rule for rule in rules if rule.startswith("never"))
    return "a triple expires " + ", and not before: ".join(rules)


def _side(plan: QueryPlan, side: Tree) -> str:
    if isinstance(side, int):
        return str(plan.query.patterns[side])
    return f"join {joins(plan.tree).index(side) + 1}"


def _waits(plan: QueryPlan, side: Tree, other: Tree) -> str:
    """What becomes of partial solutions that wait for the other side."""
    bound = all(any(np.isfinite(plan.limits[i, late]).any() for i in leaves(side)) for late in leaves(other))
    kept = "expire with their first member" if bound else "never expire: only the budget bounds their memory"
    last = str(plan.query.patterns[other]) if isinstance(other, int) else _side(plan, other)
    return f"those of {_side(plan, side)} wait for {last} in their own cache and {kept}"
