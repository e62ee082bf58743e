"""A page of a real browser, in which clients of the web are driven: Chromium by playwright-core (browser.mjs)."""

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from tests.editors.cache import NotHereError, npm, program
from tests.editors.drive import Driver
from tests.editors.stage import NotSeenError, Stage, until

PLAYWRIGHT = "playwright-core@1.65.1"
SCRIPT = Path(__file__).with_name("browser.mjs")


def browser_ready() -> None:
    """Install what drives the browser. Raises NotHereError."""
    _chromium()
    npm("browser", PLAYWRIGHT)


def _chromium() -> str:
    names = (os.environ.get("CHROMIUM", "chromium"), "chromium-browser", "google-chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        raise NotHereError("no Chromium (apt install chromium, or name it in CHROMIUM)")
    return found


def free_port() -> int:
    """Return a port of loopback that nobody uses."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Page:
    """A page. Its methods raise NotSeenError for what is not on it."""

    def __init__(self) -> None:
        folder = npm("browser", PLAYWRIGHT).parent
        shutil.copy(SCRIPT, folder)  # beside playwright-core, where it finds it
        words = [program("node", "version 20 or later"), folder / SCRIPT.name, _chromium()]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def _do(self, name: str, **more: object) -> str:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps({"do": name, **more}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline() or '{"error": "the browser ended"}')
        if "error" in answer:
            raise NotSeenError(answer["error"])
        return answer["result"] or ""

    def goto(self, url: str) -> None:
        """Open an address."""
        self._do("goto", url=url)

    def click(self, selector: str, seconds: float = 20) -> None:
        """Click the first visible element of a playwright selector, in whatever frame it is."""
        self._do("click", selector=selector, seconds=seconds)

    def focus(self, selector: str) -> None:
        """Give an element the focus."""
        self._do("focus", selector=selector)

    def wait(self, selector: str, seconds: float = 40) -> None:
        """Wait until an element is visible."""
        self._do("wait", selector=selector, seconds=seconds)

    def type(self, text: str) -> None:
        """Type text where the focus is."""
        self._do("type", text=text)

    def press(self, keys: str) -> None:
        """Press keys by playwright's names, such as Enter and Control+K."""
        self._do("press", keys=keys)

    def text(self) -> str:
        """Return the text of the page and its frames."""
        return self._do("text")

    def shot(self, file: Path) -> None:
        """Take a picture."""
        self._do("shot", file=str(file))

    def stop(self) -> None:
        """Close the browser."""
        end(self._process)


def end(process: "subprocess.Popen[str]") -> None:
    """End a process that this drive started, with all that it started."""
    try:
        family = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
    except psutil.NoSuchProcess:
        return
    for each in family:
        try:
            each.terminate()
        except psutil.NoSuchProcess:
            continue
    for each in psutil.wait_procs(family, timeout=8)[1]:
        each.kill()
    process.wait()


class WebDriver(Driver):
    """A client of the web: servers, and a page. The text of the whole page is what is drawn."""

    page: Page

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._servers: list[subprocess.Popen[str]] = []

    def serve(self, words: Sequence[str | Path], env: Mapping[str, str], said: str) -> None:
        """Start a server in the project and wait until its log has `said`."""
        log = self.stage.folder / f"{Path(str(words[0])).name}-{len(self._servers)}.log"
        with log.open("w") as output:
            self._servers.append(
                subprocess.Popen(
                    [str(each) for each in words],
                    cwd=self.stage.project,
                    env=dict(env),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    text=True,
                )
            )
        until(lambda: said in log.read_text(errors="replace"), f"{said!r} in {log}", 90)

    def drawn(self) -> str:
        return self.page.text()

    def shot(self, file: Path) -> None:
        super().shot(file)
        self.page.shot(file.with_suffix(".png"))

    def unfold(self, title: str) -> None:
        self.page.click(f'text="{title}" >> nth=-1')

    def stop(self) -> None:
        if hasattr(self, "page"):
            self.page.stop()
        self.end_servers()

    def end_servers(self) -> None:
        """End what `serve` started. The page stays."""
        while self._servers:
            end(self._servers.pop())
