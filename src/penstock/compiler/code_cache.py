"""The disk cache of compiled kernels: a file per kernel and signature, named by a hash of its inputs.

Numba's own cache keeps an index per function, with the types of every signature pickled into it. One class
that cannot be imported elsewhere (of a test, of a policy in a user's own package) makes such an index
unreadable, two processes that add to it lose each other's entries, and its stamp covers one source file only,
although a driver contains the code of the policy that it was compiled for.

Here the name of a file is the key. It digests the signature with its classes spelled out, the processor that
the code is for, the versions of Python, Numba and NumPy, and the source of every module that can end up in
the code: that of the kernel, those of the classes in its signature and of the hooks that they implement, and
what all of these import. So nothing has to be read to find a kernel, what an edit does not touch stays valid,
and neither the place of the installation nor the times of its files matter. A file that is damaged or cut off
counts as absent.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib.util
import itertools
import os
import pickle
import sys
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import llvmlite
import numba
import numpy as np
from numba import types
from numba.core import config
from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from penstock.compiler.file_lock import is_locked, locked

_MAGIC = b"penstock kernel 1\n"
_PACKAGE = __name__.partition(".")[0]
# The packages of ours whose functions are compiled into kernels of other modules.
_COMPILED = tuple(
    f"{_PACKAGE}.{name}"
    for name in ("compiler", "structures", "engine", "flows", "models.kernels", "policies")
)


LEFTOVER = 3_600.0  # seconds after which a file that was not finished never will be

touched: set[Path] = set()  # files that this process has read or written


class CacheFolderWarning(UserWarning):
    """Compiled kernels cannot be kept where they would be found again."""


@functools.cache
def folder() -> Path:
    """The folder of the compiled kernels: the first of these that can be written.

    `PENSTOCK_CACHE_DIR`, `penstock` below `NUMBA_CACHE_DIR`, `penstock/kernels` below `XDG_CACHE_HOME` or the
    user's `.cache`, and a temporary folder of the user's. There is a warning where the one that was given
    cannot be written, and has no kernels to read either (see `read_only`).
    """
    path = next(filter(_can_write, _candidates()), None)
    found = path or _temporary()
    given = os.environ.get("PENSTOCK_CACHE_DIR")
    if read_only():
        return found
    if given and Path(given).absolute() != found:
        _warn(
            f"Penstock keeps compiled kernels in {found}, since PENSTOCK_CACHE_DIR={given} cannot be "
            "written; set it to a folder that can be."
        )
    elif path is None:
        _warn(
            f"Penstock keeps compiled kernels in {found}, because no other folder is writable; they are "
            "compiled again when it is deleted. Set PENSTOCK_CACHE_DIR to a writable folder."
        )
    return found


def _warn(message: str) -> None:
    warnings.warn(message, CacheFolderWarning, stacklevel=3)


@functools.cache
def read_only() -> tuple[Path, ...]:
    """The folders before `folder()` that have kernels but cannot be written, such as those of an image."""
    refused = itertools.takewhile(lambda path: not _can_write(path), _candidates())
    return tuple(path for path in refused if any(path.glob("*.nbc")))


def _candidates() -> Iterator[Path]:
    if given := os.environ.get("PENSTOCK_CACHE_DIR"):
        yield Path(given).absolute()
    if numbas := getattr(config, "CACHE_DIR", None):
        yield Path(numbas).absolute() / "penstock"
    home = os.environ.get("XDG_CACHE_HOME")
    yield Path(home or os.path.expanduser("~/.cache")).absolute() / "penstock" / "kernels"


def _can_write(path: Path) -> bool:
    try:
        path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except OSError:
        return False
    return True


def _temporary() -> Path:
    """A folder that only this user can write: what lies in it is executed."""
    user = os.getuid() if hasattr(os, "getuid") else "user"
    path = Path(tempfile.gettempdir()) / f"penstock-kernels-{user}"
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
        if path.is_dir() and not path.is_symlink() and found.st_uid == user and not found.st_mode & 0o022:
            return path
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="penstock-kernels-"))


class CodeCache(_Cache):
    """The compiled code of one kernel, for Numba's dispatcher.

    `implementations` gives, for a class in a signature, the hooks that it implements.
    """

    def __init__(self, kernel: Callable[..., Any], implementations: Callable[[type], Iterable[Any]]) -> None:
        self._kernel = kernel
        self._implementations = implementations
        self._enabled = True
        self._paths: dict[Any, Path | None] = {}

    def has(self, sig: Any, target_context: Any) -> bool:
        """Whether there is a file for a signature; it may turn out to be damaged."""
        if not self._enabled:
            return False
        if sig not in self._paths:
            self._paths[sig] = self._path(sig, target_context.codegen())
        path = self._paths[sig]
        return path is not None and any(each.exists() for each in _copies(path))

    @contextlib.contextmanager
    def alone(self, sig: Any, target_context: Any) -> Iterator[None]:
        """Within this block no other process compiles this signature: it waits, and finds the code on disk.

        Several workers of a machine need the same kernels at the same moment.
        """
        path = self._lock(sig, target_context)
        with contextlib.nullcontext() if path is None else locked(path):
            yield

    def compiling_elsewhere(self, sig: Any, target_context: Any) -> bool:
        """Whether another process is compiling this signature, so that this one may do something else."""
        path = self._lock(sig, target_context)
        return path is not None and is_locked(path)

    def _lock(self, sig: Any, target_context: Any) -> Path | None:
        path = self._path(sig, target_context.codegen()) if self._enabled else None
        return path and path.with_suffix(".lock")

    @property
    def cache_path(self) -> str:
        """The folder, as text."""
        return str(folder())

    def enable(self) -> None:
        """Load and save from now on."""
        self._enabled = True

    def disable(self) -> None:
        """Neither load nor save from now on."""
        self._enabled = False

    def flush(self) -> None:
        """Forget all code of this kernel, so that it is compiled again."""
        for path in folder().glob(f"{self._title()}-*.nbc"):
            path.unlink(missing_ok=True)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled code for a signature, or None."""
        path = self._path(sig, target_context.codegen()) if self._enabled else None
        for copy in _copies(path) if path is not None else ():
            payload = _read(copy)
            if payload is not None:
                touched.add(copy)
                _offer_symbols(target_context)
                return self._unpack(target_context, payload)
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep compiled code; where it cannot be kept, the next process compiles again."""
        path = self._path(sig, data.codegen) if self._enabled else None
        lifted = any(not each.can_cache for each in data.lifted)
        if path is not None and not lifted and not data.library.has_dynamic_globals:
            _write(path, dumps(self._pack(data)))
            touched.add(path)

    def _pack(self, data: Any) -> Any:
        return data._reduce()

    def _unpack(self, target_context: Any, payload: Any) -> Any:
        return CompileResult._rebuild(target_context, *payload)

    def _title(self) -> str:
        name = f"{self._kernel.__module__}.{self._kernel.__qualname__}"
        return name.replace("<", "").replace(">", "")

    def _path(self, sig: Any, codegen: Any) -> Path | None:
        """The file for a signature; None if its code is good in this process only."""
        classes: set[type] = set()
        try:
            spelled = _spell(sig, classes)
            sources = {self._kernel.__module__}
            for each in classes:
                sources.add(_importable(each))
                sources.update(made.__module__ for made in self._implementations(each))
            digests = [f"{name} {_digest(name)}" for name in sorted(_closure(frozenset(sources)))]
        except _LocalError:
            return None
        cells = tuple(cell.cell_contents for cell in self._kernel.__closure__ or ())
        code = self._kernel.__code__
        parts = [
            spelled,
            *digests,
            *_versions(),
            *map(str, codegen.magic_tuple()),
            f"{code.co_firstlineno} {hashlib.sha256(code.co_code).hexdigest()}",
            hashlib.sha256(dumps(cells)).hexdigest() if cells else "",
        ]
        key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]
        return folder() / f"{self._title()}-{key}.nbc"


def _copies(path: Path) -> Iterator[Path]:
    """Where the code for a file of `folder()` may be: there, or in a folder that can only be read."""
    yield path
    for each in read_only():
        yield each / path.name


def _offer_symbols(target_context: Any) -> None:
    """Make known what loaded code may call: Numba's runtime, and its secret for hashes.

    Numba calls `target_context.refresh()` here, which also imports all that it compiles with: 200 modules and
    22 MiB. The first compilation of a process does so anyway.
    """
    import numba.cpython.hashing  # noqa: F401 (importing it offers the secret)
    from numba.core.runtime.nrt import rtsys

    rtsys.initialize(target_context)


class _LocalError(Exception):
    """A signature has something that another process lacks, as a class of `__main__` or a local one."""


def _versions() -> tuple[str, ...]:
    return (sys.version, numba.__version__, llvmlite.__version__, np.__version__)


def _spell(part: Any, classes: set[type]) -> str:
    """A text that two types share only if they are the same; the classes of named tuples go to `classes`."""
    if isinstance(part, types.Type):
        key = part.key
        return key if isinstance(key, str) else f"{type(part).__name__}({_spell(key, classes)})"
    if isinstance(part, tuple | list):
        return f"({', '.join(_spell(each, classes) for each in part)})"
    if isinstance(part, type):
        if part.__module__ != "builtins":
            classes.add(part)
        return f"{part.__module__}.{part.__qualname__}"
    if part is None or isinstance(part, bool | int | float | str | bytes):
        return repr(part)
    if hasattr(part, "args") and hasattr(part, "return_type"):
        return f"{_spell(part.return_type, classes)}{_spell(part.args, classes)}"
    raise _LocalError


def _importable(each: type) -> str:
    """The module of a class that other processes can import under its name."""
    module = sys.modules.get(each.__module__)
    if each.__module__ == "__main__" or "<" in each.__qualname__ or _file(module) is None:
        raise _LocalError
    return each.__module__


def _file(module: ModuleType | None) -> str | None:
    path = getattr(module, "__file__", None)
    return path if path and path.endswith(".py") and os.path.exists(path) else None


@functools.cache
def _closure(names: frozenset[str]) -> frozenset[str]:
    """The modules themselves and all that they import of what can be compiled into a kernel."""
    found: set[str] = set()
    ahead = set(names)
    while ahead:
        name = ahead.pop()
        found.add(name)
        ahead |= _imports(name) - found
    return frozenset(found)


@functools.cache
def _source(name: str) -> bytes:
    path = _file(sys.modules.get(name))
    if path is None:
        raise _LocalError
    return Path(path).read_bytes()


@functools.cache
def _digest(name: str) -> str:
    return hashlib.sha256(_source(name)).hexdigest()


@functools.cache
def _imports(name: str) -> frozenset[str]:
    """The modules that a module imports: of its own package if it is not ours, of ours those with kernels."""
    module = sys.modules[name]
    own = name.partition(".")[0]
    named: set[str] = set()
    for node in _statements(ast.parse(_source(name))):
        if isinstance(node, ast.Import):
            named.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            if node.level:
                base = importlib.util.resolve_name(base, module.__package__)
            named.add(base)
            named.update(f"{base}.{alias.name}" for alias in node.names)
            if base in sys.modules:  # a package that hands on what its modules define
                values = (getattr(sys.modules[base], alias.name, None) for alias in node.names)
                named.update(str(getattr(value, "__module__", "")) for value in values)
    return frozenset(
        each
        for each in named
        if each in sys.modules
        and each not in _COMPILED
        and (each.startswith(_COMPILED) if each.startswith(f"{_PACKAGE}.") else each.partition(".")[0] == own)
        and _file(sys.modules[each]) is not None
    )


def _statements(block: ast.AST) -> Iterator[ast.stmt]:
    """All statements in a block, at any depth: a fraction of the nodes that `ast.walk` visits."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        nested = getattr(block, field, None)
        for node in nested if isinstance(nested, list) else ():
            if isinstance(node, ast.stmt):
                yield node
            yield from _statements(node)


def _read(path: Path) -> Any:
    """What a file holds; None if there is none that is whole."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    start = len(_MAGIC) + 32
    if not data.startswith(_MAGIC) or hashlib.sha256(data[start:]).digest() != data[len(_MAGIC) : start]:
        return None
    try:
        return pickle.loads(data[start:])
    except Exception:  # written by a kernel of other classes: compiled again, and overwritten
        return None


def _write(path: Path, data: bytes) -> None:
    """Write a file as a whole or not at all; several processes may write the same one."""
    _remove_leftovers(path.parent)
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex[:12]}.tmp")
    try:
        part.write_bytes(_MAGIC + hashlib.sha256(data).digest() + data)
        os.replace(part, path)
    except OSError:
        part.unlink(missing_ok=True)


@functools.cache
def _remove_leftovers(path: Path) -> None:
    """Remove what processes left that were killed while they wrote; a write takes less than a second."""
    for part in path.glob("*.tmp"):
        with contextlib.suppress(OSError):
            if time.time() - part.stat().st_mtime > LEFTOVER:
                part.unlink()
