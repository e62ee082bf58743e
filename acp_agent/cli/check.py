"""`acp-agent check`: whether a session in this folder would allow a path, a URL or a command, and why.

`acp-agent permissions` lists and revokes the user's stored "always" answers, those of all projects.

A check reads no content, changes no file of the project and opens no connection. It may look up a host. With `--stdin`
it reads one JSON object on each line and prints one verdict on each line.
"""

import argparse
import errno
import json
import os
import stat
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NoReturn, TextIO, cast

import anyio

from acp_agent.cli.config import loaded_for, warn
from acp_agent.config.files import PERMISSION_FILE, data_path
from acp_agent.config.load import Loaded
from acp_agent.config.section import one_line
from acp_agent.config.tool_settings import ScrapeSettings
from acp_agent.core.errors import AgentError, ConfigError, Refused, ToolError, ToolErrorCategory
from acp_agent.core.ports import Invocation, never_run
from acp_agent.core.types import (
    Access,
    Ask,
    Deny,
    Json,
    JsonObject,
    PathSubject,
    ToolCall,
    ToolKind,
    ToolSpec,
)
from acp_agent.core.untrusted import json_kind
from acp_agent.net.hosts import canonical_host
from acp_agent.text import visible
from acp_agent.workspace.beneath import check_text, errors_about, expansion_wanted
from acp_agent.workspace.roots import Place, Roots

if TYPE_CHECKING:
    from acp_agent.cli.check_command import CommandJudge
    from acp_agent.gates.gate import Gate
    from acp_agent.gates.grants import GrantStore
    from acp_agent.net.hosts import Resolve

_WRITE = ToolSpec("write", "", {}, ToolKind.EDIT, mutates=True)
_READ = ToolSpec("read", "", {}, ToolKind.READ, mutates=False)
_SPECIAL = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a link",
}


def path_gates(loaded: Loaded, files: Roots, shell: Roots, warn: Callable[[str], None]) -> "tuple[Gate, ...]":
    """Return the gates that judge paths: the policy, the verifiers, the protected paths. Raises ConfigError.

    files, shell   the directories of a session, for its file tools and for its commands
    """
    from acp_agent.config.load import options_at_start  # noqa: PLC0415
    from acp_agent.gates.grants import GrantStore  # noqa: PLC0415
    from acp_agent.session.toolset.gate_factory import GateContext, build_gates, permission_gate  # noqa: PLC0415

    context = GateContext(options_at_start(loaded), files, shell)
    gates = build_gates(loaded, context, permission_gate({}, context, GrantStore(os.devnull, warn)), warn)
    return tuple(gate for gate in gates.in_order if gate.name in ("policy", "verifiers", "protected"))


def path_verdict(path: object, roots: Roots, *, write: bool, gates: "Sequence[Gate]" = ()) -> JsonObject:
    """Judge one path as the tools `read` or `write` of a session with these roots would.

    path    any value; one that is no string is denied as type_mismatch
    gates   the result of `path_gates`

    Return path, verdict ("allow", "ask" or "deny"), resolved (null if it cannot be resolved), access ("read" or
    "write"), reason and category (null unless denied).
    """
    category: str | None = None
    asks: list[str] = []
    try:
        given = check_text(path)
        reason = _written(roots, given) if write else _read(roots, given)
        asks = _asked(given, gates, write=write)
    except (ToolError, Refused) as error:
        reason, category = str(error), error.failure.category.value
    word = "deny" if category else "ask" if asks else "allow"
    return {
        "path": path if isinstance(path, str | int) else None,
        "verdict": word,
        "resolved": _resolved(path, roots.cwd),
        "access": (Access.WRITE if write else Access.READ).value,
        "reason": "; ".join(asks) or reason,
        "category": category,
    }


def _asked(given: str, gates: "Sequence[Gate]", *, write: bool) -> list[str]:
    """Return the reasons of the gates that would ask the user. Raises ToolError if a gate refuses."""
    spec, access = (_WRITE, Access.WRITE) if write else (_READ, Access.READ)
    call = ToolCall("check", spec.name, {"path": given})
    if not gates:
        return []
    from acp_agent.gates.gate import CallFacts  # noqa: PLC0415 - the gates are slow to load

    facts = CallFacts(Invocation(call, spec, given, never_run, (PathSubject(given, access),)))
    reasons: list[str] = []
    for gate in gates:
        found = gate.judge(facts)
        if isinstance(found, Deny):
            raise ToolError(found.category, found.reason)
        if isinstance(found, Ask):
            reasons.append(found.reason)
    return reasons


