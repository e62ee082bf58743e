"""The tour that every client takes, part by part, and what a driver of a client has to offer for it."""

import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import psutil

from tests.editors import story
from tests.editors.cache import NotHereError
from tests.editors.stage import PATIENCE, Frame, NotSeenError, Stage, until

PARTS = ("text", "card", "allowed", "output", "terminal", "rejected", "diff", "changed", "cancelled", "loaded")
"""What a client is asked for.

text        the answer is drawn
card        a tool call is drawn; it began as in_progress and ended as completed
allowed     a question was answered with yes, and the command ran
output      what a command printed is drawn
terminal    a command ran in the client's own terminal
rejected    a question was answered with no, and the file stayed as it was
diff        the change of a file is drawn
changed     an edit that was allowed is in the file, written by the client where it writes files
cancelled   a command was running, the turn was cancelled, the command is gone
loaded      another agent process took the session up, and its past is drawn
"""


class Driver:
    """A client, driven as a person would. Subclasses are in tests/editors/clients.

    title      the client's name in the table
    lacks      parts that the client cannot do, with the reason
    rejecting_cancels   whether the client ends the turn when a question is answered with no
    """

    title: ClassVar[str]
    lacks: ClassVar[Mapping[str, str]] = {}
    rejecting_cancels: ClassVar[bool] = False

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    @classmethod
    def install(cls) -> str:
        """Install the client into the cache, unless it is there. Return its version. Raises NotHereError."""
        raise NotImplementedError

    def start(self) -> None:
        """Start the client with a new session in the project."""
        raise NotImplementedError

    def say(self, prompt: str) -> None:
        """Send a prompt, as a person types it."""
        raise NotImplementedError

    def review(self) -> None:
        """Open the change that the question is about, where the client shows it only then."""

    def unfold(self, title: str) -> None:
        """Open the card of a call that is drawn folded."""

    def choose(self, kind: str) -> None:
        """Answer the open question with the option of this kind (`allow_once` or `reject_once`)."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Cancel the turn."""
        raise NotImplementedError

    def load(self) -> None:
        """Start again and open the last session."""
        raise NotImplementedError

    def drawn(self) -> str:
        """Return the text that the client shows."""
        raise NotImplementedError

    def shot(self, file: Path) -> None:
        """Draw what is shown to `file` with the suffix of its kind."""
        file.with_suffix(".txt").write_text(self.drawn())

    def stop(self) -> None:
        """End everything that was started, also where `start` failed."""
        raise NotImplementedError


