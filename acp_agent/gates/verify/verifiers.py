"""The verifier gate, and the small verifiers: destructive commands, injections, URLs that the user did not type.

A command that wipes a system is refused (`gates/shell/danger.py` says which). One that erases something for good may be
intended: it is asked about even if a rule allows the program. URLs and SQL that look like an injection are asked about
but never refused, because the form is no proof. Values of URL parameters for free text (`q=`, `text=`) are not judged,
because a search for an attack is harmless. `net` decides by addresses which hosts may be reached.
"""

import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import ClassVar, assert_never
from urllib.parse import parse_qsl, unquote, urlsplit

from anyio import to_thread

from acp_agent.core.types import Access, Allow, Ask, Deny, PathSubject, Verdict
from acp_agent.gates.gate import CallFacts, Gate
from acp_agent.gates.paths.command_paths import Folders
from acp_agent.gates.shell.command import Command
from acp_agent.gates.shell.danger import destructive
from acp_agent.gates.shell.options import has_option, operands, tables
from acp_agent.gates.shell.programs import outlives_undo
from acp_agent.gates.verify.folder_readers import reading
from acp_agent.text import lazy_regex


class Verifier:
    """A judge of the subjects of a call, one by one. It allows what it does not know.

    Deny is for a call that the user cannot have intended, Ask for a weak signal.

    name   begins the rule in the audit
    """

    name: ClassVar[str] = "verifier"

    def path(self, subject: PathSubject) -> Verdict:
        """Return the verdict on a path that a tool itself touches."""
        del subject
        return Allow()

    def paths(self, subjects: Sequence[PathSubject]) -> Verdict:
        """Return the verdict on what a tool does with all its paths together."""
        del subjects
        return Allow()

    def command(self, command: Command, folders: Folders) -> Verdict:
        """Return the verdict on one simple command in its possible folders. Those that it starts are judged apart."""
        del command, folders
        return Allow()

    def url(self, url: str) -> Verdict:
        """Return the verdict on a URL that a call reaches."""
        del url
        return Allow()


_SHORT = 500
"""The most characters of a command line for whose verdict a thread would cost more than the work."""
_MOST = 5
"""The most reasons in one question."""


class VerifierGate(Gate):
    """A gate that lets verifiers judge every subject of a call. One Deny ends it; the Asks become one question."""

    name = "verifiers"

    def __init__(self, verifiers: Sequence[Verifier]) -> None:
        self._verifiers = tuple(verifiers)

    def judge(self, facts: CallFacts) -> Verdict:
        reasons: dict[str, None] = {}
        firm, by_name, by_rule = False, True, True
        for verdict in self._all_verdicts(facts):
            match verdict:
                case Deny():
                    return verdict
                case Ask(reason):
                    reasons[reason] = None
                    firm, by_name = firm or verdict.firm, by_name and verdict.by_name
                    by_rule = by_rule and verdict.by_rule
                case Allow():
                    continue
                case _:
                    assert_never(verdict)
        return Ask(_listed([*reasons]), firm, by_name, by_rule=by_rule) if reasons else Allow()

    async def examine(self, facts: CallFacts) -> Verdict:
        """Judge a call in a worker thread if it may read folders, since large ones take a while."""
        may_read = False
        for line in facts.commands:
            may_read = may_read or len(line.text) > _SHORT
            for command in () if may_read else line.survey.commands:
                may_read = may_read or bool(command.patterns) or reading(command) is not None
        if len(facts.paths) > 1:
            accesses = {subject.access for subject in facts.paths}
            copies = Access.WRITE in accesses and not accesses.isdisjoint((Access.LIST, Access.MOVE))
            may_read = may_read or copies
        if self._verifiers and may_read:
            return await to_thread.run_sync(self.judge, facts, abandon_on_cancel=True)
        return self.judge(facts)

    def _all_verdicts(self, facts: CallFacts) -> Iterator[Verdict]:
        for path in facts.paths:
            for verifier in self._verifiers:
                yield verifier.path(path)
        for line in facts.commands:
            for step in line.surveyed_steps:
                for verifier in self._verifiers:
                    yield verifier.command(step.command, step.folders)
        for url in facts.urls:
            for verifier in self._verifiers:
                yield verifier.url(url)
        if len(facts.paths) > 1:
            for verifier in self._verifiers:
                yield verifier.paths(facts.paths)


