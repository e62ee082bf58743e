"""What a call of git writes into a repository's or the user's configuration (security.md, threat 3).

A key such as core.hooksPath or alias.x is a command that git runs later. The keys known to be none are listed.
"""

from fnmatch import fnmatchcase

from acp_agent.gates.shell.command import Command
from acp_agent.gates.shell.grammar import Parsed, grammar_of

_READS = frozenset(("--get", "--get-all", "--get-regexp", "--get-urlmatch", "-l", "--list"))
_SECTIONS = frozenset(("rename-section", "remove-section", "--rename-section", "--remove-section"))
_LOOKS = frozenset(("--stat", "--numstat", "--summary", "--check", "--abort", "--quit", "--show-current-patch"))
_APPLIES = frozenset(("--apply", "--index", "--cached", "--3way", "-3", "--intent-to-add", "-N"))
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


def sets_nothing(parsed: Parsed) -> bool:
    """Return whether a call of `git config` only reads. What cannot be told changes something.

    Git stops looking for options at the first operand: `git config KEY VALUE --get` sets KEY.
    https://git-scm.com/docs/git-config
    """
    if parsed.unknown:
        return False
    if len(parsed.verbs) > 1:
        return parsed.verbs[1] in ("get", "list")
    return not _READS.isdisjoint(parsed.options) or len(parsed.operands) <= 1


def applies_patch(parsed: Parsed) -> bool:
    """Return whether a call of git changes the files that a patch names. What cannot be told does."""
    only_looks = not _LOOKS.isdisjoint(parsed.options) and _APPLIES.isdisjoint(parsed.options)
    return parsed.verbs in (("apply",), ("am",)) and (not only_looks or bool(parsed.unknown))


def config_write(command: Command) -> str:
    """Return what a call sets that git may run or obey later, such as "core.hookspath"; empty for nothing."""
    parsed = _parsed(command)
    subcommand = next(iter(parsed.verbs), "")
    if subcommand in ("init", "clone") and _spelled(parsed, "--template"):
        return "a template with hooks"
    if subcommand in ("init", "clone") and _spelled(parsed, "--separate-git-dir"):
        return "a repository in another folder"
    if subcommand == "clone":
        keys = (each.partition("=")[0] for each in parsed.values("-c", "--config"))
        return next((key for key in keys if not _harmless(key)), "")
    return _key(parsed) if subcommand == "config" and not sets_nothing(parsed) else ""


def config_file(command: Command) -> str:
    """Return the file a call writes settings to, when it names one (`git config --file .bashrc …`)."""
    parsed = _parsed(command)
    if parsed.verbs[:1] != ("config",) or sets_nothing(parsed):
        return ""
    return next(iter(parsed.values("-f", "--file")), "")


def _parsed(command: Command) -> Parsed:
    grammar = grammar_of("git")
    return grammar.parse(command.argv[1:]) if grammar is not None and command.name == "git" else Parsed()


def _spelled(parsed: Parsed, option: str) -> list[str]:
    """The long option among those of a call, abbreviated or not."""
    return [option for each in parsed.options if len(each) > 2 and option.startswith(each)]


def _key(parsed: Parsed) -> str:
    """The key that is written, when git may run or obey it."""
    key = parsed.operands[:1]
    section = any(
        each in _SECTIONS or (each.startswith("--re") and not each.startswith("--repl"))
        for each in (*parsed.options, *parsed.verbs)
    )
    if key and _harmless(key[0]) and not section:
        return ""
    return key[0].casefold() if key else "git's configuration"


def _harmless(key: str) -> bool:
    return any(fnmatchcase(key.casefold(), pattern) for pattern in _HARMLESS)
