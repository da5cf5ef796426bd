"""A real browser for tests: Chromium without a window, spoken to over its debugging pipe."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 240.0


def command() -> str:
    """The browser's command; the test is skipped where there is none."""
    found = os.environ.get("PENSTOCK_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(f"no browser: neither PENSTOCK_BROWSER nor {', '.join(NAMES)}")
    return found


class Browser:
    """One page in a browser of its own."""

    def __init__(self, folder: Path) -> None:
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        options = (
            "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run "
            "--remote-debugging-pipe --window-size=1280,1000"
        )
        script = f'exec "$0" {options} --user-data-dir="$1" about:blank 3<&{to_browser} 4>&{from_browser}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, command(), str(folder)],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._rest, self._number, self._session = b"", 0, None
        page = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def _ask(self, method: str, **given: Any) -> dict[str, Any]:
        """A command of the DevTools protocol, and its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": given}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + PATIENCE
        while True:
            *whole, self._rest = self._rest.split(b"\0")
            for each in map(json.loads, whole):
                if each.get("id") == self._number:
                    assert "error" not in each, each
                    return each["result"]
            assert select.select([self._in], [], [], max(0.0, end - time.monotonic()))[0], (
                f"{method}: no answer"
            )
            part = os.read(self._in, 1 << 20)
            assert part, "the browser has gone"
            self._rest += part

    def open(self, url: str) -> None:
        """Go to a page, and wait until it is there."""
        self._ask("Page.navigate", url=url)
        self.until("location.href !== 'about:blank' && document.readyState === 'complete'")

    def resize(self, width: int, height: int) -> None:
        """Give the window another size."""
        self._ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def look(self, script: str) -> Any:
        """What a JavaScript expression gives."""
        answer = self._ask("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, script: str) -> Any:
        """The value of an expression once it is true."""
        end = time.monotonic() + PATIENCE
        while not (found := self.look(script)):
            assert time.monotonic() < end, f"never true: {script}; the page says {self.text()}"
            time.sleep(0.1)
        return found

    def text(self) -> str:
        """What a reader sees."""
        return str(self.look("document.body.innerText"))

    def press(self, key: str) -> None:
        """Press a key."""
        for kind in ("keyDown", "keyUp"):
            text = {"text": key} if kind == "keyDown" and len(key) == 1 else {}
            self._ask("Input.dispatchKeyEvent", type=kind, key=key, **text)

    def screenshot(self, path: Path) -> None:
        """A picture of the page."""
        path.parent.mkdir(exist_ok=True)
        answer = self._ask("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))