def _listed(reasons: list[str]) -> str:
    more = [f"and {len(reasons) - _MOST} more"] if len(reasons) > _MOST else []
    return "; ".join([*reasons[:_MOST], *more])


_OPEN_TO_ALL = lazy_regex(r"[0-7]{0,4}[2367]|[ug]*[oa][ugoa]*[+=][rxXst]*w[rwxXst]*")
_WHOLE = (".", "..", "*", ".*", ".git", "$PWD")


class Destructive(Verifier):
    """A verifier of single commands. The blocklist judges what is no single command, such as a fork bomb."""

    name = "destructive"

    def command(self, command: Command, folders: Folders) -> Verdict:
        pattern = destructive(command, "")
        for folder in folders.possible:
            if not pattern and folder.startswith(("/", "~")):
                pattern = destructive(command, folder)
        name, args = command.name.casefold(), command.argv[1:]
        stem = name.partition(".")[0]
        if pattern or stem in tables().danger["disk_makers"]:
            rule = f"destructive: {pattern or stem}"
            reason = f"the command destroys what cannot be restored ('{pattern or stem}')"
            return Deny(
                reason, rule=rule, advice="Name single files inside the workspace, or tell the user what to run."
            )
        match name:
            case "rm" if has_option(args, "rR", "--recursive"):
                whole = next((path for path in operands(args) if posixpath.normpath(path) in _WHOLE), "")
                # It takes git's hooks and settings too, so full-auto does not answer the question.
                return Ask(f"deletes the whole folder or its history: rm -r {whole}", firm=True) if whole else Allow()
            case "git" if outlives_undo(command):
                return Ask("/undo does not bring back what this destroys", by_rule=True)
            case "chmod" if has_option(args, "R", "--recursive") and any(map(_open_to_all, operands(args)[:1])):
                return Ask("lets all users change whole folders")
            case "chown" | "chgrp" if has_option(args, "R", "--recursive"):
                return Ask("gives whole folders to another owner")
            case "truncate":
                return Allow()  # for a file it does the same as `>`
            case _ if name in tables().danger["disk_tools"]:
                harmless = has_option(args, "l", "--list", "--version", "--help")
                return Allow() if harmless else Ask(f"{name} may erase for good")
            case _:
                return Allow()


def _open_to_all(mode: str) -> bool:
    return any(_OPEN_TO_ALL.fullmatch(clause) for clause in mode.split(","))


MAX_URL = 4096
"""The most characters of a URL that is read. No page needs a longer one, which is asked about."""

_FREE_TEXT = frozenset(("q", "query", "search", "text", "message", "content"))
_DATABASES = frozenset(("psql", "mysql", "mariadb", "sqlite3", "duckdb", "sqlcmd", "cqlsh"))

