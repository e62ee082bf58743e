"""The slash commands: one table for what the editor offers, what /help prints and what `handler.py` runs.

/review becomes a prompt for the model about the uncommitted changes, or about the files at a path. The repository
under review may come from a stranger, and git obeys its configuration. No option of git disables the programs of
filters and hooks, or keeps git inside the session's folders. So a shell command checks the repository first. Only its
exit code counts, because its output has names from the repository, and is cut and redacted.
"""

import re
import shlex
from collections.abc import Collection, Sequence
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING
from uuid import uuid4

from acp_agent.core.data import frozen
from acp_agent.core.events import OfferedCommand
from acp_agent.core.types import CallOrigin, ToolCall, ToolResult
from acp_agent.text import visible

if TYPE_CHECKING:
    from acp_agent.core.backends import FileSystem
    from acp_agent.core.ports import Toolset

_NOTE = "System note:"
"""The beginning of a note that Jupyter AI puts before the first prompt of a session."""


class CommandName(StrEnum):
    """Every slash command."""

    HELP = "help"
    MODEL = "model"
    MODE = "mode"
    CLEAR = "clear"
    COMPACT = "compact"
    REVIEW = "review"
    RUN = "run"
    UNDO = "undo"
    REDO = "redo"
    TOOLS = "tools"
    STATUS = "status"
    COST = "cost"
    MEMORY = "memory"
    SKILLS = "skills"
    AGENTS = "agents"
    EVALUATE = "evaluate"
    HANDOFF = "handoff"
    SCHEDULE = "schedule"
    MCP = "mcp"
    POLICY = "policy"
    PERMISSIONS = "permissions"
    TRUST = "trust"


@frozen
class SlashCommand:
    """The description of a command. `hint` names its argument; a command without a hint takes none."""

    name: CommandName
    description: str
    hint: str = ""

    def usage(self) -> str:
        """Return the syntax of the command as markdown, with the placeholder of the argument in italics."""
        return f"`/{self.name}` *{self.hint}*" if self.hint else f"`/{self.name}`"


_N = CommandName
COMMANDS = (
    SlashCommand(_N.HELP, "Show what can be typed here"),
    SlashCommand(_N.MODEL, "Show the models there are, or choose the one that answers", "model id"),
    SlashCommand(_N.MODE, "Show the modes there are, or switch", "code | architect | ask"),
    SlashCommand(_N.CLEAR, "Forget this conversation and begin anew"),
    SlashCommand(_N.COMPACT, "Sum up the conversation so far to make room", "what to keep above all (optional)"),
    SlashCommand(_N.REVIEW, "Review uncommitted changes, or what is at a path", "path (optional)"),
    SlashCommand(_N.RUN, "Run a shell command yourself, through the same gates", "command"),
    SlashCommand(_N.UNDO, "Take back what the agent changed in its last turn, or in another", "turn (optional)"),
    SlashCommand(_N.REDO, "Bring back what /undo has taken back", "turn (optional)"),
    SlashCommand(
        _N.TOOLS, "List the tools the agent has in this mode, or allow blocked ones again", "reset tool (optional)"
    ),
    SlashCommand(_N.STATUS, "Show the model, the context, the limits and what is switched on"),
    SlashCommand(_N.COST, "Show the tokens this conversation took, and their price"),
    SlashCommand(
        _N.MEMORY, "Show the notes of all sessions, find or delete some", "search words | delete id (optional)"
    ),
    SlashCommand(_N.SKILLS, "List the skills of this session"),
    SlashCommand(_N.AGENTS, "List the sub-agents and what they did; `@name task` gives one a task"),
    SlashCommand(_N.EVALUATE, "Have a sub-agent do a task, and another judge it, in rounds", "criteria: task"),
    SlashCommand(_N.HANDOFF, "Go on under the definition of another agent, or back", "name words | back"),
    SlashCommand(_N.SCHEDULE, "Run a prompt later, or again and again; list, cancel or run these", "when: prompt"),
    SlashCommand(_N.MCP, "List the MCP servers of this session and how they are"),
    SlashCommand(
        _N.POLICY,
        "Show what is allowed, or judge a call without making it",
        "status | check command, path or url",
    ),
    SlashCommand(
        _N.PERMISSIONS,
        "List your lasting answers here, revoke one, or let one hold everywhere",
        "revoke N | everywhere N",
    ),
    SlashCommand(
        _N.TRUST,
        "Show how far the conversation is trusted, trust it again, or use new files of the folder",
        "reset | accept (optional)",
    ),
)

