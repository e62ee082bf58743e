"""What the model is told about the session's folder: the project's notes, and facts with a prompt.

The notes (AGENTS.md and the like) are a part of the system prompt.

The facts are the date, the branch, uncommitted files, how tests are run, and files that changed. They follow the
user's words in a fence of their own. A fact is left out if the conversation contains it already. Names of files and
branches are data: each stays on one line, is cut if it is long, and cannot close the fence.
The user is not shown the facts, and they do not count as something the user typed.

Notes and facts are read early, in the thread that looks for the user's definitions, so a prompt takes one trip to a
thread, and none while nothing has changed on the disk. They are read again if the roots or the settings have changed
when they are needed.

Only the first prompt waits for a program, and only for a moment: `git status` runs in the background when the engine
starts and after every turn, and its newest answer is used.
"""

import json
import os
import re
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import date
from functools import partial
from itertools import islice
from operator import is_
from typing import Generic, TypeAlias, TypeVar

import anyio
from anyio import to_thread

from acp_agent.agent.prompt import ProjectNote, notes_block
from acp_agent.config.files import RULES_FOLDER, PathStamps
from acp_agent.config.settings import InstructionSettings
from acp_agent.core.data import frozen
from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.messages import Message, Role, TextPart
from acp_agent.core.secrets import Redact
from acp_agent.core.types import Access
from acp_agent.extend.front_matter import Fields, MarkdownFile, parse
from acp_agent.text import abbreviated, defanged, fenced, plain
from acp_agent.workspace.git.changes import branch_of, uncommitted
from acp_agent.workspace.project_notes import (
    FoundNotes,
    NoteFile,
    NoteReader,
    beginning,
    has,
    project_files,
    users_file,
)
from acp_agent.workspace.roots import Roots

_SLOW_NOTES = "reading the notes for agents takes too long (a slow disk?), so the notes that were read last are used"

_MOST_PATTERNS, _LONGEST_PATTERN = 20, 100  # the patterns of one rule, and the characters of one

USERS_FILE = "AGENTS.md"
"""The name of the user's own notes, in the folder of their configuration."""

_TAG = "workspace"
_CHANGED = "Changed on disk since you last saw them"
_FIRST_LOOK = 0.15
"""Seconds that the first prompt waits for the first look at the folder."""
BETWEEN_LOOKS = 0.2
"""Seconds between two looks at a folder in which many sessions end turns."""
_DISK = 0.5
"""Seconds that a prompt waits for the files that the model has seen, and for the branch."""
_EARLY_SECONDS = 2.0
"""How long an early look may be used. A prompt may be delayed, for example while the user answers a question."""
_NAMES = 10
_LONGEST = 120
_Found = TypeVar("_Found")
_OfDisk: TypeAlias = tuple[Sequence[tuple[str, str]], frozenset[str]]  # facts, and the files that changed
_LOOKED_AT = 200  # the most uncommitted files that are searched for names to show


class EarlyLook(Generic[_Found]):
    """A look at the disk that a thread takes before its result is needed.

    after       the objects on which the result depends
    look        looks at the disk, and adds the paths to the stamps
    seconds     how long the result may be used
    found       what was seen; None until the look is over, or if it failed
    under_way   whether the look has begun and is not over
    """

    def __init__(
        self, after: Sequence[object], look: Callable[[PathStamps], _Found | None], seconds: float = _EARLY_SECONDS
    ) -> None:
        self.found: _Found | None = None
        self.under_way = False
        self._after = after
        self._look = look
        self._seconds = seconds
        self._began = 0.0
        self._stamps = PathStamps()

    def __call__(self) -> None:
        """Look at the disk. It blocks."""
        self._began = time.monotonic()
        self.under_way = True
        with suppress(Exception):  # the caller that needs the result looks again, and meets the same error
            self.found = self._look(self._stamps)
        self.under_way = False

    def holds(self, after: Sequence[object]) -> bool:
        """Return whether the result may be used: it depends on exactly these objects, and is new enough."""
        is_new = self.under_way or time.monotonic() - self._began < self._seconds
        return is_new and self._is_after(after)

    def renewed(self, after: Sequence[object], devices: Collection[int]) -> bool:
        """Return whether another look would see the same; this one then counts as new. Needs a `stat` for each path."""
        now = time.monotonic()
        if self.found is None or not (self._is_after(after) and self._stamps.hold(devices)):
            return False
        self._began = now
        return True

    def _is_after(self, after: Sequence[object]) -> bool:
        return len(after) == len(self._after) and all(map(is_, after, self._after))


