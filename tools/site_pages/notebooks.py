"""Runs notebooks that are kept as Python files, and shows them as pages and as `.ipynb`.

A notebook is a file in the percent format, which Jupytext, VS Code and PyCharm open as a notebook:
`# %% [markdown]` begins a cell of text, `# %%` one of code. Like a kernel, `run` shows what a cell prints,
the value of its last expression, and the figures of pyplot that are open after it.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import re
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from site_pages.pictures import STYLE, png

MARK = re.compile(r"^# %%(.*)\n", re.MULTILINE)


@dataclass
class Cell:
    """A cell, and after a run what it has shown: printed text, the last value, pictures."""

    kind: str  # "markdown" or "code"
    text: str
    line: int
    printed: str = ""
    value: str = ""
    table: str = ""  # the last value as HTML, if it is a table
    pictures: list[bytes] = field(default_factory=list)


def cells_of(path: Path) -> list[Cell]:
    """The cells of a file."""
    source = path.read_text(encoding="utf-8")
    marks = list(MARK.finditer(source))
    ends = [*(mark.start() for mark in marks[1:]), len(source)]
    found = []
    for mark, end in zip(marks, ends, strict=True):
        text, line = source[mark.end() : end].strip("\n"), source.count("\n", 0, mark.end()) + 1
        if "[markdown]" in mark[1]:
            text = re.sub(r"^# ?", "", text, flags=re.MULTILINE)
        found.append(Cell("markdown" if "[markdown]" in mark[1] else "code", text, line))
    return found


@contextlib.contextmanager
def quiet_pictures() -> Iterator[None]:
    """Figures are drawn into memory, in the style of the site."""
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    backend = mpl.get_backend()
    plt.switch_backend("agg")
    try:
        with mpl.rc_context(STYLE):
            yield
    finally:
        plt.close("all")
        plt.switch_backend(backend)


def run(path: Path) -> list[Cell]:
    """Run all cells in order, in one module and in the current folder; an error ends it with its line."""
    cells = cells_of(path)
    module = types.ModuleType("notebook_" + path.stem)  # one that can be found: its classes can be pickled
    sys.modules[module.__name__] = module
    try:
        with quiet_pictures():
            for cell in cells:
                if cell.kind == "code":
                    _run(cell, path, vars(module))
    finally:
        del sys.modules[module.__name__]
    return cells


def _run(cell: Cell, path: Path, names: dict[str, Any]) -> None:
    from matplotlib import pyplot as plt
    from matplotlib.figure import Figure

    tree = ast.parse("\n" * (cell.line - 1) + cell.text, str(path))
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, str(path), "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), str(path), "eval"), names)
    cell.printed = printed.getvalue()
    if isinstance(value, Figure):
        cell.pictures.append(png(value))
    elif value is not None:
        cell.value = repr(value)
        cell.table = value._repr_html_() if hasattr(value, "_repr_html_") else ""
    for number in plt.get_fignums():
        cell.pictures.append(png(plt.figure(number)))
    plt.close("all")


def as_markdown(cells: list[Cell], name: str) -> tuple[str, dict[str, bytes]]:
    """The page of a notebook, and its pictures by their file names."""
    lines, pictures = [], {}
    for cell in cells:
        if cell.kind == "markdown":
            lines += [cell.text, ""]
            continue
        lines += ["```python", cell.text, "```", ""]
        shown = cell.printed.rstrip() or ("" if cell.table else cell.value)
        if shown:
            lines += ["``` { .text .output }", shown, "```", ""]
        if cell.table:
            lines += [f'<div class="output">{_one_line(cell.table)}</div>', ""]
        for picture in cell.pictures:
            file = f"{name}-{len(pictures) + 1}.png"
            pictures[file] = picture
            lines += [f"![Output of the cell above]({file})", ""]
    return "\n".join(lines), pictures


def _one_line(html: str) -> str:
    return re.sub(r"\s*\n\s*", "", re.sub(r"<style.*?</style>", "", html, flags=re.DOTALL))


def as_ipynb(cells: list[Cell]) -> str:
    """The notebook for Jupyter, with its outputs."""
    found = []
    for number, cell in enumerate(cells):
        entry: dict[str, Any] = {"id": f"cell-{number}", "metadata": {}, "source": cell.text}
        if cell.kind == "markdown":
            found.append({"cell_type": "markdown", **entry})
            continue
        outputs: list[dict[str, Any]] = []
        if cell.printed:
            outputs.append({"output_type": "stream", "name": "stdout", "text": cell.printed})
        if cell.value:
            data = {"text/plain": cell.value, **({"text/html": cell.table} if cell.table else {})}
            outputs.append(
                {"output_type": "execute_result", "execution_count": None, "metadata": {}, "data": data}
            )
        for picture in cell.pictures:
            data = {"image/png": base64.b64encode(picture).decode()}
            outputs.append({"output_type": "display_data", "metadata": {}, "data": data})
        found.append({"cell_type": "code", **entry, "execution_count": None, "outputs": outputs})
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return json.dumps({"cells": found, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}, indent=1)
