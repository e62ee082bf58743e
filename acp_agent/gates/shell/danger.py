"""The destructive commands of the blocklist, which are refused under every configuration."""

from collections.abc import Callable, Iterable
from functools import cache

from acp_agent.gates.shell.command import Command
from acp_agent.gates.shell.options import has_option, is_disk, is_socket, operands, system_root, tables
from acp_agent.regex import Regex, compiled
from acp_agent.text import lazy_regex

_PIPE = lazy_regex(r"(?<!\|)\|(?!\|)")
_FIND_OPTION = lazy_regex(r"-[HLPEXdsx]+|-O\d*|-D\w+")
_HARMLESS_DEVICES = ("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/zero", "/dev/full", "/dev/tty")


def destructive(command: Command, folder: str) -> str:
    """Return the pattern that a single command matches, such as "rm -rf /" or "rm -rf ~"; empty if it matches none.

    folder   the folder of relative paths, if an earlier `cd` changed it
    """
    for redirection in command.redirections:
        if is_socket(redirection.target):
            return "/dev/tcp"
        if redirection.writes and is_disk(redirection.target):
            return f"> {redirection.target}"
    name, args = command.name.casefold(), command.argv[1:]
    if name in tables().danger["disk_tools"]:
        if has_option(args, "l" if name in ("fdisk", "sfdisk", "parted") else "", "--list"):
            return ""
        device = next((word for word in args if word.startswith("/dev/") and is_disk(word)), "")
        return f"{command.name} {device}" if device else ""
    check = _CHECKS.get(name) or _CHECKS.get(name.removeprefix("g"))  # GNU tools on macOS: grm, gfind
    return check(command, folder) if check else _power(command)


def _power(command: Command) -> str:
    """Return the command that stops the machine or every process, such as "kill -1"; empty for other commands."""
    args = command.argv[1:]
    match command.name.casefold().removeprefix("g"):
        case "systemctl" | "loginctl":
            verb = next((word for word in operands(args) if word in tables().danger["power_verbs"]), "")
            return f"{command.name} {verb}" if verb else ""
        case "init" | "telinit" if args[:1] in (("0",), ("6",)):
            return f"{command.name} {args[0]}"
        case "kill":
            signal_first = len(args) > 1 and args[0] == "-1"
            return "kill -1" if args.count("-1") > signal_first else ""
        case _:
            return ""


def _root(paths: Iterable[str], folder: str) -> str:
    """Return the first system root or home among the paths; empty for none."""
    return next(filter(None, (system_root(path, folder) for path in paths)), "")


def _rm(command: Command, folder: str) -> str:
    args = command.argv[1:]
    if has_option(args, "", "--no-preserve-root"):
        return "rm --no-preserve-root"
    if command.name != "rimraf" and not has_option(args, "rR", "--recursive"):
        return ""
    root = _root(operands(args), folder)
    return f"rm -rf {root}" if root else ""


def _mv(command: Command, folder: str) -> str:
    paths = operands(command.argv[1:])
    if any(is_disk(path) for path in paths[-1:]):
        return f"mv … {paths[-1]}"
    sources = paths if has_option(command.argv[1:], "t", "--target-directory") else paths[:-1]
    root = _root(sources, folder)
    return f"mv {root}" if root else ""


def _copy(command: Command, _folder: str) -> str:
    paths = operands(command.argv[1:])
    target = next((path for path in (paths if command.name == "tee" else paths[-1:]) if is_disk(path)), "")
    return f"{command.name} … {target}" if target else ""


def _permissions(command: Command, folder: str) -> str:
    args = command.argv[1:]
    paths = operands(args)[1:]
    if has_option(args, "R", "--recursive"):
        root = _root(paths, folder)
        return f"{command.name} -R {root}" if root else ""
    return f"{command.name} /" if "/" in paths else ""


def _find(command: Command, folder: str) -> str:
    args = _start_points(command.argv[1:])
    first = next((index for index, word in enumerate(args) if word.startswith(("-", "(", "!"))), len(args))
    removes = "-delete" in args or any(
        inner.name in tables().danger["removers"] for run in command.runs for inner in run.walk()
    )
    starts = args[:first] or (".",)
    root = _root(starts, folder) if removes else ""
    return f"find {root} -delete" if root else ""


