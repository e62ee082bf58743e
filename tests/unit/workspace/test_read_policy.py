"""Which files may be shown: patterns, their two readings, and that every way to a file's content meets them."""

import os
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from wcmatch import glob as oracle

from acp_agent.core.backends import GrepQuery
from acp_agent.core.errors import ConfigError, Refused, ToolErrorCategory
from acp_agent.core.types import Access
from acp_agent.workspace.local_files import LocalFileSystem
from acp_agent.workspace.read_policy import DENIED, NOT_ALLOWED, OwnFiles, ReadPolicy, all_of
from acp_agent.workspace.roots import Roots
from tests.rows import each_row

pytestmark = pytest.mark.anyio

ROOT = "/nowhere/project"
NFC, NFD = unicodedata.normalize("NFC", "clé"), unicodedata.normalize("NFD", "clé")


def readable(path: str, deny: Sequence[str] = (), allow: Sequence[str] = (), *, carve_out: bool = False) -> bool:
    policy = ReadPolicy(deny, allow, carve_out=carve_out, folders=(ROOT, "/nowhere/shared"))
    return policy(path, Access.READ) is None


# ------------------------------------------------------------------------------------- patterns


@each_row(
    "pattern, denied, open_",
    [
        ("/etc/shadow", ["/etc/shadow", "/etc/shadow/x"], ["/etc/shadow-", "/etc", "/x/etc/shadow"]),
        ("/home/*/.ssh/*", ["/home/a/.ssh/id", "/home/a/.ssh/deep/id"], ["/home/a/.ssh", "/home/a/b/.ssh/id"]),
        ("/srv/**/key", ["/srv/key", "/srv/a/b/key", "/srv/a/key/x"], ["/srv/keys", "/key"]),
        ("/srv/**", ["/srv/a", "/srv/a/b"], ["/srv", "/srvs/a"]),
        ("**/.env", ["/.env", "/a/b/.env", f"{ROOT}/.env/x"], ["/a/.envs", "/a/x.env"]),
        ("**/keys/*", ["/a/keys/b", "/keys/b/c"], ["/a/keys"]),
        (".env", ["/.env", "/a/.env"], ["/a/.env2"]),
        ("*.pem", ["/a.pem", "/d/.pem", "/d/a.pem/x"], ["/a.pem2"]),
        ("secrets/*", [f"{ROOT}/secrets/a", "/nowhere/shared/secrets/a/b"], [f"{ROOT}/x/secrets/a", "/secrets/a"]),
        ("./secrets", [f"{ROOT}/secrets/a"], [f"{ROOT}/x/secrets"]),
        ("secrets/", [f"{ROOT}/secrets/a", f"{ROOT}/x/secrets"], [f"{ROOT}/secret"]),
        (".", [ROOT, f"{ROOT}/a", "/nowhere/shared"], ["/nowhere", "/nowhere/other"]),
        ("/", ["/", "/a", ROOT], []),
        ("**", ["/a", ROOT], []),
        ("a?c", ["/abc"], ["/ac", "/a/c"]),
        ("[a-c]x", ["/ax", "/CX"], ["/dx"]),
        ("[A-z]x", ["/ax", "/_x"], ["/1x"]),
        ("[!A-Z]x", ["/ax", "/1x"], ["/a/b"]),
        ("{/etc,/srv}/*.key", ["/etc/a.key", "/srv/a.key"], [f"{ROOT}/etc/a.key", "/etc/a"]),
        ("{secrets/a,.env}", [f"{ROOT}/secrets/a", "/x/.env"], ["/x/secrets/a"]),
        (r"\*.txt", ["/*.txt"], ["/a.txt"]),
        ("a[b", ["/a[b"], ["/ab"]),
        ("a{b}c,{", ["/a{b}c,{"], ["/abc"]),
        ("straße", ["/STRASSE", "/Straße/x"], ["/strase"]),
        ("/a\nb/*", ["/a\nb/c\nd"], ["/a b/c"]),
    ],
)
def test_where_a_pattern_matches_and_that_it_takes_what_is_below(pattern: str, denied: list[str], open_: list[str]):
    assert [path for path in denied if readable(path, [pattern])] == []
    assert [path for path in open_ if not readable(path, [pattern])] == []


