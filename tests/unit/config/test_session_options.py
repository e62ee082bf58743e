"""What a session may do by itself at its start, from all sources together."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.config.load import Flags, options_at_start, options_opened, resumed_options
from acp_agent.core.session_options import PERMISSION_FIELDS, AutoApprove, Autonomy, Mode, SessionOptions

SUGGEST, EDIT, FULL = AutoApprove.SUGGEST, AutoApprove.AUTO_EDIT, AutoApprove.FULL_AUTO


def test_a_session_starts_as_the_configuration_says(loading):
    def start(user: str, project: str = ""):
        conduct = options_at_start(loading(user, project))
        return conduct.auto_approve, conduct.readonly, conduct.autonomy

    full, supervised = "tools.autonomy_level = 'full'\n", "tools.autonomy_level = 'supervised'\n"
    assert start("") == (SUGGEST, False, Autonomy.SUPERVISED)
    assert start(full) == (FULL, False, Autonomy.FULL)
    assert start(full, supervised) == (SUGGEST, False, Autonomy.SUPERVISED)
    assert start(full, "acp.auto_approve = 'suggest'") == (SUGGEST, False, Autonomy.SUPERVISED)
    assert start(full + "acp.auto_approve = 'full-auto'", supervised) == (EDIT, False, Autonomy.SUPERVISED)
    assert start("acp.auto_approve = 'full-auto'") == (FULL, False, Autonomy.FULL)
    assert start("", full) == (SUGGEST, False, Autonomy.SUPERVISED)
    assert start(full, "tools.autonomy_level = 'readonly'") == (SUGGEST, True, Autonomy.READONLY)
    assert start("tools.autonomy_level = 'readonly'", full) == (SUGGEST, True, Autonomy.READONLY)


# ------------------------------------------------------------------------------------- taken up again

MODES, LEVELS = [*Mode], [AutoApprove.FULL_AUTO, AutoApprove.AUTO_EDIT, AutoApprove.SUGGEST]  # the loosest first
CONDUCTS = st.builds(
    SessionOptions,
    st.sampled_from(MODES),
    st.sampled_from(LEVELS),
    st.booleans(),
    st.sampled_from(["", "a:b"]),
    chosen=st.sets(st.sampled_from(PERMISSION_FIELDS)).map(
        lambda names: tuple(name for name in PERMISSION_FIELDS if name in names)
    ),
)


def tightness(conduct: SessionOptions) -> tuple[int, int, int]:
    return MODES.index(conduct.mode), LEVELS.index(conduct.auto_approve), int(conduct.readonly)


@given(CONDUCTS, CONDUCTS, CONDUCTS)
def test_no_session_is_taken_up_with_more_leave_than_the_user_took_or_the_configuration_gives(saved, start, most):
    taken = saved.resumed(start, most)
    sources = [saved if name in saved.chosen else start for name in PERMISSION_FIELDS]
    for at, (source, now) in enumerate(zip(sources, tightness(taken), strict=True)):
        assert now == max(tightness(source)[at], tightness(most)[at])
    assert (taken.model, taken.chosen) == (saved.model, saved.chosen)
    assert taken.resumed(start, most) == taken


CHOSEN = SessionOptions(Mode.CODE, FULL, chosen=PERMISSION_FIELDS)


@given(CONDUCTS, CONDUCTS)
def test_of_the_leave_only_what_was_chosen_in_the_session_is_kept(conduct, stored):
    kept = conduct.to_keep(stored)
    for name in PERMISSION_FIELDS:
        assert getattr(kept, name) == getattr(conduct if name in conduct.chosen else stored, name)
    assert set(kept.chosen) == {*conduct.chosen, *stored.chosen}
    assert (kept.model, kept.to_keep(kept)) == (conduct.model, kept)


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_of_the_command_line_holds_in_this_process_and_no_longer(loading, level):
    flagged = loading("tools.autonomy_level = 'supervised'\n", flags=Flags(auto_approve=level.value))
    plain = loading("")
    assert options_at_start(flagged).auto_approve is level
    subsets = [
        tuple(name for name, taken in zip(PERMISSION_FIELDS, each, strict=True) if taken)
        for each in product((0, 1), repeat=3)
    ]
    for mode, before, readonly, chosen in product(MODES, LEVELS, (False, True), subsets):
        saved = SessionOptions(mode, before, readonly=readonly, chosen=chosen)
        opened, _ = options_opened(flagged, saved)
        assert opened.auto_approve is level
        kept = opened.to_keep(saved)
        assert kept.auto_approve is saved.auto_approve
        assert set(kept.chosen) == set(saved.chosen)
        later, _ = options_opened(plain, kept)
        assert later.auto_approve is (before if "auto_approve" in chosen else SUGGEST)


def test_what_the_user_chooses_after_a_level_of_the_command_line_is_theirs(loading):
    flagged = loading("", flags=Flags(auto_approve="full-auto"))
    chosen = SessionOptions(auto_approve=EDIT, chosen=("auto_approve",))
    assert resumed_options(flagged, chosen)[0].auto_approve is EDIT, "it rested, and wakes"
    assert chosen.to_keep(SessionOptions()).auto_approve is EDIT


@pytest.mark.parametrize(
    ("user", "folder", "mode", "level", "readonly"),
    [
        ("", "", Mode.CODE, FULL, False),
        ("acp.mode = 'ask'\nacp.auto_approve = 'suggest'\n", "", Mode.CODE, FULL, False),
        ("tools.autonomy_level = 'readonly'\n", "", Mode.CODE, FULL, True),
        ("", "tools.autonomy_level = 'readonly'\n", Mode.CODE, SUGGEST, True),
        ("", "tools.autonomy_level = 'supervised'\n", Mode.CODE, SUGGEST, False),
        ("acp.auto_approve = 'full-auto'\n", "tools.autonomy_level = 'supervised'\n", Mode.CODE, EDIT, False),
        ("acp.auto_approve = 'full-auto'\n", "acp.auto_approve = 'auto-edit'\n", Mode.CODE, EDIT, False),
        ("", "acp.mode = 'architect'\n", Mode.ARCHITECT, FULL, False),
    ],
)
def test_what_the_user_chose_holds_but_for_what_is_forbidden_by_now(loading, user, folder, mode, level, readonly):
    conduct, told = resumed_options(loading(user, folder), CHOSEN)
    assert (conduct.mode, conduct.auto_approve, conduct.readonly) == (mode, level, readonly)
    assert bool(told) == (conduct != CHOSEN)
    assert ("read-only" in told) == readonly


def test_what_the_user_has_not_chosen_is_the_configurations(loading):
    for name, user in product(PERMISSION_FIELDS, ["acp.mode = 'ask'\n", "acp.auto_approve = 'auto-edit'\n"]):
        loaded = loading(user)
        start = options_at_start(loaded)
        conduct, _ = resumed_options(loaded, SessionOptions(Mode.ASK, FULL, readonly=True, chosen=(name,)))
        assert all(getattr(conduct, each) == getattr(start, each) for each in PERMISSION_FIELDS if each != name)
    assert resumed_options(loading(""), SessionOptions(Mode.ASK, readonly=True)) == (SessionOptions(), "")
