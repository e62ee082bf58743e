"""`acp-agent check command`, `filter` and `redact`: what a session would do with a command line and with its output.

`check command` prints the verdict of the gates that a session has. `filter` prints the part of a command's output
that a model would read. `redact` prints a text without secrets.
"""

import argparse
import codecs
import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import anyio

from acp_agent.cli.check import EXIT_CODES, TOLD, print_lines, stored_answers
from acp_agent.cli.config import loaded_for, warn
from acp_agent.config.layers import RULES, Layer, Reader, key_of
from acp_agent.config.load import Loaded, options_at_start
from acp_agent.core.data import frozen
from acp_agent.core.errors import AgentError, ConfigError
from acp_agent.core.ports import Invocation, never_run
from acp_agent.core.session_options import AutoApprove
from acp_agent.core.types import CommandSubject, Json, JsonObject, OutputStats, ToolCall
from acp_agent.core.untrusted import json_value, toml_table
from acp_agent.gates.gate import Gates
from acp_agent.gates.git_calls import may_call_git
from acp_agent.gates.grants import GrantStore
from acp_agent.gates.permission import PermissionGate
from acp_agent.gates.rules.permission_rules import Rule
from acp_agent.gates.shell.command import Analysis, Command, Opaque, Plain, ShellText
from acp_agent.gates.shell.printing import printing_commands
from acp_agent.output.filters.strategy import CommandRun, Filtered
from acp_agent.output.pipeline import redaction_note, shortened, stats_line
from acp_agent.output.sanitize import faithful
from acp_agent.session.toolset.gate_factory import GateContext, build_gates, permission_gate, reads_everything
from acp_agent.session.toolset.sandboxing import contains_commands, refuses_commands, sandbox_status
from acp_agent.session.toolset.settings import (
    FolderRules,
    Warn,
    compiled_rules,
    filter_engine,
    known_secrets,
    permission_rules,
    redactor,
)
from acp_agent.session.verdicts import Finding, Word, examined, judged
from acp_agent.text import measure, plain
from acp_agent.tools.bash import Bash
from acp_agent.workspace.processes.environment import child_environment
from acp_agent.workspace.roots import Roots

if TYPE_CHECKING:
    from acp_agent.tools.custom import CustomTool

_LONGEST_FILE = 1024 * 1024  # bytes of a file of rules or of a custom tool
_KEPT = 256  # sets of rules that are cached


