"""`acp-agent check path` and `check url`: whether the tools of a session would allow a path or a URL, and why.

No content is read, nothing is changed, and no connection is opened.
"""

import errno
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from acp_agent.config.tool_settings import ScrapeSettings
from acp_agent.core.errors import Refused, ToolError, ToolErrorCategory
from acp_agent.core.ports import Invocation, ToolContext
from acp_agent.core.types import (
    Access,
    Ask,
    Deny,
    JsonObject,
    PathSubject,
    ToolCall,
    ToolKind,
    ToolResult,
    ToolSpec,
)
from acp_agent.net.hosts import canonical_host
from acp_agent.workspace.paths import check_text, errors_about, expansion_wanted
from acp_agent.workspace.roots import Place, Roots

if TYPE_CHECKING:
    from acp_agent.config.load import Loaded
    from acp_agent.gates.gate import Gate
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


def path_gates(loaded: "Loaded", files: Roots, shell: Roots, warn: Callable[[str], None]) -> "tuple[Gate, ...]":
    """Return the gates that judge paths: the policy, the verifiers, the protected paths. Raises ConfigError.

    files, shell   the directories of a session, for its file tools and for its commands
    """
    from acp_agent.config.load import conduct_at_start  # noqa: PLC0415
    from acp_agent.gates.grants import GrantStore  # noqa: PLC0415
    from acp_agent.session.toolset.gate_factory import GateContext, build_gates, permission_gate  # noqa: PLC0415

    context = GateContext(conduct_at_start(loaded), files.resolve, shell)
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
    from acp_agent.gates.facts import CallFacts  # noqa: PLC0415 - the gates are slow to load

    facts = CallFacts(Invocation(call, spec, given, _never, (PathSubject(given, access),)))
    reasons: list[str] = []
    for gate in gates:
        found = gate.judge(facts)
        if isinstance(found, Deny):
            raise ToolError(found.category, found.reason)
        if isinstance(found, Ask):
            reasons.append(found.reason)
    return reasons


async def _never(_: ToolContext) -> ToolResult:
    raise AssertionError("a path was to be judged, not touched")


def _read(roots: Roots, given: str) -> str:
    """Return a description of the file that would be read. Raises ToolError or Refused as opening it does."""
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
        raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, f"{given}: names a directory, not a file")
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
        raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, f"{place.given}: is {special}, not a regular file")
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


async def url_verdict(url: object, settings: ScrapeSettings, dns: Dns | None) -> JsonObject:
    """Judge one URL as the first request of a web tool would be judged, with at most one DNS look-up.

    url     any value; one that is no string is denied as type_mismatch
    dns     answers that replace the machine's resolver; hosts without an answer cannot be resolved

    Return url, verdict ("allow" or "deny"), reason, category (null if allowed), host ("" if there is none) and
    addresses (those that the tool would connect to, in order). Raises ConfigError for unusable settings.
    """
    if not isinstance(url, str):
        reason = f"a URL is a string, not {type(url).__name__}"
        return _url_answer(None, reason, ToolErrorCategory.TYPE_MISMATCH, "")
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
        return _url_answer(url, str(error), error.failure.category, host)
    return _url_answer(url, "a public host", None, judged.target.host, judged.addresses)


def _url_answer(
    url: str | None, reason: str, category: ToolErrorCategory | None, host: str, addresses: Sequence[str] = ()
) -> JsonObject:
    return {
        "url": url,
        "verdict": "allow" if category is None else "deny",
        "reason": reason,
        "category": None if category is None else category.value,
        "host": host,
        "addresses": list(addresses),
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
