"""What happens where an optional package is missing, and that the core never needs one."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from penstock.errors import MissingExtraError, PenstockError
from penstock.extras import EXTRAS, is_installed, require

ROOT = Path(__file__).parents[1]

# The packages are installed here: a finder in front of all others hides them.
HIDE = """
import sys
HIDDEN = {hidden!r}
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hide())
"""
SETUP = """
import penstock as ps
from penstock import models, policies
from penstock.errors import MissingExtraError
data = {"key": [1, 2, 1, 2], "ts": [0, 1, 2, 3]}
ask = {"on": "key", "time": "ts"}
"""


def fresh(code: str, hidden: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run code in a new interpreter that cannot import the hidden packages."""
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-c", HIDE.format(hidden=set(hidden)) + code],
        env=os.environ | {"PYTHONPATH": path, "PENSTOCK_TIER": "interpreted"},
        capture_output=True,
        text=True,
        timeout=300,
    )


# What is asked for, how the error calls it, the package that is missing, and which others must be there.
NEEDS = [
    ("models.BoundedNormal(sd=1, bound=3)", "BoundedNormal", "scipy", ()),
    ("policies.Heeb(model=models.RandomWalk(0, 1))", "RandomWalk", "scipy", ()),
    ("models.AR1(0.5, 0, 1).pmf([1], [1])", "The normal distribution of a model", "scipy", ()),
    ("join(policies.FlowExpect(AR1, AR1))", "The policy flowexpect with AR1", "scipy", ("ortools",)),
    ("models.AR1.fit(range(20))", "AR1.fit()", "statsmodels", ()),
    ("models.LinearTrend.fit(range(20))", "LinearTrend.fit()", "statsmodels", ()),
    ("models.select(range(20))", "The choice of a model", "statsmodels", ()),
    ("join('opt')", "The policy opt", "ortools", ()),
    ("join('flowexpect')", "The policy flowexpect", "ortools", ()),
    ("ps.optimal_join(data, data, **ask, budget=ps.Tuples(2))", "The policy opt", "ortools", ()),
    ("ps.plan(data, data, **ask, policies=['opt'])", "The policy opt", "ortools", ()),
    ("penstock.flows.best_expected(1, [[1.0]])", "best_expected()", "ortools", ()),
    ("ps.plan(data, data, **ask, policies=['lru']).plot()", "Plan.plot()", "matplotlib", ()),
    ("ps.plan_lookup([1], sizes=[1]).plot('x.png')", "LookupPlan.plot()", "matplotlib", ()),
    ("penstock.locality.plot_locality('abcabc')", "plot_locality()", "matplotlib", ()),
    ("penstock.locality.plot_popularity('abcabc')", "A plot of locality", "matplotlib", ()),
    ("ps.queues.compare([3], ['half'], memory=6).plot('x.png')", "Comparison.plot()", "matplotlib", ()),
    ("lookup('sqlite:///x.db')", "A table of a database", "sqlalchemy", ()),
    ("lookup('postgresql://nobody@localhost/x')", "A table of PostgreSQL", "psycopg", ("sqlalchemy",)),
    ("penstock.linked.terms.parse_term('<a>')", "A column of RDF terms", "pyoxigraph", ()),
    ("penstock.linked.files.parse_ntriples('<a> <b> <c> 1 .')", "A text of triples", "pyoxigraph", ()),
    ("penstock.spark.bounded_join", "bounded_join", "pyspark", ()),
    ("penstock.spark.PipelineMonitor", "PipelineMonitor", "pyspark", ()),
    (
        "penstock.spark.PipelineMonitor(None, prometheus_port=0)",
        "prometheus_port",
        "prometheus_client",
        ("pyspark",),
    ),
]
TRY = """
import penstock.flows, penstock.linked.files, penstock.linked.terms, penstock.locality, penstock.queues
import penstock.spark
AR1 = models.AR1(0.5, 0, 1)
ask["within"] = 5

def join(policy):
    return ps.WindowJoin(within=5, budget=ps.Tuples(2), policy=policy)

def lookup(url):
    return ps.LookupCache((url, "t"), key="id", budget=ps.Tuples(2))

for asked, _, _, there in NEEDS:
    HIDDEN.difference_update(there)
    try:
        eval(asked)
    except MissingExtraError as error:
        print(error.name, error, sep=": ")
    else:
        print("no error:", asked)
    HIDDEN.update(there)
"""


