"""An MCP server of a few lines: bare JSON on stdin and stdout, run as a program.

Its folder of state is the first argument. `definition.json` there, when it is there, says what its one tool is; a line
goes to `log` for each start, each handshake and each call. Tools: echo (says `text` again), die (ends the server), fail
(an error).
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

STATE = Path(sys.argv[1] if __name__ == "__main__" else "/nonexistent")
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def tools() -> list[dict[str, Any]]:
    file = STATE / "definition.json"
    echo = json.loads(file.read_text()) if file.exists() else {"description": "Says it again."}
    return [
        {"name": "echo", "inputSchema": TEXT, **echo},
        {"name": "die", "description": "Ends the server.", "inputSchema": {"type": "object"}},
        {"name": "fail", "description": "Fails.", "inputSchema": {"type": "object"}},
    ]


def note(line: str) -> None:
    with (STATE / "log").open("a") as log:
        log.write(f"{line}\n")


def called(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    note(f"call {name} {json.dumps(arguments)}")
    if name == "die":
        sys.exit(3)
    if name == "fail":
        return {"content": [{"type": "text", "text": "it broke"}], "isError": True}
    text = arguments["text"].replace("$TOKEN", os.environ.get("TOKEN", "none"))
    return {"content": [{"type": "text", "text": text}]}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            note(f"offered {json.dumps(params['capabilities'])}")
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "bare", "version": "1"},
            }
        case "tools/list":
            return {"tools": tools()}
        case "tools/call":
            return called(params["name"], params.get("arguments") or {})
        case _:
            return {}


def main() -> None:
    note(f"start {os.getpid()} {os.getcwd()}")
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            result = answer(message["method"], message.get("params") or {})
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)


if __name__ == "__main__":
    main()