def test_home_is_expanded_and_taken_as_it_is_written(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", "/home/[me]*")
    assert not readable("/home/[me]*/.ssh/id", ["~/.ssh"])
    assert not readable("/home/[me]*/x", ["~"])
    assert readable("/home/m/.ssh/id", ["~/.ssh"])
    assert readable("/home/[me]*/docs/a", (), ["~/docs/**"])


def test_without_folders_a_pattern_below_them_matches_nothing():
    assert ReadPolicy(["src/a"], folders=[])("/src/a", Access.READ) is None
    assert ReadPolicy((), ["src/a"], folders=[])("/src/a", Access.READ) == NOT_ALLOWED


def test_a_root_with_glob_characters_is_no_pattern():
    policy = ReadPolicy(["secrets/x"], folders=["/srv/[ab]*"])
    assert policy("/srv/[ab]*/secrets/x", Access.READ) == DENIED
    assert policy("/srv/a/secrets/x", Access.READ) is None


@each_row(
    "pattern, name",
    product([NFC, NFD, NFC.upper(), f"**/{NFD.upper()}", "cl?", "CL[é]"], [NFC, NFD, NFC.upper(), NFD.upper()]),
)
def test_twins_of_a_denied_name_are_denied(pattern: str, name: str):
    assert not readable(f"{ROOT}/{name}", [pattern])


def test_twins_of_an_allowed_name_are_not_allowed():
    assert readable(f"{ROOT}/{NFC}", (), [NFC])
    assert [twin for twin in (NFD, NFC.upper()) if readable(f"{ROOT}/{twin}", (), [NFC])] == []


def test_names_that_are_no_utf8_are_judged_too():
    name = os.fsdecode(b"caf\xe9.pem")
    assert not readable(f"{ROOT}/{name}", ["*.pem"])
    assert not readable(f"{ROOT}/{name}", (), ["src/**"])


pieces = st.sampled_from(
    ["a", "b", "B", ".", "*", "**", "?", "/", "[ab]", "[!a]", "{a,b}", "{a,*b}", "{b/a,/a}", "-", "é"]
)
names = st.text("abB.-é", min_size=1, max_size=3).filter(lambda name: name not in (".", ".."))
paths = st.lists(names, min_size=1, max_size=5).map(lambda parts: "/" + "/".join(parts))
patterns = st.lists(pieces, min_size=1, max_size=6).map("".join)


def expected(path: str, pattern: str) -> bool:
    """Whether wcmatch matches the path or a directory above it, the pattern anchored as documented."""
    full: list[str] = []
    for choice in oracle.bracex.expand(pattern):
        if choice.startswith("/"):
            full.append(choice)
        elif choice.split("/")[0] == "**":
            full.append(f"/{choice}")
        elif "/" in choice.rstrip("/"):
            full.append(f"/b/{choice}")
        else:
            full.append(f"/**/{choice}")
    plain = ["/" + "/".join(name for name in each.split("/") if name) for each in full]
    above = [path] + [path[:at] for at in range(1, len(path)) if path[at] == "/"]
    return any(oracle.globmatch(part, each, flags=oracle.GLOBSTAR | oracle.DOTGLOB) for part in above for each in plain)


@settings(max_examples=settings.default.max_examples * 2)
@given(pattern=patterns, path=paths)
@example(pattern="**/a", path="/a/b")
@example(pattern="a/b", path="/b/a/b")
def test_it_agrees_with_wcmatch(pattern: str, path: str):
    try:
        allow = ReadPolicy((), [pattern], folders=["/b"])
    except ConfigError:
        return
    odd_stars = any("**" in name and name != "**" for name in pattern.split("/")) or (
        "**" in pattern and "{" in pattern
    )
    dots = any(name in (".", "..") for choice in oracle.bracex.expand(pattern) for name in choice.split("/"))
    if odd_stars or dots or any(not choice.strip("/") for choice in oracle.bracex.expand(pattern)):
        return
    wanted = expected(path, pattern)
    assert (allow(path, Access.READ) is None) == wanted, (pattern, path)
    if wanted:  # what matches exactly is denied at the least
        assert ReadPolicy([pattern], folders=["/b"])(path, Access.READ) == DENIED


@given(patterns | st.text(min_size=1, max_size=12), st.text(max_size=12))
def test_any_text_is_a_pattern_or_an_error_that_names_it(pattern: str, path: str):
    try:
        policy = ReadPolicy([pattern], folders=[ROOT])
    except ConfigError as error:
        problem = error
    else:
        policy(f"/{path}", Access.READ)
        return
    assert problem.key == "tools.file.deny_read"
    assert str(problem).isprintable()


@pytest.mark.parametrize("setting", ["deny_read", "allow_read"])
@each_row(
    "pattern, words",
    [
        ("../x", "without .."),
        ("/a/../b", "without .."),
        ("a\0b", "part of a path"),
        ("\ud800", "part of a path"),
        ("x" * 1025, "at most 1024 characters"),
        ("{a,b}" * 20, "at most 256 choices"),
        ("[z-a]", "a glob"),
        ("$HOME/.ssh", "an absolute pattern"),
        ("${HOME}", "an absolute pattern"),
        ("~nobody-of-this-name/x", "an absolute pattern"),
        ("file:///etc", "an absolute pattern"),
        ("  ", "an absolute pattern"),
        ("{a,}", "an absolute pattern"),
    ],
)
def test_what_is_no_pattern_is_an_error_of_the_configuration(pattern: str, words: str, setting: str):
    deny, allow = ([pattern], []) if setting == "deny_read" else ([], [pattern])
    with pytest.raises(ConfigError, match=words) as raised:
        ReadPolicy(deny, allow, folders=[ROOT])
    assert raised.value.key == f"tools.file.{setting}"
    assert raised.value.value
    assert str(raised.value).isprintable()


@pytest.mark.parametrize("pattern", ["*a" * 500, "**/" * 300 + "x", "{a,b}" * 8 + "*" * 300, "[" * 1000])
def test_a_hostile_name_costs_no_time(pattern: str):
    assert readable("/" + "/".join(["a" * 255] * 15), [pattern + "!"])


def test_hundreds_of_patterns_are_no_problem():
    policy = ReadPolicy([f"**/d{number}*/{{a,b}}" for number in range(300)], folders=[ROOT])
    assert policy("/x/d299z/b", Access.READ) == DENIED
    assert policy("/x/e1/b", Access.READ) is None


def test_without_patterns_everything_may_be_read_and_nothing_heavy_is_loaded(clean_import: Callable[[str], str]):
    assert readable("/anything")
    code = "from acp_agent.workspace.read_policy import ReadPolicy; ReadPolicy((), (), folders=['/'])"
    assert clean_import(f"{code}; import sys; print('re2' in sys.modules)") == "False"


@pytest.fixture
def clean_import() -> Callable[[str], str]:
    """What a fresh interpreter prints."""
    root = Path(__file__).parents[3]
    return lambda code: subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    ).stdout.strip()


