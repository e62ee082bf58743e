"""The words of a Markdown paragraph as HTML: code, bold, italics, struck out, links. Anything else is text.

Every piece is escaped where it is put into the page. Each repetition of the pattern is bounded, so that a hostile
text costs time linear in its length.
"""

import re

from acp_agent.cli.page.escaped import is_web, link, text


def _target(name: str) -> str:
    """The pattern of what stands in a link's parentheses: a URL, which may have pairs of them, and a title."""
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
_DEPTH = 4  # of what stands in one another


def inline(words: str, depth: int = _DEPTH, *, links: bool = True) -> str:
    """HTML for a run of Markdown. Pictures become links: a page loads nothing from elsewhere."""
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
    """What is read of a link. A label that is an address itself must not tell another than the link's."""
    match kind:
        case "picture":
            return f'<span class="picture">{text(found["alt"] or "picture")}</span>'
        case "target" if not is_web(found["label"].strip()):
            return inline(found["label"], 1, links=False)
        case _:
            return text(found[kind])


def _trimmed(code: str) -> str:
    """One blank at each end belongs to the ticks, unless there is nothing else."""
    code = code.replace("\n", " ")
    return code[1:-1] if code[:1] == code[-1:] == " " and code.strip() else code
