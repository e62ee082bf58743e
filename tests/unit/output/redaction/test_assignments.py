"""`key = value` in dense texts: what is quick says what the slow way says."""

import base64
import random
import string

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from acp_agent.output.redaction.assignments import KeyKind, Meaning, assigned, pairs
from acp_agent.output.redaction.redactor import Redactor
from acp_agent.output.redaction.rules import built_in
from tests.rows import each_row

redact = Redactor()
letters = st.text(string.ascii_letters + string.digits, min_size=20, max_size=60)
numbers = st.from_regex(r"\A[0-9TZ]{18,24}(?:[smhdkKMGB%]|ms|[kKMG]i?B)?\Z")
names = st.from_regex(r"\A(?:[A-Z][a-z]{2,6}[0-9]?){4,8}\Z|\A[a-z]{18,24}[0-9]{1,3}\Z|\A(?i:changeme)[0-9]{12,16}\Z")


@given(
    st.sampled_from(["token", "password", "PASS", "api_key", "dbSecret"]),
    st.sampled_from(["=", ": ", " = ", ":", "=>"]),
    st.sampled_from(["", '"', "'"]),
    letters | numbers | names,
    st.sampled_from(["", " ", "\n", " and more", " (", " = 1", ", b"]),
)
@example("token", "=", "", "12345678901234567890ms", "")
@example("token", "=", "", "Abcd1Efgh2Ijkl3Mnop4", "")
@example("token", "=", '"', "AAAAB3NzaC1yc2EAAAADAQABAAABgQ", "")
def test_a_value_that_is_clear_at_a_glance_is_one_that_is_looked_at_closely(key, sign, quote, value, after):
    data = f"{key}{sign}{quote}{value}{quote}{after}".encode()
    given_away = list(pairs(data, 0, len(data), lambda _: Meaning(KeyKind.SECRET, "token", random=False)))
    closely = assigned(data, (0, len(key)), sign.encode(), len(key + sign), len(data))
    assume(given_away or closely)
    assert [span[:2] for span in given_away[:1]] == [closely]


@pytest.mark.parametrize(
    "text",
    [
        "prompt_tokens=12 completion_tokens=4096 total_tokens=4108",
        '{"max_tokens":4096,"usage":{"prompt_tokens":1234567,"completion_tokens":7654321}}',
        "password=[REDACTED:password] token: [REDACTED] 'api_key': '[REDACTED:api-key]'",
    ],
)
def test_what_counts_or_was_redacted_stays(text):
    assert redact(text) == text


@each_row("key", ["FOO_KEY", "x.FOO_KEY", "\\nFOO_KEY", "%22FOO_KEY", "\x1b[1;31mFOO_KEY", "\\033[31mFOO_KEY"])
def test_any_key_of_an_environment_file_counts_where_the_value_is_random(key):
    assert redact(f"{key}=a8F3kLm9Qz2XvB7n") == f"{key}=[REDACTED:api-key]"
    assert redact(f"{key}=some/thing") == f"{key}=some/thing"


@each_row("before", ["\\n", "\\u0022", "%20", "\x1b[0m", "\\e[1;32m", "?x=1&", "[31m"])
def test_a_key_is_read_without_the_escape_or_colour_before_it(before):
    assert redact(f"{before}max_tokens=a8F3kLm9Qz2XvB7n") == f"{before}max_tokens=a8F3kLm9Qz2XvB7n"
    assert redact(f"{before}Password=a8F3kLm9") == f"{before}Password=[REDACTED:password]"


def test_assignments_within_a_value_that_went_are_not_counted_again():
    assert redact.redact('password="a token=a8F3kLm9Qz2XvB7n 4b"').found == {"password": 1}


def test_keys_that_differ_by_a_number_mean_the_same():
    text = "\n".join(f"API_KEY_{number}=a8F3kLm9Qz2XvB7n{number}" for number in range(6000))
    assert redact.redact(text).found == {"api-key": 6000}
    assert len(built_in()._meanings) < 4096


_RANDOM = "a8F3kLm9Qz2XvB7nT5wY"

