"""ripgrep as a scout: it says which files to look into, and is not believed (T4.15, security.md 2.4).

It opens files by name and may be tricked by a link swapped in while it runs; so every file it names is judged, opened
and searched again by ourselves, and nothing it read reaches anyone. Its flags are fixed: no configuration file, no
preprocessor, no decompression, no ignore files but .gitignore ones inside the searched tree. It reads those as git
and we do, but for slashes that are escaped.
"""

import os
import re
import resource
import shutil
import sys
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from subprocess import DEVNULL
from typing import cast

import anyio
from anyio import to_thread

from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.secret_files import Secrecy, secrecy
from acp_agent.workspace.roots import Place

_MOST_TOLD = 32 * 1024 * 1024  # bytes of paths; with so many files a walk finds enough matches soon
_MOST_MEMORY = 1024 * 1024 * 1024  # bytes of addresses; an ordinary search has 40 MB in use
_ENDED = (0, 1)  # with a match, without one
_FAILED = 2  # also when there was one file of many that could not be read
_FLAGS = (
    "--no-config",
    "--null",
    "--color=never",
    "--no-pre",
    "--no-search-zip",
    "--no-follow",
    "--no-ignore-dot",
    "--no-ignore-exclude",
    "--no-ignore-global",
    "--no-ignore-parent",
    "--no-require-git",
    "--no-messages",
    "--no-mmap",
    "--encoding=none",
    "--regex-size-limit=32M",  # else ripgrep takes 100 MiB and a gigabyte
    "--dfa-size-limit=64M",
)


