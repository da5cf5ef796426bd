"""Compile kernels: inner functions are optimised once, as a part of the kernel that Python calls.

Left alone, Numba optimises every function for itself, together with all that it calls, makes machine code of
it, and wrappers through which Python and C could call it. A driver is made of some fifty kernels, each of
which is in the code of up to ten others; so most of that work is done ten times, or for nobody. Here a kernel
that is called by a kernel is a *part*: typed, translated, tidied up, and put aside until the one that Python
called has all of its parts. That one is optimised and made machine code as a whole. (A kernel may be both:
then it is translated twice.)

What is left is Numba's own work in Python, so that is cut short as well: by passes that nothing here needs,
by asking for the type of an operation once, and by no search for garbage meanwhile.
"""

from __future__ import annotations

import contextlib
import copy
import gc
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

from llvmlite import binding as llvm
from numba.core import sigutils, types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, Flags, compile_result
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import register_pass
from numba.core.ir_utils import build_definitions
from numba.core.postproc import PostProcessor
from numba.core.registry import CPUDispatcher
from numba.core.rewrites.registry import rewrite_registry
from numba.core.ssa import reconstruct_ssa
from numba.core.targetconfig import ConfigStack
from numba.core.typed_passes import (
    IRLegalization,
    NativeLowering,
    NoPythonBackend,
    NopythonRewrites,
    NopythonTypeInference,
    PreLowerStripPhis,
)
from numba.core.typing.context import Context
from numba.core.untyped_passes import (
    FixupArgs,
    GenericRewrites,
    ReconstructSSA,
    RewriteDynamicRaises,
    TranslateByteCode,
)

from penstock.compiler.code_cache import CodeCache
from penstock.compiler.interrupts import interrupts_wait_for
from penstock.compiler.notice import count

Implementations = Callable[[type], Iterable[Any]]  # see `CodeCache`

_OPTIONS = {"nopython": True, "error_model": "numpy", "no_cfunc_wrapper": True}


class WholeLibrary(JITCodeLibrary):
    """The code of a kernel that Python calls, with all of its parts."""

    def _optimize_functions(self, module: Any) -> None:
        """Tidy up what has been translated; Numba does the same for all that is only declared."""
        module.data_layout = self._codegen._data_layout
        passes, builder = self._codegen._function_pass_manager()
        for function in module.functions:
            if not function.is_declaration:
                passes.run(function, builder)

    def _optimize_final_module(self) -> None:
        """Optimise all as one; parts are nobody else's, so that those called once are put where that is.

        Drivers are a tenth faster for it.
        """
        for function in self._final_module.functions:
            shared = not function.is_declaration and function.linkage == llvm.Linkage.linkonce_odr
            if shared and not function.name.startswith("NRT_"):  # Numba's own, which it looks for by name
                function.linkage = "internal"
        super()._optimize_final_module()


class PartLibrary(WholeLibrary):
    """The code of a part: tidied up, but neither optimised as a whole nor made machine code."""

    def _optimize_final_module(self) -> None:
        """Left to the library that this one becomes a part of."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


class _Entry:
    """What stands for the address of a part, which has none: kernels find its code by it."""


@register_pass(mutates_CFG=True, analysis_only=False)
class _WholeLowering(NativeLowering):
    """Translate a kernel, and make machine code of it and its parts."""

    _name = "whole_lowering"

    def run_pass(self, state: Any) -> bool:
        state.library = WholeLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return super().run_pass(state)


@register_pass(mutates_CFG=True, analysis_only=False)
class _PartLowering(NativeLowering):
    """Translate a part."""

    _name = "part_lowering"

    def run_pass(self, state: Any) -> bool:
        state.library = PartLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        super().run_pass(state)
        state["cr"] = state["cr"]._replace(cfunc=_Entry())
        return True


class _Rewrites(GenericRewrites):
    """Rewrite what Numba has no types for."""

    def run_pass(self, state: Any) -> bool:
        state.func_ir.generator_info = None  # kernels are no generators
        _rewrite("before-inference", state)
        return True


class _TypedRewrites(NopythonRewrites):
    """Make one loop of an expression on arrays."""

    def run_pass(self, state: Any) -> bool:
        processor = PostProcessor(state.func_ir)
        processor.run(emit_dels=True)  # the rewrites go by them
        _rewrite("after-inference", state)
        processor.remove_dels()
        return True


def _rewrite(stage: str, state: Any) -> None:
    """Apply each of Numba's rewrites to each block until it finds nothing more."""
    blocks = state.func_ir.blocks
    for kind in rewrite_registry.rewrites[stage]:
        rewrite = kind(state)
        waiting = list(blocks)
        while waiting:
            at = waiting.pop()
            if rewrite.match(state.func_ir, blocks[at], state.typemap, state.calltypes):
                blocks[at] = rewrite.apply()
                waiting.append(at)


