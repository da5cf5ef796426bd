"""Which papers there are, each a module with its title and its figures."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError, hint

if TYPE_CHECKING:
    from penstock.experiments.figure import Figure, Scope

# Name to module. `PAPER` of a module is its title, `FIGURES` its functions of a scope, each giving a Figure.
EXPERIMENTS = {
    name: f"penstock.experiments.{name}"
    for name in ("gdj", "heeb", "clock", "queues", "neel", "policies")
    if find_spec(f"penstock.experiments.{name}") is not None
}


def module_of(name: str) -> Any:
    """The module of a paper, or an error that names them all.

    >>> from penstock.experiments.papers import module_of
    >>> module_of("clock").PAPER.startswith("Gao")
    True
    """
    if name not in EXPERIMENTS:
        raise PenstockError(f"There are no experiments {name!r}{hint(name, [*EXPERIMENTS, 'all'])}")
    return import_module(EXPERIMENTS[name])


def figures_of(name: str, scope: Scope) -> list[Figure]:
    """The figures of a paper.

    >>> from penstock.experiments import Scope, figures_of
    >>> [figure.name for figure in figures_of("clock", Scope(quick=True))]
    ['figure-2', 'figure-3', 'figure-4', 'figure-5']
    """
    return [make(scope) for make in module_of(name).FIGURES]