# --------------------------------------------------------------------------- the two readings


@each_row(
    "deny, allow, strict, carved",
    [
        ([], [], {"etc", "src", "key"}, {"etc", "src", "key"}),
        ([], ["src/**"], {"src", "key"}, {"etc", "src", "key"}),
        (["src/key"], [], {"etc", "src"}, {"etc", "src"}),
        (["src/key"], ["src/**"], {"src"}, {"etc", "src", "key"}),
        (["**"], ["src/key"], set(), {"key"}),
        (["src"], ["src/a"], set(), {"etc", "src"}),
        (["src"], ["src/a", "/etc"], {"etc"}, {"etc", "src"}),
    ],
)
def test_deny_wins_and_allow_is_a_whitelist_unless_it_carves_out(
    deny: list[str], allow: list[str], strict: set[str], carved: set[str]
):
    places = {"etc": "/etc/hostname", "src": f"{ROOT}/src/a", "key": f"{ROOT}/src/key"}
    assert {name for name, path in places.items() if readable(path, deny, allow)} == strict
    assert {name for name, path in places.items() if readable(path, deny, allow, carve_out=True)} == carved


@given(deny=st.lists(patterns, max_size=2), allow=st.lists(patterns, max_size=2), path=paths)
def test_strict_never_shows_more_than_carve_out(deny: list[str], allow: list[str], path: str):
    try:
        strict, carved = (ReadPolicy(deny, allow, carve_out=each, folders=["/b"]) for each in (False, True))
    except ConfigError:
        return
    for access in Access:
        assert strict(path, access) is not None or carved(path, access) is None


