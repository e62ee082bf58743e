"""The dispatch of the command line: it runs a subcommand and turns its errors into one line and an exit code."""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from acp_agent.cli.arguments import command_line
from acp_agent.core.errors import AgentError

_SUBCOMMANDS = {
    "demo": ("demo", "demo"),
    "run": ("run", "run"),
    "doctor": ("doctor", "doctor"),
    "config": ("config", "config"),
    "check": ("check", "check"),
    "audit": ("audit", "audit"),
    "filter": ("filter", "filtered"),
    "redact": ("filter", "redact"),
    "schema": ("schema", "schema"),
    "sessions": ("sessions", "sessions"),
    "login": ("login", "login"),
    "logout": ("login", "logout"),
}
"""The module and the function of each subcommand."""
_BROKEN_PIPE = 141  # 128 + SIGPIPE, as a shell reports it


def main(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code.

    Exit codes: 0 done, 1 failed, 2 wrong usage (raised as SystemExit), 141 the reader of stdout is gone.
    """
    parser = command_line()
    args = parser.parse_args(arguments)
    if args.config is not None and args.command != "config" and not _is_file(os.path.expanduser(args.config)):
        parser.error(f"argument --config: there is no file {args.config!r}")
    try:
        code = _run(args)
        print(end="", flush=True)  # fails here, not at exit, if stdout is closed
    except BrokenPipeError:
        # Python flushes stdout at exit, which would print an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except AgentError as error:
        print(f"acp-agent: {error}", file=sys.stderr)
        return 1
    return code


def _is_file(path: str) -> bool:
    return os.path.exists(path) and not os.path.isdir(path)


def _run(args: argparse.Namespace) -> int:
    """Import and run the subcommand. The others are not imported, which keeps the start fast."""
    command = "login" if getattr(args, "login", None) else args.command
    if command not in _SUBCOMMANDS:  # acp, or no command at all
        from acp_agent import boot

        return boot.main(_server_flags(args))
    module, function = _SUBCOMMANDS[command]
    return getattr(importlib.import_module(f"acp_agent.cli.{module}"), function)(args)


def _server_flags(args: argparse.Namespace) -> list[str]:
    """Return the given flags as the `--name value` pairs that `Flags.from_argv` reads."""
    given: dict[str, str | None] = {
        "--config": args.config and os.path.abspath(os.path.expanduser(args.config)),
        "--model": getattr(args, "model", None),
        "--mode": getattr(args, "mode", None),
        "--auto-approve": getattr(args, "auto_approve", None),
    }
    return [word for name, value in given.items() if value is not None for word in (name, value)]
