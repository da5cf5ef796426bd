"""The documentation runs: every Python block of the README and of `docs/`, with the output it shows.

- A `python` block with `>>>` is a doctest. Any other is executed; if a `text` block follows it directly,
  that is what it must print. The blocks of a file run in order and share their names.
- A block that is marked `python src/...` or `python examples/...` is quoted from that file and must stand
  there word for word.
- Every block has one of the marks of `KINDS`, so that none escapes by a mark of its own.
- Commands of `penstock`, in blocks and in lines of text, have to be understood by the command line.

Kafka's connector is not part of Spark, so here the source `kafka` reads files with the columns that it gives;
`tests/spark/test_kafka.py` has a broker.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import json
import re
import shlex
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import penstock as ps

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
COMMAND = re.compile(r"^    (penstock .*)$|`(penstock [^`]+)`", re.MULTILINE)
KINDS = ("", "python", "text")  # but for quotations
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


class Block(NamedTuple):
    """A fenced block: what it is marked as, its text, its first line in the file, and what it must print."""

    kind: str
    text: str
    line: int
    prints: str | None


def blocks(page: Path) -> list[Block]:
    source = page.read_text(encoding="utf-8")
    found = list(FENCE.finditer(source))
    after: list[re.Match[str] | None] = [*found[1:], None]
    return [
        Block(
            kind=match[1].strip(),
            text=match[2],
            line=source.count("\n", 0, match.start(2)) + 1,
            prints=follower[2]
            if follower and follower[1] == "text" and not source[match.end() : follower.start()].strip()
            else None,
        )
        for match, follower in zip(found, after, strict=True)
    ]


@pytest.fixture(autouse=True)
def _registry_as_before() -> Iterator[None]:
    """Policies that a page registers are forgotten after it."""
    before = ps.policies.names()
    yield
    for name in ps.policies.names():
        if name not in before:
            ps.policies.unregister(name)


@every_page
def test_examples_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    module = types.ModuleType("pasted")  # a module that can be found: classes of the page can be pickled
    monkeypatch.setitem(sys.modules, module.__name__, module)
    names = vars(module)
    if any("spark" in block.text for block in blocks(page) if block.kind == "python"):
        names["spark"] = FilesForKafka(request.getfixturevalue("spark"), tmp_path)
    ran = 0
    for block in blocks(page):
        if block.kind != "python":
            continue
        ran += 1
        if ">>> " in block.text:
            check_doctest(page, block, names)
        else:
            printed = io.StringIO()
            # Blank lines before the code, so that a traceback has the line of the page.
            code = compile("\n" * (block.line - 1) + block.text, str(page), "exec", dont_inherit=True)
            with contextlib.redirect_stdout(printed):
                exec(code, names)
            if block.prints is not None:
                assert printed.getvalue().rstrip() == block.prints.rstrip(), f"{page.name}:{block.line}"
    assert ran, f"{page.name} has no example"


class FilesForKafka:
    """A session whose source `kafka` is a folder of files, with the columns that Kafka has."""

    def __init__(self, session: Any, folder: Path) -> None:
        self._session = session
        self._folder = folder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    @property
    def readStream(self) -> Any:  # noqa: N802 (Spark's name)
        reader = self._session.readStream
        plain = reader.format

        def named(source: str) -> Any:
            if source != "kafka":
                return plain(source)
            folder = self._folder / "kafka"
            columns = "key binary, value binary, partition int, offset long"
            if not folder.exists():
                message = bytearray(json.dumps({"ad": "a", "ts": "2024-05-01T12:00:00Z"}).encode())
                rows = self._session.createDataFrame([(None, message, 0, 0)], columns)
                rows.write.parquet(str(folder))
            return plain("parquet").schema(columns).option("path", str(folder))

        reader.format = named
        return reader


def check_doctest(page: Path, block: Block, names: dict[str, Any]) -> None:
    """Run the prompts of a block; what they define stays."""
    example = doctest.DocTestParser().get_doctest(block.text, names, page.name, str(page), block.line - 1)
    example.globs = names  # not the parser's copy
    report = io.StringIO()
    failed, _ = doctest.DocTestRunner(optionflags=FLAGS).run(example, out=report.write, clear_globs=False)
    assert not failed, report.getvalue()


@every_page
def test_quotations_are_true(page: Path) -> None:
    for block in blocks(page):
        kind, _, source = block.kind.partition(" ")
        if kind == "python" and source:
            assert block.text in (ROOT / source).read_text(encoding="utf-8"), f"{page.name}:{block.line}"


@every_page
def test_every_block_is_of_a_kind_that_is_tested(page: Path) -> None:
    quoted = ("python src/", "python examples/")
    marks = {block.kind for block in blocks(page) if not block.kind.startswith(quoted)}
    assert marks <= set(KINDS)


@every_page
def test_commands_are_understood(page: Path) -> None:
    import typer

    from penstock.cli import app

    command = typer.main.get_command(app)
    for match in COMMAND.finditer(page.read_text(encoding="utf-8")):
        words = shlex.split(re.sub(r"\s#.*", "", match[1] or match[2]))[1:]
        if words[0] == "--help" or (match[1] is None and not any(word.startswith("-") for word in words)):
            continue  # a name in a sentence, `penstock plan`
        parsed, rest = command, words
        while hasattr(parsed, "commands"):
            assert rest[0] in parsed.commands, f"{page.name}: {' '.join(words)}"
            parsed, rest = parsed.commands[rest[0]], rest[1:]
        parsed.make_context(parsed.name, rest)  # raises where an option is unknown or misses its value


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"


def test_the_readme_lists_the_registry() -> None:
    lines = [f"| `{kind.name}` | {kind.summary} | {kind.cost} |" for kind in ps.policies.registered()]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "\n".join(lines) in readme, "the table of policies is not that of the registry; run `make format`"


def test_policies_to_try_are_registered() -> None:
    page = (ROOT / "docs/choosing.md").read_text(encoding="utf-8")
    table = page.partition("| your stream | policies to try | why |")[2].partition("\n\n")[0]
    tried = {
        name for row in table.splitlines() if row for name in re.findall(r"`([a-z-]+)`", row.split("|")[2])
    }
    assert tried
    assert tried <= set(ps.policies.names())


def test_the_hooks_are_all_described() -> None:
    source = (ROOT / "src/penstock/engine/hooks.py").read_text(encoding="utf-8")
    page = (ROOT / "docs/writing-a-policy.md").read_text(encoding="utf-8")
    hooks = re.findall(r"^@hook\ndef (\w+)\(", source, re.MULTILINE)
    assert hooks
    assert [name for name in hooks if f"| `{name}` |" not in page] == []
