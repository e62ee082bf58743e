"""A planted secret in everything an agent handles, and a search for it in everything an agent leaves or says.

The planted secret is either *known* (the key of the model, in the agent's environment) or *shaped* (a vendor's token
that only its form gives away). What must hold it all the same is left out of the search, and is no more than this:

- diffs, which show the user what will be written to the user's own files
- `fs/*` requests, which are the work itself: the editor reads the very path and writes the very text
- what the model said itself, in the history it is sent: it is replayed as it was
"""

import base64
import json
import random
import shlex
import string
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.model_servers import ListeningModel, listening_model
from tests.fakes.editor import NOTHING, ScriptedEditor, editing, from_agent
from tests.fakes.model_script import says, uses
from tests.fakes.plain_editor import EVERYTHING

pytestmark = pytest.mark.anyio

SHOWS_TERMINALS = {"_meta": {"terminal_output": True}}
"""An editor that runs no commands and draws their output live."""
WINDOW = 12
FILLER = 64 * 1024
PYTHON = shlex.quote(sys.executable)

# Writes what leads up to the middle of the secret, waits until the reader has taken all of it, and writes the rest:
# the two halves are never read together.
PIECES = """\
import array, fcntl, os, sys, termios, time
def taken():
    left = array.array("i", [0])
    fcntl.ioctl(1, termios.FIONREAD, left)
    return left[0] == 0
def write(data):
    while data:
        data = data[os.write(1, data):]
    while not taken():
        time.sleep(0.001)
filler, pieces = int(sys.argv[1]), {pieces}
write(b"all is well here\\n" * (filler // 17) + b"said: ")
for piece in pieces:
    write(piece.encode())
write(b" so it ends\\n")
"""


def some_letters(number: int, seed: str) -> str:
    return "".join(random.Random(seed).choices(string.ascii_letters + string.digits, k=number))


SECRETS = {
    "known": "canary-obviously-fake-" + some_letters(32, "known"),
    "shaped": "ghp" + "_FAKE" + some_letters(32, "shaped"),
}


def plant(workspace: Path, secret: str) -> list[tuple[str, dict[str, Any]]]:
    """Files with the secret, and calls that bring it to light."""
    half = len(secret) - 16  # both halves hold enough to be noticed
    pieces = [secret[:half], secret[half:]]
    coloured = ["\x1b[32m", secret[:4], "\x1b[0m", secret[4:half], "\x1b[01;31m\x1b[K", secret[half:], "\x1b[m\x1b[K"]
    files = {
        "plain.txt": f"first line\nthe value is {secret} today\n",
        "settings.env": f"API_KEY={secret}\n",
        "nested.json": json.dumps({"config": json.dumps({"apiKey": secret})}),
        "edit.txt": "one\n",
        f"named-{secret}.txt": "harmless\n",
        "pieces.py": PIECES.replace("{pieces}", repr(pieces)),
        "crumbs.py": PIECES.replace("{pieces}", repr([secret[at : at + 7] for at in range(0, len(secret), 7)])),
        "coloured.py": PIECES.replace("{pieces}", repr(coloured)).replace("int(sys.argv[1])", "0"),
        "big.log": "nothing to see\n" * 4000 + f"token {secret}\n" + "nothing to see\n" * 4000,
    }
    for name, text in files.items():
        (workspace / name).write_text(text)
    return [
        ("bash", {"command": f"echo {secret}"}),
        ("bash", {"command": f"curl -sS -H 'Authorization: Bearer {secret}' http://127.0.0.1:9/; true"}),
        ("bash", {"command": f"echo 'Authorization: Bearer {secret}' && false"}),
        ("bash", {"command": "cat plain.txt settings.env nested.json >&2; exit 3"}),
        ("bash", {"command": f"{PYTHON} pieces.py 0"}),
        ("bash", {"command": f"{PYTHON} pieces.py {FILLER}"}),
        ("bash", {"command": f"{PYTHON} pieces.py {FILLER - 20}"}),
        ("bash", {"command": f"{PYTHON} crumbs.py 5000"}),
        ("bash", {"command": f"printf '\\033[31m{secret}\\033[0m\\n'"}),
        ("bash", {"command": f"{PYTHON} coloured.py"}),
        ("bash", {"command": "cat big.log"}),
        ("bash", {"command": f"cat missing-{secret}"}),
        ("bash", {"command": "printenv; true"}),
        ("read", {"path": "plain.txt"}),
        ("read", {"path": "plain.txt"}),
        ("read", {"path": f"named-{secret}.txt"}),
        ("read", {"path": f"missing-{secret}.txt"}),
        ("read", {"path": f"/outside/{secret}.txt"}),
        ("grep", {"pattern": "value|token"}),
        ("grep", {"pattern": secret}),
        ("find_path", {"pattern": "named-*"}),
        ("list_directory", {"path": "."}),
        ("edit", {"path": "edit.txt", "old_string": "one", "new_string": secret}),
        ("edit", {"path": "plain.txt", "old_string": f"never {secret}", "new_string": "x"}),
        ("write", {"path": "written.txt", "content": f"key = {secret}\n"}),
        ("write", {"path": f"fresh-{secret}.txt", "content": "harmless\n"}),
        ("create_directory", {"path": f"folder-{secret}"}),
        ("delete_path", {"path": f"gone-{secret}"}),
        ("fetch", {"url": f"http://127.0.0.1:9/?token={secret}"}),
        ("web_scrape", {"url": f"http://user:{secret}@127.0.0.1:9/", "select": "p"}),
        ("diagnostics", {"path": f"{secret}"}),
        (f"no_such_tool-{secret}", {"x": secret}),
        ("read", {"path": 7, "wrong": secret}),
    ]


