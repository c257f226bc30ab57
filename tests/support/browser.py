"""A headless Chromium, driven over two pipes with the DevTools protocol, and so without a driver.

`find_chromium` is None where there is none, and tests are then skipped.
"""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.support.patience import PATIENCE_SECONDS

_NAMES: Final = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome-headless-shell",
)

_OPTIONS: Final = (
    "--headless",
    "--remote-debugging-pipe",
    "--no-sandbox",  # tests run as root in containers
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--no-default-browser-check",
    "--no-first-run",
    "--no-proxy-server",
    "--hide-scrollbars",
    "--mute-audio",
    "--password-store=basic",
)

_KEYS: Final[Mapping[str, tuple[str, int, str]]] = {
    "Enter": ("Enter", 13, "\r"),
    "Escape": ("Escape", 27, ""),
    "Tab": ("Tab", 9, ""),
    "ArrowDown": ("ArrowDown", 40, ""),
    "ArrowUp": ("ArrowUp", 38, ""),
    "Home": ("Home", 36, ""),
    "End": ("End", 35, ""),
}
"""Keys without a letter: code, number, what they type."""

_SHIFT: Final = 8


def find_chromium() -> str | None:
    """A Chromium on this machine: `TANDEM_TEST_BROWSER`, or one of the usual names."""
    named = os.environ.get("TANDEM_TEST_BROWSER")
    return named or next(filter(None, map(shutil.which, _NAMES)), None)


class BrowserError(Exception):
    """The browser has refused a command, or a program in the page has raised."""


class Browser:
    """One process of Chromium, and the pages that are open in it."""

    def __init__(self, process: subprocess.Popen[bytes], commands: int, answers: int) -> None:
        self._process = process
        self._commands = commands
        self._answers = answers
        self._buffer = b""
        self._number = 0
        self._pages: dict[str, Page] = {}

    def new_page(self) -> "Page":
        """Open a page with cookies of its own."""
        context = self.command("Target.createBrowserContext")["browserContextId"]
        target = self.command("Target.createTarget", url="about:blank", browserContextId=context)
        session = self.command("Target.attachToTarget", targetId=target["targetId"], flatten=True)[
            "sessionId"
        ]
        page = self._pages[session] = Page(self, session, context)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.command(f"{domain}.enable")
        return page

    def command(self, method: str, session: str | None = None, **params: object) -> Any:  # noqa: ANN401 - JSON of the browser
        """Send one command, and return its result."""
        self._number += 1
        number = self._number
        message: dict[str, object] = {"id": number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._commands, data) :]
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            answer = self._receive(deadline - time.monotonic())
            if answer is None:
                raise BrowserError(f"{method}: no answer in {PATIENCE_SECONDS:g} s")
            if answer.get("id") == number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']}")
                return answer["result"]
            self._heard(answer)

    def listen(self, seconds: float) -> None:
        """Take events for a while."""
        deadline = time.monotonic() + seconds
        while (event := self._receive(deadline - time.monotonic())) is not None:
            self._heard(event)

    def _heard(self, event: dict[str, Any]) -> None:
        page = self._pages.get(event.get("sessionId", ""))
        if page is not None and "method" in event:
            page.heard(event["method"], event["params"])

    def _receive(self, seconds: float) -> dict[str, Any] | None:
        deadline = time.monotonic() + seconds
        while b"\0" not in self._buffer:
            ready, _, _ = select.select(
                [self._answers], [], [], max(0.0, deadline - time.monotonic())
            )
            if not ready:
                return None
            data = os.read(self._answers, 1 << 20)
            if not data:
                raise BrowserError("the browser has ended")
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found


