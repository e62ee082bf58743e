"""Which models sessions may use, and how they get their titles."""

import pytest
from pydantic import ValidationError

from acp_agent.config.memory_settings import TitleSettings, TitleSource
from acp_agent.config.settings import ChoiceSettings


def test_by_default_every_model_can_be_chosen_and_a_model_writes_titles() -> None:
    assert ChoiceSettings().available_models == ()
    assert TitleSettings() == TitleSettings(titles=TitleSource.MODEL, title_max_chars=60, title_provider="")


def test_models_are_named_with_their_provider() -> None:
    assert ChoiceSettings.model_validate({"available_models": ["ollama:qwen3:8b"]}).available_models
    for wrong in ("qwen3", ":m", "a: b"):
        with pytest.raises(ValidationError, match="PROVIDER:MODEL"):
            ChoiceSettings.model_validate({"available_models": [wrong]})
        with pytest.raises(ValidationError, match="PROVIDER:MODEL"):
            TitleSettings(title_provider=wrong)
    with pytest.raises(ValidationError):
        TitleSettings(title_max_chars=9)