def find_ripgrep(program: str | None) -> str | None:
    """The program's absolute path, or None: from PATH, else beside this Python, where a wheel puts it.

    One that PATH has in a relative folder could be anybody's.
    """
    if program is None:
        return None
    beside = os.path.join(os.path.dirname(sys.executable), program)
    found = (shutil.which(name) for name in (program, beside))
    return next((path for path in found if path is not None and os.path.isabs(path)), None)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the scout need not look at.

    largest       files over so many bytes
    skipped       directories of these names
    outer_rules   what the root's own .gitignore names, when a directory below it is searched
    hidden        whether to look at hidden names
    secrets       more secret files are told whether or not they match, which nobody may learn
    """

    largest: int
    skipped: frozenset[str]
    outer_rules: bool
    hidden: bool
    secrets: Secrecy = Secrecy.SEALED


async def scout(program: str, place: Place, pattern: str, bounds: Bounds, *, case_sensitive: bool) -> list[str] | None:
    """Files below `place` that match, are too large to be searched or too secret; relative to the root, in no order.

    `pattern` is one of ripgrep's own. None when it cannot tell: it failed, or there are too many files to keep.
    """
    command = [program, *_FLAGS, "--hidden" if bounds.hidden else "--no-hidden"]
    command += [f"--glob=!**/{name}/" for name in sorted(bounds.skipped)]
    if bounds.outer_rules:
        command += ["--ignore-file=.gitignore"]
    below = ["--", "./" if place.relative == "." else f"./{place.relative}"]
    small = f"--max-filesize={bounds.largest}"
    case = "--case-sensitive" if case_sensitive else "--ignore-case"
    matching = await _told([*command, "--files-with-matches", small, case, f"--regexp={pattern}", *below], place)
    every = None if matching is None else await _told([*command, "--files", *below], place)
    searched = None if every is None else await _told([*command, "--files", small, *below], place)
    if matching is None or every is None or searched is None:
        return None
    # Asking twice is cheaper than asking for the size of each.
    paths = (_relative(name) for name in matching | (every - searched))
    secrets = await to_thread.run_sync(_secrets, every, place, bounds.secrets)
    return [path for path in dict.fromkeys((*paths, *secrets)) if path is not None]


def _secrets(names: set[bytes], place: Place, limit: Secrecy) -> list[str]:
    if limit is Secrecy.SEALED:
        return []
    paths = (path for name in names if (path := _relative(name)) is not None)
    return [path for path in paths if secrecy(place.root.absolute(path)) > limit]


async def _told(command: list[str], place: Place) -> set[bytes] | None:
    """The names a run of ripgrep tells."""
    try:
        process = await anyio.open_process(command, stdin=DEVNULL, stderr=DEVNULL, cwd=place.root.path, env={})
    except OSError:
        return None
    _bound_memory(process.pid)
    told = bytearray()
    async with process:
        assert process.stdout is not None
        async for chunk in process.stdout:
            told += chunk
            if len(told) > _MOST_TOLD:
                process.kill()
                return None
        status = await process.wait()
    if status not in _ENDED and not (status == _FAILED and told):
        return None
    return set(bytes(told).split(b"\0"))


def _bound_memory(pid: int) -> None:
    """A hostile pattern or ignore file must not fill the machine: ripgrep then fails, and we search alone."""
    if sys.platform == "linux":
        with suppress(OSError):
            resource.prlimit(pid, resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))


def _relative(name: bytes) -> str | None:
    """A path as ripgrep writes it, `./` before it; None for what no tool could open or does not lie below."""
    try:
        path = name.decode().removeprefix("./")
    except UnicodeDecodeError:
        return None
    return None if not path or path.startswith(("/", "../")) or os.path.normpath(path) != path else path


# One character as RE2 decodes it: overlong forms and surrogates count too.
_ANY = r"(?-u:(?:[^\n\x80-\xff]|[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}))"
_ATOM = r"(?:\\[^\w\s]|[^\\\[\]^-])"
_TOKEN = re.compile(
    r"""
      (?P<flags> \(\?(?P<set_flags>[imsU]*)(?P<close>[:)]) )
    | (?P<group> \(\?P?<\w+> )
    | (?P<operator> \((?!\?) | [)|*+?] | \{\d+(?:,\d*)?\} )
    | (?P<start> \^ )
    | (?P<end> \$ )
    | (?P<boundary> \\b )
    | (?P<no_boundary> \\B )
    | (?P<same> \\[dswtfvr] )
    | (?P<any> \. | \\[DSW] )
    | (?P<escaped> \\[^\w\s] )
    | (?P<set> \[ (?P<negated>\^)? (?P<members> (?:\\[^\W0-9ACEQpPxz_] | \\[^\w\s] | [^\\\[\]^])
                                                (?:\\[^\W0-9ACEQpPxz_] | \\[^\w\s] | [^\\\[\]])* ) \] )
    | (?P<literal> [^\\\[(\n] )
    """,
    re.VERBOSE,
)
_PLAIN_SET = re.compile(rf"(-?)((?:{_ATOM}-{_ATOM}|\\[dswtfvr]|{_ATOM})*)(-?)")
_MARK = re.compile(r"\\(\W)|([^\w\\-])")
_FIXED = {
    "group": "(",
    "start": r"(?:^\x{feff}?)",
    "end": r"(?:\r?$)",
    "boundary": r"(?-u:\b)",
    "no_boundary": "(?:)",
}


def scout_pattern(pattern: str, *, case_sensitive: bool) -> str | None:
    """A pattern for ripgrep's own engine that matches every line that the RE2 `pattern` matches, or None.

    `pattern` is one that RE2 has compiled. The file's lines are taken as `--encoding=none` without `--crlf` has them.
    """
    folds = not case_sensitive
    parts: list[str] = []
    at = 0
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None:
            return None
        folds = folds or "i" in (token["set_flags"] or "")
        parts.append(_translated(token, folds=folds))
        at = token.end()
    return "".join(parts)


def _translated(token: re.Match[str], *, folds: bool) -> str:
    match token.lastgroup:
        case "flags":
            flag = "i" if "i" in token["set_flags"] else ""
            # Nothing rather than an empty group: what repeats behind a flag repeats what is before it.
            return f"(?{flag}{token['close']}" if flag or token["close"] == ":" else ""
        case "operator" | "same":
            return token[0]
        case "escaped" | "literal":
            return _literal(token[0][-1], folds=folds)
        case "set" if token["negated"] is None:
            return _set(token["members"], folds=folds)
        case other:
            return _FIXED.get(other or "", _ANY)


def _literal(character: str, *, folds: bool) -> str:
    """A character that means itself; where case does not count, other alphabets may fold differently there."""
    if not character.isascii():
        return _ANY if folds else character
    return character if character.isalnum() else _by_number(character)


def _set(members: str, *, folds: bool) -> str:
    """A set of characters. Marks are written by number: `&&`, `[` and more mean something there."""
    plain = _PLAIN_SET.fullmatch(members)
    if plain is None or (folds and not members.isascii()):
        return _ANY
    hyphen = r"\x{2d}" if plain[1] or plain[3] else ""
    return f"[{hyphen}{_MARK.sub(lambda mark: _by_number(mark[1] or mark[2]), plain[2])}]"


def _by_number(character: str) -> str:
    return rf"\x{{{ord(character):x}}}"


_MOST_QUOTED = 40


@dataclass(frozen=True, slots=True)
class FileType:
    """One type: its other names, what its files' names end with behind a dot, and whole names."""

    aliases: frozenset[str] = frozenset()
    extensions: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()

    def has(self, name: str) -> bool:
        """Whether a file of this name is of the type, whatever its case."""
        lowered = name.lower()
        rest = lowered
        while "." in rest:  # "a.gradle.kts" ends with "gradle.kts" as well as with "kts"
            rest = rest.partition(".")[2]
            if rest in self.extensions:
                return True
        return lowered in self.names


def file_type(name: str) -> FileType:
    """The type of that name or alias. Raises ToolError (invalid_parameters) that names those it may have meant."""
    types = known_types()
    wanted = name.strip().lower().removeprefix("*").removeprefix(".")
    for known, each in types.items():
        if wanted == known or wanted in each.aliases:
            return each
    every = [*types, *(alias for each in types.values() for alias in each.aliases)]
    near = get_close_matches(wanted[:_MOST_QUOTED], every, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(types)}"
    raise ToolError(
        ToolErrorCategory.INVALID_PARAMETERS,
        f"file_type {name[:_MOST_QUOTED]!r} is not known; {hint}",
        'Use one of these, or a glob such as "*.txt".',
    )


def known_types() -> Mapping[str, FileType]:
    """Every type by its name, from the table; names and extensions in lower case."""
    text = (files("acp_agent.workspace") / "file_types.toml").read_text("utf-8")
    table = cast("dict[str, dict[str, list[str]]]", tomllib.loads(text))
    return {name: FileType(**{key: frozenset(values) for key, values in each.items()}) for name, each in table.items()}
