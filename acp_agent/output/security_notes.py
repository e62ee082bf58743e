"""The lines of an output that matter although a filter dropped them: errors and security warnings.

It compares the whole output with the filtered one, whatever filter dropped a line, so that no error is lost. The
expressions are for RE2, each for one line. Two tables of the tests say what they must find and what they must not find.
"""

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice

from acp_agent.output.filters.strategy import LinePatterns, decoded, encoded
from acp_agent.text import lazy_regex, shortened_line

# docker compose, buildkit, the name of a task or a worker
_SOURCE = r"(?:[\w.-]+ *\| +|#\d+ (?:[\d.]+ )?|\[[^\]]+\] )?"
_BULLET = r"[\s│|>*\[(x!✖✘❌-]*"
# at most two names or places, each with a colon
_WHERE = r"(?:(?:[\w./\\+@\[\]-]+|[\w./\\+ -]+(?:[:(]\d+[,:\d]*\)?)) ?: ?){0,2}"
_WORD = r"(?i:fatal error|fatal|error|panic|critical|internal compiler error)"
_CODE = r"(?:\[[\w-]+\]|\([\w-]+\)| [A-Z]+\d+)?"
_ERROR_TYPE = (
    r"(?:(?:[A-Za-z_]\w*(?:\.|::|\\))*(?:[A-Z]\w*)?(?:Error|Exception|ExceptionGroup)"
    r"|(?:[a-z_]\w*\.)+[A-Z]\w*(?:Failure|Expired|Timeout|NotFound|DoesNotExist))"
)
# the message: not only "none", "0" or "null"
_WORDS = r"(?:[^0\s]\S* +\S|\S{6})"
_PLAIN_WORD = rf"(?i:(?:fatal )?error|fatal|critical|panic){_CODE}: +{_WORDS}"
_PLAIN_LEVEL = rf"\[?(?:ERROR|FATAL|CRITICAL|SEVERE|PANIC)(?:\]:?|:| -|) +{_WORDS}"
_COUNTED = r"(?i:errors?(?:\(s\))?|failures?|failed|failing)"
_COUNT_ENDS = r"(?:$|[,;.)]| in | found\b| generated| emitted| reported)"

_PLAIN = (
    # The word stands at the beginning of a line (perhaps behind the name of a container or a build step), behind a
    # place in a source file, or behind the dots of a progress line.
    rf"^(?:[\w.-]+-\d+ *\| +|#\d+ (?:[\d.]+ )?|\s+)?{_PLAIN_WORD}",
    rf"^[\w./\\@-]+[:(]\d+[,:\d]*\)?\s*: ?{_PLAIN_WORD}",
    rf"(?:\.\.\.|…)[\s.]*{_PLAIN_WORD}",
    rf"^(?:\[?\d[\dT:.,Z +/-]+\]? +)?{_PLAIN_LEVEL}",
)

_lines = partial(LinePatterns, checked=True)

PLAIN_ERRORS = _lines(_PLAIN)
"""Lines of `ERRORS` that report an error even if `NO_ERRORS` matches them."""