class _SingleAssignment(ReconstructSSA):
    """Give every assignment a variable of its own."""

    def run_pass(self, state: Any) -> bool:
        state.func_ir = reconstruct_ssa(state.func_ir)
        self._patch_locals(state)
        state.func_ir._definitions = build_definitions(state.func_ir.blocks)
        return True


class _NoPhis(PreLowerStripPhis):
    """Turn the joins of variables into assignments."""

    def run_pass(self, state: Any) -> bool:
        state.func_ir = self._strip_phi_nodes(state.func_ir)
        state.func_ir._definitions = build_definitions(state.func_ir.blocks)
        return True


class _SettledFlags(Flags):
    """Flags that change no more: Numba hashes all of them for every operation that it looks up."""

    __slots__ = ("_hash",)

    def __init__(self, flags: Flags) -> None:
        super().__init__(flags)
        self._hash = super().__hash__()

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or bool(super().__eq__(other))


class _WholeCompiler(CompilerBase):
    """Those of Numba's passes that kernels need: no closures, no `with`, no literals that are unrolled.

    Numba finds out which variables are alive after nearly every pass; here that is done where it is needed,
    before and after the rewrites that follow inference. Its manager of passes looks over a function once
    more after each of them; that is left out, too.
    """

    passes: ClassVar[tuple[Any, ...]] = (
        TranslateByteCode,
        FixupArgs,
        _Rewrites,
        RewriteDynamicRaises,
        _SingleAssignment,
        NopythonTypeInference,
        _NoPhis,
        _TypedRewrites,
        IRLegalization,
        _WholeLowering,
        NoPythonBackend,
    )

    def _compile_core(self) -> Any:
        self.state.typingctx = _remembering(self.state.typingctx)
        self.state.targetctx.refresh = _nothing_new  # this context is a copy for one compilation
        with ConfigStack().enter(_settled(self.state.flags)):
            for each in self.passes:
                each().run_pass(self.state)
        self.state.pipeline = None
        return self.state.cr


class _PartCompiler(_WholeCompiler):
    """The same for a part."""

    passes = tuple(_PartLowering if each is _WholeLowering else each for each in _WholeCompiler.passes)


class _Typing(Context):
    """A typing context that asks once what an operation gives for arguments of these types.

    Numba tries all that has ever been registered for an operator each time that it comes across it.
    """

    found: ClassVar[dict[Any, Any]] = {}

    def resolve_function_type(self, func: Any, args: Any, kws: Any) -> Any:
        """The signature of a call; kernels and hooks know best themselves, static items have no types."""
        if kws or isinstance(func, str) or (isinstance(func, types.Type) and not isinstance(func, _SETTLED)):
            return super().resolve_function_type(func, args, kws)
        key = func, tuple(args)
        if key not in self.found:
            self.found[key] = super().resolve_function_type(func, args, kws)
        return self.found[key]

    def resolve_getattr(self, typ: Any, attr: str) -> Any:
        """The type of an attribute."""
        key = typ, attr
        if key not in self.found:
            self.found[key] = super().resolve_getattr(typ, attr)
        return self.found[key]


_SETTLED = (types.Function, types.NumberClass, types.BoundFunction)


def _remembering(context: Context) -> _Typing:
    """The same context, sharing all that it knows."""
    copied: Any = copy.copy(context)
    copied.__class__ = _Typing
    return copied


