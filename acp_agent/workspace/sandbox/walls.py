"""Walls: what a contained command may change, read and reach, and how they are found for a session's folders."""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import field, replace
from enum import StrEnum
from functools import lru_cache
from typing import TypeAlias, TypeVar

from acp_agent.core.data import frozen
from acp_agent.core.types import Access
from acp_agent.net.hosts import HostPattern
from acp_agent.workspace.roots import is_below
from acp_agent.workspace.sandbox.git_folders import (
    LinkedRepository,
    hook_folders,
    linked_repositories,
    obeyed_by_git,
)

_DEEPEST = 3  # folders below a root in which protected and unreadable files are looked for
_MOST_ENTRIES = 1_000
_MOST_DOTTED = 20_000  # the most entries that are in the root, have a leading dot, or are below such an entry
_UNSEARCHED = frozenset(("node_modules", ".venv", "venv", "target", "dist", "build", "__pycache__", ".tox", ".nox"))
_LOGINS = """
.ssh .gnupg .aws .azure .kube .docker .config/gh .config/gcloud .npmrc .netrc .pypirc .pgpass .my.cnf
.git-credentials .config/git/credentials .cargo/credentials.toml .cargo/credentials .gem/credentials
.m2/settings.xml .vault-token .m2/settings-security.xml .nuget/NuGet .gradle/gradle.properties
.local/share/keyrings .password-store .terraform.d .local/share/uv/credentials .bundle/config
.ivy2/.credentials .sbt/.credentials .pub-cache/credentials.json .hex/hex.config .julia/servers
.dotnet/corefx/cryptography/x509stores/my
""".split()  # noqa: SIM905 - a table
_LOGINS_OF = {"CARGO_HOME": ("credentials.toml", "credentials"), "GRADLE_USER_HOME": ("gradle.properties",)}
"""Logins below folders that a variable names."""
_SECRETS = """
/etc/shadow /etc/shadow- /etc/gshadow /etc/gshadow- /etc/sudoers /etc/sudoers.d /etc/ssh /etc/security/opasswd
/etc/ssl/private /etc/pki/tls/private /etc/letsencrypt /etc/krb5.keytab /etc/kubernetes /etc/rancher
/etc/wireguard /etc/openvpn /etc/ipsec.secrets /etc/NetworkManager/system-connections
""".split()  # noqa: SIM905 - a table
_SYSTEM = """
/usr /bin /sbin /lib /lib32 /lib64 /libx32 /etc /opt /nix /snap /sys /var/lib/dpkg /var/lib/rpm
/var/lib/pacman /var/lib/apt /var/lib/snapd/snap /var/lib/flatpak
""".split()  # noqa: SIM905 - a table
_TOOLCHAINS = """
.gitconfig .config/git .gitignore .gitignore_global .gitattributes .editorconfig .prettierrc .cargo
.rustup go .go .goenv .nvm .volta .bun .deno .fnm .nodenv .npm .yarn .pyenv .rye .conda miniconda3
anaconda3 miniforge3 mambaforge .virtualenvs .rbenv .rvm .gem .bundle .sdkman .jenv .jabba .m2 .gradle
.ivy2 .sbt .coursier .dotnet .nuget .asdf .proto .local/bin .local/lib .local/pipx .local/share/mise
.local/share/uv .local/share/pnpm .opam .local/share/pipx .local/share/virtualenvs .local/share/fnm
.ghcup .stack .cabal .elan .mix .hex .juliaup .julia .pub-cache .swiftly .zig .zvm .linuxbrew
.nix-profile .cache/pip .cache/uv .cache/pypoetry .cache/yarn .cache/pre-commit .cache/ms-playwright
""".split()  # noqa: SIM905 - a table; below the user's home
_CACHES = frozenset(
    ".npm .yarn .deno .local/share/uv .local/share/pnpm .cache/pip .cache/uv .cache/pypoetry .cache/yarn".split()  # noqa: SIM905 - a table
)
_IN_CACHES = (".local/share/uv/python", ".local/share/uv/tools")
_HOMES = """
VIRTUAL_ENV CONDA_PREFIX PYENV_ROOT NVM_DIR VOLTA_HOME PNPM_HOME BUN_INSTALL DENO_DIR CARGO_HOME
RUSTUP_HOME GOPATH GOROOT GOMODCACHE JAVA_HOME GRADLE_USER_HOME GEM_HOME RBENV_ROOT ASDF_DIR
MISE_DATA_DIR SDKROOT DEVELOPER_DIR SSL_CERT_DIR SSL_CERT_FILE
""".split()  # noqa: SIM905 - a table; the variables that name a toolchain's folder

