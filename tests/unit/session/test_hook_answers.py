"""What a hook's output says about a call."""

import json

from acp_agent.core.types import JsonObject
from acp_agent.session.toolset.hooks import HookAnswer, answer_in
from tests.rows import each_row


@each_row(
    "said, answer",
    [
        ({"decision": "block", "reason": "no"}, HookAnswer("deny", "no", "")),
        ({"decision": "block", "reason": 5, "stopReason": "stop"}, HookAnswer("deny", "stop", "")),
        ({"decision": "block", "reason": {"a": "b"}}, HookAnswer("deny", "", "")),
        ({"continue": False, "stopReason": "stop"}, HookAnswer("deny", "stop", "")),
        ({"hookSpecificOutput": {"permissionDecision": "ask", "additionalContext": 5}}, HookAnswer("ask", "", "")),
        ({"decision": "allow", "reason": "yes"}, HookAnswer()),
        ({"decision": ["deny"]}, HookAnswer()),
    ],
)
def test_only_words_count_whatever_else_a_hook_says(said: JsonObject, answer: HookAnswer) -> None:
    assert answer_in(json.dumps(said)) == answer