ALWAYS = frozenset(CommandName) - {_N.MEMORY, _N.SKILLS, _N.MCP, _N.POLICY, _N.SCHEDULE}
"""The commands that every configuration has. The others are offered once the configuration is known."""


def parse(texts: Sequence[str]) -> tuple[CommandName, str] | None:
    """Return the command that a prompt begins with, and its argument; None for a prompt for the model.

    A command stands at the very beginning, so that pasted text is never one. The user does not see Jupyter's note, so a
    prompt with the note begins after it. `/run` is not accepted there.

    texts   the texts of the prompt, in order
    """
    name, argument = _words(_beginning(texts))
    if not name or name not in set(CommandName) or (_has_note(texts) and name == CommandName.RUN):
        return None
    return CommandName(name), argument


def length(texts: Sequence[str]) -> int:
    """Return how many texts of a prompt the command at its beginning takes at most: one, or two with Jupyter's note."""
    return 2 if _has_note(texts) else 1


def first_word(texts: Sequence[str]) -> tuple[str, str]:
    """Return the name and the argument of the command that a prompt begins with; two empty texts if there is none."""
    return _words(_beginning(texts))


def mentioned(texts: Sequence[str], names: Collection[str]) -> tuple[str, str] | None:
    """Return the sub-agent whose `@name` begins a prompt, and the words behind it; None for other prompts."""
    first, *rest = _beginning(texts).strip().split(maxsplit=1) or [""]
    name = first[1:].rstrip(":,")
    return (name, "".join(rest)) if first.startswith("@") and name in names else None


def misspelt(texts: Sequence[str]) -> tuple[str, CommandName] | None:
    """Return the misspelt command that a prompt begins with, and the command that was meant; None for other prompts."""
    word = _words(_beginning(texts))[0]
    if not word or word in set(CommandName):
        return None
    small = word.lower()
    near = small if small in set(CommandName) else next((name for name in CommandName if _one_slip(small, name)), None)
    return None if near is None else (word, CommandName(near))


def unwanted_argument(name: CommandName, argument: str) -> str:
    """Return a message for the user if a command that takes no argument has one; else "".

    A sentence that begins like a command, such as "/clear the build folder", is meant for the model.
    """
    command = next(each for each in COMMANDS if each.name is name)
    if command.hint or not argument:
        return ""
    return (
        f"Nothing was done: `/{name}` takes no argument. Send it alone ({command.description}), or leave out "
        "the slash if all this is for the model."
    )


@cache
def offered(available: frozenset[CommandName]) -> tuple[OfferedCommand, ...]:
    """Return the commands for editors. The same objects each time, so that comparing them is cheap."""
    return tuple(OfferedCommand(each.name.value, each.description, each.hint) for each in _chosen(available))


def help_text(available: Collection[CommandName] = ALWAYS, own: Sequence[OfferedCommand] = ()) -> str:
    """Return the output of /help. `own` are the user's commands and skills."""
    lines = [f"- {command.usage()}: {command.description}" for command in _chosen(available)]
    brought = [f"- `/{each.name}` *{each.hint}*: {each.description}" for each in own]
    return "\n".join(("Commands:", "", *lines, *(("", "Yours:", "", *brought) if brought else ())))


def _chosen(available: Collection[CommandName]) -> list[SlashCommand]:
    return [command for command in COMMANDS if command.name in available]