class Page:
    """One tab. `errors` is what its console, its programs and its policy complained of."""

    def __init__(self, browser: Browser, session: str, context: str) -> None:
        self._browser = browser
        self._session = session
        self._context = context
        self.errors: list[str] = []
        self.requests: list[str] = []

    def command(self, method: str, **params: object) -> Any:  # noqa: ANN401 - JSON of the browser
        return self._browser.command(method, self._session, **params)

    def heard(self, method: str, params: dict[str, Any]) -> None:
        match method:
            case "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                said = details.get("exception", {}).get("description", details["text"])
                self.errors.append(f"exception: {said}")
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                entry = params["entry"]
                self.errors.append(f"{entry['source']}: {entry['text']} {entry.get('url', '')}")
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "assert"):
                said = " ".join(str(a.get("value", a.get("description"))) for a in params["args"])
                self.errors.append(f"console: {said}")
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])

    def close(self) -> None:
        self._browser.command("Target.disposeBrowserContext", browserContextId=self._context)

    def forget(self) -> None:
        """Be as a new page: no address, no cookie, no preference, nothing heard."""
        self.open("about:blank")
        self.wait("location.href === 'about:blank'")
        self.command("Network.clearBrowserCookies")
        self.media()
        self.drain()
        self.errors.clear()
        self.requests.clear()

    def open(self, url: str) -> None:
        self.command("Page.navigate", url=url)

    def reload(self) -> None:
        self.command("Page.reload")

    def evaluate(self, program: str) -> Any:  # noqa: ANN401 - JSON of the browser
        """The value of an expression, promises awaited."""
        answer = self.command(
            "Runtime.evaluate", expression=program, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise BrowserError(details.get("exception", {}).get("description", details["text"]))
        return answer["result"].get("value")

    def wait(self, condition: str, seconds: float = PATIENCE_SECONDS) -> Any:  # noqa: ANN401 - JSON of the browser
        """Wait until an expression is true; a page that is being loaded has none that is."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                found = self.evaluate(condition)
            except BrowserError as error:
                found = None
                if "SyntaxError" in str(error):
                    raise
            if found not in (None, False):  # an element is {}
                return found
            if time.monotonic() > deadline:
                shown = self.evaluate("document.body.innerText")
                raise AssertionError(f"not in {seconds:g} s: {condition}\n{shown}\n{self.errors}")
            self._browser.listen(0.02)

    def wait_text(self, text: str, within: str = "body") -> None:
        """Wait until a text is shown."""
        self.wait(
            f"document.querySelector({json.dumps(within)})?.innerText.includes({json.dumps(text)})"
        )

    def text(self, selector: str = "body") -> str:
        found = self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")
        return str(found)

    def click(self, selector: str) -> None:
        """Click in the middle of the first element that fits, as a mouse does."""
        place = self.wait(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "if (!e) return null; e.scrollIntoView({block: 'center', behavior: 'instant'});"
            "const r = e.getBoundingClientRect();"
            "return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.command(
                "Input.dispatchMouseEvent",
                type=kind,
                x=place[0],
                y=place[1],
                button="left",
                clickCount=1,
            )

    def drain(self) -> None:
        """Take what the browser has still to say."""
        self._browser.listen(0.1)

    def press(self, *keys: str) -> None:
        """Press keys: letters, or `Enter`, `Escape`, `Tab`, `Shift+Tab`, arrows."""
        for key in keys:
            name, shift = (key[6:], _SHIFT) if key.startswith("Shift+") else (key, 0)
            code, number, typed = _KEYS.get(name, (name, ord(name[0].upper()), name))
            event: dict[str, object] = {
                "key": name,
                "code": code,
                "windowsVirtualKeyCode": number,
                "modifiers": shift,
            }
            self.command("Input.dispatchKeyEvent", type="keyDown", text=typed, **event)
            self.command("Input.dispatchKeyEvent", type="keyUp", **event)

    def type(self, selector: str, text: str) -> None:
        """Write text into a field, in place of what it has."""
        self.wait(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "if (!e) return false; e.focus(); e.select?.();"
            "return document.activeElement === e; })()"
        )
        self.command("Input.insertText", text=text)

    def resize(self, width: int, height: int = 900) -> None:
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def media(self, **features: str) -> None:
        """What the reader prefers: `prefers_color_scheme="dark"`."""
        self.command(
            "Emulation.setEmulatedMedia",
            features=[
                {"name": name.replace("_", "-"), "value": value} for name, value in features.items()
            ],
        )

    def screenshot(self, file: Path, *, whole: bool = False) -> None:
        taken = self.command("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(taken["data"]))


def _high(descriptor: int) -> int:
    """The same file under a number that is neither 3 nor 4."""
    other = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return other


@contextmanager
def running_browser() -> Iterator[Browser]:
    """Start a Chromium with an empty profile, and end it."""
    program = find_chromium()
    if program is None:
        raise BrowserError("no Chromium: install one, or name it in TANDEM_TEST_BROWSER")
    to_browser, commands = map(_high, os.pipe())
    answers, from_browser = map(_high, os.pipe())
    # It reads commands from 3 and writes answers to 4; no option names others.
    shell = f'exec "$@" 3<&{to_browser} 4>&{from_browser} {to_browser}<&- {from_browser}>&-'
    with tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            ["bash", "-c", shell, "browser", program, *_OPTIONS, f"--user-data-dir={profile}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(to_browser, from_browser),
        )
        os.close(to_browser)
        os.close(from_browser)
        try:
            yield Browser(process, commands, answers)
        finally:
            os.close(commands)
            os.close(answers)
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
