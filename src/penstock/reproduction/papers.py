"""The list of papers, each a module with its title and its figures.

A module has `FIGURES`, functions of a scope that give a `Figure`.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError, hint
from penstock.extras import require

if TYPE_CHECKING:
    from penstock.reproduction.figure import Figure, Scope

TITLES = {
    "gdj": "Li, Chang, Bestavros and Kollios: GreedyDual-Join (BUCS-TR-2004-028)",
    "heeb": "Xie, Yang and Chen: On Joining and Caching Stochastic Streams (SIGMOD 2005)",
    "clock": "Gao, Scharrenbach and Bernstein: The CLOCK Data-Aware Eviction Approach (ESWC 2014)",
    "queues": "Motwani and Thomas: Caching Queues in Memory Buffers (SODA 2004)",
    "neel": "Ray et al.: Optimizing Complex Sequence Pattern Extraction Using Caching (NEEL)",
    "policies": "Every policy on every stream",
}
PACKAGES = ("matplotlib", "ortools", "scipy", "statsmodels")  # of the extra "reproduction"
EXPERIMENTS = {
    name: f"penstock.reproduction.{name}"
    for name in TITLES
    if find_spec(f"penstock.reproduction.{name}") is not None
}
"""The module of every paper whose experiments can be rerun."""


def module_of(name: str) -> Any:
    """The module of a paper, or an error that names them all.

    >>> from penstock.reproduction.papers import module_of
    >>> module_of("clock").__name__
    'penstock.reproduction.clock'
    """
    if name not in EXPERIMENTS:
        raise PenstockError(f"There are no experiments {name!r}{hint(name, [*EXPERIMENTS, 'all'])}")
    return import_module(EXPERIMENTS[name])


def figures_of(name: str, scope: Scope) -> list[Figure]:
    """The figures of a paper.

    >>> from penstock.reproduction import Scope, figures_of
    >>> [figure.name for figure in figures_of("clock", Scope(quick=True))]
    ['figure-2', 'figure-3', 'figure-4', 'figure-5', 'equal-bytes', 'rho-auto']
    """
    module = module_of(name)
    for package in PACKAGES:
        require(package, "The reproduction", extra="reproduction")
    return [make(scope) for make in module.FIGURES]
