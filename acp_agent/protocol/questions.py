"""Questions to the user: whether a call may run, forms, and pages to open.

They are asked through `session/request_permission` (https://agentclientprotocol.com/protocol/tool-calls) and
`elicitation/create`. A permission question shows all of what it asks about, or it is not asked: nobody can agree to
what they do not see.

One form or page of a session is shown at a time, and a few more wait. An answer counts only if it fits the form,
because editors may check nothing.
"""

import re
from collections.abc import Callable, Sequence
from datetime import date, datetime
from math import isfinite
from typing import Final
from urllib.parse import urlsplit
from uuid import uuid4

import anyio

from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.ports import Decision, ElicitationAction, ElicitationAnswer, Form, Question, Visit
from acp_agent.core.secrets import Redact
from acp_agent.core.types import Diff, Json, JsonObject
from acp_agent.net.hosts import browser_url
from acp_agent.output.markdown_images import defused
from acp_agent.protocol import wire
from acp_agent.protocol.client import Client, Drawing, EditorPaths
from acp_agent.protocol.jsonrpc import ClientTimeout, RpcError
from acp_agent.protocol.peer import Peer
from acp_agent.protocol.updates import DIFFS_LIMIT, bounded_diffs, bounded_input, chunk, fenced, text_content
from acp_agent.regex import LinearRegex
from acp_agent.text import CONTINUED, abbreviated, visible, wrap_line
from acp_agent.workspace.seen_files import diff_lines

LONGEST: Final = 100_000
"""Characters of one text in an answer, whatever the form allows."""
_MOST_WAITING: Final = 4
"""Questions that wait for the one that is shown. A further one is cancelled at once."""
_MOST_OPEN: Final = 16
"""The most opened pages that are remembered. A page is forgotten when its server says that the user is done with it."""
_MESSAGE_LIMIT: Final = 4000
"""Characters of a text that the user is shown."""
_MARGIN: Final = 1000
"""Characters at the end of a cut text that are not shown, since they may hold the first half of a secret."""
_LINE: Final = re.compile(r"[^\n]+")
_SHOWN: Final = frozenset(("title", "description"))
"""Members of a form's schema that only the user reads."""

_CANCELLED: Final = ElicitationAnswer(ElicitationAction.CANCEL, {})
_DECLINED: Final = ElicitationAnswer(ElicitationAction.DECLINE, {})


