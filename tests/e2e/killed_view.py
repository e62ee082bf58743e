"""What a client had seen of a conversation when the agent died, beside what the next agent tells of it."""

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.editor import ScriptedEditor
from tests.fakes.fold import View

_STATE = {"available_commands_update", "config_option_update", "current_mode_update"}
"""Updates that tell how the session is now, and nothing of what was said."""
_FINAL = {"completed", "failed"}


@dataclass
class Seen(View):
    """A View with the updates it was drawn from."""

    updates: list[dict[str, Any]] = field(default_factory=list)

    def draw(self, update: dict[str, Any]) -> None:
        """Take an update, if it is one of the conversation."""
        if update["sessionUpdate"] not in _STATE:
            self.updates.append(update)
            self.take(update)

    def texts(self, role: str) -> list[str]:
        """The messages of one, in order."""
        return [_text(self.messages[key]) for key in self.entries if key[0] == role]

    def drawn_card(self, card: dict[str, Any]) -> dict[str, Any]:
        """What counts of a card."""
        return self._drawn(card)

    def counted(self, kind: str) -> Counter[str]:
        """How often each card was told of with this kind of update."""
        return Counter(each["toolCallId"] for each in self.updates if each["sessionUpdate"] == kind)


def drawn(updates: Iterable[dict[str, Any]], *, terminals: bool = True) -> Seen:
    """Updates as a client draws them."""
    seen = Seen(terminals)
    for update in updates:
        seen.draw(update)
    return seen


async def loaded(editor: ScriptedEditor, session: str, *, terminals: bool = True) -> Seen:
    """The session as the editor draws it when it loads it."""
    start = len(editor.recording.frames)
    await editor.ask("session/load", {"sessionId": session, "cwd": str(editor.workspace), "mcpServers": []})
    told = [frame for frame in editor.recording.frames[start:] if frame.params.get("sessionId") == session]
    return drawn((frame.update for frame in told if frame.update), terminals=terminals)


def lost(live: Seen, told: Seen, prompts: list[str]) -> list[str]:
    """What of `live` is not in `told`, or is there twice, or is otherwise than it was."""
    return [*_lost_words(live, told, prompts), *_lost_cards(live, told), *_lost_rest(live, told)]


def _lost_words(live: Seen, told: Seen, prompts: list[str]) -> Iterator[str]:
    kept = iter(told.texts("user"))
    if not all(prompt in kept for prompt in prompts):  # in order; one that was cancelled at once may be there, too
        yield f"prompts: {prompts} became {told.texts('user')}"
    order = [key for key in told.entries if key[0] != "user"]
    if order[: len(live.entries)] != live.entries:
        yield f"order: {live.entries} became {order}"
    for key, after in itertools.zip_longest(live.entries, live.entries[1:]):
        if key[0] == "card":
            continue
        before, now = _text(live.messages[key]), _text(told.messages.get(key, []))
        if not now.startswith(before) or (after is not None and now != before):
            yield f"{key}: {before!r} became {now!r}"
    if len(told.entries) != len(set(told.entries)):
        yield f"something was told twice: {told.entries}"


def _lost_cards(live: Seen, told: Seen) -> Iterator[str]:
    begun, ended = told.counted("tool_call"), told.counted("tool_call_update")
    if any(number != 1 for number in (*begun.values(), *ended.values())) or begun.keys() != ended.keys():
        yield f"cards that begin or end more than once, or never: {begun}, {ended}"
    for call, card in told.cards.items():
        if card["status"] not in _FINAL:
            yield f"{call} spins: {card['status']}"
        if any(item["type"] == "terminal" for item in card["content"]):
            yield f"{call} shows a terminal of the past"
    for call, card in live.cards.items():
        now = told.cards.get(call)
        if now is None:
            yield f"{call} is not told of"
        else:
            ended = card["status"] in _FINAL
            same = live.drawn_card(card) == told.drawn_card(now) if ended else _begun(card) == _begun(now)
            if not same:
                yield f"{call}: {json.dumps(card)[:600]} became {json.dumps(now)[:600]}"


def _begun(card: dict[str, Any]) -> list[Any]:
    return [card[name] for name in ("title", "name", "kind", "rawInput")]


def _lost_rest(live: Seen, told: Seen) -> Iterator[str]:
    plans = [each["entries"] for each in told.updates if each["sessionUpdate"] == "plan"]
    if live.plan is not None and live.plan not in plans:
        yield f"plan: {live.plan} became {plans}"
    if live.title is not None and told.title != live.title:
        yield f"title: {live.title!r} became {told.title!r}"
    if live.usage is not None and (told.usage is None or told.usage["used"] < live.usage["used"]):
        yield f"usage: {live.usage} became {told.usage}"


def _text(blocks: list[dict[str, Any]]) -> str:
    return "".join(block["text"] for block in blocks)
