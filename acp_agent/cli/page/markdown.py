"""Markdown of models as safe HTML.

`markdown` knows paragraphs, headings, lists, quotes, fenced code, tables and rules. `inline` knows code, bold, italics,
struck text and links. HTML in the Markdown is shown as text. Every piece is escaped where it enters the page, and links
lead to the web only. Each repetition in the patterns is bounded, so a hostile text costs time linear in its length.
"""

import html
import re
from collections.abc import Callable
from urllib.parse import urlsplit

from acp_agent.cli.session_text import clipped, shown

_URL = re.compile(r"https?://[!-~]{1,2000}", re.IGNORECASE)  # only ASCII, which excludes lookalike letters


def text(value: str) -> str:
    """Return escaped HTML text, which is also safe in a quoted attribute. Line ends and tabs stay."""
    return html.escape(shown(value))


def is_web(url: str) -> bool:
    """Return True for an ASCII http or https URL without user and password."""
    if not _URL.fullmatch(url):
        return False
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and "@" not in parts.netloc and "\\" not in url
    except ValueError:
        return False


def link(url: str, label: str) -> str:
    """Return a link as HTML. `label` is HTML. A URL that does not lead to the web is shown as text."""
    if not is_web(url):
        return f'{label} <span class="target">({text(clipped(url, 500))})</span>'
    return f'<a href="{text(url)}" rel="noopener noreferrer nofollow">{label}</a>'


def _target(name: str) -> str:
    """Return the pattern of a link's target: a URL, which may contain pairs of parentheses, and a title."""
    return rf"<?(?P<{name}>(?:[^\s()<>]|\([^\s()<>]{{0,500}}\)){{1,2000}})>?(?:\s+[\"'][^\"'\n]{{0,300}}[\"'])?\s?"


_TOKEN = re.compile(
    r"\\(?P<escaped>[!-/:-@\[-`{-~])"
    r"|(?P<run>\*{4,}+|_{4,}+|~{3,}+)"
    r"|(?P<ticks>`{1,8})(?!`)(?P<code>.{1,1000}?)(?<!`)(?P=ticks)(?!`)"
    rf"|!\[(?P<alt>[^\[\]]{{0,300}})\]\({_target('picture')}\)"
    rf"|\[(?P<label>[^\[\]]{{1,300}})\]\({_target('target')}\)"
    r"|<?(?P<bare>https?://[^\s<>\"'`*|\[\]()]{1,2000}(?<![.,;:!?]))>?"
    r"|\*\*(?=\S)(?P<bold>.{1,400}?)(?<=\S)\*\*(?!\*)"
    r"|(?<!\w)__(?=\S)(?P<bold_>.{1,400}?)(?<=\S)__(?!\w)"
    r"|~~(?=\S)(?P<gone>.{1,400}?)(?<=\S)~~"
    r"|\*(?=[^\s*])(?P<italic>[^*\n]{1,400}?)(?<=\S)\*"
    r"|(?<!\w)_(?=[^\s_])(?P<italic_>[^_\n]{1,400}?)(?<=\S)_(?!\w)"
    r"|(?P<break> {2,8}\n|\\\n)",
    re.DOTALL,
)
_ELEMENTS = {"bold": "strong", "bold_": "strong", "gone": "s", "italic": "em", "italic_": "em"}
_DEPTH = 4  # levels of nested emphasis


def inline(words: str, depth: int = _DEPTH, *, links: bool = True) -> str:
    """Return HTML for Markdown without blocks. Pictures become links, since the page must load nothing."""
    pieces, at = list[str](), 0
    for found in _TOKEN.finditer(words):
        pieces += text(words[at : found.start()]), _element(found, depth, links=links)
        at = found.end()
    return "".join((*pieces, text(words[at:])))