def _start_points(args: tuple[str, ...]) -> tuple[str, ...]:
    """Return the arguments of find from its first folder on. BSD's `-f` names a folder too."""
    at = 0
    while at < len(args) and (_FIND_OPTION.fullmatch(args[at]) or args[at] in ("-D", "-f", "--")):
        if args[at] == "-f":
            return args[at + 1 :]
        at += 2 if args[at] == "-D" else 1
    return args[at:]


def _rsync(command: Command, folder: str) -> str:
    args = command.argv[1:]
    removes = any(word.startswith(("--del", "--remove-source")) for word in args)
    root = _root(operands(args), folder) if removes else ""
    return f"rsync --delete {root}" if root else ""


def _dd(command: Command, _folder: str) -> str:
    for word in command.argv[1:]:
        key, _, value = word.partition("=")
        if key == "of" and value.startswith("/dev/") and value not in _HARMLESS_DEVICES:
            return f"dd of={value}"
    return ""


_CHECKS: dict[str, Callable[[Command, str], str]] = {
    "rm": _rm,
    "srm": _rm,
    "rimraf": _rm,
    "mv": _mv,
    "cp": _copy,
    "tee": _copy,
    "install": _copy,
    "ln": _copy,
    "chmod": _permissions,
    "chown": _permissions,
    "chgrp": _permissions,
    "find": _find,
    "bfs": _find,
    "rsync": _rsync,
    "dd": _dd,
}

_POWER = frozenset(("systemctl", "loginctl", "init", "telinit", "kill"))


def judges_words(name: str) -> bool:
    """Return whether the words behind a program's name decide whether it is blocked."""
    name, danger = name.casefold(), tables().danger
    bare = name.removeprefix("g")
    return name in _CHECKS or bare in _CHECKS or bare in _POWER or name in danger["disk_tools"] | danger["network"]


_FORKS = r"fork\W*while\W*fork|(?:while|until|loop|for)\b[^\n]{0,24}[:{(\s]\s*(?:os\.)?fork\b|fork\b[^\n]*\bwhile\b"
_WIPES = lazy_regex(
    r"(?:rmtree|rm_rf?|rm_r|remove_dir_all|rmSync|rmdirSync|removeSync|remove_tree|rimraf|deltree|unlink(?:\W{1,3}glob)?)\W{0,4}['\"]([^'\"]*)['\"]"
)
_STARTS = r"system|popen|exec|spawn|subprocess|shell|\bqx\b|%x|\bopen\b[^\n|]*\||`|\bpty\b|getline|Runtime|\bsh\b"
_LITERAL = (
    r"'((?:[^'\\\n]|\\.)*)'|\"((?:[^\"\\\n]|\\.)*)\"|`([^`]*)`"
    r"|(?:\bq[qwx]?|%[xw])[\s\x0b\x1c-\x1f\x85\pZ]?[({\[<|/!]([^)}\]>|/!]*)"
)


def code_hazard(code: str) -> str:
    """Return the danger in code of another language that wipes a root or forks without end; empty for other code."""
    if _forks().search(code.encode(errors="replace")):
        return "fork bomb"
    root = _root((match[1] for match in _WIPES.finditer(code)), "")
    return f"rm -rf {root}" if root else ""


def shell_texts(code: str, *, pipes: bool = False) -> list[str]:
    """Return the string literals of code that starts programs. Lists (`["rm", "-rf", "/"]`) are joined to one text.

    pipes   whether `|` starts a program, as in awk
    """
    data, texts, last = code.encode(errors="replace"), list[str](), 0
    if not (_starts().search(data) or (pipes and _PIPE.search(code))):
        return []
    for match in _literals().finditer(data):
        start, end = max(match.span(group) for group in range(1, 5))
        literal = data[start:end].decode()
        if texts and data[last : match.start()].decode().strip() == ",":
            texts[-1] += f" {literal}"
        else:
            texts.append(literal)
        last = match.end()
    return [text for text in dict.fromkeys(texts) if text.strip()]


@cache
def _literals() -> Regex:
    """Return the expression for string literals. RE2 needs linear time, even for many quotes that are not closed."""
    return compiled(_LITERAL, lines=True)


@cache
def _starts() -> Regex:
    """Return the expression for calls that start programs. RE2 needs linear time, even for many calls of `open`."""
    return compiled(_STARTS, lines=True, captures=False, case_sensitive=False)


@cache
def _forks() -> Regex:
    """Return the expression for endless forks. RE2 needs linear time, even for many calls of `fork`."""
    return compiled(_FORKS, lines=True, captures=False, case_sensitive=False)
