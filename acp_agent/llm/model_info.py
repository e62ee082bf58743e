"""What a model list says of one model."""

from dataclasses import dataclass, replace

from acp_agent.config.model_settings import Effort
from acp_agent.llm.limits import ModelLimits, Price
from acp_agent.llm.provider_config import ProviderConfig


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """One model of a provider. What nobody says is None.

    provider        the configured name
    model           its own id; together with the provider's name as `PROVIDER:MODEL` it can be chosen
    title           a name for people, or the id
    context_window  tokens, input and output together
    max_output      tokens of one answer
    thinking        thinks before it answers
    efforts         how hard it can be asked to; empty where nobody says
    """

    provider: str
    model: str
    title: str
    context_window: int | None = None
    max_output: int | None = None
    images: bool | None = None
    tools: bool | None = None
    thinking: bool | None = None
    price: Price | None = None
    efforts: tuple[Effort, ...] = ()

    def __str__(self) -> str:
        return f"{self.provider}:{self.model}"

    def completed(self, config: ProviderConfig, known: ModelLimits | None, price: Price | None) -> "ModelInfo":
        """With what the user says of the model first, then its server, then what is known of it."""
        return replace(
            self,
            context_window=config.context_window or self.context_window or (known.context_window if known else None),
            max_output=config.max_tokens or self.max_output or (known.max_output if known else None),
            images=_first(config.images, self.images, known.images if known else None),
            tools=_first(config.tools, self.tools, None),
            thinking=_first(config.thinking, self.thinking, known.thinking if known else None),
            price=price or self.price,
        )


def _first(*answers: bool | None) -> bool | None:
    return next((answer for answer in answers if answer is not None), None)