def encoded(workspace: Path, secret: str) -> list[tuple[str, dict[str, Any]]]:
    """Calls whose output has a known value in other forms."""
    (workspace / "forms.py").write_text(
        "import base64, json, urllib.parse\n"
        "value = open('plain.txt').read().split()[-2]\n"
        "print(base64.b64encode(value.encode()).decode())\n"
        "print(base64.urlsafe_b64encode(value.encode()).decode().rstrip('='))\n"
        "print(urllib.parse.quote_plus(value), json.dumps(json.dumps(value)))\n"
    )
    return [("bash", {"command": f"{PYTHON} forms.py"})]


def windows(secret: str) -> set[str]:
    """All that must not be seen: any 12 characters in a row of the random end, plain or in base64."""
    tail = secret[-32:]
    code = base64.b64encode(secret.encode()).decode().rstrip("=")[-40:-1]
    return {text[at : at + WINDOW] for text in (tail, code) for at in range(len(text) - WINDOW + 1)}


def leaves(value: Any, where: str = "") -> Iterator[tuple[str, str]]:
    """Every string of a JSON value, keys included, with where it stands."""
    match value:
        case str():
            yield where, value
        case dict():
            for key, inner in value.items():
                yield f"{where}.<key>", key
                yield from leaves(inner, f"{where}.{key}")
        case list():
            for inner in value:
                yield from leaves(inner, f"{where}[]")


def without_the_work(message: dict[str, Any]) -> dict[str, Any]:
    """A frame without diffs, and without what the editor must know to do what the agent asks of its files."""
    if str(message.get("method", "")).startswith("fs/"):
        return {}

    def pruned(value: Any) -> Any:
        match value:
            case {"type": "diff"}:
                return None
            case dict():
                return {key: pruned(inner) for key, inner in value.items()}
            case list():
                return [pruned(inner) for inner in value]
            case _:
                return value

    return pruned(message)


