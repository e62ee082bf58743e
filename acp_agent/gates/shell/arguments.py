"""Find what sed and awk scripts, printf formats and git settings in a command's arguments may run or write.

A script may read files other than its input, write files or run commands. The value of a git setting such as
core.hooksPath or alias.x names a command that git runs later. `workspace/git/settings.toml` lists the settings that may
be changed without a question.
"""

import re

from acp_agent.gates.shell.command import Command
from acp_agent.gates.shell.grammar import ParsedArguments, grammar_of
from acp_agent.text import lazy_regex
from acp_agent.workspace.git.settings import may_set

MAX_SCRIPT = 4096
"""The most characters of a script that is read. A longer one counts as unclear."""

# Blanks are matched possessively, so that a script of blanks does not take polynomial time.
# The delimiter may stand alone in brackets (`[^/]`). Longer brackets with it are refused, since versions of sed differ.
_SED_PATTERN = (
    r"(?:\\.|(?!{d})[^\[\\\n]|\[\^?+\]?+(?:\[(?!{d}):[a-z]++:\]|\\[^\]\n]|(?!{d})[^\[\]\\\n])*+\]"
    r"|\[\^?+[^\[\]\\\n]++\])*+{d}"
)
_SED_ADDRESS = (
    r"(?:\d++(?:~\d++)?|\$|/"
    + _SED_PATTERN.replace("{d}", "/")
    + r"I?|\\(?P<q{n}>[^\w\s\\\[\]^])"
    + _SED_PATTERN.replace("{d}", "(?P=q{n})")
    + r")"
)
_SED_COMMAND = lazy_regex(
    r"[ \t]*+(?:"
    + _SED_ADDRESS.replace("{n}", "1")
    + r"(?:[ \t]*+,[ \t]*+(?:[+~]?\d++|"
    + _SED_ADDRESS.replace("{n}", "2")
    + r"))?)?[ \t]*+!?[ \t]*+(?:\{|(?:[aic][ \t]*+[^\s\\][^\\\n]*+(?:\n|$))|(?:[pdqnNDPhHgGxl=][ \t]*+\d*+|\}"
    + r"|:[ \t]*+\w++|[btT](?:[ \t]*+\w++)?+"
    + r"|s(?P<d>[^\w\s\\\[\]^])"
    + _SED_PATTERN.replace("{d}", "(?P=d)")
    + r"(?:\\.|(?!(?P=d))[^\\])*+(?P=d)[gpiIm\d]*+"
    + r"|y(?P<e>[^\w\s\\])(?:\\.|(?!(?P=e))[^\\\n])*+(?P=e)(?:\\.|(?!(?P=e))[^\\\n])*+(?P=e)"
    + r")?[ \t]*+(?:[;\n]|(?=\})|$))"
)
_SED_SUFFIX = lazy_regex(r"(?:-i|--in-place) [\w.~]*")
_AWK_RUNS = lazy_regex(r"system|getline|ENVIRON|ARGV|ARGC|SYMTAB")
_AWK_SIGNS = lazy_regex(r"@|\|(?!\|)(?<!\|\|)")
_AWK_STRING = lazy_regex(r'"[^"]*"')
_AWK_TOKEN = lazy_regex(r'"(?:\\.|[^"\\\n])*+"|print|[;}>]|["/#\\]', re.DOTALL)
_AWK_PRINTS = lazy_regex(r"print.*>", re.DOTALL)
_AWK_OPTIONS = lazy_regex(r"-F.*|-v.*|--field-separator=.*|--assign=.*|--version|--help|-V", re.DOTALL)


def sed_asks(args: tuple[str, ...]) -> str:
    """Return the part of a sed call that may write or run something or read another file; empty if none may."""
    grammar = grammar_of("sed")
    parsed = grammar.parse(args) if grammar is not None else ParsedArguments(unknown=args)
    for word in parsed.unknown:
        if not _SED_SUFFIX.fullmatch(word):
            return word
    operands = parsed.operands
    own = operands[:2] if operands[:1] == [""] else operands[:1]  # BSD: -i '' script
    for script in parsed.values("-e", "--expression") or own:
        if not _sed_plain(script):
            return f"the script {script[:80]!r}"
    return ""


def _sed_plain(script: str) -> bool:
    at = 0 if len(script) <= MAX_SCRIPT else -1
    while 0 <= at < len(script):
        match = _SED_COMMAND.match(script, at)
        if match is None or match.end() == at:
            return False
        at = match.end()
    return at >= 0


def awk_asks(args: tuple[str, ...]) -> str:
    """Return the part of an awk call that may write or run something or read another file; empty if none may."""
    index = 0
    while index < len(args) and args[index].startswith("-") and args[index] not in ("-", "--"):
        if not _AWK_OPTIONS.fullmatch(args[index]):
            return args[index]
        index += 2 if args[index] in ("-F", "-v") else 1
    index += args[index : index + 1] == ("--",)
    script = args[index] if index < len(args) else ""
    unclear = len(script) > MAX_SCRIPT or _AWK_RUNS.search(script) or _awk_pipes(script) or _awk_writes(script)
    return f"the script {script[:80]!r}" if unclear else ""


_PRINTF_SETS = lazy_regex(r"%[^a-zA-Z%]*+[hjlLqtz]*+n")