_USERS_FOLDERS = {
    "XDG_CONFIG_HOME": ".config",
    "XDG_CACHE_HOME": ".cache",
    "XDG_DATA_HOME": ".local/share",
    "XDG_STATE_HOME": ".local/state",
}

T = TypeVar("T")
Protects: TypeAlias = Callable[[str], bool]
"""Tell whether a path may not be changed by a command, because something runs or obeys it later."""
Refuses: TypeAlias = Callable[[str, Access], str | None]
"""Return why a path may not be used, or None; a PathPolicy of `workspace/roots`."""


class NetworkReach(StrEnum):
    """The hosts that a contained command can reach."""

    NONE = "none"
    SESSION = "session"  # the other commands of its session, on 127.0.0.1
    ALL = "all"


@frozen
class Walls:
    """The rights of a contained command: what it may change, read and reach. Paths are absolute and resolved.

    writable   folders and files that may be changed
    readable   folders and files that may be read; all others seem not to exist
    pinned     folders that keep their place, because something frozen or hidden lies in them
    frozen     files and folders in writable ones that stay as they are
    hidden     files and folders that seem to be empty, although they lie in readable or writable ones
    home       the user's home. In the sandbox an empty private folder takes its place
    network    which hosts can be reached
    proxied    whether a proxy reaches further hosts
    linked     git folders that may be changed because a folder of the session is a worktree of theirs
    """

    writable: tuple[str, ...]
    readable: tuple[str, ...]
    pinned: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    home: str = ""
    network: NetworkReach = NetworkReach.SESSION
    proxied: bool = False
    linked: tuple[str, ...] = ()

    def stand(self) -> bool:
        """Return whether the pinned and hidden paths still exist, and no path that needs a wall has a link in it."""
        kept = (*self.pinned, *self.hidden)
        return all(map(os.path.exists, kept)) and not any(map(os.path.islink, _with_folders((*kept, *self.frozen))))

    def for_reading(self) -> "Walls":
        """Return the same walls for a command that only reads: it may change nothing but /tmp and the private home.

        Such a command runs unasked, even if another program has its name. So it does not reach the hosts behind a
        proxy: where there is one, it has no network.
        """
        network = NetworkReach.NONE if self.proxied else self.network
        readable = (*self.readable, *self.writable)
        unchanged = replace(self, writable=(), readable=readable, pinned=(), frozen=(), linked=())
        return replace(unchanged, network=network, proxied=False)


@frozen
class Launch:
    """A command as it is started within walls, or free.

    descriptors   the file descriptors that it must inherit
    keepers       how many processes of the sandbox itself run as long as anything runs in it
    afterwards    called when the whole command has ended; returns a text to show with its result. It blocks.
                  None for a command that can change nothing
    variables     the variables of its environment that differ
    confine       puts the walls around the thread that starts it; None if `arguments` do that. The thread cannot leave
                  them and must end afterwards
    """

    arguments: tuple[str, ...]
    descriptors: tuple[int, ...] = ()
    keepers: int = 0
    afterwards: Callable[[], str] | None = None
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    confine: Callable[[], None] | None = None

    def start(self, popen: Callable[[], T]) -> T:
        """Return the result of `popen`, which starts the command. It is called in the thread that is confined.

        Raises what `popen` raises, and OSError.
        """
        confine = self.confine
        if confine is None:
            return popen()

        def confined() -> T:
            confine()
            return popen()

        with ThreadPoolExecutor(1) as thread:
            return thread.submit(confined).result()