def _words(text: str) -> tuple[str, str]:
    """Return the name after the slash, and the rest of the text; two empty texts if there is no slash."""
    first, *rest = text.strip().split(maxsplit=1) or [""]
    return (first[1:], "".join(rest)) if first.startswith("/") else ("", "")


def _has_note(texts: Sequence[str]) -> bool:
    return bool(texts) and texts[0].startswith(_NOTE)


def _beginning(texts: Sequence[str]) -> str:
    """Return the text with which a prompt begins.

    After a note it is the next text, or the last paragraph of the same text if that is one line.
    """
    if not _has_note(texts):
        return next(iter(texts), "")
    if len(texts) > 1:
        return texts[1]
    last = texts[0].rpartition("\n\n")[2].strip()
    return "" if "\n" in last else last


def _one_slip(word: str, name: str) -> bool:
    """Return whether a word is a name with one letter added, missing, changed or swapped. The first must be right."""
    if word[:1] != name[:1]:
        return False
    at = next((at for at, (one, two) in enumerate(zip(word, name, strict=False)) if one != two), None)
    at = min(len(word), len(name)) if at is None else at
    rest, wanted = word[at:], name[at:]
    return wanted in (rest[1:], rest[1:2] + rest[:1] + rest[2:]) or wanted[1:] in (rest, rest[1:])


GIT = (
    "LC_ALL=C GIT_ALLOW_PROTOCOL= GIT_NO_LAZY_FETCH=1 git --no-pager --no-optional-locks"
    " -c color.ui=false -c color.status=false -c core.fsmonitor=false -c core.hooksPath=/dev/null"
    " -c core.untrackedCache=false"
)
"""git without hooks and protocols. In a partial clone, the configuration names a program to fetch missing objects."""

_GREP = "LC_ALL=C grep -a"
"""In other locales, bytes that are not text match nothing."""
_NO_LINE = f"{_GREP}c '' | {_GREP}qx 0"
"""Succeeds if its input is empty. It compares a count of lines, so it also fails if a program before it gives none."""
_OF_THE_REPOSITORY = "^(local|worktree|submodule|unknown)[[:blank:]]"
"""The scopes of configuration that a repository brings. Settings for all repositories are the user's own choice."""
_NAMED = (
    f"{_OF_THE_REPOSITORY}((filter|hook|lfs[.]extension|lfs[.]customtransfer)[.]"
    "|core[.](attributes|excludes)file$|diff[.]orderfile$)"
)
"""Settings that name programs, including those of git-lfs, or files whose content git would show."""
_KEYS = f"{{ {GIT} config --includes --show-scope --name-only --list || echo local filter.unknown; }}"
"""Prints one line per key. A key has no line break, because git accepts none in a file or the environment."""
_INDEX = f"{{ {GIT} ls-files --full-name -- :/ || echo ..; }}"
"""Prints one name per line, quoted if it is unusual. git trusts its index, even for entries outside the work tree."""
_ASTRAY = '(^"?|/)([.][.]?|[.]git)?(/|"?$)'
"""A part of a name that leads out of the work tree or into git's own folder."""
_PLACES = "--path-format=absolute --show-toplevel --git-dir --git-common-dir"
_IDLE = " -o ".join(f"-path '*/./{name}'" for name in ("hooks", "modules", "worktrees", "annex", "lfs"))
"""Folders of git that these commands do not use. Hooks are often links, and no hook runs."""

_UNCLEAR, _PROGRAMS, _OUTSIDE, _UNKNOWN, _LINKS, _ALTERNATES, _STRAYS = range(81, 88)
_REASONS = {
    _UNCLEAR: "git does not say clearly where its repository is",
    _PROGRAMS: "git would run programs, or read files, that this repository's own configuration names",
    _OUTSIDE: "this repository's own configuration makes git look at another folder",
    _UNKNOWN: "the repository that git finds does not know this folder",
    _LINKS: "links among git's own files may lead anywhere",
    _ALTERNATES: "this repository takes objects from another one",
    _STRAYS: "this repository counts files elsewhere among its own",
}
"""The meanings of the exit codes of `look`. Other codes except 0 come from git or the shell."""
_MOST_NAMED = 3
_LONGEST = 80  # characters of a name

