"""The words of a shell text as bash passes them: quotes removed, known variables put in, braces expanded."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice, product
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from acp_agent.gates.shell.command import CUT, CUT_IN_QUOTES, is_cut
from acp_agent.gates.shell.operators import CASES, cased, pattern_of, replaced, sliced, without
from acp_agent.text import lazy_regex

if TYPE_CHECKING:  # they load the parser
    from tree_sitter import Node

    from acp_agent.gates.shell.syntax import Parsed

MAX_FIELDS = 256
"""The most words that one word without braces may expand to. CUT stands for further ones."""

MAX_BRACES = 1024
"""The most words that one word with braces may expand to. CUT stands for further ones, but not for further numbers."""

MAX_VALUE = 4096
"""The most characters of a variable's value that are kept. CUT stands for the others. No path and no name is longer."""

MAX_VALUES = 256
"""The most values of one variable that are followed. A text that gives a variable more values counts as unread."""

MAX_SHIFTS = 64
"""The most arguments (`$1`, …) of which `shift` and `${@:2}` are followed. A text with more counts as unread."""

MAX_SPREAD = 100_000
"""The most words of all commands of one text with the values of their variables. A text with more counts as unread."""

MAX_CHOICES = 64
"""The most combinations of the values of a command's variables that are read where not each of them counts.

Beyond it only some numbers are combined with other values.
"""

MAX_RANGE = 32
"""The most numbers of `{1..9}` that are written out. To a program, further ones are words like these."""

GLOB = frozenset("*?[")
PRINTERS = frozenset(("echo", "printf", "print"))
OUTPUT = "$()"
"""It stands for what a substitution prints, and for the file with the output of a process substitution."""

