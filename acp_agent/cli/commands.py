"""From arguments to the subcommand, and from whatever goes wrong in it to one line and an exit code."""

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
"""Where each is: its module here, and its function there."""
_BROKEN_PIPE = 141  # 128 + SIGPIPE, as a shell reports it


def main(arguments: Sequence[str]) -> int:
    """Run one command. Exit codes: 0 done, 1 failed, 2 wrong usage (SystemExit), 141 nobody reads stdout any more."""
    parser = command_line()
    args = parser.parse_args(arguments)
    if args.config is not None and args.command != "config" and not _is_file(os.path.expanduser(args.config)):
        parser.error(f"argument --config: there is no file {args.config!r}")
    try:
        code = _run(args)
        print(end="", flush=True)  # also where there is no stdout at all
    except BrokenPipeError:
        # Python flushes stdout once more on its way out, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except AgentError as error:
        print(f"acp-agent: {error}", file=sys.stderr)
        return 1
    return code


def _is_file(path: str) -> bool:
    return os.path.exists(path) and not os.path.isdir(path)


def _run(args: argparse.Namespace) -> int:
    """The subcommand, imported only now."""
    command = "login" if getattr(args, "login", None) else args.command
    if command not in _SUBCOMMANDS:  # acp, or no command at all
        from acp_agent import boot

        return boot.main(_server_flags(args))
    module, function = _SUBCOMMANDS[command]
    return getattr(importlib.import_module(f"acp_agent.cli.{module}"), function)(args)


def _server_flags(args: argparse.Namespace) -> list[str]:
    """The flags given, as the `--name value` pairs the server reads (`Flags.from_argv`)."""
    given: dict[str, str | None] = {
        "--config": args.config and os.path.abspath(os.path.expanduser(args.config)),
        "--model": getattr(args, "model", None),
        "--mode": getattr(args, "mode", None),
        "--auto-approve": getattr(args, "auto_approve", None),
    }
    return [word for name, value in given.items() if value is not None for word in (name, value)]