_SAID = (
    *_PLAIN,
    # a line that begins with a word for an error, perhaps behind the name of a program or a place in a file
    rf"^{_SOURCE}{_BULLET}{_WHERE}(?:PHP )?{_WORD}{_CODE}: +[^0\s]",
    r"^[\w./\\:@-]+[:(]\d+[,:\d]*\)?\s*:\s*(?:fatal )?error\b(?: [A-Z]+\d+)?:",
    r"^\S+:\d+:\d+ - error\b",
    r"^\s*(?:\S+:)?\d+:\d+\s+(?:error|✖|\x{d7})\s+\S",  # eslint, stylelint
    r"^\S+\.pyi?:\d+:(?:\d+:)? [EF]\d{3,4}\b",  # ruff, flake8, pylint
    r"^\S*\.go:\d+:\d+: \S",  # go build, go vet
    r"^error(?: [A-Z]\w+|\[E\d+\])",
    r"^\w+ error: \S",
    r"\]: (?i:error|fatal|critical|panic): \S",
    r"^##\[error\]",
    r"^(?:E|Err): |^Err:\d+ ",  # apt
    r"^CMake Error\b",
    r"^Error (?:response from|from server|in|while|during|building|loading|reading|parsing|running|executing)\b",
    r"^(?:An? )?(?i:unexpected|unhandled|uncaught|internal|unknown|fatal) (?:\w+ )?(?i:error|exception|rejection)\b",
)
_BUILDS = (
    r"\bundefined (?:reference|symbol)s? ?(?:to|:)|^Undefined symbols\b",
    r"\bld returned \d+ exit status|\bcannot find -l\w|\bmultiple definition of\b",
    r"\bsymbol\(s\) not found\b|\bunresolved external\b",
    r"^(?:g|b|mingw32-)?make(?:\[\d+\])?: \*\*\* |^ninja: (?:error|build stopped)|^FAILED: \S",
    r"^(?:BUILD FAILED|BUILD FAILURE|FAILURE: |> Task \S+ FAILED)|^\[ERROR\]|^✖ \S|^Failed to compile",
    r"^e: (?:file:|\S+\.kts?:)|^Module (?:parse|build) failed\b|^\w+ aborted!|^\*\*\* (?:\[[^\]]*\] )?Error\b",
    r"\bfailed to solve\b",
)
_TESTS = (
    r"^(?:FAILED|ERROR|SUBFAILED\S*) \S+::|^ERROR \S+\.py\b|^ERROR at (?:setup|teardown) of |^E  +\S",
    r":FAIL(?::|$)|\*\*\*(?:Failed|Exception|Timeout|Not Run)\b|^Errors while \w",
    r"^(?:FAIL|ERROR): \w+|^\s*--- FAIL: |^FAIL\t\S|^not ok \d|^Bail out!|\.\.\. FAIL(?:ED)?$",
    r"^\s+(?:FAIL|TIMEOUT|SIG[A-Z]+|ABORT) +\[",
    r"^\s*(?:FAIL +\S+\.\w+|● \S.*\x{203a}|✕ |✗ |✘ )",
    r"\bassertion .*\bfailed\b|\bAssertion failed\b",
    rf"(?:^|[^\d.x-])[1-9]\d* (?:\w+ )?{_COUNTED}{_COUNT_ENDS}",
    r"(?i:\b(?:errors|failures|failed)[=:] ?[1-9])",
)
_CRASHES = (
    r"\bpanicked at |^panic: |^goroutine \d+ \[running",
    r"\bSegmentation fault\b|\bcore dumped\b|\bBus error\b|\bSIG(?:SEGV|ABRT|KILL|BUS|ILL|FPE)\b",
    r"^Killed(?:$|: )|: Killed\b|^Aborted(?:$| \()|: Aborted\b",
    r"(?i:\bout of memory\b)|\bstack overflow\b|\bdouble free\b|(?i:\bno space left on device\b)",
    r"\bERROR: \w+Sanitizer\b|: runtime error: |\bFatal Python error\b",
    # the last line of a traceback, and the same line of languages other than Python
    rf"^{_SOURCE}(?:[ |]*\| )?(?:Uncaught |Caused by: |  \[cause\]: )?{_ERROR_TYPE}(?: \[\w+\])?(?::|$)",
    r"^(?:KeyboardInterrupt|SystemExit|StopIteration|GeneratorExit)(?::|$)",
    r"^Exception in thread |^Caused by: \S",
    rf"\({_ERROR_TYPE}\)$|^\s*\*\* \(\w",
)
_LOGS = (
    r"(?:^|[\s\[|(<])(?:ERROR|FATAL|CRITICAL|SEVERE|EMERG|PANIC)(?:[\]|):>]|\s+[^\s=]|$)",
    r"^\[?\d[\dT:.,Z +/-]+\]?\s+\[?(?i:error|fatal|critical|err)(?:\]|:|\s)",
    r"""\b(?:level|lvl|severity)["']?\s*[=:]\s*["']?(?i:error|fatal|crit(?:ical)?|alert|panic|emerg)\b""",
    r"(?:^|\s)\[(?i:error|fatal|crit(?:ical)?|alert|emerg|err)\]|^[EF][01]\d{3} \d\d:\d\d:\d\d",
    r"^npm (?:ERR!|error) |\bERR_PNPM_|^ ?ERR!? |^yarn error",
)
_COULD_NOT = (
    rf"^{_SOURCE}(?:[\w./\\+-]+: ){{0,3}}(?i:failed to|could not|couldn't|can't|cannot|unable to) \w",
    r": (?i:command not found|no such file or directory|permission denied|not a directory|is a directory)\b",
    r": (?i:operation not permitted|read-only file system|invalid option|unrecognized option|input/output error)\b",
    r"(?i:is not recognized as an internal|\bmodule not found\b|\bconnection refused\b)",
    r"^-?(?:\S*/)?(?:[\w.-]+\.sh|(?:ba|da|a|z|k|c|tc)?sh): .*\bnot found\b",
    r"(?i:\b(?:connection|connect|operation|request|read|write|handshake|command) timed out\b)",
    r"(?i:\b(?:timed out|timeout) (?:waiting|after)\b)|\bUnhandledPromiseRejection",
    r"^curl: \(\d+\)|^ ! \[(?:remote )?rejected\]|^CONFLICT \(|^Automatic merge failed",
    r"(?i:\b(?:exit(?:ed)?(?: with)?(?: status| code)|exit(?:ed)? with|non-zero (?:exit )?(?:status|code)):? -?[1-9])",
    r"(?i:\breturned (?:a )?non-zero)",
    r"(?i:^(?:the )?(?:command|build|compilation|job|deployment|tests?|process) .*\bfailed\b)",
)

