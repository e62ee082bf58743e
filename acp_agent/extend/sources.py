"""The files with the definitions of users, and the user's approval of those in a project.

    beside the user's config.toml      in the session's folder
    agents/*.md                        .acp-agent/agents/*.md      .claude/agents/*.md
    skills/*/SKILL.md                  .acp-agent/skills/*/SKILL.md, and in .claude and .agents
    commands/*.md, commands/*/*.md     .acp-agent/commands/...     .claude/commands/...
    tools/*.toml                       .acp-agent/tools/*.toml
    hooks.toml                         .acp-agent/hooks.toml       .claude/settings.json

The user's own files are used as they are. A project's file comes with the repository: it is used only if the user has
said yes to exactly its bytes, and the answer is kept with the trusted folders (`store/decisions`). A file that changes
waits for another yes. A link in a project that leads out of the session's folder is refused.

A look costs one `stat` for each place that does not exist; a file is read again only when its stamp changes. While
`is_current`, another look would find the same.
"""

import hashlib
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import TypeVar

from anyio import to_thread

from acp_agent.config.files import PathStamps, Stamp
from acp_agent.core.data import frozen
from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.ports import Approver, Decision
from acp_agent.core.types import Access
from acp_agent.extend.front_matter import MAX_FILE, DefinitionProblem
from acp_agent.gates.trust import contents_digest, folder_question
from acp_agent.store.decisions import TrustedFolders
from acp_agent.workspace.beneath import errors_about, holding
from acp_agent.workspace.roots import Roots, is_below

T = TypeVar("T")


class SourceKind(StrEnum):
    """A kind of definition."""

    AGENTS = "agents"
    SKILLS = "skills"
    COMMANDS = "commands"
    TOOLS = "tools"
    HOOKS = "hooks"


OWN = ".acp-agent"
"""The first part of a pattern. For the user's own definitions, it means the folder of their configuration."""
PATTERNS: Mapping[SourceKind, Sequence[str]] = {
    SourceKind.AGENTS: (f"{OWN}/agents/*.md", ".claude/agents/*.md"),
    SourceKind.SKILLS: (f"{OWN}/skills/*/SKILL.md", ".claude/skills/*/SKILL.md", ".agents/skills/*/SKILL.md"),
    SourceKind.COMMANDS: (
        *(f"{OWN}/commands/*.md", f"{OWN}/commands/*/*.md"),
        *(".claude/commands/*.md", ".claude/commands/*/*.md"),
    ),
    SourceKind.TOOLS: (f"{OWN}/tools/*.toml",),
    SourceKind.HOOKS: (f"{OWN}/hooks.toml", ".claude/settings.json"),
}
"""Where each kind is, below the session's folder. A `*` is one name that begins with no dot. Earlier patterns take
precedence.
"""
MOST = 200
"""Files of one kind that are read."""
MOST_BYTES = 8 * 1024 * 1024
"""Bytes of the files of one kind, which stay in memory."""


@frozen
class SourceFile:
    """A file with a definition, as it was read.

    name      what each `*` of the pattern stands for, without the ending: "pdf" for skills/pdf/SKILL.md, "git:log" for
              commands/git/log.md
    path      absolute
    shown     the path for people: relative to the session's folder, or with ~ for the user's home
    project   whether it belongs to the session's folder and not to the user
    digest    SHA-256 of name and bytes, in hexadecimal
    """

    kind: SourceKind
    name: str
    path: str
    shown: str
    data: bytes
    digest: str
    project: bool = False

    @property
    def folder(self) -> str:
        """The absolute folder of the file."""
        return os.path.dirname(self.path)

    @property
    def real_folder(self) -> str:
        """The folder with its links resolved. It looks at the disk."""
        return os.path.realpath(self.folder)


def distinct(
    definitions: Iterable[tuple[str, SourceFile, T]], reserved: Mapping[str, str] | None = None
) -> tuple[dict[str, T], list[DefinitionProblem]]:
    """Return the first definition of each name, and why the others are refused.

    Names that differ only in upper and lower case are the same name.

    definitions   the name, the file and the definition of each, in the order of `ExtensionSources.files`
    reserved      names that no file may define, with the reasons
    """
    taken = {name.lower(): why for name, why in (reserved or {}).items()}
    by_name, problems = dict[str, T](), list[DefinitionProblem]()
    for name, file, definition in definitions:
        if why := taken.get(name.lower()):
            problems.append(DefinitionProblem(file.shown, "name", f"{name!r} is {why}; this one is not used"))
            continue
        taken[name.lower()] = f"already defined in {file.shown}"
        by_name[name] = definition
    return by_name, problems


