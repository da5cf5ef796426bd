"""One name for one thing, and no kernel that takes everything one by one."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "penstock"

# The indexes of the two drivers have the same parts and are never in one module.
SAME_NAME = {"Index", "Scheme"}

MOST_PARAMETERS = 10
# What users call takes one argument per setting.
MANY_PARAMETERS = {
    "cli/asof.py:asof",
    "cli/join.py:join",
    "cli/join.py:reconcile",
    "cli/lookup.py:enrich",
    "cli/plan.py:plan",
    "joins/asof.py:asof_join",
    "joins/many.py:join_many",
    "joins/many_stream.py:start_many",
    "joins/optimal.py:follow_decisions",
    "joins/plan.py:plan",
    "linked/query.py:StreamQuery.run",
    "lookup/cache.py:LookupCache.__init__",
    "patterns/pattern.py:Pattern.run",
    "spark/api/asof.py:asof_join",
    "spark/api/join.py:bounded_join",
    "spark/api/many.py:bounded_join_many",
    "spark/api/match.py:match_pattern",
    "spark/api/reconcile.py:reconcile",
}


def _modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.relative_to(SOURCE).as_posix(), ast.parse(path.read_text())


def _functions(body: list[ast.stmt], inside: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _functions(node.body, f"{inside}{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            yield inside + node.name, node
            yield from _functions(node.body, f"{inside}{node.name}.")


def test_a_class_name_stands_for_one_class() -> None:
    places = defaultdict(list)
    for name, module in _modules():
        for node in ast.walk(module):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(name)
    doubled = {name: where for name, where in places.items() if len(where) > 1}
    assert {name: where for name, where in doubled.items() if name not in SAME_NAME} == {}
    assert set(doubled) >= SAME_NAME, "an exception that is no longer needed"


def test_functions_have_at_most_ten_parameters() -> None:
    found = {}
    for module, tree in _modules():
        for name, node in _functions(tree.body):
            taken = [each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            count = len(taken) - (taken[:1] in (["self"], ["cls"]))
            if count > MOST_PARAMETERS:
                found[f"{module}:{name}"] = count
    assert {name: count for name, count in found.items() if name not in MANY_PARAMETERS} == {}
    assert set(found) >= MANY_PARAMETERS, "an exception that is no longer needed"