class PrivateHome:
    """The private folders that stand for /tmp and for the user's home.

    folders   the folder for temporary files, and the home. They are made in `folder`, unless `home` names another place
              for the home
    """

    def __init__(self, folder: str, home: str = "") -> None:
        self.folders = os.path.join(folder, "tmp"), home or os.path.join(folder, "home")
        for path in self.folders:
            os.makedirs(path, mode=0o700, exist_ok=True)
        self._linked = False

    def variables(self, walls: Walls) -> dict[str, str]:
        """Return the variables that name the folders, for a sandbox that cannot mount them at their places.

        Toolchains and the session's folders in the user's home are found in the private one by links. They are made
        before the first command. Afterwards a command could have put links of its own there.
        """
        temporary, home = self.folders
        variables = {"TMPDIR": temporary}
        if any(is_below(walls.home, folder) for folder in walls.writable):
            return variables
        if not self._linked:
            self._linked = True
            for path in sorted({*walls.readable, *walls.writable}):
                if path != walls.home and is_below(path, walls.home):
                    link = os.path.join(home, os.path.relpath(path, walls.home))
                    with suppress(OSError):
                        os.makedirs(os.path.dirname(link), mode=0o700, exist_ok=True)
                        os.symlink(path, link)
        own = {name: os.path.join(home, folder) for name, folder in _USERS_FOLDERS.items()}
        return {**variables, "HOME": home, **own}


def make_place(private: str, names: Sequence[str], *, folder: bool) -> None:
    """Make an empty folder or file below a private folder if nothing is there. A link in its way is deleted."""
    at = os.open(private, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for count, name in enumerate(names, 1):
            with suppress(FileNotFoundError):
                if stat.S_ISLNK(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
                    os.unlink(name, dir_fd=at)
            if count == len(names) and not folder:
                os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=at))
                break
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=at)
            outer, at = at, os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
            os.close(outer)
    finally:
        os.close(at)


@frozen
class WallRules:
    """The rules from which the walls of a session are made.

    roots         the session's folders
    allow_write   further files and folders that may be changed
    allow_read    further files and folders that may be read
    hidden        files and folders whose content is hidden, in addition to the usual places of logins and keys
    protects      returns whether a path may not be changed
    refuses       returns why a path may not be read, or None
    read_only     whether nothing may be changed but /tmp and the private home
    own_caches    whether caches of packages are kept in the private home instead of read from the user's
    hosts         further hosts that are reached through a proxy, where a tier has one
    """

    roots: tuple[str, ...]
    protects: Protects
    refuses: Refuses
    allow_write: tuple[str, ...] = ()
    allow_read: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    read_only: bool = False
    own_caches: bool = False
    network: NetworkReach = NetworkReach.SESSION
    hosts: tuple[HostPattern, ...] = ()

    def walls(self, environment: Mapping[str, str]) -> Walls:
        """Look for what is protected and unreadable, and return the walls. It blocks for some milliseconds.

        Protected and unreadable files are found in the writable folders and `_DEEPEST` levels below.

        environment   the variables that commands get, which tell where toolchains are
        """
        home = os.path.realpath(environment.get("HOME") or os.path.expanduser("~"))
        folders = _existing((*self.roots, *self.allow_write))
        readable = [*_SYSTEM, *self.allow_read, *_toolchains(home, environment, caches=not self.own_caches)]
        frozen: list[str] = []
        unreadable: list[str] = []
        for folder in folders:
            for path, _, is_git in upper_entries(folder):
                if is_git:
                    frozen += obeyed_by_git(path)
                elif self.protects(path):
                    frozen.append(path)
                if self.refuses(path, Access.READ):
                    unreadable.append(path)
        secret = _existing((*_logins(home, environment), *_SECRETS, *self.hidden, *unreadable))
        linked = self._linked(folders, secret)
        folders = (*folders, *(each.folder for each in linked))
        frozen += [path for each in linked for path in each.frozen()]
        if self.read_only:
            readable += folders
            folders, frozen, linked = (), [], []
        # Freeze the target of a link, but only in a writable folder: a link may come with a checkout, and must not make
        # files elsewhere visible.
        real = dict.fromkeys(filter(os.path.exists, map(os.path.realpath, (*frozen, *hook_folders(frozen)))))
        frozen = [path for path in real if path not in folders and _is_within(path, folders)]
        seen = (*folders, *_existing(readable))
        hidden = tuple(path for path in secret if _is_within(path, seen))
        kept = (*frozen, *(path for path in hidden if _is_within(path, folders)))
        pinned = sorted({above for path in kept for above in _between(path, folders)})
        found = (folders, _existing(readable), tuple(pinned), tuple(frozen), hidden)
        proxied = bool(self.hosts) and self.network is NetworkReach.SESSION
        gits = tuple(git for each in linked for git in (each.folder, *each.worktrees))
        return Walls(*found, home, self.network, proxied=proxied, linked=gits)

    def _linked(self, folders: Sequence[str], secret: Sequence[str]) -> list[LinkedRepository]:
        """Return the repositories of linked worktrees that commands may change, without those that may not be read.

        folders   the paths that may be changed anyway
        secret    the paths that are hidden
        """
        return [
            each
            for each in linked_repositories(self.roots)
            if self.refuses(each.folder, Access.READ) is None
            and not any(is_below(each.folder, path) for path in (*folders, *secret))
            and not any(is_below(path, each.folder) for path in folders)
        ]


