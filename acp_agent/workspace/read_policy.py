"""The files that may be shown: `deny_read`, `allow_read` and their combination; our own files; and dependencies.

A pattern is absolute, `~/...`, `**/...`, relative with a slash (below each of the session's folders), or a bare name
(at any depth). It matches an entry with everything below it. Patterns are compared with resolved paths. A pattern that
names a path through a link counts by both spellings.
"""

import os
import re
import stat
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from glob import escape
from glob import glob as matching
from itertools import islice, takewhile
from typing import TypeAlias

from acp_agent.core.errors import ConfigError
from acp_agent.core.secrets import secrecy
from acp_agent.core.types import Access
from acp_agent.workspace.beneath import expansion_wanted, holding
from acp_agent.workspace.roots import PathPolicy, ReadableFolder, is_below

DENIED = "may not be read (tools.file.deny_read)"
NOT_ALLOWED = "may not be read (not in tools.file.allow_read)"
_LONGEST = 1024
MOST_CHOICES = 256
"""The most choices such as `{a,b}` of one pattern."""


def all_of(*policies: PathPolicy) -> PathPolicy:
    """Return a policy that refuses what any of these refuses, with the reason of the first one."""

    def judge(path: str, access: Access) -> str | None:
        for policy in policies:
            reason = policy(path, access)
            if reason is not None:
                return reason
        return None

    return judge


