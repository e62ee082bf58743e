"""What an editor is shown, event by event."""

import json
from dataclasses import replace
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.cli.agent_process import Direction, RecordedFrame, Recording
from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.events import (
    CompactionChanged,
    CompactionStatus,
    Event,
    Notice,
    PlanChanged,
    PlanEntry,
    PlanPriority,
    PlanStatus,
    Severity,
    TextDelta,
    ThoughtDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    UsageChanged,
    UserMessage,
)
from acp_agent.core.messages import LinkPart, ResourcePart, TextPart
from acp_agent.core.types import Diff, ImagePart, JsonObject, Location, OutputStats, ToolKind, ToolResult
from acp_agent.protocol.client import Client, EditorPaths
from acp_agent.protocol.updates import (
    DIFF_LIMIT,
    DIFFS_LIMIT,
    IMAGES_LIMIT,
    INTERRUPTED,
    STRING_LIMIT,
    Updates,
    bounded_diff,
    bounded_input,
    session_info,
)
from tests.rows import each_row
from tests.wire import schema

CALL = str(uuid4())


def started(kind: ToolKind = ToolKind.EXECUTE, **more: object) -> ToolStarted:
    return ToolStarted(CALL, "bash", "ls", kind, {"command": "ls"}, **more)  # type: ignore[arg-type]


def updates(*events: Event, client: Client | None = None) -> list[JsonObject]:
    translator = Updates(client or Client(), "/w", EditorPaths("/w"))
    return [update for event in events for update in translator.translate(event)]


def fenced(text: str) -> JsonObject:
    return {"type": "content", "content": {"type": "text", "text": f"```\n{text}\n```"}}


def test_text_thought_and_usage() -> None:
    assert updates(TextDelta("a", "m1"), ThoughtDelta("b", "m2"), UsageChanged(10, 100)) == [
        {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "a"}, "messageId": "m1"},
        {"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": "b"}, "messageId": "m2"},
        {"sessionUpdate": "usage_update", "used": 10, "size": 100},
    ]


def test_a_call_starts_in_progress_with_everything_known() -> None:
    diff = Diff("/w/a", None, "new")
    [update] = updates(started(ToolKind.EDIT, diffs=(diff,), locations=(Location("/w/a", 3),)))
    meta = update.pop("_meta")
    assert update == {
        "sessionUpdate": "tool_call",
        "toolCallId": CALL,
        "title": "ls",
        "name": "bash",
        "kind": "edit",
        "status": "in_progress",
        "rawInput": {"command": "ls"},
        "content": [{"type": "diff", "path": "/w/a", "oldText": None, "newText": "new"}],
        "locations": [{"path": "/w/a", "line": 3}],
    }
    assert meta["claudeCode"]["toolName"] == "bash"  # type: ignore[index]


def test_a_terminal_of_the_editor_stays_in_the_card_and_the_text_goes_to_raw_output() -> None:
    envelope: JsonObject = {"stdout": "hi\n", "exit_code": 0}
    _, embedded, delta, final = updates(
        started(),
        ToolProgress(CALL, terminal_id="t1"),
        ToolProgress(CALL, output="hi\n"),
        ToolFinished(CALL, "bash", ToolResult("hi", envelope=envelope), 0.5),
        client=Client(terminal=True, display_terminals=True),
    )
    terminal = [{"type": "terminal", "terminalId": "t1"}]
    assert embedded["content"] == terminal
    assert (embedded["status"], delta["status"]) == ("in_progress", "in_progress")
    assert "content" not in delta
    assert (final["content"], final["status"]) == (terminal, "completed")
    assert final["rawOutput"] == {"output": "hi", "stdout": "hi\n", "exit_code": 0}
    assert final["_meta"]["claudeCode"]["elapsedMs"] == 500  # type: ignore[index,call-overload]


def test_a_local_command_streams_the_tail_of_its_output_as_text() -> None:
    _, first, second = updates(
        started(), ToolProgress(CALL, output="one\n"), ToolProgress(CALL, output="x" * 20_000 + "\nend\n")
    )
    assert first["content"] == [fenced("one")]
    shown = second["content"][0]["content"]["text"]  # type: ignore[index,call-overload]
    assert len(shown) < 9000
    assert shown.endswith("end\n```")


def test_what_a_sub_agent_says_is_drawn_as_markdown_while_it_works_as_its_report_is() -> None:
    _, said = updates(started(ToolKind.THINK), ToolProgress(CALL, output="It is in **a.py**."))
    assert said["content"] == [{"type": "content", "content": {"type": "text", "text": "It is in **a.py**."}}]


