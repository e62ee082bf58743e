"""ripgrep as a scout: it says where to look, and what it says is checked before anyone reads it (security.md 2.4).

It opens files by name and may be tricked by a link swapped in while it runs; so a candidate carries what is
needed to find the very same bytes again through the root. Its flags are fixed: no configuration file, no
preprocessor, no decompression, no ignore files but .gitignore ones inside the searched tree.
"""

import base64
import binascii
import json
import os
import shutil
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from subprocess import DEVNULL
from typing import cast

import anyio

from acp_agent.core.backends import GrepQuery
from acp_agent.core.types import Json
from acp_agent.execution.roots import Place

_ENOUGH = 20  # candidates per wanted match, of which some may not stand the check
_AT_LEAST = 1000
_LONGEST_EVENT = 4 * 1024 * 1024
_FAILED = 2
_FLAGS = (
    "--no-config",
    "--json",
    "--no-pre",
    "--no-search-zip",
    "--no-follow",
    "--no-hidden",
    "--no-ignore-dot",
    "--no-ignore-exclude",
    "--no-ignore-global",
    "--no-ignore-parent",
    "--no-require-git",
    "--no-messages",
    "--no-mmap",
    "--crlf",
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A line that is said to match. `path` is relative to the root; `text` are its bytes at byte `offset`."""

    path: str
    line: int
    offset: int
    text: bytes


def find_ripgrep(program: str | None) -> str | None:
    """The program's absolute path, or None. One that PATH has in a relative folder could be anybody's."""
    found = None if program is None else shutil.which(program)
    return found if found is not None and os.path.isabs(found) else None


async def candidates(
    program: str, place: Place, query: GrepQuery, largest: int, skipped: Iterable[str], *, outer_rules: bool
) -> list[Candidate] | None:
    """Where the pattern is said to match below `place`, in path and line order; None when ripgrep cannot tell.

    `outer_rules` has the root's own .gitignore count. Of very many matches those that come first in order are
    kept, whatever order ripgrep found them in.
    """
    command = [program, *_FLAGS, f"--max-filesize={largest}", f"--max-count={query.limit + 1}"]
    command += [f"--glob=!**/{name}/" for name in sorted(skipped)]
    command += ["--case-sensitive" if query.case_sensitive else "--ignore-case"]
    if outer_rules:
        command += ["--ignore-file=.gitignore"]
    command += [f"--regexp={query.pattern}", "--", "./" if place.relative == "." else f"./{place.relative}"]
    enough = max(_AT_LEAST, _ENOUGH * query.limit)
    found, complete = await _run(command, place.root.path, enough)
    if not complete:
        # Too many to sort afterwards: have them in order, from one thread.
        found, complete = await _run([command[0], "--sort=path", *command[1:]], place.root.path, enough)
    if found is None:
        return None
    return sorted(found, key=lambda candidate: (candidate.path.split("/"), candidate.line))


async def _run(command: list[str], cwd: str, enough: int) -> tuple[list[Candidate] | None, bool]:
    """The candidates of one run, and whether these are all. None when it failed without finding any."""
    found: list[Candidate] = []
    try:
        process = await anyio.open_process(command, stdin=DEVNULL, stderr=DEVNULL, cwd=cwd, env={})
    except OSError:
        return None, True
    async with process:
        assert process.stdout is not None
        async with aclosing(_lines(process.stdout)) as events:
            async for event in events:
                candidate = _candidate(event)
                if candidate is not None:
                    found.append(candidate)
                if len(found) == enough:
                    process.kill()
                    return found, False
        status = await process.wait()
    return (None if status == _FAILED and not found else found), True


async def _lines(stream: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """Whole lines; one that is longer than an event may be is left out."""
    rest, dropping = b"", False
    async for chunk in stream:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if not dropping:
                yield line
            dropping = False
        if len(rest) > _LONGEST_EVENT:
            rest, dropping = b"", True


def _candidate(event: bytes) -> Candidate | None:
    """A `match` event understood; None for any other."""
    try:
        message = cast("Json", json.loads(event))
    except ValueError:
        return None
    match message:
        case {
            "type": "match",
            "data": {"path": {"text": str(path)}, "lines": lines, "line_number": int(line), "absolute_offset": int(at)},
        }:
            text, path = _bytes(lines), os.path.normpath(path)
            below = not path.startswith(("/", "../"))
            return Candidate(path, line, at, text) if below and text is not None else None
        case _:
            return None


def _bytes(value: Json) -> bytes | None:
    """Text where it is UTF-8, anything else in base64: how ripgrep writes a line."""
    match value:
        case {"text": str(text)}:
            return text.encode("utf-8", "surrogatepass")
        case {"bytes": str(encoded)}:
            try:
                return base64.b64decode(encoded, validate=True)
            except binascii.Error:
                return None
        case _:
            return None