def command(package: str, extra: str | None = None) -> str:
    return f"needs {package}, which is not installed; run: pip install 'penstock[{extra or EXTRAS[package]}]'"


def test_a_missing_package_is_named_with_its_command() -> None:
    for package in ("pyspark", "sqlalchemy", "ortools"):
        pytest.importorskip(package)
    done = fresh(f"{SETUP}\nNEEDS = {NEEDS!r}\n{TRY}", tuple(EXTRAS))
    assert done.returncode == 0, done.stderr
    expected = [f"{package}: {what} {command(package)}" for _, what, package, _ in NEEDS]
    assert done.stdout.splitlines() == expected


def test_every_package_of_the_list_is_tried() -> None:
    assert {package for _, _, package, _ in NEEDS} == set(EXTRAS)


COMMANDS = {
    "plan left.csv left.csv --on key --time ts --within 5 --plot plan.png": "--plot " + command("matplotlib"),
    "plan-lookup left.csv --key key --plot plan.png": "--plot " + command("matplotlib"),
    "queues simulate --pattern bursts --memory 8 --plot x.png": "--plot " + command("matplotlib"),
    "plan left.csv left.csv --on key --time ts --within 5 --no-plot --policies opt": (
        "The policy opt " + command("ortools")
    ),
    "demo": "penstock demo " + command("pyspark"),
    "join left.csv left.csv --on key --time ts --within 5 --budget 5 --out out": (
        "This command " + command("pyspark")
    ),
    "reproduce gdj --quick --out out": "The reproduction " + command("matplotlib", "reproduction"),
}
RUN = """
import os
from typer.testing import CliRunner
from penstock.cli import app
os.chdir({folder!r})
for line in {lines!r}:
    done = CliRunner().invoke(app, line.split())
    told = [each for each in done.stderr.splitlines() if each.startswith(("error: ", "note: "))]
    print(done.exit_code, *told)
"""


def test_commands_say_so_before_they_work(tmp_path: Path) -> None:
    (tmp_path / "left.csv").write_text("key,ts\n1,0\n2,1\n1,2\n")
    done = fresh(RUN.format(folder=str(tmp_path), lines=list(COMMANDS)), tuple(EXTRAS))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"1 error: {told}" for told in COMMANDS.values()]
    assert [path.name for path in tmp_path.iterdir()] == ["left.csv"]


def test_a_plan_without_matplotlib_has_no_picture(tmp_path: Path) -> None:
    """A picture that nobody asked for is no reason to fail."""
    (tmp_path / "left.csv").write_text("key,ts\n1,0\n2,1\n1,2\n")
    line = "plan left.csv left.csv --on key --time ts --within 5 --policies lru --budgets 4"
    done = fresh(RUN.format(folder=str(tmp_path), lines=[line]), ("matplotlib",))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("0 note: no picture is drawn without matplotlib")
    assert [path.name for path in tmp_path.iterdir()] == ["left.csv"]


