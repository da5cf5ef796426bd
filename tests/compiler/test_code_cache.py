"""The disk cache of compiled kernels, seen from other processes, folders and installations."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.compiler.code_cache import _read

SOURCE = Path(__file__).parents[2] / "src"

# What a process compiles of a package of the user's own: a policy state, a hook for it, and a kernel of ours.
POLICY = """
from typing import Any, NamedTuple

import numpy as np

from mine.limits import LEAST
from penstock.engine.hooks import score
from penstock.compiler.jit import jit
from penstock.engine.store import BASE
from penstock.engine.score_queue import Queue


class Mine(NamedTuple):
    queue: Queue


@score.on(Mine)
def _score(policy, store, slot):
    return store.f64[slot, BASE] + LEAST


@jit
def scored(policy, store, slot):
    return score(policy, store, slot)
"""

USE = """
import numpy as np

from mine.policy import Mine, scored
from penstock.engine.store import new_store
from penstock.engine.score_queue import new_queue

found = scored(Mine(new_queue((4,))), new_store((4,), (4,), np.dtype(np.int64), 0), 1)
print(found, sum(scored.stats.cache_hits.values()), sum(scored.stats.cache_misses.values()))
"""

OURS = """
import numpy as np

from penstock.structures.age_curves import best_age

found = best_age(np.array([1.0, 5.0, 0.0]), 2.0)
print(found, sum(best_age.stats.cache_hits.values()), sum(best_age.stats.cache_misses.values()))
"""


def run(
    code: str, cwd: Path, *path: Path, launcher: tuple[str, ...] = (), **environment: str
) -> tuple[str, str]:
    """What a new process in another folder prints, and what it warns of."""
    given = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    given |= {
        "PYTHONPATH": os.pathsep.join(map(str, path or (SOURCE,))),
        "PENSTOCK_TIER": "compiled",
    } | environment
    done = subprocess.run(
        [*launcher, sys.executable, "-c", code],
        cwd=cwd,
        env=given,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    (folder / "mine").mkdir(parents=True)
    (folder / "mine" / "__init__.py").touch()
    (folder / "mine" / "limits.py").write_text("LEAST = 3.0\n")
    (folder / "mine" / "unrelated.py").write_text("# nothing\n")
    (folder / "mine" / "policy.py").write_text(POLICY)
    return folder


def test_the_cache_of_the_tests_serves_everybody() -> None:
    """A class of the tests was pickled into the index of a kernel, which then nobody else could read."""
    from tests.engine.test_score_queue import Model

    model = Model(4)
    model.enter(1.0)
    model.check()
    code = """
import numpy as np, penstock as ps
times = np.arange(30, dtype=float) / 2
stream = {"k": np.arange(30) % 3, "ts": times}
join = ps.WindowJoin(within=2.0, budget=ps.Tuples(8), policy="lru", allocation="equal")
print(join.run(stream, stream, on="k", time="ts").stats.results)
"""
    found, _ = run(code, Path(os.sep))
    assert int(found) > 0


MUCH = """
import pickle, sys
import penstock as ps
import penstock.joins.many, penstock.linked.query, penstock.caching
from penstock.engine.join_loop import drive

stream = {"k": [1, 2, 1], "ts": [1, 2, 3]}
ps.WindowJoin(within=2, budget=ps.Tuples(8), policy="lru").run(stream, stream, on="k", time="ts")
sys.stdout.write(pickle.dumps(next(iter(drive.late.overloads))).hex())
"""

LITTLE = """
import pickle
from penstock.engine.join_loop import drive

