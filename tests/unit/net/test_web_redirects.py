"""Redirects: followed by hand, and each judged like a first request."""

import pytest

from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.services import BlockReason
from tests.unit.net.tls_site import PUBLIC, redirect, reply
from tests.unit.net.world import CALLER, Category, World

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("status", ["301 A", "302 B", "303 C", "307 D", "308 E"])
@pytest.mark.parametrize("hops", [1, 2, 3])
async def test_up_to_three_redirects_are_followed_each_with_a_look_up_of_its_own(
    world: World, status: str, hops: int
) -> None:
    for hop in range(hops):
        world.site.replies[f"a{hop}.example.com/"] = redirect(f"https://a{hop + 1}.example.com/", status)
    world.site.replies[f"a{hops}.example.com/"] = reply(b"there")
    page = await world.get("https://a0.example.com/")
    assert (page.url, page.text) == (f"https://a{hops}.example.com/", "there")
    assert world.net.asked == [f"a{hop}.example.com" for hop in range(hops + 1)]
    assert [(record.hop, record.status) for record in world.records] == [
        *((hop, int(status[:3])) for hop in range(hops)),
        (hops, 200),
    ]


async def test_the_fourth_redirect_is_too_many(world: World) -> None:
    world.site.replies["/"] = redirect("/")
    category, message = await world.category()
    assert category is Category.PERMANENT_FAILURE
    assert "too many redirects" in message
    assert "example.com" in message
    assert len(world.site.asked) == len(world.records) == 4


async def test_fewer_redirects_may_be_asked_for(world: World) -> None:
    world.site.replies["/"] = redirect("/")
    with pytest.raises(ToolError, match="too many redirects"):
        await world.web().get("https://example.com/", CALLER, redirects=0)
    assert len(world.site.asked) == 1


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("/x?y=1", "https://example.com/x?y=1"),
        ("x", "https://example.com/dir/x"),
        ("../x", "https://example.com/x"),
        ("?y", "https://example.com/dir/page?y"),
        ("//www.example.com/x", "https://www.example.com/x"),
        ("https://www.example.com/x#part", "https://www.example.com/x"),
        ("/grün", "https://example.com/gr%C3%BCn"),
    ],
)
async def test_a_location_is_joined_with_the_url_it_came_from(world: World, location: str, url: str) -> None:
    world.site.replies["/dir/page"] = redirect(location)
    world.site.replies[url.removeprefix("https://")] = reply(b"x")
    assert (await world.get("https://example.com/dir/page")).url == url


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("http://example.com/", BlockReason.SCHEME),
        ("http://127.0.0.1/", BlockReason.SCHEME),
        ("file:///etc/passwd", BlockReason.SCHEME),
        ("https://127.0.0.1/", BlockReason.SSRF),
        ("https://169.254.169.254/latest/meta-data/", BlockReason.SSRF),
        ("https://[::1]/", BlockReason.SSRF),
        ("//127.0.0.1/", BlockReason.SSRF),
        ("https://2130706433/", BlockReason.SSRF),
        ("https://metadata.google.internal/", BlockReason.SSRF),
        ("https://nas.lan/", BlockReason.SSRF),
        ("//Wiki.CORP./", BlockReason.SSRF),
        ("https://user:fake@example.com/", BlockReason.SSRF),
        ("https://example.com:22/", BlockReason.SSRF),
        ("https:\\\\127.0.0.1/", BlockReason.SSRF),
        ("/a b", BlockReason.SSRF),
        ("https://[", BlockReason.SSRF),
    ],
)
async def test_a_redirect_is_judged_like_a_first_request(world: World, location: str, reason: BlockReason) -> None:
    world.site.replies["/"] = redirect(location)
    assert isinstance(await world.failure(), Refused)
    assert world.net.dialled == [PUBLIC]
    made, refused = world.records
    assert (made.hop, made.status, made.block_reason) == (0, 302, None)
    assert (refused.hop, refused.status, refused.address, refused.block_reason) == (1, None, None, reason)
    assert "fake" not in refused.url