INNOCENT = {
    "a type": [
        "pub secret: Option<String>,", "function login(user: string, password: string): Promise<Session> {",
        "token: OAuth2Token", "private_key: PKCS7PrivateKeyTypes,", "ssh_key: FileDescriptorOrPath | None",
        "def __init__(self, password: bytes):", "'secret': 'V1SecretProjection'", "var tokens: list<string> = x",
        "visit_tokens: bool=True) -> None",
    ],
    "a call, an index, an expression": [
        "password = enforce_bytes(proxy_auth[1], name='x')", "token = b64encode(userpass).decode()",
        "BasicAuth(username=auth[0], password=auth[1])", "password=parts['password'],",
        'userpass = username + b":" + password', "tokens = expand_tokens(html2_tokens[j1:j2])",
        "KEY_SHA256_TOKEN = Base64Sha256FromBase64EncryptionKey(x)", "}else if(token === LEFT_BRACE){",
        "token_history=[last_token], x", "UNEXPECTED: token::Kind", '"password": my_password_1, "x": y_1',
    ],
    "the key once more": [
        "request(encryption_key_sha256=encryption_key_sha256)", "clientSecret = client_secret",
        "('OAUTH2_CLIENT_SECRET', 'oauth2ClientSecret')",
    ],
    "a word of a list": [
        "LOGINS = ('.netrc', '.pgpass', '.my.cnf', '.htpasswd')", '("echo", "pwd", "basename", "cat")',
        '"--password", "--load-cookies", "--user"', "('backupskip','backupskip'),",
        "['username', 'password', 'repository'], ''",
    ],
    "a setting of what handles passwords": [
        'PASSWORD_HASHER = "argon2"', "PASSWORD_HASHER=argon2id", '"password_hasher": "bcrypt13",',
        'password_field = "password"', 'TOKEN_URL = "https://auth.example.com/oauth/token"',
        'PASSWORD_SCHEME = "sha512crypt"', 'PASSWORD_BACKEND = "ldap3"', 'KEY_DERIVATION = "hmac512"',
    ],
    "a declaration, or a place that holds it": [
        "secret_key: str", 'api_key=os.environ["X"]', "for secret_key in self.secret_keys:", "secret_key: str | bytes,",
        'apiKey: process.env["API_KEY2"]!,', 'DB_PASSWORD = ENV.fetch("DB_PASSWORD1")',
    ],
    "a regular expression or a template": [
        r'TOKEN = r"[!#$%&*+\-.^_|~0-9A-Za-z]{1,}"', r"token = r'[^\W\d]\w*'", 'token.markup = "########"[:2]',
        'print(f"password={password!r}")', 'user_pass = "%s:%s" % (a, b)', '"access_token":"%(TOKEN)s"',
        'access_token = "InvalidToken:%s:%s" % x',
    ],
    "a name, a version, a place": [
        '"minipass": "^7.0.4"', '"fs-minipass": "3.x"', "arn:aws:secretsmanager:eu-west-1:1234:secret:prod/db-oaOA9U",
        "tests/test_token.py::test_password_is_hashed[a12214bd] PASSED", "METADATA_KEY = 'pydantic-mypy-metadata'",
        "def test_draft202012_validator_is_chosen(self):", "--- PASS: TestSomething-2 (0.00s)", "PASS: shtest-format2",
        "--- PASS: TestCodec100 (0.00s)",
        "SEC_E_INVALID_TOKEN: Final = 0x80090308", "kms_key: projects/p-1/locations/us-east1/keyRings/my-ring/x",
        "password_encryption = scram-sha-256", "service_account: robot@project.example.com",
        "<protocol>://[<user>[:<password>]@]<hostname>[:<port>]",
    ],
}  # fmt: skip

SECRETS = {
    "words with a blank between": [
        f"INFO Encryption key: {'0123456789abcdef' * 4}", f"Wandb api key: {'0123456789abcdef' * 2}01234567",
    ],
    "a path and a password of Oracle": [f"jdbc:oracle:thin:scott/{_RANDOM}@//db.internal:1521/XEPDB1"],
    "letters alone, mixed as no words are": [
        '"password": "QGPegaKELZDFYMVVf"', "define('DB_PASSWORD', 'QGPegaKELZDFYMVVf');",
        "Smtp pass: NhDEUFAKEZBjpUPl",
    ],
    "a sign of equality inside": ["root-password: KMC=KelsFAKE3?f^x?KY", "db.password=KMC=KelsFAKE3?f^x?KY"],
    "user and password in base64, in any character set": [
        '"auths": {"host": {"auth": "ZmFrZTpDSCqa6wMbFAKEjcHnIM8IsoUX7NL="}}',
        "_auth=ZmFrZTpDSCqa6wMbFAKEjcHnIM8IsoUX7NL=",
    ],
    "an element": [f"<password>{_RANDOM}</password>", f"<apiKey><![CDATA[{_RANDOM}]]></apiKey>"],
    "a word that could name a hasher": ['PASSWORD = "argon2"', "DB_PASSWORD=argon2id8"],
    "a pair that stands alone": [f'os.environ.setdefault("API_TOKEN", "{_RANDOM}")', '["password", "obviously-fake"]'],
}  # fmt: skip


@each_row("kind, text", [(kind, text) for kind, texts in INNOCENT.items() for text in texts])
def test_what_names_no_secret_stays_as_it_is(kind, text):
    assert redact(text) == text, kind
    assert redact(f"    {text}\n    return x\n") == f"    {text}\n    return x\n", kind


@each_row("kind, text", [(kind, text) for kind, texts in SECRETS.items() for text in texts])
def test_what_gives_a_secret_away_goes(kind, text):
    once = redact(text)
    assert once.count("[REDACTED:") == 1, kind
    assert redact(once) == once


@pytest.mark.parametrize("width", [60, 64, 76, 200])
def test_base64_of_nothing_in_particular_holds_no_token(width):
    data = base64.b64encode(random.Random(width).randbytes(300_000)).decode()
    text = "\n".join(data[at : at + width] for at in range(0, len(data), width))
    assert not redact.redact(text).found


def test_a_value_of_many_parts_takes_time_that_grows_with_it_and_not_faster():
    for part in ("aaaaaaa_", "AAAA", "a.", "aa1", "Aa", "a/b-c", "a[b", "x_1-"):
        assert isinstance(redact("token: " + part * 4000 + "!"), str)
        assert isinstance(redact('password = "' + part * 4000 + '!"'), str)


@pytest.mark.parametrize("opening", ["$(a", "{{", "{{a", "{", "$("])
def test_templates_that_are_never_closed_are_searched_once(opening):
    """In 60 KB of them the search once began anew at each one and read to the end, which took a minute."""
    assert isinstance(redact('password = "' + opening * 20_000 + ')x"'), str)
    assert redact.json({"token": opening * 20_000 + ")x"})


@pytest.mark.parametrize("template", ["{{ a {{ b }}", "x{{{ b }}}", "$(get $(one)", "$(get $(1)", "a$(get one)"])
def test_a_template_within_another_one_is_no_secret(template):
    text = f'password = "{template}"'
    assert redact(text) == text
