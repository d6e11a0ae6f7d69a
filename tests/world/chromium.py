"""A headless chromium for tests of pages, driven through its DevTools protocol.

Nothing that it does leaves the machine: pages are files, and every request that one makes is kept
for the test to look at, as is every error that its console shows.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from websockets.sync.client import ClientConnection, connect

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
    "--remote-debugging-port=0",
)
START_S = 60
ANSWER_S = 30


def find_chromium() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """One page, and what it has said and asked for since it was opened."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.number = 0
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.loaded = 0
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.recv(timeout=ANSWER_S))
            if message.get("id") == self.number:
                assert "error" not in message, (method, message["error"])
                result: dict[str, Any] = message["result"]
                return result
            self._heard(message)

    def _heard(self, message: dict[str, Any]) -> None:
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.errors.append(parameters["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning"):
            self.errors.append(str(parameters["args"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Page.loadEventFired":
            self.loaded += 1

    def open(self, path: Path, width: int = 1280, height: int = 900) -> None:
        """Shows a file and waits until it is loaded and painted."""
        self.resize(width, height)
        before = self.loaded
        self.send("Page.navigate", url=path.resolve().as_uri())
        while self.loaded == before:
            self._heard(json.loads(self.socket.recv(timeout=ANSWER_S)))
        self.settle()

    def resize(self, width: int, height: int) -> None:
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def dark(self, wanted: bool) -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if wanted else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.settle()

    def settle(self) -> None:
        """Waits for two frames: what was asked for is drawn."""
        self.ask("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def ask(self, expression: str) -> Any:
        """The value of an expression of the page's script."""
        answer = self.send(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def cpu_ms(self) -> float:
        """CPU time of the page's own thread: what it costs, however busy the machine is."""
        self.send("Performance.enable", timeDomain="threadTicks")
        metrics = self.send("Performance.getMetrics")["metrics"]
        return 1000 * next(each["value"] for each in metrics if each["name"] == "TaskDuration")

    def move(self, x: float, y: float) -> None:
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.settle()

    def click(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.settle()

    def drag(self, begin: tuple[float, float], end: tuple[float, float]) -> None:
        at = {"x": begin[0], "y": begin[1]}
        self.send("Input.dispatchMouseEvent", type="mousePressed", button="left", **at)
        for part in (0.25, 0.5, 0.75, 1):
            self.send(
                "Input.dispatchMouseEvent",
                type="mouseMoved",
                x=begin[0] + (end[0] - begin[0]) * part,
                y=begin[1] + (end[1] - begin[1]) * part,
                button="left",
                buttons=1,
            )
        at = {"x": end[0], "y": end[1]}
        self.send("Input.dispatchMouseEvent", type="mouseReleased", button="left", **at)
        self.settle()

    def wheel(self, x: float, y: float, by: float, *, control: bool = False) -> None:
        self.send(
            "Input.dispatchMouseEvent",
            type="mouseWheel",
            x=x,
            y=y,
            deltaX=0,
            deltaY=by,
            modifiers=2 if control else 0,
        )
        self.settle()

    def key(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.settle()

    def write(self, text: str) -> None:
        self.send("Input.insertText", text=text)
        self.settle()

    def screenshot(self, path: Path) -> None:
        answer = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=False)
        path.write_bytes(base64.b64decode(answer["data"]))


class Chromium:
    """A browser of its own, with a new profile, gone at the end."""

    def __init__(self) -> None:
        command = find_chromium()
        assert command is not None
        self.profile = tempfile.TemporaryDirectory(
            prefix="shalott-chromium-", ignore_cleanup_errors=True
        )
        self.process = subprocess.Popen(
            [command, *FLAGS, f"--user-data-dir={self.profile.name}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Chromium:
        try:
            self.url = self._url()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _url(self) -> str:
        """Chromium says on stderr where it listens, or ends."""
        assert self.process.stderr is not None
        said = []
        for line in self.process.stderr:
            said.append(line)
            if line.startswith("DevTools listening on ws://"):
                return line.split()[-1]
        raise AssertionError(f"chromium ended: {''.join(said[-5:])}")

    @contextmanager
    def page(self) -> Iterator[Page]:
        with connect(self.url, max_size=None, open_timeout=START_S) as browser:
            browser.send(json.dumps({"id": 1, "method": "Target.createTarget",
                                     "params": {"url": "about:blank"}}))  # fmt: skip
            target = json.loads(browser.recv(timeout=ANSWER_S))["result"]["targetId"]
            url = f"{self.url.partition('/devtools/')[0]}/devtools/page/{target}"
            with connect(url, max_size=None, open_timeout=START_S) as socket:
                yield Page(socket)

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(timeout=ANSWER_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()
        self.profile.cleanup()
