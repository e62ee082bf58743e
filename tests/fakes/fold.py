"""How a client builds its view of a conversation from `session/update`: a load must give the live one.

Set aside, because it is no history or cannot be the same:

- notices, and the messages they become for clients that do not know them; compactions; the feed of what the user
  sends (a live client draws it by itself: `sent`)
- what cards showed while they ran: progress replaces the content of a card, and so does its end
- when a card began (`_meta.claudeCode.startedAt`), and what belongs to terminals in `_meta`
- in cards of commands, for clients that draw terminals: whether the output is a terminal or text. Both stand for
  `rawOutput`, which counts; diffs and pictures beside it count, too
- how a message was cut into chunks
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

_ROLES = {"user_message_chunk": "user", "agent_message_chunk": "agent", "agent_thought_chunk": "thought"}
_LASTING_META = {"claudeCode": ("toolName", "elapsedMs"), "acp_agent": ("rawLines", "shownLines")}


@dataclass
class View:
    """What the user sees.

    draws_terminals   whether the client does
    entries           messages and cards in the order they began: (role, id) or ("card", id)
    messages          content blocks by (role, id), texts that follow each other joined
    cards             members by toolCallId
    """

    draws_terminals: bool = False
    entries: list[tuple[str, str]] = field(default_factory=list)
    messages: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=dict)
    cards: dict[str, dict[str, Any]] = field(default_factory=dict)
    plan: list[Any] | None = None
    usage: dict[str, Any] | None = None
    title: str | None = None

    def sent(self, blocks: Iterable[dict[str, Any]], message_id: str) -> None:
        """The user has sent this: drawn at once."""
        for block in blocks:
            self._add("user", message_id, block)

    def take(self, update: dict[str, Any]) -> None:
        """One `update` member. KeyError for an update of a card nobody has begun."""
        match update["sessionUpdate"]:
            case "user_message_chunk" | "agent_message_chunk" | "agent_thought_chunk" as kind:
                self._add(_ROLES[kind], update["messageId"], update["content"])
            case "tool_call":
                self.entries.append(("card", update["toolCallId"]))
                self.cards[update["toolCallId"]] = {"content": []}
                self._change(update)
            case "tool_call_update":
                self._change(update)
            case "plan":
                self.plan = update["entries"]
            case "usage_update":
                self.usage = update
            case "session_info_update":
                self.title = update.get("title", self.title)
            case "notice" | "compaction_update":
                pass
            case other:
                raise AssertionError(other)

    def _add(self, role: str, message_id: str, block: dict[str, Any]) -> None:
        key = (role, message_id)
        if key not in self.messages:
            self.entries.append(key)
            self.messages[key] = []
        blocks = self.messages[key]
        if role != "user" and blocks and blocks[-1]["type"] == block["type"] == "text":
            block = {**block, "text": blocks.pop()["text"] + block["text"]}
        blocks.append(block)

    def _change(self, update: dict[str, Any]) -> None:
        card = self.cards[update["toolCallId"]]
        for name in ("title", "name", "kind", "status", "content", "locations", "rawInput", "rawOutput"):
            if name in update:
                card[name] = update[name]
        meta = update.get("_meta", {})
        for name, lasting in _LASTING_META.items():
            card |= {member: meta[name][member] for member in lasting if member in meta.get(name, {})}

    def seen(self) -> str:
        """All of it, to be compared."""
        cards = {each: self._drawn(card) for each, card in self.cards.items()}
        messages = [[*key, blocks] for key, blocks in self.messages.items()]
        parts = (self.entries, messages, cards, self.plan, self.usage, self.title)
        return json.dumps(parts, indent=1, sort_keys=True)

    def _drawn(self, card: dict[str, Any]) -> dict[str, Any]:
        if not (self.draws_terminals and card["kind"] == "execute"):
            return card
        return {**card, "content": [item for item in card["content"] if not _is_output(item)]}


def _is_output(item: dict[str, Any]) -> bool:
    return item["type"] == "terminal" or (item["type"] == "content" and item["content"]["type"] == "text")