class EditorElicitor:
    """An Elicitor that asks the user of one session through the editor.

    redact    takes secrets out of what is shown
    timeout   seconds that a question is shown; 0 for as long as the asking task lives
    wanted    returns whether the turn still runs. If not, nothing is asked and no answer counts, because the task of
              an MCP server learns late that its turn was cancelled
    """

    def __init__(
        self,
        peer: Peer,
        session_id: str,
        client: Client,
        redact: Redact,
        timeout: float = 0,
        wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        self._peer = peer
        self._session_id = session_id
        self.forms = client.elicit_forms
        self.visits = client.elicit_urls
        self._redact = redact
        self._timeout = timeout
        self._wanted = wanted
        self._turn = anyio.Lock(fast_acquire=True)
        self._waiting = 0
        self._open: list[str] = []

    async def fill_in(self, form: Form) -> ElicitationAnswer:
        if not self.forms:
            return _CANCELLED
        schema = self._cleaned(form.schema)
        source = visible(form.source[:100])
        message = f"MCP server '{source}' asks: {form.message}" if source else form.message
        answer = await self._ask(message, form.call_id, {"mode": "form", "requestedSchema": schema})
        match answer:
            case {"action": "accept"} if (content := fitting(schema, answer.get("content"))) is not None:
                return ElicitationAnswer(ElicitationAction.ACCEPT, content)
            case _:
                return _declined(answer)

    async def visit(self, visit: Visit) -> ElicitationAnswer:
        try:
            url = browser_url(visit.url)
        except ValueError:
            return _CANCELLED
        if not self.visits:
            return _CANCELLED
        source = visible(visit.source[:100])
        who = f"MCP server '{source}' asks you to" if source else "Please"
        message = f"{who} open {url}\n{visit.message}"
        answer = await self._ask(message, visit.call_id, {"mode": "url", "elicitationId": visit.id, "url": url})
        if not isinstance(answer, dict) or answer.get("action") != "accept":
            return _declined(answer)
        self._open = [*self._open, visit.id][-_MOST_OPEN:]
        return ElicitationAnswer(ElicitationAction.ACCEPT, {})

    def visited(self, visit_id: str) -> None:
        if visit_id in self._open:
            self._open.remove(visit_id)
            self._peer.post_notification("elicitation/complete", {"elicitationId": visit_id})

    async def _ask(self, message: str, call_id: str, mode: JsonObject) -> Json:
        """Return the editor's answer; None without one."""
        params: JsonObject = {"sessionId": self._session_id, "message": self._words(message, _MESSAGE_LIMIT), **mode}
        if call_id:
            params["toolCallId"] = call_id
        if self._waiting == _MOST_WAITING:
            return None
        try:
            self._waiting += 1
            try:
                await self._turn.acquire()
            finally:
                self._waiting -= 1
            try:
                if not self._wanted():
                    return None
                answer = await self._peer.request(
                    "elicitation/create", params, timeout=self._timeout or None, withdraw=True, recall=True
                )
                return answer if self._wanted() else None
            finally:
                self._turn.release()
        except RpcError:
            return None

    # -------------------------------------------------------------------------------- what is shown

    def _words(self, text: str, longest: int) -> str:
        """Return text fit for the user: no secrets, no hidden characters, no images, at most `longest` characters."""
        clean, is_cut = self._redact(text[: 2 * longest]), len(text) > 2 * longest
        if is_cut:
            clean = clean[: max(0, len(clean) - _MARGIN)]
        shown = defused(_LINE.sub(lambda line: visible(line[0]), clean))
        return shown if len(shown) <= longest and not is_cut else f"{shown[:longest]}…"

    def _cleaned(self, schema: JsonObject) -> JsonObject:
        """Return a schema with its titles and descriptions made fit to read. Values stay: answers repeat them."""
        return {key: self._cleaned_member(key, value) for key, value in schema.items()}

    def _cleaned_member(self, key: str, value: Json) -> Json:
        match value:
            case str() if key in _SHOWN:
                return self._words(value, _MESSAGE_LIMIT)
            case dict():
                return self._cleaned(value)
            case list():
                return [self._cleaned(each) if isinstance(each, dict) else each for each in value]
            case _:
                return value


def _declined(answer: Json) -> ElicitationAnswer:
    return _DECLINED if isinstance(answer, dict) and answer.get("action") == "decline" else _CANCELLED


# ------------------------------------------------------------------------------- answers


def fitting(schema: JsonObject, content: Json) -> JsonObject | None:
    """Return the values of a form's fields; None if one is missing or does not fit. Unknown keys are dropped.

    A field whose value is null counts as left out. So does an optional field whose empty text does not fit.
    """
    if not isinstance(content, dict | None):
        return None
    given, found = content or {}, JsonObject()
    required = schema.get("required")
    needed = required if isinstance(required, list) else []
    properties = schema.get("properties")
    for name, field in properties.items() if isinstance(properties, dict) else ():
        value = given.get(name)
        if value is not None and isinstance(field, dict) and (fit := _fit(field, value)) is not None:
            found[name] = fit
        elif name in needed or value not in (None, ""):
            return None
    return found


def _fit(field: JsonObject, value: Json) -> Json:
    """Return the value in the type of its field; None if it does not fit."""
    match field.get("type"), value:
        case "string", str():
            return value if _fits_text(field, value) else None
        case "boolean", bool():
            return value
        case "integer" | "number", bool():
            return None
        case "integer", float() if value.is_integer():
            return _fit(field, int(value))
        case ("integer", int()) | ("number", int()) if _between(field, "minimum", value, "maximum"):
            return value
        case "number", float() if isfinite(value) and _between(field, "minimum", value, "maximum"):
            return value
        case "array", list():
            return value if _fits_choices(field, value) else None
        case _:
            return None


def _fits_text(field: JsonObject, text: str) -> bool:
    choices = _choices(field, "enum", "oneOf")
    pattern = field.get("pattern")
    return (
        len(text) <= LONGEST
        and _between(field, "minLength", len(text), "maxLength")
        and (choices is None or text in choices)
        and (not isinstance(pattern, str) or _matches(pattern, text))
        and _has_format(field.get("format"), text)
    )


def _fits_choices(field: JsonObject, values: list[Json]) -> bool:
    items = field.get("items")
    choices = _choices(items, "enum", "anyOf") if isinstance(items, dict) else None
    distinct = {value for value in values if isinstance(value, str)}
    return (
        choices is not None
        and len(distinct) == len(values)
        and distinct <= choices
        and _between(field, "minItems", len(values), "maxItems")
    )


def _choices(node: JsonObject, plain: str, titled: str) -> set[str] | None:
    """Return the values of a choice; None if any value is allowed."""
    named, described = node.get(plain), node.get(titled)
    if isinstance(named, list):
        return {each for each in named if isinstance(each, str)}
    if isinstance(described, list):
        consts = (each.get("const") for each in described if isinstance(each, dict))
        return {each for each in consts if isinstance(each, str)}
    return None


def _between(field: JsonObject, low: str, value: float, high: str) -> bool:
    least, most = field.get(low), field.get(high)
    return (not isinstance(least, int | float) or value >= least) and (
        not isinstance(most, int | float) or value <= most
    )


def _matches(pattern: str, text: str) -> bool:
    """Return whether the pattern is found. A pattern that RE2 does not support is left to the server to check."""
    try:
        return LinearRegex(pattern).found_in(text)
    except ValueError:
        return True


def _has_format(name: Json, text: str) -> bool:
    """Return whether a text has the format of its field. Unknown formats are left to the server to check."""
    try:
        match name:
            case "email":
                return re.fullmatch(r"\S+@[^\s@]+", text) is not None
            case "uri":
                return bool(urlsplit(text).scheme) and not re.search(r"\s", text)
            case "date":
                date.fromisoformat(text)
            case "date-time":
                datetime.fromisoformat(text)
            case _:
                pass
    except ValueError:
        return False
    return True


MAX_TEXT = 512 * 1024
"""Characters of a question's text and reasons."""
_SAME_IN_MARKDOWN = re.compile(r"(?:[A-Za-z0-9 ./:=,@%+'\"|;()?{}^-]|(?<=\w)_(?=\w)|&(?=[& ]|$)){0,200}")
"""A short line that means the same as text and as Markdown. A title can show it unchanged."""
_CHANGE_LINES = 40
"""Lines of a change that is shown as text, a diff each."""
_CHANGE_WIDTH = 200
"""Characters of such a line, and of all that a title says of a change."""
_WIDTH = 160
_CONTINUED_SPELLED = "<U+21AA>"
"""Replaces a sign of continuation that the text itself contains."""


def question_content(paths: EditorPaths, question: Question, drawing: Drawing) -> list[Json]:
    """Return the ACP content of a question: diffs first, then one text that begins with the command.

    Raises ToolError (confirmation_required) if it is too large to be shown whole.
    """
    content: list[Json] = []
    for path, diff in bounded_diffs(paths, question.diffs, DIFFS_LIMIT):
        if diff is None:
            raise _too_large(f"the change of {path}", DIFFS_LIMIT)
        content.append(diff)
    where = f" in this project. {_REVOKE}" if question.option else ""
    always = [] if question.once else [f"“Always” covers {question.always}{where}"]
    parts = _parts(paths, question, drawing, always)
    if sum(map(len, (*question.reasons, *always, question.command, question.text))) > MAX_TEXT:
        raise _too_large("the call", MAX_TEXT)
    return [*content, text_content("\n\n".join(parts))] if parts else content


def told_before(paths: EditorPaths, question: Question, drawing: Drawing) -> str:
    """Return what the client's question leaves out, to be told in a thought before it; "" if it shows everything."""
    if drawing.question_texts:
        return ""
    always = [] if question.once or question.option else [f"“Always” covers {question.always}"]
    return "\n\n".join(_parts(paths, question, drawing, always))


def _parts(paths: EditorPaths, question: Question, drawing: Drawing, always: list[str]) -> list[str]:
    """Return the texts of a question: what it is about, why it is asked, what "always" covers, and the whole text."""
    diffs = () if drawing.question_diffs else question.diffs
    changes = [_verbatim(_change_text(paths.spell(diff.path), diff), drawing) for diff in diffs]
    reasons = question.reasons if len(question.reasons) < 2 else ["\n".join(f"- {line}" for line in question.reasons)]
    whole = [f"The whole text:\n\n{_verbatim(folded(question.text), drawing)}"] if question.text else []
    return [*_command(question, drawing), *changes, *reasons, *always, *whole]


def _command(question: Question, drawing: Drawing) -> list[str]:
    """Return the command as a part of the question, unless the title shows it to the letter."""
    if not question.command or (drawing.question_titles and _SAME_IN_MARKDOWN.fullmatch(question.command)):
        return []
    return [_verbatim(folded(question.command), drawing)]


def _verbatim(text: str, drawing: Drawing) -> str:
    """Return a text to be drawn letter for letter. Indented, it reads well as text and as Markdown."""
    return fenced(text) if drawing.markdown else "\n".join(f"    {line}" for line in text.rstrip().split("\n"))


def _changed_lines(diff: Diff) -> list[str]:
    """Return the lines of a diff, with signs; empty if there are too many to be compared."""
    if diff.old_text is None:
        return [f"+{line}" for line in diff.new_text.removesuffix("\n").split("\n")]
    return diff_lines(diff.old_text, diff.new_text)


def _change_text(path: str, diff: Diff) -> str:
    """Return a change as a short unified diff. What is left out is counted."""
    lines = _changed_lines(diff)
    head = f"{visible(path)} (a new file)" if diff.old_text is None else visible(path)
    if not lines:
        head += f": {len(diff.old_text or ''):,} characters become {len(diff.new_text):,}"
    left = len(lines) - _CHANGE_LINES
    more = [f"… {left:,} more lines of this change are not shown here"] if left > 0 else []
    return "\n".join([head, *(_cut(visible(line)) for line in lines[:_CHANGE_LINES]), *more])


def _change_in_title(diffs: Sequence[Diff]) -> str:
    """Return changes as the end of a title, for clients that show nothing else of a question; "" for none."""
    changed = [line for diff in diffs for line in _changed_lines(diff) if line[:1] in ("+", "-") and line[1:].strip()]
    return f": {defused(_cut(visible(' '.join(changed))))}" if changed else ""


def _cut(line: str) -> str:
    left = len(line) - _CHANGE_WIDTH
    return f"{line[:_CHANGE_WIDTH]}… ({left:,} more characters)" if left > 0 else line


def folded(text: str) -> str:
    """Return the text with long lines continued on the next, behind a sign. Nothing is left out.

    Editors that do not wrap lines would hide their ends.
    """
    lines = text.replace(CONTINUED.strip(), _CONTINUED_SPELLED).split("\n")
    return "\n".join(f"\n{CONTINUED}".join(wrap_line(line, _WIDTH)) for line in lines)


def _too_large(what: str, limit: int) -> ToolError:
    problem = f"{what} is too large for a question: the user can be shown at most {limit:,} characters"
    return ToolError(ToolErrorCategory.CONFIRMATION_REQUIRED, f"{problem}; do it in smaller steps")


_REVOKE: Final = "`/permissions` lists and revokes such answers."
_ONCE: Final = ("allow_once", "reject_once")
_LONGEST_NAME: Final = 100
"""Characters of what an option covers, in its name."""


def options(question: Question, *, like_options: bool = True) -> list[Json]:
    """Return the options of a question. The names of lasting options say what they cover and where.

    CodeCompanion and GoClaw choose by kind, so ids equal kinds. ACP has no kind for an answer that holds for one
    session. The option for the session therefore has the kind of the option for the project, and stands behind it.
    Without `like_options`, it replaces the option for the project.
    """
    offered = [
        ("allow_once", "allow_once", "Allow once"),
        ("allow_always", "allow_always", _always("allow", question.option, question.always)),
        ("allow_session", "allow_always", f"Allow {abbreviated(question.option, _LONGEST_NAME)} for this session"),
        ("reject_once", "reject_once", "Reject once"),
        ("reject_always", "reject_always", _always("reject", question.denial, question.always)),
    ]
    return [
        {"optionId": option, "kind": kind, "name": name}
        for option, kind, name in offered
        if (question.option or option != "allow_session") and not (question.once and option not in _ONCE)
        if like_options or not question.option or option != "allow_always"
    ]


def _always(verb: str, covered: str, otherwise: str) -> str:
    """Return the name of an option that lasts. `otherwise` is what it covers if the question is not about a call."""
    name = f"Always {verb} {abbreviated(covered or otherwise, _LONGEST_NAME)}"
    return f"{name} in this project" if covered else name


class EditorApprover:
    """An Approver that asks the user through the editor.

    timeout   seconds that a question stands; 0 for as long as the turn runs
    """

    def __init__(self, peer: Peer, session_id: str, drawing: Drawing, paths: EditorPaths, timeout: float = 0) -> None:
        self._peer = peer
        self._session_id = session_id
        self._drawing = drawing
        self._paths = paths
        self._timeout = timeout

    async def ask(self, question: Question) -> Decision:
        """Ask, and return the user's decision. Anything but an offered option or a cancellation is UNANSWERED.

        Raises ToolError if nobody answers in time, and if the question is too large to be shown whole. A question is
        withdrawn after its time, and if its call is cancelled. An answer that comes later is dropped.
        """
        call = self._tool_call(question)
        if before := told_before(self._paths, question, self._drawing):
            update = chunk("agent_thought_chunk", f"\n\n{before}\n\n", str(uuid4()))  # clients join thoughts
            await self._peer.notify("session/update", {"sessionId": self._session_id, "update": update})
        choices = options(question, like_options=self._drawing.like_options)
        params: JsonObject = {"sessionId": self._session_id, "toolCall": call, "options": choices}
        try:
            timeout = self._timeout or None
            answer = await self._peer.request(
                "session/request_permission", params, timeout=timeout, withdraw=True, recall=True
            )
            decision = wire.decision(answer)
            offered = decision is not Decision.ALLOW_SESSION or bool(question.option)
            if question.once:
                offered = decision not in (Decision.ALLOW_SESSION, Decision.ALLOW_ALWAYS, Decision.REJECT_ALWAYS)
            return decision if offered else Decision.UNANSWERED
        except ClientTimeout:
            message = f"the user did not answer within {self._timeout:g} s whether this may run, so it did not run"
            raise ToolError(ToolErrorCategory.CONFIRMATION_REQUIRED, message) from None
        except RpcError:
            return Decision.UNANSWERED

    def _tool_call(self, question: Question) -> JsonObject:
        """Return the update of the call's card. It has no status, so that the card stays in progress."""
        title_is_all = not (self._drawing.question_diffs or self._drawing.question_texts)
        update: JsonObject = {
            "toolCallId": question.call_id,
            "title": question.title + (_change_in_title(question.diffs) if title_is_all else ""),
            "kind": question.kind.value,
            "rawInput": bounded_input(question.raw_input),
            "content": question_content(self._paths, question, self._drawing),
        }
        if question.locations:
            update["locations"] = [{"path": self._paths.spell(path)} for path in question.locations]
        return update