class ProjectNotes:
    """The notes of one session.

    clean    removes secrets and invisible characters from a text
    warn     called once for each file that was left out, with the reason
    """

    def __init__(
        self,
        config_file: str,
        clean: Callable[[str], str],
        warn: Callable[[str], None],
        reader: NoteReader | None = None,
    ) -> None:
        self._users = os.path.join(os.path.dirname(config_file), USERS_FILE)
        self._clean = clean
        self._warn = warn
        self._reader = reader or NoteReader()
        self._told = set[str]()
        self._seen: tuple[FoundNotes, int] | None = None
        self._block = ""
        self._early: EarlyLook[FoundNotes] | None = None  # for the next `block`
        self._last: EarlyLook[FoundNotes] | None = None

    def look_early(
        self, settings: InstructionSettings, roots: Roots | None, *, trusted: bool | None, devices: Collection[int]
    ) -> EarlyLook[FoundNotes] | None:
        """Return a look that the next `block` needs, or None if it needs none.

        devices   the numbers of the file systems that answer at once. The last look is reused if it saw only files on
                  these and none has changed
        """
        if not (settings.enabled and settings.max_chars):
            return None
        readable = None if trusted is False else roots
        if self._last is not None and self._last.renewed((settings, readable), devices):
            self._early = self._last
            return None
        self._early = self._last = EarlyLook(
            (settings, readable), lambda stamps: self._reader.look(partial(self._look, settings, readable, stamps))
        )
        return self._early

    async def block(self, settings: InstructionSettings, roots: Roots | None, *, trusted: bool | None) -> str:
        """Return the block for the next turn; empty for none. The text changes only if the files or `max_chars` change.

        roots     what may be read now; None to read only the user's own notes
        trusted   whether the user trusts the folder. If they said no, its notes are left out
        """
        early, self._early = self._early, None
        if not (settings.enabled and settings.max_chars):
            return ""
        readable = None if trusted is False else roots
        found = early.found if early is not None and early.holds((settings, readable)) else None
        if found is None:
            found = await self._reader.read(partial(self._look, settings, readable, PathStamps()))
        if found is None:
            self._tell((_SLOW_NOTES,))
            return "" if trusted is False else self._block
        self._tell(found.troubles)
        if self._seen != (found, settings.max_chars):
            self._block = notes_block([*map(self._note, found.files)], settings.max_chars)
            self._seen = found, settings.max_chars
        return self._block

    def _look(self, settings: InstructionSettings, readable: Roots | None, stamps: PathStamps) -> FoundNotes:
        own = users_file(self._users, stamps)
        theirs = FoundNotes() if readable is None else project_files(readable, settings.files, stamps)
        return FoundNotes((*own.files, *theirs.files), (*own.troubles, *theirs.troubles))

    def _note(self, file: NoteFile) -> ProjectNote:
        """Return a file as a note. The front matter of a rule says which files it is about."""
        text, paths = file.text, tuple[str, ...]()
        if os.path.join(RULES_FOLDER, "") in file.source and text.startswith("---"):
            parsed = parse(text.encode("utf-8", "replace"), file.source)
            if isinstance(parsed, MarkdownFile):
                text, paths = parsed.body, Fields(file.source, parsed.values).texts("paths")
        cleaned = tuple(self._clean(path)[:_LONGEST_PATTERN] for path in paths[:_MOST_PATTERNS])
        return ProjectNote(self._clean(file.source), self._clean(text), file.users, file.more, cleaned)

    def _tell(self, troubles: Iterable[str]) -> None:
        for trouble in troubles:
            if trouble not in self._told:
                self._told.add(trouble)
                self._warn(trouble)


@frozen
class FolderState:
    """The result of one look at a folder.

    dirty   the uncommitted files; None if they are not known
    tests   the commands that probably test the project; empty if none are known
    """

    dirty: tuple[str, ...] | None = None
    tests: str = ""


