"""`penstock queues` on the command line."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from typer.testing import CliRunner

import penstock as ps
from penstock.cli import app


def invoke(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["queues", *arguments])
    assert result.exit_code == code, result.output
    return result.output


def test_simulate(tmp_path: Path) -> None:
    out, plot = tmp_path / "rows.json", tmp_path / "course.png"
    said = invoke(
        "simulate",
        "--arrivals",
        "3,0,3,3,0,0,3,3,1,1",
        "--memory",
        "6",
        "--json",
        str(out),
        "--plot",
        str(plot),
    )
    assert "Ratios are relative to the optimum, 2." in said
    rows = {row["planner"]: row for row in json.loads(out.read_text())["rows"]}
    assert rows["half-late"]["ratio"] == 2.5
    assert plot.stat().st_size > 10_000


def test_simulate_the_proofs() -> None:
    assert "half" in invoke("simulate", "--pattern", "theorem-2.2", "--memory", "8", "--ticks", "30")
    assert "static" in invoke("simulate", "--pattern", "theorem-4.3", "--memory", "16")
    assert "buffered-head" in invoke(
        "simulate", "--pattern", "theorem-4.4", "--memory", "16", "--ticks", "50"
    )
    assert "a lower bound on any algorithm's cost" in invoke(
        "simulate", "--pattern", "bursts", "--memory", "50", "--ticks", "5000"
    )
    assert "hybrid" in invoke("simulate", "--pattern", "poisson", "--block", "3", "--ticks", "20")
    assert "did you mean" in invoke("simulate", "--pattern", "burst", code=2)


def test_verify_and_inspect(tmp_path: Path) -> None:
    with ps.SpillQueue(tmp_path, memory=1_000, durable=True) as queue:
        for _ in range(30):
            queue.put_many([b"x" * 50] * 10)
    assert "no damage: 300 items in 30 chunks" in invoke("verify", str(tmp_path))
    assert "300 items (0 to 300)" in invoke("inspect", str(tmp_path))
    invoke("inspect", str(tmp_path), "--json", str(tmp_path / "found.json"))
    found = json.loads((tmp_path / "found.json").read_text())
    assert (found["whole"], found["queues"][0]["items"]) == (True, 300)
    file = next(tmp_path.glob("*.seg"))
    raw = bytearray(file.read_bytes())
    raw[1_000] ^= 1
    file.write_bytes(raw)
    said = invoke("verify", str(tmp_path), code=1)
    assert f"damage: {file.name} at offset" in said
    assert "items 10 to 19 are missing (10)" in said
    found = json.loads(CliRunner().invoke(app, ["queues", "verify", str(tmp_path), "--json", "-"]).stdout)
    assert not found["whole"]
    assert "items 10 to 19 are missing (10)" in found["queues"][0]["missing"]
    assert "holds no queue" in invoke("verify", str(tmp_path / "nothing"), code=2)


def test_verify_tells_of_damaged_confirmations(tmp_path: Path) -> None:
    with ps.SpillQueue(tmp_path, durable=True) as queue:
        queue.put_many([b"a", b"b", b"c"])
        queue.get_many(2)
        queue.commit()
    raw = (tmp_path / "commits").read_bytes()
    for place in range(len(raw)):
        (tmp_path / "commits").write_bytes(raw[:place] + bytes([raw[place] ^ 4]) + raw[place + 1 :])
        said = invoke("verify", str(tmp_path), code=1)
        assert "damage: commits at offset" in said
        assert "whole" not in said
    found = json.loads(CliRunner().invoke(app, ["queues", "inspect", str(tmp_path), "--json", "-"]).stdout)
    assert not found["whole"]
    assert "damage: commits" in found["flaws"][0]
    (tmp_path / "commits").unlink()
    assert "damage: commits at offset 0" in invoke("verify", str(tmp_path), code=1)
    (tmp_path / "commits").write_bytes(raw)
    assert "no damage: 1 items" in invoke("verify", str(tmp_path))


def test_serve_refuses_strangers(tmp_path: Path) -> None:
    for option, value in (("--memory", "much"), ("--disk-limit", "1 KiB"), ("--policy", "haf")):
        said = invoke("serve", str(tmp_path / "none"), "--port", "0", option, value, code=2)
        assert value in said
        assert not (tmp_path / "none").exists()
    assert "token and TLS" in invoke("serve", str(tmp_path), "--host", "0.0.0.0", "--port", "0", code=2)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert not blocked & {signal.SIGINT, signal.SIGTERM}  # else no process that follows could be ended
