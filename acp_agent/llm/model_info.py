"""What is known of one model, and what the user can choose for it: how hard it thinks, and its temperature."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from acp_agent.config.model_settings import Effort, ModelOptions
from acp_agent.config.provider_settings import ProviderType
from acp_agent.core.session_options import DEFAULT, OFF, ON, TEMPERATURES, Levels
from acp_agent.llm.models import ModelLimits, ModelTable, Price
from acp_agent.llm.provider_config import ProviderConfig


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """One model of a provider. A value is None if it is unknown.

    provider        the configured name
    model           its own id; `PROVIDER:MODEL` chooses it
    title           a name for people, or the id
    context_window  tokens, input and output together
    max_output      tokens of one answer
    thinking        thinks before it answers
    efforts         the levels of effort that it takes; empty if unknown
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
        """Return the model with the user's settings first, then its server's values, then the packaged ones."""
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
"""The levels of Ollama's models that have more than on and off (ollama/ollama docs, "Thinking")."""


def thinking_levels(
    config: ProviderConfig, model: str, table: ModelTable, said: ModelInfo | None = None
) -> Levels | None:
    """Return the levels of thinking of a model, or None if it cannot think or nothing is known.

    config   its provider, adapted to this model
    said     what its server says of it
    """
    match config.type:
        case ProviderType.SCRIPTED:
            return None
        case ProviderType.OLLAMA:
            return _local(config, model, said)
        case ProviderType.ANTHROPIC | ProviderType.OPENAI:
            return _remote(config, model, table, said)


def temperature_levels(
    config: ProviderConfig, model: str, table: ModelTable, said: ModelInfo | None = None
) -> Levels | None:
    """Return the temperature presets of a model, or None if it takes none. Only Ollama's thinking models take one."""
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


def options_for(config: ProviderConfig, level: str, preset: str) -> ModelOptions:
    """Return the request options for a level of thinking and a temperature preset.

    Empty names and DEFAULT change nothing.
    """
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


def least_thinking(config: ProviderConfig, model: str, table: ModelTable) -> ModelOptions:
    """Return the options under which a model thinks as little as it can."""
    levels = thinking_levels(config, model, table)
    if levels is None:  # a thinking model of Ollama thinks unless it is told not to
        return ModelOptions(thinking=False if config.type is ProviderType.OLLAMA else None)
    return options_for(config, next(level for level in levels.values if level != DEFAULT), "")


def _local(config: ProviderConfig, model: str, said: ModelInfo | None) -> Levels | None:
    """Return the levels of a model on Ollama.

    Nothing is concluded before its server has described it, because a model that cannot think refuses such requests.
    """
    if "gpt-oss" in model:  # it cannot be told not to think
        return _levels(_LOCAL_EFFORTS, config.effort or Effort.MEDIUM)
    if config.effort is not None:
        return _levels((Effort.NONE, *_LOCAL_EFFORTS), Effort.NONE if config.thinking is False else config.effort)
    thinks = config.thinking if config.thinking is not None else said is not None and said.thinking
    return Levels((OFF, ON), ON) if thinks else None


def _remote(config: ProviderConfig, model: str, table: ModelTable, said: ModelInfo | None) -> Levels | None:
    """Return the levels by the packaged table, or by what the server says and the user has set for an unknown model."""
    limits, efforts = table.limits(config.type, model), table.efforts_of(model)
    takes = efforts.levels if limits.thinking else said.efforts if said else ()
    anthropic = config.type is ProviderType.ANTHROPIC
    if anthropic and takes and efforts.no_thinking is not None:
        takes = (Effort.NONE, *takes)
    resting = config.effort is Effort.NONE or (anthropic and config.thinking is False)
    usual = Effort.NONE if resting else config.effort
    if usual is not None and not takes and (limits.thinking or config.thinking):
        takes = _LOCAL_EFFORTS  # the words that all servers with levels know
    if not takes:
        return None
    return _levels(takes, usual or efforts.default)


def _levels(takes: Sequence[Effort], usual: Effort | None) -> Levels:
    """Return the levels, weakest first, with the default among them. DEFAULT stands for an unknown default."""
    known = {*takes, *([usual] if usual else [])}
    words = tuple(_word(effort) for effort in Effort if effort in known)
    return Levels((DEFAULT, *words), DEFAULT) if usual is None else Levels(words, _word(usual))


def _word(effort: Effort) -> str:
    return OFF if effort is Effort.NONE else effort.value
