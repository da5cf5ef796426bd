"""Bind a policy to drivers that are compiled once for all policies.

`bind` is compiled for each policy. It contains what the hooks do for this policy, and writes down where their
code is and where the state is. A driver is given that table instead of the state, and calls by address.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import lower_builtin

from penstock.compiler.hook import Bound, Hook, family
from penstock.compiler.hook_calls import WORD, HookType, declared_types
from penstock.compiler.jit import jit
from penstock.compiler.references import Ref


def bind(policy: Any, store: Any) -> Bound:
    """A policy for drivers of such a store; both have to live as long as it is used."""
    table = np.zeros(1 + len(family(type(store).hooks)), np.int64)
    bound = Bound(table, np.empty(_words(policy), np.int64))
    bind_at(policy, store, *bound)
    return bound


def _words(part: Any) -> int:
    """How many words compiled code needs at most for a value: an array has some and two per dimension."""
    if isinstance(part, tuple):
        return sum(map(_words, part))
    return 5 + 2 * part.ndim if isinstance(part, np.ndarray) else 2


@jit
def bind_at(policy, store, table, memory):
    """Write the state of a policy to `memory`, and where that and its hooks are to `table`."""
    _write(policy, store, table, memory)


def _write(policy: Any, store: Any, table: Any, memory: Any) -> None:
    """What `bind_at` does, in machine code."""


def _calls(policy: Any, store: Any, typing: Any) -> Iterator[tuple[int, Hook, Any]]:
    """The hooks that have something to do: their number, and the signature of the implementation."""
    for number, hook in enumerate(family(store.instance_class.hooks), start=1):
        if not hook.idle_for(policy.instance_class):
            given = Ref(policy), Ref(store), *declared_types(hook)[1:]
            yield number, hook, HookType(hook).get_call_type(typing, given, {})


@infer_global(_write)
class _Write(AbstractTemplate):
    def generic(self, args: Any, kws: Any) -> Any:
        list(_calls(args[0], args[1], self.context))  # compiled now, as parts
        return signature(types.none, *args)


@lower_builtin(_write, types.BaseTuple, types.BaseTuple, types.Array, types.Array)
def _lower_write(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    policy, store = sig.args[:2]
    table, memory = (
        context.make_array(kind)(context, builder, value).data
        for kind, value in zip(sig.args[2:], args[2:], strict=True)
    )
    builder.store(args[0], builder.bitcast(memory, args[0].type.as_pointer()))
    builder.store(builder.ptrtoint(memory, WORD), table)
    for number, hook, call in _calls(policy, store, context.typing_context):
        function = _entry(context, builder, Ref(policy), Ref(store), hook, call)
        builder.store(builder.ptrtoint(function, WORD), builder.gep(table, [WORD(number)]))
    return context.get_dummy_value()


def _entry(context: Any, builder: Any, policy: Any, store: Any, hook: Hook, call: Any) -> Any:
    """A function of the declared types that calls an implementation, whose own may be narrower."""
    result, *rest = declared_types(hook)
    given = policy, store, *rest
    kind = context.call_conv.get_function_type(result, given)
    name = f"{builder.function.name}.{hook.default.__qualname__}"
    function = ir.Function(builder.module, kind, name)
    function.linkage = "internal"
    inner = ir.IRBuilder(function.append_basic_block("entry"))
    values = context.call_conv.decode_arguments(inner, given, function)
    values = [
        context.cast(inner, value, source, target)
        for value, source, target in zip(values, given, call.args, strict=True)
    ]
    found = context.get_function(HookType(hook), call)(inner, values)
    found = (
        context.get_dummy_value()
        if result == types.none
        else context.cast(inner, found, call.return_type, result)
    )
    context.call_conv.return_value(inner, context.get_return_value(inner, result, found))
    return function