class Search:
    """What was found, as `sink: place` with how often."""

    def __init__(self, secret: str) -> None:
        self._windows = windows(secret)
        self._seen: dict[str, bool] = {}  # requests repeat all that was said before
        self.found: dict[str, int] = {}
        self.told = ""  # the last request a model got

    def __str__(self) -> str:
        return "\n".join(f"{count:4} {place}" for place, count in sorted(self.found.items()))

    def text(self, place: str, text: str) -> None:
        if text not in self._seen:
            self._seen[text] = any(window in text for window in self._windows)
        if self._seen[text]:
            self.found[place] = self.found.get(place, 0) + 1

    def frames(self, editor: ScriptedEditor) -> None:
        for frame in filter(from_agent, editor.recording.frames):
            kind = frame.method + (f" {frame.update['sessionUpdate']}" if frame.update else "")
            for where, text in leaves(without_the_work(frame.message)):
                self.text(f"frame: {kind or 'answer'} {where}", text)

    def live_output(self, editor: ScriptedEditor) -> None:
        """Pieces of output that only make a secret together: what was sent of each call, joined."""
        joined: dict[str, str] = {}
        for update in editor.recording.updates("tool_call_update"):
            for where, text in leaves(update.get("_meta")):
                if where.endswith(("outputDelta", "terminal_output.data")):
                    joined[update["toolCallId"]] = joined.get(update["toolCallId"], "") + text
        for text in joined.values():
            self.text("frames: live output, joined", text)

    def requests(self, model: ListeningModel) -> None:
        self.told = json.dumps(model.requests[-1])
        for request in model.requests:
            others = [message for message in request["messages"] if message["role"] != "assistant"]
            for where, text in leaves(request | {"messages": others}):
                self.text(f"model: {where}", text)

    def files(self, editor: ScriptedEditor) -> None:
        """All below the user's home but what the test itself put there: audit, database, log, data, caches.

        `data/undo` is left out. It has copies of the user's own files, and their names, to restore them.
        """
        ours = {editor.home.config, editor.home.root / "script.json"}
        for path in editor.home.root.rglob("*"):
            if path.is_file() and path not in ours and editor.home.data / "undo" not in path.parents:
                self.text(f"file: {path.relative_to(editor.home.root)}", path.read_bytes().decode("latin-1"))
            self.text("file: a name", path.name)

    def stderr(self, editor: ScriptedEditor) -> None:
        self.text("stderr", editor.log)


CONFIG = '[logging]\nlevel = "debug"\nfile = "{log}"\n[agent]\nmax_tool_iterations = 100\n'


async def everything_said_and_left(folder: Path, capabilities: dict[str, Any], kind: str) -> Search:
    """A whole session with the secret everywhere, searched while the agent runs and when it is gone."""
    secret, search, work = SECRETS[kind], Search(SECRETS[kind]), folder / "work"
    work.mkdir()
    calls = plant(work, secret) + (encoded(work, secret) if kind == "known" else [])
    log = folder / "home" / "agent.log"
    async with listening_model(*calls) as model:
        config = model.options["config"] + CONFIG.format(log=log)
        environment = {"MODEL_KEY": secret if kind == "known" else "obviously-fake"}
        started = editing(folder, None, capabilities=capabilities, config=config, environment=environment)
        async with started as editor:
            session = await editor.open()
            assert await editor.say(session, "go") == "end_turn"
            await editor.send_line({"jsonrpc": "2.0", "method": f"unknown/{secret}", "params": {}})  # is logged
            assert await editor.say(session, "and then") == "end_turn"
            search.files(editor)  # with the database open and its -wal beside it
        assert len(model.requests) == len(calls) + 2, "not every call was made"
        assert len([call for call in editor.calls if call.final]) == len(calls)
        search.frames(editor)
        search.live_output(editor)
        search.requests(model)
        search.stderr(editor)
    search.files(editor)
    assert (work / "edit.txt").read_text() == f"{secret}\n", "a file gets the very text"
    assert (work / "written.txt").read_text() == f"key = {secret}\n"
    assert "unknown notification" in log.read_text()
    assert (editor.home.data / "audit.jsonl").stat().st_size > 0
    return search