class FolderLook:
    """The newest look at a folder. Sessions that may read the same files share it.

    newest       what was seen
    background   starts a task
    status       returns the uncommitted files below a folder, or None
    """

    def __init__(
        self,
        background: Callable[[Callable[[], Awaitable[None]]], object],
        status: Callable[[str], Awaitable[tuple[str, ...] | None]] = uncommitted,
    ) -> None:
        self.newest = FolderState()
        self._background = background
        self._status = status
        self._roots: Callable[[], Roots | None] = lambda: None
        self._asked = self._done = 0
        self._looking = False
        self._looked = anyio.Event()
        self._hurried = anyio.Event()
        self._rests_until = 0.0

    def begin(self, roots: Callable[[], Roots | None], *, hurry: bool) -> int:
        """Look at the folder in the background, after the look that is under way. Return the look's number, for `wait`.

        Calls during one look share the next one.

        hurry   whether a prompt waits for it. If not, it begins at least `BETWEEN_LOOKS` seconds after the last one
        """
        self._asked += 1
        if hurry:
            self._hurried.set()
        if roots() is not None:  # keep the roots of another session if this one may read nothing
            self._roots = roots
        if not self._looking:
            self._looking = True
            self._background(self._look_around)
        return self._asked

    async def wait(self, number: int) -> None:
        """Wait until a look is over that began after `begin` returned this number."""
        while self._done < number:
            await self._looked.wait()

    async def _look_around(self) -> None:
        try:
            while self._done < self._asked:
                with anyio.CancelScope(deadline=self._rests_until):
                    await self._hurried.wait()
                asked, roots, self._hurried = self._asked, self._roots(), anyio.Event()
                if roots is not None and not roots.is_closed:  # the session may have ended meanwhile
                    tests = await to_thread.run_sync(command_for_tests, roots, abandon_on_cancel=True)
                    now = FolderState(await self._status(roots.cwd), tests)
                    # An early look is usable only while this is the same object.
                    self.newest = self.newest if now == self.newest else now
                self._rests_until = anyio.current_time() + BETWEEN_LOOKS
                self._over(asked)
        finally:
            self._looking = False
            self._roots = lambda: None  # the function keeps its whole session in memory
            self._over(self._asked)

    def _over(self, number: int) -> None:
        self._done = number
        self._looked.set()
        self._looked = anyio.Event()


