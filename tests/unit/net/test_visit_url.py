"""Pages a user may be sent to: what is shown is where the browser goes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.net.hosts import browser_url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://example.com/login?a=1&b=%20#x", "https://example.com/login?a=1&b=%20#x"),
        ("HTTPS://Example.COM", "https://example.com"),
        ("https://example.com:8443/", "https://example.com:8443/"),
        ("http://localhost:3000/cb", "http://localhost:3000/cb"),
        ("http://[::1]:3000/", "http://[::1]:3000/"),
        ("https://\u0430pple.com/", "https://xn--pple-43d.com/"),  # a Cyrillic a
        ("https://example.com/caf\u00e9", "https://example.com/caf%C3%A9"),
    ],
)
def test_the_host_is_spelt_as_the_dns_has_it_and_the_rest_in_ascii(url: str, shown: str):
    assert browser_url(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/",
        "http://localhost.example.com/",
        "ftp://example.com/",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "//example.com/",
        "https://",
        "https://user@example.com/",
        "https://bank.com%40evil.com@evil.com/",
        "https://example.com\\@evil.com/",
        "https://example.com/\u202emoc",
        "https://exa mple.com/",
        "https://example.com:99999/",
        "https://0x7f.1/",
        "https://example.com/" + "x" * 2048,
        "",
    ],
)
def test_what_may_mislead_is_refused(url: str):
    with pytest.raises(ValueError, match=r"\w"):
        browser_url(url)


@given(st.text(alphabet=st.characters(), max_size=60))
def test_any_text_is_judged_without_another_error(text: str):
    for url in (text, f"https://{text}", f"https://example.com/{text}"):
        try:
            shown = browser_url(url)
        except ValueError:
            continue
        assert shown.isascii()
        assert shown.isprintable()
        assert browser_url(shown) == shown or len(shown) > 2048