def test_an_editor_that_draws_agent_terminals_gets_one() -> None:
    begin, delta, final = updates(
        started(),
        ToolProgress(CALL, output="hi\n"),
        ToolFinished(CALL, "bash", ToolResult("hi", envelope={"exit_code": 2, "signal": None}), 0.1),
        client=Client(display_terminals=True),
    )
    terminal = [{"type": "terminal", "terminalId": CALL}]
    assert begin["content"] == terminal
    assert begin["_meta"]["terminal_info"] == {"terminal_id": CALL, "cwd": "/w"}  # type: ignore[index,call-overload]
    assert delta["_meta"] == {"terminal_output": {"terminal_id": CALL, "data": "hi\n"}}
    assert final["content"] == terminal
    assert final["status"] == "failed"
    assert final["_meta"]["terminal_exit"] == {"terminal_id": CALL, "exit_code": 2, "signal": None}  # type: ignore[index,call-overload]


@pytest.mark.parametrize(
    ("result", "status"),
    [
        (ToolResult("x", envelope={"exit_code": 0}), "completed"),
        (ToolResult("x", envelope={"exit_code": 1}), "failed"),
        (ToolResult("x", envelope={"exit_code": None}), "failed"),
        (ToolResult("x"), "completed"),
        (ToolResult.failed(ToolFailure(ToolErrorCategory.TIMEOUT, "late")), "failed"),
    ],
)
def test_the_card_says_how_it_ended(result: ToolResult, status: str) -> None:
    _, final = updates(started(), ToolFinished(CALL, "bash", result, 0))
    assert final["status"] == status


def test_the_user_reads_the_message_not_the_models_error_block() -> None:
    _, final = updates(started(ToolKind.OTHER), ToolFinished(CALL, "x", ToolResult.refused("no"), 0))
    assert final["content"] == [{"type": "content", "content": {"type": "text", "text": "no"}}]


def test_a_diff_comes_before_the_words() -> None:
    result = ToolResult("Edited a", diffs=(Diff("/w/a", "old", "new"),), locations=(Location("/w/a", 2),))
    _, final = updates(started(ToolKind.EDIT), ToolFinished(CALL, "edit", result, 0))
    assert [item["type"] for item in final["content"]] == ["diff", "content"]  # type: ignore[union-attr,index,call-overload]
    assert final["locations"] == [{"path": "/w/a", "line": 2}]


def test_output_full_of_backticks_cannot_leave_its_fence() -> None:
    _, final = updates(started(), ToolFinished(CALL, "bash", ToolResult("````\n# not a title"), 0))
    text = final["content"][0]["content"]["text"]  # type: ignore[index,call-overload]
    assert text.startswith("`````\n")
    assert text.endswith("\n`````")


def test_what_was_left_out_is_told_in_meta() -> None:
    result = ToolResult("x", stats=OutputStats(300, 20, 9000, 500))
    _, final = updates(started(), ToolFinished(CALL, "bash", result, 0))
    assert final["_meta"]["acp_agent"] == {"rawLines": 300, "shownLines": 20}  # type: ignore[index,call-overload]


def test_a_notice_reaches_clients_that_know_notices_and_those_that_do_not() -> None:
    notice = Notice(Severity.WARNING, "config broken")
    [plain] = updates(notice)
    [known] = updates(notice, client=Client(notices=True))
    assert plain["sessionUpdate"] == "agent_message_chunk"
    assert "config broken" in plain["content"]["text"]  # type: ignore[index,call-overload,operator]
    assert known == {"sessionUpdate": "notice", "severity": "warning", "title": "config broken"}


def text(words: str) -> JsonObject:
    return {"type": "content", "content": {"type": "text", "text": words}}


def image(data: str, mime_type: str = "image/png") -> JsonObject:
    return {"type": "content", "content": {"type": "image", "data": data, "mimeType": mime_type}}


def violations(update: JsonObject) -> list[str]:
    """What the protocol's schema has against a notification with this update."""
    message: JsonObject = {
        "jsonrpc": "2.0",
        "method": "session/update",
        "params": {"sessionId": "s1", "update": update},
    }
    recording = Recording()
    recording.add(RecordedFrame(Direction.FROM_AGENT, message, 0))
    return schema.violations(recording)


def test_pictures_follow_the_words_and_are_nowhere_else() -> None:
    pictures = (ImagePart("QUJD", "image/png"), ImagePart("REVG", "image/jpeg"))
    result = ToolResult("Image: a.png", images=pictures)
    _, final = updates(started(ToolKind.READ), ToolFinished(CALL, "read", result, 0))
    assert final["content"] == [fenced("Image: a.png"), image("QUJD"), image("REVG", "image/jpeg")]
    assert final["rawOutput"] == {"output": "Image: a.png"}
    assert violations(final) == []


