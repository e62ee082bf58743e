"""Read the options of wrappers and shells to find the commands that they start."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from acp_agent.gates.shell.tables import Tables, Wrapper

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_TEXT_PREFIX = re.compile(r"(?:[\w.-]+=)?[:!]*")

MAX_VALUES = 256
"""The most values of one variable that are followed. A text that gives it more counts as unread."""

MAX_SHIFTS = 64
"""The most words among which a text may shift. A text that shifts among more counts as unread."""


class Peeled(NamedTuple):
    """The arguments of a wrapper without its own options: the rest, assignments and texts, or why they are unclear."""

    argv: tuple[str, ...] = ()
    assignments: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    unclear: str = ""


def peel(wrapper: Wrapper, args: tuple[str, ...]) -> Peeled:
    """Remove a wrapper's own options, assignments and operands from its arguments."""
    texts: list[str] = []
    index = 0
    while index < len(args) and args[index].startswith("-") and args[index] not in ("-", "--"):
        option = args[index]
        if option in wrapper.inert or option in ("--help", "--version"):
            return Peeled()
        meaning = _option(wrapper, option)
        if meaning is None:
            return Peeled(unclear=f"the option {option} is not known")
        kind, attached = meaning
        index += 1
        if kind == "flag":
            continue
        if attached is None:
            if index == len(args):
                return Peeled(unclear=f"the option {option} lacks its value")
            attached = args[index]
            index += 1
        if kind == "text":
            texts.append(attached)
    if index < len(args) and (args[index] == "--" or (args[index] == "-" and "-" in wrapper.flags)):
        index += 1
    assignments: list[str] = []
    while index < len(args) and _is_assignment(wrapper, args[index]):
        assignments.append(args[index])
        index += 1
    rest = args[index + wrapper.operands :]
    if wrapper.operands and len(rest) > 1 and rest[0] in wrapper.text:
        texts.append(rest[1])
    return Peeled(rest, tuple(assignments), tuple(texts))


def _is_assignment(wrapper: Wrapper, word: str) -> bool:
    return (wrapper.assignments and "=" in word) or (wrapper.variables and _ASSIGNMENT.match(word) is not None)


def _option(wrapper: Wrapper, option: str) -> tuple[str, str | None] | None:
    """Return "flag", "value" or "text" for an option word, and its attached value. None if it is unknown."""
    kinds = (("text", wrapper.text), ("value", wrapper.values), ("flag", wrapper.flags | wrapper.attached))
    if wrapper.numeric and option[1:].lstrip("-+").isdigit():
        return "flag", None
    for kind, known in kinds:
        if option in known:
            return kind, None
    if option.startswith("--"):
        name, equals, value = option.partition("=")
        matches = {(kind, each) for kind, known in kinds for each in known if each.startswith(name)}
        exact = {(kind, each) for kind, each in matches if each == name}
        if len(exact or matches) != 1:
            return None
        return next(iter(exact or matches))[0], value if equals else None
    return _bundle(wrapper, option)


def _bundle(wrapper: Wrapper, option: str) -> tuple[str, str | None] | None:
    """Return the same as `_option` for a bundle of short options: `-0r`, `-n5`."""
    for index, letter in enumerate(option[1:], start=1):
        short, rest = f"-{letter}", option[index + 1 :]
        if short in wrapper.attached:
            return "flag", None
        if short in wrapper.values:
            return "value", rest or None
        if short in wrapper.text:
            return "text", rest or None
        if short not in wrapper.flags:
            return None
    return "flag", None


class ShellCall(NamedTuple):
    """What a shell is told to run: texts, or a script with its operands, or (`stdin`) its input."""

    texts: tuple[str, ...] = ()
    operands: tuple[str, ...] = ()
    stdin: bool = False
    unclear: str = ""


