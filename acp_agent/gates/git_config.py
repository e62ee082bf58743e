"""What a call of git writes into a repository's or the user's configuration (security.md, threat 3).

A key such as core.hooksPath or alias.x is a command that git runs later. The keys known to be none are listed.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from acp_agent.gates.command import Command
from acp_agent.gates.program_table import program_table
from acp_agent.gates.programs import find_subcommand
from acp_agent.gates.shell.danger import has_option

_READS = frozenset(
    (
        "--get",
        "--get-all",
        "--get-regexp",
        "--get-urlmatch",
        "--get-color",
        "--get-colorbool",
        "-l",
        "--list",
        "-h",
        "--help",
    )
)
_READING = frozenset(("get", "list"))
_WRITING = frozenset(("set", "unset", "edit", "rename-section", "remove-section"))
_WRITES = ("--add", "--replace-all", "--unset", "--unset-all", "--rename-section", "--remove-section", "-e", "--edit")
_VALUED = frozenset(("-f", "--file", "--blob", "-t", "--type", "--default", "--comment", "--value", "--url"))
_HARMLESS = (
    "user.name", "user.email", "user.signingkey", "author.*", "committer.*", "color.*", "column.*", "advice.*",
    "status.*", "i18n.*", "pull.rebase", "pull.ff", "push.default", "push.autosetupremote", "push.followtags",
    "push.gpgsign", "branch.autosetupmerge", "branch.autosetuprebase", "branch.sort", "branch.*.remote",
    "branch.*.merge", "branch.*.rebase", "branch.*.description", "branch.*.pushremote", "rebase.autosquash",
    "rebase.autostash", "rebase.updaterefs", "fetch.prune", "fetch.prunetags", "fetch.parallel",
    "merge.conflictstyle", "merge.ff", "merge.renamelimit", "diff.algorithm", "diff.renames", "diff.renamelimit",
    "diff.colormoved", "diff.mnemonicprefix", "init.defaultbranch", "core.autocrlf", "core.eol", "core.safecrlf",
    "core.filemode", "core.ignorecase", "core.quotepath", "core.longpaths", "core.symlinks", "core.precomposeunicode",
    "core.abbrev", "core.whitespace", "core.commentchar", "core.compression", "commit.verbose", "commit.gpgsign",
    "tag.gpgsign", "tag.sort", "log.date", "log.decorate", "log.abbrevcommit", "rerere.enabled", "rerere.autoupdate",
    "gc.auto", "http.postbuffer", "grep.linenumber", "blame.ignorerevsfile", "submodule.recurse",
)  # fmt: skip


def config_write(command: Command) -> str:
    """What a call sets that git may run or obey later, such as "core.hookspath"; empty when it sets no such thing."""
    subcommand, rest = _subcommand(command)
    if subcommand in ("init", "clone") and has_option(rest, "", "--template"):
        return "a template with hooks"
    if subcommand in ("init", "clone") and has_option(rest, "", "--separate-git-dir"):
        return "a repository in another folder"
    if subcommand == "clone":
        return next((key for key in _cloned(rest) if not _harmless(key)), "")
    return _key(rest) if subcommand == "config" and _writes(rest) else ""


def config_file(command: Command) -> str:
    """The file a call writes settings to, when it names one (`git config --file .bashrc …`)."""
    subcommand, rest = _subcommand(command)
    if subcommand != "config" or not _writes(rest):
        return ""
    named = [rest[at + 1] for at, word in enumerate(rest[:-1]) if word in ("-f", "--file")]
    named += [word.partition("=")[2] for word in rest if word.startswith("--f") and "=" in word]
    named += [word[2:] for word in rest if word[:2] == "-f" and word[2:]]
    return next(iter(named), "")


def _subcommand(command: Command) -> tuple[str, Sequence[str]]:
    if command.name != "git":
        return "", ()
    args = command.argv[1:]
    at, subcommand = find_subcommand(program_table().programs["git"], args)
    return subcommand, args[at + 1 :]


def _words(rest: Sequence[str]) -> list[str]:
    return [word for at, word in enumerate(rest) if not word.startswith("-") and not (at and rest[at - 1] in _VALUED)]


def _writes(rest: Sequence[str]) -> bool:
    """Whether `git config` changes anything; what cannot be told does."""
    words = _words(rest)
    if words[:1] and words[0] in _READING | _WRITING:  # git 2.46 and later
        return words[0] in _WRITING
    if any(word.partition("=")[0] in _READS for word in rest):
        return False
    return len(words) > 1 or any(has_option(rest, "e", option) for option in _WRITES)


def _key(rest: Sequence[str]) -> str:
    """The key that is written, when git may run or obey it."""
    words = _words(rest)
    key = words[1:2] if words[:1] and words[0] in _WRITING else words[:1]
    section = any(word.startswith(("--ren", "--rem")) for word in rest) or words[:1] in _SECTIONS
    if key and _harmless(key[0]) and not section:
        return ""
    return key[0].casefold() if key else "git's configuration"


_SECTIONS = (["rename-section"], ["remove-section"])


def _cloned(rest: Sequence[str]) -> list[str]:
    """The keys `git clone -c key=value` keeps in the new repository."""
    found = [rest[at + 1] for at, word in enumerate(rest[:-1]) if word in ("-c", "--config")]
    found += [word.partition("=")[2] for word in rest if word.startswith("--config=")]
    return [each.partition("=")[0] for each in (*found, *(word[2:] for word in rest if word[:2] == "-c" and word[2:]))]


def _harmless(key: str) -> bool:
    return any(fnmatchcase(key.casefold(), pattern) for pattern in _HARMLESS)
