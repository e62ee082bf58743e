"""Parse the arguments of well-known programs: which options are harmless, what values they take, which words are files.

A rule with a wildcard covers a call only if a grammar knows all of it. Grammars are data (`grammars/*.toml`, explained
in `grammars/README.md`). An option, a bundle of options or a form that a grammar does not list is `unknown`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from acp_agent.text import packaged_table

_NUMBER = re.compile(r"-\d+")
_VERSION = re.compile(r"-?\d[\d.]*$")
AFTER = "--"
"""The name of the form that reads the words after `--` (`cargo test -- --nocapture`)."""

GUESS = "?"
"""The `option` of an argument that may be the value of an unknown option."""


class WordKind(StrEnum):
    """The meaning of a word of a command line.

    TEXT      not a file: a message, a number, a format, a name of something else
    PATTERN   the pattern or script of a search; the operand is absent if an option gives the pattern
    READ      a file or folder that is read
    WRITE     a file or folder that is created or changed
    FOLDER    the folder in which the program works; other paths start there
    NAME      a path or something else (a revision, a target); if it is a path, it may be read
    """

    TEXT = "text"
    PATTERN = "pattern"
    READ = "read"
    WRITE = "write"
    FOLDER = "folder"
    NAME = "name"

    @property
    def path(self) -> bool:
        """Whether the word may name a file."""
        return self not in (WordKind.TEXT, WordKind.PATTERN)


class Argument(NamedTuple):
    """A word that is an operand (`option` is empty), or the value of an option."""

    word: str
    kind: WordKind
    option: str = ""


class ParsedArguments(NamedTuple):
    """A command line as its program reads it.

    verbs       the subcommands: ("stash", "pop")
    options     the names of all options found, as written: "-n", "--all"
    arguments   the operands and the values of options, in order
    unknown     options and words that the grammar does not list
    """

    verbs: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    arguments: tuple[Argument, ...] = ()
    unknown: tuple[str, ...] = ()

    def values(self, *options: str) -> list[str]:
        """Return the values that were given to any of the options."""
        return [each.word for each in self.arguments if each.option in options]

    @property
    def operands(self) -> list[str]:
        """The words that are neither options nor values of options."""
        return [each.word for each in self.arguments if not each.option]


class Grammar(NamedTuple):
    """How a program, or one of its subcommands, reads its arguments.

    flags      options without a value
    values     options whose value is the next word, or attached to them
    optional   options whose value, if there is one, is attached to them (`-U3`, `--color=auto`)
    operands   the kinds of the operands; `repeated` is the index of the one that may be repeated, or -1
    verbs      the forms of the subcommands, by name; AFTER is the form of the words after `--`
    choices    the only values that an option may have
    asking     options that need the user's approval; they are listed so that their values are recognized
    pairs      options that are followed by two values (`jq --arg name value`)
    unsure     options that take the next word as their value only in some versions
    patternless  options that make a call without a pattern operand (`rg --files`)
    numeric    whether `-5` is an option
    stop       whether options end at the first operand
    single     whether options are words with one dash (`find -name`), never bundled
    negatable  whether `--no-x` is known if `--x` is
    bundle     whether the first word is a bundle of options even without its dash (`tar xzf`)
    dashless   whether no value begins with a dash: `-t --x` are two options
    attached   options with one dash whose value stands in the same word (`-O2`, `-Isrc`), if options are single words
    raw        whether everything is an operand: the arguments of another program (`yarn test --watch`)
    asks       whether the subcommand needs the user's approval; it is listed so that it is not taken for an operand
    ends       options whose value is followed by operands only (`python -m`)
    """

    flags: frozenset[str] = frozenset()
    values: Mapping[str, WordKind] = MappingProxyType({})
    optional: Mapping[str, WordKind] = MappingProxyType({})
    operands: tuple[WordKind, ...] = ()
    repeated: int = -1
    verbs: "Mapping[str, Grammar]" = MappingProxyType({})
    choices: Mapping[str, frozenset[str]] = MappingProxyType({})
    asking: frozenset[str] = frozenset()
    pairs: frozenset[str] = frozenset()
    unsure: frozenset[str] = frozenset()
    patternless: frozenset[str] = frozenset()
    numeric: bool = False
    stop: bool = False
    single: bool = False
    negatable: bool = False
    bundle: bool = False
    dashless: bool = False
    raw: bool = False
    asks: bool = False
    attached: frozenset[str] = frozenset()
    ends: frozenset[str] = frozenset()

    def parse(self, words: Sequence[str]) -> ParsedArguments:
        """Read the arguments of a call (without the program's name)."""
        return _Parse(self).run(words)


@dataclass(slots=True)
class _Parse:
    """One parse of one command line.

    behind   the number of words behind the last one that is the name of a subcommand; all if there is none
    """

    form: Grammar
    options: list[str] = field(default_factory=list[str])
    found: list[Argument] = field(default_factory=list[Argument])
    plain: list[str] = field(default_factory=list[str])
    unknown: list[str] = field(default_factory=list[str])
    behind: int = 0

    def run(self, words: Sequence[str]) -> ParsedArguments:
        form, inner = self.form, ParsedArguments()
        rest = list(words)
        self.behind = next((at for at, word in enumerate(reversed(rest)) if word in form.verbs), len(rest))
        self._begin(rest)
        while rest:
            word = rest.pop(0)
            if word == "--":
                if AFTER in form.verbs:
                    inner = form.verbs[AFTER].parse(rest)
                else:
                    self.plain += rest
                break
            if word.startswith("-") and word != "-":
                before = len(self.options)
                self._option(word, rest)
                if rest and rest[0].startswith("-"):  # it may be the value of an option
                    self.unknown += [each for each in self.options[before:] if each in form.unsure]
                if not form.ends.isdisjoint(self.options[before:]):
                    self.plain += rest
                    break
            elif word in form.verbs and not self.plain:
                self.unknown += [word] if form.verbs[word].asks else []
                inner = form.verbs[word].parse(rest)
                inner = inner._replace(verbs=(word, *inner.verbs))
                break
            elif form.verbs and not form.operands:
                self._not_a_verb(word, rest)
            else:
                self.plain.append(word)
                if form.stop:
                    self.plain += rest
                    break
        self._operands()
        return ParsedArguments(
            inner.verbs,
            (*self.options, *inner.options),
            (*self.found, *inner.arguments),
            (*self.unknown, *inner.unknown),
        )

    def _begin(self, rest: list[str]) -> None:
        """Read the words whose position alone says what they are: all words of a `raw` form, and tar's first word."""
        if self.form.raw:
            self.plain += rest
            rest.clear()
        if self.form.bundle and rest and not rest[0].startswith("-"):
            self._bundle(rest)

    def _not_a_verb(self, word: str, rest: list[str]) -> None:
        """Read a word in place of a subcommand: the value of an unknown option, or an unknown subcommand."""
        if self.unknown:
            self.found.append(Argument(word, WordKind.NAME, GUESS))
            if len(rest) > self.behind:
                return
        self.unknown.append(word)
        for each in rest:
            self._guess(each if not each.startswith("-") else each[1:])
            self.found.append(Argument(each, WordKind.NAME, GUESS))
        rest.clear()

    def _option(self, word: str, rest: list[str]) -> None:
        form = self.form
        if form.numeric and _NUMBER.fullmatch(word):
            self.options.append(word)
        elif form.single:
            self._word(word.replace("--", "-", 1) if word.startswith("--") else word, rest, word)
        elif word.startswith("--"):
            self._word(word, rest)
        else:
            self._letters(word[1:], rest)

    def _word(self, word: str, rest: list[str], written: str = "--") -> None:
        """Read an option that is a whole word: `--name`, `--name=value`, and `-name` if options are single words.

        written   the word as it stands in the call. Only a word with one dash may have its value attached
        """
        form = self.form
        name, equals, value = word.partition("=")
        attached = () if self._lists(name) or written.startswith("--") else form.attached
        prefix = max((each for each in attached if word.startswith(each)), key=len, default="")
        if prefix:
            self._take(prefix, word[len(prefix) :], form.values.get(prefix, WordKind.TEXT))
            self._found(prefix)
            return
        negated = form.negatable and name.startswith("--no-") and self._lists(f"--{name[5:]}")
        if equals and (kind := form.values.get(name) or form.optional.get(name)):
            self._take(name, value, kind)
        elif not equals and name in form.values:
            self._value(name, rest)
            if name in form.pairs:
                self._value(name, rest)
        elif equals or not (name in form.flags or name in form.optional or negated):
            self.unknown.append(name)
            self._guess(value)
        self._found(name)

    def _found(self, name: str) -> None:
        self.options.append(name)
        if name in self.form.asking:
            self.unknown.append(name)

    def _lists(self, name: str) -> bool:
        return name in self.form.flags or name in self.form.values or name in self.form.optional

    def _letters(self, letters: str, rest: list[str]) -> None:
        """Read a bundle of short options. The first one with a value takes the rest of the word."""
        form = self.form
        for at, letter in enumerate(letters):
            name, left = f"-{letter}", letters[at + 1 :]
            self._found(name)
            if name in form.values:
                if left:
                    self._take(name, left, form.values[name])
                else:
                    self._value(name, rest)
                return
            if name in form.optional:
                if left:
                    self._take(name, left, form.optional[name])
                return
            if name not in form.flags:
                self.unknown.append(name)
                self._guess(left)
                return

    def _value(self, name: str, rest: list[str]) -> None:
        if rest and not (self.form.dashless and rest[0].startswith("-") and len(rest[0]) > 1):
            self._take(name, rest.pop(0), self.form.values[name])
        else:
            self.unknown.append(name)

    def _take(self, name: str, value: str, kind: WordKind) -> None:
        self.found.append(Argument(value, kind, name))
        if not any(fnmatchcase(value, each) for each in self.form.choices.get(name, ("*",))):
            self.unknown.append(f"{name} {value}")

    def _guess(self, text: str) -> None:
        """Note the suffixes of the text after an unknown option as possible file names, at most the 16 longest."""
        for at in range(min(len(text), 16)):
            self.found.append(Argument(text[at:], WordKind.NAME, GUESS))

    def _bundle(self, rest: list[str]) -> None:
        """Read the first word of tar: option letters without a dash, whose values follow in the same order."""
        for letter in rest.pop(0):
            name = f"-{letter}"
            self._found(name)
            if name in self.form.values:
                self._value(name, rest)
            elif name not in self.form.flags and name not in self.form.optional:
                self.unknown.append(name)

    def _operands(self) -> None:
        """Give every operand its kind. An operand that the grammar has no position for is unknown.

        If there is an unknown option, any operand may be its value, and so a file.
        """
        kinds, repeated = list(self.form.operands), self.form.repeated
        if self.unknown:
            kinds = [each if each.path else WordKind.NAME for each in kinds]
        given = any(each.kind is WordKind.PATTERN and each.option for each in self.found)
        if (given or not self.form.patternless.isdisjoint(self.options)) and WordKind.PATTERN in kinds:
            at = kinds.index(WordKind.PATTERN)
            del kinds[at]
            repeated -= at < repeated
        if repeated >= 0:
            missing = len(self.plain) - (len(kinds) - 1)
            kinds[repeated : repeated + 1] = [kinds[repeated]] * max(0, missing)
        for at, word in enumerate(self.plain):
            self.found.append(Argument(word, kinds[at] if at < len(kinds) else WordKind.NAME))
            if at >= len(kinds):
                self.unknown.append(word)


def grammar_of(name: str) -> Grammar | None:
    """Return the grammar of a program by its base name, with or without a version; None if there is none."""
    known = name if name in _families() else unversioned(name)
    family = _families().get(known)
    return _grammar(family, known) if family else None


@lru_cache(1000)
def unversioned(name: str) -> str:
    """Return the name of a program without its version: "python" for python3.12, "gcc" for gcc-12."""
    return _VERSION.sub("", name)


@cache
def _families() -> Mapping[str, str]:
    """Return the name of the packaged file that holds each program's grammar."""
    return MappingProxyType({name: family for family, names in _read("index").items() for name in names.split()})


@cache
def _grammar(family: str, name: str) -> Grammar | None:
    """Return the grammar of a program from its packaged file. It is made when the program is first judged."""
    tables, sets, aliases = _family(family)
    if name in aliases:
        return _grammar(family, aliases[name])
    return _form(tables[name], sets) if name in tables else None


@cache
def _family(family: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, str]]:
    """Return the tables of a packaged file by program, its sets, and its other names of programs."""
    tables = _read(family)
    return tables, tables.pop("sets", {}), tables.pop("aliases", {})