# Everything that a pipeline runs, with all extras out of reach.
CORE = """
import pathlib, tempfile
for policy in policies.names():
    if policy not in ("opt", "flowexpect", "heeb-hist"):
        join = ps.WindowJoin(within=5, budget=ps.Tuples(2), policy=policy)
        assert join.run(data, data, **ask).stats.results > 0, policy
trend = models.LinearTrend(1, 0, models.BoundedUniform(2))
season, coin = models.Seasonal((1, 2), 0.5, 1), models.Stationary([1, 2], [0.5, 0.5])
for model in (trend, models.AR1(0.5, 1, 1), season, coin):
    join = ps.WindowJoin(within=5, budget=ps.Tuples(2), policy=policies.Heeb(model=model))
    join.run(data, data, **ask)
ps.join_many({"a": data, "b": data, "c": data}, **ask, within=5, budget=ps.Tuples(6), policy="lru")
ps.plan(data, data, **ask, within=5, budgets=["2 tuples"], target=0.5)
ps.plan_lookup([1, 2, 1], sizes=[1])

import pyarrow as pa
from penstock.joins import follow_decisions
decisions = pa.table({"stream": ["left"], "row": [2], "until": [5]})
follow_decisions(data, data, decisions, **ask, within=5, budget=ps.Tuples(2))

cache = ps.LookupCache(lambda keys: {k: {"name": str(k)} for k in keys}, key="key", budget=ps.Tuples(2))
assert cache.run(data, on="key").table["name"].to_pylist() == ["1", "2", "1", "2"]
events = {"type": ["A", "C"], "ts": [0, 4]}
found = ps.Pattern.parse("PATTERN SEQ(A a, C c) WITHIN 10").run(events, type="type", time="ts")
assert found.matches.to_pylist() == [{"a": 0, "c": 1}]
triples = {"s": ["a", "b"], "p": ["reports"] * 2, "o": [12, 12], "start": [0, 100]}
query = "SELECT ?x, ?y FROM STREAM wind WHERE { ?x reports ?w ?T1 . ?y reports ?w ?T2 . FILTER (?x != ?y) . }"
query += " CONTEXT ((?T1 - ?T2) <= 200^^xsd:millisecond) ."
assert ps.StreamQuery.parse(query).run({"wind": triples}, budget=ps.Tuples(9)).rows.num_rows == 2
with tempfile.TemporaryDirectory() as folder:
    with ps.SpillQueue(pathlib.Path(folder) / "q", memory="64 KiB") as queue:
        queue.put(b"x")
        assert queue.get() == b"x"
import penstock.locality, penstock.workloads, penstock.caching, penstock.dashboard, penstock.cli
print(sorted(HIDDEN & set(sys.modules)))
"""


def test_the_core_runs_without_any_extra() -> None:
    done = fresh(SETUP + CORE, tuple(EXTRAS))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_neither_the_core_nor_a_worker_loads_an_extra() -> None:
    """They are installed here, and still not imported: not by a join, and not by what Spark's workers run."""
    pytest.importorskip("pyspark", reason="pyspark is an extra")
    # Numba looks at the version of SciPy, which loads nothing but its first file.
    heavy = set(EXTRAS) - {"pyspark", "scipy"} | {"scipy.special", "scipy.linalg", "scipy.stats"}
    code = f"""
import sys
import penstock, penstock.spark
penstock.WindowJoin(within=5, budget=penstock.Tuples(4)).run(data, data, **ask)
from penstock.spark.runtime import join_bucket, lookup_bucket, packer, pattern_bucket, processor
from penstock.spark.runtime import query_bucket, state_log
from penstock.spark import bounded_join
print(sorted({heavy!r} & set(sys.modules)))
"""
    done = fresh(SETUP + code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_the_error_is_an_import_error_and_survives_a_pickle() -> None:
    with pytest.raises(ImportError) as caught:
        require("no_such_package", "A test", extra="plots")
    assert isinstance(caught.value, MissingExtraError)
    assert isinstance(caught.value, PenstockError)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.name) == (str(caught.value), "no_such_package")


def test_a_package_that_is_barred_counts_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert not is_installed("matplotlib")


def test_extras_of_the_project_and_of_the_errors_agree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    core = " ".join(project["dependencies"])
    for package, extra in EXTRAS.items():
        name = package.replace("_", "-")
        assert any(each.startswith(name) for each in extras[extra]), package
        assert name not in core
        assert extra in extras["all"][0]