def test_what_each_access_meets():
    policy = ReadPolicy(["secret"], ["src/**"], folders=[ROOT])
    told = {
        path: {access: policy(f"{ROOT}/{path}", access) for access in Access} for path in ("secret", "docs", "src/a")
    }
    free = dict.fromkeys(Access, None)
    assert told["secret"] == free | {Access.READ: DENIED, Access.LIST: DENIED, Access.MOVE: DENIED}
    assert told["docs"] == free | {Access.READ: NOT_ALLOWED, Access.MOVE: NOT_ALLOWED}
    assert told["src/a"] == free


def test_of_several_policies_the_first_that_refuses_speaks():
    own, reading = OwnFiles(("/nowhere/own",)), ReadPolicy(["own"], folders=[ROOT])
    both = all_of(own, reading)
    assert both("/nowhere/own", Access.WRITE) == "belongs to the agent itself"
    assert both("/nowhere/own", Access.READ) == DENIED
    assert both("/nowhere/other", Access.READ) is None


# --------------------------------------------------------------------------------- real files


def grow(folder: Path, *named: str) -> None:
    for path in named:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("SECRET\n" if "secret" in path.lower() else "plain\n")


Session = Callable[..., LocalFileSystem]


@pytest.fixture
def session(project: Path, request: pytest.FixtureRequest) -> Session:
    """`session(deny=[...], allow=[...])`: the files of a session in `project`."""

    def start(deny: Sequence[str] = (), allow: Sequence[str] = (), *, carve_out: bool = False) -> LocalFileSystem:
        policy = ReadPolicy(deny, allow, carve_out=carve_out, folders=[str(project)])
        roots = Roots(str(project), policy=policy)
        request.addfinalizer(roots.close)
        return LocalFileSystem(roots)

    return start


async def reaches(files: LocalFileSystem, path: str) -> set[str]:
    """The ways by which the content of a path, or that it is there, can be had."""
    ways = {
        "read_text": lambda: files.read_text(path),
        "read_lines": lambda: files.read_lines(path, 0, 10),
        "read_bytes": lambda: files.read_bytes(path, 100),
        "grep": lambda: files.grep(GrepQuery("SECRET", path)),
        "kind": lambda: files.kind(path),
        "list": lambda: files.list_directory(path),
        "find": lambda: files.find(path, "**", 10),
        "copy": lambda: files.copy(path, "twin"),
        "move": lambda: files.move(path, "taken"),
    }
    reached: set[str] = set()
    for name, way in ways.items():
        try:
            await way()
        except Refused as refusal:
            if refusal.failure.category is ToolErrorCategory.POLICY_BLOCKED and str(refusal).endswith(DENIED):
                continue
        reached.add(name)
    return reached


@pytest.mark.parametrize(
    "path",
    [
        "secrets/key",
        "link-to-file",
        "link-to-folder/key",
        "sub/up/secrets/key",
        "secrets/../secrets/key",
        "SECRETS/key",
    ],
)
@pytest.mark.parametrize("pattern", ["secrets", "secrets/key", "**/secrets/*", "{project}/secrets", "**/KEY"])
async def test_no_way_leads_to_a_denied_file(session: Session, project: Path, path: str, pattern: str):
    grow(project, "secrets/key", "sub/a")
    (project / "SECRETS").symlink_to("secrets")
    (project / "link-to-file").symlink_to("secrets/key")
    (project / "link-to-folder").symlink_to("secrets")
    (project / "sub" / "up").symlink_to("..")
    files = session([pattern.format(project=project)])
    moved_itself = {"move"} if path == "link-to-file" else set()  # a link is moved, not what it leads to
    assert await reaches(files, path) <= moved_itself
    assert (project / "secrets" / "key").read_text() == "SECRET\n"
    assert not (project / "twin").exists()


