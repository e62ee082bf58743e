"""`acp-agent check`: what a session in this folder would say to a path, a URL or a command, and why."""

import argparse
import os
import sys
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

import anyio

from acp_agent.cli.check.path import path_gates
from acp_agent.cli.check.path import verdict as path_verdict
from acp_agent.cli.check.stdin import judge_lines
from acp_agent.config.load import Flags, Loaded, load
from acp_agent.config.masking import one_line
from acp_agent.core.errors import ConfigError
from acp_agent.core.types import JsonObject

if TYPE_CHECKING:
    from acp_agent.cli.check.command import CommandJudge
    from acp_agent.core.wrapper import Gate
    from acp_agent.execution.roots import Roots

_LONGEST = 10_000  # characters of one field; two paths and a word
_WORDS = {"allow": "allowed", "deny": "denied", "ask": "asked"}
_EXIT_CODES = {"allow": 0, "deny": 1, "blocked": 1, "ask": 3}


def check(args: argparse.Namespace) -> int:
    """Exit codes: 0 allowed or all lines judged, 1 denied or blocked, 2 wrong usage, 3 asked. Raises ConfigError.

    Needs no model. A configuration that no session could run with is an error here, too.
    """
    _refuse_misuse(args)
    try:
        cwd = os.getcwd()
    except OSError as error:
        raise ConfigError("session", "directory", ".", f"a folder that exists ({error.strerror})") from error
    loaded = load(Flags(config=args.config), os.environ, cwd)
    for problem in loaded.problems:
        print(f"acp-agent: {problem}", file=sys.stderr)
    scrape = loaded.settings.tools.scrape
    if args.kind == "url" and not args.stdin:
        from acp_agent.cli.check.url import verdict as url_verdict  # noqa: PLC0415 - its client is slow to load

        return _tell(anyio.run(url_verdict, args.target, scrape, _answers(args)))
    from acp_agent.compose.session_roots import session_roots  # noqa: PLC0415 - all of a session is behind it

    loaded = _sound(loaded, cwd)
    with session_roots(loaded, cwd) as roots, session_roots(loaded, cwd, for_shell=True) as shell:

        @cache
        def commands() -> "CommandJudge":
            return _command_judge(args.rules, loaded, roots, shell)

        @cache
        def gates() -> "tuple[Gate, ...]":
            return path_gates(loaded, roots, shell, _warn)

        if args.stdin:
            lines = sys.stdin.buffer if sys.stdin else ()
            judge_lines(lines, sys.stdout, roots, scrape, commands, gates, only_commands=args.kind == "command")
            return 0
        if args.kind == "command":
            found = commands().verdict(args.target)
            _print(found.lines())
            return _EXIT_CODES[found.word]
        return _tell(path_verdict(args.target, roots, write=args.write, gates=gates()))


def _command_judge(file: str | None, loaded: Loaded, roots: "Roots", shell: "Roots") -> "CommandJudge":
    from acp_agent.cli.check.command import CommandJudge, rules_in  # noqa: PLC0415 - the gates are slow to load

    rules = None if file is None else rules_in(os.path.expanduser(file))
    return CommandJudge(loaded, roots, shell, _warn, rules)


def _sound(loaded: Loaded, cwd: str) -> Loaded:
    """Return the configuration without the project's faulty patterns, which are told."""
    from acp_agent.compose.project_patterns import without_faulty_patterns  # noqa: PLC0415 - all of a session, too

    loaded, faults = without_faulty_patterns(loaded, (cwd,))
    for fault in faults:
        _warn(str(fault))
    return loaded


def _warn(problem: str) -> None:
    print(f"acp-agent: {problem}", file=sys.stderr)


def _refuse_misuse(args: argparse.Namespace) -> None:
    if args.stdin:
        if args.target is not None or args.write or args.resolve:
            args.misused("argument --stdin: what to check stands in the lines, with nothing beside it here")
    elif args.target is None:
        args.misused(f"expected {args.kind or 'path or url or command'} and what to check, or --stdin")
    elif args.kind != "path" and args.write:
        args.misused("argument --write: expected with path only")
    elif args.kind != "url" and args.resolve:
        args.misused("argument --resolve: expected with url only")
    if args.rules is not None and args.kind not in ("command", None):
        args.misused("argument --rules: expected with command only")


def _answers(args: argparse.Namespace) -> dict[str, list[list[str]]] | None:
    """The look-ups the command line scripts, in order."""
    if args.resolve is None:
        return None
    answers: dict[str, list[list[str]]] = {}
    for host, addresses in args.resolve:
        answers.setdefault(host, []).append(addresses)
    return answers


def _tell(found: JsonObject) -> int:
    """Print a verdict for a person, who gave the path or URL and is told what became of it."""
    word = str(found["verdict"])
    subject = found.get("path", found.get("url"))
    lines = [(_WORDS[word], f"{found.get('access', 'get')} {subject}")]
    for name in ("resolved", "addresses", "reason", "category"):
        value = found.get(name)
        if value:
            lines.append((name, ", ".join(map(str, value)) if isinstance(value, list) else str(value)))
    _print(lines)
    return _EXIT_CODES[word]


def _print(lines: Iterable[tuple[str, str]]) -> None:
    for name, text in lines:
        print(f"{name:<10} {one_line(text, longest=_LONGEST)}")
