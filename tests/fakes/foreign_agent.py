"""Another agent that speaks ACP on its stdin and stdout: standard library only, and as bad as its argument says.

python -m tests.fakes.foreign_agent good
"""

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

SESSION = "foreign-1"


class Gone(Exception):
    """The client closed our stdin."""


class ForeignAgent:
    """An agent. Each method named after a behaviour is one turn of it; it returns the last words."""

    def __init__(self) -> None:
        self._ids = 0
        self.prompt = ""

    def send(self, **message: Any) -> None:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()

    def receive(self) -> dict[str, Any]:
        line = sys.stdin.readline()
        if not line:
            raise Gone
        return json.loads(line)

    def update(self, **update: Any) -> None:
        self.send(method="session/update", params={"sessionId": SESSION, "update": update})

    def say(self, text: str) -> None:
        self.update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": text})

    def ask(self, method: str, session: str = SESSION, **params: Any) -> dict[str, Any]:
        """Send a request and return the whole answer."""
        self._ids += 1
        self.send(id=self._ids, method=method, params={"sessionId": session, **params})
        while (message := self.receive()).get("id") != self._ids or "method" in message:
            pass
        return message

    def run(self, command: str, **more: Any) -> dict[str, Any]:
        """Run a command in a terminal of the client, and return what it printed and how it ended."""
        made = self.ask("terminal/create", command=command, **more)
        if "error" in made:
            return made
        terminal = made["result"]["terminalId"]
        self.ask("terminal/wait_for_exit", terminalId=terminal)
        shown = self.ask("terminal/output", terminalId=terminal)["result"]
        self.ask("terminal/release", terminalId=terminal)
        return shown

    def permission(self, title: str, **call: Any) -> str:
        """Ask for permission, and return the kind of the answer."""
        kinds = ("allow_always", "allow_once", "reject_once")
        options = [{"optionId": kind, "name": kind, "kind": kind} for kind in kinds]
        answer = self.ask(
            "session/request_permission", toolCall={"toolCallId": "c", "title": title, **call}, options=options
        )
        outcome = answer["result"]["outcome"]
        return outcome.get("optionId", outcome["outcome"])

    # ------------------------------------------------------------------------------------ good turns

    def good(self) -> str:
        self.say("I look.")
        self.update(sessionUpdate="tool_call", toolCallId="a", title="Read a.txt", status="in_progress")
        text = self.ask("fs/read_text_file", path=os.path.abspath("a.txt"))["result"]["content"]
        self.update(sessionUpdate="tool_call_update", toolCallId="a", status="completed")
        self.ask("fs/write_text_file", path=os.path.abspath("b.txt"), content=text.upper())
        shown = self.run("cat", args=["b.txt"], env=[{"name": "LANG", "value": "C"}], cwd=os.getcwd())
        return f"b.txt holds {shown['output'].strip()} ({shown['exitStatus']['exitCode']})"

    def lines(self) -> str:
        content = self.ask("fs/read_text_file", path=os.path.abspath("a.txt"), line=2, limit=1)["result"]["content"]
        missing = self.ask("fs/read_text_file", path=os.path.abspath("missing.txt"))["error"]["code"]
        return json.dumps([content, missing])

    def asks(self) -> str:
        return self.permission("Delete the world", kind="execute", rawInput={"command": "touch made"})

    def asks_for_danger(self) -> str:
        return self.permission("Tidy up", kind="execute", rawInput={"command": "rm -rf /"})

    def outside(self) -> str:
        answers = [
            self.ask("fs/read_text_file", path="/etc/shadow"),
            self.ask("fs/write_text_file", path="/etc/made", content="x"),
            self.ask("fs/read_text_file", path=os.path.abspath("../outside.txt")),
        ]
        return json.dumps(["error" in answer for answer in answers])

    def by_itself(self) -> str:
        """Change files without asking, as agents with tools of their own do."""
        done: list[str] = []
        for path in ("inside.txt", os.path.expanduser("~/stray.txt"), os.environ.get("STRAY", "stray.txt")):
            try:
                with open(path, "w", encoding="utf-8") as file:
                    file.write("x")
                done.append(os.path.basename(path))
            except OSError as error:
                done.append(type(error).__name__)
        return json.dumps([*done, os.environ.get("GIVEN", ""), os.environ.get("UNRELATED", "")])

    def prints(self) -> str:
        return self.run("echo early; read line < go; echo late")["output"]

    def repeats(self) -> str:
        return self.prompt

    def leaks(self) -> str:
        return "The token is ghp_" + "A1b2C3d4E5f6G7h8I9j0" + "K1l2M3n4O5p6Q7r8."

    # ----------------------------------------------------------------------------- turns that bring calls

    def calls(self) -> list[tuple[str, dict[str, Any]]]:
        """The calls that the test has left for it: tools and arguments of ours."""
        with open(".acp-agent/calls.json", encoding="utf-8") as file:
            return json.load(file)

    def requests(self) -> str:
        """Make each of its calls by the request that the protocol has for it."""
        for tool, arguments in self.calls():
            if tool == "bash":
                self.run(arguments["command"])
            else:
                self.ask(f"fs/{tool}_text_file", **arguments)
        return "done"

    def words(self) -> str:
        """The same with commands as words, in a folder and with variables."""
        for tool, arguments in self.calls():
            if tool == "bash":
                words = ["-c", arguments["command"]]
                self.run("bash", args=words, cwd=os.getcwd(), env=[{"name": "LANG", "value": "C"}])
            else:
                self.ask(f"fs/{tool}_text_file", **arguments)
        return "done"

    def questions(self) -> str:
        """Ask whether it may make each of its calls by itself."""
        kinds = {"bash": "execute", "read": "read", "write": "edit", "delete_path": "delete", "fetch": "fetch"}
        for tool, arguments in self.calls():
            places = [{"path": arguments["path"]}] if "path" in arguments else []
            self.permission("Tidy up", kind=kinds[tool], rawInput=arguments, locations=places)
        return "done"

    def vague_questions(self) -> str:
        """The same as agents ask that say least: in the title, or in arguments that have names of their own."""
        for tool, arguments in self.calls():
            if tool == "bash":
                self.permission(arguments["command"], kind="execute")
            else:
                given = {"file_path" if name == "path" else name: value for name, value in arguments.items()}
                self.permission("Tidy up", rawInput=given)
        return "done"

    # ------------------------------------------------------------------------------------- bad turns

    def dies(self) -> str:
        print("out of luck", file=sys.stderr)
        sys.exit(3)

    def hangs(self) -> str:
        note(subprocess.Popen(["sleep", "600"], start_new_session=True).pid)
        time.sleep(600)
        return ""

    def holds(self) -> str:
        self.run("echo $$ > pid; sleep 600")
        return ""

    def floods(self) -> str:
        for _ in range(10_000):
            self.say("x" * 1000)
        return "done"

    def babbles(self) -> str:
        for number in range(200):
            print(f"debug {number}", flush=True)
        return "done"

    def lies(self) -> str:
        """Use ids that are not its own."""
        self.send(id=999, result={"stopReason": "end_turn"})
        self.send(method="session/update", params={"sessionId": "another", "update": {"sessionUpdate": "x"}})
        self.send(method="session/update", params=[1])
        answers = [
            self.ask("fs/read_text_file", "another", path=os.path.abspath("a.txt")),
            self.ask("terminal/output", terminalId="none"),
            self.ask("session/prompt", prompt=[]),
            self.ask("fs/read_text_file", path=7),
        ]
        return json.dumps([answer["error"]["code"] for answer in answers])

    def many(self) -> str:
        """Ask for much at once."""
        for number in range(40):
            params = {"sessionId": SESSION, "path": os.path.abspath("a.txt")}
            self.send(id=1000 + number, method="fs/read_text_file", params=params)
        answers = [self.receive() for _ in range(40)]
        return str(sum("result" in answer for answer in answers) > 0 and len(answers) == 40)

    def serve(self, behaviour: str) -> None:
        while True:
            message = self.receive()
            match message.get("method"):
                case "initialize" if behaviour == "mute":
                    pass
                case "initialize":
                    version = 9 if behaviour == "future" else 1
                    methods = [{"id": "login", "name": "A login"}]
                    self.send(id=message["id"], result={"protocolVersion": version, "authMethods": methods})
                case "session/new" if behaviour == "locked":
                    self.send(id=message["id"], error={"code": -32000, "message": "Authentication required"})
                case "session/new" if behaviour == "vague":
                    self.send(id=message["id"], result={"session": 1})
                case "session/new":
                    self.send(id=message["id"], result={"sessionId": SESSION})
                case "session/prompt":
                    self.prompt = message["params"]["prompt"][0]["text"]
                    words: str = getattr(self, behaviour)()
                    self.update(sessionUpdate="tool_call", toolCallId="z", title="End", status="completed")
                    self.say(words)
                    self.send(id=message["id"], result={"stopReason": "end_turn"})
                case _:
                    pass


def note(pid: int) -> None:
    """Tell the test of a process, if it wants to know."""
    if path := os.environ.get("PIDS"):
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{pid}\n")


if __name__ == "__main__":
    note(os.getpid())
    with suppress(Gone, BrokenPipeError):
        ForeignAgent().serve(sys.argv[1])
