"""What a run of the suite cost, at the end of its log: compilation, memory, and the files that took longest.

A plugin of pytest, so that CI's log tells where the time goes. Workers of pytest-xdist report to the process
that started them.
"""

from __future__ import annotations

import os
import resource
import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from numba.core import event

LONGEST = 25  # files that are listed
_OF_A_TEST = "costs"  # the property of a report

Costs = dict[str, float]


class _Compilations(event.Listener):
    """Counts the kernels that this process compiles, and the CPU seconds it takes, not cached ones."""

    def __init__(self) -> None:
        self.kernels = 0
        self.seconds = 0.0
        self._running: list[float] = []

    def on_start(self, event: event.Event) -> None:
        """A compilation begins, maybe within another."""
        self._running.append(_cpu())

    def on_end(self, event: event.Event) -> None:
        """A compilation ends."""
        seconds = _cpu() - self._running.pop()
        if not self._running:
            self.kernels += 1
            self.seconds += seconds


_compilations = _Compilations()
_ended: list[dict[str, Any]] = []  # what workers have reported


def _cpu() -> float:
    """Seconds of CPU of this process and of those that it has waited for."""
    return sum(os.times()[:4])


def _of_this_process(name: str) -> dict[str, Any]:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "name": name,
        "cpu": _cpu(),
        "kernels": _compilations.kernels,
        "compiling": _compilations.seconds,
        "megabytes": peak / (1 << 20 if sys.platform == "darwin" else 1 << 10),
    }


def pytest_configure() -> None:
    """Compilations count from here on."""
    event.register("numba:compile", _compilations)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Measure a test with its fixtures; what began before the last report of it is in it."""
    item.stash[_BEGAN] = (_cpu(), _compilations.seconds, _compilations.kernels)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[Any]:
    """Give the report of each phase what the phase has cost."""
    report = yield
    now = (_cpu(), _compilations.seconds, _compilations.kernels)
    before = item.stash[_BEGAN]
    item.stash[_BEGAN] = now
    report.costs = [new - old for new, old in zip(now, before, strict=True)]
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker reports what it has cost in all."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output[_OF_A_TEST] = _of_this_process(session.config.workerinput["workerid"])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Keep the report of a worker."""
    if _OF_A_TEST in (output := getattr(node, "workeroutput", {})):
        _ended.append(output[_OF_A_TEST])


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Write it all down."""
    files: defaultdict[str, list[float]] = defaultdict(lambda: [0.0] * 4)
    for report in (each for kind in terminalreporter.stats.values() for each in kind):
        if isinstance(report, pytest.TestReport):
            for column, cost in enumerate((report.duration, *report.costs)):
                files[report.nodeid.partition("::")[0]][column] += cost
    write = terminalreporter.write_line
    terminalreporter.section("costs")
    write("   wall      CPU  of it compiling  kernels")
    for name, costs in sorted(files.items(), key=lambda file: -file[1][0])[:LONGEST]:
        write("{:6.1f} s {:6.1f} s {:14.1f} s {:8.0f}  {}".format(*costs, name))
    for each in _ended or [_of_this_process("this process")]:
        write(
            "{name}: {cpu:.0f} s of CPU, of it {compiling:.0f} s compiling {kernels} kernels; "
            "peak {megabytes:.0f} MB".format(**each)
        )


_BEGAN = pytest.StashKey[tuple[float, float, int]]()
