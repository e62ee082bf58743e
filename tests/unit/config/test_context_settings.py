"""`[agent]`, the part about long conversations."""

import pytest
from pydantic import ValidationError

from acp_agent.config.settings import ContextSettings


def test_the_defaults_are_those_of_the_requirements() -> None:
    settings = ContextSettings()
    assert (settings.compaction_soft, settings.compaction_hard) == (0.6, 0.9)
    assert settings.compaction
    assert not settings.compress_context
    assert settings.compress_provider == ""


@pytest.mark.parametrize(("soft", "hard"), [(0.8, 0.8), (0.9, 0.85), (0.6, 0.5)])
def test_the_soft_threshold_lies_below_the_hard_one(soft: float, hard: float) -> None:
    with pytest.raises(ValidationError, match="compaction_soft below compaction_hard"):
        ContextSettings(compaction_soft=soft, compaction_hard=hard)


@pytest.mark.parametrize(
    "wrong",
    [{"compaction_soft": 0.0}, {"compaction_hard": 1.0}, {"compaction_soft": float("nan")}, {"compaction_hard": "0.9"}],
)
def test_thresholds_are_parts_of_the_context(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ContextSettings.model_validate(wrong)


@pytest.mark.parametrize("wrong", ["ollama", ":x", "a b:c"])
def test_the_model_for_summaries_is_named_with_its_provider(wrong: str) -> None:
    with pytest.raises(ValidationError, match="PROVIDER:MODEL"):
        ContextSettings(compress_provider=wrong)
    assert ContextSettings(compress_provider="ollama:qwen3:8b").compress_provider == "ollama:qwen3:8b"
