"""The sections that choose tools and protect paths, by themselves."""

import pytest
from pydantic import ValidationError

from acp_agent.config.section import ProjectMay, Section
from acp_agent.config.tool_settings import (
    DEFAULT_GROUPS,
    BlockedGroups,
    DenyGroup,
    ModelTools,
    Profile,
    ProtectionSettings,
    SelectionSettings,
)


class Shell(Section):
    """Stands in for `[tools.shell]`."""

    blocked_groups: BlockedGroups = DEFAULT_GROUPS


def may(section: type[Section], field: str) -> ProjectMay | None:
    return next((mark for mark in section.model_fields[field].metadata if isinstance(mark, ProjectMay)), None)


def after(section: type[Section], field: str, user: object, project: object) -> object:
    mark = may(section, field)
    assert mark is not None
    return mark.tighten(user, project).value


def test_everything_is_there_by_default():
    settings = SelectionSettings()
    assert settings.profile is Profile.FULL
    assert (settings.allow, settings.deny, settings.also_allow, settings.by_model) == ((), (), (), {})


def test_a_file_is_read():
    settings = SelectionSettings.model_validate(
        {
            "profile": "coding",
            "allow": ["group:fs"],
            "deny": ["bash"],
            "also_allow": ["mcp:git"],
            "by_model": {"ollama:*": {"profile": "minimal", "deny": ["grep"]}, "a:b": {"allow": []}},
        }
    )
    assert settings.profile is Profile.CODING
    assert [*settings.by_model] == ["ollama:*", "a:b"]
    assert settings.by_model["ollama:*"] == ModelTools(profile=Profile.MINIMAL, deny=("grep",))
    assert settings.by_model["a:b"].allow == ()
    assert settings.by_model["a:b"].profile is None


@pytest.mark.parametrize(
    "table",
    [
        {"profile": "messaging"},
        {"allow": "read"},
        {"deny": [""]},
        {"deny": [1]},
        {"by_model": {"": {}}},
        {"by_model": {"a": {"profil": "full"}}},
        {"by_model": {"a": "minimal"}},
        {"alsoAllow": ["read"]},
    ],
)
def test_what_does_not_fit_is_refused(table: dict[str, object]):
    with pytest.raises(ValidationError):
        SelectionSettings.model_validate(table)


def test_a_project_may_only_take_tools_away():
    assert after(SelectionSettings, "profile", Profile.CODING, Profile.FULL) is Profile.CODING
    assert after(SelectionSettings, "profile", Profile.CODING, Profile.MINIMAL) is Profile.MINIMAL
    assert after(SelectionSettings, "deny", ("bash",), ("read",)) == ("bash", "read")
    assert after(SelectionSettings, "allow", (), ("read",)) == ("read",)
    assert after(SelectionSettings, "allow", ("read",), ("read", "bash")) == ("read",)
    assert after(SelectionSettings, "allow", ("read",), ("bash",)) == ("read",)
    assert after(SelectionSettings, "also_allow", ("mcp:a", "mcp:b"), ("mcp:a", "bash")) == ("mcp:a",)
    assert may(SelectionSettings, "by_model") is None


def test_a_project_may_only_protect_more():
    assert after(ProtectionSettings, "protected_paths", ("a",), ("b",)) == ("a", "b")
    assert may(ProtectionSettings, "unprotected_paths") is None
    assert after(Shell, "blocked_groups", (DenyGroup.EVAL,), (DenyGroup.DISK,)) == (DenyGroup.EVAL, DenyGroup.DISK)


def test_groups_are_read_by_name():
    assert Shell.model_validate({"blocked_groups": ["eval", "env_dump"]}).blocked_groups == (
        DenyGroup.EVAL,
        DenyGroup.ENV_DUMP,
    )
    assert Shell.model_validate({"blocked_groups": []}).blocked_groups == ()
    with pytest.raises(ValidationError):
        Shell.model_validate({"blocked_groups": ["everything"]})
