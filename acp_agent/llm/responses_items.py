"""One output item of a Responses stream, as the server tells it: in pieces, and up to three times whole."""

import json
from dataclasses import dataclass, field
from typing import Final

from acp_agent.core.messages import ModelText, ModelThought
from acp_agent.core.types import Json, JsonObject
from acp_agent.llm.json_wire import as_count, as_list, as_object, as_text

TEXT_DELTAS: Final = {
    "response.output_text.delta": ("message", "content_index"),
    "response.refusal.delta": ("message", "content_index"),
    "response.reasoning_summary_text.delta": ("reasoning", "summary_index"),
    "response.reasoning_text.delta": ("reasoning", "content_index"),
}
"""Event of a piece of text -> the kind of item it belongs to, and the key that numbers the part in it."""


@dataclass(slots=True)
class Item:
    """An output item in the making.

    place         where it stands in the answer
    told          the item as the server told it last
    begun, done   whether it was told at its beginning, at its end
    said          what the user was shown of it
    part          which of its parts the last piece of that was
    arguments     of a call, in pieces
    """

    kind: str
    place: int
    told: JsonObject = field(default_factory=dict[str, Json])
    begun: bool = False
    done: bool = False
    said: list[str] = field(default_factory=list[str])
    part: tuple[str, int] | None = None
    arguments: list[str] = field(default_factory=list[str])

    def tell(self, item: JsonObject) -> None:
        """Take the item as told now."""
        self.told, self.kind = item, as_text(item.get("type")) or self.kind

    def grow(self, event_type: str, event: JsonObject) -> list[ModelText | ModelThought]:
        """Take a piece of its text; what the user should see of it."""
        piece, part = as_text(event.get("delta")), (event_type, as_count(event.get(TEXT_DELTAS[event_type][1])))
        if not piece:
            return []
        between = self._between if self.said and self.part != part else ""
        self.part = part
        return self._show(between + piece)

    def show_rest(self) -> list[ModelText | ModelThought]:
        """What the whole item says beyond what was shown of it."""
        whole, said = self._whole_text, "".join(self.said)
        return self._show(whole[len(said) :]) if whole.startswith(said) else []

    @property
    def text(self) -> str:
        """What it says, as far as known. A thought is what was shown: nobody else reads it."""
        said = "".join(self.said)
        return said or self._whole_text if self.kind == "reasoning" else self._whole_text or said

    @property
    def raw_arguments(self) -> str:
        """A call's arguments, as JSON text when all is well."""
        arguments = self.told.get("arguments")
        if isinstance(arguments, dict):
            return json.dumps(arguments)  # where a string belongs
        return as_text(arguments) or "".join(self.arguments)

    @property
    def refuses(self) -> bool:
        """Whether it is the model's word that it will not answer."""
        told = any(as_object(part).get("type") == "refusal" for part in as_list(self.told.get("content")))
        streamed = self.part is not None and self.part[0] == "response.refusal.delta"
        return self.kind == "message" and (told or streamed)

    @property
    def self_contained(self) -> bool:
        """Whether reasoning can be taken up again from it: the server keeps nothing, so all has to be in the item."""
        content = as_text(self.told.get("encrypted_content")) or as_list(self.told.get("content"))
        return self.done and bool(content)

    @property
    def _between(self) -> str:
        """What stands between two of its parts: summaries are paragraphs, a message's parts are one text."""
        return "\n\n" if self.kind == "reasoning" else ""

    @property
    def _whole_text(self) -> str:
        if self.kind not in ("message", "reasoning"):
            return ""
        parts = [*as_list(self.told.get("summary")), *as_list(self.told.get("content"))]
        texts = (as_text(part.get("text")) or as_text(part.get("refusal")) for part in map(as_object, parts))
        return self._between.join(filter(None, texts))

    def _show(self, text: str) -> list[ModelText | ModelThought]:
        if not text:
            return []
        self.said.append(text)
        return [ModelThought(text) if self.kind == "reasoning" else ModelText(text)]
