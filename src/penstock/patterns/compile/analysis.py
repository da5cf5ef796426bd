"""Semantic analysis of a pattern: its slots, and the negation and branch of every predicate.

- A *slot* is one event of the text. Its *scope* is the chain of negations around it, outermost first, and its
  *branches* say in which component of which OR it is.
- A predicate belongs to the innermost negation in which it is written or of which it names a variable. All
  of its variables must be visible from there: none may be in a negation outside that chain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from penstock.errors import PatternError, hint
from penstock.patterns.language.nodes import Attr, Compare, ConstantValue, E, Not, Part, ReturnItem

EVENT = "EVENT"
MOST = 1_000  # maximum events in a pattern
Branches = tuple[tuple[int, int], ...]  # (number of the OR, number of its component)


@dataclass(frozen=True)
class Slot:
    """One event of the pattern."""

    number: int
    type: str
    name: str
    scope: tuple[int, ...]
    branches: Branches

    @property
    def positive(self) -> bool:
        """Whether it is part of matches."""
        return not self.scope


@dataclass(frozen=True)
class PredicateSide:
    """One side of a predicate: an attribute of a slot."""

    slot: int
    attr: str


@dataclass(frozen=True)
class Predicate:
    """A comparison whose variables are slots."""

    number: int
    left: PredicateSide | ConstantValue
    op: str
    right: PredicateSide | ConstantValue
    scope: tuple[int, ...]
    branches: Branches
    text: str

    @property
    def sides(self) -> tuple[PredicateSide, ...]:
        """The sides that are attributes."""
        return tuple(side for side in (self.left, self.right) if isinstance(side, PredicateSide))

    @property
    def slots(self) -> frozenset[int]:
        """The slots it is about."""
        return frozenset(side.slot for side in self.sides)

    @property
    def local(self) -> bool:
        """Whether it is about one event alone, and tested where that event is found."""
        return len(self.slots) == 1


@dataclass(frozen=True)
class Child:
    """A component of a group; `negation` is its number if it is negated."""

    node: Node
    negation: int | None = None


@dataclass(frozen=True)
class Node:
    """SEQ, AND, OR or a single event."""

    kind: str
    slot: int = -1
    children: tuple[Child, ...] = ()
    branch_of: int = -1  # the number of an OR

    @property
    def positives(self) -> tuple[Node, ...]:
        """The components that are there."""
        return tuple(child.node for child in self.children if child.negation is None)

    def slots(self) -> Iterator[int]:
        """The positive slots below, in the order of the text."""
        if self.kind == EVENT:
            yield self.slot
        for child in self.children:
            if child.negation is None:
                yield from child.node.slots()

    def every_slot(self) -> Iterator[int]:
        """All slots below, the negated ones too."""
        if self.kind == EVENT:
            yield self.slot
        for child in self.children:
            yield from child.node.every_slot()


@dataclass
class Analysis:
    """The result of the analysis of a valid pattern."""

    root: Node
    slots: list[Slot]
    predicates: list[Predicate]
    negations: list[Node]
    by_name: dict[str, int]
    scopes: list[tuple[int, ...]] = field(default_factory=list)  # per negation: those around it, and itself

    @property
    def columns(self) -> list[Slot]:
        """The slots that are part of matches."""
        return [slot for slot in self.slots if slot.positive]

    @property
    def attributes(self) -> list[str]:
        """The attributes that predicates need."""
        return sorted({side.attr for predicate in self.predicates for side in predicate.sides})


class _PatternReader:
    """Walks over the syntax tree once; predicates are resolved when all names are known."""

    def __init__(self, part: Part) -> None:
        self.slots: list[Slot] = []
        self.negations: list[Node] = []
        self.scopes: list[tuple[int, ...]] = []
        self.ors = 0
        self.waiting: list[tuple[Compare, tuple[int, ...], Branches]] = []
        self.given: set[str] = set()
        self.taken: set[str] = set()  # names of slots
        self.seen: Counter[str] = Counter()
        for event in _events(part):
            if event.var is None:
                continue
            if event.var in self.given:
                raise PatternError(
                    f"The variable {event.var!r} is used for several events; give each its own name.",
                    event,
                    "another variable",
                )
            self.given.add(event.var)

    def walk(self, part: Part, scope: tuple[int, ...], branches: Branches) -> Node:
        if isinstance(part, E):
            number = len(self.slots)
            if number >= MOST:
                raise PatternError(
                    f"The pattern has more than {MOST:,} events; split it.", part, "fewer events"
                )
            self.slots.append(Slot(number, part.type, self._named(part), scope, branches))
            return Node(EVENT, number)
        assert not isinstance(part, Not)
        self.waiting += [(compare, scope, branches) for compare in part.where]
        which = -1
        if part.op == "OR":
            which, self.ors = self.ors, self.ors + 1
        children = []
        for i, piece in enumerate(part.parts):
            inside = (*branches, (which, i)) if which >= 0 else branches
            if isinstance(piece, Not):
                number = len(self.negations)
                self.negations.append(Node(EVENT))  # its place; the node comes below
                chain = (*scope, number)
                self.scopes.append(chain)
                self.waiting += [(compare, chain, inside) for compare in piece.where]
                self.negations[number] = self.walk(piece.part, chain, inside)
                children.append(Child(self.negations[number], number))
            else:
                children.append(Child(self.walk(piece, scope, inside)))
        return Node(part.op, children=tuple(children), branch_of=which)

    def _named(self, event: E) -> str:
        """The variable, or the type, numbered from its second use on."""
        name = event.var
        while name is None:
            self.seen[event.type] += 1
            times = self.seen[event.type]
            numbered = event.type if times == 1 else f"{event.type}_{times}"
            if numbered not in self.given and numbered not in self.taken:
                name = numbered
        self.taken.add(name)
        return name


def _events(part: Part) -> Iterator[E]:
    if isinstance(part, E):
        yield part
    elif isinstance(part, Not):
        yield from _events(part.part)
    else:
        for piece in part.parts:
            yield from _events(piece)


def analyse(part: Part, items: tuple[ReturnItem, ...]) -> Analysis:
    """Analyse an expression, or raise an error that says why it is invalid."""
    reader = _PatternReader(part)
    root = reader.walk(part, (), ())
    names = {slot.name: slot.number for slot in reader.slots}
    predicates = [
        _resolved(i, compare, scope, branches, names, reader.slots)
        for i, (compare, scope, branches) in enumerate(reader.waiting)
    ]
    _check_items(items, names, reader.slots)
    return Analysis(root, reader.slots, predicates, reader.negations, names, reader.scopes)


def _slot_of(name: str, where: object, names: dict[str, int], about: object) -> int:
    if name not in names:
        raise PatternError(
            f"{where}: there is no variable {name!r}{hint(name, names)}", about, "a variable of the pattern"
        )
    return names[name]


def _resolved(
    number: int,
    compare: Compare,
    scope: tuple[int, ...],
    branches: Branches,
    names: dict[str, int],
    slots: list[Slot],
) -> Predicate:
    mentioned = [slots[_slot_of(each.var, compare, names, each)] for each in compare.attributes]
    chains = [scope, *(slot.scope for slot in mentioned)]
    deepest = max(chains, key=len)
    if any(deepest[: len(chain)] != chain for chain in chains):
        raise PatternError(
            f"{compare} refers to a negation from outside; events of a negation can be compared with "
            "each other and with the match around them, not with another negation.",
            compare,
            "variables of one negation and of what is around it",
        )
    chosen = dict(branches)
    for slot in mentioned:
        for which, branch in slot.branches:
            if chosen.setdefault(which, branch) != branch:
                raise PatternError(
                    f"{compare} names two branches of one OR, which never occur together; give each "
                    "branch its own predicate.",
                    compare,
                    "variables of one branch",
                )
    left, right = (
        PredicateSide(names[side.var], side.name) if isinstance(side, Attr) else side
        for side in (compare.left, compare.right)
    )
    return Predicate(number, left, compare.op, right, deepest, tuple(sorted(chosen.items())), str(compare))


def _check_items(items: tuple[ReturnItem, ...], names: dict[str, int], slots: list[Slot]) -> None:
    seen: set[str] = set()
    for item in items:
        slot = slots[_slot_of(item.var, f"RETURN {item}", names, item)]
        if not slot.positive:
            raise PatternError(
                f"RETURN {item}: {item.var!r} is negated, so a match has no such event.",
                item,
                "a variable that is not negated",
            )
        if item.name in seen:
            raise PatternError(
                f"RETURN has {item.name!r} more than once; rename one with AS.", item, "another name, with AS"
            )
        seen.add(item.name)
