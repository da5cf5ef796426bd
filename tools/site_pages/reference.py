"""The API reference: a page per public module, from the docstrings of everything in its `__all__`.

A name that several modules export is described once, on the first of their pages; the others link to it.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from types import ModuleType
from typing import Any

# In the order in which users meet them. Every package with an `__all__` is here or in `INTERNAL`.
MODULES = (
    "penstock",
    "penstock.spark",
    "penstock.policies",
    "penstock.joins",
    "penstock.lookup",
    "penstock.patterns",
    "penstock.linked",
    "penstock.queues",
    "penstock.caching",
    "penstock.models",
    "penstock.locality",
    "penstock.workloads",
    "penstock.testing",
    "penstock.dashboard",
    "penstock.reproduction",
    "penstock.errors",
)
INTERNAL = (
    "penstock.cli",
    "penstock.flows",
)  # the command line has a page of its own; the solver behind `opt`


def public_names(module: ModuleType) -> list[str]:
    """What a module exports: its `__all__`, or the classes that are defined in it."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return list(listed)
    return [
        name
        for name, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == module.__name__ and not name.startswith("_")
    ]


def navigation() -> list[Any]:
    """The index, then a page per module."""
    return ["reference/index.md", *({name: _path(name)} for name in MODULES)]


def pages(quick: bool = False) -> dict[str, str]:
    """The Markdown of every page, by its path. The directives in it are those of mkdocstrings."""
    made: dict[str, str] = {}
    homes: dict[int, str] = {}  # by the identity of what is exported, the name under which it is described
    rows = []
    for name in MODULES:
        module = import_module(name)
        made[_path(name)] = _page(module, homes)
        rows.append(f"| [`{name}`]({_path(name).removeprefix('reference/')}) | {_summary(module)} |")
    head = ["# API reference", "", "Every public name, from the docstrings. The tests run the examples.", ""]
    made["reference/index.md"] = "\n".join([*head, "| module | |", "|---|---|", *rows, ""])
    return made


def _path(module: str) -> str:
    return f"reference/{module}.md"


def _page(module: ModuleType, homes: dict[int, str]) -> str:
    lines = [f"# {module.__name__}", "", _summary(module), "", "| name | |", "|---|---|"]
    described: list[str] = []
    for name in sorted(public_names(module), key=str.lower):
        value, path = getattr(module, name), f"{module.__name__}.{name}"
        if isinstance(value, ModuleType) and value.__name__ in MODULES:
            lines.append(f"| [`{name}`]({value.__name__}.md) | {_summary(value)} |")
            continue
        home = homes.setdefault(id(value), path)
        lines.append(f"| [`{name}`][{home}] | {_summary(value)} |")
        if home == path:
            described.append(path)
    for path in described:
        label = path.rpartition(".")[2]
        lines += ["", f"::: {path}", "    options:", f"      heading: {label}", f"      toc_label: {label}"]
    return "\n".join(lines) + "\n"


def _summary(value: Any) -> str:
    """The first line of a docstring, for a table."""
    own = value if isinstance(value, ModuleType) or callable(value) else type(value)
    first = (inspect.getdoc(own) or "").partition("\n\n")[0].replace("\n", " ").replace("|", "\\|")
    return first if callable(value) or isinstance(value, ModuleType) else ""
