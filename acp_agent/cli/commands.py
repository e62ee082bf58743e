"""The command line: the subcommands with their arguments and help, and their dispatch.

An error of a subcommand becomes one line on stderr and an exit code.
"""

import argparse
import errno
import importlib
import locale
import os
import signal
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from acp_agent import __version__
from acp_agent.core.errors import AgentError
from acp_agent.core.session_options import AutoApprove, Mode
from acp_agent.text import visible_lines


class CommandLine(argparse.ArgumentParser):
    """A parser that reports wrong usage on one line of stderr and exits with code 2."""

    def error(self, message: str) -> NoReturn:
        line = " ".join("".join(c if c.isprintable() else " " for c in message).split())
        self.exit(2, f"acp-agent: {line} (see `{self.prog} --help`)\n")


def command_line() -> CommandLine:
    """Return the parser of all subcommands.

    Its result has `command` (None for the server), `config` and the arguments of the subcommand. An option that was not
    given is None.
    """
    parser = CommandLine(
        "acp-agent",
        description="A coding agent that editors drive over the Agent Client Protocol. Without a command it serves "
        "an editor on stdin and stdout.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"acp-agent {__version__}")
    _add_config(parser, default=None)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    new = commands.add_parser
    _add_acp(new)
    _add(new, "demo", "watch the agent repair a small project in an editor; needs no key and no network")
    _add_run(new)
    doctor = _add(new, "doctor", "check configuration, model, data folder and the programs used")
    doctor.add_argument("--editor", metavar="NAME", choices=_EDITORS, help=f"check the set-up of {_any_of(_EDITORS)}")
    _add_setup(_add(new, "setup", "set up an editor to start this agent"))
    config = _add(new, "config", "show the configuration in force or the path of its file, or write a new file")
    config.add_argument("action", choices=["show", "path", "init"])
    _add_keys(new)
    _add_sessions(_add(new, "sessions", "list, show, continue, export, undo or delete the stored sessions"))
    _add_check(_add(new, "check", "say whether a path, a URL or a command would be allowed, and why"))
    _add_audit(_add(new, "audit", "show the record of tool calls, or check that it is complete and unchanged"))
    _add_permissions(_add(new, "permissions", 'list your answers with "always", or revoke one'))
    _add_sandbox(_add(new, "sandbox", "run a command within the walls around the agent's commands in this folder"))
    _add_tools(_add(new, "tools", "check the file of a custom tool: its schema, an example, and what the gates say"))
    _add_filter(_add(new, "filter", "print the part of a command's output, given on stdin, that a model would read"))
    _add(new, "redact", "print the text on stdin without the secrets in it")
    schema = _add(new, "schema", "print a JSON schema")
    schemas = ["audit", "config", "filter-rules", "run", "tools"]
    schema.add_argument("name", metavar="NAME", choices=schemas, help="audit, config, filter-rules, run or tools")
    return parser


def _add(new: Callable[..., CommandLine], name: str, text: str) -> CommandLine:
    parser = new(name, help=text, description=text[0].upper() + text[1:] + ".", allow_abbrev=False)
    _add_config(parser, default=argparse.SUPPRESS)  # its default must not overwrite a --config before the command
    return parser


def _add_acp(new: Callable[..., CommandLine]) -> None:
    acp = _add(new, "acp", "serve an editor on stdin and stdout (the default)")
    _add_choices(acp)
    levels = [level.value for level in AutoApprove]
    acp.add_argument("--auto-approve", choices=levels, help=argparse.SUPPRESS)  # `run --yes` starts the server with it
    acp.add_argument("--titles", choices=["prompt"], help=argparse.SUPPRESS)  # `run PROMPT` starts the server with it
    # Editors append `login` to `acp` for terminal authentication.
    acp.add_argument("login", nargs="?", choices=["login"], help=argparse.SUPPRESS)
    acp.set_defaults(provider=None, stdin=False, no_check=False, list=False)


def _add_run(new: Callable[..., CommandLine]) -> None:
    run = _add(new, "run", "answer prompts in this folder, asking for permissions on the terminal")
    run.epilog = (
        "Exit codes: 0 done, 1 error, 2 wrong usage, 3 refused (by the model, or because nobody could be asked) or a "
        "limit was hit, 130 cancelled."
    )
    run.add_argument(
        "prompt",
        metavar="PROMPT",
        type=_text,
        nargs="?",
        help="what to do; @path adds a file or folder. Without it a pipe is read, or you type prompts on the terminal",
    )
    which = run.add_mutually_exclusive_group()
    which.add_argument("--continue", dest="last", action="store_true", help="continue the last session of this folder")
    which.add_argument(
        "--resume", metavar="ID", type=_text, help="continue this session in its folder; 4 characters or more of its id"
    )
    run.add_argument("--json", action="store_true", help="one JSON object on each line, the outcome last")
    _add_conversation(run)


def _add_conversation(parser: CommandLine) -> None:
    parser.add_argument(
        "--yes", action="store_true", help="ask nothing: allow calls, and refuse those that only you could allow"
    )
    _add_choices(parser)
    parser.set_defaults(misused=parser.error)


def _add_config(parser: CommandLine, default: str | None) -> None:
    parser.add_argument("--config", metavar="FILE", type=_text, default=default, help="configuration file to use")


def _add_choices(parser: CommandLine) -> None:
    parser.add_argument("--model", metavar="PROVIDER:MODEL", type=_model, help="the model to use")
    parser.add_argument("--mode", choices=[mode.value for mode in Mode], help="what the agent may do")


def _add_keys(new: Callable[..., CommandLine]) -> None:
    login = _add(new, "login", "store a provider's API key in the keyring, or in a private file if there is no keyring")
    _add_provider(login, "the provider of the key; you are asked for it if it is not given")
    login.add_argument("--stdin", action="store_true", help="read the key from stdin")
    login.add_argument(
        "--no-check", action="store_true", help="store the key without asking the server whether it accepts it"
    )
    login.add_argument("--list", action="store_true", help="list the providers and the source of their keys")
    logout = _add(new, "logout", "remove stored API keys")
    _add_provider(logout, "the provider whose key is removed; all of them if not given")


def _add_provider(parser: CommandLine, text: str) -> None:
    """Add `PROVIDER` and `--provider NAME`, which mean the same."""
    whose = parser.add_mutually_exclusive_group()
    absent = argparse.SUPPRESS  # otherwise its default would overwrite the option
    whose.add_argument("provider", metavar="PROVIDER", type=_text, nargs="?", default=absent, help=text)
    whose.add_argument("--provider", metavar="NAME", type=_text, help="the same")


def _add_sessions(parser: CommandLine) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    listed = _add(actions.add_parser, "list", "print the sessions on one line each, the last used first")
    where = listed.add_mutually_exclusive_group()
    where.add_argument("--cwd", metavar="DIR", type=_folder, help="only those of this folder")
    where.add_argument("--all", action="store_true", help="those of all folders (the default)")
    listed.add_argument("-n", "--number", metavar="N", type=_count, default=20, help="how many (20)")
    listed.add_argument("--json", action="store_true", help="one JSON object on each line")
    show = _add(actions.add_parser, "show", "print a session as text")
    show.add_argument("--json", action="store_true", help="its events, one JSON object on each line")
    export = _add(actions.add_parser, "export", "write a session to a file")
    for action in (show, export):
        identity = action.add_argument("id", metavar="ID", type=_text, help="its id, or the first 4 characters or more")
    identity.required = False  # of an export: `with_id` handles `--html ID` later
    export.set_defaults(misused=export.error)
    target = export.add_mutually_exclusive_group()
    target.add_argument("to", metavar="-", nargs="?", choices=["-"], help="an HTML page on standard output")
    page = "an HTML page, which is the default (acp-agent-ID.html in this folder)"
    target.add_argument("--html", metavar="FILE", type=_text, nargs="?", const=False, help=page)
    target.add_argument(
        "--json", metavar="FILE", type=_text, help="JSON that can be imported again; - for standard output"
    )
    export.add_argument("--force", action="store_true", help="overwrite an existing file")
    resume = _add(actions.add_parser, "resume", "continue a session on the terminal, as `run --resume ID` does")
    resume.add_argument("resume", metavar="ID", type=_text, help="its id, as for show")
    _add_conversation(resume)
    resume.set_defaults(prompt=None, last=False, json=False)
    undo = _add(actions.add_parser, "undo", "take back what the agent changed in files in a turn of a session")
    undo.add_argument("id", metavar="ID", type=_text, help="its id, as for show")
    undo.add_argument("--turn", metavar="N", type=_count, help="the number of the turn, as for /undo (the last one)")
    undo.add_argument("--redo", action="store_true", help="bring back what was taken back")
    delete = _add(actions.add_parser, "delete", "delete sessions permanently")
    delete.add_argument("ids", metavar="ID", nargs="+", type=_text, help="the ids of the sessions, as for show")
    delete.add_argument("--yes", action="store_true", help="delete without asking")


def _add_check(parser: CommandLine) -> None:
    parser.epilog = (
        "Exit codes: 0 allowed, 1 denied or blocked, 2 wrong usage, 3 the user would be asked; with --stdin 0 when all "
        "lines were judged."
    )
    kinds = ["path", "url", "command"]
    kind = parser.add_argument("kind", metavar="KIND", choices=kinds, help="path, url or command")
    target = parser.add_argument(
        "target", metavar="TARGET", help="the path (relative to this folder), the URL, or the command line"
    )
    # With nargs="?" argparse would not find the second argument after an option between the two.
    kind.required = target.required = False
    parser.add_argument("--write", action="store_true", help="check whether the path may be written instead of read")
    parser.add_argument(
        "--resolve",
        metavar="HOST=IP[,IP]",
        type=_addresses,
        action="append",
        help="the answer of a DNS look-up of the URL's host; repeat it for the answer of the next look-up",
    )
    parser.add_argument(
        "--rules",
        metavar="FILE",
        type=_text,
        help="judge commands by these rules instead of the configured ones: TOML with [[tools.permissions.bash]], or "
        'JSON [{"pattern": ..., "action": "allow|ask|deny"}, ...]',
    )
    parser.add_argument(
        "--stdin",
        action="store_true",
        help='judge one JSON object on each line, {"path": ..., "write": true}, {"url": ..., "dns": {HOST: [[IP, ...], '
        '...]}} or {"command": ..., "rules": [{"pattern": ..., "action": ...}, ...]}, and print a verdict for each',
    )
    parser.set_defaults(misused=parser.error)


def _add_audit(parser: CommandLine) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    tail = _add(actions.add_parser, "tail", "print the last records on one line each")
    tail.add_argument("-n", "--lines", metavar="N", type=_count, default=20, help="how many (20)")
    tail.add_argument("-f", "--follow", action="store_true", help="continue with new records as they are written")
    show = _add(actions.add_parser, "show", "print the records of one call as JSON")
    show.add_argument(
        "record",
        metavar="RECORD",
        type=_text,
        help="the number of a record, or the id of a call or its first 8 characters",
    )
    verify = _add(actions.add_parser, "verify", "say whether a record was changed or removed")
    for action in (tail, show, verify):
        action.add_argument(
            "--file", metavar="FILE", type=_text, help="the audit file, if it is not the configured one"
        )


def _add_sandbox(parser: CommandLine) -> None:
    profiles = ["workspace", "read-only", "network-allow-all"]
    parser.add_argument("--profile", choices=profiles, help="the rights of the command (by default `[tools.sandbox]`)")
    parser.add_argument("--network", action="store_true", help="let the command reach all hosts")
    parser.add_argument("words", metavar="COMMAND", nargs="+", help="the command and its arguments, behind --")


def _add_tools(parser: CommandLine) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    check = _add(actions.add_parser, "check", "check the file of a custom tool")
    check.epilog = "Exit codes: 0 allowed, 1 wrong, denied or blocked, 2 wrong usage, 3 the user would be asked."
    check.add_argument("file", metavar="FILE", type=_text, help="the TOML file")
    check.add_argument("arguments", metavar="JSON", type=_text, nargs="?", help="the arguments of the example")


def _add_filter(parser: CommandLine) -> None:
    # The result's `command` is the name of the subcommand, so this one is `text`.
    parser.add_argument(
        "--command", metavar="CMD", dest="text", type=_text, required=True, help="the command that printed it"
    )
    parser.add_argument("--exit", metavar="N", type=int, help="its exit code, if it is known")


def _add_permissions(parser: CommandLine) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    _add(actions.add_parser, "list", "print the answers with their numbers")
    revoke = _add(actions.add_parser, "revoke", "forget an answer, so that you are asked again")
    revoke.add_argument("number", metavar="N", type=_count, help="its number in the list")


def _add_setup(parser: CommandLine) -> None:
    parser.add_argument("editor", metavar="EDITOR", choices=_EDITORS, help=_any_of(_EDITORS))
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--write", action="store_true", help="merge the settings into the editor's file; else print them")
    what.add_argument("--remove", action="store_true", help="remove them from the file")
    parser.add_argument("--file", metavar="FILE", type=_text, help="the file, if it is not where the editor keeps it")


def _any_of(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


def _count(value: str) -> int:
    if not value.isascii() or not value.isdigit() or not 1 <= int(value[:10]) <= 999_999_999:
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, not {value!r}")
    return int(value)


def _addresses(value: str) -> tuple[str, list[str]]:
    from ipaddress import ip_address

    host, _, listed = value.partition("=")
    addresses = [text.strip() for text in listed.split(",")]
    try:
        for address in addresses:
            ip_address(address)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected HOST=IP[,IP], not {value!r}: {error}") from None
    if not host.strip():
        raise argparse.ArgumentTypeError(f"expected a host in front of the =, not {value!r}")
    return host.strip(), addresses


def _text(value: str) -> str:
    if not value.strip():
        raise argparse.ArgumentTypeError("expected some text, not nothing")
    return value


def _folder(value: str) -> str:
    return os.path.abspath(os.path.expanduser(_text(value)))


def _model(value: str) -> str:
    from acp_agent.config.llm_settings import model_name

    try:
        return model_name(value)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected {error}, not {value!r}") from None


_EDITORS = ("zed", "vscode", "jetbrains", "neovim", "emacs", "jupyter", "marimo", "qtcreator", "toad")
_ELSEWHERE = {
    "filter": ("check_command", "filtered"),
    "redact": ("check_command", "redact"),
    "schema": ("config", "schema"),
    "setup": ("setup.command", "setup"),
    "tools": ("check_command", "custom_tool"),
    "logout": ("login", "logout"),
    "permissions": ("check", "permissions"),
}
"""The module and the function of subcommands. For the other subcommands both have the subcommand's name."""
_BROKEN_PIPE = 141  # 128 + SIGPIPE, as a shell reports it
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of a write to stdout that its file or its device causes, such as a full disk."""


def main(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code.

    Exit codes: 0 done, 1 failed, 2 wrong usage (raised as SystemExit), 141 the reader of stdout is gone. `run`, `check`
    and others have more.
    """
    parser = command_line()
    try:
        args = parser.parse_args(arguments)
        if args.config is not None and args.command != "config":
            file = os.path.expanduser(args.config)
            if not os.path.exists(file) or os.path.isdir(file):
                parser.error(f"argument --config: there is no file {args.config!r}")
        code = _run(args)
        print(end="", flush=True)  # fails here, not at exit, if stdout is closed
    except BrokenPipeError:
        # Python flushes stdout at exit, which would print an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except AgentError as error:
        print(f"acp-agent: {visible_lines(str(error))}", file=sys.stderr)
        return 1
    except OSError as error:
        if error.filename is None and error.errno in _NO_ROOM:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # as above
            print(f"acp-agent: the output cannot be written: {error.strerror}", file=sys.stderr)
            return 1
        if not (fault := _folder_fault()):
            raise
        print(f"acp-agent: the current folder cannot be used, go to one that exists: {fault}", file=sys.stderr)
        return 1
    return code


def _folder_fault() -> str:
    """Return why the current folder cannot be used, "" if it can."""
    try:
        os.getcwd()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _run(args: argparse.Namespace) -> int:
    """Import and run the subcommand. The others are not imported, which keeps the start fast."""
    command = "login" if getattr(args, "login", None) else args.command
    if command in (None, "acp"):
        from acp_agent import boot

        return boot.main(server_flags(args))
    if sys.__stdout__ is None and command in ("run", "demo"):
        raise AgentError("stdout is closed, so the conversation cannot be shown; redirect it to a file")
    _open_missing_streams()
    encoding = _terminal_encoding()
    _allow_any_character(encoding)
    if encoding and command == "run" and args.prompt is not None:
        args = argparse.Namespace(**vars(args) | {"prompt": os.fsencode(args.prompt).decode(encoding, "replace")})
    module, function = _ELSEWHERE.get(command, (command, command))
    with _interrupts_held():
        subcommand = getattr(importlib.import_module(f"acp_agent.cli.{module}"), function)
    return subcommand(args)


@contextmanager
def _interrupts_held() -> Generator[None]:
    """Hold SIGINT back until the end of the body. Python drops a KeyboardInterrupt in a callback of its importer."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _open_missing_streams() -> None:
    """Open the null device for each closed standard stream. Otherwise the next file or pipe would get its number."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False, encoding="utf-8")
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False, encoding="utf-8")
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False, encoding="utf-8")