def _element(found: re.Match[str], depth: int, *, links: bool) -> str:
    kind = found.lastgroup or ""
    match kind:
        case "escaped" | "run":
            return text(found[kind])
        case "code":
            return f"<code>{text(_trimmed(found[kind]))}</code>"
        case "break":
            return "<br>\n"
        case "picture" | "target" | "bare":
            return link(found[kind], _label(found, kind)) if links else _label(found, kind)
        case _:
            inside = inline(found[kind], depth - 1, links=links) if depth else text(found[kind])
            return f"<{_ELEMENTS[kind]}>{inside}</{_ELEMENTS[kind]}>"


def _label(found: re.Match[str], kind: str) -> str:
    """Return the label of a link. A label that is a URL is shown as text, so that it cannot hide another target."""
    match kind:
        case "picture":
            return f'<span class="picture">{text(found["alt"] or "picture")}</span>'
        case "target" if not is_web(found["label"].strip()):
            return inline(found["label"], 1, links=False)
        case _:
            return text(found[kind])


def _trimmed(code: str) -> str:
    """Return code without one blank at each end, unless it consists of blanks only."""
    code = code.replace("\n", " ")
    return code[1:-1] if code[:1] == code[-1:] == " " and code.strip() else code


_FENCE = re.compile(r" {0,3}(?P<mark>`{3,20}|~{3,20}) *(?P<info>[^`\n]{0,100})")
_HEADING = re.compile(r" {0,3}(?P<marks>#{1,6})[ \t]+(?P<words>.*?)[ \t#]*")
_RULE = re.compile(r" {0,3}(?:(?:\* *){3,40}|(?:- *){3,40}|(?:_ *){3,40})")
_QUOTE = re.compile(r" {0,3}> ?")
_ITEM = re.compile(r"(?P<before> {0,3}(?:[-*+]|(?P<number>\d{1,9})[.)]))(?P<gap>[ \t]{1,4}|$)")
_DELIMITER = re.compile(r" {0,3}\|?(?: *:?-{1,40}:? *\|){1,40}(?: *:?-{1,40}:? *)?")
_CELL_END = re.compile(r"(?<!\\)\|")
_BLOCK_DEPTH = 6  # levels of nested lists and quotes; deeper ones are paragraphs


def markdown(source: str, depth: int = _BLOCK_DEPTH) -> str:
    """Return HTML for a whole text. It never raises; text that is no Markdown is a paragraph."""
    return _Blocks(source.replace("\r\n", "\n").split("\n"), depth).html()


