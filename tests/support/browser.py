"""Chromium without a window, driven over its DevTools protocol."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

from tests.support.python import PATIENCE, wait_until

CHROMIUM = shutil.which("chromium")

WANTED = os.environ.get("JOINPROTO_REQUIRE_BROWSER") == "1"

needs_chromium = pytest.mark.skipif(
    CHROMIUM is None and not WANTED,
    reason="no chromium in PATH (Debian: apt-get install chromium); "
    "JOINPROTO_REQUIRE_BROWSER=1 makes that a failure",
)

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-component-update",
    "--disable-background-networking",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)

UNTIL = """
new Promise((resolve, reject) => {
  const check = () => {
    if (!(%(condition)s)) return;
    observer.disconnect();
    clearTimeout(deadline);
    resolve();
  };
  const observer = new MutationObserver(check);
  const deadline = setTimeout(() => {
    observer.disconnect();
    reject(new Error("never came true; the page says: " + document.body.innerText));
  }, %(patience)d);
  observer.observe(document, {
    subtree: true, childList: true, characterData: true, attributes: true,
  });
  check();
})
"""


class Tab:
    """A tab of a browser.

    Args:
        connection: to the browser itself.
    """

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._session: str | None = None
        self._serial = 0
        self._events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call the browser; events that come meanwhile are kept."""
        self._serial += 1
        call = {"id": self._serial, "method": method, "params": parameters}
        if self._session is not None:
            call["sessionId"] = self._session
        self._connection.send(json.dumps(call))
        while True:
            message = json.loads(self._connection.recv(timeout=2 * PATIENCE))
            if message.get("id") == self._serial:
                assert "error" not in message, (method, message["error"])
                return dict(message["result"])
            self._events.append(message)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page; a promise is waited for."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, condition: str) -> None:
        """Wait for an expression to be true of the page, looking whenever the page changes."""
        self.evaluate(UNTIL % {"condition": condition, "patience": 1000 * PATIENCE})

    def says(self, selector: str, text: str) -> None:
        """Wait for the elements there to hold this text."""
        found = f"[...document.querySelectorAll({json.dumps(selector)})]"
        self.until(f"{found}.some((node) => node.textContent.includes({json.dumps(text)}))")

    def open(self, url: str) -> None:
        """Go there."""
        answer = self.call("Page.navigate", url=url)
        assert "errorText" not in answer, answer
        self.evaluate(
            "new Promise((done) => document.readyState === 'complete' ? done() : "
            "addEventListener('load', () => done()))"
        )

    def resize(self, width: int, height: int, *, dark: bool = False) -> None:
        """Be as large as a telephone or a desk's screen, light or dark."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def close(self) -> None:
        """Be gone."""
        self.call("Page.close")

    def screenshot(self, path: Path) -> None:
        """Take down what is seen."""
        data = self.call("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))

    @property
    def complaints(self) -> list[str]:
        """Exceptions, and errors and warnings on the console, so far."""
        self.evaluate("0")  # what was complained of before is here before the answer
        return [
            said
            for event in self._events
            if event.get("sessionId") == self._session and (said := _complaint(event)) is not None
        ]


@contextmanager
def browser(profile: Path) -> Iterator[ClientConnection]:
    """A browser that writes to `profile` alone; it is gone afterwards, and so is its profile."""
    assert CHROMIUM is not None, "no chromium in PATH (Debian: apt-get install chromium)"
    profile.mkdir()
    log = profile / "stderr"
    with log.open("wb") as stderr:
        # A group of its own, so that all of its processes can be ended.
        process = subprocess.Popen(
            [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=stderr,
            stderr=stderr,
            env={**os.environ, "HOME": str(profile), "XDG_CONFIG_HOME": str(profile)},
            start_new_session=True,
        )
    try:
        with connect(_address(process, profile), max_size=None) as connection:
            yield connection
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE)
        shutil.rmtree(profile, ignore_errors=True)


def _address(process: subprocess.Popen[bytes], profile: Path) -> str:
    """Where the browser listens; it writes that down once it does."""
    port_file = profile / "DevToolsActivePort"

    def told() -> bool:
        assert process.poll() is None, (profile / "stderr").read_text(errors="replace")
        return port_file.exists() and len(port_file.read_text().splitlines()) == 2

    wait_until(told, "chromium listens")
    port, path = port_file.read_text().splitlines()
    return f"ws://127.0.0.1:{port}{path}"


def _complaint(event: dict[str, Any]) -> str | None:
    """What an event complains of, if it does."""
    given = event.get("params", {})
    match event["method"]:
        case "Runtime.exceptionThrown":
            return json.dumps(given["exceptionDetails"])
        case "Runtime.consoleAPICalled" if given["type"] in ("error", "warning", "assert"):
            return json.dumps(given["args"])
        case "Log.entryAdded" if given["entry"]["level"] in ("error", "warning"):
            return f"{given['entry']['text']} ({given['entry'].get('url')})"
    return None
