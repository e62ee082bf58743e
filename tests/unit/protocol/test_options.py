"""The options a session shows and takes: which there are, what they say, what they refuse."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from acp_agent.cli.agent_process import Direction, RecordedFrame, Recording
from acp_agent.core.session_options import (
    DEFAULT,
    AutoApprove,
    Chosen,
    Levels,
    Mode,
    ModelChoice,
    SessionOptions,
    chosen,
    settle,
)
from acp_agent.protocol.client import Client
from acp_agent.protocol.jsonrpc import RpcError
from acp_agent.protocol.options import config_options, set_mode, set_option
from tests.rows import each_row
from tests.wire.schema import violations

PRESETS = Levels((DEFAULT, "precise", "balanced", "creative"), DEFAULT)
SWITCH = Levels(("off", "on"), "on")
HARD = Levels(("low", "medium", "high"), "medium")
TOGGLES = Client(boolean_options=True)


@dataclass
class Two:
    """A model that thinks as hard as it is told, one of another provider that thinks or not, one that cannot."""

    initial: str = "a:deep"
    unlisted: Sequence[str] = ()
    levels: dict[str, Levels] = field(default_factory=lambda: {"a:deep": HARD, "b:local": SWITCH})

    def models(self, current: str) -> Sequence[ModelChoice]:
        return [ModelChoice("a:deep", "Deep", "1M tokens"), ModelChoice("a:plain", "a"), ModelChoice("b:local", "b")]

    def has(self, model: str) -> bool:
        return model in ("a:deep", "a:plain", "b:local", *self.unlisted)

    def thinking(self, model: str) -> Levels | None:
        return self.levels.get(model)

    def temperature(self, model: str) -> Levels | None:
        return None if model == "a:deep" else PRESETS


def shown(conduct: SessionOptions, choices: Two | None = None, client: Client = TOGGLES) -> dict[str, Any]:
    options: Any = config_options(conduct, choices or Two(), boolean=client.boolean_options)
    return {option["id"]: option for option in options}


def _recorded(message: Any) -> Recording:
    recording = Recording()
    recording.frames.append(RecordedFrame(Direction.FROM_AGENT, message, 0.0))
    return recording


def test_the_options_stand_in_their_order_and_are_those_of_the_model() -> None:
    assert [*shown(SessionOptions())] == ["mode", "model", "thought_level"]
    assert [*shown(SessionOptions(model="b:local"))] == ["mode", "model", "thinking", "temperature"]
    assert [*shown(SessionOptions(model="a:plain"))] == ["mode", "model", "temperature"]


def test_a_model_can_be_chosen_as_soon_as_any_is_known() -> None:
    conduct, choices = SessionOptions(), Two(initial="")
    model = shown(conduct, choices)["model"]
    assert model["currentValue"] == "none"
    assert [group["group"] for group in model["options"]] == ["none", "a", "b"]
    set_option(conduct, "model", "none", choices)
    assert conduct == SessionOptions()
    set_option(conduct, "model", "b:local", choices)
    assert shown(conduct, choices)["model"]["currentValue"] == "b:local"
    assert [group["group"] for group in shown(conduct, choices)["model"]["options"]] == ["a", "b"]
    with pytest.raises(RpcError, match="model not in allowed list: 'none'"):
        set_option(conduct, "model", "none", choices)


@pytest.mark.parametrize("model", ["", "a:plain", "b:local"])
@pytest.mark.parametrize("client", [TOGGLES, Client()])
def test_what_is_sent_is_what_the_schema_wants(model: str, client: Client) -> None:
    options = config_options(SessionOptions(model=model), Two(), boolean=client.boolean_options)
    update = {"sessionUpdate": "config_option_update", "configOptions": options}
    frame = {"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": update}}
    assert violations(_recorded(frame)) == []


def test_models_of_several_providers_stand_in_groups_and_what_is_in_force_is_among_them() -> None:
    model = shown(SessionOptions())["model"]
    assert [(group["group"], len(group["options"])) for group in model["options"]] == [("a", 2), ("b", 1)]
    assert model["options"][0]["options"][0] == {"value": "a:deep", "name": "Deep", "description": "1M tokens"}
    assert model["currentValue"] == "a:deep"
    assert shown(SessionOptions())["thought_level"]["currentValue"] == "medium"
    assert [each["value"] for each in shown(SessionOptions())["thought_level"]["options"]] == [*HARD.values]


def test_a_toggle_is_only_for_clients_that_know_it() -> None:
    conduct = SessionOptions(model="b:local", thought_level="off")
    assert shown(conduct)["thinking"]["currentValue"] is False
    assert shown(conduct)["thinking"]["type"] == "boolean"
    select = shown(conduct, client=Client())["thinking"]
    assert (select["type"], select["currentValue"]) == ("select", "off")
    asked = {"clientCapabilities": {"session": {"configOptions": {"boolean": {}}}}}
    assert Client.from_initialize(asked).boolean_options  # type: ignore[arg-type]
    assert not Client.from_initialize({}).boolean_options


@pytest.mark.parametrize(("value", "level"), [(False, "off"), ("false", "off"), ("off", "off")])
def test_a_switch_takes_whatever_means_off(value: Any, level: str) -> None:
    conduct = SessionOptions(model="b:local")
    set_option(conduct, "thinking", value, Two())
    assert conduct.thought_level == level


def test_setting_everything_to_what_it_is_changes_nothing() -> None:
    for conduct in (
        SessionOptions(),
        SessionOptions(Mode.ASK, AutoApprove.FULL_AUTO, model="b:local", temperature="precise"),
    ):
        before = replace(conduct)
        for client in (TOGGLES, Client()):
            for name, option in shown(conduct, client=client).items():
                set_option(conduct, name, option["currentValue"], Two())
        assert conduct == before


def test_a_choice_is_kept_for_models_that_take_it() -> None:
    conduct, choices = SessionOptions(), Two()
    set_option(conduct, "thought_level", "high", choices)
    set_option(conduct, "model", "b:local", choices)
    set_option(conduct, "temperature", "creative", choices)
    assert chosen(conduct, choices) == Chosen("b:local", "", "creative")
    assert shown(conduct)["thinking"]["currentValue"] is True
    set_option(conduct, "model", "a:deep", choices)
    assert chosen(conduct, choices) == Chosen("a:deep", "high", "")


def test_every_other_option_is_taken() -> None:
    conduct = SessionOptions()
    for name, value in {"mode": "ask", "auto_approve": "auto-edit", "autonomy_level": "readonly"}.items():
        set_option(conduct, name, value, Two())
    assert (conduct.mode, conduct.auto_approve, conduct.readonly) == (Mode.ASK, AutoApprove.AUTO_EDIT, True)


def test_what_the_user_chose_of_his_leave_is_remembered() -> None:
    conduct = SessionOptions()
    set_option(conduct, "mode", "code", Two())
    set_option(conduct, "model", "b:local", Two())
    assert conduct.chosen == (), "nothing that is another leave"
    set_option(conduct, "autonomy_level", "full", Two())
    assert conduct.chosen == ("auto_approve",)
    set_option(conduct, "autonomy_level", "readonly", Two())
    set_mode(conduct, "ask")
    assert conduct.chosen == ("mode", "auto_approve", "readonly")


def test_a_model_that_is_not_shown_is_taken_where_it_can_be_had() -> None:
    conduct = SessionOptions()
    set_option(conduct, "model", "c:late", Two(unlisted=["c:late"]))
    assert conduct.model == "c:late"


@each_row(
    "name, value, problem",
    [
        ("mode", "x", "unknown value for mode: 'x'; expected one of suggest, auto-edit, full-auto, architect, ask"),
        ("mode", True, "unknown value for mode: True; expected one of suggest, auto-edit, full-auto, architect, ask"),
        ("auto_approve", None, "unknown value for auto_approve: None; expected one of suggest, auto-edit, full-auto"),
        ("model", "c:d", "model not in allowed list: 'c:d'; expected one of a:deep, a:plain, b:local"),
        ("thinking", "high", "unknown value for thinking: 'high'; expected one of true, false, off, on"),
        ("thinking", 1, "unknown value for thinking: 1; expected one of true, false, off, on"),
        ("thought_level", "low", "unknown config_id: 'thought_level'; expected one of mode, model, thinking, temper"),
        (["mode"], "ask", "unknown config_id: ['mode']; expected one of mode,"),
    ],
)
def test_what_is_not_there_is_refused_by_name_and_nothing_changes(name: Any, value: Any, problem: str) -> None:
    conduct = SessionOptions(model="b:local")
    with pytest.raises(RpcError) as caught:
        set_option(conduct, name, value, Two())
    assert caught.value.message.startswith(problem)
    assert caught.value.code == -32600
    assert conduct == SessionOptions(model="b:local")


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(
        RpcError, match="unknown mode: 'x'; expected one of suggest, auto-edit, full-auto, architect, ask"
    ):
        set_mode(SessionOptions(), "x")


def test_a_model_that_is_gone_gives_way_to_the_initial_one_and_the_user_hears_of_it() -> None:
    conduct = SessionOptions(model="c:gone")
    assert settle(conduct, Two()) == (
        "The model of this session, c:gone, is no longer available; a:deep answers instead."
    )
    assert conduct.model == ""
    assert settle(SessionOptions(model="c:gone"), Two(initial="")).endswith("; choose another one with /model.")
    for fine in (SessionOptions(), SessionOptions(model="b:local")):
        before = replace(fine)
        assert settle(fine, Two()) == ""
        assert fine == before