WHERE = f"{GIT} rev-parse --is-inside-work-tree {_PLACES}"
"""Prints four lines: whether this is a work tree, its folder, git's folder, and the folder that work trees share."""


@frozen
class Places:
    """The folders in the output of WHERE. `look` compares them with git's own answers."""

    tree: str
    own: str
    common: str


def places(output: str) -> Places | None:
    """Return the folders in the output of WHERE; None if the output has another form."""
    lines = output.splitlines()
    return Places(*lines[1:4]) if len(lines) >= 4 else None


def look(found: Places) -> str:
    """Return a command that exits with 0 if git may be used, else with the code of the reason. git starts no programs.

    A `.git` file can name any readable repository, so the repository must name the work tree as well. The repository
    of a submodule does so in its configuration. Any failure on the way refuses.
    """
    tree, own, common = (shlex.quote(place) for place in (found.tree, found.own, found.common))
    in_tree, in_own = (shlex.quote(f"worktree {place}") for place in (found.tree, found.own))
    none_named = f"{_KEYS} | {_GREP}ciE '{_NAMED}' | {_GREP}qx 0"
    named = f"{_KEYS} | {_GREP}iE '{_NAMED}' | cut -f 2 | head -n {_MOST_NAMED}"
    own_tree = f"{_KEYS} | {_GREP}qiE '{_OF_THE_REPOSITORY}core[.]worktree$'"
    trees = f"{GIT} worktree list --porcelain | {_GREP}qxF -e"
    links = f"{{ find {own}/. {common}/. '(' {_IDLE} ')' -prune -o -type l -print || echo unknown; }}"
    borrowed = " && ".join(f"test ! -e {common}/objects/info/{name}" for name in ("alternates", "http-alternates"))
    none_astray = f"{_INDEX} | {_GREP}ciE '{_ASTRAY}' | {_GREP}qx 0"
    return "\n".join(
        (
            f"{GIT} rev-parse {_PLACES} | {_GREP}c '' | {_GREP}qx 3 || exit {_UNCLEAR}",
            f"{GIT} rev-parse --show-toplevel | {_GREP}qxF -e {tree} || exit {_UNCLEAR}",
            f"{GIT} rev-parse --path-format=absolute --git-dir | {_GREP}qxF -e {own} || exit {_UNCLEAR}",
            f"{GIT} rev-parse --path-format=absolute --git-common-dir | {_GREP}qxF -e {common} || exit {_UNCLEAR}",
            f"{none_named} || {{ {named}; exit {_PROGRAMS}; }}",
            f"{GIT} rev-parse --is-inside-work-tree | {_GREP}qx true || exit {_OUTSIDE}",
            f"{trees} {in_tree} || {{ {trees} {in_own} && {own_tree}; }} || exit {_UNKNOWN}",
            f"{links} | {_NO_LINE} || {{ {links} | sort -u | head -n {_MOST_NAMED}; exit {_LINKS}; }}",
            f"{borrowed} || exit {_ALTERNATES}",
            f"{none_astray} || {{ {_INDEX} | {_GREP}iE '{_ASTRAY}' | head -n {_MOST_NAMED}; exit {_STRAYS}; }}",
        )
    )


def objection(found: Places, code: object, output: str) -> str:
    """Return why git must not be asked, by the exit code of `look`; "" for 0. `output` lists names."""
    match code:
        case 0:
            return ""
        case int() if code in _REASONS:
            names = output.splitlines()[:_MOST_NAMED]
        case _:
            return f"git exited with code {code}"
    if code == _OUTSIDE:
        names = [found.tree]
    elif code in (_UNKNOWN, _ALTERNATES):
        names = [found.own]
    shown = ", ".join(f"`{visible(name[:_LONGEST])}`" for name in names)
    return _REASONS[code] + (f" ({shown})" if shown else "")


