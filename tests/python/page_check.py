"""Opens a local page in headless Chromium and reports what it printed, what it asked for and what it drew.

Speaks the DevTools protocol over a pipe (file descriptors 3 and 4), so it needs the standard library and Chromium only.
"""

import base64
import contextlib
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import tempfile
import time

__all__ = ["check_page", "find_browser"]

LOCAL_SCHEMES = ("file:", "data:", "blob:", "about:")
SETTLED = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"


def find_browser():
    """Path of the Chromium to use (`HYALITE_BROWSER` first), or None, for a test to skip on."""
    names = [os.environ.get("HYALITE_BROWSER"), "chromium", "chromium-browser", "google-chrome"]
    return next((found for name in names if name and (found := shutil.which(name))), None)


class Browser:
    """One headless Chromium with one page; `call` sends a command and collects the events that arrive meanwhile."""

    def __init__(self, profile, seconds):
        self.deadline = time.monotonic() + seconds
        self.events = []
        self.buffer = b""
        self.number = 0
        self.session = None
        to_browser, self.outgoing = os.pipe()
        self.incoming, from_browser = os.pipe()

        def place_pipes():
            high = [os.dup2(end, 100 + index) for index, end in enumerate((to_browser, from_browser))]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen(
            [
                find_browser(),
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
                "--mute-audio",
                "--disable-dev-shm-usage",
                "--disable-background-networking",
                "--disable-component-update",
                f"--user-data-dir={profile}",
                "--remote-debugging-pipe",
                "about:blank",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            close_fds=False,
            preexec_fn=place_pipes,
            start_new_session=True,
            # A sanitizer that this interpreter was started with is not for the browser.
            env={name: value for name, value in os.environ.items() if name != "LD_PRELOAD"},
        )
        os.close(to_browser)
        os.close(from_browser)

    def receive(self):
        while b"\0" not in self.buffer:
            if not select.select([self.incoming], [], [], max(0.0, self.deadline - time.monotonic()))[0]:
                raise TimeoutError("Chromium did not answer in time")
            data = os.read(self.incoming, 1 << 20)
            if not data:
                raise RuntimeError("Chromium ended before it answered")
            self.buffer += data
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.outgoing, data) :]
        while True:
            answer = self.receive()
            if answer.get("id") != self.number:
                self.events.append(answer)
            elif "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']['message']}")
            else:
                return answer["result"]

    def wait_for(self, event):
        while not any(seen.get("method") == event for seen in self.events):
            self.events.append(self.receive())

    def evaluate(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(describe_exception(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def close(self):
        # The process group is ours alone (start_new_session), so this ends Chromium's helpers too.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.incoming)
        os.close(self.outgoing)


def describe_exception(details):
    return details.get("exception", {}).get("description") or details.get("text", "exception")


def console_line(event):
    """The text of a console call, an uncaught exception or a browser message; None for any other event."""
    method, parameters = event.get("method"), event.get("params", {})
    if method == "Runtime.consoleAPICalled":
        return (
            parameters["type"]
            + ": "
            + " ".join(str(value.get("value", value.get("description", ""))) for value in parameters["args"])
        )
    if method == "Runtime.exceptionThrown":
        return "exception: " + describe_exception(parameters["exceptionDetails"])
    if method == "Log.entryAdded":
        return parameters["entry"]["level"] + ": " + parameters["entry"]["text"]
    return None


def check_page(path, width, height, screenshot=None, *, dark=False, full_page=False, pdf=None, script=None, seconds=60):
    """Opens the file `path` in a window of `width` by `height` CSS pixels.

    Returns {"console": lines, "requests": URLs that are neither file nor data, "dom": HTML after the page's script,
    "value": result of the JavaScript expression `script`}. A `screenshot` (PNG) and a `pdf` (as printed) are written
    after the script. Raises TimeoutError past `seconds`, RuntimeError when the script throws.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(profile, seconds)
        try:
            target = browser.call("Target.createTarget", url="about:blank")["targetId"]
            browser.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                browser.call(domain + ".enable")
            browser.call(
                "Emulation.setDeviceMetricsOverride",
                width=width,
                height=height,
                deviceScaleFactor=1,
                mobile=width < 600,
            )
            browser.call(
                "Emulation.setEmulatedMedia",
                features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
            )
            browser.events.clear()
            browser.call("Page.navigate", url=pathlib.Path(path).resolve().as_uri())
            browser.wait_for("Page.loadEventFired")
            browser.evaluate(SETTLED)
            value = browser.evaluate(script) if script else None
            browser.evaluate(SETTLED)
            dom = browser.evaluate("document.documentElement.outerHTML")
            if screenshot:
                picture = browser.call("Page.captureScreenshot", format="png", captureBeyondViewport=full_page)
                pathlib.Path(screenshot).write_bytes(base64.b64decode(picture["data"]))
            if pdf:
                printed = browser.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)
                pathlib.Path(pdf).write_bytes(base64.b64decode(printed["data"]))
            requested = [
                event["params"]["request"]["url"]
                for event in browser.events
                if event.get("method") == "Network.requestWillBeSent"
            ]
            return {
                "console": [line for line in map(console_line, browser.events) if line is not None],
                "requests": [url for url in requested if not url.startswith(LOCAL_SCHEMES)],
                "dom": dom,
                "value": value,
            }
        finally:
            browser.close()
