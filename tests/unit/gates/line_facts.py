"""Everything that gates take from a command line, as a few lines of text.

`python -m tests.unit.gates.line_facts` writes the facts of all command lines in FILE again: read what `git diff` shows.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from acp_agent.config.load import Flags, load
from acp_agent.core.session_options import AutoApprove, SessionOptions
from acp_agent.core.types import Allow, Ask, Deny, Verdict
from acp_agent.gates import blocklist, git_calls
from acp_agent.gates.blocklist import BlocklistPolicy, Substitution
from acp_agent.gates.gate import CommandFacts
from acp_agent.gates.paths import links, unnamed_paths, written_paths
from acp_agent.gates.paths.command_paths import Folders, odd_words, path_words, patterns_of
from acp_agent.gates.rules.deny_groups import deny_groups
from acp_agent.gates.rules.permission_rules import Action, allowance, canonical, denial_of
from acp_agent.gates.shell import arguments, danger, programs
from acp_agent.gates.shell.command import Command, Plain
from acp_agent.gates.shell.printing import printing_commands
from acp_agent.gates.verify.firewall import Firewall
from acp_agent.gates.verify.folder_readers import reading
from acp_agent.gates.verify.verifiers import Destructive, Injection
from acp_agent.session.verdicts import judged
from acp_agent.workspace.command_files import FoundSecret
from tests.unit.gates.chain import Chain, command, rules

FILE = Path(__file__).parents[2] / "fixtures" / "command_lines.txt"
"""Each command line above its facts, which are indented."""
LINE_END = "\u2424"
"""A line end in a command line, as FILE has it."""

RULES = (
    *rules("rm *", "git push *", action=Action.DENY),
    *rules("make *", "env *", "git -C *", action=Action.ASK),
    *rules("git *", "npm *", "find *", "sed *", "python *", "xargs wc *", "timeout *", "sh -c *"),
)
BLOCKLISTS = {
    "blocked": BlocklistPolicy(),
    "blocked where substitutions are asked about": BlocklistPolicy(
        blocked=("nc",), allowed=("curl",), substitution=Substitution.ASK, groups=tuple(deny_groups())
    ),
}
SECRETS = (*(".env", "conf/x.key", "sub/.env", "a.py"),)
HAS = frozenset(("a", "src", "sub", "conf", "./a", "a/b"))
"""The folders there are."""
MATCHES = {"*": ("a", "b"), "s*": ("src", "sub"), ".e*": (".env",), "*.py": ("a.py",)}


def expand(pattern: str, folder: str) -> tuple[str, ...]:
    """Return the files for a pattern: the same in each folder."""
    del folder
    return MATCHES.get(pattern, ())


class Links(links.UnseenWorkspace):
    """A workspace with folders, files, and a link that leads out of each folder but `src`."""

    def links_out(self, folder: str) -> Mapping[str, bool] | None:
        return {} if folder.startswith("src") else {f"{folder}/out.py": False, f"{folder}/away": True}

    def is_file(self, path: str) -> bool:
        return path.endswith((".py", ".txt", "b"))

    def is_folder(self, path: str) -> bool:
        return path in HAS


class FolderLinks(Links):
    """The same with links to folders only."""

    def links_out(self, folder: str) -> Mapping[str, bool] | None:
        return {each: True for each, leads in (super().links_out(folder) or {}).items() if leads}


def shown(value: object) -> str:
    """Return a value without what it has by default."""
    match value:
        case Enum():
            return value.name.lower()
        case str():
            return value if value.isprintable() and value and value == value.strip() else repr(value)
        case frozenset():
            return shown(sorted(map(shown, value)))
        case Mapping():
            return shown([f"{shown(key)} = {shown(each)}" for key, each in value.items()])
        case Command():
            return " ".join((" ".join(map(quoted, value.argv)), *rest_of(value, "argv", "runs")))
        case tuple() if hasattr(value, "_fields"):
            return shown(tuple(value))
        case tuple() | list():
            return f"[{', '.join(map(shown, value))}]"
        case _ if hasattr(value, "__dataclass_fields__"):
            return f"{type(value).__name__}({' '.join(rest_of(value))})"
        case _ if callable(value):
            return "..."
        case _:
            return str(value)


def quoted(word: str) -> str:
    return word if word.isprintable() and word and " " not in word else repr(word)


def rest_of(value: Any, *without: str) -> Iterator[str]:
    """Yield the members of an object that differ from their defaults, as text."""
    for each in filter(lambda field: field.init, fields(value)):
        found = getattr(value, each.name)
        default = each.default_factory() if each.default_factory is not MISSING else each.default
        if each.name not in without and found != default and not callable(found):
            yield f"{each.name}={shown(found)}"


def facts_of_line(line: CommandFacts) -> Iterator[tuple[str, object]]:
    """Yield the facts of a whole command line, each with its name."""
    found, analysis = line.survey, line.analysis
    yield "constructs", found.constructs
    yield "hazards", found.hazards
    yield "damage", found.damage
    yield "unread", found.unread
    if isinstance(analysis, Plain):
        yield "proven", [] if analysis.commands == found.commands else analysis.commands
        yield "proven to run", [each.runs for each in analysis.commands if each.runs]
    else:
        yield "not proven, since it", analysis.reason
    yield "literal", line.literal is not None
    yield "only reads", line.only_reads
    yield "feeds names below its folder", [*feeding(line.commands)]
    yield "prints", printing_commands(line)
    for name, policy in BLOCKLISTS.items():
        yield name, asked(blocklist.judge(line, policy))
    denial = denial_of(line, RULES, {"curl": False, "npm publish": False}.get)
    yield "denied", denial
    yield "allowed", allowance(line, RULES, {"cargo build": True, "npm run": True}.get, reads=True)
    yield "calls of git", [*git_calls.git_calls(line)] if git_calls.may_call_git(line.text) else ()
    doubts = [*links.link_doubts(line.surveyed_steps, Links())]
    yield "doubts about links", doubts
    of_folders = [*links.link_doubts(line.surveyed_steps, FolderLinks())]
    yield "doubts about links to folders", of_folders if of_folders != doubts else ()
    if line.steps != line.surveyed_steps:
        yield "in folders", [step.folders for step in line.steps]


def facts_of_command(command: Command, folders: Folders) -> Iterator[tuple[str, object]]:
    """Yield the facts of one command of a line, each with its name."""
    yield "folders", [*folders.possible] if folders.possible != ("",) else ()
    yield "lost", folders.lost
    yield "changes ignores", folders.changes_ignores
    if not command.argv and not command.redirections:
        return
    paths = dict.fromkeys(path_words(command))
    yield "paths", [*paths]
    yield "patterns", sorted(set(patterns_of(command)) - set(paths))
    yield "odd words", [each for each in odd_words(command) if each not in paths]
    yield "writes", [f"{each.word}/" if each.whole else each.word for each in written_paths.written(command)]
    if not command.argv:
        return
    yield "changes nothing", written_paths.reads_only(command)
    opened = dict.fromkeys(links.opened(command))
    yield "opens", [*opened] if opened != paths else ()
    yield "opens nothing", bool(paths) and not opened
    yield "reads no folder", not links.reads_folder(command)
    yield "makes links", links.may_make_links(command, Links().is_file)
    yield "makes folders", [*links.made_folders(command)]
    yield "links to", links.link_targets(command, Links().is_folder)
    yield "follows", [(each.how, each.folders) for each in unnamed_paths.followed(command)]
    yield "writes the setting", arguments.config_write(command)
    yield "makes of names", unnamed_paths.spliced(command)
    yield "takes names from", unnamed_paths.name_list(command)
    yield "opens no file it finds", bool(command.runs) and unnamed_paths.names_only(command)
    yield "is only reading", programs.only_reads(command)
    yield "doubts", [*programs.doubts(command)]
    prefix = programs.prefix(command)
    yield "prefix", " ".join(prefix) if prefix != (command.name,) else ""
    yield "no prefix", not prefix
    yield "denied by", [each for each in programs.denials(command) if each != command.name]
    yield "spelled", [" ".join(each) for each in programs.spellings(command)][1:]
    yield "spares", programs.spares(command)
    yield "exceeds", programs.exceeds(command, (command.name,))
    yield "overwrites", programs.overwrites(command)
    yield "outlives undo", programs.outlives_undo(command)
    yield "destroys", [danger.destructive(command, each) for each in ("", "/", "~")] if destroys(command) else ()
    yield "compared as", canonical(command) if canonical(command) != " ".join(command.argv) else ""
    yield "moves to", [*git_calls.moved_by(command)]
    yield "reads", read_by(command)
    for verifier in (Firewall(lambda path, access: path), Destructive(), Injection()):
        yield verifier.name, asked(verifier.command(command, folders))


def feeding(commands: Sequence[Command]) -> Iterator[str]:
    """Yield the commands to which a pipeline feeds only names below its folder."""
    for at, each in enumerate(commands):
        begin = at
        while begin and commands[begin].joined == "|":
            begin -= 1
        if each.appended and unnamed_paths.feeds_names_below(commands[begin:at], each):
            yield shown(each)


def destroys(command: Command) -> bool:
    return any(danger.destructive(command, each) for each in ("", "/", "~"))


def asked(verdict: Verdict) -> str:
    """Return what a gate says of a command line, without the sentences that are the same for all."""
    match verdict:
        case Allow():
            return ""
        case Deny(reason):
            return f"deny: {verdict.rule or reason}"
        case Ask(reason):
            return f"{'firm ' if verdict.firm else ''}ask: {reason}"


def read_by(command: Command) -> object:
    """Return what a command reads without naming it, and which of a few files it would show."""
    found = reading(command)
    if found is None:
        return ""
    shows = [
        each for each in SECRETS if found.shows(FoundSecret(each)) or found.shows(FoundSecret(each, excepted=True))
    ]
    return [found.folders, found.look, shows, found.how]


class Sessions:
    """The gates of sessions with different configurations, in one folder.

    root   where the folder is made
    """

    def __init__(self, root: Path) -> None:
        root = root.resolve()
        for name in ("src/a.py", "sub/.env", "conf/x.key", "a/b/c", ".git/hooks/pre-commit", ".envrc", "a.py"):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).touch()
        (root / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
        (root / "sub" / "away").symlink_to(root.parent)
        (root.parent / "config.toml").write_text(POLICY)
        policy = load(Flags(), {"ACP_AGENT_CONFIG": str(root.parent / "config.toml")})
        assert policy.problems == ()
        auto = SessionOptions(auto_approve=AutoApprove.FULL_AUTO)
        given = str(root), str(root.parent / "grants.toml")
        self._chains = {
            "in a session": Chain(*given),
            "in full-auto under a policy": Chain(*given, conduct=auto, loaded=policy),
        }
        self._root = str(root)

    def found(self, text: str) -> Iterator[tuple[str, object]]:
        """Yield the verdicts on a command line, without those that only allow what another session asks about."""
        first = ""
        for name, chain in self._chains.items():
            facts = chain.gates.facts(command(text))
            found = judged(facts, chain.gates.in_order)
            why = [*filter(None, (found.gate, found.rule)), *found.reasons]
            always = chain.permission.settle(facts).option if found.word == "ask" else ""
            told = f"{found.word}: {'; '.join(why)}{f' (always: {always})' if always else ''}"
            if not first or (told != first and found.word != "allow"):
                yield name, told.replace(self._root, "ROOT")
            first = first or told


POLICY = """
[tools.shell]
blocked_groups = ["package_install", "persistence"]
confirm_patterns = ["git push *"]
[tools.file]
deny_read = ["*.key"]
[tools.policy]
enabled = true
default_effect = "allow"
rules = [
    { effect = "deny", tool = "bash", paths = ["conf/*", "/etc/*"] },
    { effect = "allow", tool = "bash", args_match = "^git " },
    { effect = "deny", tool = "bash", args_match = "curl|wget" },
]
"""


def facts(text: str, sessions: Sessions) -> Iterator[str]:
    """Yield the facts about a command line that are not empty, in lines."""
    line = CommandFacts(text, expand, HAS.__contains__)
    yield from told(sessions.found(text), "  ")
    yield from told(facts_of_line(line), "  ")
    for step in line.surveyed_steps:
        depth = "    " * (1 + len(step.parents))
        yield f"{depth}{shown(step.command)}"
        yield from told(facts_of_command(step.command, step.folders), f"{depth}  ")


def told(found: Iterable[tuple[str, object]], margin: str) -> Iterator[str]:
    for name, value in found:
        if value is True:
            yield f"{margin}{name}"
        elif value not in (False, None, "", (), [], {}, frozenset()):
            yield f"{margin}{name}: {shown(value)}"


def read() -> dict[str, list[str]]:
    """Return the facts that FILE has, by command lines."""
    found: dict[str, list[str]] = {}
    for line in FILE.read_text(encoding="utf-8").splitlines():
        if line.startswith("  "):
            [*found.values()][-1].append(line)
        else:
            found[line.replace(LINE_END, "\n")] = []
    return found


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        sessions = Sessions(Path(folder) / "project")
        lines = [line for text in read() for line in (text.replace("\n", LINE_END), *facts(text, sessions))]
    FILE.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