_PATH = re.compile(r"[A-Za-z0-9_./ -]{1,512}")
_CHANGES = (
    f"{GIT} status --short --ignore-submodules=all -- ."
    f" && {GIT} diff --no-color --no-ext-diff --no-textconv --ignore-submodules=all HEAD -- ."
)
"""Prints the changes in the session's folder, without running programs of the repository or of submodules."""

_GIT_FAILED = 128
_NO_COMMIT = "fatal: bad revision 'HEAD'"
"""How git says that HEAD names no commit."""

_HOW = """\
Look for faults before style: bugs, security holes, broken promises to callers, errors nobody handles,
missing tests. Read the code around it and what calls it before you judge; in this turn you can read and search, and
nothing else. Answer with your findings, the worst first, each with file and line, what goes wrong, and how to fix it.
If you find nothing, say so. Change nothing."""


@frozen
class Review:
    """A prompt for the model, for a turn in which it can only read."""

    prompt: str


async def review_path(argument: str, files: "FileSystem") -> Review | str:
    """Return the prompt about one or more paths, separated by blanks, or tell the user why there is none.

    Raises AgentError for a path that may not be read.
    """
    if not _PATH.fullmatch(argument):
        return "Usage: `/review PATH`, of at most 512 letters, digits, blanks and any of `. / _ -`"
    if await files.kind(argument) is None:
        for path in argument.split():
            if await files.kind(path) is None:
                return f"There is nothing at `{path}`: `/review PATH` expects a path below the folder of this session."
    return Review(f"Review what is at `{argument}`.\n\n{_HOW}")


async def review_changes(toolset: "Toolset") -> Review | str:
    """Return the prompt about the uncommitted changes, or the reason for the user why there is none.

    The user's command runs git. Like `/run`, the calls of git are shown, pass the gates and are recorded.
    """
    where = await _run(toolset, WHERE)
    if problem := _problem(where):
        return _unseen(problem)
    if _is_clipped(where) or (found := places(_stdout(where))) is None:
        return _unseen("git does not say clearly where its repository is")
    looked = await _run(toolset, look(found))
    if problem := _failure(looked) or objection(found, _exit_code(looked), _stdout(looked)):
        return _unseen(problem)
    if _is_clipped(looked):
        return _unseen("git's answer about its repository was too long")
    result = await _run(toolset, _CHANGES)
    if _exit_code(result) == _GIT_FAILED and _NO_COMMIT in result.text:
        return _unseen("the repository has no commit yet")
    if problem := _problem(result):
        return _unseen(problem)
    if not _stdout(result):
        return "There are no uncommitted changes. Name what to review: `/review PATH`."
    return Review(f"Review the uncommitted changes, which git shows as follows.\n\n{result.text}\n\n{_HOW}")


async def _run(toolset: "Toolset", command: str) -> ToolResult:
    return await toolset.run(ToolCall(str(uuid4()), "bash", {"command": command}, origin=CallOrigin.USER))


def _stdout(result: ToolResult) -> str:
    return str((result.envelope or {}).get("stdout") or "")


def _is_clipped(result: ToolResult) -> bool:
    return bool((result.envelope or {}).get("truncated"))


def _exit_code(result: ToolResult) -> object:
    return (result.envelope or {}).get("exit_code")


def _failure(result: ToolResult) -> str:
    return "" if result.failure is None else result.failure.message


def _problem(result: ToolResult) -> str:
    """Return why a command gave no usable output; "" if it did."""
    code = _exit_code(result)
    return _failure(result) or ("" if code == 0 else f"git exited with code {code}")


def _unseen(why: str) -> str:
    return f"The uncommitted changes cannot be seen: {why.rstrip('.')}. Name what to review: `/review PATH`."