class WorkspaceFacts:
    """The facts of one session.

    roots        returns the session's roots; None if nothing may be read now
    changed      returns the absolute paths of files that changed on disk since the model saw them. It blocks
    unchanged    returns whether none has changed, if that is quickly seen
    messages     returns the conversation, which contains the facts that the model was told
    clean        removes secrets and invisible characters from a text
    folder       returns the look at the folder, under the configuration in force
    wanted       returns whether the model is told facts
    today        returns the date
    """

    def __init__(
        self,
        roots: Callable[[], Roots | None],
        changed: Callable[[], Sequence[str]],
        messages: Callable[[], Sequence[Message]],
        clean: Redact,
        folder: Callable[[], FolderLook],
        *,
        unchanged: Callable[[Collection[int]], bool] = lambda _: False,
        wanted: Callable[[], bool] = lambda: True,
        today: Callable[[], date] = date.today,
    ) -> None:
        self._roots = roots
        self._changed = changed
        self._unchanged = unchanged
        self._messages = messages
        self._clean = clean
        self._folder = folder
        self._wanted = wanted
        self._today = today
        self._date = date.min, ""
        self._looked = False
        self._first: Callable[[], Awaitable[None]] | None = None  # waits for the first look
        self._known = frozenset[str]()  # changed files that the model was told of, and has not read since
        self._early: EarlyLook[_OfDisk] | None = None  # for the next `news`
        self._last: EarlyLook[_OfDisk] | None = None
        self._dirty: tuple[Roots, FolderState, str] | None = None  # the uncommitted files of a look
        self._read: tuple[Sequence[Message], dict[str, str]] = (), {}  # messages, and the facts that they contain

    def look(self) -> None:
        """Look at the folder in the background."""
        if self._wanted():
            folder = self._folder()
            number = folder.begin(self._roots, hurry=not self._looked)
            self._first = self._first if self._looked else partial(folder.wait, number)
            self._looked = True

    def look_early(self, *, devices: Collection[int]) -> EarlyLook[_OfDisk] | None:
        """Return a look at the disk that the next `news` needs, or None if it needs none.

        devices   see `ProjectNotes.look_early`
        """
        roots = self._roots() if self._wanted() else None
        if roots is None:
            return None
        newest, last = self._folder().newest, self._last
        saw_no_change = last is not None and last.found is not None and not last.found[1]
        if last is not None and saw_no_change and self._unchanged(devices) and last.renewed((roots, newest), devices):
            self._early = last
            return None
        self._early = self._last = EarlyLook((roots, newest), partial(self._of_disk, roots, newest))
        return self._early

    async def news(self) -> str:
        """Return the block of those facts that the model does not know yet; "" if there are none."""
        early, self._early = self._early, None
        if not self._wanted():
            return ""
        if self._first is not None:
            first, self._first = self._first, None
            with anyio.move_on_after(_FIRST_LOOK):
                await first()
        told = self._told()
        facts = [pair for pair in await self._facts(early) if pair[1]]
        lines = [f"{name}: {fact}" for name, fact in facts if name == _CHANGED or told.get(name) != fact]
        lines = [*map(self._clean, lines)]  # more secrets may be known now than when the fact was found
        return fenced(_TAG, "\n".join(lines)) if lines else ""

    def _told(self) -> dict[str, str]:
        """Return the facts that the model was told. Only new messages are read."""
        messages, (read, told) = tuple(self._messages()), self._read
        if messages[: len(read)] != read:  # fast: compares identities first
            read, told = (), {}
        if len(read) < len(messages):
            self._read = messages, told | told_facts(messages[len(read) :])
        return self._read[1] if messages else {}

    async def _facts(self, early: EarlyLook[_OfDisk] | None) -> list[tuple[str, str]]:
        if (today := self._today()) != self._date[0]:
            self._date = today, f"{today.isoformat()}, a {today:%A}"
        facts = [("Date", self._date[1])]
        roots = self._roots()
        if roots is None:
            return facts
        newest = self._folder().newest
        looked = early if early is not None and early.holds((roots, newest)) else None
        found = None if looked is None else looked.found
        if found is None and (looked is None or not looked.under_way):  # a slow disk is not waited for twice
            with anyio.move_on_after(_DISK):
                found = await to_thread.run_sync(self._of_disk, roots, newest, PathStamps(), abandon_on_cancel=True)
        if found is not None:
            more, self._known = found
            facts += more
        return facts

    def _of_disk(self, roots: Roots, look: FolderState, stamps: PathStamps) -> _OfDisk:
        changed = self._changed()
        new = [path for path in changed if path not in self._known]
        if self._dirty is None or self._dirty[0] is not roots or self._dirty[1] is not look:
            self._dirty = roots, look, "" if look.dirty is None else self._names(roots, look.dirty) or "none"
        facts = (
            ("Git branch", self._short(branch_of(roots.cwd, stamps))),
            ("Uncommitted files", self._dirty[2]),
            ("Likely test command", look.tests),
            (_CHANGED, self._names(roots, new)),
        )
        return facts, frozenset(changed)

    def _names(self, roots: Roots, paths: Sequence[str]) -> str:
        """Return how many files these are, and the first names among those that may be listed."""
        names = [*islice(_listed(roots, paths[:_LOOKED_AT]), _NAMES)]
        more = f", and {len(paths) - len(names)} more" if names and len(names) < len(paths) else ""
        shown = ", ".join(map(self._short, names))
        if not paths or len(paths) == 1 or not names:
            return shown or (f"{len(paths)}" if paths else "")
        return f"{len(paths)}: {shown}{more}"

    def _short(self, name: str) -> str:
        return abbreviated(plain(defanged(self._clean(name.encode("utf-8", "replace").decode()))), _LONGEST)


def _listed(roots: Roots, paths: Iterable[str]) -> Iterator[str]:
    """Yield the paths that the session may list, relative to its folder if they are below it."""
    for path in paths:
        with suppress(Refused, ToolError):
            found = roots.resolve(os.path.dirname(path), Access.LIST)
            listed = os.path.join(found, os.path.basename(path))
            if roots.allows(listed, Access.LIST):
                yield os.path.relpath(listed, roots.cwd) if listed.startswith(f"{roots.cwd}/") else listed


