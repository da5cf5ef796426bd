"""A figure that takes no time, for tests of the frame."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from penstock.reproduction import Claim, Figure, Trial
from penstock.reproduction.plots import finish, lines, panels


def drawn(n: int, seed: int, log: str | None = None, fails: bool = False) -> list[dict[str, Any]]:
    """Some numbers; `log` is a file that gets a line per run."""
    if log is not None:
        with Path(log).open("a") as file:
            file.write(f"{n}\n")
    if fails and not Path(log or "", "..", "mended").resolve().exists():
        raise RuntimeError("not yet")
    rng = np.random.default_rng([seed, n])
    return [{"n": n, "x": i, "value": rng.random(), "source": "toy"} for i in range(3)]


def compiles(policy: str, n: int, folder: str) -> list[dict[str, Any]]:
    """The first trial of a policy takes a moment; the others tell whether it was over when they began."""
    done = Path(folder, f"{policy}-{n}")
    if n == 0:
        time.sleep(0.5)
    done.touch()
    return [{"x": 0, "value": 0.0, "log": "", "after": Path(folder, f"{policy}-0").exists()}]


def fails_or_lasts(fails: bool, folder: str) -> list[dict[str, Any]]:
    """One trial fails once the other has begun, which takes a minute."""
    begun, over = Path(folder, "begun"), Path(folder, "over")
    if fails:
        while not begun.exists():
            time.sleep(0.05)
        raise RuntimeError("one has failed")
    begun.touch()
    time.sleep(60)
    over.touch()
    return []


def figure(log: Path | None = None, failing: int | None = None) -> Figure:
    """Six trials."""

    def draw(table: Any) -> Any:
        drawing, (ax,) = panels(1)
        lines(ax, table, "x", "value", "n")
        finish(ax, "Toy", "x", "value")
        return drawing

    return Figure(
        "figure-1",
        "A <toy>",
        "nowhere",
        [Trial(drawn, {"n": n, "seed": 3, "log": log and str(log), "fails": n == failing}) for n in range(6)],
        draw,
        lambda table: [
            Claim("numbers are below 1", f"the most is {table.value.max():.3f}", bool(table.value.max() < 1)),
            Claim("there are ten", f"{len(table)}", len(table) == 10),
            Claim("they are nice", "no measure", None),
        ],
    )
