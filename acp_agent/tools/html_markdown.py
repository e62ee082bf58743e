"""An HTML page as Markdown the way people write it, while it is read."""

import re
from dataclasses import dataclass, field
from urllib.parse import urljoin, urlsplit

from acp_agent.tools.html_words import BLOCKS, CELLS, HEADINGS, LARGE, LISTS, MAX_CHARS, SPACED, Words
from acp_agent.tools.text_lines import collapsed

_LONGEST_URL = 2048
_NO_CONTENT = {"button", "canvas", "dialog", "iframe", "nav", "noscript", "object", "select", "svg", "textarea"}
_INVISIBLE = re.compile(r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*hidden)", re.IGNORECASE)
_LANGUAGE = re.compile(r"(?:^|\s)lang(?:uage)?-([\w+#.-]{1,30})")


@dataclass(slots=True)
class _Kept:
    """Text kept apart until its element ends: a link, a cell, a title, code. `note` is the URL or the language."""

    tag: str
    depth: int
    note: str = ""
    pieces: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class _Table:
    """A table whose cells all hold but words. `row` are the cells of the row under way."""

    rows: int = 0
    row: list[str] = field(default_factory=list[str])


class Markdown(Words):
    """Keeps structure and links too.

    Inside a link or a cell, blocks are blanks; one too large for that (a list, code, another table) makes the link
    plain text, and the table a way to lay out a page: its cells become blocks.

    kept       texts kept apart, the innermost last
    prefixed   depths of the elements that have put a prefix before lines
    lists      for each open list, the number of its last item; None when it is not numbered
    addresses  characters of the URLs written so far
    """

    def __init__(self, url: str) -> None:
        super().__init__()
        self._base = url
        self._title = ""
        self._kept: list[_Kept] = []
        self._prefixed: list[int] = []
        self._lists: list[int | None] = []
        self._table: _Table | None = None
        self._addresses = 0

    def text(self) -> str:
        self._release()
        body = super().text()
        heading = f"# {self._title}"
        if not self._title or body == heading or body.startswith(f"{heading}\n"):
            return body
        return f"{heading}\n\n{body}".rstrip("\n")

    def excess(self) -> str:
        return super().excess() or (f"over {MAX_CHARS} characters" if self._addresses > MAX_CHARS else "")

    def _hides(self, tag: str, attrib: dict[str, str]) -> bool:
        if tag in ("html", "body"):  # some pages hide themselves until their scripts have run
            return False
        return (
            tag in _NO_CONTENT
            or "hidden" in attrib
            or attrib.get("aria-hidden") == "true"
            or attrib.get("role") in ("navigation", "search")
            or _INVISIBLE.search(attrib.get("style", "")[:1000]) is not None
        )

    def _add(self, text: str) -> None:
        if self._kept:
            self._kept[-1].pieces.append(text)
        else:
            self._lines.add(text)

    # ------------------------------------------------------------------------------ beginnings

    def _begin(self, tag: str, attrib: dict[str, str]) -> None:
        if self._kept and self._kept[-1].tag == "pre":
            self._begin_in_code(tag, attrib)
            return
        if tag in LARGE:
            self._release()
        if tag in BLOCKS:
            self._block(tag)
        match tag:
            case "title" | "code" | "pre":
                self._keep(tag, _language(attrib))
            case "a":
                self._keep(tag, self._absolute(attrib.get("href", "")))
            case "td" | "th":
                self._begin_cell(tag)
            case "table":
                self._table = _Table()
            case "tr":
                self._end_row()
            case "img":
                self._add(f" {attrib.get('alt', '')} ")
            case "base":
                self._base = self._absolute(attrib.get("href", "")) or self._base
            case "hr":
                self._lines.whole("---")
                self._lines.end(gap=True)
            case _:
                self._begin_prefix(tag)

    def _begin_cell(self, tag: str) -> None:
        if self._table is not None:
            self._keep(tag)
        else:
            self._block(tag)

    def _begin_prefix(self, tag: str) -> None:
        """Lists, their items, quotes and headings: lines that begin with a sign."""
        if tag in LISTS:
            self._lists.append(0 if tag == "ol" else None)
        if self._kept or tag not in ("li", "blockquote", *HEADINGS):
            return
        first, rest = "> ", "> "
        if tag == "li":
            first = self._bullet()
            rest = " " * len(first)
        elif tag in HEADINGS:
            first, rest = HEADINGS[tag], ""
        self._lines.push(first, rest)
        self._prefixed.append(self._meter.depth)

    def _bullet(self) -> str:
        number = self._lists[-1] if self._lists else None
        if number is None:
            return "- "
        self._lists[-1] = number + 1
        return f"{number + 1}. "

    def _begin_in_code(self, tag: str, attrib: dict[str, str]) -> None:
        code = self._kept[-1]
        if tag == "br" or (tag in BLOCKS and code.pieces and not code.pieces[-1].endswith("\n")):
            code.pieces.append("\n")
        code.note = code.note or _language(attrib)

    def _block(self, tag: str) -> None:
        """Where a block begins or ends, so does a line; inside a link or a cell there is but one."""
        if self._kept:
            self._add(" ")
        else:
            self._lines.end(gap=tag in SPACED and not (self._lists and tag in (*LISTS, "p")))

    def _keep(self, tag: str, note: str = "") -> None:
        if all(kept.tag != tag for kept in self._kept):  # one in another of its kind is part of it
            self._kept.append(_Kept(tag, self._meter.depth, note))

    # ------------------------------------------------------------------------------ ends

    def _finish(self, tag: str) -> None:
        if self._kept and self._kept[-1].depth == self._meter.depth:
            self._finish_kept(self._kept.pop())
        elif self._kept and self._kept[-1].tag == "pre":
            return
        elif tag in BLOCKS or tag in CELLS:
            self._block(tag)
        if self._prefixed and self._prefixed[-1] == self._meter.depth:
            self._prefixed.pop()
            self._lines.pop()
        if tag in LISTS and self._lists:
            self._lists.pop()
            self._lines.end(gap=not self._lists)
        elif tag in ("tr", "table"):
            self._end_row()
            self._table = None if tag == "table" else self._table

    def _finish_kept(self, kept: _Kept) -> None:
        text = "".join(kept.pieces)
        line = collapsed(text)
        match kept.tag:
            case "pre":
                self._write_code(text, kept.note)
            case "title":
                self._title = self._title or line
            case "a" if line and kept.note:
                self._add(f"[{line}]({kept.note})")
                self._addresses += len(kept.note)
            case "code" if line:
                self._add(f"`` {line} ``" if "`" in line else f"`{line}`")
            case "td" | "th" if self._table is not None:
                self._table.row.append(line.replace("|", "\\|"))
            case _:
                self._add(text)

    def _write_code(self, text: str, language: str) -> None:
        longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
        fence = "`" * (longest + 1)
        lines = text.removeprefix("\n").rstrip().split("\n")
        for line in (f"{fence}{language}", *lines, fence) if any(lines) else ():
            self._lines.whole(line)
        self._lines.end(gap=True)

    def _end_row(self) -> None:
        if self._table is None or not self._table.row:
            return
        row, self._table.row = self._table.row, []
        if any(row):
            self._lines.whole(f"| {' | '.join(row)} |")
            self._table.rows += 1
            if self._table.rows == 1:
                self._lines.whole("|---" * len(row) + "|")

    def _release(self) -> None:
        """Give back what was kept apart: it turned out to be something else."""
        self._end_row()
        self._table = None
        pieces = [piece for kept in self._kept if kept.tag != "title" for piece in kept.pieces]
        self._kept.clear()
        for piece in pieces:
            self._lines.add(piece)

    def _absolute(self, href: str) -> str:
        """The URL a link leads to; empty when it leads nowhere a tool could follow."""
        href = href.strip()
        if not href or href.startswith("#") or len(href) > _LONGEST_URL:
            return ""
        try:
            url = urljoin(self._base, href)
            scheme = urlsplit(url).scheme
        except ValueError:  # https://[
            return ""
        if scheme not in ("http", "https", "mailto") or len(url) > _LONGEST_URL:
            return ""
        return collapsed(url).replace(" ", "%20").replace("(", "%28").replace(")", "%29")


def _language(attrib: dict[str, str]) -> str:
    found = _LANGUAGE.search(attrib.get("class", "")[:200])
    return found[1] if found else ""
