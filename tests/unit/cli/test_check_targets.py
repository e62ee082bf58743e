"""What `check url` says: the verdict of GuardedWeb on scripted answers, and nothing dialled."""

import pytest

from acp_agent.cli.check_targets import url_verdict
from acp_agent.config.tool_settings import ScrapeSettings
from acp_agent.core.errors import ConfigError

pytestmark = pytest.mark.anyio

PLAIN = ScrapeSettings()


async def test_a_public_host_is_allowed_with_the_addresses_of_the_first_look_up() -> None:
    dns = {"EXAMPLE.com.": [["93.184.216.34", "2606:4700:4700::1111"], ["127.0.0.1"]]}
    assert await url_verdict("https://Example.com/x?y#z", PLAIN, dns) == {
        "url": "https://Example.com/x?y#z",
        "verdict": "allow",
        "reason": "a public host",
        "category": None,
        "host": "example.com",
        "addresses": ["93.184.216.34", "2606:4700:4700::1111"],
    }


async def test_a_host_with_a_private_address_is_denied_and_the_reason_names_it() -> None:
    said = await url_verdict("https://example.com/", PLAIN, {"example.com": [["93.184.216.34", "10.0.0.7"]]})
    assert (said["verdict"], said["category"], said["host"]) == ("deny", "policy_blocked", "example.com")
    assert said["reason"] == "example.com is at 10.0.0.7, which is no public address (a private network)"
    assert said["addresses"] == []


@pytest.mark.parametrize("dns", [{}, {"example.com": []}, {"example.com": [[]]}, {"other.com": [["8.8.8.8"]]}])
async def test_a_host_without_an_answer_cannot_be_resolved(dns: dict[str, list[list[str]]]) -> None:
    said = await url_verdict("https://example.com/", PLAIN, dns)
    assert (said["verdict"], said["category"]) == ("deny", "policy_blocked")
    assert said["reason"] == "example.com cannot be resolved"


async def test_names_in_other_scripts_are_found_in_either_form() -> None:
    for key in ("bücher.de", "xn--bcher-kva.de", "BÜCHER.DE."):
        said = await url_verdict("https://Bücher.de/", PLAIN, {key: [["8.8.8.8"]]})
        assert (said["verdict"], said["host"]) == ("allow", "xn--bcher-kva.de")


@pytest.mark.parametrize(("url", "kind"), [(None, "NoneType"), (7, "int"), ({"a": 1}, "dict"), (b"https://x", "bytes")])
async def test_what_is_no_string_is_a_type_mismatch(url: object, kind: str) -> None:
    said = await url_verdict(url, PLAIN, {})
    assert (said["verdict"], said["category"], said["url"]) == ("deny", "type_mismatch", None)
    assert said["reason"] == f"a URL is a string, not {kind}"


@pytest.mark.parametrize("url", ["https://127.0.0.1/", "https://[::1]/", "https://8.8.8.8/"])
async def test_an_address_is_judged_without_a_look_up(url: str) -> None:
    said = await url_verdict(url, PLAIN, None)  # a real look-up would be made here, were there one
    assert said["verdict"] == ("allow" if "8.8" in url else "deny")
    assert said["addresses"] == (["8.8.8.8"] if "8.8" in url else [])


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "017700000001", "127.1"])
async def test_an_odd_spelling_of_an_address_is_told_as_one(host: str) -> None:
    said = await url_verdict(f"https://{host}/", PLAIN, {host: [["8.8.8.8"]]})
    assert said["verdict"] == "deny"
    assert "an unusual spelling of an IP address" in str(said["reason"])


async def test_without_scripted_answers_the_resolver_of_this_machine_is_asked() -> None:
    # .invalid is never delegated (RFC 6761), so every resolver knows the answer, even without a network
    said = await url_verdict("https://no-such-host.invalid/", PLAIN, None)
    assert said["reason"] == "no-such-host.invalid cannot be resolved"


async def test_the_settings_decide_domains_and_ports() -> None:
    settings = ScrapeSettings(
        allowed_domains=("*.example.com",), denied_domains=("bad.example.com",), ports=(443, 8443)
    )
    dns = {host: [["8.8.8.8"]] for host in ("a.example.com", "bad.example.com", "example.org")}
    verdicts = {
        url: (await url_verdict(url, settings, dns))["verdict"]
        for url in (
            "https://a.example.com:8443/",
            "https://bad.example.com/",
            "https://example.org/",
            "https://a.example.com:444/",
        )
    }
    assert list(verdicts.values()) == ["allow", "deny", "deny", "deny"]


async def test_a_domain_setting_nobody_can_read_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="allowed_domains"):
        await url_verdict("https://example.com/", ScrapeSettings(allowed_domains=("https://x",)), {})
