"""The live page: what its server answers, what a file gives it, and what a browser makes of it."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from penstock.dashboard import Board, Dashboard, follow, write_line
from penstock.errors import PenstockError
from tests.dashboard.browser import Browser

ARTIFACTS = Path(__file__).parents[2] / "artifacts"


def batch(number: int, **more: Any) -> dict[str, Any]:
    figures = {
        "batch": number, "rows": 2_000, "rows_per_second": 900.0, "seconds": 2.0,
        "results": 400 + 10 * number,
        "evicted_left": 30, "evicted_right": 20, "buffered_left": 600, "buffered_right": 300, "expired": 5,
        "late": 0, "peak_bytes": 900_000, "budget_bytes": 2**20, "budget_rows": 0, "state_written": 50_000,
        "state_read": 1_000, "recall": 0.9 - 0.01 * number, "overall_recall": 0.88, "state": "running",
        "streams": ["left", "right"], "advice": None,
        "workers": 2, "worker_bytes": 300 * 2**20, "worker_most_bytes": 160 * 2**20,
    }  # fmt: skip
    return figures | more


def got(url: str, **headers: str) -> tuple[int, Any, bytes]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


def test_the_page_needs_nothing_else() -> None:
    with Dashboard(Board("clicks")) as served:
        assert served.url.startswith("http://127.0.0.1:")
        status, headers, page = got(served.url)
    assert status == 200
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    text = page.decode()
    for outside in ("http://", "https://", "src=", "@import", "url("):
        assert outside not in text.replace("http://www.w3.org/2000/svg", "")


def test_batches_as_json_and_what_is_not_there() -> None:
    board = Board("clicks")
    board.post(batch(0, rows_per_second=float("inf")))
    with Dashboard(board) as served:
        status, _, body = got(served.url + "batches.json")
        assert status == 200
        (told,) = json.loads(body)
        assert told["results"] == 400
        assert told["rows_per_second"] is None
        assert got(served.url + "secrets")[0] == 404


def test_it_cannot_be_written_to() -> None:
    with Dashboard(Board("clicks")) as served:
        for method in ("POST", "PUT", "DELETE"):
            request = urllib.request.Request(served.url, data=b"x", method=method)
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(request, timeout=10)
            assert refused.value.code == 501
            refused.value.close()


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost:80", 200), ("[::1]:80", 200), ("evil.example", 403), ("127.0.0.1.evil", 403)],
)
def test_pages_of_elsewhere_learn_nothing(host: str, status: int) -> None:
    with Dashboard(Board("clicks")) as served:
        assert got(served.url, Host=host)[0] == status


def test_events_come_as_they_happen_and_go_on_where_they_stopped() -> None:
    board = Board("clicks")
    board.post(batch(0))
    with Dashboard(board) as served:
        place = served.url.removeprefix("http://").rstrip("/")
        connection = http.client.HTTPConnection(place, timeout=10)
        connection.request("GET", "/events")
        answer = connection.getresponse()
        assert answer.getheader("Content-Type") == "text/event-stream"

        def next_event() -> dict[str, str]:
            event = {}
            while line := answer.readline().decode().rstrip("\n"):
                name, _, value = line.partition(": ")
                event[name] = value
            return event

        named = next_event()
        assert (named["event"], json.loads(named["data"])) == ("name", {"name": "clicks", "query": 0})
        assert json.loads(next_event()["data"])["batch"] == 0
        board.post(batch(1))
        event = next_event()
        assert (event["id"], json.loads(event["data"])["batch"]) == ("2", 1)
        answer.close()
        connection.close()

        connection.request("GET", "/events", headers={"Last-Event-ID": "1"})
        answer = connection.getresponse()
        next_event()
        assert json.loads(next_event()["data"])["batch"] == 1
        answer.close()
        connection.close()


def test_a_port_that_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(PenstockError, match="Cannot listen on"):
            Dashboard(Board("clicks"), taken.getsockname()[1])


def test_a_file_is_followed(tmp_path: Path) -> None:
    path, over, seen = tmp_path / "clicks.jsonl", threading.Event(), []

    def watch() -> None:
        for figures in follow(path, over.is_set, every=0.01):
            seen.append(figures["batch"])
            if len(seen) == 4:
                over.set()

    thread = threading.Thread(target=watch)
    thread.start()
    write_line(path, {"batch": 0})
    with path.open("a") as file:
        file.write('not figures\n[1]\n{"batch"')
        file.flush()
        file.write(": 1}\n")
    write_line(path, {"batch": 2})
    while len(seen) < 3:
        thread.join(0.01)
    path.write_text('{"batch": 7}\n')  # begun anew
    thread.join(30)
    assert seen == [0, 1, 2, 7]


def test_the_command_shows_a_file(tmp_path: Path) -> None:
    path = tmp_path / "clicks.jsonl"
    write_line(path, batch(5))
    command = [sys.executable, "-m", "penstock.cli", "dashboard", str(path), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1]
            told: list[Any] = []
            while not told:
                told = json.loads(got(url + "batches.json")[2])
            assert told[0]["batch"] == 5
        finally:
            process.terminate()


def test_a_browser_shows_it(tmp_path: Path) -> None:
    board = Board("clicks and views")
    with Browser(tmp_path / "profile") as browser, Dashboard(board) as served:
        browser.open(served.url)
        browser.until("document.getElementById('state').textContent === 'waiting for a batch'")
        for number in range(8):
            board.post(batch(number))
        browser.until("document.getElementById('results').textContent === '235'")
        text = browser.text()
        for part in (
            "clicks and views",
            "88.0 %",
            "878.9 KiB",
            "of 1.0 MiB",
            "300.0 MiB",
            "2 in all, at most 160.0 MiB each",
            "last batches 83.0 % to 90.0 %",
        ):
            assert part in text
        board.post(batch(8, results=1_000, advice="More memory helps."))
        browser.until("document.getElementById('results').textContent === '500'")
        assert "More memory helps." in browser.text()
        assert "Lookup hits" not in browser.text()
        beside = {"hits": 90, "requests": 120, "waiting": {"clicks": 70, "views": 12_345}}
        board.post(batch(9, results=1_000, **beside))
        browser.until("document.getElementById('hits').textContent === '75.0 %'")
        text = browser.text()
        for part in ("Lookup hits", "75.0 % of 120 in all", "12.4 k rows", "clicks 70, views 12.3 k"):
            assert part in text
        board.post({"state": "stopped"})
        browser.until("document.getElementById('state').textContent === 'stopped'")

        theme = "document.documentElement.dataset.theme"
        browser.press("t")
        assert browser.look(theme) == "light"
        browser.screenshot(ARTIFACTS / "dashboard-light.png")
        browser.press("t")
        assert browser.look(theme) == "dark"
        browser.press("ArrowDown")
        assert browser.look("document.querySelector('[aria-selected=true] td').textContent") == "9"
        browser.press("ArrowDown")
        assert browser.look("document.querySelector('[aria-selected=true] td').textContent") == "8"
        browser.screenshot(ARTIFACTS / "dashboard-dark.png")

        browser.resize(400, 900)  # nothing sticks out of a narrow window, and the table scrolls
        browser.until("document.documentElement.scrollWidth <= innerWidth")
        browser.screenshot(ARTIFACTS / "dashboard-narrow.png")

        browser.press("p")
        board.post(batch(10, results=2))
        browser.until("batches.length === 11")
        assert browser.look("document.getElementById('results').textContent") == "500"
        browser.press("p")
        browser.until("document.getElementById('results').textContent === '1'")


def test_a_browser_shows_what_recall_is_not(tmp_path: Path) -> None:
    board = Board("clicks")
    with Browser(tmp_path / "profile") as browser, Dashboard(board) as served:
        browser.open(served.url)
        bound = {
            "recall": 0.7,
            "recall_at_most": True,
            "overall_recall": 0.69,
            "overall_recall_at_most": True,
        }
        board.post(batch(0, unestimated=3, **bound))
        browser.until("document.getElementById('recall').textContent === 'at most 69.0 %'")
        text = browser.text()
        for part in (
            "at most 70.0 %",
            "so far, at most 69.0 %",
            "last batches at most 70.0 %",
            "3 rows came too late to estimate what they missed. Recall is at most 69.0 %; it may be lower.",
        ):
            assert part in text
        browser.screenshot(ARTIFACTS / "dashboard-at-most.png")
        unknown = {"recall": None, "overall_recall": None, "unestimated": 900}
        board.post(batch(1, advice="Write files in order of time.", **unknown))
        browser.until("document.getElementById('recall').textContent === 'unknown'")
        assert "Write files in order of time." in browser.text()
        assert "Recall is unknown." in browser.text()


def test_several_queries_share_a_page() -> None:
    boards = [Board("clicks"), Board("orders")]
    boards[0].post(batch(0))
    boards[1].post(batch(7))
    with Dashboard(boards[0]) as served:
        place = served.url.removeprefix("http://").rstrip("/")
        served.add(boards[1])

        def told(count: int, **headers: str) -> list[tuple[str, int, int]]:
            connection = http.client.HTTPConnection(place, timeout=10)
            connection.request("GET", "/events", headers=headers)
            answer, found, identity = connection.getresponse(), [], ""
            while len(found) < count:
                name, _, value = answer.readline().decode().rstrip("\n").partition(": ")
                identity = value if name == "id" else identity
                if name == "data" and "batch" in (data := json.loads(value)):
                    found.append((identity, data["query"], data["batch"]))
            answer.close()
            connection.close()
            return found

        assert told(2) == [("1-0", 0, 0), ("1-1", 1, 7)]
        boards[1].post(batch(8))
        assert told(1, **{"Last-Event-ID": "1-1"}) == [("1-2", 1, 8)]
        assert [each["batch"] for each in json.loads(got(served.url + "batches.json?query=1")[2])] == [7, 8]
        for wrong in ("2", "-1", "x"):
            assert got(served.url + f"batches.json?query={wrong}")[0] == 404


START = 1_767_225_600  # the first second of 2026


def test_a_browser_shows_several_queries_over_time(tmp_path: Path) -> None:
    boards = [Board("clicks"), Board("orders")]
    for number in range(5):  # the last batch comes after a long pause
        began = START + (number if number < 4 else 3_600)
        boards[0].post(batch(number, began=began, late=3 if number < 4 else 60, behind_watermark=1))
        boards[1].post(batch(number, results=7))
    ends = "[...document.querySelectorAll('#c-rates text')].slice(3).map(t => t.textContent)"
    with Browser(tmp_path / "profile") as browser, Dashboard(boards) as served:
        browser.open(served.url)
        browser.until("queries.length === 2 && queries.every(q => q.batches.length === 5)")
        browser.until("document.getElementById('late').textContent === '61'")
        assert "77 in all, 0.8 % of the rows" in browser.text()
        assert browser.look("document.getElementById('late-many').className") == "many"
        # The axis has an hour: its first, last and middle time, in whatever zone.
        assert browser.look(f"{ends}.map(t => t.slice(-5))") == ["00:02", "00:02", "30:02"]
        points = browser.look("document.querySelector('#c-rates polyline').getAttribute('points').split(' ')")
        across = [float(point.split(",")[0]) for point in points]
        assert across[3] - across[0] < 2 < 100 < across[4] - across[3]
        assert browser.look("document.getElementById('bound').hidden")
        assert "how much recall varies" in browser.text()

        browser.press("ArrowRight")
        browser.until("document.getElementById('name').textContent === 'orders'")
        assert browser.look("document.getElementById('results').textContent") == "3.5"
        assert browser.look(f"{ends}[0]") == "batch 0"  # no times were recorded
        assert browser.look("document.querySelector('[role=tab][aria-selected=true]').textContent") == (
            "orders · recall 88.0 %"
        )
        boards[0].post(batch(5, results=1_000))  # goes on beside it
        browser.until("queries[0].batches.length === 6")
        assert browser.look("document.getElementById('results').textContent") == "3.5"
        browser.look("document.querySelector('[role=tab]').click()")
        browser.until("document.getElementById('results').textContent === '500'")
        browser.screenshot(ARTIFACTS / "dashboard-queries.png")