def _read(roots: Roots, given: str) -> str:
    """Return a description of the file that would be read. Raises ToolError or Refused if it cannot be opened."""
    place = roots.place(given, Access.READ)
    _refuse_special(place)
    os.close(place.open_regular())
    return "a regular file"


def _written(roots: Roots, given: str) -> str:
    """Return a description of the file that would be written. Raises ToolError or Refused.

    The file must be readable as well, because a tool shows the text that it would replace.
    """
    place = roots.place(given, Access.WRITE)
    roots.place(given, Access.LIST)
    if place.relative == "." or given.endswith("/"):
        raise ToolError.permanent(f"{given}: names a directory, not a file")
    exists = _refuse_special(place)
    if exists:
        roots.place(given, Access.READ)
        os.close(place.open_regular(os.O_RDWR))
    missing = _missing_parents(place)
    if exists:
        return "replaces a regular file"
    return f"a new file, below {missing} new director{'y' if missing == 1 else 'ies'}" if missing else "a new file"


def _refuse_special(place: Place) -> bool:
    """Return True for a regular file, False if nothing exists. Raises ToolError otherwise, so no device is opened."""
    status = place.status()
    if status is None:
        return False
    special = None if stat.S_ISREG(status.st_mode) else _SPECIAL.get(stat.S_IFMT(status.st_mode), "something special")
    if special is not None:
        raise ToolError.permanent(f"{place.given}: is {special}, not a regular file")
    return True


def _missing_parents(place: Place) -> int:
    """Return how many directories are missing. Raises ToolError if the nearest existing one is not writable."""
    folder, missing = place.parent, 0
    with errors_about(place.given):
        while True:
            try:
                fd = place.root.open_directory(folder)
                break
            except FileNotFoundError:
                folder, missing = os.path.dirname(folder) or ".", missing + 1
        try:
            if not os.access(".", os.W_OK | os.X_OK, dir_fd=fd, effective_ids=True):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        finally:
            os.close(fd)
    return missing


def _resolved(path: object, cwd: str) -> str | None:
    """Return the resolved path even if it is not allowed: the user at the terminal may see every path."""
    try:
        given = check_text(path)
        if expansion_wanted(given) is not None:
            return None
        with Roots("/") as everything:
            return everything.resolve(os.path.join(cwd, given), Access.READ)
    except (ToolError, Refused):
        return None


Dns = Mapping[str, Sequence[Sequence[str]]]
"""DNS answers by host. The n-th look-up gets the n-th list, and the last list is repeated."""


async def url_verdict(url: Json, settings: ScrapeSettings, dns: Dns | None) -> JsonObject:
    """Judge one URL as the first request of a web tool would be judged, with at most one DNS look-up.

    url     any value; one that is no string is denied as type_mismatch
    dns     answers that replace the machine's resolver; hosts without an answer cannot be resolved

    Return url, verdict ("allow" or "deny"), reason, category (null if allowed), host ("" if there is none) and
    addresses (those that the tool would connect to, in order). Raises ConfigError for unusable settings.
    """
    answer: JsonObject = {"url": url, "verdict": "deny", "reason": "", "category": None, "host": "", "addresses": []}
    if not isinstance(url, str):
        reason = f"a URL is a string, not {type(url).__name__}"
        return {**answer, "url": None, "reason": reason, "category": ToolErrorCategory.TYPE_MISMATCH.value}
    from acp_agent.net.hosts import RequestBlocked, system_resolve  # noqa: PLC0415 - the web client is slow to load
    from acp_agent.net.web import GuardedWeb, WebLimits  # noqa: PLC0415

    web = GuardedWeb(
        WebLimits(settings.timeout, settings.max_body_bytes),
        allowed_domains=settings.allowed_domains,
        denied_domains=settings.denied_domains,
        ports=settings.ports,
        record=lambda _: None,  # nothing is sent except the look-up
        resolve=system_resolve if dns is None else _scripted(dns),
    )
    try:
        judged = await web.judge(url)
    except Refused as error:
        host = error.host if isinstance(error, RequestBlocked) else ""
        return {**answer, "reason": str(error), "category": error.failure.category.value, "host": host}
    target = judged.target.host
    return {
        **answer,
        "verdict": "allow",
        "reason": "a public host",
        "host": target,
        "addresses": list(judged.addresses),
    }


def _scripted(dns: Dns) -> "Resolve":
    """Return a resolver that knows these hosts only. Case and a final dot of names are ignored."""
    answers = {_name(host): list(lists) for host, lists in dns.items()}

    async def resolve(host: str, port: int) -> Sequence[str]:
        del port
        lists = answers.get(host) or [[]]
        return lists.pop(0) if len(lists) > 1 else lists[0]

    return resolve


