"""The first gate: refuse commands that never run.

No rule, mode or approval lifts it. It is a tripwire and not a boundary: a model that may run `python` can do what
`curl` does.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import assert_never

from acp_agent.core.types import Allow, Ask, Deny, Verdict
from acp_agent.gates.gate import CallFacts, Gate
from acp_agent.gates.rules.deny_groups import find_in_groups
from acp_agent.gates.shell.command import Command, ShellText, Survey, survey
from acp_agent.gates.shell.danger import code_hazard, destructive, shell_texts
from acp_agent.gates.shell.options import has_option, operands, option_texts, tables

MAX_PATTERN = 64
"""The most characters of a program name with wildcards. No blocked name is longer."""

_COPY = "dd if="
_VARIABLE = re.compile(r"\$(?:\w+|\(\))")  # a variable of unknown value is taken for empty
_UNKNOWN = ("$", "`")
_SCRIPTS = frozenset(("sh", "bash", "py", "js", "mjs", "ts", "rb", "pl", "php", "lua"))


class Substitution(StrEnum):
    """What happens to commands with a substitution or a here-string."""

    BLOCK = "block"  # refused
    INSPECT = "inspect"  # judged by the commands inside; refused if these cannot be read
    ASK = "ask"  # the user decides


@dataclass(frozen=True, slots=True)
class BlocklistPolicy:
    """The settings of the blocklist, in addition to the fixed core. A changed configuration makes a new policy.

    blocked        further patterns: a program name (also `vault*`), or a program with words that must follow ("git push
                   --force"); case does not count, and options match in any order
    allowed        exceptions from the configurable part only: the network programs and `dd if=`
    substitution   what happens to commands with a substitution
    groups         the names of blocked groups of commands
    """

    blocked: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    substitution: Substitution = Substitution.BLOCK
    groups: tuple[str, ...] = ()

    def find(self, found: Survey) -> str:
        """Return the pattern that blocks a text, for the error message; empty if none does."""
        if found.hazards:
            return found.hazards[0]
        folder = ""
        for command in found.walk():
            pattern = self._match(command, folder)
            if pattern:
                return pattern
            if command.name in ("cd", "pushd"):
                folder = _folder(command, folder)
        return find_in_groups(found, self.groups, _matches)

    def _match(self, command: Command, folder: str) -> str:
        name = _VARIABLE.sub("", command.name).casefold()
        fixed = _named(name, _fixed()) or destructive(command, folder)
        return fixed or self._configured(command, name) or self._code(command)

    def _configured(self, command: Command, name: str) -> str:
        allowed = {each.strip().casefold() for each in self.allowed}
        network = _named(name, tables().danger["network"] - allowed)
        if network:
            return network
        if name == "dd" and not allowed & {_COPY, "dd"} and any(word.startswith("if=") for word in command.argv):
            return _COPY
        return next((pattern for pattern in self.blocked if _matches(pattern, command)), "")

    def _code(self, command: Command) -> str:
        """Return the pattern that blocks a command for a program text of another language (`python -c`, `awk`)."""
        for code in _codes(command):
            hazard = code_hazard(code)
            if hazard:
                return hazard
            for text in shell_texts(code):
                # Literals inside literals are not followed.
                for inner in survey(text).walk():
                    pattern = _named(inner.name.casefold(), _fixed()) or destructive(inner, "")
                    pattern = pattern or self._configured(inner, inner.name.casefold())
                    if pattern:
                        return pattern
        return ""


def find_blocked_command(text: str, policy: BlocklistPolicy) -> str:
    """Return the pattern that blocks a shell text; empty if none does."""
    return policy.find(survey(text))


class BlocklistGate(Gate):
    """Refuses blocked commands."""

    name = "blocklist"

    def __init__(self, policy: BlocklistPolicy) -> None:
        self._policy = policy

    def judge(self, facts: CallFacts) -> Verdict:
        verdicts = [judge(each, self._policy) for each in facts.commands]
        denied = next((each for each in verdicts if isinstance(each, Deny)), None)
        return denied or next((each for each in verdicts if isinstance(each, Ask)), Allow())


def judge(shell: ShellText, policy: BlocklistPolicy) -> Verdict:
    """Return the blocklist's verdict on a shell text."""
    if "\0" in shell.text:
        return Deny("blocklist: the command holds a NUL character")
    found = shell.survey
    pattern = policy.find(found)
    if pattern:
        return Deny(f"blocklist: the command matches '{pattern}'", rule=pattern)
    if found.unread:
        return Deny(f"blocklist: the command {found.unread} and cannot be checked")
    asking = find_in_groups(found, policy.groups, _matches, asking=True)
    if not found.constructs:
        return Ask(f"belongs to the group {asking}") if asking else Allow()
    kind = min(found.constructs)
    match policy.substitution:
        case Substitution.BLOCK:
            return Deny(f"blocklist: {kind} is not allowed; run the commands one by one and write the values out")
        case Substitution.INSPECT:
            dark = found.damage or any(command.name.startswith(_UNKNOWN) for command in found.walk())
            if dark:
                return Deny(f"blocklist: what the {kind} runs cannot be told")
            return Ask(f"belongs to the group {asking}") if asking else Allow()
        case Substitution.ASK:
            return Ask(f"uses a {kind}")
        case _:
            assert_never(policy.substitution)


def _fixed() -> frozenset[str]:
    danger = tables().danger
    return danger["privilege"] | danger["power"] | danger["disk_makers"]


def _named(name: str, names: frozenset[str]) -> str:
    """Return the blocked name that a program name means: itself, with an ending (`mkfs.ext4`), or a pattern (`su?o`).

    A script with such a name (`./reboot.sh`) is not blocked.
    """
    if name in names:
        return name
    stem, _, ending = name.partition(".")
    if stem in names and ending not in _SCRIPTS:
        return stem
    if len(name) <= MAX_PATTERN and any(char in name for char in "*?["):
        return next((each for each in sorted(names) if fnmatchcase(each, name)), "")
    return ""


def _matches(pattern: str, command: Command) -> bool:
    """Return whether a configured pattern matches: as the beginning of the command, or its words in any order."""
    words = pattern.casefold().split()
    name = command.name.casefold()
    if not words or not (_named(name, frozenset(words[:1])) or fnmatchcase(name, words[0])):
        return False
    args = [word.casefold() for word in command.argv[1:]]
    line = " ".join((words[0], *args))
    start = " ".join(words)
    if line == start or line.startswith(start if start[-1] in "=/" else f"{start} "):
        return True
    given = operands(args)
    wanted = operands(words[1:])
    options = [word for word in words[1:] if word.startswith("-")]
    # The subcommand may stand behind options with values (`git -C x push`), so it may be anywhere.
    return _in_order(wanted, given) and all(_has(args, option) for option in options)


def _in_order(wanted: list[str], given: list[str]) -> bool:
    rest: Iterator[str] = iter(given)
    return all(word in rest for word in wanted)


def _has(args: list[str], option: str) -> bool:
    if option.startswith("--"):
        return has_option(args, "", option)
    return option in args or all(has_option(args, letter) for letter in option[1:])


def _folder(command: Command, folder: str) -> str:
    """Return where a `cd` leads: an absolute folder, home, or a step from a known folder; empty if unclear."""
    target = next(iter(operands(command.argv[1:])), "~")
    if target.startswith(("/", "~")):
        return target
    return f"{folder}/{target}" if folder and not target.startswith("-") else ""


def _codes(command: Command) -> list[str]:
    known = tables().interpreter(command.name)
    if not known:
        return []
    args = command.argv[1:]
    codes = option_texts(tables().interpreters[known], args)
    plain = operands(args)
    if known.endswith("awk"):
        codes += plain[:1]
    if command.stdin and (not plain or plain[0] == "-"):
        codes.append(command.stdin)
    return codes
