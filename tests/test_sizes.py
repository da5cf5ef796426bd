"""Long files have a stated reason, and only public functions have many parameters."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "penstock"
LONG = 400  # lines
MANY = 10  # parameters


def test_every_long_file_has_a_reason() -> None:
    """`docs/architecture.md` lists them, and lists no file that has become short."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    section = text.split("## Long files")[1].split("\n## ")[0]
    stated = {
        path for path, reason in re.findall(r"^\| `([^`]+)` \| (.+) \|$", section, re.MULTILINE) if reason
    }
    files = {
        path.relative_to(PACKAGE).as_posix(): len(path.read_text().splitlines())
        for path in PACKAGE.rglob("*.py")
        if "reproduction" not in path.parts
    }
    assert len(files) > 300
    assert stated == {path for path, lines in files.items() if lines > LONG}


def test_only_public_functions_have_many_parameters() -> None:
    found = {
        f"{path.relative_to(PACKAGE).as_posix()}: {name}"
        for path in PACKAGE.rglob("*.py")
        if "cli" not in path.relative_to(PACKAGE).parts  # commands: one parameter per option
        for name, parameters in _functions(ast.parse(path.read_text()))
        if parameters > MANY and not _is_public(path, name)
    }
    assert not found


def _functions(tree: ast.Module) -> list[tuple[str, int]]:
    """Return the name and the number of parameters of each function and method of a module."""
    found = []
    for node in tree.body:
        for inner in ast.walk(node):
            if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                arguments = inner.args.posonlyargs + inner.args.args + inner.args.kwonlyargs
                bound = bool(arguments) and arguments[0].arg in {"self", "cls"}
                owner = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
                found.append((owner + inner.name, len(arguments) - bound))
    return found


def _is_public(path: Path, name: str) -> bool:
    """Whether a package exports the function, or the class that it belongs to."""
    module = "penstock." + ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    owner = getattr(importlib.import_module(module), name.split(".", maxsplit=1)[0])
    parts = module.split(".")[:-1]
    packages = [importlib.import_module(".".join(parts[: i + 1])) for i in range(len(parts))]
    names = [(package, each) for package in packages for each in getattr(package, "__all__", ())]
    return any(inspect.unwrap(getattr(package, each)) is inspect.unwrap(owner) for package, each in names)
