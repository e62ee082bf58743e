"""URL forms and DNS answers, each with what must become of it. Judged at the dialler by test_ssrf_table.py."""

from dataclasses import dataclass
from typing import TypeAlias

PUBLIC = "93.184.216.34"
PUBLIC6 = "2606:2800:220:1:248:1893:25c8:1946"

Dns: TypeAlias = dict[str, list[list[str]]]


@dataclass(frozen=True)
class Row:
    """`dials` is every address a connection may go to; empty means the URL is refused.

    dns     the n-th look-up of a host takes the n-th list, the last one repeats
    """

    url: str
    why: str
    dns: Dns
    dials: tuple[str, ...] = ()


def denied(url: str, why: str, dns: Dns | None = None) -> Row:
    # Where a URL is refused by its text, every name would resolve to a public address: only the text can save us.
    return Row(url, why, {"*": [[PUBLIC]]} if dns is None else dns)


def allowed(url: str, why: str, dns: Dns | None = None, *dials: str) -> Row:
    return Row(url, why, {"*": [[PUBLIC]]} if dns is None else dns, dials or (PUBLIC,))


def answering(*answers: str) -> Dns:
    return {"host.example.com": [list(answers)]}


LITERALS = [
    denied(f"https://{host}/", why)
    for host, why in (
        ("127.0.0.1", "loopback"),
        ("127.255.255.254", "all of 127/8 is loopback"),
        ("0.0.0.0", "this host"),
        ("0.1.2.3", "0/8"),
        ("10.0.0.1", "private"),
        ("172.16.0.1", "private, first"),
        ("172.31.255.255", "private, last"),
        ("192.168.1.1", "private"),
        ("169.254.169.254", "cloud metadata"),
        ("169.254.0.1", "link-local"),
        ("100.64.0.1", "CGNAT, first"),
        ("100.127.255.255", "CGNAT, last"),
        ("100.100.100.200", "Alibaba's metadata, inside CGNAT"),
        ("192.0.0.192", "Oracle's metadata, inside protocol assignments"),
        ("168.63.129.16", "Azure's wire server, in a public block"),
        ("192.0.2.1", "documentation"),
        ("198.51.100.7", "documentation"),
        ("203.0.113.9", "documentation"),
        ("198.18.0.1", "benchmarking"),
        ("198.19.255.255", "benchmarking, last"),
        ("192.88.99.1", "6to4 relay"),
        ("224.0.0.1", "multicast"),
        ("239.255.255.255", "multicast, last"),
        ("240.0.0.1", "reserved"),
        ("255.255.255.255", "broadcast"),
        ("127.0.0.1.", "a trailing dot changes nothing"),
        ("[::1]", "loopback"),
        ("[::]", "unspecified"),
        ("[0:0:0:0:0:0:0:1]", "loopback, written out"),
        ("[0000:0000:0000:0000:0000:0000:0000:0001]", "loopback, with zeros"),
        ("[::ffff:127.0.0.1]", "mapped loopback"),
        ("[::ffff:7f00:1]", "mapped loopback in hex"),
        ("[::FFFF:169.254.169.254]", "mapped metadata"),
        ("[::ffff:100.64.0.1]", "mapped CGNAT, which Python calls global"),
        ("[::ffff:0:127.0.0.1]", "translated (SIIT), outside 2000::/3"),
        ("[::127.0.0.1]", "v4-compatible"),
        ("[::8.8.8.8]", "v4-compatible is not routed, whatever is in it"),
        ("[64:ff9b::7f00:1]", "NAT64 loopback"),
        ("[64:ff9b::169.254.169.254]", "NAT64 metadata"),
        ("[64:ff9b:1::1]", "local NAT64"),
        ("[2002:7f00:1::]", "6to4 loopback"),
        ("[2002:a9fe:a9fe::]", "6to4 metadata"),
        ("[2001:0:53aa:64c:0:0:80ff:fffe]", "Teredo"),
        ("[2001:2::1]", "benchmarking"),
        ("[2001:10::1]", "ORCHID"),
        ("[2001:db8::1]", "documentation"),
        ("[3fff::1]", "documentation, the newer block"),
        ("[5f00::1]", "segment routing"),
        ("[fc00::1]", "unique local"),
        ("[fd00:ec2::254]", "AWS metadata over IPv6"),
        ("[fe80::1]", "link-local"),
        ("[fec0::1]", "site-local"),
        ("[ff02::1]", "multicast"),
        ("[100::1]", "discard"),
        ("[4000::1]", "outside what is given out"),
    )
]

