"""Scripts of sed and awk as arguments: whether they may read, write or run anything but their input."""

import re

MAX_SCRIPT = 4096
"""The most characters of a script that is read. A longer one counts as unclear."""

# Blanks are matched possessively, so that a script of blanks does not take polynomial time.
_SED_ADDRESS = (
    r"(?:\d++(?:~\d++)?|\$|/(?:\\.|[^/\\\n])*+/I?|\\(?P<q{n}>[^\w\s\\])(?:\\.|(?!(?P=q{n}))[^\\\n])*+(?P=q{n}))"
)
_SED_COMMAND = re.compile(
    r"[ \t]*+(?:"
    + _SED_ADDRESS.replace("{n}", "1")
    + r"(?:[ \t]*+,[ \t]*+(?:[+~]?\d++|"
    + _SED_ADDRESS.replace("{n}", "2")
    + r"))?)?[ \t]*+!?[ \t]*+(?:[pdqnNDPhHgGxl=][ \t]*+\d*+"
    + r"|s(?P<d>[^\w\s\\])(?:\\.|(?!(?P=d))[^\\\n])*+(?P=d)(?:\\.|(?!(?P=d))[^\\])*+(?P=d)[gpiIm\d]*+"
    + r"|y(?P<e>[^\w\s\\])(?:\\.|(?!(?P=e))[^\\\n])*+(?P=e)(?:\\.|(?!(?P=e))[^\\\n])*+(?P=e)"
    + r")?[ \t]*+(?:[;\n]|$)"
)
_SED_OPTIONS = frozenset(
    (
        "-n", "-E", "-r", "-s", "-u", "-z", "-i", "--quiet", "--silent", "--regexp-extended", "--separate", "--posix",
        "--unbuffered", "--null-data", "--in-place", "--debug", "--sandbox", "--line-length", "--help", "--version",
    )
)  # fmt: skip
_SED_BUNDLE = re.compile(r"-[nErsuz]*(?:i[\w.~]*|l\d+)?")
_AWK_RUNS = re.compile(r"system|getline|ENVIRON|ARGV|ARGC|@|\|(?!\|)(?<!\|\|)")
_AWK_TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*+"|print|[;}>]|["/#\\]', re.DOTALL)
_AWK_PRINTS = re.compile(r"print.*>", re.DOTALL)
_AWK_OPTIONS = re.compile(r"-F.*|-v.*|--field-separator=.*|--assign=.*|--version|--help|-V", re.DOTALL)


def sed_asks(args: tuple[str, ...]) -> str:
    """Return the part of a sed call that may write, read or run something; empty if none may."""
    scripts: list[str] = []
    operands: list[str] = []
    index = 0
    while index < len(args):
        word = args[index]
        index += 1
        name, equals, value = word.partition("=")
        if word in ("-e", "--expression"):
            scripts.append(args[index] if index < len(args) else "")
            index += 1
        elif equals and name == "--expression":
            scripts.append(value)
        elif re.fullmatch(r"-[nErsuz]+e", word):
            scripts.append(args[index] if index < len(args) else "")
            index += 1
        elif word == "--":
            operands += args[index:]
            break
        elif word.startswith("-") and word != "-":
            if name not in _SED_OPTIONS and not _SED_BUNDLE.fullmatch(word):
                return word
        else:
            operands.append(word)
    own = operands[:2] if operands[:1] == [""] else operands[:1]  # BSD: -i '' script
    for script in scripts or own:
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
    """Return the part of an awk call that may write, read or run something; empty if none may."""
    index = 0
    while index < len(args) and args[index].startswith("-") and args[index] not in ("-", "--"):
        if not _AWK_OPTIONS.fullmatch(args[index]):
            return args[index]
        index += 2 if args[index] in ("-F", "-v") else 1
    index += args[index : index + 1] == ("--",)
    script = args[index] if index < len(args) else ""
    unclear = len(script) > MAX_SCRIPT or _AWK_RUNS.search(script) or _awk_writes(script)
    return f"the script {script[:80]!r}" if unclear else ""


def _awk_writes(script: str) -> bool:
    """Return whether a `print` may write to a file.

    A `/` may begin a regular expression or divide. Behind it, and behind a comment or a backslash, it is unclear where
    a string or a statement ends. There any `>` counts.
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
