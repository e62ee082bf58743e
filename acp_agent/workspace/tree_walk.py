"""Walk a tree below a root without following links, and find the files that .gitignore files exclude."""

import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from time import monotonic
from typing import NamedTuple, Self, TypeAlias

from anyio.from_thread import check_cancelled

from acp_agent.core.backends import EntryKind, FoundPaths
from acp_agent.core.data import frozen
from acp_agent.core.errors import Refused, ToolError, ToolErrorCategory
from acp_agent.core.new_file import is_temporary
from acp_agent.core.types import Access
from acp_agent.regex import RegexError, compiled_set
from acp_agent.workspace.beneath import holding, kind_of_entry
from acp_agent.workspace.glob import Glob
from acp_agent.workspace.roots import Place, Root, Roots
from acp_agent.workspace.text_files import BOM


@frozen
class Met:
    """An entry that the walk meets. `path` is relative to the root. `depth` is 1 for the children of the base."""

    path: str
    name: str
    kind: EntryKind
    depth: int
    matches: bool


def walk(
    root: Root,
    base: str,
    matching: Callable[[Sequence[str], str], set[str]],
    wanted: Callable[[Met], bool],
    max_depth: int | None = None,
) -> Iterator[Met]:
    """Yield the matching entries below the directory `base`, ordered by path component, each before its own entries.

    matching   returns which of these names in a directory match. The directory is "" or ends with a slash. It is called
               once for each directory, because calls for each name would take most of the time of a walk
    wanted     returns whether an entry is yielded if it matches, and entered if it is a directory

    A directory that cannot be read counts as empty. Names that are not UTF-8 are left out, because no tool could open
    them, and so are unfinished files. Call it in a worker thread; it stops when its task is cancelled.
    """
    levels = [iter(_scan(root, base, 1, matching))]
    while levels:
        entry = next(levels[-1], None)
        if entry is None:
            levels.pop()
        elif wanted(entry):
            if entry.matches:
                yield entry
            if entry.kind is EntryKind.DIRECTORY and (max_depth is None or entry.depth < max_depth):
                levels.append(iter(_scan(root, entry.path, entry.depth + 1, matching)))


def _scan(root: Root, directory: str, depth: int, matching: Callable[[Sequence[str], str], set[str]]) -> list[Met]:
    """Return the directories in a directory and its other entries that match, ordered by name."""
    check_cancelled()
    prefix = "" if directory == "." else f"{directory}/"
    try:
        with holding(root.open_directory(directory)) as fd:
            with os.scandir(fd) as scanned:
                entries = list(scanned)
            matches = matching([entry.name for entry in entries], prefix)
            found = [
                Met(prefix + entry.name, entry.name, kind_of_entry(entry), depth, entry.name in matches)
                for entry in entries
                if (entry.name in matches or entry.is_dir(follow_symlinks=False)) and _is_shown(entry.name)
            ]
    except OSError:
        return []
    return sorted(found, key=lambda entry: entry.name)