_URL_SHAPES = {
    "SQL": lazy_regex(
        r"\bor\s+(['\"]?)(\w{1,32})\1\s*=\s*\1\2\b|\bunion\s+(?:all\s+)?select\b|['\"]\s*(?:--|/\*)"
        r"|['\")]\s*;\s*(?:drop|delete|insert|update|alter|exec)\b|\b(?:pg_)?sleep\s*\(\s*\d|\bwaitfor\s+delay\b",
        re.IGNORECASE,
    ),
    "a shell command": lazy_regex(
        r"[;|&]\s*(?:rm|curl|wget|nc|ncat|bash|sh|chmod|cat)\s|\$\(|`[^`]*`|\$\{jndi:", re.IGNORECASE
    ),
    "steps out of a folder": lazy_regex(r"(?:^|[/\\=])\.\.(?:[/\\]|$)"),
    "a line end": lazy_regex(r"[\r\n]"),
}
_SQL_SHAPES = {
    "runs programs": lazy_regex(
        r"\\!|\bxp_cmdshell\b|\b(?:to|from)\s+program\b|^[^\S\n]*\.(?:shell|system)\b|\bload_extension\s*\(",
        re.IGNORECASE | re.MULTILINE,
    ),
    "reads or writes files": lazy_regex(
        r"\binto\s+(?:out|dump)file\b|\bload_file\s*\(|\bpg_(?:read|write)_(?=\w*file)\w*+\s*\(|\blo_(?:im|ex)port\s*\(",
        re.IGNORECASE,
    ),
    "drops data": lazy_regex(r"\bdrop\s+(?:table|database|schema)\b|\btruncate\s+(?:table\s+)?[\w\"`]", re.IGNORECASE),
}


class Injection(Verifier):
    """A verifier of URLs that a call reaches, and of the SQL that commands give to database clients."""

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


MAX_URLS = 1000
"""The most URLs that a session remembers. The oldest are forgotten first."""

_URL = lazy_regex(r"(?:https?://|www\.)[^\s<>\"'`|\\^{}\x00-\x1f]{1,4096}", re.IGNORECASE)
_ENDS = ".,;:!?*_\u2026\u00bb\u201d\u2019\u3002\uff0c\u3001"
_CLOSERS = {")": "(", "]": "["}
_PORTS = {"http": 80, "https": 443}


class UrlMemory:
    """The URLs in the user's messages of one session."""

    def __init__(self) -> None:
        self._known: dict[str, None] = {}

    def learn(self, text: str) -> None:
        """Remember every URL in a message: with its scheme, or beginning with `www.`."""
        for match in _URL.finditer(text):
            key = _key(_trimmed(match[0]))
            if key:
                self._known.pop(key, None)
                self._known[key] = None
        for old in [*self._known][:-MAX_URLS]:
            del self._known[old]

    def knows(self, url: str) -> bool:
        """Return whether the user has typed a URL, apart from `http` for `https`, the fragment and the last slash."""
        return _key(url) in self._known

    def clear(self) -> None:
        """Forget all URLs, for /clear."""
        self._known.clear()


class UrlGrounding(Verifier):
    """A verifier that refuses URLs which the user has not typed. The targets of redirects are not judged here."""

    name = "url_grounding"

    def __init__(self, memory: UrlMemory) -> None:
        self._memory = memory

    def url(self, url: str) -> Verdict:
        if self._memory.knows(url):
            return Allow()
        return Deny(
            "only URLs that the user has typed may be reached (tools.verifiers.url_grounding)",
            rule="url_grounding",
            advice="Ask the user for the address.",
        )


def _trimmed(url: str) -> str:
    """Return a URL without the punctuation of its sentence, and without a bracket that closes one before the URL."""
    while url:
        last = url[-1]
        opener = _CLOSERS.get(last)
        if last not in _ENDS and (opener is None or url.count(last) <= url.count(opener)):
            break
        url = url[:-1]
    return url


def _key(url: str) -> str:
    """Return one spelling for URLs of the same page; empty for an invalid URL."""
    try:
        parts = urlsplit(url if "://" in url else f"https://{url}")
        host, port = parts.hostname, parts.port
    except ValueError:  # a bracket without its end, or a port that is no number
        return ""
    if not host or parts.scheme not in _PORTS or "@" in parts.netloc:
        return ""
    shown = "" if port in (None, _PORTS[parts.scheme]) else f":{port}"
    return f"{host.rstrip('.')}{shown}{parts.path.rstrip('/')}{'?' if parts.query else ''}{parts.query}"
