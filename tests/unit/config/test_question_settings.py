"""`[acp] elicitation`: on until somebody switches it off, and a project may only do that."""

import pytest
from pydantic import ValidationError

from acp_agent.config.section import ProjectMay, Tightened
from acp_agent.config.settings import QuestionSettings


def test_questions_are_on_and_stand_as_long_as_the_turn() -> None:
    assert QuestionSettings() == QuestionSettings(elicitation=True, elicitation_timeout_secs=0)


@pytest.mark.parametrize("table", [{"elicitation": "yes"}, {"elicitation_timeout_secs": -1}, {"elicit": True}])
def test_what_is_no_setting_is_refused(table: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        QuestionSettings.model_validate(table)


def test_a_project_may_only_switch_them_off() -> None:
    marks = {
        name: [each for each in field.metadata if isinstance(each, ProjectMay)]
        for name, field in QuestionSettings.model_fields.items()
    }
    (mark,) = marks["elicitation"]
    assert mark.tighten(True, False) == Tightened(False)
    assert mark.tighten(False, True) == Tightened(False, (True,))
    assert marks["elicitation_timeout_secs"] == []  # the user's alone