@frozen
class CommandVerdict(Finding):
    """The verdict on a command line.

    analysis   the commands in the line, or the reason why they are unknown
    """

    command: str
    analysis: Analysis

    def to_json(self) -> JsonObject:
        """Return the object that `--stdin` prints: command, verdict, rule, reasons, commands, opaque."""
        match self.analysis:
            case Plain(commands):
                listed: list[Json] | None = [list(command.argv) for command in commands]
                opaque = None
            case Opaque(opaque):
                listed = None
        return {
            "command": self.command,
            "verdict": self.word,
            "rule": self.rule or None,
            "reasons": list(self.reasons),
            "commands": listed,
            "opaque": opaque,
        }

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield the verdict for the user as pairs of a label and a text."""
        yield TOLD[self.word], self.command
        if self.rule:
            yield "rule", self.rule
        yield from (("reason", reason) for reason in self.reasons)
        match self.analysis:
            case Plain(commands):
                for command in commands:
                    yield from _told(command, command.joined)
            case Opaque(reason):
                yield "opaque", reason


def _told(command: Command, joined: str) -> Iterator[tuple[str, str]]:
    words = [*command.assignments, shlex.join(command.argv), *map(str, command.redirections)]
    yield "runs" if joined != "starts" else "", " ".join(filter(None, (joined, *words)))
    for inner in command.runs:
        yield from _told(inner, "starts")


class CommandJudge:
    """Judges command lines as a session in this folder would. It runs none of them and asks no question.

    It asks git, as the session does, which files a line would bring into the worktree. It has the approval level with
    which a session starts, and the sandbox of this machine.

    files, shell    the directories of a session, for its file tools and for its commands
    rules           rules for bash instead of the configured ones; the user's "always" answers do not count then

    A damaged file of "always" answers is renamed, as in a session.
    """

    def __init__(
        self, loaded: Loaded, files: Roots, shell: Roots, warn: Warn, rules: tuple[Rule, ...] | None = None
    ) -> None:
        start = options_at_start(loaded)
        self._level = start.auto_approve
        self._loaded = loaded
        contained = contains_commands(loaded.settings)
        self._contexts = {
            level: GateContext(replace(start, auto_approve=level), files, shell, contained=contained)
            for level in AutoApprove
        }
        self._spec = Bash().spec()
        self._no_answers = GrantStore(os.devnull, warn)
        self._compiled: dict[str, tuple[Rule, ...]] = {}
        self._all_readable = reads_everything(loaded)
        if rules is not None:
            self._rules, self._answers = {self._spec.name: rules}, self._no_answers
        else:
            self._rules, self._answers = permission_rules(loaded, warn), stored_answers(loaded, warn)
        self._gates = self._gates_at(self._level, warn)

    def verdict(self, text: str, rules: tuple[Rule, ...] | None = None, custom: str = "") -> CommandVerdict:
        """Judge one command line, by `rules` if they are given, else by those in force.

        custom   the name of the custom tool whose command it is
        """
        gates = self._gates
        if rules is not None:
            permission = self._permission(self._level, {self._spec.name: rules}, self._no_answers)
            gates = replace(gates, in_order=(*gates.in_order[:-1], permission))
        return self._judge(text, gates, custom)

    def page(self, text: str, custom: str = "") -> tuple[Word, list[tuple[str, str]]]:
        """Return the verdict, and all lines for the user, as pairs of a label and a text.

        They name the sandbox in which the command would run, and the approval levels with another verdict.

        custom   the name of the custom tool whose command it is
        """
        found = self.verdict(text, custom=custom)
        lines = [*found.lines()]
        sandbox = sandbox_status(self._loaded.settings) if found.word in ("allow", "ask") else "off"
        if sandbox != "off":
            lines.append(("sandbox", sandbox))
        words = {
            level: self._judge(text, self._gates_at(level, lambda _told_already: None), custom).word
            for level in AutoApprove
            if level is not self._level
        }
        if others := [f"{level}: {TOLD[word]}" for level, word in words.items() if word != found.word]:
            lines.append(("level", "; ".join((f"this is for {self._level}", *others))))
        return found.word, lines

    def _judge(self, text: str, gates: Gates, custom: str = "") -> CommandVerdict:
        call = ToolCall("check", custom or self._spec.name, {"command": text})
        facts = gates.facts(Invocation(call, self._spec, text, never_run, (CommandSubject(text),)))
        found = anyio.run(examined, facts, gates.in_order) if may_call_git(text) else judged(facts, gates.in_order)
        word, reasons = found.word, found.reasons
        if word in ("allow", "ask") and refuses_commands(self._loaded.settings):
            word, reasons = "deny", (f"sandbox: {sandbox_status(self._loaded.settings)}",)
        return CommandVerdict(word, found.gate, found.rule, reasons, text, facts.commands[0].analysis)

    def _gates_at(self, level: AutoApprove, warn: Warn) -> Gates:
        permission = self._permission(level, self._rules, self._answers)
        return build_gates(self._loaded, self._contexts[level], permission, warn)

    def _permission(
        self, level: AutoApprove, rules: Mapping[str, tuple[Rule, ...]], answers: GrantStore
    ) -> PermissionGate:
        return permission_gate(rules, self._contexts[level], answers, all_readable=self._all_readable)

    def rules_of(self, given: Json) -> tuple[Rule, ...]:
        """Return the rules for bash of a line of `--stdin`. They are cached. Raises ConfigError."""
        text = json.dumps(given)
        if text not in self._compiled:
            if len(self._compiled) >= _KEPT:
                self._compiled.clear()
            self._compiled[text] = _rules('"rules"', given)
        return self._compiled[text]


def rules_in(path: str) -> tuple[Rule, ...]:
    """Return the rules for bash in a file: TOML with [[tools.permissions.bash]], or a JSON list. Raises ConfigError."""
    data = _content(path)
    if len(data) > _LONGEST_FILE:
        raise ConfigError(path, "", "", f"expected at most {_LONGEST_FILE} bytes")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(path, "", "", f"expected UTF-8: {error}") from error
    try:
        return _rules(path, json_value(text))
    except ValueError as error:
        why_no_json = error
    try:
        table = cast("object", toml_table(text))
    except ValueError as error:
        is_list = text.lstrip().startswith(("[{", "[ {", "[\n"))
        why = f"expected JSON: {why_no_json}" if is_list else f"expected TOML: {error}"
        raise ConfigError(path, "", "", why) from None
    for name in f"{RULES}.bash".split("."):
        table = cast("dict[str, object]", table).get(name) if isinstance(table, dict) else None
    if table is None:
        raise ConfigError(path, "", "", f"expected [[{RULES}.bash]] in it, or a JSON list of rules")
    return _rules(path, table)


def _content(path: str) -> bytes:
    """Return the content of a file, at most one byte more than is allowed. Raises ConfigError."""
    try:
        with open(path, "rb") as file:
            return file.read(_LONGEST_FILE + 1)
    except OSError as error:
        raise ConfigError(path, "", "", f"expected a file that can be read ({error.strerror})") from error


def _rules(where: str, raw: object) -> tuple[Rule, ...]:
    reader, layer, name = Reader(), Layer(), f"{RULES}.bash"
    reader.take(layer, key_of(name), raw, where, parts=False)
    if reader.problems:
        raise reader.problems[0]
    return compiled_rules(where, layer.rules(name))


def custom_tool(args: argparse.Namespace) -> int:
    """Print the schema of a custom tool, an example of its command, and the verdict of the gates on it.

    Return the exit code of `check`. Raises AgentError for a file that is not a tool.
    """
    from acp_agent.tools.custom import check, example  # noqa: PLC0415 - only this subcommand needs it

    tool = _tool_in(args.file)
    if args.arguments is None:
        arguments = example(tool)
    else:
        try:
            arguments = json_value(args.arguments)
        except ValueError as error:
            raise ConfigError(args.file, "arguments", args.arguments, f"JSON: {error}") from None
        if not isinstance(arguments, dict):
            raise ConfigError(args.file, "arguments", args.arguments, "a JSON object")
        check(tool, arguments)
    print(json.dumps({"name": tool.name, "description": tool.description, "parameters": tool.parameters}, indent=2))
    cwd = os.getcwd()
    loaded = loaded_for(args, cwd)
    rules = FolderRules(loaded, cwd)
    with rules.roots() as roots, rules.roots(for_shell=True) as shell:
        word, lines = CommandJudge(loaded, roots, shell, warn).page(tool.rendered(arguments), tool.name)
    seen = child_environment(os.environ, loaded.settings.tools.shell.env_allow) if tool.env else ()
    lines += [("variable", f"{name} is not passed on to commands") for name in tool.env if name not in seen]
    print_lines([("example", json.dumps(arguments, ensure_ascii=False)), *lines])
    return EXIT_CODES[word]


def _tool_in(path: str) -> "CustomTool":
    """Return the custom tool in a file. Raises AgentError for the first thing that is wrong with it."""
    from acp_agent.extend.custom_tools import CustomTools  # noqa: PLC0415 - likewise
    from acp_agent.extend.sources import SourceFile, SourceKind  # noqa: PLC0415 - likewise
    from acp_agent.session.toolset.extensions import reserved_tools  # noqa: PLC0415 - likewise

    name, data = os.path.splitext(os.path.basename(path))[0], _content(path)[:_LONGEST_FILE]
    tools = CustomTools(reserved_tools(), plain)
    tools.read((SourceFile(SourceKind.TOOLS, name, os.path.abspath(path), path, data, ""),))
    fatal = next((each for each in tools.problems if not each.minor), None)
    for problem in tools.problems:
        if problem is not fatal:
            warn(str(problem))
    if fatal is not None:
        raise AgentError(str(fatal))
    if not tools.all:
        raise AgentError(f"{path}: enabled = false")
    return tools.all[0]


def filtered(args: argparse.Namespace) -> int:
    """Print the text sanitized, redacted and filtered, but never cut. Print on stderr what was changed.

    The filters need the whole text, so stdin is read to its end first.
    """
    loaded = loaded_for(args, os.getcwd())
    raw = sys.stdin.buffer.read().decode("utf-8", "replace")
    clean = redactor(loaded, known_secrets(os.environ, loaded.settings.llm.providers), warn).redact(
        faithful(raw, terminal=True)
    )
    run = CommandRun(args.text, printing_commands(ShellText(args.text)), args.exit)
    engine = filter_engine(loaded)
    if engine is None:
        raise SystemExit("acp-agent: the filters are off; set tools.filters.enabled = true in the configuration")
    for fault in engine.warnings:
        warn(fault)
    found = shortened(clean.text, run, engine)
    text = clean.text if found is None else found.text
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))
    if text and not text.endswith("\n"):
        sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()
    for line in filter(None, (_statistics(measure(raw, text), found), redaction_note(clean.found))):
        print(line, file=sys.stderr)
    return 0


def _statistics(stats: OutputStats, found: Filtered | None) -> str:
    if found is None:
        return "[filter] no filter rule matches this command"
    rules = "+".join(found.rules)
    line = stats_line(stats, rules) or f"[{rules}] {stats.raw_lines} lines, none removed"
    saved = 1 - stats.shown_chars / stats.raw_chars if stats.raw_chars else 0.0
    chars = f"{stats.raw_chars} chars -> {stats.shown_chars}, {saved:.1%} saved"
    return f"{line}; {chars}; confidence {found.confidence.value}"


_CHUNK = 1 << 16


def redact(args: argparse.Namespace) -> int:
    """Copy stdin to stdout without secrets, in constant memory. Colours and bytes that are not UTF-8 are unchanged."""
    loaded = loaded_for(args, os.getcwd())
    stream = redactor(loaded, known_secrets(os.environ, loaded.settings.llm.providers), warn).stream()
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    while chunk := os.read(sys.stdin.fileno(), _CHUNK):
        _write(stream.feed(decoder.decode(chunk)))
    _write(stream.feed(decoder.decode(b"", final=True)) + stream.finish())
    return 0


def _write(text: str) -> None:
    if text:
        sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
        sys.stdout.buffer.flush()
