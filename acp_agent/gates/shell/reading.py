"""The two readings of a text: proven commands for rules that allow, every command for gates that forbid."""

import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby, islice

from acp_agent.core.data import frozen
from acp_agent.gates.shell.command import (
    CUT,
    DAMAGED,
    MAX_BYTES,
    MAX_DEPTH,
    MAX_FOUND,
    Analysis,
    Command,
    Construct,
    Opaque,
    Plain,
    Survey,
    is_cut,
)
from acp_agent.gates.shell.danger import judges_words
from acp_agent.gates.shell.guesses import TOO_MANY_WORDS, Candidate, Guesses, split_by
from acp_agent.gates.shell.lines import READS, ReadingText, ReadLines
from acp_agent.gates.shell.options import shell_call, system_root, tables
from acp_agent.gates.shell.plain import why_not_plain
from acp_agent.gates.shell.syntax import Parses
from acp_agent.gates.shell.walk import Walk
from acp_agent.gates.shell.words import (
    GLOB,
    MAX_SPREAD,
    PRINTERS,
    Word,
    count_variants,
    emptied,
    expand_braces,
    few_variants,
    most_words,
    parameters,
    pattern,
    program_of,
    unchanged,
    unknown,
    variants,
)
from acp_agent.gates.shell.wrappers import WORD_RUNNERS, Expander, Nested
from acp_agent.text import lazy_regex

SURVEY_BYTES = 4 * MAX_BYTES
"""A survey does not read longer texts, and gates that forbid then forbid them. A here-document may be long."""

MAX_READINGS = 500
"""The most texts inside a text (of shells, of called functions) that a survey reads. Others stay unread."""

MAX_AHEAD = 1000
"""The most commands that are read of loops with the lines that they read."""

MAX_NESTED = 3
"""The most loops inside loops that are read with the lines that they read."""

_TOO_MANY_COMMANDS = f"may run more than {MAX_FOUND} commands"

_WELL_KNOWN = {
    "IFS": (" ",),
    "HOME": ("~",),
    "PWD": (".",),
    "SHELL": ("/bin/bash",),
    "BASH": ("/bin/bash",),
}
_LISTERS = ("find", "ls", "fd", "du")
_DECODERS = {
    "base64": ("-d", "-D", "--d"),
    "base32": ("-d", "-D", "--d"),
    "basenc": ("-d", "--d"),
    "openssl": ("-d", "-base64"),
    "xxd": ("-r", "-p", "-ps"),
    "uudecode": ("",),
    "zcat": ("",),
    "gzcat": ("",),
    "bzcat": ("",),
    "xzcat": ("",),
    "zstdcat": ("",),
    "gzip": ("-d", "-c", "--d"),
    "gunzip": ("",),
    "rev": ("",),
    "tr": ("",),
}