def _read(family: str) -> dict[str, Any]:
    return packaged_table("acp_agent.gates", f"grammars/{family}")


_VALUED = {
    "text": WordKind.TEXT,
    "patterns": WordKind.PATTERN,
    "read": WordKind.READ,
    "write": WordKind.WRITE,
    "folder": WordKind.FOLDER,
    "names": WordKind.NAME,
}
_OPTIONAL = {"optional": WordKind.TEXT, "optional_names": WordKind.NAME}
_SWITCHES = ("numeric", "stop", "single", "negatable", "bundle", "dashless", "raw", "asks")
_FLAGS = ("flags", "unsure", "patternless")
_OTHERS = ("pairs", "attached", "ends", "choices", "operands", "use", "like")
KEYS = frozenset((*_VALUED, *_OPTIONAL, *_SWITCHES, *_FLAGS, *_OTHERS))
"""The keys of a form in a grammar file."""


@dataclass(slots=True)
class _Options:
    """The options of a form, from the sets that it uses and its own table. A later entry replaces an earlier one."""

    flags: set[str] = field(default_factory=set[str])
    optional: dict[str, WordKind] = field(default_factory=dict[str, WordKind])
    values: dict[str, WordKind] = field(default_factory=dict[str, WordKind])
    choices: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    asking: set[str] = field(default_factory=set[str])
    attached: set[str] = field(default_factory=set[str])
    ends: set[str] = field(default_factory=set[str])

    def add(self, layer: dict[str, Any]) -> None:
        limited: dict[str, str] = layer.get("choices", {})
        for option in limited:
            self._put(option, WordKind.TEXT)
        self.choices.update({option: frozenset(each.split()) for option, each in limited.items()})
        for key, kind in _VALUED.items():
            for option in _words(layer, key):
                self._put(option, kind)
        for option in _words(layer, "pairs"):
            self._put(option, WordKind.TEXT)
        for option in (option for key in _FLAGS for option in _words(layer, key)):
            self.flags.add(self._put(option))
        for key, kind in _OPTIONAL.items():
            self.optional.update({self._put(option): kind for option in _words(layer, key)})
        for marked in _words(layer, "attached"):
            option = marked.removesuffix("!")
            if option not in self.values:
                self.optional[self._put(marked)] = WordKind.TEXT
            self.attached.add(option)
        self.ends.update(_words(layer, "ends"))

    def _put(self, marked: str, kind: WordKind | None = None) -> str:
        option = marked.removesuffix("!")
        self.flags.discard(option)
        self.optional.pop(option, None)
        self.values.pop(option, None)
        self.asking.discard(option)
        if kind is not None:
            self.values[option] = kind
        if option != marked:
            self.asking.add(option)
        return option