def printf_asks(args: tuple[str, ...], patterns: frozenset[str]) -> str:
    """Return the format of a printf call that may set a variable, as `%n` does in bash; empty if it sets none.

    patterns   the words that bash may replace by file names; such a word may become any format
    """
    form = next(iter(args[1:] if args[:1] == ("--",) else args), "")
    sets = form in patterns or _PRINTF_SETS.search(form.replace("%%", ""))
    return f"the format {form[:80]!r}" if sets else ""


def _awk_pipes(script: str) -> bool:
    """Return whether a script may start a program with `|`, or load or call something with `@`.

    In a string both are text. Where strings begin and end is certain only without a `/`, a `#` or a backslash.
    """
    certain = frozenset("/#\\").isdisjoint(script)
    return _AWK_SIGNS.search(_AWK_STRING.sub("", script) if certain else script) is not None


def _awk_writes(script: str) -> bool:
    """Return whether a `print` may write to a file.

    A `/` either begins a regular expression or divides. After a `/`, a `#` or a backslash it is unclear where a string
    or a statement ends, so every later `>` counts.
    """
    printing = False
    for token in _AWK_TOKEN.finditer(script):
        match token[0]:
            case "print":
                printing = True
            case ";" | "}":
                printing = False
            case ">" if printing:
                return True
            case '"' | "/" | "#" | "\\":
                rest = script[token.start() :]
                return (printing and ">" in rest) or _AWK_PRINTS.search(rest) is not None
            case _:
                continue
    return False


_READS = frozenset(("--get", "--get-all", "--get-regexp", "--get-urlmatch", "-l", "--list"))
_LISTS = frozenset(("--get-regexp", "--get-urlmatch", "--regexp", "-l", "--list"))
_SCOPES = frozenset(("--global", "--system"))
_OWN_SCOPES = frozenset(("--local", "--worktree", "-f", "--file"))
_SECTIONS = frozenset(("rename-section", "remove-section", "--rename-section", "--remove-section"))
_LOOKS = frozenset(("--stat", "--numstat", "--summary", "--check", "--abort", "--quit", "--show-current-patch"))
_APPLIES = frozenset(("--apply", "--index", "--cached", "--3way", "-3", "--intent-to-add", "-N"))


def sets_nothing(parsed: ParsedArguments) -> bool:
    """Return whether a call of `git config` only reads. Return False for an unclear call.

    Git stops looking for options at the first operand: `git config KEY VALUE --get` sets KEY.
    https://git-scm.com/docs/git-config
    """
    if not _SCOPES.issuperset(parsed.unknown):
        return False
    if len(parsed.verbs) > 1:
        return parsed.verbs[1] in ("get", "list")
    return not _READS.isdisjoint(parsed.options) or len(parsed.operands) <= 1


def lists_all_settings(parsed: ParsedArguments) -> bool:
    """Return whether a call of `git config` lists settings of the user's own files, which may hold tokens."""
    lists = not _LISTS.isdisjoint(parsed.options) or parsed.verbs[1:] == ("list",)
    return lists and _OWN_SCOPES.isdisjoint(parsed.options)


def applies_patch(parsed: ParsedArguments) -> bool:
    """Return whether a call of git changes the files that a patch names. Return True for an unclear call."""
    only_looks = not _LOOKS.isdisjoint(parsed.options) and _APPLIES.isdisjoint(parsed.options)
    return parsed.verbs in (("apply",), ("am",)) and (not only_looks or bool(parsed.unknown))


def config_write(command: Command) -> str:
    """Return the setting that a call changes and git may later run or obey, such as "core.hookspath"; else empty."""
    if command.name != "git":
        return ""
    parsed = parsed_git(command.argv[1:])
    subcommand = next(iter(parsed.verbs), "")
    if subcommand in ("init", "clone") and _spelled(parsed, "--template"):
        return "a template with hooks"
    if subcommand in ("init", "clone") and _spelled(parsed, "--separate-git-dir"):
        return "a repository in another folder"
    if subcommand == "clone":
        keys = (each.partition("=")[0] for each in parsed.values("-c", "--config"))
        return next((key for key in keys if not may_set(key)), "")
    if subcommand != "config" or sets_nothing(parsed):
        return ""
    key = next(iter(parsed.operands), "")
    section = any(
        each in _SECTIONS or (each.startswith("--re") and not each.startswith("--repl"))
        for each in (*parsed.options, *parsed.verbs)
    )
    return "" if key and may_set(key) and not section else key.casefold() or "git's configuration"


def config_file(command: Command) -> str:
    """Return the file to which a call of git writes settings (`git config -f .bashrc …`); empty if it names none."""
    parsed = parsed_git(command.argv[1:])
    if parsed.verbs[:1] != ("config",) or sets_nothing(parsed):
        return ""
    return next(iter(parsed.values("-f", "--file")), "")


def parsed_git(args: tuple[str, ...]) -> ParsedArguments:
    """Return the arguments of a git call, parsed as git itself reads them."""
    grammar = grammar_of("git")
    return grammar.parse(args) if grammar is not None else ParsedArguments()


def _spelled(parsed: ParsedArguments, option: str) -> bool:
    """Return whether a call has a long option, abbreviated or not."""
    return any(len(each) > 2 and option.startswith(each) for each in parsed.options)