_DESCRIPTOR = lazy_regex(r"\{\w+\}(?=[<>])")
_TRANSLATED = lazy_regex(r'(?<!\\)((?:\\\\)*)\$(?=")')
_SPLIT_WORD = lazy_regex(r"(?<=[\"'}])(?<!\$')\\(?=[A-Za-z])")
_VARIABLE = r"(?<!\\)\$(?:[@*1-9]|\{[@*1-9]\}|[A-Za-z_]\w*+|\{[A-Za-z_]\w*\})"
_VARIABLE_BEFORE_LETTER = lazy_regex(_VARIABLE + r"(?=(?:[\"'$]|\\\n)*[A-Za-z{\\])")
_VARIABLE_BEHIND_LETTER = lazy_regex(r"([A-Za-z}](?:[\"']|\\\n)*)" + _VARIABLE)
_OFFSET = lazy_regex(r"(\$\{\w+:(?:(?: -)?\w*:)?)[ \t]*\$(?:(\w+)|\{(\w+)\})")
_TOGGLED = lazy_regex(r"\$\{\w+~~?[^{}]*\}")
_TIMED = lazy_regex(r"(?:\btime\b(?:[ \t]+-p)?|!)[ \t]+(?=(?:while|until|for|if|case|select)\b|[({])")
_CONTINUATION = lazy_regex(r"\\\r?\n")
_NEEDLESS = lazy_regex(r"(?<!<)(?<!<-)(?<!< )\\([A-Za-z0-9_./-])")  # behind `<<` it quotes a here-document
_SINGLE_QUOTED = lazy_regex(r"\\.|'[^']*'", re.DOTALL)
_CONSTRUCT = lazy_regex(r"\$\((?!\()|`|[<>]\(|<<<")
_REDIRECTION = lazy_regex(r"\d*+(?:<<-?|[<>]++[&|]?)[ \t]*+[^\s;&|<>()`]++")
_SEGMENT = lazy_regex(r"&&|\|\||[;&|\n()`]")
_LIST = lazy_regex(r"\{[^{}\n]*\}")
_NOISE = lazy_regex(r"[\"'\\{}<>]|\$(?=[\"'])")
_LONGEST = 16 * 1024  # the most characters of a word whose braces are expanded
_LINES = {"\r": "\n", "\x0b": "\n", "\x0c": "\n", "\x85": "\n", "\u2028": "\n", "\u2029": "\n"}


def analyse(text: str, parses: Parses, depth: int = 0) -> Analysis:
    """Return the commands that a text is proven to run; see `acp_agent.gates.shell.command.ShellText`."""
    parsed = parses.parse(text, MAX_BYTES)
    if isinstance(parsed, str):
        return Opaque(parsed)
    reason = why_not_plain(text, parsed)
    if reason:
        return Opaque(reason)

    def read(inner: str, _values: Mapping[str, tuple[str, ...]], _stdin: str) -> Nested:
        if depth == MAX_DEPTH:
            return Nested(unclear="nests too many shells")
        analysis = analyse(inner, parses, depth + 1)
        if isinstance(analysis, Opaque):
            return Nested(unclear=f"runs a text that {analysis.reason}")
        return Nested(analysis.commands)

    expander = Expander(read, guess=False, files={})
    walk = Walk(parsed, Guesses()).tree()
    found = _commands(walk.candidates, walk.guesses, expander.expand)
    unread = walk.unread or walk.guesses.unread
    return Opaque(unread) if unread else Plain(found) if found else Opaque("runs nothing")


@dataclass(slots=True)
class _Findings:
    """The findings of the survey of one text and of all texts inside it.

    ahead   whether it is read with the lines of a loop: then an unknown variable is not taken for an empty one as well
    """

    parses: Parses
    ahead: bool = False
    commands: list[Command] = field(default_factory=list[Command])
    constructs: set[Construct] = field(default_factory=set[Construct])
    hazards: list[str] = field(default_factory=list[str])
    damage: str = ""
    unread: str = ""
    readings: int = 0
    found: int = 0
    readers: list[tuple[ReadingText, Guesses, int]] = field(default_factory=list[tuple[ReadingText, Guesses, int]])


def survey(text: str, parses: Parses) -> Survey:
    """Return every command that stands in a text; see `acp_agent.gates.shell.command.ShellText`."""
    findings, readers = _Findings(parses), list[tuple[ReadingText, Guesses, int]]()
    for number, form in enumerate(spellings(text)):
        # The other spellings only add commands and hazards: syntax errors in them say nothing about the real text.
        each = findings if number == 0 else _Findings(parses)
        found = _survey(form, each, Guesses(dict(_WELL_KNOWN)), 0)
        seen = set(findings.commands)
        findings.commands.extend(command for command in found if command not in seen)
        findings.hazards.extend(each.hazards if number else ())
        findings.unread = findings.unread or each.unread
        readers += each.readers
    if findings.damage:
        for form in spellings(text):
            loose = _loose(form)
            findings.commands.extend(loose)
            if len(loose) > MAX_FOUND or any(CUT in command.argv for command in loose):
                findings.unread = findings.unread or f"holds more than {MAX_FOUND} commands"
        findings.constructs.update(loose_constructs(text))
    ahead = () if findings.unread else _ahead(readers, findings)
    return Survey(
        tuple(findings.commands),
        frozenset(findings.constructs),
        tuple(dict.fromkeys(findings.hazards)),
        findings.damage,
        findings.unread,
        ahead,
    )


