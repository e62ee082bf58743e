"""What an assignment in code and prose gives away: a secret that stays costs a leak, a name that goes costs an edit."""

import base64
import random

import pytest

from acp_agent.output.redaction import Redactor
from tests.rows import each_row

redact = Redactor()
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
    "a pair that stands alone": [f'os.environ.setdefault("API_TOKEN", "{_RANDOM}")', '["password", "obviously-fake"]'],
}  # fmt: skip


@each_row("kind, text", [(kind, text) for kind, texts in INNOCENT.items() for text in texts])
def test_what_names_no_secret_stays_as_it_is(kind, text):
    assert redact(text) == text, kind
    assert redact(f"    {text}\n    return x\n") == f"    {text}\n    return x\n", kind


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in SECRETS.items() for text in texts])
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