class ExtensionSources:
    """The files with definitions of one session.

    `files`, `problems` and `waiting` are those of the last `refresh`, and the same objects until something changes.

    problems   files that cannot be read
    waiting    files of the project that are not used, since the user has not said yes to them, or has said no

    config_file   the user's config.toml; "" if there is none
    folder        the session's folder, links resolved
    store         the user's answers about folders and their files
    kinds         the kinds that are looked for
    at_home       returns whether ~/.claude and ~/.agents are looked at as well
    stamps        returns an empty record of stamps
    """

    def __init__(
        self,
        config_file: str,
        folder: str,
        store: TrustedFolders,
        kinds: Sequence[SourceKind] = tuple(SourceKind),
        at_home: Callable[[], bool] = lambda: False,
        stamps: Callable[[], PathStamps] = PathStamps,
    ) -> None:
        self._users = os.path.dirname(config_file)
        self._folder = folder
        self._store = store
        self._kinds = kinds
        self._at_home = at_home
        self._new_stamps = stamps
        self._answers = dict[str, bool]()  # by digest, for this session
        self._read = dict[str, tuple[Stamp, SourceFile | DefinitionProblem]]()
        self._found = dict[SourceKind, tuple[SourceFile, ...]]()
        self._stamps: PathStamps | None = None  # of the last look; None if another one may find something else
        self._looked_for: tuple[object, ...] = ()
        self.problems: tuple[DefinitionProblem, ...] = ()
        self.waiting: tuple[SourceFile, ...] = ()

    @property
    def folders(self) -> Sequence[str]:
        """The folders in which files are looked for: of the user's configuration, of the session, and the home."""
        return [*filter(None, (self._users, self._folder, os.path.expanduser("~")))]

    def files(self, kind: SourceKind) -> tuple[SourceFile, ...]:
        """Return the files that may be used: the user's, then those of the project that the user has accepted."""
        return self._found.get(kind, ())

    def is_current(self, roots: Roots | None, devices: Collection[int]) -> bool:
        """Return whether `refresh` would find what it found last. It takes a `stat` for each place that was looked at.

        It returns False after a failed reading, and if a place is on none of these devices. It also returns False while
        files wait, because the user may answer in another session.
        """
        if self._stamps is None or self.waiting or self._looked_for != self._wanted(roots):
            return False
        return self._stamps.hold(devices)

    def _wanted(self, roots: Roots | None) -> tuple[object, ...]:
        return roots, self._at_home(), os.path.expanduser("~")

    def refresh(self, roots: Roots | None) -> None:
        """Look for files. It blocks. `roots` is None if nothing of the project may be used.

        A copy of a file under the same name counts once: `.claude/skills` is often a link to `.agents/skills`.
        """
        read = dict[str, tuple[Stamp, SourceFile | DefinitionProblem]]()
        waiting, problems = list[SourceFile](), list[DefinitionProblem]()
        stamps, self._stamps, self._looked_for = self._new_stamps(), None, self._wanted(roots)
        for kind in self._kinds:
            usable, seen = list[SourceFile](), set[tuple[str, bytes]]()
            for path, found in self._look(kind, roots, stamps):
                read[path] = found
                file = found[1]
                if isinstance(file, DefinitionProblem):
                    problems.append(file)
                    continue
                if (file.name, file.data) in seen or (path.endswith(".json") and b'"hooks"' not in file.data):
                    continue  # most settings of Claude Code have no hooks
                seen.add((file.name, file.data))
                (usable if not file.project or self._accepted(file) else waiting).append(file)
            if tuple(usable) != self.files(kind):
                self._found[kind] = tuple(usable)
        self._read, self.problems, self.waiting = read, tuple(problems), tuple(waiting)
        self._stamps = stamps

    def _accepted(self, file: SourceFile) -> bool | None:
        if file.digest not in self._answers:
            known = self._store.find(self._folder, file.digest)
            if known is None:
                return None
            self._answers[file.digest] = known
        return self._answers[file.digest]

    async def ask(self, approver: Approver, describe: Callable[[SourceFile], str]) -> None:
        """Ask the user once about the files that wait, and remember the answer. Raises ToolError without one in time.

        describe   returns what a file would add, in one line
        """
        waiting = [file for file in self.waiting if file.digest not in self._answers]
        if not waiting:
            return
        contents = {file.shown: file.data for file in waiting}
        runs = any(file.kind in (SourceKind.TOOLS, SourceKind.HOOKS) for file in waiting)
        why = "they can start programs" if runs else "they tell the model what to do"
        wishes = await to_thread.run_sync(lambda: [*map(describe, waiting)])  # many files may be slow to read
        decision = await approver.ask(folder_question(self._folder, contents, wishes, why))
        lasting = decision in (Decision.ALLOW_ALWAYS, Decision.REJECT_ALWAYS)
        await to_thread.run_sync(lambda: self.answer(waiting, trusted=decision.allowed, lasting=lasting))

    def answer(self, files: Sequence[SourceFile], *, trusted: bool, lasting: bool) -> None:
        """Note the user's answer about files. `refresh` then puts it in force. It blocks if the answer is to last."""
        for file in files:
            self._answers[file.digest] = trusted
            if lasting:
                self._store.remember(self._folder, file.digest, trusted=trusted)

    # ------------------------------------------------------------------------------------- finding

    def _look(
        self, kind: SourceKind, roots: Roots | None, stamps: PathStamps
    ) -> Iterator[tuple[str, tuple[Stamp, SourceFile | DefinitionProblem]]]:
        """Yield each file of a kind by its path, with its stamp. What has not changed is not read."""
        count = size = 0
        for base, pattern, project in self._places(kind):
            if project and roots is None:
                continue
            below = roots if project else None
            top, slash, _ = pattern.partition("/")
            if slash and stamps.of(f"{base}/{top}") is None:
                continue
            for path, name in _matching(base, pattern, below, stamps):
                now, known = stamps.of(path), self._read.get(path)
                if known is None or known[0] != now:
                    known = now, self._file(kind, path, name, below, stamps)
                count += 1
                size += len(known[1].data) if isinstance(known[1], SourceFile) else 0
                if count > MOST or size > MOST_BYTES:
                    most = f"expected at most {MOST} files of {kind}, and {MOST_BYTES >> 20} MiB: the rest is not used"
                    yield path, (None, DefinitionProblem(self._shown(path), "", most))
                    return
                yield path, known

    def _places(self, kind: SourceKind) -> Iterator[tuple[str, str, bool]]:
        """Yield a folder and a pattern below it for each place, and whether it is the project's."""
        home = os.path.expanduser("~")
        for pattern in PATTERNS[kind]:
            own = pattern.removeprefix(f"{OWN}/")
            if own != pattern and self._users:
                yield self._users, own, False
            elif own == pattern and self._at_home() and home != self._folder:
                yield home, pattern, False
        for pattern in PATTERNS[kind]:
            yield self._folder, pattern, True

    def _file(
        self, kind: SourceKind, path: str, name: str, roots: Roots | None, stamps: PathStamps
    ) -> SourceFile | DefinitionProblem:
        shown = self._shown(path)
        if stamps.of(path) is None:
            return DefinitionProblem(shown, "", "is a link that leads to no file")
        try:
            data = _read_below(roots, shown) if roots is not None else _read_users(path, shown)
        except (Refused, ToolError) as error:
            stamps.doubt()
            return DefinitionProblem(shown, "", f"{error}".removeprefix(f"{shown}: "))
        if len(data) > MAX_FILE:
            return DefinitionProblem(shown, "", f"expected at most {MAX_FILE // 1024} KiB")
        project = roots is not None
        digest = contents_digest({shown: data}) if project else hashlib.sha256(data).hexdigest()
        return SourceFile(kind, name, path, shown, data, digest, project)

    def _shown(self, path: str) -> str:
        home = os.path.expanduser("~")
        if is_below(path, self._folder):
            return os.path.relpath(path, self._folder)
        return f"~/{os.path.relpath(path, home)}" if is_below(path, home) else path