print(drive.late.cached(pickle.loads(bytes.fromhex("{signature}"))))
"""


def test_what_else_is_imported_does_not_matter(tmp_path: Path) -> None:
    """A process that compiles for others imports what the kernel needs; one that asks has much more."""
    signature, _ = run(MUCH, tmp_path, PENSTOCK_CACHE_DIR=str(tmp_path))
    found, _ = run(LITTLE.format(signature=signature), tmp_path, PENSTOCK_CACHE_DIR=str(tmp_path))
    assert found == "True"


def test_a_policy_of_ones_own_package(package: Path, tmp_path: Path) -> None:
    cache = {"PENSTOCK_CACHE_DIR": str(tmp_path / "kernels")}
    here = (SOURCE, package)
    assert run(USE, tmp_path, *here, **cache)[0] == "3.0 0 1"
    assert run(USE, tmp_path, *here, **cache)[0] == "3.0 1 0"  # loaded
    assert run(OURS, tmp_path, **cache)[0] == "4.0 0 1"  # the others do not see it

    (package / "mine" / "unrelated.py").write_text("# something else\n")
    assert run(USE, tmp_path, *here, **cache)[0] == "3.0 1 0"
    (package / "mine" / "limits.py").write_text("LEAST = 4.0\n")  # a constant that ends up in the code
    assert run(USE, tmp_path, *here, **cache)[0] == "4.0 0 1"
    (package / "mine" / "policy.py").write_text(POLICY.replace("+ LEAST", "- LEAST"))
    assert run(USE, tmp_path, *here, **cache)[0] == "-4.0 0 1"


def test_classes_of_a_script_stay_in_its_process(package: Path, tmp_path: Path) -> None:
    code = POLICY + USE.replace("from mine.policy import Mine, scored", "")
    for _ in range(2):
        assert (
            run(code, tmp_path, SOURCE, package, PENSTOCK_CACHE_DIR=str(tmp_path / "kernels"))[0] == "3.0 0 1"
        )


def test_another_installation_compiles_nothing(tmp_path: Path) -> None:
    other = tmp_path / "elsewhere"
    shutil.copytree(SOURCE / "penstock", other / "penstock", ignore=shutil.ignore_patterns("__pycache__"))
    for path in other.rglob("*.py"):
        os.utime(path, (1, 1))
    kernels = tmp_path / "kernels"
    assert run(OURS, tmp_path, PENSTOCK_CACHE_DIR=str(kernels))[0] == "4.0 0 1"
    carried = tmp_path / "carried"
    shutil.copytree(kernels, carried)
    assert run(OURS, tmp_path, other, PENSTOCK_CACHE_DIR=str(carried))[0] == "4.0 1 0"


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "junk"])
def test_a_damaged_file_counts_as_absent(damage: str, tmp_path: Path) -> None:
    kernels = tmp_path / "kernels"
    cache = {"PENSTOCK_CACHE_DIR": str(kernels)}
    run(OURS, tmp_path, **cache)
    for path in kernels.glob("*.nbc"):
        whole = path.read_bytes()
        middle = len(whole) // 2
        flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
        path.write_bytes(
            {"empty": b"", "cut": whole[:middle], "flipped": flipped, "junk": b"junk" * 99}[damage]
        )
    assert run(OURS, tmp_path, **cache)[0] == "4.0 0 1"
    assert run(OURS, tmp_path, **cache)[0] == "4.0 1 0"  # whole again


CUT = (
    """
import resource, signal

from penstock.structures.age_curves import best_age
import numpy as np