async def test_a_name_that_turns_private_between_two_hops_is_refused_at_the_second(world: World) -> None:
    world.net.names["example.com"] = [[PUBLIC], ["10.0.0.7"]]
    world.site.replies["/"] = redirect("/again")
    error = await world.failure()
    assert isinstance(error, Refused)
    assert "10.0.0.7" in str(error)
    assert world.net.dialled == [PUBLIC]
    assert len(world.site.asked) == 1


async def test_a_redirect_to_another_site_is_not_followed_and_its_name_not_looked_up(world: World) -> None:
    world.site.replies["/"] = redirect("https://other.example.org/?stolen=1")
    with pytest.raises(
        ToolError, match=r"^example\.com redirects to another site: https://other\.example\.org/"
    ) as caught:
        await world.get(leave_site=False)
    assert caught.value.failure.category is Category.PERMANENT_FAILURE
    assert caught.value.failure.suggestion == "Ask for that address itself."
    assert world.net.asked == ["example.com"]
    assert world.net.dialled == [PUBLIC]


async def test_a_hop_that_leaves_the_site_is_recorded_as_kept_from_being_made(world: World) -> None:
    world.site.replies["/"] = redirect("https://8.8.8.8/x#part")
    with pytest.raises(ToolError, match="another site"):
        await world.get(leave_site=False)
    made, kept = world.records
    assert (made.hop, made.status, made.block_reason) == (0, 302, None)
    assert (kept.hop, kept.url, kept.host) == (1, "https://8.8.8.8/x", "8.8.8.8")
    assert (kept.address, kept.status, kept.response_bytes) == (None, None, 0)
    assert kept.block_reason is BlockReason.ALLOWLIST


@pytest.mark.parametrize(
    ("location", "reason"),
    [("https://10.0.0.1/", BlockReason.SSRF), ("http://other.example.org/", BlockReason.SCHEME)],
)
async def test_a_redirect_to_what_is_forbidden_is_refused_as_that_and_not_as_another_site(
    world: World, location: str, reason: BlockReason
) -> None:
    world.site.replies["/"] = redirect(location)
    with pytest.raises(Refused):
        await world.get(leave_site=False)
    assert world.records[1].block_reason is reason


async def test_the_site_is_that_of_the_url_asked_for_at_every_hop(world: World) -> None:
    world.site.replies["example.com/"] = redirect("https://www.example.com/")
    world.site.replies["www.example.com/"] = redirect("https://a.example.com/")
    with pytest.raises(ToolError, match=r"^example\.com redirects to another site: https://a\.example.com/"):
        await world.get(leave_site=False)
    assert world.net.asked == ["example.com", "www.example.com"]


@pytest.mark.parametrize(("one", "other"), [("example.com", "www.example.com"), ("www.example.com", "example.com")])
async def test_www_is_the_same_site(world: World, one: str, other: str) -> None:
    world.site.replies[f"{one}/"] = redirect(f"https://{other}/")
    world.site.replies[f"{other}/"] = reply(b"there")
    assert (await world.get(f"https://{one}/", leave_site=False)).text == "there"


@pytest.mark.parametrize("answer", [reply(status="302 Found"), reply(status="302 Found", location="\xff\xfe")])
async def test_a_redirect_to_nowhere_is_an_error(world: World, answer: bytes) -> None:
    world.site.replies["/"] = answer.replace("\xff\xfe".encode(), b"\xff\xfe")
    category, message = await world.category()
    assert category is Category.PERMANENT_FAILURE
    assert message == "example.com answered 302, a redirect, without saying where to"


async def test_a_cookie_is_never_sent_back(world: World) -> None:
    world.site.replies["/"] = reply(status="302 Found", location="/next", set_cookie="id=1; Path=/; Secure")
    world.site.replies["/next"] = reply(b"x", set_cookie="id=2; Path=/")
    web = world.web()
    for _ in range(2):
        await web.get("https://example.com/", CALLER)
    assert len(world.site.asked) == 4
    assert not any("cookie" in asked.headers for asked in world.site.asked)