def _toolchains(home: str, environment: Mapping[str, str], *, caches: bool) -> Iterator[str]:
    """Yield the folders of programs and libraries outside the system's ones: known ones, and those of PATH."""
    known = _TOOLCHAINS if caches else [*_IN_CACHES, *(name for name in _TOOLCHAINS if name not in _CACHES)]
    yield from (os.path.join(home, name) for name in known)

    def holds_home(folder: str) -> bool:
        return is_below(home, os.path.realpath(folder))

    for name in _HOMES:
        folder = environment.get(name, "")
        if folder.startswith("/") and not holds_home(folder):
            yield folder
        elif name == "GOPATH" and folder and os.path.realpath(folder) == home:  # as older guides of Go said
            yield from (os.path.join(home, part) for part in ("pkg", "bin"))
    for folder in filter(os.path.isabs, environment.get("PATH", "").split(":")):
        above, name = os.path.split(os.path.normpath(folder))
        whole = name in ("bin", "sbin") and not holds_home(above)
        if not holds_home(folder):
            yield above if whole else folder


def _logins(home: str, environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the places of the logins of tools."""
    yield from (os.path.join(home, name) for name in _LOGINS)
    for variable, names in _LOGINS_OF.items():
        if (folder := environment.get(variable, "")).startswith("/"):
            yield from (os.path.join(folder, name) for name in names)


def _existing(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the existing paths, resolved, without those that are below another one."""
    real = sorted({os.path.realpath(path) for path in paths if os.path.exists(path)})
    kept: list[str] = []
    for path in real:
        if not any(is_below(path, above) for above in kept):
            kept.append(path)
    return tuple(kept)


def _is_within(path: str, folders: Iterable[str]) -> bool:
    return any(is_below(path, folder) for folder in folders)


def folders_above(path: str) -> Iterator[str]:
    """Yield the folders above a path, the nearest first."""
    while path != "/":
        path = path.rpartition("/")[0] or "/"
        yield path


@lru_cache(8)
def _with_folders(paths: tuple[str, ...]) -> frozenset[str]:
    """Return the paths and all folders above them."""
    return frozenset(each for path in paths for each in (path, *folders_above(path)))


def upper_entries(root: str) -> Iterator[tuple[str, bool, bool]]:
    """Yield the entries of the upper levels of a folder: the path, whether it is a folder, and whether it is git's.

    Most protected files are at the top level, or have a name with a leading dot. So these come first, up to 20,000, and
    of all others 1,000. In a folder of the upper levels that is reached after the 1,000, nothing is looked for.
    """
    left, dotted_left = _MOST_ENTRIES, _MOST_DOTTED
    level = [root]
    for depth in range(_DEEPEST + 1):
        below: list[str] = []
        for folder in sorted(level, key=lambda path: "/." not in path[len(root) :]):
            first = depth == 0 or "/." in folder[len(root) :]
            if left < 0 and not first:
                break
            for name, path, is_folder in _listed(folder):
                if first or name.startswith("."):
                    dotted_left -= 1
                else:
                    left -= 1
                    if left < 0:
                        continue
                if dotted_left < 0:
                    return
                is_git = is_folder and name == ".git"
                yield path, is_folder, is_git
                if is_folder and not is_git and name not in _UNSEARCHED:
                    below.append(path)
        level = below


def _listed(folder: str) -> list[tuple[str, str, bool]]:
    """Return the name and the path of each entry of a folder, and whether it is a folder. Empty if it is unreadable."""
    try:
        with os.scandir(folder) as found:
            return [(entry.name, entry.path, entry.is_dir(follow_symlinks=False)) for entry in found]
    except OSError:
        return []


def _between(path: str, writable: Sequence[str]) -> Iterator[str]:
    """Yield the folders between a path and the writable folder that contains it, the nearest first."""
    for folder in folders_above(path):
        if folder in writable or not _is_within(folder, writable):
            return
        yield folder
