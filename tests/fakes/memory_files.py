"""MemoryFileSystem: a core.ports.FileSystem that holds a small tree in memory.

It keeps the port's promises: paths resolve through links and stay inside the root, texts keep their line ends
and BOM, writes make parents, searches leave ignored files out. Nothing in it touches the disk.
"""

import os
from collections.abc import Iterator, Mapping

import re2
from pathspec import GitIgnoreSpec
from wcmatch import glob

from acp_agent.core.backends import (
    Copied,
    Deleted,
    Entry,
    EntryKind,
    FoundPaths,
    GrepMatch,
    GrepMatches,
    GrepQuery,
    Lines,
)
from acp_agent.core.errors import AgentError, Refused, ToolError, ToolErrorCategory
from acp_agent.core.secrets import secrecy
from acp_agent.core.types import Access
from acp_agent.workspace.ripgrep import file_type
from acp_agent.workspace.text_files import stretch

_BOM = b"\xef\xbb\xbf"
_MAX_LINKS = 40
_SKIPPED = frozenset({"target", "node_modules"})


class _Link(str):
    """The target of a symbolic link."""

    __slots__ = ()


class MemoryFileSystem:
    """Files below one root, which is also the session's cwd.

    files   path -> text or bytes; relative paths are below the root, parents are made
    writes  every (absolute path, text) that `write_text` was given and accepted, in order
    reads   every absolute path `read_text` was asked for, in order
    """

    def __init__(self, files: Mapping[str, str | bytes] | None = None, *, root: str = "/project") -> None:
        self.root = root
        self.writes: list[tuple[str, str]] = []
        self.reads: list[str] = []
        self._nodes: dict[str, bytes | _Link | None] = {}  # None is a folder
        self._failures: dict[str, AgentError] = {}
        self.add_directory(root)
        for path, content in (files or {}).items():
            self.put(path, content)

    # ------------------------------------------------------------------------ what a test does

    def put(self, path: str, content: str | bytes) -> None:
        """Make or replace a file, parents too, past every check."""
        absolute = self._absolute(path)
        self.add_directory(os.path.dirname(absolute))
        self._nodes[absolute] = content.encode() if isinstance(content, str) else content

    def add_directory(self, path: str) -> None:
        """Make a folder and its parents."""
        absolute = self._absolute(path)
        while absolute not in self._nodes:
            self._nodes[absolute] = None
            absolute = os.path.dirname(absolute)

    def link(self, path: str, target: str) -> None:
        """Make a symbolic link."""
        absolute = self._absolute(path)
        self.add_directory(os.path.dirname(absolute))
        self._nodes[absolute] = _Link(target)

    def remove(self, path: str) -> None:
        """Take a file, a link or an empty folder away."""
        del self._nodes[self._absolute(path)]

    def fail(self, path: str, error: AgentError) -> None:
        """From now on every operation that is given this path raises this error."""
        self._failures[self._absolute(path)] = error

    def raw(self, path: str) -> bytes:
        """The bytes of a file. KeyError when there is none."""
        content = self._nodes[self._absolute(path)]
        assert isinstance(content, bytes), f"{path} is not a file"
        return content

    def text(self, path: str) -> str:
        """The bytes of a file, decoded; the BOM stays."""
        return self.raw(path).decode()

    def exists(self, path: str) -> bool:
        """Whether there is anything of this name."""
        return self._absolute(path) in self._nodes

    # ----------------------------------------------------------------------------- the port

    def resolve(self, path: str, access: Access) -> str:
        if not path or "\0" in path:
            raise ToolError(ToolErrorCategory.INVALID_PARAMETERS, f"not a path: {path!r}")
        failure = self._failures.get(self._absolute(path))
        if failure is not None:
            raise failure
        resolved = self._entry_path(path) if access.of_the_entry else self._follow(path)
        if resolved != self.root and not resolved.startswith(self.root.rstrip("/") + "/"):
            raise Refused(f"{path} is outside {self.root}")
        return resolved

    async def read_text(self, path: str) -> str:
        resolved = self.resolve(path, Access.READ)
        self.reads.append(resolved)
        content = self._file(path, resolved)
        try:
            text = content.removeprefix(_BOM).decode()
        except UnicodeDecodeError:
            raise _permanent(f"{path} is not UTF-8 text") from None
        if "\0" in text:
            raise _permanent(f"{path} is a binary file")
        return text

    async def read_lines(self, path: str, offset: int, limit: int) -> Lines:
        return stretch(await self.read_text(path), offset, limit)

    async def read_bytes(self, path: str, limit: int) -> bytes:
        content = self._file(path, self.resolve(path, Access.READ))
        if len(content) > limit:
            raise _permanent(f"{path}: {len(content)} bytes are too large (at most {limit})")
        return content

    async def kind(self, path: str) -> EntryKind | None:
        resolved = self.resolve(path, Access.LIST)
        return self._entry(resolved).kind if resolved in self._nodes else None

    async def write_text(self, path: str, text: str, *, expected: str | None) -> str:
        resolved = self.resolve(path, Access.WRITE)
        old = self._nodes.get(resolved, b"")
        if not isinstance(old, bytes):
            raise _permanent(f"{path} is not a file")
        self._check_parents(path, resolved)
        now = old.removeprefix(_BOM).decode(errors="replace") if resolved in self._nodes else None
        if now != expected:
            raise _permanent(f"{path}: file changed between diff preview and write; aborting")
        self.put(resolved, (_BOM if old.startswith(_BOM) else b"") + text.encode())
        self.writes.append((resolved, text))
        return text

    async def make_directory(self, path: str) -> bool:
        resolved = self.resolve(path, Access.WRITE)
        if resolved in self._nodes:
            self._directory(path, resolved)
            return False
        self._check_parents(path, resolved)
        self.add_directory(resolved)
        return True

    async def delete(self, path: str, *, recursive: bool) -> Deleted:
        resolved = self.resolve(path, Access.DELETE)
        kind = self._kind_to_change(path, resolved)
        below = [each for each in self._nodes if each.startswith(f"{resolved}/")]
        if below and not recursive:
            raise _permanent(f"{path} is not empty: recursive=true is needed")
        for each in (resolved, *below):
            del self._nodes[each]
        return Deleted(kind, len(below))

    async def move(self, source: str, destination: str) -> None:
        old, new = self.resolve(source, Access.MOVE), self.resolve(destination, Access.WRITE)
        kind = self._kind_to_change(source, old)
        self._check_free(kind, old, destination, new)
        self.add_directory(os.path.dirname(new))
        for each in [path for path in self._nodes if path == old or path.startswith(f"{old}/")]:
            self._nodes[new + each.removeprefix(old)] = self._nodes.pop(each)

    async def copy(self, source: str, destination: str) -> Copied:
        old, new = self.resolve(source, Access.READ), self.resolve(destination, Access.WRITE)
        if old not in self._nodes:
            raise _permanent(f"{source}: no such file or directory")
        kind = self._entry(old).kind
        self._check_free(kind, old, destination, new)
        self.add_directory(os.path.dirname(new))
        tree = {path: node for path, node in self._nodes.items() if path == old or path.startswith(f"{old}/")}
        copied = {path: node for path, node in tree.items() if not isinstance(node, _Link)}
        self._nodes |= {new + path.removeprefix(old): node for path, node in copied.items()}
        files = sum(node is not None for node in copied.values())
        return Copied(kind, files, len(tree) - len(copied))

    async def list_directory(self, path: str) -> tuple[Entry, ...]:
        resolved = self.resolve(path, Access.READ)
        self._directory(path, resolved)
        return tuple(self._entry(child) for child in self._children(resolved))

    async def find(self, path: str, pattern: str, limit: int) -> FoundPaths:
        resolved = self.resolve(path, Access.READ)
        self._directory(path, resolved)
        below = {each: each.removeprefix(resolved).lstrip("/") for each in self._walk(resolved)}
        flags = glob.GLOBSTAR | glob.BRACE | glob.DOTGLOB
        found = [each for each, name in below.items() if glob.globmatch(name, pattern, flags=flags)]
        nodes = [self._nodes[each] for each in found[:limit]]
        sizes = tuple(len(node) if isinstance(node, bytes) else None for node in nodes)
        return FoundPaths(tuple(found[:limit]), len(found) > limit, None, sizes, len(found))

    async def grep(self, query: GrepQuery) -> GrepMatches:
        resolved = self.resolve(query.path, Access.READ)
        options = re2.Options()
        options.case_sensitive = query.case_sensitive
        options.log_errors = False
        try:
            pattern = re2.compile(query.pattern, options)
        except re2.error as error:
            raise ToolError(ToolErrorCategory.INVALID_PARAMETERS, f"pattern {query.pattern!r}: {error}") from None
        matches, secrets, counts, seen = list[GrepMatch](), list[str](), list[tuple[str, int]](), 0
        before, after = query.around()
        for file, lines in self._searched(query, resolved):
            if file != resolved and secrecy(file) > query.secrets:
                secrets.append(file)
                continue
            hits = [at for at, line in enumerate(lines) if pattern.search(line)][: 1 if query.files_only else None]
            wanted = [hit for at, hit in enumerate(hits, seen) if query.offset <= at < query.offset + query.limit]
            shown = {at for hit in wanted for at in range(hit - before, hit + after + 1)} - (set(hits) - set(wanted))
            matches += [GrepMatch(file, at + 1, line, at in wanted) for at, line in enumerate(lines) if at in shown]
            seen += len(hits)
            counts += [(file, len(hits))] if hits else []
        more = seen > query.offset + query.limit
        return GrepMatches(
            tuple(matches),
            more,
            secrets=tuple(secrets),
            files=len(counts),
            total=seen,
            counts=() if query.limit else tuple(counts),
        )

    # ------------------------------------------------------------------------------ inside

    def _absolute(self, path: str) -> str:
        return os.path.normpath(os.path.join(self.root, path))

    def _follow(self, path: str) -> str:
        """The absolute path with every link on the way replaced by what it points at, as a kernel does it."""
        todo = [part for part in os.path.join(self.root, path).split("/") if part not in ("", ".")][::-1]
        at, links = "/", 0
        while todo:
            part = todo.pop()
            following = os.path.normpath(os.path.join(at, part))
            target = self._nodes.get(following) if part != ".." else None
            if not isinstance(target, _Link):
                at = following
                continue
            links += 1
            if links > _MAX_LINKS:
                raise Refused(f"{path}: too many links")
            at = "/" if target.startswith("/") else at
            todo += [piece for piece in target.split("/") if piece not in ("", ".")][::-1]
        return at

    def _entry_path(self, path: str) -> str:
        """Like `_follow`, for the entry itself: what its name points at does not matter."""
        parent, name = os.path.split(path.rstrip("/"))
        if name in ("", ".", ".."):
            return self._follow(path)
        return os.path.join(self._follow(parent or "."), name)

    def _check_parents(self, path: str, resolved: str) -> None:
        parent = os.path.dirname(resolved)
        while parent not in self._nodes:
            parent = os.path.dirname(parent)
        if self._nodes[parent] is not None:
            raise _permanent(f"{path}: {parent} is not a directory")

    def _kind_to_change(self, path: str, resolved: str) -> EntryKind:
        if resolved == self.root:
            raise Refused(f"{path} is the root")
        if resolved not in self._nodes:
            raise _permanent(f"{path}: no such file or directory")
        return self._entry(resolved).kind

    def _check_free(self, kind: EntryKind, old: str, destination: str, new: str) -> None:
        if kind is EntryKind.DIRECTORY and new.startswith(f"{old}/"):
            raise ToolError(ToolErrorCategory.INVALID_PARAMETERS, f"{old} -> {destination}: into itself")
        if new in self._nodes and self._nodes[new] is None:
            whole = os.path.join(destination, os.path.basename(old))
            raise ToolError(
                ToolErrorCategory.PERMANENT_FAILURE,
                f"{destination} is a directory",
                f"Give the whole new path: {whole}",
            )
        if new in self._nodes:
            raise _permanent(f"{destination} exists already")
        self._check_parents(destination, new)

    def _file(self, path: str, resolved: str) -> bytes:
        if resolved not in self._nodes:
            raise _permanent(f"{path}: no such file")
        content = self._nodes[resolved]
        if not isinstance(content, bytes):
            raise _permanent(f"{path} is not a file")
        return content

    def _directory(self, path: str, resolved: str) -> None:
        if resolved not in self._nodes:
            raise _permanent(f"{path}: no such directory")
        if self._nodes[resolved] is not None:
            raise _permanent(f"{path} is not a directory")

    def _children(self, folder: str) -> list[str]:
        return sorted(path for path in self._nodes if path != folder and os.path.dirname(path) == folder)

    def _entry(self, path: str) -> Entry:
        node = self._nodes[path]
        match node:
            case None:
                return Entry(os.path.basename(path), EntryKind.DIRECTORY)
            case _Link():
                return Entry(os.path.basename(path), EntryKind.SYMLINK)
            case _:
                return Entry(os.path.basename(path), EntryKind.FILE)

    def _walk(self, folder: str, named: str = "") -> Iterator[str]:
        """Everything below a folder, sorted; dot names, heavy folders and what .gitignore names are left out.

        A dot name or a heavy folder that is a part of the glob `named` is not.
        """
        found: list[str] = []
        ignored = GitIgnoreSpec.from_lines(self._ignore_lines())
        for path in self._nodes:
            parts = os.path.relpath(path, folder).split("/")
            hidden = [part for part in parts if part[0] == "." or part in _SKIPPED]
            if not path.startswith(folder.rstrip("/") + "/") or not set(hidden) <= {*named.split("/")}:
                continue
            is_folder = self._nodes[path] is None
            if not ignored.match_file(os.path.relpath(path, self.root) + ("/" if is_folder else "")):
                found.append(path)
        yield from sorted(found)

    def _ignore_lines(self) -> list[str]:
        content = self._nodes.get(self._absolute(".gitignore"))
        return content.decode().splitlines() if isinstance(content, bytes) else []

    def _searched(self, query: GrepQuery, resolved: str) -> Iterator[tuple[str, list[str]]]:
        """The texts grep looks into, as lines; a file that is named is asked for neither glob nor type."""
        if resolved not in self._nodes:
            raise _permanent(f"{query.path}: no such file or directory")
        wanted = None if query.file_type is None else file_type(query.file_type)
        flags = glob.GLOBSTAR | glob.BRACE | glob.DOTGLOB | (0 if "/" in (query.glob or "") else glob.MATCHBASE)
        named = self._nodes[resolved] is not None
        for file in [resolved] if named else self._walk(resolved, query.glob or ""):
            content = self._nodes[file]
            if not isinstance(content, bytes) or b"\0" in content:
                continue
            below = os.path.relpath(file, resolved)
            if not named and query.glob is not None and not glob.globmatch(below, query.glob, flags=flags):
                continue
            if named or wanted is None or wanted.has(os.path.basename(file)):
                text = content.removeprefix(_BOM).decode(errors="replace")
                yield file, [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n") if text]


def _permanent(message: str) -> ToolError:
    return ToolError(ToolErrorCategory.PERMANENT_FAILURE, message)