SPELLINGS = [
    denied(f"https://{host}/", why)
    for host, why in (
        ("2130706433", "decimal"),
        ("3232235777", "decimal, private"),
        ("0x7f000001", "hex"),
        ("0x7f.0.0.1", "hex part"),
        ("0x7f.0x0.0x0.0x1", "hex parts"),
        ("127.0.0.0x1", "hex last part"),
        ("0X7F.0.0.1", "upper-case hex"),
        ("017700000001", "octal"),
        ("0177.0.0.1", "octal part"),
        ("00000177.0.0.1", "octal with zeros"),
        ("127.0.0.01", "leading zero"),
        ("127.1", "short"),
        ("127.0.1", "short"),
        ("10.1", "short, private"),
        ("0", "shortest"),
        ("127.0.0.1..", "two trailing dots"),
        ("127。0。0。1", "ideographic full stops"),
        ("127．0．0．1", "fullwidth full stops"),
        ("１２７.0.0.1", "fullwidth digits"),
        ("①②⑦.⓪.⓪.①", "circled digits"),
        ("256.256.256.256", "parts too large"),
        ("1.2.3.4.5", "five parts"),
        ("8.8.8.0x8", "hex, public, still no ordinary spelling"),
        ("010.8.8.8", "octal, public, still no ordinary spelling"),
        ("134744072", "decimal of 8.8.8.8"),
        ("[::1%25lo]", "zone id"),
        ("[fe80::1%25eth0]", "zone id"),
        ("[2606:4700:4700::1111%25eth0]", "zone id on a public address"),
        ("[fe80::1%eth0]", "zone id, bare"),
        ("[v1.127.0.0.1]", "IPvFuture"),
        ("[127.0.0.1]", "IPv4 in brackets"),
        ("[::1", "bracket left open"),
        ("%31%32%37.0.0.1", "percent-encoded digits"),
        ("127.0.0.1%00.example.com", "percent-encoded NUL"),
        ("127.0.0.1%2f.example.com", "percent-encoded slash"),
        ("ｌｏｃａｌｈｏｓｔ", "fullwidth letters"),
        ("loc\u00adalhost", "soft hyphen"),
        ("local\u200bhost", "zero-width space"),
        ("ⓛocalhost", "circled letter"),
        ("xn--localhost-.com", "punycode of plain ASCII"),
    )
]

