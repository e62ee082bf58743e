"""Where a model answers: what an adapter needs to know about one configured model."""

from dataclasses import dataclass, field

from acp_agent.core.types import Json, JsonObject


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One model behind one address, every default already filled in by the catalog.

    provider        the configured name, for messages and for tagging opaque parts
    base_url        without a slash at the end
    api_key         empty where the server wants none; never in a repr
    key_source      where the user would mend the key, such as "ANTHROPIC_API_KEY"
    timeout         seconds of silence between two pieces of an answer
    context_window  tokens, input and output together
    max_tokens      tokens of one answer; None leaves it to the server
    thinking        the model takes `thinking: {type: adaptive}` (Anthropic)
    extra_body      fields the user adds to every request body, such as temperature
    """

    provider: str
    model: str
    base_url: str
    context_window: int
    api_key: str = field(default="", repr=False)
    key_source: str = "its API key"
    timeout: float = 300.0
    max_tokens: int | None = None
    thinking: bool = False
    extra_body: JsonObject = field(default_factory=dict[str, Json])