class _Blocks:
    """Converts lines to HTML, one block after the other."""

    def __init__(self, lines: list[str], depth: int) -> None:
        self._lines = [line.replace("\t", "    ") for line in lines]
        self._at = 0
        self._depth = depth
        self._readers: tuple[Callable[[str], str | None], ...] = (
            self._fence,
            self._heading,
            self._rule,
            self._quote,
            self._list,
            self._table,
        )

    def html(self) -> str:
        blocks = list[str]()
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.strip():
                blocks.append(self._block(line) or self._paragraph())
            else:
                self._at += 1
        return "\n".join(blocks)

    def _block(self, line: str) -> str | None:
        """Convert the block that begins here. Return None and consume nothing if it is a paragraph."""
        return next((html for read in self._readers if (html := read(line)) is not None), None)

    def _paragraph(self) -> str:
        begin = self._at
        self._at += 1
        while self._at < len(self._lines) and not self._interrupts(self._lines[self._at]):
            self._at += 1
        return f"<p>{inline(_joined(self._lines[begin : self._at]))}</p>"

    def _interrupts(self, line: str) -> bool:
        return not line.strip() or any(
            pattern.match(line) if pattern is not _RULE else pattern.fullmatch(line)
            for pattern in (_FENCE, _HEADING, _RULE, _QUOTE, _ITEM)
        )

    def _fence(self, line: str) -> str | None:
        opened = _FENCE.fullmatch(line)
        if opened is None:
            return None
        mark, begin = opened["mark"], self._at + 1
        end = next((n for n in range(begin, len(self._lines)) if _closes(self._lines[n], mark)), len(self._lines))
        self._at = end + 1
        language = f'<span class="language">{text(opened["info"].strip())}</span>' if opened["info"].strip() else ""
        return f'<pre class="code">{language}<code>{text(chr(10).join(self._lines[begin:end]))}</code></pre>'

    def _heading(self, line: str) -> str | None:
        found = _HEADING.fullmatch(line)
        if found is None:
            return None
        self._at += 1
        level = min(len(found["marks"]) + 2, 6)  # the page itself uses the first two levels
        return f"<h{level}>{inline(found['words'])}</h{level}>"

    def _rule(self, line: str) -> str | None:
        if not _RULE.fullmatch(line):
            return None
        self._at += 1
        return "<hr>"

    def _quote(self, line: str) -> str | None:
        if not self._depth or not _QUOTE.match(line):
            return None
        begin = self._at
        while self._at < len(self._lines) and _QUOTE.match(self._lines[self._at]):
            self._at += 1
        inside = [_QUOTE.sub("", quoted, count=1) for quoted in self._lines[begin : self._at]]
        return f"<blockquote>{_Blocks(inside, self._depth - 1).html()}</blockquote>"

    def _list(self, line: str) -> str | None:
        first = _ITEM.match(line)
        if not self._depth or first is None:
            return None
        items = list[str]()
        while (item := self._item(numbered=first["number"] is not None)) is not None:
            items.append(f"<li>{item}</li>")
        if first["number"] is None:
            return f"<ul>{''.join(items)}</ul>"
        return f'<ol start="{int(first["number"])}">{"".join(items)}</ol>'

    def _item(self, *, numbered: bool) -> str | None:
        """Convert the list item that begins here, with the indented lines after it. Return None if there is none."""
        found = _ITEM.match(self._lines[self._at]) if self._at < len(self._lines) else None
        if found is None or (found["number"] is not None) != numbered or _RULE.fullmatch(found.string):
            return None
        inside, width = [found.string[found.end() :]], len(found["before"]) + max(len(found["gap"]), 1)
        self._at += 1
        while self._at < len(self._lines) and self._belongs(self._lines[self._at], width):
            inside.append(self._lines[self._at][min(width, _indent(self._lines[self._at])) :])
            self._at += 1
        html = _Blocks(inside, self._depth - 1).html()
        tight = html.removeprefix("<p>")  # an item with one paragraph needs no <p>
        return tight.replace("</p>", "", 1) if html.startswith("<p>") and html.count("<p>") == 1 else html

    def _belongs(self, line: str, width: int) -> bool:
        if line.strip():
            went_on = bool(self._lines[self._at - 1].strip())
            return _indent(line) >= min(width, 2) or (went_on and not self._interrupts(line))
        following = next((after for after in self._lines[self._at : self._at + 3] if after.strip()), "")
        return bool(following) and (_indent(following) >= min(width, 2) or _ITEM.match(following) is not None)

    def _table(self, line: str) -> str | None:
        if "|" not in line or self._at + 1 >= len(self._lines) or not _DELIMITER.fullmatch(self._lines[self._at + 1]):
            return None
        head, begin = _cells(line), self._at + 2
        self._at = begin
        while self._at < len(self._lines) and "|" in self._lines[self._at]:
            self._at += 1
        rows = [_row("td", _cells(row)[: len(head)]) for row in self._lines[begin : self._at]]
        return (
            f'<div class="scroll"><table><thead>{_row("th", head)}</thead><tbody>{"".join(rows)}</tbody></table></div>'
        )


def _row(element: str, cells: list[str]) -> str:
    return f"<tr>{''.join(f'<{element}>{inline(cell)}</{element}>' for cell in cells)}</tr>"


def _cells(line: str) -> list[str]:
    line = line.strip().removeprefix("|")
    line = line[:-1] if line.endswith("|") and not line.endswith("\\|") else line
    return [cell.strip().replace("\\|", "|") for cell in _CELL_END.split(line)]


def _closes(line: str, mark: str) -> bool:
    line = line.strip()
    return len(line) >= len(mark) and line == mark[0] * len(line)


def _joined(lines: list[str]) -> str:
    """Return a paragraph's lines without indentation. Blanks at their ends stay, since they may mean a line break."""
    return "\n".join(line.lstrip() for line in lines).rstrip()


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
