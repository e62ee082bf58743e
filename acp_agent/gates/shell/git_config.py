"""What a call of git writes into a repository's or the user's configuration, and whether it applies a patch.

A key such as core.hooksPath or alias.x is a command that git runs later. The keys that may be set without a question
are listed in `workspace/git/settings.toml`.
"""

from acp_agent.gates.shell.command import Command
from acp_agent.gates.shell.grammar import ParsedArguments, grammar_of
from acp_agent.workspace.git.settings import may_set

_READS = frozenset(("--get", "--get-all", "--get-regexp", "--get-urlmatch", "-l", "--list"))
_SECTIONS = frozenset(("rename-section", "remove-section", "--rename-section", "--remove-section"))
_LOOKS = frozenset(("--stat", "--numstat", "--summary", "--check", "--abort", "--quit", "--show-current-patch"))
_APPLIES = frozenset(("--apply", "--index", "--cached", "--3way", "-3", "--intent-to-add", "-N"))


def sets_nothing(parsed: ParsedArguments) -> bool:
    """Return whether a call of `git config` only reads. An unclear call does not.

    Git stops looking for options at the first operand: `git config KEY VALUE --get` sets KEY.
    https://git-scm.com/docs/git-config
    """
    if parsed.unknown:
        return False
    if len(parsed.verbs) > 1:
        return parsed.verbs[1] in ("get", "list")
    return not _READS.isdisjoint(parsed.options) or len(parsed.operands) <= 1


def applies_patch(parsed: ParsedArguments) -> bool:
    """Return whether a call of git changes the files that a patch names. An unclear call does."""
    only_looks = not _LOOKS.isdisjoint(parsed.options) and _APPLIES.isdisjoint(parsed.options)
    return parsed.verbs in (("apply",), ("am",)) and (not only_looks or bool(parsed.unknown))


def config_write(command: Command) -> str:
    """Return the setting of a call that git may run or obey later, such as "core.hookspath"; empty if there is none."""
    parsed = _parsed(command)
    subcommand = next(iter(parsed.verbs), "")
    if subcommand in ("init", "clone") and _spelled(parsed, "--template"):
        return "a template with hooks"
    if subcommand in ("init", "clone") and _spelled(parsed, "--separate-git-dir"):
        return "a repository in another folder"
    if subcommand == "clone":
        keys = (each.partition("=")[0] for each in parsed.values("-c", "--config"))
        return next((key for key in keys if not may_set(key)), "")
    return _key(parsed) if subcommand == "config" and not sets_nothing(parsed) else ""


def config_file(command: Command) -> str:
    """Return the file to which a call writes settings (`git config --file .bashrc …`); empty if it names none."""
    parsed = _parsed(command)
    if parsed.verbs[:1] != ("config",) or sets_nothing(parsed):
        return ""
    return next(iter(parsed.values("-f", "--file")), "")


def _parsed(command: Command) -> ParsedArguments:
    grammar = grammar_of("git")
    return grammar.parse(command.argv[1:]) if grammar is not None and command.name == "git" else ParsedArguments()


def _spelled(parsed: ParsedArguments, option: str) -> list[str]:
    """Return a long option once for each time that a call gives it, abbreviated or not."""
    return [option for each in parsed.options if len(each) > 2 and option.startswith(each)]


def _key(parsed: ParsedArguments) -> str:
    """Return the key that is written if git may run or obey it; empty otherwise."""
    key = parsed.operands[:1]
    section = any(
        each in _SECTIONS or (each.startswith("--re") and not each.startswith("--repl"))
        for each in (*parsed.options, *parsed.verbs)
    )
    if key and may_set(key[0]) and not section:
        return ""
    return key[0].casefold() if key else "git's configuration"