def _is_shown(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return not is_temporary(name)


SEARCH_SECONDS = 20.0


class TimeLimit:
    """A time limit in seconds, which starts when the object is made. A search asks it at every step, in path order.

    stopped   the absolute path at which the search stopped; later paths were not searched. None before that
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._end = clock() + seconds
        self.stopped: str | None = None

    @property
    def is_over(self) -> bool:
        """Whether the time is used up."""
        return self.stopped is not None or self._clock() >= self._end

    def stops_at(self, path: str) -> bool:
        """Return whether the search must stop at this absolute path."""
        if self.stopped is None and self.is_over:
            self.stopped = path
        return self.stopped is not None


_LARGEST = 256 * 1024  # bytes of an ignore file
_LONGEST = 4096  # bytes of a line, as many as those of a path
_ENDS = {b"(?:(?P<ps_d>/)|$)": b"/?$", b"(?P<ps_d>/)": b"/$", b"/": b"/."}
"""The ends of pathspec's expressions, which also match all below a folder, with those that match only the entry."""
_SLICE = 512  # lines that are compiled together, since RE2 limits the size of a compilation
_MOST_SETS = 12
"""The most slices that apply to one folder, and the most that are cached for other folders. A slice may take 8 MB."""


class _IgnoreLine(NamedTuple):
    """A line of a .gitignore file.

    regex     the expression (RE2) of the paths that it matches, relative to the folder of the file
    ignores   whether it excludes them; False for a line with `!`, which includes them again
    """

    regex: bytes
    ignores: bool


def _ignore_lines(lines: Iterable[bytes]) -> Iterator[_IgnoreLine]:
    """Yield the lines that are no comments, not empty, not malformed and not too long."""
    from pathspec.patterns.gitignore import GitIgnorePatternError  # noqa: PLC0415 - only walks of a tree need it
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern  # noqa: PLC0415

    for line in lines:
        if len(line) > _LONGEST:
            continue
        try:
            regex, ignores = GitIgnoreSpecPattern.pattern_to_regex(line.removesuffix(b"\r"))
        except GitIgnorePatternError:
            continue
        if regex is not None and ignores is not None:
            of_entry = _of_entry(regex)
            if line.rstrip().endswith(b"/**/"):  # pathspec takes `a/**/`, the folders below `a`, for `a/`
                of_entry = of_entry.removesuffix(b"$") + b".*/$"
            yield _IgnoreLine(of_entry, ignores)


def _of_entry(regex: bytes) -> bytes:
    """Return the expression of a line for the entry alone, without what is below a folder."""
    for end, own in _ENDS.items():
        if regex.endswith(end):
            return regex.removesuffix(end) + own
    return regex


class _IgnoreLines:
    """Several lines as one expression. Raises RegexError if RE2 refuses a line."""

    def __init__(self, lines: Sequence[_IgnoreLine]) -> None:
        self._ignores = [line.ignores for line in lines]
        self._set = compiled_set([line.regex for line in lines], by_line=False, memory=0)

    def verdict(self, path: str, *, is_directory: bool) -> bool | None:
        """Return whether the last line that matches an entry excludes it. Return None if no line matches.

        path   relative to the folder of the file, as Python decodes it
        """
        found = self._set.Match(path.encode("utf-8", "surrogateescape") + (b"/" if is_directory else b""))
        return self._ignores[max(found)] if found else None


_Spec: TypeAlias = Sequence[_IgnoreLines]
"""The rules of one file in slices. The slice of the last lines comes first, because the last match decides."""


class IgnoreRules:
    """The ignore rules for a depth-first search below `base`, a directory relative to the root.

    The first 256 KiB of each file are read. At most 6,144 lines apply to a folder, from its own file and the files
    above it. If `base` itself is ignored, the caller wants it anyway, so only the rules inside it apply. Names are
    compared as bytes.
    """

    def __init__(self, root: Root, base: str, time: TimeLimit) -> None:
        self._root = root
        self._time = time
        self._chains: dict[str, tuple[tuple[int, _Spec], ...]] = {}
        self._specs: dict[bytes, _Spec] = {}  # shared by folders with equal files; the oldest first
        self._top = "."
        self._base = base
        steps = [] if base == "." else base.split("/")
        if any(self.ignores("/".join(steps[: depth + 1]), is_directory=True) for depth in range(len(steps))):
            self._top = base
            self._chains.clear()

    def has_file_above(self, directory: str) -> bool:
        """Return whether the root has a .gitignore that lies above the directory and applies."""
        return self._top == "." != directory and bool(self._read("."))

    @property
    def readable(self) -> bool:
        """Whether ripgrep can read the rules of the root and the base. It would block on a pipe and read any size."""
        for folder in {".", self._base}:
            name = ".gitignore" if folder == "." else f"{folder}/.gitignore"
            try:
                status = self._root.status(name)
            except OSError:
                continue
            if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST:
                return False
        return True

    def ignores(self, path: str, *, is_directory: bool) -> bool:
        """Return whether git ignores this entry. The directory of the entry must not be ignored.

        After the time limit, entries may wrongly count as not ignored.
        """
        for start, specs in self._rules(path.rpartition("/")[0]):
            for spec in specs:
                verdict = spec.verdict(path[start:], is_directory=is_directory)
                if verdict is not None:
                    return verdict
            if self._time.is_over:
                return False
        return False

    def _rules(self, directory: str) -> tuple[tuple[int, _Spec], ...]:
        """Return the rules for a directory's entries, the nearest first, each with the offset of its relative paths.

        Only the rules of the folders above are kept, because a walk never returns to another folder.
        """
        if directory in self._chains:
            return self._chains[directory]
        unknown, at = list[str](), directory
        while at not in self._chains:
            unknown.append(at)
            if not at or at == self._top:
                break
            at = at.rpartition("/")[0]
        chain = self._chains.get(at, ())
        above = [known for known in self._chains if not known or f"{directory}/".startswith(f"{known}/")]
        self._chains = {known: self._chains[known] for known in above}
        for each in reversed(unknown):
            room = _MOST_SETS - sum(len(specs) for _, specs in chain)
            specs = self._read(each or ".")[-room:] if room else ()
            chain = ((len(each) + 1 if each else 0, specs), *chain) if specs else chain
            self._chains[each] = chain
        return chain

    def _read(self, directory: str) -> _Spec:
        name = ".gitignore" if directory == "." else f"{directory}/.gitignore"
        try:
            if self._root.status(name).st_nlink > 1:  # it may be a hard link to a file that tools may not read
                return ()
            with holding(self._root.open_regular(name)) as fd:
                data = os.read(fd, _LARGEST)
        except OSError:
            return ()
        specs = self._specs.pop(data, None)
        if specs is None:
            specs = _parse(data, self._time)
        self._specs[data] = specs
        while sum(map(len, self._specs.values())) > _MOST_SETS:
            del self._specs[next(iter(self._specs))]
        return specs


def _parse(data: bytes, time: TimeLimit) -> _Spec:
    lines = data.removeprefix(BOM).split(b"\n")
    specs: list[_IgnoreLines] = []
    for start in range(0, len(lines), _SLICE):
        if time.is_over or len(specs) >= _MOST_SETS:
            break
        specs += _compiled([*_ignore_lines(lines[start : start + _SLICE])], time)
    return specs[:_MOST_SETS][::-1]


def _compiled(lines: Sequence[_IgnoreLine], time: TimeLimit) -> Iterator[_IgnoreLines]:
    """Yield compiled lines. If RE2 refuses them, compile each half by itself; a single refused one is skipped."""
    if not lines or time.is_over:
        return
    try:
        yield _IgnoreLines(lines)
    except RegexError:
        if len(lines) > 1:
            middle = len(lines) // 2
            yield from _compiled(lines[:middle], time)
            yield from _compiled(lines[middle:], time)


_REPOSITORY = ".git"
_MOST_COUNTED = 20_000
"""Matching paths after which a search ends."""


def find_paths(roots: Roots, path: str, pattern: str, limit: int, seconds: float = SEARCH_SECONDS) -> FoundPaths:
    """Return at most `limit` files, links and directories below `path` that match, in the order of the walk.

    Ignored entries, `.git`, paths that may not be shown, and links to such paths or outside the roots are left out. A
    directory that may not be listed is entered, because rules may make exceptions below it. After `seconds` the result
    has the paths found so far. Raises ToolError or Refused. Call it in a worker thread.
    """
    time = TimeLimit(seconds)
    base = roots.place(path, Access.LIST)
    os.close(base.open_directory())
    glob = Glob(pattern)
    start = _start(roots, base, glob.prefix)
    if start is None:
        return FoundPaths((), more=False)
    rules = IgnoreRules(start.root, start.relative, time)
    above = "" if start.relative == "." else f"{start.relative}/"

    def matching(names: Sequence[str], directory: str) -> set[str]:
        return glob.matching(names, directory.removeprefix(above))

    def wanted(met: Met) -> bool:
        if met.name == _REPOSITORY or time.stopped is not None:
            return False
        ignored = rules.ignores(met.path, is_directory=met.kind is EntryKind.DIRECTORY)
        return not time.stops_at(start.root.absolute(met.path)) and not ignored

    found, total = list[str](), 0
    for met in walk(start.root, start.relative, matching, wanted, glob.depth):
        if glob.directories_only and met.kind is not EntryKind.DIRECTORY:
            continue
        if _may_show(roots, start, met):
            total += 1
            if total > max(limit, _MOST_COUNTED):
                break
            if len(found) < limit:
                found.append(start.root.absolute(met.path))
    sizes = tuple(_size(roots, path) for path in found)
    capped = total > max(limit, _MOST_COUNTED)
    return FoundPaths(tuple(found), total > len(found), None if capped else time.stopped, sizes, total - capped, capped)


def _size(roots: Roots, path: str) -> int | None:
    try:
        status = roots.place(path, Access.LIST).status()
    except (Refused, ToolError):
        return None
    return status.st_size if status is not None and stat.S_ISREG(status.st_mode) else None


def _start(roots: Roots, base: Place, prefix: str) -> Place | None:
    """Return the directory that the literal beginning of the pattern names, or None if it cannot be searched."""
    if not prefix:
        return base
    try:
        start = roots.place(os.path.join(base.path, prefix), Access.LIST)
        os.close(start.open_directory())
    except Refused:
        return None
    except ToolError as error:
        if error.failure.category is ToolErrorCategory.PERMANENT_FAILURE:
            return None
        raise
    return start


def _may_show(roots: Roots, start: Place, met: Met) -> bool:
    """Return whether a path may be shown: a directory if it may be listed, another entry if it may be read."""
    path = start.root.absolute(met.path)
    if met.kind is EntryKind.SYMLINK:
        return _leads_to_shown(roots, path)
    return roots.allows(path, Access.LIST if met.kind is EntryKind.DIRECTORY else Access.READ)


def _leads_to_shown(roots: Roots, link: str) -> bool:
    """Return whether a link leads to a path inside the roots that may be shown."""
    try:
        status = roots.place(link, Access.LIST).status()
        if status is None or not stat.S_ISDIR(status.st_mode):
            roots.place(link, Access.READ)
    except (Refused, ToolError):
        return False
    return True


_IGNORED_SECONDS = 0.5  # for all questions about one folder
_MOST_EXCEPTIONS = 1000  # different lines


class IgnoredFiles:
    """The ignored files below a folder. Rules above the top of a repository do not count in it.

    root    the root of the session that contains `start`
    start   the absolute path of the folder
    named   whether the command names the folder, so that rules for it or a folder above do not count
    """

    def __init__(self, root: Root, start: str, *, named: bool) -> None:
        self._root = root
        self._start = start
        self._named = named
        self._time = TimeLimit(_IGNORED_SECONDS)
        self._opened = list[Root]()
        self._rules = dict[str, IgnoreRules]()
        self._tops = dict[str, str]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for root in self._opened:
            root.close()

    def holds(self, path: str) -> bool:
        """Return whether a path relative to the folder, or a folder above it, is ignored."""
        whole = os.path.join(self._start, path)
        first = len(self._start if self._named else self._top(self._start)) + 1
        ends = [at for at, char in enumerate(whole) if char == "/" and at >= first]
        return any(self._ignores(whole[:end], is_directory=True) for end in ends) or self._ignores(
            whole, is_directory=False
        )

    def _ignores(self, path: str, *, is_directory: bool) -> bool:
        top = self._top(os.path.dirname(path))
        if top not in self._rules:
            try:
                self._rules[top] = self._of(top)
            except OSError:
                return False
        return self._rules[top].ignores(os.path.relpath(path, top), is_directory=is_directory)

    def _of(self, top: str) -> IgnoreRules:
        root = self._root
        if top != root.path:
            root = Root(top)
            self._opened.append(root)
        below = self._named and f"{self._start}/".startswith(f"{top}/")
        return IgnoreRules(root, os.path.relpath(self._start, top) if below else ".", self._time)

    def _top(self, folder: str) -> str:
        """Return the top of the repository that contains a folder, or the root."""
        if folder not in self._tops:
            above = os.path.dirname(folder)
            is_top = folder in (self._root.path, above) or os.path.lexists(os.path.join(folder, ".git"))
            self._tops[folder] = folder if is_top else self._top(above)
        return self._tops[folder]


def exceptions(files: Iterator[str], most: int) -> Callable[[str], bool]:
    """Return a function that returns whether a line of the ignore files may include a path again.

    It returns True for every path if there are too many files, if one cannot be read whole, or if more than 1,000
    different lines include paths.

    most   the most files that are read
    """
    patterns = set[tuple[str, bool]]()
    for number, path in enumerate(islice(dict.fromkeys(files), most + 1)):
        found = _negated_lines(path) if number < most else None
        if found is None:
            return _every_path
        patterns.update(map(_pattern, found))
        if len(patterns) > _MOST_EXCEPTIONS:
            return _every_path
    return lambda path: _may_match(path, patterns)


def _every_path(path: str) -> bool:
    del path
    return True


def _negated_lines(path: str) -> set[str] | None:
    """Return the lines that begin with `!`, without that mark; None if it is too large or reading fails."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return set()
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return set()
        data = os.read(fd, _LARGEST + 1)
    except OSError:
        return None
    finally:
        os.close(fd)
    if len(data) > _LARGEST:
        return None
    text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    return {line[1:].rstrip() for line in text.split("\n") if line.startswith("!")}


def _pattern(line: str) -> tuple[str, bool]:
    """Return a glob for the names that a line may match, and whether it matches folders only."""
    pattern = line.casefold().rstrip("/").rpartition("/")[2]
    special = next((at for at, char in enumerate(pattern) if char in "[\\"), None)
    return pattern if special is None else f"{pattern[:special]}*", line.endswith("/")


def _may_match(path: str, patterns: Collection[tuple[str, bool]]) -> bool:
    """Return whether a pattern may match a file, or, if the file's name has no leading dot, a folder above it."""
    *above, name = path.casefold().split("/")
    if any(fnmatchcase(name, pattern) for pattern, is_folder in patterns if not is_folder):
        return True
    return not name.startswith(".") and any(fnmatchcase(folder, each) for each, _ in patterns for folder in above)