NAMES = [
    denied(f"https://{host}/", why)
    for host, why in (
        ("localhost", "loopback by name"),
        ("LOCALHOST", "case"),
        ("localhost.", "trailing dot"),
        ("app.localhost", "below localhost"),
        ("localhost.localdomain", "loopback by name"),
        ("printer.local", "mDNS"),
        ("metadata.google.internal", "cloud metadata"),
        ("METADATA.google.INTERNAL.", "case and dot"),
        ("instance-data.ec2.internal", "cloud metadata"),
        ("metadata.goog", "cloud metadata under a public zone"),
        ("metadata.tencentyun.com", "cloud metadata under a public zone"),
        ("router.home.arpa", "home network"),
        ("nas.lan", "a private network's zone"),
        ("wiki.CORP", "a private network's zone, upper case"),
        ("printer.home.", "a private network's zone, trailing dot"),
        ("git.intranet", "a private network's zone"),
        ("db.private", "a private network's zone"),
        ("api.default.svc", "a cluster's zone"),
        ("api.default.svc.cluster.local", "a cluster's zone"),
        ("1.0.0.10.in-addr.arpa", "an address written backwards"),
        ("1.0.0.0.ip6.arpa", "an IPv6 address written backwards"),
        ("nas。lan", "an ideographic full stop"),
        ("nas.ｌａｎ", "fullwidth letters"),
        ("nas.%6can", "a percent-encoded letter"),
        ("nas%2elan", "a percent-encoded dot"),
        ("facebookcorewwwi.onion", "Tor"),
        ("intranet", "single label"),
        ("kubernetes", "single label"),
        ("com", "single label, even a real one"),
        ("com.", "single label with a dot"),
        (".example.com", "empty label"),
        ("example..com", "empty label"),
        ("example.com..", "two dots"),
        ("a_b.example.com", "no host name"),
        ("-a.example.com", "label with a leading hyphen"),
        ("a-.example.com", "label with a trailing hyphen"),
        ("a" * 64 + ".example.com", "label too long"),
        (".".join(["abcdefgh"] * 30) + ".com", "name too long"),
        ("exa*mple.com", "no host name"),
        ("$(id).example.com", "no host name"),
    )
]

FORMS = [
    denied("http://example.com/", "plain http"),
    denied("HTTP://example.com/", "plain http, upper case"),
    denied("ftp://example.com/", "another scheme"),
    denied("file:///etc/passwd", "a file"),
    denied("gopher://example.com/", "another scheme"),
    denied("data:text/plain,hello", "no host at all"),
    denied("javascript:alert(1)", "no host at all"),
    denied("view-source:https://example.com/", "a scheme around it"),
    denied("wss://example.com/", "a socket"),
    denied("example.com/", "no scheme"),
    denied("//example.com/", "no scheme"),
    denied("https:example.com", "no authority"),
    denied("https:/example.com", "one slash"),
    denied("https:///example.com", "empty host"),
    denied("https://", "nothing"),
    denied("", "empty"),
    denied("https://:443/", "port without a host"),
    denied("https://user@example.com/", "user"),
    denied("https://user:pass@example.com/", "user and password"),
    denied("https://@example.com/", "empty user"),
    denied("https://example.com@127.0.0.1/", "host hidden behind a user"),
    denied("https://127.0.0.1@example.com/", "user that looks like a host"),
    denied("https://example.com:443@127.0.0.1/", "host and port hidden behind a user"),
    denied("https://example.com\\@127.0.0.1/", "backslash, which browsers take for a slash"),
    denied("https://127.0.0.1\\.example.com/", "backslash"),
    denied("https:\\\\127.0.0.1/", "backslashes"),
    denied("https://example.com\\..\\x", "backslash in the path"),
    denied("https://exa mple.com/", "blank in the host"),
    denied("https://example.com/a b", "blank in the path"),
    denied(" https://example.com/", "leading blank"),
    denied("https://example.com/ ", "trailing blank"),
    denied("https://example.com/\r\nHost: evil", "line break"),
    denied("https://exa\tmple.com/", "tab, which urlsplit drops"),
    denied("https://example.com/\x00", "NUL"),
    denied("https://example.com/\x7f", "DEL"),
    denied("https://example.com/\u3000", "ideographic blank"),
    denied("https://example.com/\u202e", "bidi override"),
    denied("https://example.com/\ud800", "lone surrogate"),
    denied("https://example.com:22/", "port of another service"),
    denied("https://example.com:80/", "port of another service"),
    denied("https://example.com:6379/", "port of another service"),
    denied("https://example.com:0/", "port zero"),
    denied("https://example.com:65536/", "no port"),
    denied("https://example.com:-443/", "no port"),
    denied("https://example.com:4_43/", "a port to int() only"),
    denied("https://example.com:+443/", "a port to int() only"),
    denied("https://example.com:４４３/", "fullwidth digits are a port to int() only"),
    denied("https://example.com:443:80/", "two ports"),
    denied("https://example.com:x/", "no port"),
    denied("https://example.com%40127.0.0.1/", "encoded @"),
    denied("https://example.com%23.127.0.0.1/", "encoded #"),
    denied("https://example.com℀.127.0.0.1/", "a character that normalises to a/c"),
    denied("https://example.com／.127.0.0.1/", "a character that normalises to a slash"),
    denied("https://[::1]example.com/", "address and name in one"),
    denied("https://example.com[::1]/", "name and address in one"),
    denied("https://example.com/" + "a" * 8200, "longer than servers take"),
    denied("https://" + "a." * 4000 + "com/", "a name of thousands of labels"),
]