def _terminal_encoding() -> str | None:
    """Return the encoding of the terminal if `__main__` chose UTF-8 for names of files, against the locale."""
    is_chosen = sys.orig_argv[1:3] == ["-X", "utf8=1"] and "PYTHONIOENCODING" not in os.environ
    return locale.getencoding() if is_chosen else None


def _allow_any_character(encoding: str | None) -> None:
    """Let stdin and stdout replace characters that they lack, such as ✔ in an old terminal; stderr escapes them."""
    for stream, errors in ((sys.stdin, "replace"), (sys.stdout, "replace"), (sys.stderr, "backslashreplace")):
        reconfigure = getattr(stream, "reconfigure", None)
        if callable(reconfigure):
            reconfigure(encoding=encoding, errors=errors)


def server_flags(args: argparse.Namespace) -> list[str]:
    """Return the given flags as the `--name value` pairs that `Flags.from_argv` reads.

    `--yes` of `run` is a flag of the server. As a session option it would be stored and hold for the next user of the
    session, who may not want it.
    """
    given: dict[str, str | None] = {
        "--config": args.config and os.path.abspath(os.path.expanduser(args.config)),
        "--model": getattr(args, "model", None),
        "--mode": getattr(args, "mode", None),
        "--titles": getattr(args, "titles", None),
        "--auto-approve": "full-auto" if getattr(args, "yes", False) else getattr(args, "auto_approve", None),
    }
    return [word for name, value in given.items() if value is not None for word in (name, value)]