def kept(home: Path) -> bool:
    """Whether the database, or its -wal, has the large output that was planted."""
    beside = {
        path.parent for path in home.rglob("*") if path.is_file() and path.read_bytes()[:15] == b"SQLite format 3"
    }
    return any(
        b"nothing to see" in path.read_bytes() for folder in beside for path in folder.iterdir() if path.is_file()
    )


@pytest.mark.parametrize(
    ("capabilities", "kind"),
    [(EVERYTHING, "known"), (NOTHING, "known"), (SHOWS_TERMINALS, "shaped")],
    ids=["the key of the model, a terminal", "the key of the model, no terminal", "a token, live output"],
)
async def test_a_planted_secret_is_in_nothing_the_agent_says_or_leaves(tmp_path, capabilities, kind):
    search = await everything_said_and_left(tmp_path, capabilities, kind)
    assert search.found == {}, str(search)
    assert "the value is [REDACTED" in search.told, "only the secret is missing"
    assert kept(tmp_path / "home"), "what was searched has the large output"


@pytest.mark.parametrize("kind", SECRETS)
async def test_a_secret_in_an_error_of_the_model_or_in_the_configuration_is_not_shown(tmp_path, kind):
    """As in OpenAI's own `Incorrect API key provided: sk-...`; the log is on stderr here."""
    secret, search = SECRETS[kind], Search(SECRETS[kind])
    error = {"kind": "auth", "message": f"401: Incorrect API key provided: {secret} (https://x/?key={secret})"}
    config = f'[logging]\nlevel = "debug"\n[acp]\nmode = "{secret}"\n[tools]\n"{secret}" = 1\n'
    environment = {"OPENAI_API_KEY": secret} if kind == "known" else {}
    async with editing(tmp_path, [{"error": error}], config=config, environment=environment) as editor:
        session = await editor.open()
        await editor.say(session, "go")
        await editor.send_line({"jsonrpc": "2.0", "method": f"unknown/{secret}", "params": {}})
        await editor.say(session, "/help")
    assert "Incorrect API key" in editor.told, "the error itself is shown"
    assert "configuration" in editor.told, "the problems themselves are shown"
    assert "unknown notification" in editor.log
    search.frames(editor)
    search.files(editor)
    search.stderr(editor)
    assert search.found == {}, str(search)


@pytest.mark.parametrize("kind", SECRETS)
async def test_a_secret_the_user_types_is_in_nothing_that_is_kept_of_the_session(tmp_path, kind):
    """Neither of what was told, nor of what the model knows; and the title is made of the user's words."""
    secret, search = SECRETS[kind], Search(SECRETS[kind])
    environment = {"OPENAI_API_KEY": secret} if kind == "known" else {}
    script = [uses(("write", {"path": "key.txt", "content": f"{secret}\n"})), says("Done."), says("Yes.")]
    async with editing(tmp_path, script, environment=environment) as editor:
        session = await editor.open()
        await editor.say(session, f"keep {secret} in a file")
        await editor.say(session, f"/run echo {secret}; cat key.txt")
        await editor.say(session, f"is {secret} in there?")
        search.files(editor)  # with the database open and its -wal beside it
        (known,) = (await editor.ask("session/list", {}))["sessions"]
        start = len(editor.recording.frames)
        await editor.ask("session/close", {"sessionId": session})
        await editor.ask("session/load", {"sessionId": session, "cwd": known["cwd"], "mcpServers": []})
        told = json.dumps([frame.message for frame in editor.recording.frames[start:]])
    search.files(editor)
    search.frames(editor)
    search.text("replayed", told)
    assert search.found == {}, str(search)
    assert known["title"].startswith("keep [REDACTED:")
    assert told.count("[REDACTED:") >= 6, "both prompts, the command and what it gave, and both sides of the edit"
    assert (editor.workspace / "key.txt").read_text() == f"{secret}\n"