def _name(host: str) -> str:
    try:
        return canonical_host(host)
    except ValueError:
        return host.lower()


_LONGEST = 10_000  # characters of one field, which may hold two paths and a word
TOLD = {"allow": "allowed", "deny": "denied", "ask": "asked", "blocked": "blocked"}
"""The verdicts in words for the user."""
EXIT_CODES = {"allow": 0, "deny": 1, "blocked": 1, "ask": 3}


def check(args: argparse.Namespace) -> int:
    """Print the verdict and return the exit code. No model is needed.

    Exit codes: 0 allowed or all lines judged, 1 denied or blocked, 2 wrong usage, 3 the user would be asked.

    Raises:
        ConfigError: No session could run with the configuration.

    """
    _refuse_misuse(args)
    cwd = os.getcwd()
    loaded = loaded_for(args, cwd)
    try:
        return _checked(args, cwd, loaded)
    except ConfigError as error:
        if str(error) in map(str, loaded.problems):  # it is on stderr already
            return 1
        raise


def _checked(args: argparse.Namespace, cwd: str, loaded: Loaded) -> int:
    if args.kind == "url" and not args.stdin:
        return _tell(anyio.run(url_verdict, args.target, loaded.settings.tools.scrape, _answers(args)))
    # This module loads most of the agent.
    from acp_agent.session.toolset.settings import FolderRules  # noqa: PLC0415

    rules = FolderRules(loaded, cwd)
    loaded = rules.loaded
    for fault in rules.faults:
        warn(fault)
    with rules.roots() as roots, rules.roots(for_shell=True) as shell:
        judge = SessionJudge(loaded, roots, shell, args.rules)
        if args.stdin:
            judge.print_lines(sys.stdin.buffer, sys.stdout, only_commands=args.kind == "command")
            return 0
        if args.kind == "command":
            word, lines = judge.commands.page(args.target)
            print_lines(lines)
            return EXIT_CODES[word]
        return _tell(path_verdict(args.target, roots, write=args.write, gates=judge.gates))


def _refuse_misuse(args: argparse.Namespace) -> None:
    if args.stdin:
        if args.target is not None or args.write or args.resolve:
            args.misused("argument --stdin: the lines say what to check, so no other argument may follow")
    elif args.target is None:
        args.misused(f"expected {args.kind or 'path or url or command'} and what to check, or --stdin")
    elif args.kind != "path" and args.write:
        args.misused("argument --write: expected with path only")
    elif args.kind != "url" and args.resolve:
        args.misused("argument --resolve: expected with url only")
    if args.rules is not None and args.kind not in ("command", None):
        args.misused("argument --rules: expected with command only")


def _answers(args: argparse.Namespace) -> dict[str, list[list[str]]] | None:
    """Return the answers of DNS look-ups that the command line sets, in order."""
    if args.resolve is None:
        return None
    answers: dict[str, list[list[str]]] = {}
    for host, addresses in args.resolve:
        answers.setdefault(host, []).append(addresses)
    return answers


def _tell(found: JsonObject) -> int:
    """Print a verdict for the user and return its exit code."""
    word = str(found["verdict"])
    subject = found.get("path", found.get("url"))
    lines = [(TOLD[word], f"{found.get('access', 'get')} {subject}")]
    for name in ("resolved", "addresses", "reason", "category"):
        value = found.get(name)
        if value:
            lines.append((name, ", ".join(map(str, value)) if isinstance(value, list) else str(value)))
    print_lines(lines)
    return EXIT_CODES[word]


def print_lines(lines: Iterable[tuple[str, str]]) -> None:
    """Print labels and texts, one pair a line."""
    for name, text in lines:
        print(f"{name:<10} {one_line(text, longest=_LONGEST)}")


