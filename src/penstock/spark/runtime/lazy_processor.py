"""A stateful operator that is loaded when the first rows come.

At the start of a query Spark starts a Python process on the driver and loads the operator there, only to ask
which state variables it has. Loading Numba, pandas and an operator takes two seconds, so this module imports
nothing but Spark: the operator travels as bytes, and its state variables are known beforehand.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from pyspark import cloudpickle
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle


class LazyProcessor(StatefulProcessor):
    """Runs another stateful processor."""

    def __init__(self, processor: StatefulProcessor) -> None:
        recorder = _Recorder()
        copy.copy(processor).init(recorder)  # type: ignore[arg-type]
        self._variables = recorder.variables
        self._packed: bytes = cloudpickle.dumps(processor)  # type: ignore[no-untyped-call]

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state variables of the processor."""
        self._declared = {name: getattr(handle, how)(name, *rest) for how, name, rest in self._variables}
        self._processor: Any = None

    def getValueState(self, name: str, *rest: Any) -> Any:  # noqa: N802
        """A variable that has been declared, as the processor asks for it."""
        return self._declared[name]

    getMapState = getValueState  # noqa: N815

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: N802
        """What the processor makes of them."""
        if self._processor is None:
            self._processor = cloudpickle.loads(self._packed)
            self._processor.init(self)
        yield from self._processor.handleInputRows(key, rows, timerValues)

    def close(self) -> None:
        """Close the processor, if it has been loaded."""
        if self._processor is not None:
            self._processor.close()


class _Recorder:
    """A handle that notes which state variables a processor declares."""

    def __init__(self) -> None:
        self.variables: list[tuple[str, str, tuple[Any, ...]]] = []

    def __getattr__(self, how: str) -> Any:
        return lambda name, *rest: self.variables.append((how, name, rest))