@dataclass
class Tour:
    """One client's way through all parts.

    results   part -> "ok", "failed: ..." or "skipped: ..."
    """

    driver: Driver
    results: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def stage(self) -> Stage:
        return self.driver.stage

    def take(self) -> dict[str, str]:
        """Take every part. What fails is noted, and the tour goes on."""
        self.results.update({part: f"skipped: {reason}" for part, reason in self.driver.lacks.items()})
        steps: tuple[tuple[Callable[[], None], tuple[str, ...]], ...] = (
            (self._hello, ("text",)),
            (self._look, ("card",)),
            (self._run, ("allowed", "output", "terminal")),
            (self._reject, ("rejected",)),
            (self._edit, ("diff", "changed")),
            (self._cancel, ("cancelled",)),
            (self._load, ("loaded",)),
        )
        try:
            self.driver.start()
        except NotHereError as error:
            self.results.update(dict.fromkeys(PARTS, f"skipped: {error}"))
            steps = ()
        except Exception as error:  # noqa: BLE001 - whatever a client does, the others are driven
            self._fail(("text",), f"the client did not start: {error}")
            steps = ()
        try:
            for step, parts in steps:
                with self._noting(parts):
                    step()
        finally:
            self.driver.stop()
        for part in PARTS:
            self.results.setdefault(part, "skipped: an earlier part failed")
        return self.results

    @contextmanager
    def _noting(self, parts: tuple[str, ...]) -> Generator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(parts, str(error) if isinstance(error, NotSeenError) else repr(error))
        finally:
            self._shot(parts[0])

    def _fail(self, parts: tuple[str, ...], reason: str) -> None:
        for part in parts:
            self.results.setdefault(part, f"failed: {reason}")

    def _shot(self, name: str) -> None:
        try:
            self.driver.shot(self.stage.folder / f"{len(self.results)}-{name}")
        except Exception as error:  # noqa: BLE001 - a missing picture is no failure of the agent
            (self.stage.folder / f"{name}-no-picture.txt").write_text(repr(error))

    def _passed(self, part: str) -> None:
        self.results.setdefault(part, "ok")

    # -------------------------------------------------------------------------------------------- parts

    def _hello(self) -> None:
        self._turn(story.HELLO)
        self._passed("text")

    def _look(self) -> None:
        since = self._turn(story.LOOK)
        self._ended(since, "completed")
        self._drawn("shop.py", "the title of a call")
        self._passed("card")

    def _run(self) -> None:
        mark = self._ask(story.RUN)
        self._shot("question")
        self.driver.choose("allow_once")
        self._answered(mark, story.RUN)
        self._ended(mark, "completed")
        self._passed("allowed")
        created = self.stage.asked("terminal/create", mark)
        answer = created and self.stage.answer(created)
        if answer and "result" in answer.message:
            self._passed("terminal")
        else:
            self._fail(("terminal",), "no terminal of the client was made")
        if "output" not in self.results:
            self.driver.unfold("python3 check.py")
            self._drawn(story.OUTPUT, "the output of a command")
            self._passed("output")

    def _reject(self) -> None:
        mark = self._ask(story.REJECTED_EDIT)
        self._shot("edit")
        self.driver.choose("reject_once")
        if self.driver.rejecting_cancels:
            self._stopped(mark)
        else:
            self._answered(mark, story.REJECTED_EDIT)
        self._ended(mark, "failed")
        if self._shop() != story.FILES["shop.py"]:
            raise NotSeenError("the file as it was")
        self._passed("rejected")

    def _edit(self) -> None:
        mark = self._ask(story.EDIT)
        try:
            if "diff" not in self.results:
                self.driver.review()
                self._drawn(story.NEW_LINE, "the change in the question", seconds=8)
                self._passed("diff")
        except NotSeenError as error:
            self.results["diff"] = f"failed: {error}"
        finally:
            self._shot("diff")
            self.driver.choose("allow_once")
        self._answered(mark, story.EDIT)
        self._ended(mark, "completed")
        if story.NEW_LINE not in self._shop():
            raise NotSeenError("the new line in the file")
        self._passed("changed")

    def _cancel(self) -> None:
        mark = self._ask(story.WAIT)
        self.driver.choose("allow_once")
        file = self.stage.project / "waiting"
        until(file.exists, "the long command")
        self.driver.cancel()
        self._stopped(mark)
        until(lambda: not _waiting(self.stage.project), "the end of the cancelled command", 10)
        self._passed("cancelled")

    def _load(self) -> None:
        mark = self.stage.mark()
        self.driver.load()
        request = until(
            lambda: self.stage.asked("session/load", mark) or self.stage.asked("session/resume", mark),
            "session/load or session/resume",
        )
        answer = until(lambda: self.stage.answer(request), "the answer to it")
        if "error" in answer.message:
            raise NotSeenError(f"a loaded session: {answer.message}")
        self._drawn(story.SAID[story.EDIT], "the past of the session")
        self._turn(story.AGAIN)
        self._passed("loaded")

    # -------------------------------------------------------------------------------------------- steps

    def _stopped(self, mark: Mapping[str, int]) -> None:
        """Wait for the end of a cancelled turn."""
        prompt = self._prompt(mark)
        stopped = until(lambda: self.stage.answer(prompt), "the end of the cancelled turn")
        if stopped.message.get("result", {}).get("stopReason") != "cancelled":
            raise NotSeenError(f"stopReason cancelled in {stopped.message}")

    def _turn(self, prompt: str) -> dict[str, int]:
        mark = self.stage.mark()
        self.driver.say(prompt)
        self._answered(mark, prompt)
        return mark

    def _ask(self, prompt: str) -> dict[str, int]:
        """Send a prompt whose turn asks a question, and wait until it is there."""
        mark = self.stage.mark()
        self.driver.say(prompt)
        until(lambda: self.stage.asked("session/request_permission", mark), "session/request_permission")
        time.sleep(1)  # until the client has drawn it; a click before counts for nothing
        return mark

    def _prompt(self, mark: Mapping[str, int]) -> Frame:
        return until(lambda: self.stage.asked("session/prompt", mark), "session/prompt")

    def _answered(self, mark: Mapping[str, int], prompt: str) -> None:
        request = self._prompt(mark)
        answer: Frame = until(lambda: self.stage.answer(request), f"the end of the turn {prompt!r}")
        if answer.message.get("result", {}).get("stopReason") != "end_turn":
            raise NotSeenError(f"stopReason end_turn in {answer.message}")
        self._drawn(story.SAID[prompt], "the model's text")

    def _drawn(self, text: str, what: str, seconds: float = min(PATIENCE, 15)) -> None:
        squeezed = "".join(text.split())  # where a line is broken does not matter
        until(lambda: squeezed in "".join(self.driver.drawn().split()), f"{what} drawn ({text!r})", seconds)

    def _ended(self, mark: Mapping[str, int], status: str) -> None:
        """Check that a tool call was shown as in_progress and ended with `status`."""
        updates = [frame.update for frame in self.stage.frames(mark) if "toolCallId" in frame.update]
        begun = {each["toolCallId"] for each in updates if each["sessionUpdate"] == "tool_call"}
        running = {each["toolCallId"] for each in updates if each.get("status") in ("pending", "in_progress")}
        ended = {each["toolCallId"] for each in updates if each.get("status") == status}
        if not begun & running & ended:
            raise NotSeenError(f"a tool call that ended as {status}")

    def _shop(self) -> str:
        return (self.stage.project / "shop.py").read_text()


def _waiting(project: Path) -> list[int]:
    """Return the processes that run the long command. Its own number would be one of the sandbox's."""
    found: list[int] = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if "wait.py" in process.cmdline() and process.cwd().endswith("/".join(project.parts[-2:])):
                found.append(process.pid)
    return found