ERRORS = tuple(map(_lines, (_SAID, (*_BUILDS, *_TESTS), _CRASHES, (*_LOGS, *_COULD_NOT))))
"""Lines that report an error, unless `NO_ERRORS` matches and none of `PLAIN_ERRORS` does.

They are in four parts without counted repetitions over whole lines: RE2 is fifty times slower once the states of an
expression need more than its memory.
"""

NO_ERRORS = _lines(
    (
        # what passed
        r"(?i:\b(?:ok|passed|pass|success(?:ful(?:ly)?)?)(?:\s+\[ *\d+%\]| \([\d.]+ ?m?s\)| <[\d.]+s>)?$)",
        r"^\s*(?:--- PASS: |✓ |✔ |√ |ok \d|PASS\b|PASSED\b|test .* \.\.\. (?:ok|ignored)|test result: )",
        r"(?i:\bexpected (?:error|failure)s?\b)|\bxfail(?:ed)?\b",
        # progress: failures are repeated at the end
        r"::.*\b(?:FAILED|ERROR)\s+\[ *\d+%\]$|^\[gw\d+\] \[ *\d+%\]",
        r"(?i:^\s*(?:Compiling|Downloading|Downloaded|Checking|Collecting|Installing|Running) )",
        # parts of a comparison of pytest, whose message stands above
        r"^E  +[?+-](?: |$)",
        # commands and source code
        r"^\s*(?:[+$#%] |>>> )|^\s*(?:cd \S+ && )?(?:sudo )?(?:\S*/)?(?:gcc|g\+\+|cc|c\+\+|clang|clang\+\+|rustc) ",
        r"^\s*(?:echo|printf|export|set|grep|rg|sed|awk) ",
        r"^\s*(?://|/\*|\* |-- |;;|<!--)",
        r"^\s*(?:import|from|use|def|fn|func|class|return|raise|throw|except|catch|assert) ",
        # none, or none yet
        r"(?i:\b(?:no|without|without any|on|if|any) errors?\b[^:]*$)|(?i:\b(?:no|on|if) error\b)",
        r"(?i:(?:^|[^\w.:/-])(?:0|zero) error\b[^:]*$)",
        r"(?i:\berrors?: (?:none|null|nil|false|0)\b)",
        # other levels of logs, and settings of levels
        r"""(?i:\blog[_ -]?level\b["']?\s*[=: ]\s*["']?(?:error|fatal|critical)\b)""",
        r"""(?i:\blevel["']?[=:]\s*["']?(?:info|debug|warn|warning|trace|notice)\b)""",
        r"(?i:^\s*(?:warning|warn|npm warn|info|debug|note|notice|hint|help|trace)\b)",
        r"(?:^|[\s\[])(?:INFO|DEBUG|TRACE|NOTICE)(?:[\]:|]|\s)",
    )
)
"""Lines that only look like an error."""

TOTALS = _lines(
    (
        r"(?i:\b(?:no|0|zero) (?:\w+ )?(?:error|fail))",
        r"""(?i:\b(?:errors|failures|failed|fail)["']?(?:[:=] *| )0)""",
    )
)
"""Lines that may contain a total of zero. `_ZERO_TOTAL` then removes it; that search is slow, but few lines need it."""

SUSPECTS = _lines(
    (
        r"(?i:\b(?:err|errors?|fail(?:s|ed|ing|ures?)?|fatal|panic(?:s|ked)?|critical|exceptions?|traceback|abort(?:s|ed)?)\b)",
        r"[a-z](?:Error|Exception)\b",
    )
)
"""Lines that may report an error. They are searched for only if the filter rule does not know the command's output."""

