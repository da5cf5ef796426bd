"""The one place that sets Numba's options, and the hooks through which a driver calls a policy.

`jit` compiles for a common processor, caches on disk (see `code_cache`), and interprets what is not worth
compiling yet (see `tiers`).

`hook` makes a function whose implementation depends on the type of its first argument, at compile
time under Numba and at run time in plain Python.
"""

from __future__ import annotations

import dis
import functools
import platform
from collections.abc import Callable
from typing import Any, ClassVar

from llvmlite import binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils, config
from numba.core.errors import TypingError
from numba.core.registry import cpu_target
from numba.core.typing.templates import AbstractTemplate, AttributeTemplate, infer_global, signature
from numba.extending import (
    infer_getattr,
    lower_builtin,
    lower_cast,
    lower_getattr_generic,
    models,
    register_model,
    typeof_impl,
)

from penstock.kernels.hook import HOOKS, Hook
from penstock.kernels.tiers import Kernel

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
    return Kernel(function, _implementations, driver=driver)


def _implementations(state_class: type) -> set[Callable[..., Any]]:
    """What the hooks do for a class: it becomes a part of the code of every kernel that is given one."""
    return {hook.of(state_class) for hook in HOOKS}


def hook(default: Callable[..., Any]) -> Any:
    """Make `default` a function that each policy state class may implement anew (see `Hook`)."""
    return Hook(default)


def _kernel_of(hook: Hook, policy: Any) -> Any:
    """The kernel for a first argument of this Numba type, which may be the `Unread` of one."""
    implementation = policy.reader if isinstance(policy, Unread) else hook.of(_class_of(policy))
    if implementation not in hook.kernels:
        hook.kernels[implementation] = jit(implementation)
    return hook.kernels[implementation]


class _HookType(types.Callable, types.Opaque):
    """Numba type of a hook: a call of it is a call of the implementation for its first argument."""

    def __init__(self, hook: Hook) -> None:
        self.hook = hook
        super().__init__(f"hook({hook.default.__module__}.{hook.default.__qualname__})")

    def get_call_type(self, context: Any, args: Any, kws: Any) -> Any:
        """Compile the implementation for these arguments; the policy's type matters only if it is read."""
        kernel = _kernel_of(self.hook, args[0])
        if not _reads_first(kernel.py_func):
            args = (Unread(kernel.py_func), *args[1:])
        return types.Dispatcher(kernel).get_call_type(context, args, kws)

    def get_call_signatures(self) -> Any:
        """For messages: there is no list of them."""
        return [], True

    def get_impl_key(self, sig: Any) -> Any:
        """The compiled code for a signature that `get_call_type` gave."""
        return types.Dispatcher(_kernel_of(self.hook, sig.args[0])).get_impl_key(sig)


def _class_of(policy: Any) -> type:
    kind = policy.target if isinstance(policy, Ref) else policy
    if not hasattr(kind, "instance_class"):
        raise TypingError(f"{policy} is not the state of a policy")
    return kind.instance_class


@functools.cache
def _reads_first(function: Callable[..., Any]) -> bool:
    """Whether a function reads its first argument."""
    first = function.__code__.co_varnames[0]
    return any(each.argval == first for each in dis.get_instructions(function))


class Unread(types.Type):
    """Numba type of the first argument of a hook's implementation that does not read it.

    So `score` of lfu, or a hook that does nothing, is compiled once for all policies. Its key tells one
    implementation from another, in other processes too; one that these lack is in the key itself.
    """

    readers: ClassVar[dict[Any, Callable[..., Any]]] = {}

    def __init__(self, reader: Callable[..., Any]) -> None:
        name = f"{reader.__module__}.{reader.__qualname__}"
        local = reader if "<" in name or reader.__module__ == "__main__" else None
        self._key = name, reader.__code__.co_firstlineno, local
        self.readers[self._key] = reader
        super().__init__(f"Unread({name})")

    @property
    def reader(self) -> Callable[..., Any]:
        """The implementation."""
        return self.readers[self._key]

    @property
    def key(self) -> Any:
        """What one implementation does not read is not what another does not."""
        return self._key


register_model(Unread)(models.OpaqueModel)


@lower_cast(types.Any, Unread)
def _drop(context: Any, builder: Any, source: Any, target: Any, value: Any) -> Any:
    return context.get_constant_null(target)


register_model(_HookType)(models.OpaqueModel)


@typeof_impl.register(Hook)
def _typeof_hook(hook: Hook, context: Any) -> Any:
    return _HookType(hook)


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


@infer_global(borrow)
class _Borrow(AbstractTemplate):
    def generic(self, args: Any, kws: Any) -> Any:
        return signature(Ref(args[0]), args[0])


@lower_builtin(borrow, types.Any)
def _borrow(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """The address of a copy in the frame of the caller."""
    place = cgutils.alloca_once_value(builder, args[0])
    return builder.bitcast(place, cgutils.voidptr_t)


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


@infer_global(prefetch)
class _Prefetch(AbstractTemplate):
    def generic(self, args: Any, kws: Any) -> Any:
        return signature(types.none, args[0], types.int64)


@lower_builtin(prefetch, types.Array, types.Integer)
def _prefetch(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    data = context.make_array(sig.args[0])(context, builder, args[0]).data
    address = builder.bitcast(builder.gep(data, [args[1]]), cgutils.voidptr_t)
    word = ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, word, word, word])
    fetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(fetch, [address, word(0), word(3), word(1)])
    return context.get_dummy_value()
