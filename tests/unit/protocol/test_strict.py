"""`ACP_AGENT_STRICT=1`: what does not fit the SDK's models is told, and served all the same."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from acp_agent.protocol import strict
from acp_agent.protocol.jsonrpc import parse
from acp_agent.protocol.strict import StrictObserver
from tests.fakes.editor import AGENT, AGENT_CWD
from tests.fakes.home import Home

SECRET = "sk-obviously-fake"
NEW = {"cwd": "/", "mcpServers": []}


@pytest.fixture
def told(capfd):
    """The lines of the report so far."""

    def lines() -> list[str]:
        reported = capfd.readouterr().err.splitlines()
        assert all(line.startswith("strict: ") for line in reported)
        return [line.removeprefix("strict: ") for line in reported]

    return lines


def receive(observer: StrictObserver, **message: Any) -> None:
    observer.received(parse(json.dumps({"jsonrpc": "2.0", **message}).encode()))


def update(observer: StrictObserver, **members: Any) -> None:
    params = {"sessionId": "s", "update": members}
    observer.sent({"jsonrpc": "2.0", "method": "session/update", "params": params})


def test_what_fits_is_not_told(told):
    observer = StrictObserver()
    receive(observer, id=1, method="session/new", params=NEW)
    observer.sent({"jsonrpc": "2.0", "id": 1, "result": {"sessionId": "s", "_meta": {"any": ["thing"]}}})
    update(observer, sessionUpdate="agent_message_chunk", content={"type": "text", "text": "hi"}, messageId="m")
    observer.sent(
        {"jsonrpc": "2.0", "id": 9, "method": "terminal/create", "params": {"sessionId": "s", "command": "x"}}
    )
    receive(observer, id=9, result={"terminalId": "t"})
    receive(observer, id=2, method="_anybody/asks", params={"what": 1})
    observer.sent({"jsonrpc": "2.0", "id": 2, "error": {"code": -32601, "message": "Method not found"}})
    receive(observer, method="$/cancel_request", params={"requestId": 2})
    receive(observer, method="_any/thing")
    observer.summarize()
    assert told() == ["9 messages checked, 0 do not fit"]


@pytest.mark.parametrize(
    ("message", "report"),
    [
        ({"id": 1, "method": "session/new", "params": {"cwd": 7}}, "params.cwd: Input should be a valid string, got a"),
        ({"id": 1, "method": "session/new", "params": {"cwd": "/"}}, "params.mcpServers: Field required, got an obj"),
        (
            {"id": 1, "method": "session/new", "params": NEW | {SECRET: SECRET}},
            "params.(a name of 17 characters): unknown member",
        ),
        (
            {"id": 1, "method": "session/prompt", "params": {"sessionId": "s", "prompt": [{"type": SECRET}]}},
            "received request session/prompt: params.prompt[0]: unknown type, got an object",
        ),
        (
            {"id": 1, "method": "session/set_config_option", "params": {"sessionId": "s", "value": "v"}},
            "received request session/set_config_option: params.configId: Field required, got an object",
        ),
        (
            {
                "id": 1,
                "method": "initialize",
                "params": {"protocolVersion": 1, "clientCapabilities": {"terminal": "y"}},
            },
            "params.clientCapabilities.terminal: a string, which the SDK reads as true or false",
        ),
        ({"id": 1, "method": SECRET}, "received request (a name of 17 characters): this method is not in ACP"),
        (
            {"id": 1, "method": "session/teleport"},
            "session/teleport: this method is not in ACP, and extensions begin with _",
        ),
        ({"method": "session/whatever"}, "received notification session/whatever: this method is not in ACP"),
        ({"method": "session/cancel", "params": {}}, "received notification session/cancel: params.sessionId: Field"),
        ({"id": 77, "result": {}}, "received answer to no request"),
        ({"id": 8, "result": {"outcome": {"outcome": "selected"}}}, "result.outcome.selected.optionId: Field required"),
        ({"id": 8, "result": None}, "received answer to session/request_permission: result: Input should be an object"),
        (
            {"id": 8, "error": {"code": "x", "message": "m"}},
            "received answer to session/request_permission: error.code",
        ),
        ({"id": 1}, "received message: "),
    ],
)
def test_a_message_of_the_editor_that_does_not_fit_is_told_in_a_line(told, message, report):
    observer = StrictObserver()
    observer.sent({"jsonrpc": "2.0", "id": 8, "method": "session/request_permission", "params": QUESTION})
    receive(observer, **message)
    observer.summarize()
    (line, summary) = told()
    assert report in line
    assert SECRET not in line
    assert summary == "2 messages checked, 1 do not fit"


QUESTION = {
    "sessionId": "s",
    "toolCall": {"toolCallId": "c", "title": "t"},
    "options": [{"optionId": "o", "name": "n", "kind": "allow_once"}],
}


@pytest.mark.parametrize(
    ("message", "report"),
    [
        ({"id": 5, "result": {}}, "sent answer to session/new: result.sessionId: Field required, got an object"),
        (
            {"id": 5, "result": {"sessionId": "s", "extra": 1}},
            "sent answer to session/new: result.extra: unknown member",
        ),
        ({"id": 6, "result": {}}, "sent answer to no request"),
        (
            {"id": 2, "method": "fs/read_text_file", "params": {"sessionId": "s", "path": "/a", "line": -1}},
            "sent request fs/read_text_file: params.line: a number, which the SDK reads as null",
        ),
        (
            {"method": "session/update", "params": {"sessionId": "s", "update": {"sessionUpdate": "tool_call"}}},
            "sent notification session/update: params.update.tool_call.toolCallId: Field required",
        ),
        ({"id": 5, "error": {"message": "m"}}, "sent answer to session/new: error.code: Field required"),
    ],
)
def test_a_message_of_ours_that_does_not_fit_is_told_in_a_line(told, message, report):
    observer = StrictObserver()
    receive(observer, id=5, method="session/new", params=NEW)
    observer.sent({"jsonrpc": "2.0", **message})
    (line,) = told()
    assert line.startswith(report)


def test_many_problems_of_one_message_are_one_line(told):
    observer = StrictObserver()
    receive(observer, id=5, method="session/list", params=dict.fromkeys("abcdefghi", 1))
    (line,) = told()
    assert line.endswith("params.c: unknown member; and 6 more")


def test_what_the_sdk_lacks_is_not_told_and_still_lacks(told, monkeypatch):
    """When this fails after an update of the SDK, remove the gap from the tables."""

    kinds = strict._NEWER_UPDATES

    def gaps() -> None:
        observer = StrictObserver()
        for kind in kinds:
            update(observer, sessionUpdate=kind)
        update(observer, sessionUpdate="tool_call", toolCallId="c", title="t", name="bash")
        option = {"id": "o", "name": "n", "type": "select", "currentValue": "v", "options": [], "category": "_own"}
        update(observer, sessionUpdate="config_option_update", configOptions=[option])
        for name in ("notices", "compaction"):
            capabilities = {"session": {name: {}}}
            receive(
                observer, id=1, method="initialize", params={"protocolVersion": 1, "clientCapabilities": capabilities}
            )

    gaps()
    assert told() == []
    monkeypatch.setattr(strict, "_GAP", strict.re.compile("no gap"))
    monkeypatch.setattr(strict, "_NEWER_UPDATES", ())
    gaps()
    assert len(told()) == len(kinds) + 4


# ------------------------------------------------------------------------------ the real server

CONVERSATION = [
    {"id": 1, "method": "initialize", "params": {"protocolVersion": 1, "clientCapabilities": {"terminal": 1}}},
    {"id": 2, "method": "session/new", "params": {"cwd": 7, "mcpServers": []}},
    {"id": 3, "method": "session/new", "params": NEW},
    {"id": 4, "method": "session/teleport", "params": {}},
    {"method": "_any/thing", "params": {}},
]


def served(home: Home, **environment: str) -> tuple[list[Any], str]:
    """What the server answers and writes on stderr."""
    text = "".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in CONVERSATION)
    done = subprocess.run(
        AGENT, check=True, cwd=AGENT_CWD, env={**home.environment(), **environment}, input=text,
        capture_output=True, text=True, timeout=50,
    )  # fmt: skip
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    answers = {message["id"]: message for message in messages if "id" in message}
    del answers[3]["result"]["sessionId"]
    return [answers[number] for number in sorted(answers)], done.stderr


def test_the_server_reports_and_answers_as_without_the_check(tmp_path):
    home = Home(tmp_path / "home")
    answers, errors = served(home, ACP_AGENT_STRICT="0")
    assert "strict" not in errors
    checked, errors = served(home, ACP_AGENT_STRICT="1")
    assert checked == answers
    report = [line for line in errors.splitlines() if line.startswith("strict: ")]
    as_boolean = "a number, which the SDK reads as true or false"
    assert report[:-1] == [
        f"strict: received request initialize: params.clientCapabilities.terminal: {as_boolean}",
        "strict: received request session/new: params.cwd: Input should be a valid string, got a number",
        "strict: received request session/teleport: this method is not in ACP, and extensions begin with _",
    ]
    assert report[-1].endswith(" messages checked, 3 do not fit")


def test_the_models_are_loaded_only_if_they_are_asked_for(tmp_path):
    """Nor is anything else of the SDK."""
    code = (
        "import acp_agent.app, acp_agent.protocol.server, acp_agent.session.processes, sys; "
        "print([name for name in ('acp', 'acp_agent.protocol.strict') if name in sys.modules])"
    )
    environment = {**os.environ, **Home(tmp_path / "home").environment()}
    done = subprocess.run([sys.executable, "-c", code], cwd=AGENT_CWD, env=environment, capture_output=True, check=True)
    assert done.stdout == b"[]\n"