_VULNERABILITY = r"vulnerabilit(?:y|ies)\b"

WARNINGS = _lines(
    (
        r"(?i:\bunused\b.*\bresult\b)",
        r"(?i:\bmust be used\b)",
        r"(?i:\bthread\b.*\bpanicked\b)",
        r"(?i:\bwarning\b.*\bunsafe\b)|(?i:\bunsafe\b.*\bwarning\b)",
        r"(?i:\bderef\w*\b.*\braw.pointer\b)|(?i:\braw.pointer\b.*\bderef)",
        r"(?i:\bauthentication (?:has )?fail(?:ed|ure)\b)|(?i:\bfailed to authenticate\b)",
        r"(?i:\bunauthori[sz]ed\b)",
        r"(?i:\bpermission denied\b)",
        r'(?i:\b(?:status|http/[\d.]+"?|code|response|error)\b.*\b40[13]\b|\b40[13] (?:unauthorized|forbidden)\b)',
        r"(?i:\bweak (?:\w+ )?cipher)",
        r"(?i:\bdeprecated (?:\w+ )?(?:algorithm|cipher|hash)|\balgorithm\b.*\bdeprecated\b)",
        r"(?i:\binsecure (?:\w+ )?hash)|(?i:\b(?:md5|sha-?1)\b.*\b(?:insecure|weak|broken)\b)",
        r"(?i:\bsql.?injection\b)",
        r"(?i:\bunsafe (?:\w+ )?quer(?:y|ies)\b)",
        r"\bRUSTSEC-\d{4}-\d{4}\b",
        r"(?i:\bsecurity advisor(?:y|ies)\b)",
        rf"(?i:\b{_VULNERABILITY} (?:was |were )?(?:detected|found)\b)|(?i:\b[1-9]\d* (?:\w+ ){{0,2}}{_VULNERABILITY})",
    )
)
"""The kinds of security warnings, one entry each."""

TELLING = _lines(
    (
        r"(?i:error|\berr\b|fail|fatal|traceback|abort|panic|crit|alert|exception|rejection|emerg|exit|non-zero)|ERR_PNPM_|SEVERE",
        r"✖|●|✕|✗|✘|\x{d7}|\.pyi?:\d|\.go:\d|^E  |^E: |\*\* \(|\*\*\*[ A-Z]|^[EF][01]\d{3} ",
        r"[Uu]ndefined |cannot find|multiple definition|symbol\(s\)|unresolved external|build stopped",
        r"SIG[A-Z]|TIMEOUT|ABORT|^goroutine |Segmentation|core dumped|Bus err|Killed|Aborted",
        r"not ok |rejected\]|double free|stack overflow|Bail out!|aborted!|(?i:timed out|timeout )|^e: ",
        r"(?i:out of memory|no space left)|Expired|Timeout|NotFound|DoesNotExist|^(?:Keyboard|System|StopI|Generator)",
        r"Caused by: |(?i:could(?: not|n't)|can(?:'t|not)|unable to|not (?:found|permitted|recognized)|no such file)",
        r"(?i:denied|a directory|read-only|option\b|connection refused)|^curl: |^CONFLICT ",
        # the words of WARNINGS
        r"(?i:unused|must be used|unsafe|raw.pointer|authenticat|unauthori|40[13]|weak|deprecated|insecure)",
        r"(?i:md5|sha-?1|sql.?injection|RUSTSEC-|security advisor|vulnerabilit)",
    )
)
"""Every line of `ERRORS` and `WARNINGS` contains one of these words. Most outputs have few, so the search is fast."""


_PIECE = 256 * 1024
_MOST_WARNINGS = 20
_MOST_ERRORS = 40
_FEW_ERRORS = 15  # if there are too many errors, only so many lines may repeat a message
_MOST_SUSPECTS = 15
_LONGEST_LINE = 500  # characters shown of a line
_LONGEST_COMPARED = 2000  # characters by which lines are compared
_MOST_DIFFERENT = 2000  # different lines of one kind that are compared; the others are not listed
_LONGEST_SEARCHED = 1 << 18  # characters of a filtered text in which a line is also searched as a part of another line