def _ahead(readers: list[tuple[ReadingText, Guesses, int]], findings: _Findings) -> tuple[Command, ...]:
    """Return what loops and the like may run with each line that they read, and add the hazards of that.

    Each line is read by itself: combined with those of other lines, its values would be too many. What would be too
    much is left out, since these lines are data of honest loops as well.
    """
    more, found, seen = _Findings(findings.parses, ahead=True), dict[Command, None](), set[tuple[str, str]]()
    for _ in range(MAX_NESTED):
        for reader, guesses, depth in readers:
            left = "" if (reader.text, reader.given) in seen else reader.given
            seen.add((reader.text, reader.given))
            while left.strip() and more.found < MAX_AHEAD and more.readings < MAX_READINGS:
                lines = ReadLines(left)
                inside = Guesses(dict(reader.known), dict(guesses.files), dict(guesses.functions), guesses.arguments)
                found.update(dict.fromkeys(_survey(reader.text, more, replace(inside, lines=lines), depth)))
                left = "" if lines.behind in (None, left) else lines.behind
        readers, more.readers = more.readers, []
    findings.hazards += more.hazards
    return tuple(found)


def _survey(text: str, findings: _Findings, guesses: Guesses, depth: int) -> tuple[Command, ...]:
    findings.readings += 1
    if findings.readings > MAX_READINGS:
        findings.unread = f"holds more than {MAX_READINGS} texts and calls of functions"
    if findings.readings > MAX_READINGS or findings.found > MAX_FOUND:
        return ()
    parsed = findings.parses.parse(text, SURVEY_BYTES)
    if isinstance(parsed, str):
        findings.unread = parsed
        return ()
    walk = Walk(parsed, guesses, lambda inner: findings.parses.parse(inner, SURVEY_BYTES)).tree()
    if walk.damaged:
        findings.damage = "has a syntax error"
    findings.unread = findings.unread or walk.unread
    findings.constructs |= walk.constructs
    findings.hazards += walk.hazards
    findings.readers += ((reader, guesses, depth) for reader in walk.readers)

    # A function whose body has no parameters is not read again at its calls.
    functions = frozenset(name for name, body in guesses.functions.items() if "$" in body)
    inside = _Inside(findings, guesses, depth)
    expander = Expander(inside.read, guess=True, files=guesses.files, functions=functions, call=inside.call)
    found = _commands(walk.candidates, guesses, expander.expand, vanish=not findings.ahead)
    findings.found += len(found)
    if findings.found > MAX_FOUND:
        findings.unread = _TOO_MANY_COMMANDS
    findings.unread = findings.unread or guesses.unread
    findings.hazards += _hazards(found)
    if any("too many wrappers" in each.unclear for command in found for each in command.walk()):
        findings.unread = "nests too many wrappers"
    return found


_Finish = Callable[[Command], Command]


