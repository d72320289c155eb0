"""A headless Chromium, driven over a pipe by the DevTools protocol; no library is needed."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
KEYS = {"Enter": (13, "\r"), "Escape": (27, ""), "Tab": (9, "")}


def find_chromium() -> str | None:
    """The program, or None where there is none."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """A browser with a profile of its own; a context manager.

    Args:
        program: path of Chromium.
        folder: for its profile.
    """

    def __init__(self, program: str, folder: Path) -> None:
        # the protocol is read from descriptor 3 and written to 4
        script = 'exec "$@" 3<&0 4>&1 </dev/null >/dev/null 2>/dev/null'
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", script, "sh", program, *FLAGS, f"--user-data-dir={folder}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._held = b""
        self._calls = 0
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        self._process.wait()

    def call(
        self,
        method: str,
        parameters: Mapping[str, object] | None = None,
        session: str | None = None,
        timeout_s: float = 60.0,
    ) -> dict[str, Any]:
        """The result of a command of the protocol."""
        self._calls += 1
        message: dict[str, object] = {"id": self._calls, "method": method}
        message |= {"params": dict(parameters or {})}
        if session is not None:
            message["sessionId"] = session
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\0")
        self._process.stdin.flush()
        deadline = time.monotonic() + timeout_s
        while True:
            reply = self._read(deadline)
            if reply.get("id") == self._calls:
                assert "error" not in reply, f"{method}: {reply['error']}"
                result: dict[str, Any] = reply["result"]
                return result
            self.events.append(reply)

    def _read(self, deadline: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while b"\0" not in self._held:
            ready, _, _ = select.select([descriptor], [], [], max(deadline - time.monotonic(), 0))
            assert ready, "the browser does not answer"
            data = os.read(descriptor, 1 << 16)
            assert data, "the browser ended"
            self._held += data
        message, self._held = self._held.split(b"\0", 1)
        decoded: dict[str, Any] = json.loads(message)
        return decoded

    def open(self, address: str, width: int = 1200, height: int = 800) -> Page:
        """A new page, loaded."""
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        attached = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})
        page = Page(self, attached["sessionId"])
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            page.call(f"{domain}.enable")
        page.size(width, height)
        page.call("Page.navigate", {"url": address})
        self._await_event("Page.loadEventFired", attached["sessionId"])
        return page

    def _await_event(self, method: str, session: str, timeout_s: float = 60.0) -> None:
        deadline = time.monotonic() + timeout_s
        seen = self.events
        while not any(e.get("sessionId") == session and e.get("method") == method for e in seen):
            seen.append(self._read(deadline))


class Page:
    """A page of a browser."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session

    def call(self, method: str, parameters: Mapping[str, object] | None = None) -> dict[str, Any]:
        return self._browser.call(method, parameters, self._session)

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, promises awaited."""
        reply = self.call(
            "Runtime.evaluate",
            {"expression": expression, "returnByValue": True, "awaitPromise": True},
        )
        assert "exceptionDetails" not in reply, reply["exceptionDetails"]
        return reply["result"].get("value")

    def wait_for(self, expression: str, timeout_s: float = 20.0) -> None:
        """Until a JavaScript expression is true."""
        deadline = time.monotonic() + timeout_s
        while not self.evaluate(expression):
            if time.monotonic() > deadline:
                raise AssertionError(f"never true: {expression}")
            time.sleep(0.02)

    def size(self, width: int, height: int) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", metrics)

    def colours(self, scheme: str) -> None:
        """``light`` or ``dark``."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", {"features": features})

    def type(self, text: str) -> None:
        """Text into the element that has the focus."""
        self.call("Input.insertText", {"text": text})

    def press(self, key: str, *, shift: bool = False) -> None:
        code, text = KEYS[key]
        event: dict[str, object] = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        event["modifiers"] = 8 if shift else 0
        down = {**event, "type": "keyDown" if text else "rawKeyDown"}
        self.call("Input.dispatchKeyEvent", {**down, "text": text} if text else down)
        self.call("Input.dispatchKeyEvent", {**event, "type": "keyUp"})

    def screenshot(self, path: Path) -> None:
        """The visible part, as PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def accessible(self) -> list[tuple[str, str]]:
        """(role, name) of every node that a screen reader meets."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        return [
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in nodes
            if not node["ignored"] and "role" in node
        ]

    def complaints(self) -> list[str]:
        """Exceptions, and errors of the console (a broken security policy among them)."""
        found = []
        for event in self._browser.events:
            if event.get("sessionId") != self._session:
                continue
            if event["method"] == "Runtime.exceptionThrown":
                found.append(str(event["params"]["exceptionDetails"]))
            entry = event["params"].get("entry", {})
            if event["method"] == "Log.entryAdded" and entry["level"] == "error":
                found.append(f"{entry['source']}: {entry['text']}")
        return found

    def addresses(self) -> list[str]:
        """Of every request that the page made."""
        return [
            event["params"]["request"]["url"]
            for event in self._browser.events
            if event.get("sessionId") == self._session
            and event["method"] == "Network.requestWillBeSent"
        ]
