"""Reaching a host is asked about once, and a yes holds for that host alone."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.ports import Decision, Invocation, Question
from acp_agent.core.session_options import AutoApprove, SessionOptions
from acp_agent.core.types import Access, CallOrigin, PathSubject, UrlSubject
from acp_agent.gates.grants import GrantKind, site
from acp_agent.gates.rules.permission_rules import Action, Rule
from tests.unit.gates.chain import SPECS, Chain, ScriptedApprover, call, rules
from tests.unit.gates.test_permission import wondering

pytestmark = pytest.mark.anyio

PAGE = "https://good.com/a"


@pytest.fixture
def make(tmp_path):
    (tmp_path / "work").mkdir()

    def chain(*answers: Decision, level: AutoApprove = AutoApprove.SUGGEST, allow: tuple[Rule, ...] = ()) -> Chain:
        return Chain(
            os.fspath(tmp_path / "work"),
            os.fspath(tmp_path / "grants.toml"),
            allow,
            SessionOptions(auto_approve=level),
            approver=ScriptedApprover(*answers),
            tool="fetch",
        )

    return chain


def fetch(url: str = PAGE, origin: CallOrigin = CallOrigin.MODEL) -> Invocation:
    return call("fetch", UrlSubject(url), arguments={"url": url}, origin=origin)


def asked(chain: Chain) -> list[Question]:
    assert chain.approver is not None
    return chain.approver.questions


SAME_HOST = [
    "https://good.com",
    "https://good.com/",
    "https://good.com/other?x=1#y",
    "https://good.com?x=https://evil.com/@z",
    "https://good.com/a@b:c",
    "https://GOOD.com/a",
    "HTTPS://good.COM/a",
    "https://good.com./a",
    "https://good.com:443/a",
    "https://good.com:0443/a",
]
OTHER_HOST = [
    "https://evil.com/",
    "https://www.good.com/",
    "https://com/",
    "https://good.com.evil.com/",
    "https://evilgood.com/",
    "https://good.com-evil.com/",
    "https://evil.com/good.com/",
    "https://good.com@evil.com/",
    "https://good.com:443@evil.com/",
    "https://good.com:@evil.com/",
    "https://good.com%40evil.com/",
    "https://good.com%2fevil.com/",
    "https://good.com\\@evil.com/",
    "https://good.com\\.evil.com/",
    "https://good.com /",
    " https://good.com/",
    "https://good.com/\n",
    "https://good.com/\t",
    "https://good.com/\u202e",
    "https://good.com/\ud800",
    "https://good.com\n.evil.com/",
    "https://good.com:8443/",
    "https://good.com:/",
    "https://good.com:99999999/",
    "https://good.com../",
    "https://good.com;evil.com/",
    "https://good。com/",
    "https://ɡood.com/",
    "https://g%6fod.com/",
    "https://[good.com]/",
    "http://good.com/",
    "https:good.com/",
    "https:///good.com/",
    "https:/good.com/",
    "//good.com/",
    "good.com",
    "",
]


async def test_always_covers_every_page_of_the_host_and_no_other_host(make):
    first = make(Decision.ALLOW_ALWAYS)
    assert (await first.run(fetch())).failure is None
    (question,) = asked(first)
    assert question.always == "pages of good.com"
    assert "reaches good.com" in question.reasons
    assert first.grants.find("fetch", GrantKind.PREFIX, "https://good.com/", os.path.realpath(first.root)) is True
    chain = make()
    for url in SAME_HOST:
        assert await chain.fate(fetch(url)) == "silent", url
    for url in OTHER_HOST:
        assert await chain.fate(fetch(url)) == "asked", url
    assert chain.permission.allows(SPECS["fetch"])


@pytest.mark.parametrize("url", [url for url in OTHER_HOST if not site(url)])
async def test_where_the_host_is_in_doubt_always_binds_to_this_very_call(make, url: str):
    first = make(Decision.ALLOW_ALWAYS)
    await first.run(fetch(url))
    (question,) = asked(first)
    assert question.always == "exactly this text in this folder"
    assert any(reason.startswith("address: ") for reason in question.reasons)
    chain = make()
    assert await chain.fate(fetch(url)) == "silent"
    assert await chain.fate(fetch(f"{url}x")) == "asked"
    assert await chain.fate(fetch()) == "asked"


async def test_another_port_is_another_site(make):
    await make(Decision.ALLOW_ALWAYS).run(fetch("https://good.com:8443/"))
    chain = make()
    assert await chain.fate(fetch("https://GOOD.com:8443/x")) == "silent"
    assert await chain.fate(fetch()) == "asked"
    await chain.run(fetch("https://good.com:9/"))
    assert asked(chain)[-1].always == "pages of good.com:9"


async def test_allow_once_asks_again_and_no_is_no(make):
    chain = make(Decision.ALLOW_ONCE, Decision.REJECT_ONCE)
    assert (await chain.run(fetch())).failure is None
    assert (await chain.run(fetch())).failure is not None
    assert len(asked(chain)) == 2
    assert len(chain.recorder.ran) == 1


async def test_reject_always_denies_the_host_at_every_level_and_hides_no_tool(make):
    await make(Decision.REJECT_ALWAYS).run(fetch())
    for level in AutoApprove:
        chain = make(level=level)
        assert await chain.fate(fetch("https://GOOD.com./b")) == "refused"
        assert await chain.fate(fetch(origin=CallOrigin.USER)) == "refused"
        assert chain.permission.allows(SPECS["fetch"])
    assert await make().fate(fetch("https://other.org/")) == "asked"


@pytest.mark.parametrize("level", [AutoApprove.SUGGEST, AutoApprove.AUTO_EDIT])
async def test_every_level_but_full_auto_asks(make, level: AutoApprove):
    chain = make(level=level)
    assert chain.asks(fetch())
    assert await chain.fate(fetch()) == "asked"


async def test_full_auto_and_the_user_himself_are_not_asked(make):
    assert await make(level=AutoApprove.FULL_AUTO).fate(fetch()) == "silent"
    assert await make().fate(fetch(origin=CallOrigin.USER)) == "silent"


async def test_rules_allow_deny_and_ask(make):
    chain = make(
        allow=(
            *rules("https://good.com/private*", action=Action.DENY),
            *rules("https://ask.org/*", action=Action.ASK),
            *rules("https://good.com/*"),
        )
    )
    assert await chain.fate(fetch()) == "silent"
    assert await chain.fate(fetch("https://good.com/private/x")) == "refused"
    assert await chain.fate(fetch("https://ask.org/")) == "asked"
    assert await chain.fate(fetch("https://other.org/")) == "asked"


async def test_a_denying_rule_wins_over_a_stored_yes_and_full_auto(make):
    await make(Decision.ALLOW_ALWAYS).run(fetch())
    deny = rules("https://good.com/*", action=Action.DENY)
    for level in AutoApprove:
        assert await make(level=level, allow=deny).fate(fetch()) == "refused"


async def test_a_yes_for_one_tool_is_none_for_another(make, tmp_path):
    await make(Decision.ALLOW_ALWAYS).run(fetch())
    assert await make().fate(call("mcp_x_y", UrlSubject(PAGE), arguments={"url": PAGE})) == "asked"


async def test_a_yes_for_the_host_covers_neither_another_gates_question_nor_a_file(make):
    await make(Decision.ALLOW_ALWAYS).run(fetch())
    chain = wondering(make())
    assert await chain.fate(fetch()) == "asked"
    assert asked(chain)[0].always.startswith("exactly this text")
    upload = call("fetch", UrlSubject(PAGE), PathSubject("secret", Access.READ), arguments={"url": PAGE, "file": "s"})
    assert await make().fate(upload) == "asked"


async def test_a_call_to_several_hosts_needs_all_of_them(make):
    both = call("fetch", UrlSubject(PAGE), UrlSubject("https://two.org/"), arguments={"n": 1})
    await make(Decision.ALLOW_ALWAYS).run(fetch())
    chain = make(Decision.ALLOW_ALWAYS)
    assert (await chain.run(both)).failure is None
    assert asked(chain)[0].always == "pages of good.com, two.org"
    assert await make().fate(fetch("https://two.org/x")) == "silent"


async def test_a_long_address_is_shown_beyond_its_title(make):
    chain = make()
    url = f"https://evil.com/?{'a' * 300}secret"
    await chain.run(fetch(url))
    assert any(reason.endswith("secret") for reason in asked(chain)[0].reasons)


@given(st.lists(st.sampled_from(["good.com", "evil.com", "@", ":", "/", "\\", "?", "#", ".", "%", "443", " ", "é"])))
def test_a_site_is_what_stands_before_the_first_end_of_an_authority(pieces: list[str]):
    """Whatever else is in the URL: a reader who stops at any of `/?#\\` and takes what is behind an `@` agrees."""
    url = "https://" + "".join(pieces)
    key = site(url)
    if not key:
        return
    authority = url.removeprefix("https://")
    for end in "/?#\\":
        authority = authority.partition(end)[0]
    host, _, port = authority.rpartition("@")[2].partition(":")
    usual = f"https://{host.removesuffix('.')}"
    assert key == (f"{usual}/" if int(port or 443) == 443 else f"{usual}:{int(port)}/")
    assert "@" not in authority