def folded(text: str) -> str:
    """Return a common spelling of names that some file system takes for equal: without case, accents composed."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", text).casefold())


class ReadPolicy:
    """A PathPolicy over resolved absolute paths. Raises ConfigError for an invalid pattern.

    deny        files that may neither be shown nor moved; compared without case as well
    allow       if not empty, the only files that may be shown; compared exactly
    carve_out   whether `allow` only makes exceptions to `deny`
    folders     the session's folders, in any spelling

    Directories are listed unless they are denied, since `allow` names files. Writing and deleting are not judged here:
    a tool that replaces a file reads it first.
    """

    def __init__(
        self, deny: Sequence[str], allow: Sequence[str] = (), *, carve_out: bool = False, folders: Sequence[str]
    ) -> None:
        real = [os.path.realpath(folder) for folder in folders] if deny or allow else []
        self._carve_out = carve_out
        self._deny = _Patterns("deny_read", deny, real, (str, folded), os.path.realpath)
        self._allow = _Patterns("allow_read", allow, real, (str,), lambda path: _entered(path, real))
        self._whitelist = bool(allow) and not carve_out

    def __call__(self, path: str, access: Access) -> str | None:
        if access is Access.WRITE or access is Access.DELETE:
            return None
        if self._deny.match(path) and not (self._carve_out and self._allow.match(path)):
            return DENIED
        listed = access is Access.LIST or not self._whitelist or self._allow.match(path)
        return None if listed else NOT_ALLOWED


class _Patterns:
    """The patterns of one setting: one expression for each spelling in which they are compared.

    follow   returns the second spelling of the folders that a pattern begins with: links resolved
    """

    def __init__(
        self,
        setting: str,
        patterns: Sequence[str],
        folders: Sequence[str],
        spellings: Sequence[Callable[[str], str]],
        follow: Callable[[str], str],
    ) -> None:
        self._compiled = ()
        if not patterns:
            return
        from acp_agent.regex import LinearRegex  # noqa: PLC0415 - most sessions have no pattern
        from acp_agent.workspace.glob import NOTHING  # noqa: PLC0415 - likewise

        found = [(pattern, part) for pattern in patterns for part in _parts(setting, pattern, folders, follow)]
        for pattern, part in found:
            expression = _expression(part, str)
            if NOTHING in expression:
                raise _invalid(setting, pattern, "a glob (a range in it runs backwards)")
            if fault := _fault_of(expression):
                raise _invalid(setting, pattern, f"a glob ({fault})")
        if not found:  # all patterns are relative to folders, and there are none
            return
        try:
            self._compiled = tuple(
                (spell, LinearRegex(f"(?:{'|'.join(_expression(part, spell) for _, part in found)})(?s:/.*)?"))
                for spell in spellings
            )
        except ValueError as error:
            raise ConfigError(
                "configuration", f"tools.file.{setting}", "", f"fewer or simpler patterns ({error})"
            ) from None

    def match(self, path: str) -> bool:
        """Return whether a pattern matches the path or a directory above it."""
        if not self._compiled:
            return False
        text = _utf8(path)
        return any(regex.matches(spell(text)) for spell, regex in self._compiled)


_Part: TypeAlias = tuple[str, str]
"""The literal folders that a pattern begins with, absolute, and the glob below them ("" for none)."""


def _parts(setting: str, pattern: str, folders: Sequence[str], follow: Callable[[str], str]) -> Iterator[_Part]:
    """Yield the parts of a pattern. Raises ConfigError."""
    from acp_agent.workspace.glob import alternatives, is_literal  # noqa: PLC0415 - likewise

    if len(pattern) > _LONGEST:
        raise _invalid(setting, pattern, f"at most {_LONGEST} characters")
    choices = list(islice(alternatives(pattern), MOST_CHOICES + 1))
    if len(choices) > MOST_CHOICES:
        raise _invalid(setting, pattern, f"at most {MOST_CHOICES} choices")
    for choice in choices:
        problem = _problem(choice)
        if problem:
            raise _invalid(setting, pattern, problem)
        for anchor, glob in _anchored(choice, folders):
            names = [name for name in glob.split("/") if name not in ("", ".")]
            literal = list(takewhile(is_literal, names))
            lead, rest = os.path.join(anchor, *literal), "/".join(names[len(literal) :])
            yield from ((spelling, rest) for spelling in dict.fromkeys((lead, follow(lead))))


def _anchored(pattern: str, folders: Sequence[str]) -> Iterator[_Part]:
    """Yield the folders to which a pattern without choices is relative, and the pattern relative to it."""
    first, _, rest = pattern.partition("/")
    if _home(first):
        yield _home(first), rest
    elif first in ("", "**"):
        yield "/", pattern
    elif "/" in pattern.rstrip("/") or first == ".":
        yield from ((folder, pattern) for folder in folders)
    else:
        yield "/", f"**/{pattern}"


def _home(name: str) -> str:
    """Return the home folder that `~` or `~NAME` means; "" for any other name."""
    home = os.path.expanduser(name) if name.startswith("~") else ""
    return home if os.path.isabs(home) else ""


def _problem(pattern: str) -> str:
    """Return what was expected instead of an invalid pattern; "" for a valid one.

    A variable or an unknown `~name` would match nothing, and so deny nothing.
    """
    if "\0" in pattern or _utf8(pattern) != pattern:
        return "text that can be part of a path"
    if ".." in pattern.split("/"):
        return "a pattern without .."
    nothing = not pattern.strip("/ ") and pattern != "/"
    if nothing or (expansion_wanted(pattern) is not None and not _home(pattern.partition("/")[0])):
        return "an absolute pattern, ~/..., **/..., one below the session's folders, or a bare name"
    return ""


def _invalid(setting: str, pattern: str, expected: str) -> ConfigError:
    return ConfigError("configuration", f"tools.file.{setting}", f"{pattern[:100]!r}", expected)


@lru_cache(512)
def _fault_of(expression: str) -> str:
    """Return why RE2 does not take an expression, or "". Sessions have mostly the same patterns."""
    from acp_agent.regex import LinearRegex  # noqa: PLC0415 - likewise

    try:
        LinearRegex(expression)
    except ValueError as error:
        return str(error)
    return ""


@lru_cache(512)
def _expression(part: _Part, spell: Callable[[str], str]) -> str:
    """Return the regular expression (RE2) of one part."""
    from acp_agent.workspace.glob import to_regex  # noqa: PLC0415 - likewise

    lead, glob = part[0].strip("/"), part[1]
    texts = [re.escape(spell(_utf8(lead)))] if lead else []
    if glob:
        texts.append(to_regex(spell(glob)))
    return "".join(f"/{text}" for text in texts)


def _entered(path: str, folders: Sequence[str]) -> str:
    """Return the path with its links resolved up to the first of `folders`.

    Links below came with the project: `src -> .` in a repository must not allow files that `src` does not hold.
    """
    names = path.strip("/").split("/")
    for depth in range(len(names)):
        real = os.path.realpath("/" + "/".join(names[:depth]))
        if any(f"{real}/".startswith(f"{folder.rstrip('/')}/") for folder in folders):
            return os.path.join(real, *names[depth:])
    return os.path.realpath(path)


def _utf8(text: str) -> str:
    """Return the text with half surrogate pairs replaced: file names may hold any bytes, and RE2 takes only text."""
    return text.encode("utf-8", "replace").decode()


PROJECT_FOLDER = ".acp-agent"


class OwnFiles:
    """A PathPolicy for our own files: tools may not write to `paths`, below them, or to a project's `.acp-agent`.

    Nor may they read the files `closed`, files with the same name and an ending (`-wal`, `.lock`, `.damaged-1`), and
    hard links to them. Names are compared without case, as some file systems do. If a path is a link, the link and its
    target are both meant.
    """

    def __init__(self, paths: Iterable[str], closed: Iterable[str] = ()) -> None:
        real = resolving()
        spelled = [spellings(path, real) for path in closed]
        self._paths = tuple({folded(spelling) for path in paths for spelling in spellings(path, real)})
        self._closed = tuple({folded(named) for named, _ in spelled})
        self._led_to = frozenset(folded(real) for _, real in spelled)
        self._folders = {os.path.dirname(named) for named, _ in spelled}

    def __call__(self, path: str, access: Access) -> str | None:
        name = folded(path)
        if self._is_closed(name) or self._is_twin(path):
            return "holds the agent's own keys or sessions"
        if not access.changes:
            return None
        own = any(name == mine or name.startswith(f"{mine}/") for mine in self._paths)
        return "belongs to the agent itself" if own or PROJECT_FOLDER in name.split("/") else None

    def _is_closed(self, name: str) -> bool:
        folder, slash, entry = name.rpartition("/")  # a new file has a dot before its name until it is whole
        return name in self._led_to or f"{folder}{slash}{entry.removeprefix('.')}".startswith(self._closed)

    def _is_twin(self, path: str) -> bool:
        """Return whether a path is a hard link to a closed file."""
        try:
            status = os.lstat(path)
        except (OSError, ValueError):
            return False
        if status.st_nlink < 2 or not stat.S_ISREG(status.st_mode):
            return False
        return any(_holds(folder, status, self._is_closed) for folder in self._folders)


def _holds(folder: str, status: os.stat_result, meant: Callable[[str], bool]) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(
                each.inode() == status.st_ino
                and meant(folded(each.path))
                and os.path.samestat(each.stat(follow_symlinks=False), status)
                for each in entries
            )
    except OSError:
        return False


def resolving() -> Callable[[str], str]:
    """Return a function that resolves the links in a path, each path once: most of our own files share a folder."""

    @cache
    def real(path: str) -> str:
        return os.path.realpath(path)

    return real


def spellings(path: str, real: Callable[[str], str] = os.path.realpath) -> tuple[str, str]:
    """Return the path with its folder resolved, and with its last link resolved too: settings files are often links.

    real    resolves all links in the path of a folder
    """
    folder, name = os.path.split(path)
    named = os.path.join(real(folder), name)
    is_real = name not in ("", ".", "..") and not os.path.islink(named)
    return named, named if is_real else os.path.realpath(named)


_PYTHON = "python3*"
_MACHINE = {
    "C headers": ("/usr/include", "/usr/local/include", "/opt/homebrew/include", "/usr/lib/gcc"),
    "Python packages": tuple(
        f"{folder}/lib/{_PYTHON}" for folder in ("/usr", "/usr/local", "/opt/homebrew", "~/.local")
    ),
    "Python packages of a version manager": (
        f"~/.pyenv/versions/*/lib/{_PYTHON}",
        f"~/.local/share/uv/python/*/lib/{_PYTHON}",
        f"/Library/Frameworks/Python.framework/Versions/*/lib/{_PYTHON}",
    ),
    "Node packages": ("/usr/lib/node_modules", "/usr/local/lib/node_modules", "/usr/share/nodejs"),
    "Node packages of a version manager": ("~/.nvm/versions/node/*/lib/node_modules",),
    "the Go module cache": ("$GOMODCACHE", "$GOPATH/pkg/mod", "~/go/pkg/mod"),
    "the Go sources": ("$GOROOT/src", "/usr/local/go/src", "/usr/lib/go*/src", "/usr/share/go*/src"),
    "the Cargo registry": tuple(
        f"{home}/{each}" for home in ("$CARGO_HOME", "~/.cargo") for each in ("registry/src", "git/checkouts")
    ),
    "the Rust toolchain's sources": tuple(
        f"{home}/toolchains/*/{each}" for home in ("$RUSTUP_HOME", "~/.rustup") for each in ("lib/rustlib/src", "share")
    ),
    "the Maven repository": ("~/.m2/repository", "/usr/share/maven-repo"),
    "the Gradle cache": ("$GRADLE_USER_HOME/caches", "~/.gradle/caches"),
    "system documentation": ("/usr/share/doc", "/usr/local/share/doc", "/usr/share/man", "/usr/share/info"),
}
"""Where toolchains and package managers keep what they install. `$NAME` is a variable of the agent's environment."""