signal.signal(signal.SIGXFSZ, signal.{action})
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, 1_000))
"""
    + OURS
)


@pytest.mark.parametrize(
    ("action", "ends", "left"),
    [("SIG_DFL", -signal.SIGXFSZ, 1), ("SIG_IGN", 0, 0)],
    ids=["killed", "refused"],
)
def test_a_write_that_is_cut_off(action: str, ends: int, left: int, tmp_path: Path) -> None:
    """A limit on the size of files ends the process in the middle of a write, or only the write."""
    kernels = tmp_path / "kernels"
    given = os.environ | {
        "PYTHONPATH": str(SOURCE),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PENSTOCK_CACHE_DIR": str(kernels),
        "PENSTOCK_TIER": "compiled",
    }
    done = subprocess.run(
        [sys.executable, "-c", CUT.format(action=action)], env=given, capture_output=True, text=True
    )
    assert done.returncode == ends, done.stderr
    assert done.stdout.strip() == ("" if ends else "4.0 0 1")
    assert [path.stat().st_size for path in kernels.glob("*.tmp")] == [1_000] * left
    assert not list(kernels.glob("*.nbc"))
    cache = {"PENSTOCK_CACHE_DIR": str(kernels)}
    assert run(OURS, tmp_path, **cache)[0] == "4.0 0 1"
    assert run(OURS, tmp_path, **cache)[0] == "4.0 1 0"
    assert len(list(kernels.glob("*.tmp"))) == left


def test_what_killed_writes_left_is_removed(tmp_path: Path) -> None:
    """After an hour: until then another process may be writing it."""
    for name, age in (("old", 3_700), ("young", 60)):
        path = tmp_path / f"kernel.nbc.{name}.tmp"
        path.write_bytes(b"half")
        os.utime(path, (time.time() - age,) * 2)
    assert run(OURS, tmp_path, PENSTOCK_CACHE_DIR=str(tmp_path))[0] == "4.0 0 1"
    assert [path.name for path in tmp_path.glob("*.tmp")] == ["kernel.nbc.young.tmp"]


def test_two_processes_warm_one_cache(tmp_path: Path) -> None:
    """Every kernel is there once and whole, so that a third process compiles nothing."""
    kernels = tmp_path / "kernels"
    given = os.environ | {"PYTHONPATH": str(SOURCE), "PENSTOCK_CACHE_DIR": str(kernels)}
    command = [sys.executable, "-m", "penstock.cli", "warm", "--policies", "fifo", "--operators", "cache"]
    both = [subprocess.Popen(command, env=given, stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [each.wait(300) for each in both] == [0, 0]
    before = times_in(kernels)
    assert any(path.name.startswith("penstock.engine.cache_loop.answer-") for path in before)
    assert all(path.suffix == ".nbc" and _read(path) is not None for path in before)
    subprocess.run(command, env=given, stdout=subprocess.DEVNULL, check=True)
    assert times_in(kernels) == before


def test_two_processes_do_not_compile_the_same(tmp_path: Path) -> None:
    """Whoever comes second waits for the first, and loads what that has compiled."""
    given = os.environ | {"PYTHONPATH": str(SOURCE), "PENSTOCK_CACHE_DIR": str(tmp_path / "kernels")}
    given["PENSTOCK_TIER"] = "compiled"
    both = [
        subprocess.Popen([sys.executable, "-c", OURS], env=given, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    printed = sorted(each.communicate(timeout=300)[0].split() for each in both)
    assert printed == [["4.0", "0", "1"], ["4.0", "1", "0"]]
    assert {path.suffix for path in (tmp_path / "kernels").iterdir()} == {".nbc"}


def times_in(folder: Path) -> dict[Path, int]:
    """The files of a folder, and when they were written."""
    return {path: path.stat().st_mtime_ns for path in folder.iterdir()}


FORK = """
import json, os

import numpy as np

from penstock.caching import Cache
from penstock.structures.age_curves import best_age

cache, curve = Cache("fifo", budget=3), np.array([1.0, 5.0, 0.0])
cache.request([1, 2, 3])
best_age(curve, 2.0)
child = os.fork()
before = cache.request([3, 4, 1, 4]).hit.tolist(), best_age(curve, 2.0)  # by code from before the fork
after = Cache("lru", budget=3).request([1, 2, 1]).hit.tolist(), best_age(curve.astype(np.float32), 2.0)
os.write(1, json.dumps([before, after]).encode() + b"\\n")  # at once: both write to one pipe
if not child:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


def test_a_fork_after_compilation(tmp_path: Path) -> None:
    """Both processes run what was compiled before it, compile more, and keep that for others."""
    cache = {"PENSTOCK_CACHE_DIR": str(tmp_path / "kernels")}
    expected = json.dumps([[[1, 0, 0, 1], 4.0], [[0, 0, 1], 4.0]])
    assert run(FORK, tmp_path, **cache)[0].splitlines() == [expected] * 2
    kept = times_in(tmp_path / "kernels")
    assert run(FORK, tmp_path, **cache)[0].splitlines() == [expected] * 2
    assert times_in(tmp_path / "kernels") == kept


