"""`penstock doctor` finds what is there, and says what to do where something is not."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli import app
from penstock.cli.doctor import java


def findings(**environment: str) -> tuple[int, dict[str, dict[str, str]]]:
    result = CliRunner().invoke(app, ["doctor", "--json", "-"], env=environment)
    return result.exit_code, {each["what"]: each for each in json.loads(result.stdout)}


def test_this_machine_has_what_is_needed() -> None:
    code, found = findings()
    assert code == 0
    assert found["Python"]["state"] == found["numba"]["state"] == "ok"


def test_a_table_for_people() -> None:
    result = CliRunner().invoke(app, ["doctor"], env={"COLUMNS": "160"})
    assert result.exit_code == 0
    assert "Everything required is installed." in result.stdout


def test_a_java_home_that_leads_nowhere(tmp_path: Path) -> None:
    code, found = findings(JAVA_HOME=str(tmp_path))
    assert code == 1  # pyspark is installed, and does not start without Java
    assert found["Java"]["state"] == "bad"
    assert "JAVA_HOME" in found["Java"]["remedy"]


def test_without_pyspark_java_is_not_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[java.__module__], "find_spec", lambda name: None)
    code, found = findings(JAVA_HOME=str(tmp_path))
    assert (code, found["Java"]["state"]) == (0, "note")


def test_a_spark_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.metadata as metadata

    true = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "3.5.7" if name == "pyspark" else true(name))
    code, found = findings()
    assert code == 1
    assert (found["pyspark"]["state"], found["pyspark"]["found"]) == ("bad", "3.5.7")
    assert "4.1 or newer" in found["pyspark"]["remedy"]


@pytest.mark.parametrize("said", ['openjdk version "11.0.2"', "who are you"])
def test_a_java_that_is_too_old_or_says_nothing(tmp_path: Path, said: str) -> None:
    command = tmp_path / "bin" / "java"
    command.parent.mkdir()
    command.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    command.chmod(0o755)
    code, found = findings(JAVA_HOME=str(tmp_path))
    assert code == 1
    assert found["Java"]["state"] == "bad"
    assert "Java 17" in found["Java"]["remedy"]


def test_no_jit_is_worth_a_word() -> None:
    code, found = findings(NUMBA_DISABLE_JIT="1")
    assert code == 0
    assert found["Numba"]["state"] == "note"
