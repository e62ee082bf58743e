"""Refuse commands that never run. Only the gate that runs hooks after calls comes before this one.

No rule, mode or approval lifts it. It is a tripwire and not a boundary: a model that may run `python` can do what
`curl` does.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cache, cached_property
from typing import NamedTuple, assert_never

from acp_agent.core.types import Allow, Ask, Deny, Verdict
from acp_agent.gates.gate import CallFacts, Gate
from acp_agent.gates.rules.deny_groups import find_in_groups, patterns_for
from acp_agent.gates.shell.command import MAX_FOUND, Command, Construct, ShellText, Survey, is_cut
from acp_agent.gates.shell.danger import code_hazard, destructive, shell_texts
from acp_agent.gates.shell.options import has_option, operands, option_texts, shortest, tables
from acp_agent.gates.shell.programs import program_table
from acp_agent.gates.shell.words import OUTPUT

MAX_PATTERN = 1024
"""The most characters of a program name with wildcards. A longer one is refused."""

_COPY = "dd if="
_UNREAD_CODE = "code with texts that are too long to be checked"
_VARIABLE = re.compile(r"\$(?:\w+|\(\))")  # a variable of unknown value is taken for empty
_WILD = re.compile(r"[*?\[]")
_STARS = re.compile(r"\*{2,}")
# Without user info, escapes, sets and choices, so that every program takes the same host from the URL.
_LOOPBACK = re.compile(
    r"(?:https?://)?(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d{1,5})?(?:[/?#][\w./?&=%+:,;~!*()'#-]*)?",
    re.IGNORECASE,
)


class _Transfer(NamedTuple):
    """Options of a download program. With these alone, hosts stand only in operands, and files only behind options.

    letters, words   short and long options without a value
    valued, named    short and long options with a value
    due              one option of each set is needed; without it the server chooses a file's name or another host
    """

    letters: str
    words: frozenset[str]
    valued: str
    named: frozenset[str]
    due: tuple[frozenset[str], ...] = ()


_TRANSFERS = {
    "curl": _Transfer(
        "#sSfviI46kNG0",
        frozenset(
            (
                *("--silent", "--show-error", "--fail", "--fail-with-body", "--verbose", "--include", "--head"),
                *("--insecure", "--compressed", "--no-buffer", "--get", "--retry-connrefused", "--no-progress-meter"),
            )
        ),
        "XdHowmAbcFu",
        frozenset(
            (
                *("--request", "--data", "--data-raw", "--data-binary", "--data-urlencode", "--json", "--header"),
                *("--form", "--output", "--write-out", "--max-time", "--connect-timeout", "--retry", "--retry-delay"),
                *("--user", "--user-agent", "--cookie", "--cookie-jar"),
            )
        ),
    ),
    "wget": _Transfer(
        "qSv46",
        frozenset(("--quiet", "--no-verbose", "--server-response", "--spider", "--no-check-certificate")),
        "OtTU",
        frozenset(("--output-document", "--tries", "--timeout", "--header", "--post-data", "--max-redirect")),
        (frozenset(("--max-redirect=0",)), frozenset(("-O", "--output-document", "--spider"))),
    ),
}

_UNKNOWN = ("$", "`")
_SCRIPTS = frozenset(("sh", "bash", "py", "js", "mjs", "ts", "rb", "pl", "php", "lua"))


class Substitution(StrEnum):
    """The treatment of commands with a substitution or a here-string."""

    BLOCK = "block"  # refused
    INSPECT = "inspect"  # judged by the commands inside; refused if these cannot be read
    ASK = "ask"  # the user decides


@dataclass(slots=True)
class _Codes:
    """The patterns that block the program texts of one text, and the literals in them with their numbers of commands.

    A command of which there are many forms has the same program text in most of them.
    """

    whole: dict[tuple[str, bool], str] = field(default_factory=dict[tuple[str, bool], str])
    literals: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])


@dataclass(frozen=True)
class BlocklistPolicy:
    """The settings of the blocklist, in addition to the fixed core. A changed configuration makes a new policy.

    blocked        further patterns: a program name (also `vault*`), or a program with words that must follow ("git push
                   --force"); case does not count, and options match in any order
    allowed        names that are not blocked. Only network programs and `dd if=` can be excepted
    substitution   what happens to commands with a substitution
    groups         the names of blocked groups of commands
    """

    blocked: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    substitution: Substitution = Substitution.INSPECT
    groups: tuple[str, ...] = ()

    def find(self, found: Survey) -> str:
        """Return the pattern that blocks a text, for the error message; empty if none does."""
        if found.hazards:
            return found.hazards[0]
        folder, here = "", not any(map(_sets_variables, found.walk()))  # a variable may name a proxy
        codes = _Codes()
        for command in found.walk():
            pattern = self._match(command, folder, codes, here=here and _stays_here(command))
            if pattern:
                return pattern
            if command.name in ("cd", "pushd"):
                folder = _folder(command, folder)
        for command in (inner for each in found.ahead for inner in each.walk()):
            pattern = self._match(command, "", codes, here=here and _stays_here(command))
            if pattern:
                return pattern
        return find_in_groups(found, self.groups, _matches)

    def _match(self, command: Command, folder: str, codes: _Codes, *, here: bool) -> str:
        name = _VARIABLE.sub("", command.name).casefold()
        pattern = ("" if here else _named(name, self._names)) or destructive(command, folder)
        if not pattern and (self.blocked or name == "dd"):
            pattern = self._configured(command, name)
        interpreter = "" if pattern else tables().interpreter(command.name)
        for code in _codes(command, interpreter) if interpreter else ():
            pipes = interpreter.endswith("awk")
            if (code, pipes) not in codes.whole:
                codes.whole[code, pipes] = self._in_code(code, codes, pipes=pipes)
            pattern = pattern or codes.whole[code, pipes]
        return pattern

    def _in_code(self, code: str, codes: _Codes, *, pipes: bool) -> str:
        """Return the pattern that blocks a program text of another language; empty if none does."""
        hazard = _UNREAD_CODE if is_cut(code) else code_hazard(code)
        if hazard:
            return hazard
        # It holds shell texts. Literals inside literals are not followed.
        beside, left = ShellText(code), MAX_FOUND
        for text in shell_texts(code, pipes=pipes):
            if text not in codes.literals:
                found = ShellText(text, beside).survey
                codes.literals[text] = self._in_literal(found), len(found.commands)
            pattern, commands = codes.literals[text]
            left -= commands
            if pattern or left < 0:
                return pattern or _UNREAD_CODE
        return ""

    def _in_literal(self, found: Survey) -> str:
        if found.hazards or found.unread:
            return found.hazards[0] if found.hazards else _UNREAD_CODE
        for inner in found.walk():
            name = inner.name.casefold()
            pattern = _named(name, self._names) or destructive(inner, "") or self._configured(inner, name)
            if pattern:
                return pattern
        return ""

    @cached_property
    def _allowed(self) -> frozenset[str]:
        return frozenset(each.strip().casefold() for each in self.allowed)

    @cached_property
    def _names(self) -> frozenset[str]:
        """The names of blocked programs, in lower case."""
        danger = tables().danger
        return danger["privilege"] | danger["power"] | danger["disk_makers"] | (danger["network"] - self._allowed)

    def _configured(self, command: Command, name: str) -> str:
        if name == "dd" and self._allowed.isdisjoint((_COPY, "dd")) and any(w.startswith("if=") for w in command.argv):
            return _COPY
        for pattern in patterns_for(self.blocked, command.name):
            if _matches(pattern, command):
                return pattern
        return ""


class BlocklistGate(Gate):
    """A gate that refuses blocked commands."""

    name = "blocklist"

    def __init__(self, policy: BlocklistPolicy) -> None:
        self._policy = policy

    def judge(self, facts: CallFacts) -> Verdict:
        asked: Verdict = Allow()
        for line in facts.commands:
            verdict = judge(line, self._policy, contained=facts.contained)
            if isinstance(verdict, Deny):
                return verdict
            asked = asked if isinstance(asked, Ask) else verdict
        return asked


_BLOCKED = "the command is blocked, because it"
_WRITE_OUT = "Write the command out."
_QUOTE = f"{_WRITE_OUT} Text with backquotes belongs in single quotes: in double quotes the shell runs it."
_ADVICE = "Do it without this command, or tell the user what to run."


def judge(shell: ShellText, policy: BlocklistPolicy, *, contained: bool = False) -> Verdict:
    """Return the blocklist's verdict on a shell text.

    contained   whether a sandbox limits what it can delete, so that unknown names of files do not ask
    """
    if "\0" in shell.text:
        return Deny(f"{_BLOCKED} holds a NUL character")
    found = shell.survey
    pattern = policy.find(found)
    if pattern:
        return Deny(f"{_BLOCKED} matches '{pattern}'{_instead(pattern)}", rule=pattern, advice=_ADVICE)
    if found.unread:
        return Deny(f"{_BLOCKED} {found.unread} and cannot be checked", advice="Write it out plainly.")
    asking = find_in_groups(found, policy.groups, _matches, asking=True)
    if not found.constructs:
        return Ask(f"belongs to the group {asking}") if asking else Allow()
    kind = min(found.constructs)
    match policy.substitution:
        case Substitution.BLOCK:
            return Deny(f"{_BLOCKED} uses a {kind}; run the commands one by one and write the values out")
        case Substitution.INSPECT:
            return _inspected(found, kind, contained=contained) or (
                Ask(f"belongs to the group {asking}") if asking else Allow()
            )
        case Substitution.ASK:
            return Ask(f"uses a {kind}")
        case _:
            assert_never(policy.substitution)


def _inspected(found: Survey, kind: str, *, contained: bool) -> Verdict | None:
    """Return the verdict on a text because of what a substitution may print; None if that is harmless."""
    if found.damage or any(map(_runs_output, found.walk())):
        advice = _QUOTE if kind == Construct.BACKTICK else _WRITE_OUT
        return Deny(f"the command is blocked, because what the {kind} runs cannot be told", advice=advice)
    removed = None if contained else next(filter(_removes_output, found.walk()), None)
    return removed and Ask(f"a {kind} names what {removed.name} deletes", firm=True)


def _instead(pattern: str) -> str:
    """Return what is permitted in place of a blocked command, for the model; empty if nothing is."""
    if pattern in _TRANSFERS:
        redirects = "without -L" if pattern == "curl" else "with --max-redirect=0 and -O"
        return f"; a plain URL of this machine is permitted ({pattern} {redirects}), and `fetch` reads public pages"
    return "; `fetch` reads public pages" if pattern in tables().danger["network"] else ""


def _sets_variables(command: Command) -> bool:
    return bool(command.assignments) or (command.name in program_table().state and command.name != "set")


def _stays_here(command: Command) -> bool:
    """Return whether a download is from this machine: each of its URLs, and nothing names another host."""
    known = _TRANSFERS.get(command.name)
    if known is None or not command.standard or command.runs:
        return False
    if any("%output{" in word for word in command.argv):  # curl writes to the file that this format names
        return False
    words, urls, given = list(command.argv[1:]), 0, set[str]()
    while words:
        word = words.pop(0)
        if not word.startswith("-"):
            urls += 1
            if _LOOPBACK.fullmatch(word) is None:
                return False
        elif word.startswith("--"):
            name, equals, _ = word.partition("=")
            given.update((name, word))
            if any(each.startswith(f"{name}=") and each != word for due in known.due for each in due):
                return False
            if name in known.named:
                words = words if equals else words[1:]
            elif equals or name not in known.words:
                return False
        else:
            rest = word[1:].lstrip(known.letters)
            if not rest:
                continue
            if rest[0] not in known.valued:
                return False
            given.add(f"-{rest[0]}")
            words = words if rest[1:] else words[1:]
    return urls > 0 and not any(each.isdisjoint(given) for each in known.due)


def _runs_output(command: Command) -> bool:
    """Return whether another command's output is the name of this one, or its script if it is a shell."""
    if any(mark in command.name for mark in _UNKNOWN):
        return True
    script = command.name in tables().shells or command.name in ("source", ".")
    return script and any(word.startswith(OUTPUT) for word in command.argv[1:])


def _removes_output(command: Command) -> bool:
    """Return whether another command prints the names of what this one deletes."""
    takes = command.name in tables().danger["removers"] or (command.name == "find" and "-delete" in command.argv)
    return takes and any(OUTPUT in word for word in command.argv[1:])


def _named(name: str, names: frozenset[str]) -> str:
    """Return the blocked name that a program name means: itself, with an ending (`mkfs.ext4`), or a pattern (`su?o`).

    A script with such a name (`./reboot.sh`) is not blocked.
    """
    if name in names:
        return name
    stem, _, ending = name.partition(".")
    if stem in names and ending not in _SCRIPTS:
        return stem
    if not _WILD.search(name):
        return ""
    name = _STARS.sub("*", name)
    if len(name) > MAX_PATTERN:
        return "a long pattern that names a program"
    least = shortest(name)
    return next((each for each in sorted(names) if len(each) >= least and fnmatchcase(each, name)), "")


@cache
def _pattern_words(pattern: str) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the words of a configured pattern in lower case, and the program's name."""
    words = tuple(pattern.casefold().split())
    return words, frozenset(words[:1])


def _matches(pattern: str, command: Command) -> bool:
    """Return whether a configured pattern matches: as the beginning of the command, or its words in any order."""
    words, names = _pattern_words(pattern)
    name = command.name.casefold()
    if not words or not (_named(name, names) or fnmatchcase(name, words[0])):
        return False
    args = [word.casefold() for word in command.argv[1:]]
    line = " ".join((words[0], *args))
    start = " ".join(words)
    if line == start or line.startswith(start if start[-1] in "=/" else f"{start} "):
        return True
    given: Iterator[str] = iter(operands(args))
    # The subcommand may stand behind options with values (`git -C x push`), so it may be anywhere.
    in_order = all(word in given for word in operands(words[1:]))
    return in_order and all(_has(args, word) for word in words[1:] if word.startswith("-"))


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


def _bundled(options: frozenset[str], args: tuple[str, ...]) -> Iterator[str]:
    """Yield the values of short options that stand behind others in one word: `perl -we CODE`, `python -Ic CODE`."""
    letters = {option[1] for option in options if len(option) == 2}
    for index, word in enumerate(args):
        if word[:1] != "-" or word[:2] == "--" or word[:2] in options:
            continue
        at = next((at for at, letter in enumerate(word) if letter in letters), 0)
        if at:
            yield word[at + 1 :] or " ".join(args[index + 1 : index + 2])


def _codes(command: Command, interpreter: str) -> list[str]:
    """Return the program texts that a command gives to an interpreter (`python -c`, `awk`)."""
    args = command.argv[1:]
    options = tables().interpreters[interpreter]
    codes = [*option_texts(options, args), *_bundled(options, args)]
    plain = operands(args)
    if interpreter.endswith("awk"):
        codes += plain  # the first one may be the value of an option, as in `awk -F : CODE`
    if command.stdin and (not plain or plain[0] == "-"):
        codes.append(command.stdin)
    return codes
