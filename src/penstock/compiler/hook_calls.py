"""How a compiled kernel calls a hook: inlined, or by its address in a table of the policy.

Which of them is decided by the type of the policy. Where that is the state of a certain policy, the
implementation becomes a part of the kernel. Where it is a `Bound`, the kernel is compiled once for all
policies, and the call is one through a pointer: somewhat slower, but nothing to compile for the next policy.
"""

from __future__ import annotations

import dis
import functools
from collections.abc import Callable
from typing import Any, ClassVar

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.core.typing.templates import signature
from numba.extending import lower_builtin, lower_cast, models, register_model, typeof_impl

from penstock.compiler.hook import Bound, Hook, family
from penstock.compiler.jit import jit
from penstock.compiler.references import Ref

WORD = ir.IntType(64)
_TYPES = {
    "None": types.none,
    "bool": types.boolean,
    "int": types.int64,
    "float": types.float64,
    "tuple[int, float]": types.Tuple((types.int64, types.float64)),
    "np.ndarray": types.Array(types.int64, 1, "C"),
}


def hook(default: Callable[..., Any]) -> Any:
    """Make `default` a function that each policy state class may implement anew (see `Hook`)."""
    return Hook(default)


class HookType(types.Callable, types.Opaque):
    """Numba type of a hook: a call of it is a call of the implementation for its first argument."""

    def __init__(self, hook: Hook) -> None:
        self.hook = hook
        super().__init__(f"hook({hook.default.__module__}.{hook.default.__qualname__})")

    def get_call_type(self, context: Any, args: Any, kws: Any) -> Any:
        """Compile the implementation for these arguments; the policy's type matters only if it is read."""
        if isinstance(args[0], Ref) and args[0].target.instance_class is Bound:
            return signature(
                declared_types(self.hook)[0], ByAddress(self.hook), args[1], *declared_types(self.hook)[1:]
            )
        kernel = _kernel_of(self.hook, args[0])
        if not _reads_first(kernel.py_func):
            args = (Unread(kernel.py_func), *args[1:])
        return types.Dispatcher(kernel).get_call_type(context, args, kws)

    def get_call_signatures(self) -> Any:
        """For messages: there is no list of them."""
        return [], True

    def get_impl_key(self, sig: Any) -> Any:
        """The compiled code for a signature that `get_call_type` gave."""
        if isinstance(sig.args[0], ByAddress):
            return _call_by_address
        return types.Dispatcher(_kernel_of(self.hook, sig.args[0])).get_impl_key(sig)


register_model(HookType)(models.OpaqueModel)


@typeof_impl.register(Hook)
def _typeof_hook(hook: Hook, context: Any) -> Any:
    return HookType(hook)


def declared_types(hook: Hook) -> tuple[Any, ...]:
    """The types of the result and of all arguments but the first two."""
    if not hook.declared:
        raise TypingError(f"{hook.default.__qualname__} has no types by which it could be bound late")
    return tuple(_TYPES[each] for each in hook.declared)


# As a part.


def _kernel_of(hook: Hook, policy: Any) -> Any:
    """The kernel for a first argument of this Numba type, which may be the `Unread` of one."""
    implementation = policy.reader if isinstance(policy, Unread) else hook.of(_class_of(policy))
    if implementation not in hook.kernels:
        hook.kernels[implementation] = jit(implementation)
    return hook.kernels[implementation]


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


# By address.


class ByAddress(types.Type):
    """Numba type of the first argument of a hook that is called by its address: the table of a policy."""

    def __init__(self, hook: Hook) -> None:
        self.number = 1 + family(hook.default.__module__).index(hook)  # in the table
        super().__init__(f"ByAddress({hook.default.__module__}.{hook.default.__qualname__})")


register_model(ByAddress)(models.OpaqueModel)


@lower_cast(Ref, ByAddress)
def _same_address(context: Any, builder: Any, source: Any, target: Any, value: Any) -> Any:
    return value


def _call_by_address() -> None:
    """What stands for such a call."""


@lower_builtin(_call_by_address, ByAddress, types.VarArg(types.Any))
def _lower_call(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    table = builder.bitcast(args[0], WORD.as_pointer())
    address = builder.load(builder.gep(table, [WORD(sig.args[0].number)]))
    kind = context.call_conv.get_function_type(sig.return_type, sig.args)

    def call() -> Any:
        state = builder.inttoptr(builder.load(table), cgutils.voidptr_t)
        function = builder.inttoptr(address, kind.as_pointer())
        status, found = context.call_conv.call_function(
            builder, function, sig.return_type, sig.args, [state, *args[1:]]
        )
        with cgutils.if_unlikely(builder, status.is_error):
            context.call_conv.return_status_propagate(builder, status)
        return found

    if sig.return_type != types.none:
        return call()
    with builder.if_then(builder.icmp_unsigned("!=", address, WORD(0))):
        call()
    return context.get_dummy_value()