def _matching(base: str, pattern: str, roots: Roots | None, stamps: PathStamps) -> Iterator[tuple[str, str]]:
    """Yield the paths that match a pattern below a folder, in order, each with what its `*` stands for."""
    head, star, rest = pattern.partition("/*")
    if not star:
        if stamps.of(f"{base}/{pattern}") is not None:
            yield f"{base}/{pattern}", os.path.splitext(os.path.basename(pattern))[0]
        return
    folder, inside = f"{base}/{head}", rest.startswith("/")
    if stamps.of(folder) is None:
        return
    for entry in sorted(_names(folder, roots, stamps)):
        if entry.startswith((".", "*")):
            continue
        if "*" in rest:
            below = _matching(base, f"{head}/{entry}{rest}", roots, stamps)
            yield from ((path, f"{entry}:{name}") for path, name in below)
            continue
        name = entry if inside else entry.removesuffix(rest)
        path = f"{folder}/{name}{rest}"
        if (inside or name != entry) and stamps.exists(path):  # perhaps a link that leads nowhere
            yield path, name


def _names(folder: str, roots: Roots | None, stamps: PathStamps) -> Sequence[str]:
    with suppress(OSError, Refused, ToolError):
        if roots is None:
            return os.listdir(folder)
        with holding(roots.place(folder, Access.LIST).open_directory()) as fd:
            return os.listdir(fd)
    if os.path.isdir(folder):
        stamps.doubt()
    return ()


def _read_below(roots: Roots, shown: str) -> bytes:
    """Return the bytes of a file below the session's folder, by its relative path. Raises Refused or ToolError."""
    place = roots.place(shown, Access.READ)
    if not is_below(place.path, roots.cwd):
        raise Refused(f"{shown}: expected a file inside the project, not a link out of it")
    with holding(place.open_regular()) as fd, errors_about(shown):
        return os.pread(fd, MAX_FILE + 1, 0)


def _read_users(path: str, shown: str) -> bytes:
    """Return the bytes of a file of the user, without waiting for a FIFO or a device. Raises Refused or ToolError."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    with errors_about(shown), holding(os.open(path, flags)) as fd:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise Refused(f"{shown}: is not a regular file")
        return os.pread(fd, MAX_FILE + 1, 0)
