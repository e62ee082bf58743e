"""The rule file itself."""

import pytest

from acp_agent.core.redaction import placeholder, placeholders
from acp_agent.output.redaction.assignments import KeyKind, key_of
from acp_agent.output.redaction.redactor import Redactor
from acp_agent.output.redaction.rules import Reads, built_in
from acp_agent.regex import compiled_rule

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


@pytest.mark.parametrize(
    "context", ["{}", 'x("{}");', "see {} there", "é{}é\n", "https://host/?q={}&x=1", "a\\n{}\\n", "q=%22{}%22"]
)
def test_a_token_of_a_known_form_goes_wherever_it_stands(context):
    head, tail = context.split("{}")
    redacted = {token: Redactor()(context.format(token)) for token in TOKENS}
    kept = {token: text.startswith(head) and text.rstrip().endswith(tail.strip()) for token, text in redacted.items()}
    assert not (broken := {token: redacted[token] for token in TOKENS if not kept[token]}), str(broken)
    assert not (broken := {token: text for token, text in redacted.items() if token[12:24] in text}), str(broken)


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("password", KeyKind.PASSWORD), ("dbPassword", KeyKind.PASSWORD), ("SMTP_PASS", KeyKind.PASSWORD),
        ("apiKey", KeyKind.SECRET),
        ("client-secret", KeyKind.SECRET), ("secret_id", KeyKind.SECRET), ("max_tokens", None), ("tokenizer", None),
        ("publicKey", None), ("password_file", None), ("nextToken", None), ("access_key_id", None),
    ],
)  # fmt: skip
def test_a_key_is_judged_by_its_first_and_last_word(key, meant):
    assert key_of(key) is meant