def _commands(
    candidates: list[Candidate], guesses: Guesses, finish: _Finish, *, vanish: bool = True
) -> tuple[Command, ...]:
    """Return the candidates as commands, one for each combination of their variables' values.

    finish   adds the commands that a command starts
    vanish   whether an unknown variable may be empty
    """
    found: list[Command] = []
    words, size, known, split = 0, 0, guesses.known, split_by(guesses.known)
    for candidate in candidates:
        every = count_variants(candidate.words, known)
        limit = MAX_FOUND if _each_counts(candidate.words, guesses) else few_variants(candidate.words, known)
        words += min(every, limit) * most_words(candidate.words, known)
        if size > MAX_FOUND or (every > limit and limit == MAX_FOUND) or words > MAX_SPREAD:
            guesses.unread = TOO_MANY_WORDS if words > MAX_SPREAD else _TOO_MANY_COMMANDS
            break
        forms = _forms(candidate.words, known, split, limit, vanish=vanish)
        patterns = (candidate.patterns | {pattern(word) for word in candidate.words}) - {""}
        quoted = {
            "".join(piece.text for piece in word)
            for word in candidate.words
            if all(piece.quoted and not piece.variable for piece in word)
        }
        if any(map(_lacks_words, forms)):
            guesses.unread = "expands to more words, or to longer ones, than are read"
        for argv in forms:
            if argv or candidate.assignments or candidate.redirections:
                # The values of variables and the words in braces may contain patterns too.
                more = {word for word in argv if not GLOB.isdisjoint(word)} - quoted if known else ()
                command = _command(candidate, argv, frozenset({*patterns, *more}))
                found.append(finish(command))
                size += 1 + len(found[-1].runs)
    return tuple(found)


def _command(candidate: Candidate, argv: tuple[str, ...], patterns: frozenset[str]) -> Command:
    return Command(
        argv,
        tuple(candidate.redirections),
        tuple(candidate.assignments),
        candidate.joined,
        stdin=candidate.stdin,
        patterns=patterns,
        scopes=candidate.scopes,
    )


def _forms(
    words: list[Word],
    known: dict[str, tuple[str, ...]],
    split: dict[str, tuple[str, ...]],
    limit: int,
    *,
    vanish: bool,
) -> list[tuple[str, ...]]:
    """Return the argument lists that a command may have with the values of its variables, unknown ones empty as well.

    split   the values as a changed IFS splits them
    """

    def made(of: list[Word]) -> list[tuple[str, ...]]:
        return variants(of, known, limit) + (variants(emptied(of, known), known, limit) if vanish else [])

    if not known or not any(piece.variable for word in words for piece in word):
        return variants(words, known, limit)
    forms = made(words)
    if any(piece.changed for word in words for piece in word):
        if any(piece.operator for word in words for piece in word):
            computed = set(forms)
            forms += (each for each in variants(unchanged(words), known, limit) if each not in computed)
        forms += made([[unknown(piece) for piece in word] for word in words])
    return forms + (variants(words, split, limit) if split else [])


def _each_counts(words: list[Word], guesses: Guesses) -> bool:
    """Return whether each combination of the values of a command's variables may decide if it is refused.

    For most programs their name decides. Then it is enough if each value is put in at least once.
    """
    if not words or any(piece.variable for piece in words[0]):
        return bool(words)
    name, table = program_of(("".join(piece.text for piece in words[0]),)), tables()
    decides = judges_words(name) or name in table.starters or name in table.text or bool(table.interpreter(name))
    decides = decides or name in WORD_RUNNERS
    return name not in PRINTERS and (decides or name in guesses.functions or not GLOB.isdisjoint(name) or "{" in name)


def _lacks_words(argv: tuple[str, ...]) -> bool:
    """Return whether a command has more words than are known. What a command only prints is judged where it is read."""
    return bool(argv) and CUT in "".join(argv) and program_of(argv) not in PRINTERS