def told_facts(messages: Iterable[Message]) -> dict[str, str]:
    """Return the facts that a conversation contains, by name, each as it was told last."""
    told = dict[str, str]()
    for message in messages:
        for part in message.parts if message.role is Role.USER else ():
            if isinstance(part, TextPart) and part.text.startswith(f'<{_TAG} id="'):
                pairs = (line.partition(": ") for line in part.text.splitlines()[1:-1])
                told |= {name: fact for name, _, fact in pairs}
    return told


# ------------------------------------------------------------------------------------------- tests

_MAKE_TEST = re.compile(r"^(test|check)[ \t]*:(?![:=])", re.MULTILINE)
_PYTEST = re.compile(r"^\[(?:tool\.pytest(?:\.ini_options)?|tool:pytest|pytest)\]", re.MULTILINE)
_CTEST = re.compile(r"^[ \t]*(?:enable_testing|include[ \t]*\([ \t]*ctest)\b", re.MULTILINE | re.IGNORECASE)
_NO_TEST = "no test specified"
_RUNNERS = (("pnpm-lock.yaml", "pnpm"), ("yarn.lock", "yarn"), ("bun.lockb", "bun run"), ("bun.lock", "bun run"))
_PYTHONS = (
    (".venv/bin/pytest", ".venv/bin/pytest"),
    ("uv.lock", "uv run pytest"),
    ("poetry.lock", "poetry run pytest"),
)
_REQUIREMENTS = ("pyproject.toml", "setup.cfg", "setup.py", "requirements.txt", "requirements-dev.txt")
_COMMANDS = 2


def command_for_tests(roots: Roots) -> str:
    """Return the commands that probably test the project in the session's folder, at most two. It blocks."""
    return " or ".join(f"`{command}`" for command in islice(_test_commands(_Project(roots)), _COMMANDS))


class _Project:
    """The files at the top of the session's folder, as far as its tools may read them."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots

    def has(self, name: str) -> bool:
        return has(self._roots, os.path.join(self._roots.cwd, name), PathStamps())

    def text(self, name: str) -> str:
        """Return the beginning of a file; empty if there is none."""
        if not self.has(name):
            return ""
        with suppress(Refused, ToolError, OSError):
            fd = self._roots.place(os.path.join(self._roots.cwd, name), Access.READ).open_regular()
            try:
                return beginning(fd, name).text
            finally:
                os.close(fd)
        return ""

    def first(self, choices: Sequence[tuple[str, str]], otherwise: str) -> str:
        """Return what belongs to the first file that exists."""
        return next((chosen for name, chosen in choices if self.has(name)), otherwise)


def _test_commands(project: _Project) -> Iterator[str]:
    makefile = project.first((("GNUmakefile", "GNUmakefile"), ("makefile", "makefile")), "Makefile")
    if targets := _MAKE_TEST.findall(project.text(makefile)):
        yield f"make {max(targets)}"  # "test" rather than "check", which often only lints
    if _has_test_script(project.text("package.json")):
        yield f"{project.first(_RUNNERS, 'npm')} test"
    python = any(_PYTEST.search(project.text(name)) for name in ("pyproject.toml", "setup.cfg", "tox.ini"))
    if python or project.has("pytest.ini") or project.has("conftest.py"):
        yield project.first(_PYTHONS, "pytest")
    elif project.has("tox.ini"):
        yield "tox"
    elif any("pytest" in project.text(name) for name in _REQUIREMENTS) or project.has("tests/conftest.py"):
        yield project.first(_PYTHONS, "pytest")
    for name, command in (("Cargo.toml", "cargo test"), ("go.mod", "go test ./...")):
        if project.has(name):
            yield command
    if _CTEST.search(project.text("CMakeLists.txt")):
        yield "ctest --test-dir build"
    if project.has("pom.xml"):
        yield f"{project.first((('mvnw', './mvnw'),), 'mvn')} test"
    if project.has("build.gradle") or project.has("build.gradle.kts"):
        yield f"{project.first((('gradlew', './gradlew'),), 'gradle')} test"


def _has_test_script(text: str) -> bool:
    with suppress(ValueError, RecursionError):
        match json.loads(text):
            case {"scripts": {"test": str(script)}}:
                return _NO_TEST not in script
            case _:
                pass
    return False