def _settled(flags: Flags) -> Flags:
    """The flags of a compilation, one object for all that are equal."""
    found = _SettledFlags(flags)
    return _flags.setdefault(found, found)


_flags: dict[_SettledFlags, _SettledFlags] = {}


def _nothing_new() -> None:
    """Instead of a look at all registries, whenever an implementation is not found at first."""


class _PartCache(CodeCache):
    """Keeps parts without machine code, so that the next kernel need not translate them again."""

    def _title(self) -> str:
        return super()._title() + ".part"

    def _pack(self, data: Any) -> Any:
        library = data.library
        code = library._get_module_for_linking().as_bitcode()
        data.fndesc.typemap = data.fndesc.calltypes = None
        return library.name, code, data.fndesc, data.signature, sorted(library._reload_init)

    def _unpack(self, target_context: Any, payload: Any) -> Any:
        name, code, fndesc, signature, reload_init = payload
        for each in reload_init:
            each()
        library = PartLibrary(target_context.codegen(), name)
        library._final_module = llvm.parse_bitcode(code)
        library._reload_init.update(reload_init)
        library._finalize_final_module()
        return compile_result(
            typing_context=target_context.typing_context,
            target_context=target_context,
            entry_point=_Entry(),
            library=library,
            signature=signature,
            objectmode=False,
            lifted=(),
            fndesc=fndesc,
            reload_init=reload_init,
        )


class Part(CPUDispatcher):
    """A kernel as kernels call it."""

    _cache: Any
    _cache_hits: Any
    _cache_misses: Any
    _compiler: Any

    def __init__(self, function: Callable[..., Any], implementations: Implementations) -> None:
        options = _OPTIONS | {"no_cpython_wrapper": True}
        super().__init__(function, targetoptions=options, pipeline_class=_PartCompiler)
        vars(self)["_cache"] = _PartCache(function, implementations)

    def compile(self, sig: Any) -> Any:
        """What stands for the part with this signature; translated, or loaded, unless it is there."""
        args, return_type = sigutils.normalize_signature(sig)
        with global_compiler_lock, self._compiling_counter:
            if args not in self.overloads:
                result: Any = self._cache.load_overload(sig, self.targetctx)
                (self._cache_misses if result is None else self._cache_hits)[sig] += 1
                if result is None:
                    count()
                    result = self._compiler.compile(args, return_type)
                    self._cache.save_overload(sig, result)
                self.targetctx.insert_user_function(result.entry_point, result.fndesc, [result.library])
                self.overloads[args] = result
        return self.overloads[args].entry_point  # type: ignore[attr-defined]


class Whole(CPUDispatcher):
    """A kernel as Python calls it; kernels that call it are given its part."""

    _cache: Any

    def __init__(self, function: Callable[..., Any], implementations: Implementations) -> None:
        super().__init__(function, targetoptions=dict(_OPTIONS), pipeline_class=_WholeCompiler)
        vars(self)["_cache"] = CodeCache(function, implementations)
        self.implementations = implementations
        self.part = Part(function, implementations)

    def compile(self, sig: Any) -> Any:
        """The machine code for this signature; compiled, or loaded, unless it is there."""
        context: Any = self.targetctx
        interrupts_wait_for(context.codegen()._engine)
        with _no_collection():
            return super().compile(sig)

    def _reduce_states(self) -> dict[str, Any]:
        return {"function": self.py_func, "implementations": self.implementations}

    @classmethod
    def _rebuild(cls, function: Callable[..., Any], implementations: Implementations) -> Whole:
        return cls(function, implementations)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """For the types of a call by a kernel."""
        return self.part.get_call_template(args, kws)

    def get_overload(self, sig: Any) -> Any:
        """For the code of a call by a kernel."""
        return self.part.get_overload(sig)

    @property
    def is_compiling(self) -> Any:
        """Whether a call by a kernel is one of a kernel by itself."""
        return self.part.is_compiling


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Without a search for garbage: a compiler keeps most of what it makes, and makes a lot."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
