"""The only place that sets Numba's options.

`jit` compiles for a common processor, caches on disk (see `code_cache`), and interprets what is not worth
compiling yet (see `tiers`).
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any

from llvmlite import binding as llvm
from numba.core import config
from numba.core.registry import cpu_target

from penstock.compiler.hook import HOOKS
from penstock.compiler.tiers import Kernel

# What x86-64 processors have had since about 2013 (Haswell, Excavator).
_X86_64_V3 = ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave")


def _use_baseline() -> None:
    """Compile for a common processor, so that compiled kernels can be carried to another machine.

    Not where `NUMBA_CPU_NAME` says otherwise, or somebody has used Numba's compiler in this process already.
    """
    if getattr(config, "CPU_NAME", None) is not None or "_toplevel_target_context" in vars(cpu_target):
        return
    machine = platform.machine().lower()
    if machine in ("x86_64", "amd64"):
        has = llvm.get_host_cpu_features()
        name = "x86-64-v3" if all(has.get(each) for each in _X86_64_V3) else "x86-64"
    else:
        name = "generic"
    vars(config).update(CPU_NAME=name, CPU_FEATURES="")


_use_baseline()


def jit(function: Callable[..., Any]) -> Any:
    """A kernel: compiled when that pays, and cached on disk so that a new process loads it."""
    return function if getattr(config, "DISABLE_JIT", False) else Kernel(function, implementations)


def implementations(state_class: type) -> set[Callable[..., Any]]:
    """What hooks do for a class and not for others: part of the code of every kernel that is given one.

    Whoever calls a hook imports its default with it. Defaults of other hooks are none of its business: which
    of them there are depends on what a process has imported.
    """
    found = {hook.of(state_class): hook for hook in HOOKS}
    return {each for each, hook in found.items() if each is not hook.default}
