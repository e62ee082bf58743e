"""An MCP server of a few lines that has the user open a page and says when that is done: run as a program."""

import json
import sys
from typing import Any

PAGE = {"mode": "url", "message": "Sign in first.", "url": "https://login.example/start", "elicitationId": "theirs"}
TOOL = {"name": "sign_in", "description": "Signs in.", "inputSchema": {"type": "object"}}


def say(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            info = {"name": "asking", "version": "1"}
            return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            return {"tools": [TOOL]}
        case _:
            return {}


def main() -> None:
    calls: dict[str, Any] = {}  # our question -> the call it belongs to
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") == "tools/call":
            calls[f"page-{len(calls)}"] = message["id"]
            say(id=[*calls][-1], method="elicitation/create", params=PAGE)
        elif "method" in message and "id" in message:
            say(id=message["id"], result=answer(message["method"], message.get("params") or {}))
        elif message.get("id") in calls:
            say(method="notifications/elicitation/complete", params={"elicitationId": PAGE["elicitationId"]})
            said = {"type": "text", "text": message["result"]["action"]}
            say(id=calls[message["id"]], result={"content": [said]})


if __name__ == "__main__":
    main()