def shell_call(table: Tables, args: tuple[str, ...]) -> ShellCall:
    """Return what a shell runs. `-c` is a flag: the text is the first word that is no option, and `$0` the next."""
    texts: list[str] = []
    letters = ""
    index = 0
    while index < len(args) and args[index][:1] in ("-", "+") and len(args[index]) > 1:
        word = args[index]
        name, equals, value = word.partition("=")
        index += 1
        if word == "--":
            break
        if name in table.shell_text:
            texts.append(value if equals else " ".join(args[index : index + 1]))
            index += 0 if equals else 1
        elif word in table.shell_flags:
            continue
        elif word.startswith("--") or not set(word[1:]) <= table.shell_letters | set("coO"):
            return ShellCall(unclear=f"the option {word} is not known")
        else:
            letters += word[1:] if word[0] == "-" else ""
            index += word.count("o") + word.count("O")
    if "c" in letters:
        if index >= len(args):
            return ShellCall(unclear="-c lacks its text")
        texts.append(args[index])
        index += 1
    return ShellCall(tuple(texts), args[index:], stdin="s" in letters)


def option_texts(options: frozenset[str], args: tuple[str, ...]) -> list[str]:
    """Return the values of these options, without a prefix such as `alias.x=!` or `exec=`."""
    found: list[str] = []
    for index, word in enumerate(args):
        name, equals, value = word.partition("=")
        if equals and name in options and name.startswith("--"):
            found.append(value)
        elif word in options and index + 1 < len(args):
            found.append(args[index + 1])
        elif word[:2] in options and not word.startswith("--"):
            found.append(word[2:])
    return [_TEXT_PREFIX.sub("", text, count=1) for text in found]


def operands(words: Iterable[str]) -> list[str]:
    """Return the words that are no options. Behind `--` all of them are operands."""
    found: list[str] = []
    closed = False
    for word in words:
        if word == "--" and not closed:
            closed = True
        elif closed or not word.startswith("-") or word == "-":
            found.append(word)
    return found


def has_option(words: Iterable[str], letters: str, *names: str) -> bool:
    """Return whether a short option (alone or in a bundle) or a long one (whole or abbreviated) is among the words."""
    for word in words:
        if word == "--":
            return False
        if word.startswith("--"):
            given = word.partition("=")[0]
            if len(given) > 2 and any(name.startswith(given) for name in names):
                return True
        elif word.startswith("-") and set(word[1:]) & set(letters):
            return True
    return False


def getopt(args: tuple[str, ...], letters: str, *names: str) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the options with values as getopt_long reads them, and the operands.

    letters   the short options with a value (`-t x`, `-tx`, `-rtx`), returned by their letter
    names     the long ones (`--to x`, `--to=x`, also abbreviated), returned by their whole name
    """
    found: list[tuple[str, str]] = []
    operands: list[str] = []
    rest = iter(args)
    for word in rest:
        if word == "--":
            operands += rest
        elif word.startswith("--"):
            given, equals, value = word.partition("=")
            name = next((name for name in names if name.startswith(given)), "")
            if name:
                found.append((name, value if equals else next(rest, "")))
        elif word.startswith("-") and word != "-":
            at = next((at for at, letter in enumerate(word) if at and letter in letters), 0)
            if at:
                found.append((word[at], word[at + 1 :] or next(rest, "")))
        else:
            operands.append(word)
    return found, operands


def parameters(words: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return the values of `$1`, `$2`, … and `$@`, and under `@:` those that `${@:2}` may have."""
    values = {str(place): (word,) for place, word in enumerate(words[:MAX_VALUES], start=1)}
    rest = " ".join(words)
    return {**values, "@": (rest,), "*": (rest,), "@:": tuple(suffixes(words))} if rest else values


def suffixes(words: tuple[str, ...]) -> list[str]:
    """Return `a b c`, `b c`, `c`: the first MAX_SHIFTS of them."""
    return [" ".join(words[at:]) for at in range(min(len(words), MAX_SHIFTS))]