def test_without_a_folder_that_can_be_written(tmp_path: Path) -> None:
    """It works, from a temporary folder, and says so once."""
    nowhere = {"HOME": "/dev/null/home", "XDG_CACHE_HOME": "/dev/null/cache", "TMPDIR": str(tmp_path)}
    given = {"PENSTOCK_CACHE_DIR": ""} | nowhere
    found, warned = run(OURS + "best_age(np.array([1]), 1)", tmp_path, **given)
    assert found == "4.0 0 1"
    assert warned.count("CacheFolderWarning") == 1
    assert "PENSTOCK_CACHE_DIR" in warned
    assert run(OURS, tmp_path, **given)[0] == "4.0 1 0"  # the next process finds them there


def test_a_given_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """Another one serves, and whoever has given it is told."""
    taken = tmp_path / "file"
    taken.write_text("")
    given = {"PENSTOCK_CACHE_DIR": str(taken), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    found, warned = run(OURS + "best_age(np.array([1]), 1)", tmp_path, **given)
    assert found == "4.0 0 1"
    assert warned.count("CacheFolderWarning") == 1
    assert f"PENSTOCK_CACHE_DIR={taken} cannot" in warned


def as_a_user() -> tuple[str, ...]:
    """What to start a process with, so that it may not write what is read-only; root may."""
    if os.geteuid() != 0:
        return ()
    if shutil.which("setpriv") is None:
        pytest.skip("root may write everything, and there is no setpriv to change that")
    return "setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner"


@pytest.mark.parametrize("option", ["PENSTOCK_CACHE_DIR", "XDG_CACHE_HOME"])
def test_kernels_in_a_folder_that_can_only_be_read(option: str, tmp_path: Path) -> None:
    """They are used, as those of an image are, and what they lack is kept elsewhere."""
    launcher = as_a_user()
    warm = tmp_path / "warm" if option == "PENSTOCK_CACHE_DIR" else tmp_path / "warm" / "penstock" / "kernels"
    given = {"PENSTOCK_CACHE_DIR": "", "XDG_CACHE_HOME": str(tmp_path / "own"), "TMPDIR": str(tmp_path)}
    given |= {option: str(tmp_path / "warm")}
    assert run(OURS, tmp_path, **given)[0] == "4.0 0 1"
    before = times_in(warm)
    warm.chmod(0o555)
    try:
        found, warned = run(OURS, tmp_path, launcher=launcher, **given)
        assert (found, warned) == ("4.0 1 0", "")
        ages = OURS + "best_age(np.array([1]), 1); print(sum(best_age.stats.cache_misses.values()))"
        assert run(ages, tmp_path, launcher=launcher, **given)[0].splitlines() == ["4.0 1 0", "1"]
        assert run(ages, tmp_path, launcher=launcher, **given)[0].splitlines() == ["4.0 1 0", "0"]
    finally:
        warm.chmod(0o755)
    assert times_in(warm) == before


INTERRUPTED = """
import os, signal

import numpy as np
from numba.core.registry import cpu_target

from penstock.structures.age_curves import best_age

signal.signal(signal.SIGINT, signal.default_int_handler)  # what starts the tests may ignore it
codegen, before = cpu_target.target_context.codegen(), []
library = codegen._library_class


def interrupted(*given):
    if not before:
        before.append(True)
        os.kill(os.getpid(), signal.SIGINT)
    return library._object_compiled_hook(*given)


# What LLVM calls when it has made code, and when it looks for code that is there.
codegen._engine.set_object_cache(interrupted, library._object_getbuffer_hook)
try:
    best_age(np.array([1.0, 5.0, 0.0]), 2.0)
except KeyboardInterrupt:
    print("interrupted")
print(best_age(np.array([1.0, 5.0, 0.0]), 2.0))
"""


def test_an_interrupt_while_code_is_made_is_not_lost(tmp_path: Path) -> None:
    found, said = run(INTERRUPTED, tmp_path, PENSTOCK_CACHE_DIR=str(tmp_path / "kernels"))
    assert found.splitlines() == ["interrupted", "4.0"]
    # On a busy machine compiling takes long enough for the notice; there is nothing else to say.
    notice = "Compiling kernels (best_age first)"
    assert [line for line in said.splitlines() if not line.startswith(notice)] == []