ANSWERS = [
    denied("https://host.example.com/", why, answering(*answers))
    for answers, why in (
        (["127.0.0.1"], "a public name for loopback"),
        (["10.0.0.1"], "a public name for a private host"),
        (["169.254.169.254"], "a public name for metadata"),
        (["0.0.0.0"], "a public name for this host"),
        (["100.64.0.1"], "a public name for CGNAT"),
        (["::1"], "IPv6 loopback"),
        (["fd00::1"], "unique local"),
        (["fe80::1%eth0"], "with a zone"),
        (["::ffff:10.0.0.1"], "mapped private"),
        (["64:ff9b::a00:1"], "NAT64 private"),
        (["64:ff9b::808:808"], "NAT64, whatever is in it"),
        (["2002:a00:1::1"], "6to4 private"),
        (["255.255.255.255"], "broadcast"),
        ([PUBLIC, "127.0.0.1"], "one of two is forbidden: the last"),
        (["127.0.0.1", PUBLIC], "one of two is forbidden: the first"),
        ([PUBLIC, PUBLIC6, "::1"], "one of three is forbidden"),
        ([f"93.184.216.{n}" for n in range(17)], "seventeen answers"),
        ([], "no answer"),
        (["not an address"], "an answer that is none"),
        (["2130706433"], "an answer in decimal"),
        (["127.1"], "a short answer"),
        ([""], "an empty answer"),
    )
] + [
    denied("https://host.example.com/", "a name nobody knows", {}),
    denied("https://host.example.com:444/", "a port that is not on the list", answering(PUBLIC)),
]

