"""Show a pattern: its plan as text, and its tree as a Graphviz graph."""

from __future__ import annotations

from penstock.patterns.compile.analysis import EVENT, Analysis, Node, Predicate
from penstock.patterns.language.span import Span


def _own(analysis: Analysis, scope: tuple[int, ...]) -> list[Predicate]:
    return [predicate for predicate in analysis.predicates if predicate.scope == scope]


def _place(analysis: Analysis, node: Node, index: int, nested: bool) -> str:
    """In which interval a negated component is looked for."""
    if node.kind == "AND":
        return "in the interval handed down" if nested else "in the window that ends with the match"
    before = [child.node for child in node.children[:index] if child.negation is None]
    after = [child.node for child in node.children[index + 1 :] if child.negation is None]
    left = f"after {label(analysis, before[-1])}" if before else ""
    right = f"before {label(analysis, after[0])}" if after else ""
    if left and right:
        return f"{left}, {right}"
    outside = "the interval handed down" if nested else "the window"
    return f"{left or right}, in {outside}"


def label(analysis: Analysis, node: Node) -> str:
    """A component in few words."""
    if node.kind == EVENT:
        return analysis.slots[node.slot].name
    return f"{node.kind}({', '.join(analysis.slots[slot].name for slot in node.every_slot())})"


def explain(analysis: Analysis, span: Span, text: str) -> str:
    """Return the plan: what is searched, in which interval, and where each predicate is tested."""
    kind = "positions" if span.events else "times"
    lines = [text, f"window: {span} between the first and the last event ({kind})"]
    keys = partition_attributes(analysis)
    if keys:
        lines.append(f"partitioned by: {', '.join(keys)}")

    def walk(node: Node, depth: int, note: str, nested: bool) -> None:
        pad = "  " * depth
        if node.kind == EVENT:
            slot = analysis.slots[node.slot]
            tests = [p.text for p in analysis.predicates if p.local and p.slots == {slot.number}]
            lines.append(
                f"{pad}{note}{slot.type} as {slot.name}" + (f"  [{', '.join(tests)}]" if tests else "")
            )
            return
        lines.append(f"{pad}{note}{node.kind}")
        for i, child in enumerate(node.children):
            if child.negation is None:
                walk(child.node, depth + 1, "", True)
                continue
            where = _place(analysis, node, i, nested)
            walk(child.node, depth + 1, f"none of ({where}) ", True)
            for predicate in _own(analysis, analysis.scopes[child.negation]):
                if not predicate.local:
                    lines.append(f"{pad}    where {predicate.text}")

    walk(analysis.root, 0, "", False)
    lines += [f"where {p.text}" for p in _own(analysis, ()) if not p.local]
    return "\n".join(lines)


def to_dot(analysis: Analysis) -> str:
    """The tree of the pattern as a Graphviz graph; negated parts are dashed, predicates dotted edges."""
    lines = ["digraph pattern {", "  node [shape=box];"]
    count = 0

    def escaped(text: str) -> str:
        return text.replace("\\", "\\\\").replace('"', '\\"')

    def walk(node: Node, negated: bool) -> str:
        nonlocal count
        style = ', style="dashed"' if negated else ""
        sign = "!" if negated else ""
        if node.kind == EVENT:
            slot = analysis.slots[node.slot]
            name, shown = f"s{slot.number}", slot.type + ("" if slot.name == slot.type else f" {slot.name}")
        else:
            name, shown, count = f"g{count}", node.kind, count + 1
        lines.append(f'  {name} [label="{escaped(sign + shown)}"{style}];')
        for child in node.children:
            below = walk(child.node, child.negation is not None)
            lines.append(f"  {name} -> {below};")
        return name

    walk(analysis.root, False)
    for predicate in analysis.predicates:
        ends = [f"s{slot}" for slot in sorted(predicate.slots)]
        lines.append(
            f"  {ends[0]} -> {ends[-1]} [style=dotted, dir=none, constraint=false, "
            f'label="{escaped(predicate.text)}"];'
        )
    return "\n".join([*lines, "}"])


def partition_attributes(analysis: Analysis) -> list[str]:
    """Attributes that equality predicates make the same for all events, the negated ones included.

    A predicate of an OR branch links nothing where the branch is not taken, so slots of a branch count as
    linked only through predicates of that branch, and those outside must be linked without it.
    """
    found = []
    for attr in analysis.attributes:
        links = [
            p
            for p in analysis.predicates
            if p.op == "=" and len(p.slots) == 2 and all(side.attr == attr for side in p.sides)
        ]
        reached = _linked(analysis, links)
        if reached:
            found.append(attr)
    return found if len(analysis.slots) > 1 else []


def _linked(analysis: Analysis, links: list[Predicate]) -> bool:
    """Whether every choice of branches leaves all its slots linked: grow from the slots outside of ORs."""
    slots = analysis.slots
    base = [slot for slot in slots if not slot.branches]
    start = base[0].number if base else slots[0].number
    reached = {start}
    while True:
        grown = set(reached)
        for link in links:
            a, b = sorted(link.slots)
            for here, there in ((a, b), (b, a)):
                # The link is tested wherever `there` is looked for, and `here` is then bound too.
                bound = set(slots[here].branches) <= set(slots[there].branches)
                whole = set(link.branches) <= set(slots[there].branches)
                if here in reached and bound and whole and link.scope == slots[there].scope:
                    grown.add(there)
        if grown == reached:
            break
        reached = grown
    return len(reached) == len(slots) and bool(base)
