"""What an Ollama server says of one of its models: POST /api/show (ollama/ollama docs/api.md).

An older server leaves out `capabilities` and `model_info`; nothing is concluded from what is missing.
"""

import re
from dataclasses import dataclass
from typing import Final

from acp_agent.core.types import JsonObject
from acp_agent.llm.json_wire import as_count, as_list, as_object, as_text

_NUM_CTX: Final = re.compile(r"^num_ctx\s+\"?(\d{1,9})\"?\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ModelCard:
    """One model.

    context_length  tokens it was trained for; None where the server does not say
    num_ctx         tokens its Modelfile has it loaded with; None where that is left to the request
    remote          runs on ollama.com, always with its whole window
    thinking        takes `think`
    images, tools   takes pictures, makes calls; None where the server does not say
    """

    context_length: int | None = None
    num_ctx: int | None = None
    remote: bool = False
    thinking: bool = False
    images: bool | None = None
    tools: bool | None = None

    def window(self, usual: int) -> int:
        """Tokens the model is loaded with, where a model nobody has set up gets the `usual` number, or all it can."""
        longest = self.context_length
        if self.remote:
            return longest or usual
        wanted = self.num_ctx or usual
        return min(wanted, longest or wanted)


def read_card(document: JsonObject) -> ModelCard:
    """The answer of /api/show. What is out of shape counts as not said."""
    info = as_object(document.get("model_info"))
    lengths = {name: as_count(value) for name, value in info.items() if name.endswith(".context_length")}
    own = f"{as_text(info.get('general.architecture'))}.context_length"
    num_ctx = _NUM_CTX.search(as_text(document.get("parameters")))
    capabilities = as_list(document.get("capabilities"))
    return ModelCard(
        context_length=lengths.get(own) or max(lengths.values(), default=0) or None,
        num_ctx=(int(num_ctx[1]) or None) if num_ctx else None,
        remote=bool(as_text(document.get("remote_host"))),
        thinking="thinking" in capabilities,
        images="vision" in capabilities if capabilities else None,
        tools="tools" in capabilities if capabilities else None,
    )
