"""What a model list says of one model."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from acp_agent.config.model_settings import Effort, ModelOptions
from acp_agent.config.provider_settings import ProviderType
from acp_agent.core.choices import DEFAULT, OFF, ON, TEMPERATURES, Levels
from acp_agent.llm.models import ModelLimits, ModelTable, Price
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


_LOCAL_EFFORTS = (Effort.LOW, Effort.MEDIUM, Effort.HIGH)
"""Of Ollama's models that know more than on and off (ollama/ollama docs, "Thinking")."""


def thinking(config: ProviderConfig, model: str, table: ModelTable, said: ModelInfo | None = None) -> Levels | None:
    """How a model may think; None for one that cannot, and where nobody knows.

    config   its provider, as it is for this model
    said     what its server says of it
    """
    match config.type:
        case ProviderType.SCRIPTED:
            return None
        case ProviderType.OLLAMA:
            return _local(config, model, said)
        case ProviderType.ANTHROPIC | ProviderType.OPENAI:
            return _remote(config, model, table, said)


def temperature(config: ProviderConfig, model: str, table: ModelTable, said: ModelInfo | None = None) -> Levels | None:
    """The presets, for a model that takes a temperature: none that thinks does, but Ollama's."""
    match config.type:
        case ProviderType.SCRIPTED:
            return None
        case ProviderType.ANTHROPIC | ProviderType.OPENAI:
            by_nature = table.limits(config.type, model).thinking or (said is not None and said.thinking is True)
            if by_nature or config.thinking:
                return None
        case ProviderType.OLLAMA:
            pass
    presets = tuple(TEMPERATURES)
    usual = next((name for name, value in TEMPERATURES.items() if value == config.temperature), None)
    return Levels((DEFAULT, *presets), DEFAULT) if usual is None else Levels(presets, usual)


def chosen(config: ProviderConfig, level: str, preset: str) -> ModelOptions:
    """What a choice means for a model's requests; empty words and DEFAULT change nothing."""
    heat = TEMPERATURES.get(preset)
    match level:
        case "" | "default":
            return ModelOptions(temperature=heat)
        case "off" if config.type is not ProviderType.OLLAMA:
            return ModelOptions(effort=Effort.NONE, temperature=heat)
        case "on" | "off":
            return ModelOptions(thinking=level == ON, temperature=heat)
        case _:
            return ModelOptions(thinking=True, effort=Effort(level), temperature=heat)


def thoughtless(config: ProviderConfig, model: str, table: ModelTable) -> ModelOptions:
    """How a model is asked to think as little as it can."""
    levels = thinking(config, model, table)
    if levels is None:  # of Ollama's, one that can does so unless it is told not to
        return ModelOptions(thinking=False if config.type is ProviderType.OLLAMA else None)
    return chosen(config, next(level for level in levels.values if level != DEFAULT), "")


def _local(config: ProviderConfig, model: str, said: ModelInfo | None) -> Levels | None:
    """Before its server has said anything nothing is concluded: a model that cannot think refuses to be asked."""
    if "gpt-oss" in model:  # cannot be told not to
        return _levels(_LOCAL_EFFORTS, config.effort or Effort.MEDIUM)
    if config.effort is not None:
        return _levels((Effort.NONE, *_LOCAL_EFFORTS), Effort.NONE if config.thinking is False else config.effort)
    thinks = config.thinking if config.thinking is not None else said is not None and said.thinking
    return Levels((OFF, ON), ON) if thinks else None


def _remote(config: ProviderConfig, model: str, table: ModelTable, said: ModelInfo | None) -> Levels | None:
    """By the table; what it does not know, by what the server says and the user has set."""
    limits, efforts = table.limits(config.type, model), table.efforts_of(model)
    takes = efforts.takes if limits.thinking else said.efforts if said else ()
    anthropic = config.type is ProviderType.ANTHROPIC
    if anthropic and takes and efforts.rest is not None:
        takes = (Effort.NONE, *takes)
    resting = config.effort is Effort.NONE or (anthropic and config.thinking is False)
    usual = Effort.NONE if resting else config.effort
    if usual is not None and not takes and (limits.thinking or config.thinking):
        takes = _LOCAL_EFFORTS  # words every server knows that knows any
    if not takes:
        return None
    return _levels(takes, usual or efforts.usual)


def _levels(takes: Sequence[Effort], usual: Effort | None) -> Levels:
    """Weakest first, the usual one among them; where it is not known, DEFAULT stands for it."""
    known = {*takes, *([usual] if usual else [])}
    words = tuple(_word(effort) for effort in Effort if effort in known)
    return Levels((DEFAULT, *words), DEFAULT) if usual is None else Levels(words, _word(usual))


def _word(effort: Effort) -> str:
    return OFF if effort is Effort.NONE else effort.value