@frozen
class _Inside:
    """A reader of the texts inside a text at `depth`, with the values of its `guesses`.

    made   the commands that each text and each call runs, with their number, since many are equal
    """

    findings: _Findings
    guesses: Guesses
    depth: int
    made: dict[tuple[object, ...], tuple[tuple[Command, ...], int]] = field(
        default_factory=dict[tuple[object, ...], tuple[tuple[Command, ...], int]]
    )

    def read(self, text: str, values: Mapping[str, tuple[str, ...]], stdin: str) -> Nested:
        """Read a text for a shell with its parameters."""
        if self.depth == MAX_DEPTH or is_cut(text):
            self.findings.unread = "runs a text that is too long" if is_cut(text) else "nests too many shells"
            return Nested(unclear=self.findings.unread)
        key = (text, stdin, *values.items())
        if key not in self.made:
            known = {**self.guesses.known, **values}
            self._make(key, text, stdin, Guesses(known, functions=self.guesses.functions, arguments=_arguments(known)))
        return Nested(self._again(key))

    def call(self, command: Command) -> tuple[Command, ...]:
        """Read the body of a function with its arguments. A function that calls itself is not read again."""
        if self.depth == MAX_DEPTH:
            self.findings.unread = "calls functions inside functions too deep"
            return ()
        key = (command.argv, command.stdin)
        if key not in self.made:
            (name, *args), functions = command.argv, self.guesses.functions
            others = {other: body for other, body in functions.items() if other != name}
            known = {**self.guesses.known, **parameters(tuple(args))}
            self._make(key, functions[name], command.stdin, Guesses(known, functions=others, arguments=tuple(args)))
        return self._again(key)

    def _make(self, key: tuple[object, ...], text: str, stdin: str, guesses: Guesses) -> None:
        before = self.findings.found
        guesses = replace(guesses, functions=dict(guesses.functions))
        if stdin and READS.search(text.encode(errors="replace")):
            self.findings.readers.append((ReadingText(text, stdin, dict(guesses.known)), guesses, self.depth + 1))
        found = _survey(text, self.findings, guesses, self.depth + 1)
        self.made[key] = found, self.findings.found - before
        self.findings.found = before

    def _again(self, key: tuple[object, ...]) -> tuple[Command, ...]:
        """Return what a text or a call runs. Each time it counts towards the commands that are read."""
        found, count = self.made[key]
        self.findings.found += count
        if self.findings.found > MAX_FOUND:
            self.findings.unread = _TOO_MANY_COMMANDS
        return found


