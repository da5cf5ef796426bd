"""Run figures: trials in processes or as Spark tasks, saved as they finish, so that a run can resume.

The order of a table is that of its trials, whatever finished first and wherever it ran.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import active_children, get_context
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pandas as pd

from penstock.errors import PenstockError
from penstock.reproduction.figure import Figure, Outcome, Row, Trial

Report = Callable[[int, int, str], None]
KEPT = "trials.jsonl"


def reproduce(
    papers: dict[str, list[Figure]],
    out: Path,
    *,
    jobs: int | None = None,
    spark: Any = None,
    progress: Report | None = None,
) -> list[Outcome]:
    """Run the figures of papers and write a CSV and a PNG for each under `out`.

    Parameters
    ----------
    papers
        Figures by the name of their paper.
    out
        A folder; it is made. Trials that it has already are not run again.
    jobs
        Processes, as many as there are processors by default; 1 runs all in this one.
    spark
        A session, to run the trials as its tasks instead.
    progress
        Told of done, total and label.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from penstock.reproduction import Scope, figures_of, reproduce
    >>> figures = figures_of("clock", Scope(quick=True))[:1]
    >>> (outcome,) = reproduce({"clock": figures}, Path(tempfile.mkdtemp()), jobs=1)
    >>> outcome.png.name, all(claim.holds for claim in outcome.claims)
    ('figure-2.png', True)
    """
    out.mkdir(parents=True, exist_ok=True)
    kept = _Kept(out / KEPT)
    figures = [figure for each in papers.values() for figure in each]
    # Figures may share trials, which then run once.
    wanted = {trial.key: (figure, trial) for figure in figures for trial in figure.trials}
    total = len(wanted)
    missing = [each for key, each in wanted.items() if key not in kept.rows]
    done = total - len(missing)
    tell = progress or (lambda done, total, label: None)
    tell(done, total, f"{done} were there already" if done else "starting")
    together = [(f, t) for f, t in missing if not f.alone]
    alone = [(f, t) for f, t in missing if f.alone]
    for ran in (_run_together(together, jobs, spark), _one_by_one(alone)):
        for figure, trial, rows in ran:
            kept.add(trial.key, rows)
            done += 1
            tell(done, total, figure.title)
    return [_finish(name, figure, kept, out) for name, each in papers.items() for figure in each]


class _Kept:
    """The rows of finished trials, a line each in a file; a line that a crash has cut short is not there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.rows: dict[str, list[Row]] = {}
        if path.exists():
            whole = path.read_bytes()
            for line in whole.splitlines(keepends=True):
                if not line.endswith(b"\n"):
                    path.write_bytes(whole[: -len(line)])
                    break
                key, rows = json.loads(line)
                self.rows[key] = rows

    def add(self, key: str, rows: list[Row]) -> None:
        self.rows[key] = rows
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps([key, rows]) + "\n")


Asked = list[tuple[Figure, Trial]]
Ran = Iterator[tuple[Figure, Trial, list[Row]]]


def _run_together(asked: Asked, jobs: int | None, spark: Any) -> Ran:
    if spark is not None:
        return _on_spark(asked, spark)
    workers = min(jobs or os.cpu_count() or 1, len(asked))
    return _one_by_one(asked) if workers <= 1 else _in_processes(asked, workers)


def _one_by_one(asked: Asked) -> Ran:
    for figure, trial in asked:
        yield figure, trial, plain(trial.rows())


def _in_processes(asked: Asked, workers: int) -> Ran:
    others = set(active_children())
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        futures: dict[Future[list[Row]], tuple[Figure, Trial]] = {}
        finished: SimpleQueue[Future[list[Row]]] = SimpleQueue()

        def submit(each: Asked) -> None:
            for figure, trial in each:
                future = pool.submit(_rows, trial)
                futures[future] = (figure, trial)
                future.add_done_callback(finished.put)

        # On a machine that has no kernels yet, compiling is most of the work, and processes that start on the
        # same ones do it side by side. So the first trial of a policy runs before the others.
        waiting: dict[tuple[str, str], Asked] = {}
        first: Asked = []
        for each in asked:
            kernels = _kernels(each[1])
            waiting.get(kernels, first).append(each)
            waiting.setdefault(kernels, [])
        submit(first)
        try:
            while futures:
                future = finished.get()
                figure, trial = futures.pop(future)
                yield figure, trial, future.result()
                submit(waiting.pop(_kernels(trial), []))
        except BaseException:
            # Nobody waits for what is under way; it runs again when the run goes on.
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in set(active_children()) - others:
                worker.terminate()
            raise


def _kernels(trial: Trial) -> tuple[str, str]:
    """What tells which kernels a trial uses: its function and policy; trials without one are on their own."""
    policy = trial.given.get("policy")
    return trial.run.__qualname__, trial.key if policy is None else str(policy).partition(":")[0]


def _on_spark(asked: Asked, spark: Any) -> Ran:
    """A task per trial; several jobs, so that what is finished is kept."""
    context = spark.sparkContext
    size = 4 * max(1, context.defaultParallelism)
    for at in range(0, len(asked), size):
        part = asked[at : at + size]
        tasks = context.parallelize([trial for _, trial in part], len(part))
        for (figure, trial), rows in zip(part, tasks.map(_rows).collect(), strict=True):
            yield figure, trial, rows


def _rows(trial: Trial) -> list[Row]:
    return plain(trial.rows())


def plain(rows: Iterable[Row]) -> list[Row]:
    """Rows as they come back from JSON, so that a table is the same whether it was kept or has just run.

    >>> import numpy as np
    >>> from penstock.reproduction.runner import plain
    >>> plain([{"n": np.int64(3), "x": 0.5, "pair": (1, 2)}])
    [{'n': 3, 'x': 0.5, 'pair': [1, 2]}]
    """
    return list(json.loads(json.dumps(list(rows), default=lambda value: value.item())))


def _finish(paper: str, figure: Figure, kept: _Kept, out: Path) -> Outcome:
    rows = [row for trial in figure.trials for row in kept.rows[trial.key]]
    if not rows:
        raise PenstockError(f"{paper} {figure.name} has no rows; its trials gave nothing.")
    table = pd.DataFrame(rows)
    folder = out / paper
    folder.mkdir(exist_ok=True)
    csv, png = folder / f"{figure.name}.csv", folder / f"{figure.name}.png"
    table.to_csv(csv, index=False)
    drawing = figure.draw(table)
    drawing.savefig(png, dpi=130)
    sources = sorted(table["source"].dropna().unique()) if "source" in table else []
    return Outcome(paper, figure, table, csv, png, figure.claims(table), sources)