def _form(table: dict[str, Any], sets: dict[str, Any], inherited: Iterable[str] = ()) -> Grammar:
    """Return the grammar of a table. The tables inside it are its subcommands, which inherit some switches."""
    switches = {key for key in _SWITCHES if table.get(key) is True} | set(inherited)
    options = _Options()
    for layer in (*(sets[name] for name in _words(table, "use")), table):
        options.add(layer)
    operands = _words(table, "operands")
    kept = switches & {"negatable", "single", "dashless"}
    inner: dict[str, Any] = {key: each for key, each in table.items() if isinstance(each, dict) and key != "choices"}
    verbs = {name: _form(inner[each.get("like", name)], sets, kept) for name, each in inner.items()}
    return Grammar(
        flags=frozenset(options.flags),
        values=MappingProxyType(options.values),
        optional=MappingProxyType(options.optional),
        choices=MappingProxyType(options.choices),
        asking=frozenset(options.asking),
        pairs=frozenset(_words(table, "pairs")),
        unsure=frozenset(_words(table, "unsure")),
        patternless=frozenset(_words(table, "patternless")),
        operands=tuple(WordKind(word.rstrip("*")) for word in operands),
        repeated=next((at for at, word in enumerate(operands) if word.endswith("*")), -1),
        verbs=MappingProxyType(verbs),
        attached=frozenset(options.attached),
        ends=frozenset(options.ends),
        **dict.fromkeys(switches, True),
    )


def _words(table: dict[str, Any], key: str) -> list[str]:
    return table.get(key, "").split()
