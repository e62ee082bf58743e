"""ripgrep as a scout: it says which files to look into, and is not believed (T4.15, security.md 2.4).

It opens files by name and may be tricked by a link swapped in while it runs; so every file it names is judged, opened
and searched again by ourselves, and nothing it read reaches anyone. Its flags are fixed: no configuration file, no
preprocessor, no decompression, no ignore files but .gitignore ones inside the searched tree. It reads those as git
and we do, but for slashes that are escaped.
"""

import os
import resource
import shutil
import sys
from contextlib import suppress
from dataclasses import dataclass
from subprocess import DEVNULL

import anyio
from anyio import to_thread

from acp_agent.core.secret_files import Secrecy, secrecy
from acp_agent.execution.roots import Place

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