_ENVIRONMENTS = (".venv", "venv", "env")
_MODULES = "node_modules"
_LARGEST_SETTINGS = 16 * 1024


class ProjectDependencies:
    """The dependencies of a project outside its folders: packages, the toolchain's sources, documentation.

    Only what is in such a folder proves that it is one, because no file tool can write there. A link or a `pyvenv.cfg`
    in the project leads to a folder, and proves nothing. A folder above the user's home or above a root never counts.

    folders   the roots of the session, absolute, links resolved
    environ   the agent's own environment, which no command of a model changes
    """

    def __init__(self, folders: Sequence[str], environ: Mapping[str, str]) -> None:
        self._folders = tuple(folders)
        self._environ = environ
        self._home = os.path.realpath(environ.get("HOME") or os.path.expanduser("~"))

    def find(self, path: str, resolved: str) -> ReadableFolder | None:
        """Return the dependency that a path leads into; None if there is none, or the file may hold secrets.

        path       absolute, as it was named
        resolved   the same with its links resolved, outside the roots
        """
        if secrecy(resolved) or secrecy(path):
            return None
        for found in self._known(path, resolved):
            if is_below(resolved, found.path) and self._is_sound(found.path):
                return found
        return None

    def _known(self, path: str, resolved: str) -> Iterator[ReadableFolder]:
        yield from self._modules(path, resolved)
        yield from self._python()
        for name, patterns in _MACHINE.items():
            for pattern in patterns:
                yield from (ReadableFolder(found, name) for found in self._existing(pattern))

    def _is_sound(self, folder: str) -> bool:
        """Return whether a folder holds neither a root nor the user's home, nor lies in a place of secrets."""
        holds = any(is_below(each, folder) for each in (*self._folders, self._home))
        return folder != "/" and not holds and not secrecy(folder) and os.path.isdir(folder)

    def _existing(self, pattern: str) -> Iterator[str]:
        """Yield the folders that a pattern of the table means, with links resolved."""
        first, _, rest = pattern.partition("/")
        if first.startswith("$"):
            base = self._environ.get(first[1:], "").partition(os.pathsep)[0]
            pattern = os.path.join(base, rest) if os.path.isabs(base) else ""
        elif first == "~":
            pattern = os.path.join(self._home, rest)
        for found in matching(pattern) if pattern else ():
            yield os.path.realpath(found)

    def _modules(self, path: str, resolved: str) -> Iterator[ReadableFolder]:
        """Yield `node_modules` above a root or behind a link in it, and the packages that links in it lead to."""
        for folder in self._folders:
            above = folder
            while above != (above := os.path.dirname(above)):
                yield ReadableFolder(os.path.join(above, _MODULES), f"{_MODULES} of {above}")
            linked = os.path.realpath(os.path.join(folder, _MODULES))
            if os.path.basename(linked) == _MODULES:
                yield ReadableFolder(linked, f"{_MODULES} of {os.path.dirname(linked)}")
            inside = is_below(path, folder) and _MODULES in path.removeprefix(folder).split("/")
            before, found, rest = resolved.rpartition(f"/{_MODULES}/")
            if inside and found and rest:
                names = rest.split("/")
                package = "/".join(names[: 2 if names[0].startswith("@") else 1])
                yield ReadableFolder(f"{before}{found}{package}", f"the package {package} in {_MODULES} of {before}")

    def _python(self) -> Iterator[ReadableFolder]:
        """Yield the packages of the project's virtual environments, and the Python that they were made of."""
        named = [(os.path.join(folder, name), name) for folder in self._folders for name in _ENVIRONMENTS]
        active = self._environ.get("VIRTUAL_ENV", "")
        for found, name in (*named, *([(active, active)] if os.path.isabs(active) else [])):
            real = os.path.realpath(found)
            settings = _small_file(os.path.join(real, "pyvenv.cfg"))
            if settings is None:
                continue
            for packages in matching(f"{escape(real)}/lib*/{_PYTHON}/site-packages"):
                if os.path.realpath(packages) == packages:
                    yield ReadableFolder(packages, f"site-packages of {name}")
            home = re.search(r"^home\s*=\s*(/\S.*)", settings, re.MULTILINE)
            yield from _library(os.path.realpath(home[1].rstrip()), name) if home else ()
        for folder in self._environ.get("PATH", "").split(os.pathsep):
            if os.path.isabs(folder) and os.path.isfile(program := os.path.join(folder, "python3")):
                yield from _library(os.path.dirname(os.path.realpath(program)), "python3")
                return


def _library(programs: str, name: str) -> Iterator[ReadableFolder]:
    """Yield the standard library of the Python whose programs are in a folder, if it really is one."""
    for folder in matching(f"{escape(os.path.dirname(programs))}/lib*/{_PYTHON}"):
        parts = ("os.py", "site.py", "encodings/__init__.py")
        if os.path.realpath(folder) == folder and all(os.path.isfile(os.path.join(folder, part)) for part in parts):
            yield ReadableFolder(folder, f"the Python library of {name}")


def _small_file(path: str) -> str | None:
    """Return the text of a small regular file; None for anything else, such as a link or a FIFO."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with suppress(OSError, ValueError), holding(os.open(path, flags)) as fd:
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return os.read(fd, _LARGEST_SETTINGS).decode("utf-8", "replace")
    return None