def _arguments(known: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the words of `$1`, `$2`, … up to the first unknown one."""
    words: list[str] = []
    while values := known.get(str(len(words) + 1)):
        words.append(values[0])
    return tuple(words)


def _hazards(found: tuple[Command, ...]) -> list[str]:
    """Return the hazards: decoded text piped into a shell, files piped into rm, a script that starts itself twice."""
    hazards: list[str] = []
    decoded = listed = False
    for command in found:
        piped = command.joined == "|"
        name, args = command.name, command.argv[1:]
        decodes = name in _DECODERS and any(word.startswith(_DECODERS[name]) for word in (*args, ""))
        decoded = (decoded and piped) or decodes
        listed = (listed and piped) or (name in _LISTERS and any(map(system_root, args)))
        if decoded and piped and _reads_script(command):
            hazards.append("decoded text piped into a shell")
        removes = any(each.name in tables().danger["removers"] for each in command.walk())
        if listed and piped and command.appended and removes:
            hazards.append("find / | xargs rm")
    if sum(command.argv[:1] in (("$0",), ("./$0",)) for command in found) > 1:
        hazards.append("fork bomb")
    return hazards


def _reads_script(command: Command) -> bool:
    for each in command.walk():
        if each.name in tables().shells:
            call = shell_call(each.argv[1:])
            return not call.texts and (call.stdin or not call.operands)
    return False


def _loose(text: str) -> list[Command]:
    """Return the commands of a damaged text: every segment, ignoring quotes, with what wrappers start."""

    def words_of(inner: str, _values: Mapping[str, tuple[str, ...]], _stdin: str) -> Nested:
        return Nested((Command(tuple(inner.split())),))

    expander = Expander(words_of, guess=True, files={})
    # A command that follows itself adds nothing. One that follows another command, such as `cd`, may.
    each_once = (words for words, _ in groupby(loose_segments(text)))
    # A command may begin behind assignments, or one word later: behind `then`, `do` or a stray character.
    starts = (
        (words, next((at for at, word in enumerate(words) if "=" not in word), len(words))) for words in each_once
    )
    found = (words[skip:] for words, start in starts for skip in (start, start + 1) if words[skip:])
    some = islice(found, MAX_FOUND + 1)  # a text with more is refused
    return [replace(expander.expand(Command(words)), unclear=DAMAGED) for words in some]


def normalised(text: str) -> str:
    """Return the text in NFKC without invisible and control characters, with LF for line ends and joined lines."""
    text = "".join(_shown(char) for char in unicodedata.normalize("NFKC", text))
    return _CONTINUATION.sub("", text)


def _shown(char: str) -> str:
    if char in _LINES:
        return _LINES[char]
    category = unicodedata.category(char)
    if category == "Cc" and char not in "\n\t":
        return ""
    if category == "Zs":
        return " "
    return "" if category in ("Cf", "Cn", "Cs") else char


def spellings(text: str) -> tuple[str, ...]:
    """Return the text and its other spellings, each once.

    They are the normalised form, the same without needless backslashes, and the same without what confuses the parser.
    """
    found = [text]
    clean = text if text.isascii() and text.isprintable() else normalised(text)
    # The parser takes `{fd}` for a word, the $ of `a$"b"` for a part of the word, and the loop of `time while` for a
    # command. It cannot read `${x:$n}` and `${x~~}`. The letters that the latter changes are lower ones in the name of
    # each blocked program.
    strange = _TIMED.sub("", _DESCRIPTOR.sub("", clean).replace("<>", ">"))
    if '$"' in strange:  # without the $, every quote begins and ends what it did before
        strange = _TRANSLATED.sub(r"\1", strange)
    if "\\" in strange:  # the parser ends the word 'a'\b behind the quote
        strange = _SPLIT_WORD.sub("", strange)
    if "$" in strange:  # a variable next to letters may be empty; others stay, as in `rm -rf $folder/`
        strange = _VARIABLE_BEHIND_LETTER.sub(r"\1", _VARIABLE_BEFORE_LETTER.sub("", strange))
    if "${" in strange:
        strange = _TOGGLED.sub(lambda match: match[0].replace("~", ","), strange)
        strange = _OFFSET.sub(r"\1\2\3", _OFFSET.sub(r"\1\2\3", strange))  # the offset, then the length
    for form in (clean, _NEEDLESS.sub(r"\1", clean), strange):
        if form not in found:
            found.append(form)
    return tuple(found)


def loose_constructs(text: str) -> set[Construct]:
    """Return what a damaged text has outside single quotes: backquotes, another substitution, or both."""
    signs = set(_CONSTRUCT.findall(_SINGLE_QUOTED.sub("", text)))
    return {Construct.BACKTICK if sign == "`" else Construct.COMMAND_SUBSTITUTION for sign in signs}


def loose_segments(text: str) -> list[tuple[str, ...]]:
    """Return the words of a damaged text, cut at every separator. Quotes and braces are ignored.

    A segment with redirections is returned without them as well, because a command may begin behind them.
    """
    spread = _LIST.sub(lambda match: match[0].replace(",", " "), text)
    expanded, room = list[str](), MAX_SPREAD
    for word in re.split(r"(\s+)", text):
        parts = expand_braces(word) if "{" in word and len(word) < _LONGEST else [word]
        room -= len(parts)
        expanded += [" ".join(parts)] if room >= 0 else [CUT]
        if room < 0:
            break
    forms = dict.fromkeys((spread, "".join(expanded))) if "{" in text else (spread,)

    def gap(match: re.Match[str]) -> str:
        return " " if match[0] in "{}<>" else ""

    def words(form: str) -> list[tuple[str, ...]]:
        return [tuple(_NOISE.sub(gap, segment).split()) for segment in _SEGMENT.split(form)]

    found = [each for form in forms for each in words(form)]
    known = {(), *found}
    found += (each for form in forms for each in words(_REDIRECTION.sub(" ", form)) if each not in known)
    return [each for each in found if each]
