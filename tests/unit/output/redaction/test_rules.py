"""The rule file itself."""

import base64
import json
import threading
from functools import cache
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.secrets import placeholder, placeholders
from acp_agent.output.redaction.assignments import KeyKind, key_of
from acp_agent.output.redaction.redactor import Redactor
from acp_agent.output.redaction.rules import KnownSecrets, Reads, beginnings, built_in
from acp_agent.regex import Regex, compiled_rule
from tests.rows import each_row

RULES = built_in().rules
CATEGORIES = {"api-key", "token", "private-key", "password", "connection-string", "cloud-metadata"}
_HEX = "0123456789abcdef"

TOKENS = [  # made up, of the length and alphabet their issuers publish
    "sk-ant-api03-" + "aB3-" * 12, "sk-proj-" + "aB3_" * 12, "sk-" + "aB3d" * 12, "gsk_" + "aB3d" * 13,
    "hf_" + "aBcD" * 9, "ghp_" + "aB3d" * 9, "ghs_" + "aB3d" * 9, "github_pat_" + "aB3_" * 20, "glpat-" + "aB3d" * 5,
    "npm_" + "aB3d" * 9, "pypi-AgEIcHlwaS5vcmc" + "aB3d" * 12, "dckr_pat_" + "aB3_" * 7, "AKIA" + "ABCD2345" * 2,
    "AIza" + "aB3_d" * 7, "GOCSPX-" + "aB3_" * 7, "ya29." + "aB3_" * 10, "xoxb-123456789012-" + "aB3d" * 6,
    "sk_live_" + "aB3d" * 6, "rk_test_" + "aB3d" * 6, "whsec_" + "aB3d" * 8, "SG." + "aB3d" * 5 + "." + "aB3d" * 10,
    "SK" + _HEX * 2, "key-" + _HEX * 2, f"{_HEX * 2}-01234567-89abcdef", f"{_HEX * 2}-us12", "shpat_" + _HEX * 2,
    "123456789:AA" + "aB3_d" * 7, "M" + "aB3d" * 6 + ".aB3dEf." + "aB3d" * 7, "sq0atp-" + "aB3d" * 6,
    "EAAA" + "aB3d" * 15, "dop_v1_" + _HEX * 4, "HRKU-" + "aB3d" * 15, "hvs." + "aB3d" * 8,
    "aB3dEfGh123456.atlasv1." + "aB3d" * 16, "dapi" + _HEX * 2, "NRAK-" + "ABC4" * 7,
    "glsa_" + "aB3d" * 8 + "_0123abcd", "glc_" + "aB3d" * 12, "sntrys_" + "aB3d" * 16, "lin_api_" + "aB3d" * 10,
    "ntn_" + "aB3d" * 12, "patAbCdEf1234567h." + _HEX * 4, "ATATT3xFfGF0" + "aB3d" * 20, "sbp_" + (_HEX * 3)[:40],
    "pscale_tkn_" + "aB3_" * 10, "phx_" + "aB3d" * 10, "dp.pt." + "aB3d" * 10, "AGE-SECRET-KEY-1" + "QPZR" * 14,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NSJ9." + "aB3_" * 10, "fo1_" + "aB3_" * 10, "tskey-auth-" + "aB3d" * 6,
    "PMAK-" + _HEX + "01234567-" + _HEX * 2 + "01", "rubygems_" + _HEX * 3, "nvapi-" + "aB3_" * 16,
    "abc8Q~" + "aB3_" * 9, "LTAI" + "aB3d" * 5, "cio" + "aB3d" * 8, "lsv2_pt_" + _HEX * 2 + "_0123456789",
]  # fmt: skip


def test_there_are_enough_kinds_each_named_once_and_in_a_known_category():
    assert len(RULES) >= 60
    assert len({rule.name for rule in RULES}) == len(RULES)
    assert {rule.category for rule in RULES} == CATEGORIES
    assert all(placeholders(placeholder(rule.category)) for rule in RULES)


def test_every_rule_compiles_and_matches_nothing_empty():
    regexes = [(rule, compiled_rule(rule.pattern, lines=rule.lines)) for rule in RULES]
    assert not (broken := [rule.name for rule, regex in regexes if regex.search(b"", 0, 0)]), str(broken)
    assert not (broken := [rule.name for rule in RULES if compiled_rule(rule.starts).search(b"", 0, 0)]), str(broken)
    broken = [rule.name for rule, regex in regexes if rule.reads is Reads.ASSIGNMENT and regex.groups == 0]
    assert not broken, str(broken)
    assert not (broken := [rule.name for rule in RULES if rule.opens and not rule.lines]), str(broken)


def test_the_edge_of_a_word_is_compiled_once_for_all_rules_that_begin_there():
    every = compiled_rule(beginnings(rule for rule in RULES if not rule.keyed), captures=False)
    assert every.programsize < 6_000  # 21,000 with an edge for each rule, which takes six times as long to compile


_PIECES = st.sampled_from(
    [*TOKENS, "\n", " ", "\\n", "%22", "[31m", "x", '"', "=", "secret_", "AKCp9", "docker login -p ", "pat.", "é"]
)


@pytest.mark.parametrize("keyed", [False, True])
@given(st.lists(_PIECES, max_size=8))
def test_all_rules_together_begin_where_the_first_of_each_alone_begins(keyed: bool, pieces: list[str]):
    of_kind = [rule for rule in RULES if rule.keyed is keyed]
    data = "".join(pieces).encode()
    alone = (match.start() for rule in of_kind if (match := _alone(rule.starts).search(data, 0, len(data))))
    together = _alone(beginnings(of_kind)).search(data, 0, len(data))
    assert (None if together is None else together.start()) == min(alone, default=None)