_BLANK, _OPEN, _CLOSE, _COMMA = "\ue000", "\ue001", "\ue002", "\ue003"
_BRACES = lazy_regex(r"\{(?:([^{},]*+,[^{}]*+)|(-?\d{1,18}|[A-Za-z])\.\.(-?\d{1,18}|[A-Za-z])(?:\.\.-?\d+)?)\}")
_ESCAPE = lazy_regex(r"\\(\n|.)", re.DOTALL)
_ESCAPE_IN_QUOTES = lazy_regex(r"\\([$`\"\\\n])")
_ANSI = lazy_regex(
    r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|([0-7]{1,3})|c(.)|(.))", re.DOTALL
)
_PATTERN = lazy_regex(r"'([^']*)'|\\(.)|\"((?:[^\"\\`]|\\.)*)\"|\$(\w+)|\$\{(\w+)\}|([^'\\\"$`]+)", re.DOTALL)
_IN_DOUBLE_QUOTES = lazy_regex(r"\$(\w+)|\$\{(\w+)\}|\\([$`\"\\])|([^\\$`]+|\\)")
_LONGEST_WORD = 256 * 1024  # characters of a word with all that its variables and braces add
_ANSI_LETTERS = {"a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class Piece(NamedTuple):
    """A part of a word: literal text, or a variable, whose `text` stands for an unknown value.

    changed   whether an operator or an index may give it another value than the variable has (`${x#*}`, `${x[1]}`)
    default   the pieces that stand for an unknown value (`${x:-$y z}`)
    operator  the operator whose result is computed (`#`, `//`, `:`, `^^`, `!`); empty for none
    operands  the pieces of what stands behind the operator
    """

    text: str
    quoted: bool = False
    variable: str = ""
    changed: bool = False
    default: tuple[Piece, ...] = ()
    operator: str = ""
    operands: tuple[tuple[Piece, ...], ...] = ()

    def variables(self) -> Iterator[str]:
        """Yield the variable, then those in its default."""
        if self.variable:
            yield self.variable
        for piece in (*self.default, *(piece for operand in self.operands for piece in operand)):
            yield from piece.variables()


Word = list[Piece]


def ansi_c(text: str) -> str:
    """Return the value of `$'text'`."""

    def value(match: re.Match[str]) -> str:
        two, four, eight, octal, control, other = match.groups()
        if control is not None:
            return chr(ord(control.upper()) & 0x1F)
        if other is not None:
            return _ANSI_LETTERS.get(other, other)
        number = int(octal, 8) & 0xFF if octal else int(two or four or eight, 16)
        return chr(number) if number < 0x110000 and not 0xD800 <= number < 0xE000 else "\ufffd"

    return _ANSI.sub(value, text)


def pieces(parsed: Parsed, node: Node, *, quoted: bool = False) -> list[Piece]:
    """Return the pieces of a word node. Substitutions become a literal OUTPUT: the walk finds their commands."""
    text = parsed.text(node)
    match node.type:
        case "raw_string":
            return [Piece(text[1:-1], quoted=True)]
        case "ansi_c_string":
            return [Piece(ansi_c(text[2:-1]), quoted=True)]
        case "string":
            return [Piece("", quoted=True), *_string(parsed, node)]
        case "simple_expansion":
            text = text.lstrip()  # in a string, blanks before it belong to its node
            return [Piece(text, quoted, text[1:])]
        case "expansion":
            return _expansion(parsed, node, quoted=quoted)
        case "command_substitution" | "process_substitution" | "arithmetic_expansion":
            return [Piece(OUTPUT, quoted=True)]
        case "concatenation" | "command_name" | "translated_string":
            return _parts(parsed, [child for child in node.children if child.type != "$"], quoted=quoted)
        case _:
            return [Piece(_ESCAPE.sub(_unescaped, text) if "\\" in text else text, quoted)]


def _hidden(text: str) -> str:
    """Return quoted text with marks for what is special outside quotes. `str.translate` takes much longer."""
    return text.replace("{", _OPEN).replace("}", _CLOSE).replace(",", _COMMA).replace(CUT, CUT_IN_QUOTES)


def _shown(text: str) -> str:
    return text.replace(_OPEN, "{").replace(_CLOSE, "}").replace(_COMMA, ",")


def _unescaped(match: re.Match[str]) -> str:
    return "" if match[1] == "\n" else _hidden(match[1])


def _string(parsed: Parsed, node: Node) -> list[Piece]:
    """Return the pieces of a double-quoted string."""
    end = node.end_byte - (1 if node.children and node.children[-1].type == '"' else 0)
    return _expanded(parsed, node, node.start_byte + 1, end)


def here_text(parsed: Parsed, body: Node) -> list[Piece]:
    """Return the pieces of a here-document in which bash puts in variables."""
    return [Piece("", quoted=True), *_expanded(parsed, body, body.start_byte, body.end_byte)]


def _expanded(parsed: Parsed, node: Node, position: int, end: int) -> list[Piece]:
    """Return the pieces of quoted text. Blanks before an expansion belong to no node, or to its own."""
    found: list[Piece] = []
    for child in node.children:
        if child.type in ('"', "string_content", "heredoc_content"):
            continue
        expansion = parsed.source[child.start_byte : child.end_byte].lstrip()
        found.append(_quoted(parsed.source[position : child.end_byte - len(expansion)]))
        found.extend(pieces(parsed, child, quoted=True))
        position = child.end_byte
    found.append(_quoted(parsed.source[position:end]))
    return found


def _parts(parsed: Parsed, nodes: list[Node], *, quoted: bool) -> list[Piece]:
    """Return the pieces of the parts of a word. In the default of a variable there may be blanks between them."""
    found: list[Piece] = []
    position = nodes[0].start_byte if nodes else 0
    for node in nodes:
        if node.start_byte > position:
            found.append(Piece(parsed.source[position : node.start_byte].decode(errors="replace"), quoted))
        found.extend(pieces(parsed, node, quoted=quoted))
        position = node.end_byte
    return found


def _quoted(source: bytes) -> Piece:
    text = _ESCAPE_IN_QUOTES.sub(lambda match: "" if match[1] == "\n" else match[1], source.decode(errors="replace"))
    return Piece(text, quoted=True)


def _expansion(parsed: Parsed, node: Node, *, quoted: bool) -> list[Piece]:
    """Return the pieces of `${NAME}`, and of `${NAME:-word}`, whose value is the word if the name is unknown."""
    named = [inner for child in node.children for inner in (child, *child.children) if inner.type in _NAMES]
    name = parsed.text(named[0]) if named else ""
    if name in ("@", "*") and any(child.type == ":" for child in node.children):
        return [Piece("$@", variable="@:")]
    if any(child.type == "subscript" for child in node.children):  # "${a[@]}" is several words even in quotes
        sliced = any(child.type == ":" for child in node.children)
        return [Piece(f"${name}", variable=f"{name}:" if sliced else name, changed=True)]
    operator = next((index for index, child in enumerate(node.children) if child.type in _DEFAULTS), None)
    default, text = list[Piece](), f"${name}"
    if operator is not None:
        default = _parts(parsed, node.children[operator + 1 : -1], quoted=quoted)
        text = "".join(piece.text for piece in default)
    changed = len(node.children) > 3  # more than `${`, the name and `}`
    operator_of, operands = (
        _operation(parsed, node.children[1:-1], node.children[-1].start_byte)
        if changed and operator is None
        else ("", ())
    )
    return [Piece(text, quoted, name, changed, tuple(default), operator_of, operands)]


def _operation(parsed: Parsed, nodes: list[Node], end: int) -> tuple[str, tuple[tuple[Piece, ...], ...]]:
    """Return the operator of an expansion and what stands behind it; empty if its result is not computed."""
    kinds = [node.type for node in nodes]
    match kinds:
        case ["!", "variable_name"]:
            return "!", ()
        case ["variable_name", "@", letter] | ["variable_name", letter] if letter in CASES:
            return letter, ()
        case ["variable_name", "#" | "##" | "%" | "%%" | "/" | "//" | "/#" | "/%" as mark, *_]:
            operands = _operands(parsed.source[nodes[1].end_byte : end].decode(errors="replace"), mark)
            return (mark, operands) if operands else ("", ())
        case ["variable_name", ":", _] | ["variable_name", ":", _, ":", _]:
            return ":", tuple((_number(parsed, node),) for node in nodes[2::2])
        case _:
            return "", ()


def _operands(text: str, mark: str) -> tuple[tuple[Piece, ...], ...]:
    """Return the pieces of a pattern, and of what replaces it; empty if there are expansions that are not simple.

    The parser leaves out blanks in a pattern, and sees no quotes and no variables there.
    """
    found: list[list[Piece]] = [[], []] if mark[0] == "/" else [[]]
    at, end = 0, 0
    for match in _PATTERN.finditer(text):
        single, escaped, double, name, braced, plain = match.groups()
        if match.start() != end:
            return ()
        end = match.end()
        if double is not None:
            inner = [*_IN_DOUBLE_QUOTES.finditer(double)]
            if "".join(each[0] for each in inner) != double:
                return ()
            found[at].append(Piece("", quoted=True))
            for each in inner:
                named = each[1] or each[2] or ""
                found[at].append(Piece(each[0] if named else each[3] or each[4] or "", quoted=True, variable=named))
        elif name or braced:
            found[at].append(Piece(match[0], variable=name or braced))
        elif plain and mark[0] == "/" and not at and "/" in plain:
            before, _, behind = plain.partition("/")
            found[0].append(Piece(before))
            found[1].append(Piece(behind))
            at = 1
        else:
            found[at].append(Piece(plain) if plain else Piece(single or escaped or "", quoted=True))
    return tuple(map(tuple, found)) if end == len(text) else ()


def _number(parsed: Parsed, node: Node) -> Piece:
    """Return the piece for a number of `${x:1:n}`, which may be the value of a variable."""
    text = parsed.text(node)
    return Piece(text, variable=text) if node.type == "variable_name" else Piece(text)


_NAMES = ("variable_name", "special_variable_name")
_DEFAULTS = (":-", "-", ":=", "=", ":+", "+")


def fields(word: list[Piece], values: Mapping[str, str]) -> list[str]:
    """Return the words that bash makes of one: variables put in and split, braces expanded.

    Unknown variables stay `$NAME`.
    """
    if len(word) == 1 and not word[0].variable:  # nearly every word
        only = word[0]
        if only.quoted or ("{" not in only.text and _OPEN not in only.text and _COMMA not in only.text):
            return [only.text] if only.text or only.quoted else []
    text = _joined(word, values)
    literal = any(piece.quoted for piece in word) and bool(text or not any(map(may_vanish, word)))
    expanded = [part for each in expand_braces(text) for part in each.split(_BLANK) if part or literal]
    most = MAX_BRACES + 1 if "{" in text else MAX_FIELDS
    shown = [_shown(part) for part in expanded[:most]]
    return shown if len(expanded) <= most else [*shown, CUT]


def _joined(word: list[Piece], values: Mapping[str, str]) -> str:
    """Return the text of a word with its variables, up to some `_LONGEST_WORD` characters."""
    parts, size = list[str](), 0
    for piece in word:
        parts.append(_value(piece, values))
        size += len(parts[-1])
        if size > _LONGEST_WORD and piece.variable:
            return "".join((*parts, CUT))
    return "".join(parts)


def may_vanish(piece: Piece) -> bool:
    """Return whether a piece is a variable that becomes no word if it is empty: `$x`, or even in quotes `"$@"`."""
    return bool(piece.variable) and (not piece.quoted or piece.variable == "@")


def _value(piece: Piece, values: Mapping[str, str]) -> str:
    if not piece.variable:
        return _hidden(piece.text) if piece.quoted else piece.text
    value = values.get(piece.variable)
    if piece.operator and value is not None:
        value = _computed(piece, value, values)
    if value is None:
        value = "".join(_value(each, values) for each in piece.default) or piece.text
    if piece.quoted and piece.variable != "@":  # "$@" is several words even in quotes
        return _hidden(value)
    value = value.replace(CUT_IN_QUOTES, CUT)
    return re.sub(r"[ \t\n]+", _BLANK, value)


def _computed(piece: Piece, value: str, values: Mapping[str, str]) -> str:
    """Return what an operator makes of a variable's value; the value itself if that is not known."""
    if piece.operator == "!":
        return values.get(value, value)
    if is_cut(value) or any(
        name not in values for operand in piece.operands for each in operand for name in each.variables()
    ):
        return value
    texts = [[(_operand_text(each, values), each.quoted) for each in operand] for operand in piece.operands]
    joined = ["".join(text for text, _ in parts) for parts in texts]
    found: str | None = None
    if piece.operator in CASES:
        found = cased(value, piece.operator)
    elif piece.operator == ":":
        found = sliced(value, joined)
    elif (wanted := pattern_of(texts[0])) is not None:
        if piece.operator[0] == "/":
            found = replaced(value, piece.operator, wanted, joined[1])
        else:
            found = without(value, piece.operator, wanted)
    return value if found is None else found


def _operand_text(piece: Piece, values: Mapping[str, str]) -> str:
    """Return the text of a piece behind an operator, where bash neither splits words nor expands braces."""
    if piece.variable and not (piece.operator or piece.default):
        return values[piece.variable]
    return _shown(_value(piece, values)).replace(_BLANK, " ")


def expand_braces(text: str) -> list[str]:
    """Return `cat` and `cbt` for `c{a,b}t`, and the letters of `{a..c}`: the first MAX_BRACES of them."""
    done: list[str] = []
    todo, lists, cut, room = [text], False, False, _LONGEST_WORD
    while todo and len(done) < MAX_BRACES:
        current = todo.pop(0)
        match = _BRACES.search(current)
        if match is None or len(todo) > MAX_BRACES or room < 0:
            done.append(current)
            cut = cut or match is not None
            continue
        listed, first, last = match.groups()
        lists = lists or listed is not None or first.isalpha()
        choices = listed.split(",") if listed is not None else _range(first, last)
        cut = cut or len(choices) > MAX_BRACES + 1
        choices = choices[: MAX_BRACES + 1]
        room -= len(choices) * (len(current) - len(match[0])) + len(match[0])
        todo[:0] = [current[: match.start()] + choice + current[match.end() :] for choice in choices if room >= 0]
    return [*done, CUT] if room < 0 or (lists and (todo or cut)) else done


def _range(first: str, last: str) -> list[str]:
    """Return the first numbers of `1..3` or `01..03`, or the letters of `c..a`. Anything else stays as it is."""
    if first.isalpha() != last.isalpha():
        return [f"{first}..{last}"]
    if first.isalpha():
        step = 1 if first <= last else -1
        return [chr(number) for number in range(ord(first), ord(last) + step, step)]
    low, high = int(first), int(last)
    step = 1 if low <= high else -1
    padded = any(each.lstrip("-")[:1] == "0" and len(each.lstrip("-")) > 1 for each in (first, last))
    width = max(len(first), len(last)) if padded else 0
    return [f"{number:0{width}}" for number in range(low, low + step * min(abs(high - low) + 1, MAX_RANGE), step)]


def variants(words: list[list[Piece]], known: Mapping[str, tuple[str, ...]], limit: int) -> list[tuple[str, ...]]:
    """Return the argument lists of a command with the values of its variables, of at most `limit` combinations.

    The first one has the most recent values. What operators make of the values is computed if it is simple.
    """
    names = _known_names(words, known)
    if not names:
        return [tuple([field for word in words for field in fields(word, {})])]
    found: dict[tuple[str, ...], None] = {}
    # Most words have few of the variables, so each is put together only once for the same values.
    own = [_own_places(word, names) for word in words]
    made: list[dict[tuple[str, ...], list[str]]] = [{} for _ in words]
    for choice in islice(_choices([known[name] for name in names]), limit):
        argv: list[str] = []
        for word, places, known_words in zip(words, own, made, strict=True):
            key = tuple([choice[place] for place in places])
            if key not in known_words:
                known_words[key] = fields(word, dict(zip(names, choice, strict=True)))
            argv += known_words[key]
        found.setdefault(tuple(argv))
    return list(found)


def _own_places(word: Word, names: list[str]) -> list[int]:
    """Return the places of the variables in a word among some names. With `${!x}` in it, it may have any of them."""
    if any(piece.operator == "!" for piece in word):
        return list(range(len(names)))
    own = {name for piece in word for name in piece.variables()}
    return [place for place, name in enumerate(names) if name in own]


def count_variants(words: list[list[Piece]], known: Mapping[str, tuple[str, ...]]) -> int:
    """Return how many argument lists `variants` returns without a limit, or a few more."""
    values = [known[name] for name in _known_names(words, known)]
    every = prod(map(len, values))
    if every > MAX_CHOICES:
        every = prod(len(_some_numbers(each)) for each in values) + max(map(len, values))
    return every


def few_variants(words: list[list[Piece]], known: Mapping[str, tuple[str, ...]]) -> int:
    """Return how many argument lists `variants` needs to put in each value at least once, and some more."""
    return MAX_CHOICES + max((len(known[name]) for name in _known_names(words, known)), default=0)


def most_words(words: list[list[Piece]], known: Mapping[str, tuple[str, ...]]) -> int:
    """Return how many words the longest of the argument lists has at most."""
    return sum(_most_fields(word, known) for word in words)


def _most_fields(word: list[Piece], known: Mapping[str, tuple[str, ...]]) -> int:
    """Return how many words one word expands to at most: nearly every word is one."""
    most = 1
    for piece in word:
        if piece.variable and not piece.quoted:
            most += len(piece.text.split()) if piece.default else 0
            most += sum(
                max((len(value.split()) for value in known.get(each, ())), default=0) for each in piece.variables()
            )
        elif "{" in piece.text and not piece.quoted:
            most *= min(MAX_BRACES, (piece.text.count(",") + MAX_RANGE) ** min(3, piece.text.count("{")))
    return min(most, MAX_BRACES)


def _known_names(words: list[list[Piece]], known: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return the variables in words whose values are known, and those that `${!x}` may mean."""
    if not known:
        return []
    named = [piece for word in words for piece in word]
    meant = (value for piece in named if piece.operator == "!" for value in known.get(piece.variable, ()))
    return sorted(
        {name for name in (*(name for piece in named for name in piece.variables()), *meant) if name in known}
    )


def _choices(values: list[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Yield one value for each variable: all combinations or, of too many, those with some numbers for all others.

    Then every number is in at least one of them.
    """
    if prod(map(len, values)) <= MAX_CHOICES:
        yield from product(*values)
        return
    for at in range(max(map(len, values))):
        yield tuple(each[at % len(each)] for each in values)
    yield from product(*map(_some_numbers, values))


_TELLING_NUMBERS = ("0", "1", "6")  # as in `kill -1` and `init 6`


def _some_numbers(values: tuple[str, ...]) -> tuple[str, ...]:
    """Return the values with one number for all those that no blocked command tells from each other."""
    plain = [value for value in values if value.isdecimal() and value not in _TELLING_NUMBERS][1:]
    return tuple(value for value in values if value not in plain) if plain else values


def unchanged(words: list[Word]) -> list[Word]:
    """Return words whose variables have their own values, whatever their operators make of them."""
    return [[piece._replace(operator="", operands=()) for piece in word] for word in words]


def unknown(piece: Piece) -> Piece:
    """Return a piece as if its variable were unknown, if it may have another value than the variable."""
    return piece._replace(variable=f"{piece.variable}?") if piece.changed else piece


def emptied(words: list[Word], known: Mapping[str, tuple[str, ...]]) -> list[Word]:
    """Return the words without the unknown variables that are part of the program's name or a whole word.

    `$x curl`, `"$@" curl`, `cu${x}rl` and `sh -c $x curl` run curl if `x` is empty. Other variables stay, because
    `rm -rf $folder/` must not be taken for `rm -rf /`.
    """

    def is_unknown(piece: Piece) -> bool:
        return bool(piece.variable) and piece.variable not in known

    def vanishes(word: Word) -> bool:
        gone = (is_unknown(piece) and may_vanish(piece) if piece.variable else not piece.text for piece in word)
        return any(map(may_vanish, word)) and all(gone)

    first = [] if vanishes(words[0]) else [piece for piece in words[0] if not is_unknown(piece)]
    return [first, *(word for word in words[1:] if not vanishes(word))]


def parameters(words: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return the values of `$1`, `$2`, …, `$@` and `$*`. The key `@:` has those that `${@:2}` may have."""
    values = {str(place): (word,) for place, word in enumerate(words, start=1)}
    rest = " ".join(words)
    if not rest:
        return values
    return {**values, "@": (rest,), "*": (rest,), "@:": tuple(slices(words))}


def slices(words: tuple[str, ...]) -> list[str]:
    """Return what `${@:2}` and `${@:2:1}` may be: all suffixes and each word; of too many words only CUT."""
    return list(dict.fromkeys((*suffixes(words), *words))) if len(words) <= MAX_SHIFTS else [CUT]


def suffixes(words: tuple[str, ...]) -> list[str]:
    """Return `a b c`, `b c` and `c` for the words a, b and c, at most MAX_SHIFTS texts."""
    return [" ".join(words[at:]) for at in range(min(len(words), MAX_SHIFTS))]


def program_of(argv: tuple[str, ...]) -> str:
    """Return the base name of the program that is called with these words; empty for no words."""
    return argv[0].rpartition("/")[2] if argv else ""


def pattern(word: Word) -> str:
    """Return the text of a word that bash may replace by file names; empty for any other word."""
    unquoted = any(not piece.quoted and not GLOB.isdisjoint(piece.text) for piece in word)
    return "".join(piece.text for piece in word) if unquoted else ""


def kept(value: str) -> str:
    """Return the part of a variable's value that is kept."""
    return value if len(value) <= MAX_VALUE else value[:MAX_VALUE] + CUT


def expanded_twice(word: Word, forms: list[tuple[str, ...]]) -> bool:
    """Return whether bash may find more behind `>&` or `<&`, which it expands again: `>&'$(evil)'` runs evil."""
    literal = "".join(piece.text for piece in word if not piece.variable and piece.text != OUTPUT)
    values = "".join(part for form in forms for part in form).replace(OUTPUT, "")
    return not frozenset("$`'\"\\").isdisjoint(literal) or any(mark in values for mark in ("`", "$(", "${", "'", '"'))


def closes(words: list[Word]) -> bool:
    """Return whether `>&` closes a descriptor, though the word behind it is more than a dash: `>& -ls`."""
    first = words[0][0] if words and words[0] else Piece("")
    return not first.quoted and first.text[:1] == "-" and "".join(piece.text for piece in words[0]) != "-"
