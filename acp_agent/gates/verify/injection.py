"""Ask about URLs and SQL that look like an injection. It never refuses, since the look is no proof.

The values of URL parameters for free text (`q=`, `text=`) are not judged: searching for an attack is none. `net`
decides by addresses which hosts may be reached.
"""

import re
from collections.abc import Iterator
from urllib.parse import parse_qsl, unquote, urlsplit

from acp_agent.core.types import Allow, Ask, Verdict
from acp_agent.gates.paths.command_paths import Folders
from acp_agent.gates.shell.command import Command
from acp_agent.gates.verify.verifier import Verifier

MAX_URL = 4096
"""The most characters of a URL that is read. No page needs a longer one, which is asked about."""

_FREE_TEXT = frozenset(("q", "query", "search", "text", "message", "content"))
_DATABASES = frozenset(("psql", "mysql", "mariadb", "sqlite3", "duckdb", "sqlcmd", "cqlsh"))

_URL_SHAPES = {
    "SQL": re.compile(
        r"\bor\s+(['\"]?)(\w{1,32})\1\s*=\s*\1\2\b|\bunion\s+(?:all\s+)?select\b|['\"]\s*(?:--|/\*)"
        r"|['\")]\s*;\s*(?:drop|delete|insert|update|alter|exec)\b|\b(?:pg_)?sleep\s*\(\s*\d|\bwaitfor\s+delay\b",
        re.IGNORECASE,
    ),
    "a shell command": re.compile(
        r"[;|&]\s*(?:rm|curl|wget|nc|ncat|bash|sh|chmod|cat)\s|\$\(|`[^`]*`|\$\{jndi:", re.IGNORECASE
    ),
    "steps out of a folder": re.compile(r"(?:^|[/\\=])\.\.(?:[/\\]|$)"),
    "a line end": re.compile(r"[\r\n]"),
}
_SQL_SHAPES = {
    "runs programs": re.compile(
        r"\\!|\bxp_cmdshell\b|\b(?:to|from)\s+program\b|^\s*\.(?:shell|system)\b|\bload_extension\s*\(",
        re.IGNORECASE | re.MULTILINE,
    ),
    "reads or writes files": re.compile(
        r"\binto\s+(?:out|dump)file\b|\bload_file\s*\(|\bpg_(?:read|write)_\w*file\w*\s*\(|\blo_(?:im|ex)port\s*\(",
        re.IGNORECASE,
    ),
    "drops data": re.compile(r"\bdrop\s+(?:table|database|schema)\b|\btruncate\s+(?:table\s+)?[\w\"`]", re.IGNORECASE),
}


class Injection(Verifier):
    """Judges URLs that a call reaches, and the SQL that commands give to database clients."""

    name = "injection"

    def url(self, url: str) -> Verdict:
        if len(url) > MAX_URL:
            return Ask(f"the URL has {len(url):,} characters and may carry data away")
        shapes = [shape for shape, pattern in _URL_SHAPES.items() if any(map(pattern.search, _parts(url)))]
        return Ask(f"the URL holds {' and '.join(shapes)}") if shapes else Allow()

    def command(self, command: Command, folders: Folders) -> Verdict:
        del folders
        if command.name not in _DATABASES:
            return Allow()
        texts = (*command.argv[1:], command.stdin)
        shapes = [shape for shape, pattern in _SQL_SHAPES.items() if any(map(pattern.search, texts))]
        return Ask(f"the SQL for {command.name} {' and '.join(shapes)}") if shapes else Allow()


def _parts(url: str) -> Iterator[str]:
    """Yield the path and the values of the parameters, each as it is and decoded once more."""
    try:
        parts = urlsplit(url)
    except ValueError:  # an invalid URL is not reached anyway
        return
    values = [value for name, value in parse_qsl(parts.query) if name.casefold() not in _FREE_TEXT]
    for part in (unquote(parts.path), *values):
        yield part
        yield unquote(part)
