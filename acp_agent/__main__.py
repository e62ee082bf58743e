"""The command `acp-agent`. Without a subcommand it starts the ACP server on stdio, and loads no module of `cli`."""

import os
import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    # `python -m` looks for modules in the current folder first, where a project's own tomllib.py would run instead.
    try:
        here = os.getcwd()
    except OSError:  # the folder was removed, so it holds no modules
        here = ""
    if here == sys.path[0] != os.path.dirname(os.path.dirname(__file__)):
        del sys.path[0]

import time
from collections.abc import Sequence

from acp_agent import limit_path

_LAST_NS = 2**63 - 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run `acp-agent ARGV...`, by default with the process's own arguments, and return the exit code."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    _limit_clock()
    if argv is None and sys.getfilesystemencoding() != "utf-8":
        _start_with_utf8()
    limit_path()
    try:
        if arguments in ([], ["acp"]):
            from acp_agent import boot

            return boot.main()
        from acp_agent.cli import commands

        return commands.main(arguments)
    except KeyboardInterrupt:
        return 130


def _start_with_utf8() -> None:
    """Start this process anew in UTF-8 mode, since the locale cannot encode the names of all files and commands."""
    os.execv(sys.executable, [sys.executable, "-X", "utf8=1", *sys.orig_argv[1:]])  # noqa: S606 - the same program


def _limit_clock() -> None:
    """Stop the clock in April 2262, after which `time.time` raises OverflowError and `logging` cannot be imported."""
    try:
        time.time()
    except OverflowError:
        time.time_ns = lambda: _LAST_NS
        time.time = lambda: _LAST_NS / 1e9


if __name__ == "__main__":
    sys.exit(main())
