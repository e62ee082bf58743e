"""What may stand on the command line."""

import argparse
from collections.abc import Callable
from typing import NoReturn

from acp_agent import __version__
from acp_agent.core.conduct import Mode


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
    _add(new, "demo", "watch an editor and the agent mend a small project; needs no key and no network")
    run = _add(new, "run", "answer one prompt in this folder, asking for permissions on the terminal")
    run.add_argument("prompt", metavar="PROMPT", type=_text, help="what to do")
    run.add_argument("--yes", action="store_true", help="ask nothing; the blocklist and deny rules still hold")
    _add_choices(run)
    _add(new, "doctor", "check configuration, model, data folder and the programs used")
    config = _add(new, "config", "show the configuration in force, its file's path, or start a file")
    config.add_argument("action", choices=["show", "path", "init"])
    schema = _add(new, "schema", "print a JSON schema")
    schema.add_argument("name", metavar="NAME", choices=["config", "tools"], help="config or tools")
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