async def test_a_pattern_through_a_link_holds_where_the_link_leads(session: Session, project: Path):
    grow(project, "real/secret", "real/other")
    (project.parent / "alias").symlink_to("project")
    (project / "link").symlink_to("real")
    for pattern in (
        f"{project.parent}/alias/real/secret",
        f"{project.parent}/alias/r*/secret",
        "link/secret",
        "link/s*",
    ):
        files = session([pattern])
        with pytest.raises(Refused, match="deny_read"):
            await files.read_text("real/secret")
        assert await files.read_text("real/other") == "plain\n"


async def test_a_link_of_the_project_does_not_widen_a_whitelist(session: Session, project: Path):
    grow(project, "secret", "real/a")
    (project / "src").symlink_to(".")
    (project.parent / "alias").symlink_to("project")
    for pattern in ("src/**", f"{project}/src/**", f"{project.parent}/alias/src/**"):
        with pytest.raises(Refused, match="allow_read"):
            await session((), [pattern]).read_text("src/secret")
    assert await session((), [f"{project.parent}/alias/real/*"]).read_text("real/a") == "plain\n"


async def test_listings_and_searches_leave_out_what_is_denied(session: Session, project: Path):
    grow(project, "a.py", "secrets/deep/key.py", "sub/.env", "sub/b.py", "sub/Secret.PEM")
    (project / "out").symlink_to("secrets")
    files = session(["secrets", ".env", "*.pem"])
    assert [entry.name for entry in await files.list_directory(".")] == ["a.py", "out", "sub"]
    assert [entry.name for entry in await files.list_directory("sub")] == ["b.py"]
    found = await files.find(".", "**", 100)
    assert [os.path.relpath(path, project) for path in found.paths] == ["a.py", "sub", "sub/b.py"]
    assert (await files.find(".", "secrets/**", 100)).paths == ()
    assert (await files.find(".", "out/**", 100)).paths == ()
    assert (await files.grep(GrepQuery("SECRET", "."))).matches == ()


async def test_a_whitelist_leaves_directories_listable_and_hides_other_files(session: Session, project: Path):
    grow(project, "src/a.py", "src/secret.txt", "docs/b.md", "c.py")
    (project / "src" / "docs").symlink_to("../docs")
    (project / "src" / "b.py").symlink_to("../docs/b.md")
    files = session((), ["src/**/*.py"])
    assert [entry.name for entry in await files.list_directory(".")] == ["docs", "src"]
    assert await files.list_directory("docs") == ()
    found = await files.find(".", "**", 100)
    assert [os.path.relpath(path, project) for path in found.paths] == ["docs", "src", "src/a.py", "src/docs"]
    assert await files.read_text("src/a.py") == "plain\n"
    for path in ("src/secret.txt", "src/b.py", "docs/b.md", "c.py", "new"):
        with pytest.raises(Refused, match="allow_read"):
            await files.read_text(path)
    with pytest.raises(Refused, match="allow_read"):
        await files.move("c.py", "src/c.py")


async def test_exceptions_are_found_below_what_is_denied(session: Session, project: Path):
    grow(project, "private/public/a.py", "private/secret.py")
    files = session(["private"], ["private/public"], carve_out=True)
    assert await files.read_text("private/public/a.py") == "plain\n"
    assert [entry.name for entry in await files.list_directory("private/public")] == ["a.py"]
    found = await files.find(".", "**", 100)
    assert [os.path.relpath(path, project) for path in found.paths] == ["private/public", "private/public/a.py"]
    with pytest.raises(Refused, match="deny_read"):
        await files.list_directory("private")


async def test_unicode_twins_on_disk_are_denied_and_hidden(session: Session, project: Path):
    grow(project, f"secret-{NFD}", f"SECRET-{NFC}", "open")
    files = session([f"secret-{NFC}"])
    assert [entry.name for entry in await files.list_directory(".")] == ["open"]
    for name in (f"secret-{NFD}", f"SECRET-{NFC}"):
        with pytest.raises(Refused, match="deny_read"):
            await files.read_text(name)
