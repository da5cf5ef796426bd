"""The one place that sets Numba's options, and the hooks through which a driver calls a policy.

`jit` compiles for a common processor, caches on disk (see `code_cache`), and interprets what is not worth
compiling yet (see `tiers`).

`hook` makes a function whose implementation depends on the type of its first argument, at compile
time under Numba and at run time in plain Python.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Callable
from typing import Any

from llvmlite import binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils, config
from numba.core.registry import cpu_target
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    infer_getattr,
    intrinsic,
    lower_getattr_generic,
    models,
    overload,
    register_model,
)

from penstock.kernels.code_cache import CodeCache
from penstock.kernels.tiers import Kernel

_HOOKS: list[Hook] = []

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
    return _kernel(function, driver=False)


def driver(function: Callable[..., Any]) -> Any:
    """A kernel whose work follows the number of items that `tiers.expecting` tells."""
    return _kernel(function, driver=True)


def _kernel(function: Callable[..., Any], *, driver: bool) -> Any:
    if getattr(config, "DISABLE_JIT", False):
        return function
    return Kernel(function, CodeCache(function, _implementations), driver=driver)


def _implementations(state_class: type) -> set[Callable[..., Any]]:
    """What the hooks do for a class: it becomes a part of the code of every kernel that is given one."""
    return {hook.of(state_class) for hook in _HOOKS}


class Hook:
    """A function with one implementation per policy state class, and a default.

    The implementation is a plain function; Numba compiles it into the driver that calls the hook.
    """

    def __init__(self, default: Callable[..., Any]) -> None:
        self.default = default
        self.table: dict[type, Callable[..., Any]] = {}

    def of(self, state_class: type) -> Callable[..., Any]:
        """The implementation for a state class: its own, an ancestor's, or the default."""
        for ancestor in state_class.__mro__:
            if ancestor in self.table:
                return self.table[ancestor]
        return self.default

    def on(self, *state_classes: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorator: this is what the hook does for these state classes."""

        def register(implementation: Callable[..., Any]) -> Callable[..., Any]:
            for state_class in state_classes:
                self.table[state_class] = implementation
            return implementation

        return register


def hook(default: Callable[..., Any]) -> Any:
    """Make `default` a function that each policy state class may implement anew (see `Hook`)."""
    registered = Hook(default)
    _HOOKS.append(registered)

    @functools.wraps(default)
    def dispatch(policy: Any, *arguments: Any) -> Any:
        return registered.of(type(policy))(policy, *arguments)

    @overload(dispatch, strict=False)
    def typed(policy: Any, *arguments: Any) -> Any:
        kind = policy.target if isinstance(policy, Ref) else policy
        return registered.of(kind.instance_class) if hasattr(kind, "instance_class") else None

    dispatch.on = registered.on  # type: ignore[attr-defined]
    dispatch.implementations = registered  # type: ignore[attr-defined]
    return dispatch


class Ref(types.Type):
    """Numba type of a reference to a named tuple of arrays that somebody else keeps alive."""

    def __init__(self, target: Any) -> None:
        self.target = target
        super().__init__(name=f"Ref({target})")

    @property
    def key(self) -> Any:
        """Two references are of one type if their targets are; names alone could be shared."""
        return self.target


@register_model(Ref)
class _RefModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, cgutils.voidptr_t)


def borrow(value: Any) -> Any:
    """A reference to a named tuple of arrays, for the duration of a kernel.

    Passing a tuple of arrays from function to function copies some ten words per array, and Numba counts
    the references to each with atomic instructions; both cost more than the work of a typical kernel here
    (without the counting alone gdj ran eight times as fast). A reference is one word and counts nothing.
    """
    return value


@overload(borrow, strict=False, inline="always")  # the tuple lives in the frame of the caller
def _borrow(value: Any) -> Any:
    return lambda value: _reference(value)  # type: ignore[call-arg]


@intrinsic
def _reference(typing_context: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.args[0]
        place = cgutils.alloca_once(builder, context.get_value_type(kind))
        builder.store(arguments[0], place)
        return builder.bitcast(place, cgutils.voidptr_t)

    return Ref(value)(value), generate


@infer_getattr
class _RefAttribute(AttributeTemplate):
    key = Ref

    def generic_resolve(self, ref: Ref, name: str) -> Any:  # type: ignore[override]
        if name in ref.target.fields:
            field = ref.target.types[ref.target.fields.index(name)]
            return Ref(field) if isinstance(field, types.BaseTuple) else field
        return None


@lower_getattr_generic(Ref)
def _get_field(context: Any, builder: Any, kind: Any, value: Any, name: str) -> Any:
    """Load an array without its owner, or refer to a tuple within the tuple.

    A tuple class may say in `widths` how many columns a two-dimensional array has, which makes its indices
    shifts instead of multiplications, and in `tables` which of these are never indexed by a negative row:
    their number of rows reads as 0, which spares every access the addition of that number to negative ones,
    a fifth of the time of a simple kernel.
    """
    target = kind.target
    index = target.fields.index(name)
    field = target.types[index]
    whole = builder.bitcast(value, context.get_value_type(target).as_pointer())
    place = cgutils.gep_inbounds(builder, whole, 0, index)
    if isinstance(field, types.BaseTuple):
        return builder.bitcast(place, cgutils.voidptr_t)
    loaded = builder.load(place)
    if isinstance(field, types.Array):
        array = context.make_array(field)(context, builder, loaded)
        array.meminfo = cgutils.get_null_value(array.meminfo.type)
        array.parent = cgutils.get_null_value(array.parent.type)
        width = getattr(target.instance_class, "widths", {}).get(name)
        if width is not None:
            word = array.nitems.type
            item = context.get_abi_sizeof(context.get_data_type(field.dtype))
            rows = builder.extract_value(array.shape, 0)
            if name in getattr(target.instance_class, "tables", ()):
                rows = word(0)
            array.shape = cgutils.pack_array(builder, [rows, word(width)])
            array.strides = cgutils.pack_array(builder, [word(width * item), word(item)])
        return array._getvalue()
    return loaded


def prefetch(array: Any, item: Any) -> None:
    """Ask the processor to fetch the cache line of an item, counted in items from the start of the array."""


@overload(prefetch, strict=False)
def _prefetch(array: Any, item: Any) -> Any:
    return lambda array, item: _fetch(array, item)  # type: ignore[call-arg]


@intrinsic
def _fetch(typing_context: Any, array: Any, item: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        address = builder.bitcast(builder.gep(data, [arguments[1]]), cgutils.voidptr_t)
        word = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, word, word, word])
        fetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(fetch, [address, word(0), word(3), word(1)])
        return context.get_dummy_value()

    return types.void(array, item), generate