_TIME = lazy_regex(
    r"""\d(?:  # look-behinds check the character before it, so that the search for digits is as fast as reading memory
        \d{3}-\d\d-\d\d[T\x20]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?
      | (?<=\b\d)\d:\d\d:\d\d(?:[.,]\d+)?\b
      | (?<=\b0)x[0-9a-fA-F]{6,16}\b
    )""",
    re.VERBOSE,
)
_ZERO_TOTAL = lazy_regex(
    r"""(?<![\w.:/-])(?:no|0|zero)\ (?:\w+\ )?(?:errors|failures|error\(s\)|failure\(s\))(?!\w)
      | (?:^|(?<=[,;(:|]\ )|(?<=[,;(|]))(?:no|0)\ (?:tests?\ )?fail(?:ed|ing)\b
      | \b(?:errors|failures|failed|fail)["']?(?:[:=]\ *|\ )0(?=$|[,;)|\]}"']|\ +\w+\ *[:=])
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""Totals of zero, such as `0 Failures` and `errors: 0`. The rest of the line may still report an error."""
_UUID = lazy_regex(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_NUMBER = lazy_regex(r"\d+")
_RULES = " \t=_-*│|"


def preserved(raw: str, filtered: str, whole: str = "", *, suspects: bool = False) -> str:
    """Return the lines of `raw` that matter and are not in `filtered`, as a block to append; "" if there are none.

    All texts are redacted. At most 20 security warnings and 40 errors are listed, each once. Lines that differ only in
    times, addresses and UUIDs count as one.

    whole      the text in which the lines are numbered; "" for `raw`
    suspects   whether lines that only contain a word such as "failed" are listed too, if there are fewer than 15
               errors. The last ones are listed, so that errors and such lines are at most 15 together

    If there are more errors, `_most_telling_first` says which of them are listed.
    """
    if raw == filtered:
        return ""
    kept = _Kept(filtered)
    telling = list(dict.fromkeys(line for piece in _pieces(raw) for line in kept.telling(piece)))
    warnings = kept.missing([_split(WARNINGS.lines(encoded("\n".join(telling))))])
    said = {normalised for normalised, _ in warnings}
    own = _searched_parts(telling)
    searched = [*own]
    errors = [one for one in kept.missing(_own(own, _errors(searched))) if one[0] not in said]
    if suspects and len(errors) < _MOST_SUSPECTS:
        said |= {normalised for normalised, _ in errors}
        suspected = _not_vetoed(_split(SUSPECTS.lines(encoded("\n".join(searched)))))
        others = [one for one in kept.missing(_own(own, [suspected])) if one[0] not in said]
        errors += others[len(errors) - _MOST_SUSPECTS :]
    if not warnings and not errors:
        return ""
    numbers = _numbers(whole or raw, {line for _, line in (*warnings, *errors)})
    told, most = _most_telling_first([line for _, line in errors])
    blocks = (
        *_block("weaknesses", [line for _, line in warnings], numbers, _MOST_WARNINGS),
        *_block("errors", told, numbers, most),
    )
    return "\n".join(blocks)


def _searched_parts(lines: list[str]) -> dict[str, str]:
    """Return the lines by the text that is searched instead: the line without zero totals such as "0 errors"."""
    totals = frozenset(_split(TOTALS.lines(encoded("\n".join(lines)))))
    own: dict[str, str] = {}
    for line in lines:
        own.setdefault(_ZERO_TOTAL.sub("", line) if line in totals else line, line)
    own.pop("", None)
    return own


def _own(own: Mapping[str, str], parts: Iterable[list[str]]) -> Iterator[list[str]]:
    """Yield the whole lines in place of their searched texts."""
    return ([own[line] for line in lines if line in own] for lines in parts)


def _most_telling_first(lines: list[str]) -> tuple[list[str], int]:
    """Return lines that report errors, the most telling ones first, and how many of them to list.

    Errors of compilers, tests and crashes come before those of logs, then one line of each message before the same
    message at other places, and among these later lines before earlier ones. Messages that differ in more than numbers
    come first. If there are too many lines, a message is repeated only in the first 15 of them.
    """
    data = encoded("\n".join(lines))
    plain = frozenset(line for patterns in ERRORS[:-1] for line in _split(patterns.lines(data)))
    last = lines[::-1]
    messages = {line: _without_place(line) for line in lines}
    one_each = frozenset({message: line for line, message in messages.items()}.values())  # the last line of each
    numbered = frozenset({_NUMBER.sub("", message): line for line, message in messages.items()}.values())
    ranked = sorted(last, key=lambda line: (line not in plain, line not in numbered, line not in one_each))
    if len(lines) <= _MOST_ERRORS:
        return ranked, _MOST_ERRORS
    rest = sorted(ranked[_FEW_ERRORS:], key=lambda line: line not in one_each)
    other = sum(line in one_each for line in rest)
    return [*ranked[:_FEW_ERRORS], *rest], min(_FEW_ERRORS + other, _MOST_ERRORS)


def _without_place(line: str) -> str:
    """Return a line without the place in a file at its beginning, such as `src/a.c:7:9: `."""
    place, _, message = line.partition(": ")
    return message if message and " " not in place and _NUMBER.search(place) else line


def _numbers(text: str, wanted: Container[str]) -> dict[str, int]:
    """Return, for each wanted line, the number of the first line with its text."""
    found: dict[str, int] = {}
    number = 1
    for piece in _pieces(text):
        for line in piece.split("\n"):
            if line in wanted:
                found.setdefault(line, number)
            number += 1
    return found


def _pieces(text: str) -> Iterator[str]:
    """Yield whole lines of a text in portions. A list of all lines would need five times the memory of the text."""
    start = 0
    while start < len(text):
        end = text.find("\n", start + _PIECE)
        end = len(text) if end < 0 else end
        yield text[start:end]
        start = end + 1


class _Kept:
    """The filtered text, to look up lines. Its lines are prepared at the first look-up."""

    def __init__(self, filtered: str) -> None:
        self._filtered = filtered
        self._verbatim = frozenset(filtered.split("\n"))
        self._lines: frozenset[str] | None = None
        self._words = frozenset[str]()
        self._text = ""

    def telling(self, piece: str) -> list[str]:
        """Return the lines that may matter and that the filtered text does not contain literally."""
        others = [line for line in piece.split("\n") if line not in self._verbatim]
        return _split(TELLING.lines(encoded("\n".join(others))))

    def missing(self, parts: Iterable[list[str]]) -> list[tuple[str, str]]:
        """Return the lines whose normalised form is not in the filtered text either, each with that form."""
        found: dict[str, str] = {}
        for lines in parts:
            for line in lines:
                normalised = _normalised(line)
                if normalised and normalised not in found and normalised not in self:
                    found[normalised] = line
                    if len(found) == _MOST_DIFFERENT:
                        return list(found.items())
        return list(found.items())

    def __contains__(self, normalised: str) -> bool:
        if self._lines is None:
            self._lines = frozenset(map(_normalised, self._verbatim))
            self._text = "\n".join(self._lines) if len(self._filtered) <= _LONGEST_SEARCHED else ""
            self._words = frozenset(self._text.split())
        inner = normalised.split(" ")[1:-1]  # the search is slow, so check first that these words occur at all
        return normalised in self._lines or (self._words.issuperset(inner) and normalised in self._text)


def _split(data: bytes) -> list[str]:
    return decoded(data).removesuffix("\n").split("\n")


def _errors(telling: list[str]) -> Iterator[list[str]]:
    """Yield different lines that report an error, in order, without those that only look like one."""
    for at in range(0, len(telling), _MOST_DIFFERENT):
        some = telling[at : at + _MOST_DIFFERENT]
        data = encoded("\n".join(some))
        found = frozenset(line for patterns in ERRORS for line in _split(patterns.lines(data)))
        yield _not_vetoed([line for line in some if line in found])


def _not_vetoed(lines: list[str]) -> list[str]:
    """Return the lines that do not only look like an error."""
    data = encoded("\n".join(lines))
    vetoed = frozenset(_split(NO_ERRORS.lines(data))).difference(_split(PLAIN_ERRORS.lines(data)))
    return [line for line in lines if line not in vetoed]


def _normalised(line: str) -> str:
    """Return a line without varying parts, and without pytest's mark in front."""
    line = line[:_LONGEST_COMPARED]
    if line.count(":") > 1 or "0x" in line:  # otherwise it contains no time and no address
        line = _TIME.sub("", line)
    if line.count("-") > 3:  # a UUID has four
        line = _UUID.sub("", line)
    return " ".join(line.removeprefix("E  ").split()).strip(_RULES)


def _block(what: str, lines: list[str], numbers: Mapping[str, int], most: int) -> list[str]:
    if not lines:
        return []
    shown = [(numbers.get(line, 0), shortened_line(line, _LONGEST_LINE)) for line in islice(lines, most)]
    more = [f"[{len(lines) - most:,} more {what} left out]"] if len(lines) > most else []
    numbered = [f"{number}: {line}" if number else line for number, line in sorted(shown)]
    return [f"[{what} among the lines left out, by line number:]", *numbered, *more]