def test_a_picture_too_large_for_one_line_is_named_and_the_others_are_sent() -> None:
    pictures = tuple(ImagePart("A" * size, "image/png") for size in (4, IMAGES_LIMIT - 8, 8, 4))
    _, final = updates(started(ToolKind.OTHER), ToolFinished(CALL, "x", ToolResult("", images=pictures), 0))
    large = text("A picture (image/png) is too large to be shown.")
    assert final["content"] == [image("AAAA"), image("A" * (IMAGES_LIMIT - 8)), large, image("AAAA")]
    assert violations(final) == []


def test_what_the_user_sent_is_one_chunk_a_part_and_empty_text_is_none() -> None:
    picture = ImagePart("QUJD", "image/png")
    parts = (TextPart("look"), TextPart(""), picture, LinkPart("file:///a", "a"), ResourcePart("file:///b", "x", "t/p"))
    sent = updates(UserMessage(parts, "u1"))
    assert [update["content"] for update in sent] == [
        {"type": "text", "text": "look"},
        {"type": "image", "data": "QUJD", "mimeType": "image/png"},
        {"type": "resource_link", "uri": "file:///a", "name": "a"},
        {"type": "resource", "resource": {"uri": "file:///b", "text": "x", "mimeType": "t/p"}},
    ]
    assert {(update["sessionUpdate"], update["messageId"]) for update in sent} == {("user_message_chunk", "u1")}
    assert [problem for update in sent for problem in violations(update)] == []


def test_nothing_is_said_with_no_words() -> None:
    assert updates(TextDelta("", "m"), ThoughtDelta("", "m"), started(), ToolProgress(CALL))[1:] == []


def test_an_id_no_card_was_begun_with_is_not_told_to_the_editor() -> None:
    end = ToolFinished(CALL, "bash", ToolResult("x"), 0)
    assert updates(ToolProgress(CALL, output="x"), ToolProgress(CALL, "t1"), end) == []
    assert len(updates(started(), end, ToolProgress(CALL, output="late"), end)) == 2


def test_a_plan_is_whole_and_a_cost_is_in_dollars_where_it_is_known() -> None:
    entries = (PlanEntry("a", PlanStatus.IN_PROGRESS), PlanEntry("b", priority=PlanPriority.LOW))
    plan, usage = updates(PlanChanged(entries), UsageChanged(1, 2, 0.25))
    assert plan == {
        "sessionUpdate": "plan",
        "entries": [
            {"content": "a", "priority": "medium", "status": "in_progress"},
            {"content": "b", "priority": "low", "status": "pending"},
        ],
    }
    assert usage == {
        "sessionUpdate": "usage_update",
        "used": 1,
        "size": 2,
        "cost": {"amount": 0.25, "currency": "USD"},
    }
    assert violations(plan) + violations(usage) == []


def test_a_compaction_is_told_to_clients_that_know_compactions_only() -> None:
    events = (
        CompactionChanged("k", CompactionStatus.IN_PROGRESS),
        CompactionChanged("k", CompactionStatus.COMPLETED, summary="They did ![](https://x/)"),
        CompactionChanged("k", CompactionStatus.FAILED, error="no answer"),
    )
    assert updates(*events) == []
    begun, done, failed = updates(*events, client=Client(compaction=True))
    assert begun == {"sessionUpdate": "compaction_update", "compactionId": "k", "status": "in_progress"}
    assert done["summary"] == [{"type": "text", "text": "They did ![]\\(https://x/)"}]
    assert (failed["status"], failed["error"]) == ("failed", "no answer")
    assert violations(begun) + violations(done) + violations(failed) == []


@pytest.mark.parametrize("severity", Severity)
def test_a_notice_told_as_a_message_has_an_id_of_its_own(severity: Severity) -> None:
    one, two = updates(Notice(severity, "a"), Notice(severity, "a"))
    assert one["messageId"] != two["messageId"]


def test_a_title_is_set_and_an_empty_one_clears_it() -> None:
    named, cleared = session_info("Birds", 1_767_225_600_123, "p:m"), session_info("", 0)
    assert named == {
        "sessionUpdate": "session_info_update",
        "title": "Birds",
        "updatedAt": "2026-01-01T00:00:00.123Z",
        "_meta": {"acp_agent": {"model": "p:m"}},
    }
    assert cleared["title"] is None
    assert "_meta" not in cleared
    assert violations(named) + violations(cleared) == []


