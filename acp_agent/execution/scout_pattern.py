r"""From an RE2 pattern to one that ripgrep surely matches wherever RE2 does (T4.15).

The two disagree in the small: `\b`, `\w` and their like are ASCII here and Unicode there, `.` and `[^x]` differ in
bytes that are no UTF-8, a set may hold set operations there, `$` does not look before a carriage return there, nor `^`
behind a byte order mark. A scout may point at too many files, never at too few: what is in doubt becomes "anything",
and a pattern with parts that are not listed here is not translated at all.
"""

import re

# One character as RE2 decodes it: overlong forms and surrogates count too.
_ANY = r"(?-u:(?:[^\n\x80-\xff]|[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}))"
_ATOM = r"(?:\\[^\w\s]|[^\\\[\]^-])"
_TOKEN = re.compile(
    r"""
      (?P<flags> \(\?(?P<set_flags>[imsU]*)(?P<close>[:)]) )
    | (?P<group> \(\?P?<\w+> )
    | (?P<operator> \((?!\?) | [)|*+?] | \{\d+(?:,\d*)?\} )
    | (?P<start> \^ )
    | (?P<end> \$ )
    | (?P<boundary> \\b )
    | (?P<no_boundary> \\B )
    | (?P<same> \\[dswtfvr] )
    | (?P<any> \. | \\[DSW] )
    | (?P<escaped> \\[^\w\s] )
    | (?P<set> \[ (?P<negated>\^)? (?P<members> (?:\\[^\W0-9ACEQpPxz_] | \\[^\w\s] | [^\\\[\]^])
                                                (?:\\[^\W0-9ACEQpPxz_] | \\[^\w\s] | [^\\\[\]])* ) \] )
    | (?P<literal> [^\\\[(\n] )
    """,
    re.VERBOSE,
)
_PLAIN_SET = re.compile(rf"(-?)((?:{_ATOM}-{_ATOM}|\\[dswtfvr]|{_ATOM})*)(-?)")
_MARK = re.compile(r"\\(\W)|([^\w\\-])")
_FIXED = {
    "group": "(",
    "start": r"(?:^\x{feff}?)",
    "end": r"(?:\r?$)",
    "boundary": r"(?-u:\b)",
    "no_boundary": "(?:)",
}


def scout_pattern(pattern: str, *, case_sensitive: bool) -> str | None:
    """A pattern for ripgrep's own engine that matches every line that the RE2 `pattern` matches, or None.

    `pattern` is one that RE2 has compiled. The file's lines are taken as `--encoding=none` without `--crlf` has them.
    """
    folds = not case_sensitive
    parts: list[str] = []
    at = 0
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None:
            return None
        folds = folds or "i" in (token["set_flags"] or "")
        parts.append(_translated(token, folds=folds))
        at = token.end()
    return "".join(parts)


def _translated(token: re.Match[str], *, folds: bool) -> str:
    match token.lastgroup:
        case "flags":
            flag = "i" if "i" in token["set_flags"] else ""
            # Nothing rather than an empty group: what repeats behind a flag repeats what is before it.
            return f"(?{flag}{token['close']}" if flag or token["close"] == ":" else ""
        case "operator" | "same":
            return token[0]
        case "escaped" | "literal":
            return _literal(token[0][-1], folds=folds)
        case "set" if token["negated"] is None:
            return _set(token["members"], folds=folds)
        case other:
            return _FIXED.get(other or "", _ANY)


def _literal(character: str, *, folds: bool) -> str:
    """A character that means itself; where case does not count, other alphabets may fold differently there."""
    if not character.isascii():
        return _ANY if folds else character
    return character if character.isalnum() else _by_number(character)


def _set(members: str, *, folds: bool) -> str:
    """A set of characters. Marks are written by number: `&&`, `[` and more mean something there."""
    plain = _PLAIN_SET.fullmatch(members)
    if plain is None or (folds and not members.isascii()):
        return _ANY
    hyphen = r"\x{2d}" if plain[1] or plain[3] else ""
    return f"[{hyphen}{_MARK.sub(lambda mark: _by_number(mark[1] or mark[2]), plain[2])}]"


def _by_number(character: str) -> str:
    return rf"\x{{{ord(character):x}}}"
