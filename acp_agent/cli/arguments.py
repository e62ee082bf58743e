"""What may stand on the command line."""

import argparse
from collections.abc import Callable
from typing import NoReturn

from acp_agent import __version__
from acp_agent.core.conduct import AutoApprove, Mode


class CommandLine(argparse.ArgumentParser):
    """A parser whose mistakes are one line on stderr and exit code 2."""

    def error(self, message: str) -> NoReturn:
        line = " ".join("".join(c if c.isprintable() else " " for c in message).split())
        self.exit(2, f"acp-agent: {line} (see `{self.prog} --help`)\n")


def command_line() -> CommandLine:
    """The whole grammar. The result has `command` (None for the server), `config` and the subcommand's own.

    An option that was not given is None.
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
    acp = _add(new, "acp", "serve an editor on stdin and stdout (the default)")
    _add_choices(acp)
    levels = [level.value for level in AutoApprove]
    acp.add_argument("--auto-approve", choices=levels, help=argparse.SUPPRESS)  # what `run --yes` stands for
    acp.add_argument("login", nargs="?", choices=["login"], help=argparse.SUPPRESS)  # editors append it to `acp`
    acp.set_defaults(provider=None, stdin=False, no_check=False, list=False)
    _add(new, "demo", "watch an editor and the agent mend a small project; needs no key and no network")
    run = _add(new, "run", "answer one prompt in this folder, asking for permissions on the terminal")
    run.add_argument("prompt", metavar="PROMPT", type=_text, help="what to do")
    run.add_argument("--yes", action="store_true", help="ask nothing; the blocklist and deny rules still hold")
    _add_choices(run)
    _add(new, "doctor", "check configuration, model, data folder and the programs used")
    config = _add(new, "config", "show the configuration in force, its file's path, or start a file")
    config.add_argument("action", choices=["show", "path", "init"])
    _add_keys(new)
    _add_sessions(_add(new, "sessions", "list, show, export or delete the conversations that are kept"))
    _add_check(_add(new, "check", "say what becomes of a path, a URL or a command, and why"))
    _add_audit(_add(new, "audit", "show the record of tool calls, or check that it is whole"))
    _add_filter(_add(new, "filter", "print what a model would read of a command's output, given on stdin"))
    _add(new, "redact", "print the text on stdin without the secrets in it")
    schema = _add(new, "schema", "print a JSON schema")
    schemas = ["audit", "config", "filter-rules", "tools"]
    schema.add_argument("name", metavar="NAME", choices=schemas, help="audit, config, filter-rules or tools")
    return parser


def _add(new: Callable[..., CommandLine], name: str, text: str) -> CommandLine:
    parser = new(name, help=text, description=text[0].upper() + text[1:] + ".", allow_abbrev=False)
    _add_config(parser, default=argparse.SUPPRESS)  # absent here, it must not undo one in front of the command
    return parser


def _add_config(parser: CommandLine, default: str | None) -> None:
    parser.add_argument("--config", metavar="FILE", type=_text, default=default, help="configuration file to use")


def _add_choices(parser: CommandLine) -> None:
    parser.add_argument("--model", metavar="PROVIDER:MODEL", type=_model, help="the model to use")
    parser.add_argument("--mode", choices=[mode.value for mode in Mode], help="what the agent may do")


def _add_keys(new: Callable[..., CommandLine]) -> None:
    login = _add(new, "login", "store a provider's API key in the keyring, or a private file where there is none")
    _add_provider(login, "whose key it is; asked for if not given")
    login.add_argument("--stdin", action="store_true", help="read the key from stdin")
    login.add_argument("--no-check", action="store_true", help="store it without asking the server whether it takes it")
    login.add_argument("--list", action="store_true", help="say which providers have a key, and from where")
    logout = _add(new, "logout", "remove stored API keys")
    _add_provider(logout, "whose; all of them if not given")


def _add_provider(parser: CommandLine, text: str) -> None:
    """`PROVIDER` and `--provider NAME` mean the same."""
    whose = parser.add_mutually_exclusive_group()
    absent = argparse.SUPPRESS  # else, not given, it would undo the option
    whose.add_argument("provider", metavar="PROVIDER", type=_text, nargs="?", default=absent, help=text)
    whose.add_argument("--provider", metavar="NAME", type=_text, help="the same")


def _add_sessions(parser: CommandLine) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    listed = _add(actions.add_parser, "list", "print the sessions, the last used first, a line each")
    where = listed.add_mutually_exclusive_group()
    where.add_argument("--cwd", metavar="DIR", type=_text, help="only those of this folder")
    where.add_argument("--all", action="store_true", help="those of every folder (the default)")
    listed.add_argument("-n", "--number", metavar="N", type=_count, default=20, help="how many (20)")
    listed.add_argument("--json", action="store_true", help="one JSON object a line")
    show = _add(actions.add_parser, "show", "print a session as text")
    show.add_argument("--json", action="store_true", help="its events, one JSON object a line")
    export = _add(actions.add_parser, "export", "write a session to a file")
    for action in (show, export):
        identity = action.add_argument("id", metavar="ID", type=_text, help="its id, or the first 4 characters or more")
    identity.required = False  # of an export, whose `--html ID` is looked at later
    export.set_defaults(misused=export.error)
    target = export.add_mutually_exclusive_group()
    target.add_argument("to", metavar="-", nargs="?", choices=["-"], help="an HTML page on standard output")
    page = "an HTML page, as is the default (acp-agent-ID.html in this folder)"
    target.add_argument("--html", metavar="FILE", type=_text, nargs="?", const=False, help=page)
    target.add_argument("--json", metavar="FILE", type=_text, help="JSON to import again; - for standard output")
    export.add_argument("--force", action="store_true", help="write over a file that is there")
    delete = _add(actions.add_parser, "delete", "delete sessions for good")
    delete.add_argument("ids", metavar="ID", nargs="+", type=_text, help="as for show")
    delete.add_argument("--yes", action="store_true", help="ask nothing")


def _add_check(parser: CommandLine) -> None:
    parser.epilog = (
        "Exit codes: 0 allowed, 1 denied or blocked, 2 wrong usage, 3 asked about; with --stdin 0 at the end of the "
        "lines."
    )
    kinds = ["path", "url", "command"]
    kind = parser.add_argument("kind", metavar="KIND", choices=kinds, help="path, url or command")
    target = parser.add_argument(
        "target", metavar="TARGET", help="the path, seen from this folder, the URL, or the command line"
    )
    # With nargs="?" instead, options could not stand between the two: argparse takes the second for missing then.
    kind.required = target.required = False
    parser.add_argument("--write", action="store_true", help="whether the path may be written, not read")
    parser.add_argument(
        "--resolve",
        metavar="HOST=IP[,IP]",
        type=_addresses,
        action="append",
        help="what a look-up of the URL's host answers; given again, what the next one does",
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
        help='judge one JSON object a line, {"path": ..., "write": true}, {"url": ..., "dns": {HOST: [[IP, ...], '
        '...]}} or {"command": ..., "rules": [{"pattern": ..., "action": ...}, ...]}, and print one verdict a line',
    )
    parser.set_defaults(misused=parser.error)


def _add_audit(parser: CommandLine) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    tail = _add(actions.add_parser, "tail", "print the last records, a line each")
    tail.add_argument("-n", "--lines", metavar="N", type=_count, default=20, help="how many (20)")
    tail.add_argument("-f", "--follow", action="store_true", help="go on with what is recorded from now on")
    show = _add(actions.add_parser, "show", "print the records of one call as JSON")
    show.add_argument("record", metavar="RECORD", type=_text, help="its number, or its id or the first 8 characters")
    verify = _add(actions.add_parser, "verify", "say whether a record was changed or taken out")
    for action in (tail, show, verify):
        action.add_argument("--file", metavar="FILE", type=_text, help="another file than the configured one")


def _add_filter(parser: CommandLine) -> None:
    # Not `command`: that is the subcommand's own name in the result.
    parser.add_argument("--command", metavar="CMD", dest="text", type=_text, required=True, help="what printed it")
    parser.add_argument("--exit", metavar="N", type=int, help="the code it exited with, if that is known")


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


def _model(value: str) -> str:
    from acp_agent.config.provider_settings import model_name

    try:
        return model_name(value)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected {error}, not {value!r}") from None