@cache
def _alone(starts: str) -> Regex:
    return compiled_rule(starts, captures=False)


@each_row("context", ["{}", 'x("{}");', "see {} there", "é{}é\n", "https://host/?q={}&x=1", "a\\n{}\\n", "q=%22{}%22"])
def test_a_token_of_a_known_form_goes_wherever_it_stands(context):
    head, tail = context.split("{}")
    redacted = {token: Redactor()(context.format(token)) for token in TOKENS}
    kept = {token: text.startswith(head) and text.rstrip().endswith(tail.strip()) for token, text in redacted.items()}
    assert not (broken := {token: redacted[token] for token in TOKENS if not kept[token]}), str(broken)
    assert not (broken := {token: text for token, text in redacted.items() if token[12:24] in text}), str(broken)


@each_row(
    "key, meant",
    [
        ("password", KeyKind.PASSWORD), ("dbPassword", KeyKind.PASSWORD), ("SMTP_PASS", KeyKind.PASSWORD),
        ("apiKey", KeyKind.SECRET),
        ("client-secret", KeyKind.SECRET), ("secret_id", KeyKind.SECRET), ("max_tokens", None), ("tokenizer", None),
        ("publicKey", None), ("password_file", None), ("nextToken", None), ("access_key_id", None),
    ],
)  # fmt: skip
def test_a_key_is_judged_by_its_first_and_last_word(key, meant):
    assert key_of(key) is meant


VALUE = 'obviously fake/key+é"1'


def knowing(*values):
    known = KnownSecrets()
    known.add(values)
    return Redactor(known, enabled=False)


@each_row(
    "form",
    [
        VALUE,
        base64.b64encode(VALUE.encode()).decode(),
        base64.urlsafe_b64encode(VALUE.encode()).decode(),
        quote(VALUE, safe=""),
        quote(VALUE),
        quote_plus(VALUE),
        quote(VALUE, safe="").replace("%2F", "%2f").replace("%C3%A9", "%c3%a9").replace("%2B", "%2b"),
        json.dumps(VALUE)[1:-1],
        json.dumps(VALUE, ensure_ascii=False)[1:-1],
        VALUE.encode().hex(),
        VALUE.encode().hex().upper(),
    ],
)
def test_a_value_goes_in_every_form(form):
    redacted = knowing(VALUE).redact(f"x {form} y")
    assert redacted.text == "x [REDACTED:known] y"
    assert redacted.found == {"known": 1}


@given(st.binary(max_size=9), st.binary(max_size=9), st.sampled_from([base64.b64encode, base64.urlsafe_b64encode]))
def test_base64_of_a_text_around_the_value_keeps_next_to_none_of_it(before, after, encode):
    secret = "obviously-fake-own-key-0123"
    redacted = knowing(secret)(encode(before + secret.encode() + after).decode())
    assert "[REDACTED:known]" in redacted
    kept = redacted.replace("[REDACTED:known]", "")
    assert len(kept) <= (len(before) + len(after) + 2) * 4 / 3 + 6


def test_hexadecimal_digits_go_where_they_stand_among_others_and_of_long_values_they_are_not_searched_for():
    assert knowing(VALUE)(f"0a{VALUE.encode().hex()}0a") == "0a[REDACTED:known]0a"
    long = VALUE * 100
    assert knowing(long)(long.encode().hex()) == long.encode().hex()


def test_values_shorter_than_eight_characters_are_ignored():
    assert knowing("seven77", "  short  ")("seven77 short") == "seven77 short"
    assert knowing(" eight888\n")("<eight888>") == "<[REDACTED:known]>"


def test_of_two_values_that_begin_alike_the_longer_goes():
    assert knowing("obviously-fake", "obviously-fake-longer")("obviously-fake-longer") == "[REDACTED:known]"


def test_a_value_of_our_own_words_does_not_loop():
    assert knowing("REDACTED:known")("a REDACTED:known b") == "a [REDACTED:known] b"


def test_values_added_later_count_and_many_threads_may_add():
    known = KnownSecrets()
    redact = Redactor(known)
    assert redact("obviously-fake-3-3") == "obviously-fake-3-3"
    threads = [
        threading.Thread(target=lambda n=n: [known.add([f"obviously-fake-{n}-{k}"]) for k in range(10)])
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n in range(4):
        assert redact(f"obviously-fake-{n}-9") == "[REDACTED:known]"


def test_a_value_of_several_lines_is_found_in_a_stream():
    stream = knowing("first line\nsecond line\nthird").stream()
    given_back = [stream.feed(piece) for piece in ("a\nfirst line\n", "second line\n", "third b\n")]
    assert given_back == ["a\n", "", "[REDACTED:known] b\n"]


@pytest.mark.parametrize("count", [1, 10, 300])
def test_few_values_and_many_are_found_together_with_what_the_rules_find(count):
    known = KnownSecrets()
    known.add([f"obviously-fake-{number:03}-value" for number in range(count)] + ["first line\nsecond line"])
    text = f"a obviously-fake-{count - 1:03}-value b\npassword=hunter2abc\nfirst line\nsecond line\n"
    redacted = Redactor(known).redact(text)
    assert redacted.text == "a [REDACTED:known] b\npassword=[REDACTED:password]\n[REDACTED:known]\n"
    assert redacted.found == {"known": 2, "password": 1}
