"""What an answer says its body is: a MIME type and a character set (T5.18)."""

import re
from dataclasses import dataclass
from typing import Final, Self

_TEXT_TYPES: Final = frozenset(
    f"application/{name}"
    for name in (
        *("json", "xml", "xhtml+xml", "javascript", "x-javascript", "ecmascript", "yaml", "x-yaml", "toml", "x-toml"),
        *("ndjson", "x-ndjson", "jsonl", "json5", "graphql", "sql", "x-sh", "x-tex", "x-latex", "xml-dtd"),
    )
)
_TEXT_SUFFIXES: Final = ("+json", "+xml", "+yaml")
_HTML_TYPES: Final = frozenset({"text/html", "application/xhtml+xml"})

_DECLARED_WITHIN: Final = 1024
"""Bytes of a page in which it must name its character set (HTML, "specifying the document's character encoding")."""
_COMMENT: Final = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_META: Final = re.compile(r"""<meta[\s/]((?:[^>"']|"[^"]*"|'[^']*')*)>""")
_ATTRIBUTE: Final = re.compile(r"""([^\s=/"']+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"']+))""")


@dataclass(frozen=True, slots=True)
class ContentType:
    """A Content-Type header, in lower case; both empty when there was none."""

    mime: str
    charset: str

    @classmethod
    def read(cls, header: str) -> Self:
        """Never fails: what cannot be understood is empty."""
        mime, *parameters = (part.strip().lower() for part in header.partition(",")[0].split(";"))
        named = (parameter.partition("=") for parameter in parameters)
        charset = next((value.strip(" \"'") for name, _, value in named if name.strip() == "charset"), "")
        return cls(mime, charset)

    @property
    def is_text(self) -> bool:
        """Whether it names a text type, or nothing, which only the body can tell then."""
        known = self.mime.startswith("text/") or self.mime in _TEXT_TYPES or self.mime.endswith(_TEXT_SUFFIXES)
        return known or not self.mime

    def charset_of(self, body: bytes) -> str:
        """The character set named for a body: by the header, else by a page of HTML in its own first bytes."""
        if self.charset or self.mime not in _HTML_TYPES:
            return self.charset
        return _declared(body[:_DECLARED_WITHIN].decode("latin-1").lower())


def _declared(start: str) -> str:
    """What the first `<meta charset=...>`, or `<meta http-equiv=content-type ...>` with one, says; else ""."""
    for tag in _META.finditer(_COMMENT.sub("", start)):
        attributes = {name: double or single or bare for name, double, single, bare in _ATTRIBUTE.findall(tag[1])}
        charset = attributes.get("charset", "").strip()
        if attributes.get("http-equiv", "").strip() == "content-type":
            charset = charset or ContentType.read(attributes.get("content", "")).charset
        if charset:
            # What could be read up to here as ASCII is none of these, whatever it says.
            return "utf-8" if charset.startswith("utf-16") else charset
    return ""