def test_diffs_of_a_command_stand_beside_its_terminal_and_too_many_are_named() -> None:
    half = "x" * (200 * 1024)
    diffs = tuple(Diff(f"/w/{n}", None, half) for n in range(DIFFS_LIMIT // len(half) + 1))
    *_, final = updates(
        started(),
        ToolProgress(CALL, "t1"),
        ToolFinished(CALL, "bash", ToolResult("x", diffs=diffs), 0),
        client=Client(terminal=True),
    )
    first, *middle, last = final["content"]  # type: ignore[misc]
    assert first == {"type": "terminal", "terminalId": "t1"}
    assert {item["type"] for item in middle} == {"diff"}  # type: ignore[index,call-overload]
    assert last == text(f"The change of /w/{len(diffs) - 1} is too large to be shown.")


@pytest.mark.parametrize(("marker", "known"), [({}, True), (None, False), (True, False)])
def test_a_client_wants_compactions_when_its_marker_is_an_object(marker: JsonObject | bool | None, known: bool) -> None:
    client = Client.from_initialize({"clientCapabilities": {"session": {"compaction": marker}}})
    assert client.compaction is known


PICTURE = "![x](https://evil.example/p)"


@each_row(
    "event",
    [
        *(Notice(severity, PICTURE) for severity in Severity),
        PlanChanged((PlanEntry(PICTURE),)),
        replace(started(), title=PICTURE),
        CompactionChanged("k", CompactionStatus.FAILED, error=PICTURE),
    ],
)
def test_no_words_of_a_model_or_a_server_have_an_editor_fetch_a_picture(event: Event) -> None:
    for client in (Client(compaction=True), Client(notices=True, compaction=True)):
        shown = json.dumps(updates(event, client=client))
        assert r"![x]\\(https://evil.example/p)" in shown  # as JSON writes the backslash
        assert PICTURE not in shown
    assert PICTURE not in str(session_info(PICTURE, 0))


@pytest.mark.parametrize("envelope", [None, {}, {"exit_code": 1}, {"output": "the tool's own", "more": [1]}])
@pytest.mark.parametrize("shown", ["", "words"])
@each_row("failure", [None, *(ToolFailure(each, "why") for each in ToolErrorCategory)])
def test_the_raw_output_of_every_end_is_an_object_with_the_text(
    envelope: JsonObject | None, shown: str, failure: ToolFailure | None
) -> None:
    result = ToolResult(shown, envelope=envelope, failure=failure)
    _, final = updates(started(), ToolFinished(CALL, "bash", result, 0))
    assert final["rawOutput"] == {**(envelope or {}), "output": shown}


def test_the_raw_output_of_a_call_nobody_knows_the_end_of_is_an_object_too() -> None:
    translator = Updates(Client(), "/w", EditorPaths("/w"))
    translator.translate(started())
    [final] = translator.interrupted()
    assert final["rawOutput"] == {"output": INTERRUPTED}


@each_row(
    "path, spelled",
    [("a.txt", "/w/a.txt"), ("./sub/../a", "/w/a"), ("../b", "/b"), ("/w/a", "/w/a"), ("/x", "/x"), ("", "/w")],
)
def test_every_path_the_editor_gets_is_absolute(path: str, spelled: str) -> None:
    assert EditorPaths("/w").spell(path) == spelled


def test_a_small_change_of_a_big_file_is_shown_with_its_surroundings() -> None:
    lines = [f"line {number}\n" for number in range(100_000)]
    old = "".join(lines)
    shown = bounded_diff(Diff("/w/a", old, old.replace("line 500\n", "changed\n")))
    assert shown is not None
    assert shown.old_text is not None
    assert "line 500" in shown.old_text
    assert "changed" in shown.new_text
    assert len(shown.new_text.splitlines()) == 7


def test_a_change_of_everything_is_not_sent() -> None:
    assert bounded_diff(Diff("/w/a", None, "x" * (DIFF_LIMIT + 1))) is None


def test_an_ordinary_change_is_sent_whole() -> None:
    diff = Diff("/w/a", "a\nb\n", "a\nc\n")
    assert bounded_diff(diff) is diff


@given(st.lists(st.sampled_from("abc"), max_size=12), st.lists(st.sampled_from("abc"), max_size=12))
def test_the_region_is_cut_from_both_sides_alike(old: list[str], new: list[str]) -> None:
    """What is left out of the old text is left out of the new one: the same lines at both ends."""
    padding = "y" * DIFF_LIMIT
    before, after = "\n".join([padding, *"1234", *old, *"5678"]), "\n".join([padding, *"1234", *new, *"5678"])
    shown = bounded_diff(Diff("/w/a", before, after))
    assert shown is not None
    assert shown.old_text is not None
    assert before.replace(shown.old_text, "@", 1).replace("@", shown.new_text, 1) == after or before == after


def test_long_strings_of_the_input_lose_their_middle_and_short_ones_nothing() -> None:
    given_input = {"path": "a", "content": "x" * 50_000, "list": ["y" * 50_000, 1, None]}
    shown = bounded_input(given_input)
    assert shown["path"] == "a"
    assert isinstance(shown["content"], str)
    assert len(shown["content"]) < STRING_LIMIT + 100
    assert isinstance(shown["list"], list)
    assert len(str(shown["list"][0])) < STRING_LIMIT + 100
