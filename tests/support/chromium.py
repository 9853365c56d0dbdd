"""A headless Chromium, driven by its own protocol over a pair of pipes."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")
TIMEOUT_S = 60


class PageLeftError(Exception):
    """The browser went to another page during a request about the old one."""


class Chromium:
    """One page of a running browser.

    Attributes:
        complaints: What the browser logged as errors: blocked content, failed scripts.
    """

    def __init__(self, send: int, receive: int) -> None:
        self._send, self._receive = send, receive
        self._rest, self._number, self._session = b"", 0, ""
        self.complaints: list[str] = []
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self._ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for part in ("Page", "Runtime", "Log"):
            self._ask(f"{part}.enable")

    def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._send, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "navigated" in answer.get("error", {}).get("message", ""):
                    raise PageLeftError(method)
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._receive, 1 << 16)
            assert part, "the browser ended"
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\0")
        answer = json.loads(line)
        if answer.get("method") == "Log.entryAdded":
            entry = answer["params"]["entry"]
            if entry["level"] == "error":
                self.complaints.append(f"{entry['text']} {entry.get('url', '')}")
        elif answer.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(str(answer["params"]["exceptionDetails"]))
        return answer

    def show(
        self, url: str, *, width: int = 1280, height: int = 900, is_dark: bool = False
    ) -> None:
        """Open a page and wait until it is loaded."""
        self._ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[scheme])
        self._ask("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete' && location.href !== 'about:blank'")

    def value(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        return self._ask(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )["result"].get("value")

    def wait_for(self, expression: str) -> None:
        """Wait until an expression in the page is true, also in the next page."""
        end = time.monotonic() + TIMEOUT_S
        while not self._holds(expression):
            assert time.monotonic() < end, expression
            time.sleep(0.02)

    def _holds(self, expression: str) -> bool:
        try:
            return bool(self.value(expression))
        except PageLeftError:
            return False

    def press(self, key: str, code: int) -> None:
        """Press a key."""
        for kind in ("keyDown", "keyUp"):
            self._ask("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code)

    def screenshot(self, path: Path) -> None:
        """Write what the page looks like."""
        data = self._ask("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(data))


@contextlib.contextmanager
def chromium(profile: Path) -> Iterator[Chromium]:
    """Run a browser until the block ends."""
    assert PROGRAM is not None
    from_us, to_browser = os.pipe()
    from_browser, to_us = os.pipe()
    # The browser reads file descriptor 3 and writes 4.
    script = f'exec 3<&{from_us} 4>&{to_us}; exec "$0" "$@"'
    command = [
        *("bash", "-c", script, PROGRAM, "--headless=new", "--no-sandbox", "--disable-gpu"),
        *("--remote-debugging-pipe", f"--user-data-dir={profile}", "--no-first-run"),
    ]
    process = subprocess.Popen(
        command, pass_fds=(from_us, to_us), stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
    )
    os.close(from_us)
    os.close(to_us)
    try:
        yield Chromium(to_browser, from_browser)
    finally:
        os.close(to_browser)
        process.terminate()
        process.wait(30)
        os.close(from_browser)
