"""Ask git what it knows. The questions run no program that a repository names, take no lock and fetch nothing."""

import os
import subprocess

import anyio

MAX_BYTES = 16 * 1024 * 1024
"""The longest answer that is read."""

_QUIET = (
    *("--no-optional-locks", "--no-pager", "-c", "core.fsmonitor=false"),
    *("-c", "core.hooksPath=/dev/null", "-c", "submodule.recurse=false", "-c", "protocol.allow=never"),
)
_ALONE = {"GIT_ALLOW_PROTOCOL": "", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}


class NoAnswer(Exception):
    """Git did not answer in time, or answered more than is read."""


class GitAsker:
    """Asks git in one folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    async def _commit(self, word: str) -> str:
        if not word or word.startswith("-"):
            return ""
        if word.startswith(":/"):  # all of it is the text that is looked for
            word = (await self._ask("rev-parse", "--verify", "--quiet", word)).decode().strip()
        return (
            (await self._ask("rev-parse", "--verify", "--quiet", "--end-of-options", f"{word}^{{commit}}"))
            .decode()
            .strip()
        )

    async def _names(self, *args: str, given: bytes = b"") -> list[str]:
        answer = await self._ask(*args, given=given, strict=True)
        return [name.decode("utf-8", "surrogateescape") for name in answer.split(b"\0") if name]

    async def _ask(self, *args: str, given: bytes = b"", strict: bool = False) -> bytes:
        """Return what git answers; empty when it refuses. `strict`: raise NoAnswer then."""
        variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        process = await anyio.open_process(
            ["git", *_QUIET, *args],
            cwd=self._folder,
            env={**variables, **_ALONE},
            stdin=subprocess.PIPE if given else subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            if process.stdin is not None:
                await process.stdin.send(given)
                await process.stdin.aclose()
            answer = bytearray()
            assert process.stdout is not None
            async for part in process.stdout:
                answer += part
                if len(answer) > MAX_BYTES:
                    raise NoAnswer
            code = await process.wait()
        finally:
            with anyio.CancelScope(shield=True):
                if process.returncode is None:
                    process.kill()
                await process.aclose()
        if strict and code:
            raise NoAnswer
        return b"" if code else bytes(answer)