class SessionJudge:
    """Judges what the tools of a session would be asked to do.

    files, shell   the directories of the session, for its file tools and for its commands
    rules_file     the rules for commands, instead of the configured ones
    """

    def __init__(self, loaded: Loaded, files: Roots, shell: Roots, rules_file: str | None = None) -> None:
        self._loaded = loaded
        self._files = files
        self._shell = shell
        self._rules_file = rules_file

    @cached_property
    def commands(self) -> "CommandJudge":
        from acp_agent.cli.check_command import CommandJudge, rules_in  # noqa: PLC0415 - the gates are slow to load

        rules = None if self._rules_file is None else rules_in(os.path.expanduser(self._rules_file))
        return CommandJudge(self._loaded, self._files, self._shell, warn, rules)

    @cached_property
    def gates(self) -> "tuple[Gate, ...]":
        return path_gates(self._loaded, self._files, self._shell, warn)

    def print_lines(self, lines: Iterable[bytes], out: TextIO, *, only_commands: bool = False) -> None:
        """Print a verdict for each line as it arrives, and flush it.

        An invalid line gets a verdict with the reason: "error" if the line is about a command, else "deny".

        `path_verdict` judges {"path": ..., "write": true}, `url_verdict` judges
        {"url": ..., "dns": {HOST: [[IP, ...], ...]}}, and `CommandJudge` judges
        {"command": ..., "rules": [{"pattern": ..., "action": ...}, ...]}, with the configured rules if the line has
        none. Other members are ignored.

        only_commands   every line counts as one about a command
        """
        for number, line in enumerate(lines, start=1):
            about_command = only_commands
            try:
                asked = _object(line)
                about_command = about_command or "command" in asked
                found = self._verdict(asked)
            except ToolError as error:
                found: JsonObject = {"verdict": "deny", "reason": f"line {number}: {error}"}
                found |= {"verdict": "error"} if about_command else {"category": error.failure.category.value}
            print(json.dumps(found), file=out, flush=True)

    def _verdict(self, asked: JsonObject) -> JsonObject:
        if sum(kind in asked for kind in ("path", "url", "command")) != 1:
            raise ToolError.invalid('expected either "path" or "url", or "command"')
        if "command" in asked:
            text, rules = asked["command"], asked.get("rules")
            if not isinstance(text, str):
                raise _mismatch(f'"command": expected a string, got {json_kind(text)}')
            try:
                return self.commands.verdict(text, None if rules is None else self.commands.rules_of(rules)).to_json()
            except ConfigError as error:
                raise ToolError.invalid(str(error)) from None
        if "path" in asked:
            write = asked.get("write", False)
            if not isinstance(write, bool):
                raise _mismatch(f'"write": expected true or false, got {json_kind(write)}')
            return path_verdict(asked["path"], self._files, write=write, gates=self.gates)
        # One event loop for each line, so that Ctrl-C ends the wait for the next line.
        return anyio.run(url_verdict, asked["url"], self._loaded.settings.tools.scrape, _dns(asked.get("dns")))


def _object(line: bytes) -> JsonObject:
    try:
        value: Json = json.loads(line.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ToolError.invalid(f"expected JSON in UTF-8: {error}") from None
    if not isinstance(value, dict):
        raise _mismatch(f"expected a JSON object, got {json_kind(value)}")
    return value


def _dns(value: Json) -> dict[str, list[list[str]]] | None:
    """Return the scripted DNS answers, or None for real look-ups. Raises ToolError."""
    if value is None:
        return None
    lookups = list(value.values()) if isinstance(value, dict) else [None]
    answers = [answer for lookup in lookups for answer in (lookup if isinstance(lookup, list) else [None])]
    addresses = [address for answer in answers for address in (answer if isinstance(answer, list) else [None])]
    if not all(isinstance(address, str) for address in addresses):
        raise _mismatch('"dns": expected an object of host names, each with a list of lists of IP addresses')
    return cast("dict[str, list[list[str]]]", value)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _mismatch(message: str) -> ToolError:
    return ToolError(ToolErrorCategory.TYPE_MISMATCH, message)


def stored_answers(loaded: Loaded, warn: Callable[[str], None]) -> "GrantStore":
    """Return the user's "always" answers."""
    from acp_agent.gates.grants import GrantStore  # noqa: PLC0415 - other checks need none

    chosen = loaded.settings.acp.permission_file
    return GrantStore(chosen or os.path.join(data_path(os.environ), PERMISSION_FILE), warn)


def permissions(args: argparse.Namespace) -> int:
    """List the answers with their numbers, or revoke one. Raises AgentError."""
    store = stored_answers(loaded_for(args), warn)
    answers = store.listed()
    if args.action == "list":
        for number, answer in enumerate(answers, start=1):
            print(f"{number:>3}  {visible(answer.told)}")
        if not answers:
            print('No "always" answer is stored', file=sys.stderr)
        return 0
    number: int = args.number
    if number > len(answers):
        raise AgentError(f"there is no answer {number}: `acp-agent permissions list` shows {len(answers)}")
    answer = answers[number - 1]
    if not anyio.run(store.revoke, answer):
        return 1
    print(f"Revoked: {visible(answer.told)}")
    return 0