PUBLIC_HOSTS = [
    allowed("https://example.com/", "a plain page"),
    allowed("https://example.com", "no path"),
    allowed("https://EXAMPLE.com/", "case"),
    allowed("HTTPS://example.com/", "case of the scheme"),
    allowed("https://example.com./", "trailing dot"),
    allowed("https://example.com:443/", "port said"),
    allowed("https://example.com:/", "empty port"),
    allowed("https://example.com:0443/", "port with a zero"),
    allowed("https://example.com?q=1", "query without a path"),
    allowed("https://example.com/a?url=http://127.0.0.1/", "an address in the query is only text"),
    allowed("https://example.com/@user", "an @ in the path"),
    allowed("https://example.com/a:b@c", "a colon and an @ in the path"),
    allowed("https://example.com/?mail=a@b.c", "an @ in the query"),
    allowed("https://example.com/%20%2e%2e/", "escapes in the path"),
    allowed("https://example.com/#part", "fragment"),
    allowed("https://example.com/#@127.0.0.1", "an @ in the fragment"),
    allowed("https://example.com#@127.0.0.1:22@x", "a fragment right behind the host"),
    allowed("https://example.com/ü", "a letter in the path"),
    allowed("https://example.com/../../x", "dots in the path"),
    allowed("https://a.b.c.d.example.co.uk/", "many labels"),
    allowed("https://localhost.example.com/", "localhost as a label of a public name"),
    allowed("https://mylocal.com/", "ends like local without the dot"),
    allowed("https://internal.example.com/", "internal as a label"),
    allowed("https://lan.example.com/", "lan as a label"),
    allowed("https://plan.com/", "ends like a private zone without the dot"),
    allowed("https://10.example.com/", "a number as first label"),
    allowed("https://127.0.0.1.example.com/", "an address as the first labels"),
    allowed("https://3com.com/", "a label that starts with a digit"),
    allowed("https://0x.org/", "looks a little like hex"),
    allowed("https://r3---sn-4g5e6nz7.example.com/", "hyphens that IDNA would refuse"),
    allowed("https://xn--bcher-kva.example.com/", "punycode"),
    allowed("https://bücher.example.com/", "an umlaut"),
    allowed("https://BÜCHER.example.com/", "an umlaut in upper case"),
    allowed("https://例え.jp/", "Japanese"),
    allowed("https://例え。jp/", "Japanese with its own full stop"),
    allowed("https://straße.de/", "a letter that older IDNA changes"),
    allowed("https://пример.рф/", "Cyrillic top-level domain"),
    allowed("https://xn--e1afmkfd.xn--p1ai/", "the same in punycode"),
    allowed("https://made-up.test/", "no name of the public DNS, so the address decides"),
    allowed("https://8.8.8.8/", "a public address", None, "8.8.8.8"),
    allowed("https://8.8.8.8./", "a public address with a dot", None, "8.8.8.8"),
    allowed("https://1.1.1.1:443/", "a public address and port", None, "1.1.1.1"),
    allowed("https://172.15.255.255/", "just below a private block", None, "172.15.255.255"),
    allowed("https://172.32.0.1/", "just above a private block", None, "172.32.0.1"),
    allowed("https://100.63.255.255/", "just below CGNAT", None, "100.63.255.255"),
    allowed("https://100.128.0.1/", "just above CGNAT", None, "100.128.0.1"),
    allowed("https://223.255.255.254/", "just below multicast", None, "223.255.255.254"),
    allowed("https://[2606:4700:4700::1111]/", "a public IPv6 address", None, "2606:4700:4700::1111"),
    allowed("https://[2606:4700:4700:0:0:0:0:1111]:443/", "written out", None, "2606:4700:4700::1111"),
    allowed("https://[2001:4860:4860::8888]/", "above the protocol block", None, "2001:4860:4860::8888"),
    allowed("https://[2A00:1450:4001:810::200E]/", "upper case", None, "2a00:1450:4001:810::200e"),
    allowed("https://[::ffff:8.8.8.8]/", "mapped, and the address in it is public", None, "8.8.8.8"),
    allowed("https://host.example.com/", "IPv6 first", answering(PUBLIC6, PUBLIC), PUBLIC6, PUBLIC),
    allowed("https://host.example.com/", "the same twice", answering(PUBLIC, PUBLIC), PUBLIC),
    allowed(
        "https://host.example.com/",
        "sixteen answers",
        answering(*(f"93.184.216.{n}" for n in range(16))),
        *(f"93.184.216.{n}" for n in range(16)),
    ),
    allowed(
        "https://host.example.com/",
        "rebinding: the second look-up would be loopback, and there is none",
        {"host.example.com": [[PUBLIC], ["127.0.0.1"]]},
        PUBLIC,
    ),
    allowed(
        "https://host.example.com/",
        "rebinding to metadata after two addresses",
        {"host.example.com": [["1.1.1.1", "8.8.8.8"], ["169.254.169.254"]]},
        "1.1.1.1",
        "8.8.8.8",
    ),
]

REBINDING = [
    denied(
        "https://host.example.com/",
        "the look-up that counts is the bad one, whatever comes later",
        {"host.example.com": [["127.0.0.1"], [PUBLIC]]},
    ),
    denied(
        "https://host.example.com/",
        "no answer first: it is not asked again",
        {"host.example.com": [[], [PUBLIC]]},
    ),
]

ROWS = [*LITERALS, *SPELLINGS, *NAMES, *FORMS, *ANSWERS, *REBINDING, *PUBLIC_HOSTS]
