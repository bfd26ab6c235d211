"""A real Chromium, driven over its DevTools protocol through a pipe: no driver and no port are needed."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

__all__ = ["Browser", "Page", "chromium"]

_WAIT_S: Final = 60.0
_FLAGS: Final = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
)


class Browser:
    """One process; messages are JSON that a NUL ends."""

    def __init__(self, process: subprocess.Popen[bytes], to: int, of: int) -> None:
        self._process = process
        self._to, self._of = to, of
        self._buffer = b""
        self._last = 0
        self._answers: dict[int, Any] = {}
        self._events: dict[str, list[Any]] = {}

    def call(self, method: str, session: str | None = None, **parameters: Any) -> Any:
        self._last += 1
        own = self._last
        message = {"id": own, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + _WAIT_S
        while own not in self._answers:
            self._receive(deadline)
        answer = self._answers.pop(own)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def _receive(self, deadline: float) -> None:
        while b"\0" not in self._buffer:
            assert time.monotonic() < deadline, "the browser does not respond"
            part = os.read(self._of, 1 << 20)
            assert part, "the browser has ended"
            self._buffer += part
        raw, self._buffer = self._buffer.split(b"\0", 1)
        message = json.loads(raw)
        if "id" in message:
            self._answers[message["id"]] = message
        else:
            self._events.setdefault(message.get("sessionId", ""), []).append(message)

    def events(self, session: str) -> list[Any]:
        return self._events.setdefault(session, [])

    def page(self, width: int = 1280, height: int = 800, *, dark: bool = False) -> Page:
        """A page with cookies and storage of its own."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, target)
        for domain in ("Page", "Runtime", "Network", "Accessibility", "Log"):
            page.call(f"{domain}.enable")
        page.resize(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.call("Emulation.setEmulatedMedia", features=[scheme])
        return page


class Page:
    """A page as a person uses it: open, find, click, type, look."""

    def __init__(self, browser: Browser, session: str, target: str) -> None:
        self._browser = browser
        self._session = session
        self._target = target

    def call(self, method: str, **parameters: Any) -> Any:
        return self._browser.call(method, self._session, **parameters)

    def close(self) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)

    def resize(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def js(self, expression: str) -> Any:
        """The value of an expression, which may be a promise."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, expression: str, timeout_s: float = _WAIT_S) -> None:
        """Return when an expression is true."""
        deadline = time.monotonic() + timeout_s
        while not self.js(f"Boolean({expression})"):
            assert time.monotonic() < deadline, f"never true: {expression}\n{self.text()[:3500]}"
            time.sleep(0.03)

    def wait(self, condition: Callable[[], bool], timeout_s: float = _WAIT_S) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, f"the condition never held\n{self.text()[:3500]}"
            time.sleep(0.03)

    def text(self, selector: str = "body") -> str:
        return str(self.js(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def until_text(self, wanted: str, selector: str = "body", timeout_s: float = _WAIT_S) -> None:
        found = f"document.querySelector({json.dumps(selector)})?.innerText.includes({json.dumps(wanted)})"
        self.until(found, timeout_s)

    def click(self, text: str, selector: str = "button, a, summary, label") -> None:
        """Click the visible control with this text or accessible name, as soon as there is one."""
        find = (
            f"(() => [...document.querySelectorAll({json.dumps(selector)})]"
            f".filter(e => e.checkVisibility() && !e.disabled)"
            f".find(e => [e.innerText.trim(), e.getAttribute('aria-label')].includes({json.dumps(text)})))()"
        )
        self.until(find)
        self.js(f"{find}.click()")

    def type(self, label: str, text: str) -> None:
        """Replace the content of the field with this label."""
        find = (
            f"(() => [...document.querySelectorAll('input,textarea,select')].filter(e => e.checkVisibility())"
            f".findLast(e => [e.getAttribute('aria-label'),"
            f" ...[...(e.labels ?? [])].map(l => l.innerText.trim())].includes({json.dumps(label)})))()"
        )
        self.until(find)
        self.js(f"(() => {{ const e = {find}; e.focus(); if (e.select) e.select(); }})()")
        if self.js(f"{find}.tagName === 'SELECT' || {find}.type === 'datetime-local'"):
            self.js(
                f"(() => {{ const e = {find}; e.value = {json.dumps(text)};"
                f" e.dispatchEvent(new Event('change', {{bubbles: true}})); }})()"
            )
            return
        self.js(f"{find}.value = ''")
        self.call("Input.insertText", text=text)
        self.js(f"{find}.dispatchEvent(new Event('change', {{bubbles: true}}))")

    def press(self, key: str) -> None:
        named = {"Enter": "\r", "Escape": "", "ArrowDown": ""}
        text = named.get(key, key)
        codes = {"Enter": 13, "Escape": 27, "ArrowDown": 40}
        down = {"key": key, "text": text, **({"windowsVirtualKeyCode": codes[key]} if key in codes else {})}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **down)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def errors(self) -> list[str]:
        """What the page has logged as an error: exceptions, refused resources, broken policies."""
        found = []
        for event in self._browser.events(self._session):
            if event["method"] == "Runtime.exceptionThrown":
                found.append(json.dumps(event["params"]["exceptionDetails"])[:500])
            elif event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
                found.append(event["params"]["entry"]["text"])
        return found

    def requested(self) -> list[str]:
        """The URLs of all requests so far."""
        self.js("1")
        events = self._browser.events(self._session)
        return [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]

    def nameless(self) -> list[str]:
        """Controls of the accessibility tree without a name."""
        roles = (
            "button",
            "link",
            "textbox",
            "searchbox",
            "combobox",
            "checkbox",
            "spinbutton",
            "table",
            "image",
        )
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        return [
            json.dumps(node["role"]["value"])
            for node in nodes
            if not node.get("ignored")
            and node.get("role", {}).get("value") in roles
            and not node.get("name", {}).get("value", "").strip()
        ]

    def screenshot(self, path: Path) -> None:
        data = self.call("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))


@contextmanager
def chromium(path: str) -> Iterator[Browser]:
    folder = tempfile.mkdtemp(prefix="penstock-chromium-")
    child_reads, to = os.pipe()
    of, child_writes = os.pipe()
    command = [path, *_FLAGS, f"--user-data-dir={folder}", "about:blank"]
    # Chromium reads from descriptor 3 and writes to descriptor 4.
    script = f'exec "$@" 3<&{child_reads} 4>&{child_writes}'
    process = subprocess.Popen(
        ["bash", "-c", script, "chromium", *command],
        pass_fds=(child_reads, child_writes),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(child_reads)
    os.close(child_writes)
    try:
        yield Browser(process, to, of)
    finally:
        os.close(to)
        os.close(of)
        # The whole session: a child that lives on would write into the folder again.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)
