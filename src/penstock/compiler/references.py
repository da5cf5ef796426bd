"""References to named tuples of arrays, and prefetching: features for kernels that Numba lacks."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AbstractTemplate, AttributeTemplate, infer_global, signature
from numba.extending import infer_getattr, lower_builtin, lower_getattr_generic, models, register_model


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
    """The address of a copy in the frame of the caller, or of the array that the class `points_at`."""
    named = getattr(sig.args[0].instance_class, "points_at", None)
    if named is not None:
        index = sig.args[0].fields.index(named)
        array = context.make_array(sig.args[0].types[index])
        items = array(context, builder, builder.extract_value(args[0], index)).data
        return builder.bitcast(items, cgutils.voidptr_t)
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
