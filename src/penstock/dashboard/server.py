"""The read-only server of the live page: it answers GET and streams batches as they come.

By default it listens on the loopback interface and answers only requests for a name of this machine, so that
a page from elsewhere cannot read it through a local user's browser.
"""

from __future__ import annotations

import contextlib
import ipaddress
import threading
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs, urlsplit

from penstock.dashboard.board import Board, news
from penstock.dashboard.recording import as_json
from penstock.errors import PenstockError

HEARTBEAT = 5.0  # seconds between lines that are sent without news, to detect closed connections
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class Dashboard:
    """Serves boards while the block runs.

    Parameters
    ----------
    boards
        The board to show, or several, one per query: the page shows one of them at a time. See also `add`.
    port
        Port to listen on; 0 picks a free one, see `url`.
    address
        Address to listen on. Default: this machine only; use `"0.0.0.0"` to allow others.

    Examples
    --------
    >>> import urllib.request
    >>> from penstock.dashboard import Board, Dashboard
    >>> with Dashboard(Board("clicks")) as served:
    ...     page = urllib.request.urlopen(served.url, timeout=10).read()
    >>> b"<title>" in page
    True
    """

    def __init__(self, boards: Board | Sequence[Board], port: int = 0, address: str = "127.0.0.1") -> None:
        self.boards = [boards] if isinstance(boards, Board) else list(boards)
        try:
            self._server = _Server((address, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise PenstockError(
                f"Cannot listen on {address}:{port} ({reason}); give another port, or 0 for a free one."
            ) from error
        self._server.boards = self.boards
        self._server.guarded = _is_loopback(address)
        host = f"[{address}]" if ":" in address else address
        self.url = f"http://{host}:{self._server.server_port}/"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)
        self._thread.start()

    def add(self, board: Board) -> None:
        """Show a further query on the page.

        >>> from penstock.dashboard import Board, Dashboard
        >>> with Dashboard(Board("clicks")) as served:
        ...     served.add(Board("views"))
        ...     [board.name for board in served.boards]
        ['clicks', 'views']
        """
        self.boards.append(board)

    def close(self) -> None:
        """Stop serving."""
        for board in self.boards:
            board.close()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Dashboard:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    boards: list[Board]
    guarded: bool

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect during an answer."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "penstock", ""

    def do_GET(self) -> None:
        """Answer with the page, the batches so far, or a stream of batches."""
        self._answer(body=True)

    def do_HEAD(self) -> None:
        """Answer without the body."""
        self._answer(body=False)

    def _answer(self, body: bool) -> None:
        if self.server.guarded and not _is_local(self.headers.get("Host", "")):
            self._say(HTTPStatus.FORBIDDEN, "text/plain", b"Ask for it as 127.0.0.1 or localhost.\n", body)
            return
        path = self.path.partition("?")[0]
        if path == "/":
            page = files(__package__).joinpath("page.html").read_bytes()
            self._say(HTTPStatus.OK, "text/html; charset=utf-8", page, body)
        elif path == "/batches.json":
            number = parse_qs(urlsplit(self.path).query).get("query", ["0"])[0]
            if not (number.isdecimal() and int(number) < len(self.server.boards)):
                self._say(HTTPStatus.NOT_FOUND, "text/plain", b"There is no such query.\n", body)
                return
            rows = ", ".join(as_json(figures) for _, figures in self.server.boards[int(number)].since(0, 0))
            self._say(HTTPStatus.OK, "application/json", f"[{rows}]\n".encode(), body)
        elif path == "/events" and body:
            self._tell()
        else:
            self._say(
                HTTPStatus.NOT_FOUND, "text/plain", b"There is / and /events and /batches.json.\n", body
            )

    def _say(self, status: HTTPStatus, kind: str, content: bytes, body: bool) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self._guards()
        self.end_headers()
        if body:
            self.wfile.write(content)

    def _guards(self) -> None:
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")

    def _tell(self) -> None:
        """Send server-sent events: the batches that the browser has not seen, then each as it comes."""
        self.close_connection = True
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self._guards()
        self.end_headers()
        with contextlib.suppress(OSError):  # the browser has disconnected
            for line in self._events():
                self.wfile.write(line)
                self.wfile.flush()

    def _events(self) -> Iterator[bytes]:
        words = self.headers.get("Last-Event-ID", "").split("-")
        seen = [int(word) if word.isdecimal() else 0 for word in words]
        named = 0
        while True:
            boards = self.server.boards[:]
            seen += [0] * (len(boards) - len(seen))
            for place in range(named, len(boards)):
                told = {"name": boards[place].name, "query": place}
                yield f"event: name\ndata: {as_json(told)}\n\n".encode()
            named = len(boards)
            closed = all(board.closed for board in boards)
            found = news(boards, seen[:named], HEARTBEAT)
            for place, number, figures in found:
                seen[place] = number
                told = figures | {"query": place}
                yield f"id: {'-'.join(map(str, seen))}\ndata: {as_json(told)}\n\n".encode()
            if closed:
                return
            if not found:
                yield b": nothing new\n\n"

    def log_message(self, format: str, *args: Any) -> None:
        """Do not log requests."""


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def _is_local(host: str) -> bool:
    """Whether the host of a request, with or without a port, is a local name of this machine."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return _is_loopback(name)
