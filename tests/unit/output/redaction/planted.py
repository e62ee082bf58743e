"""Secrets, all made up, in the places they are met in, and what only resembles them."""

_RANDOM = "a8F3kLm9Qz2XvB7nT5wY"
_KEY_LINE = ("MIIE" + _RANDOM * 3)[:64]

SECRETS = [
    (f"export DB_PASSWORD={'hunter2-obviously-fake'}", "hunter2-obviously-fake"),
    (f'"api_key": "{_RANDOM}",', _RANDOM),
    (f'{{\\"token\\": \\"{_RANDOM}\\"}}', _RANDOM),
    (f"'client_secret' => '{_RANDOM}',", _RANDOM),
    ('password: str = "hunter2-obviously-fake"', "hunter2-obviously-fake"),
    ("- name: DB_PASSWORD\n  value: hunter2-obviously-fake", "hunter2-obviously-fake"),
    ("password: |\n  hunter2-obviously-fake", "hunter2-obviously-fake"),
    ("<password>hunter2-obviously-fake</password>", "hunter2-obviously-fake"),
    (f'<add key="ApiKey" value="{_RANDOM}" />', _RANDOM),
    (f"GET https://host/?access_token={_RANDOM}&page=1", _RANDOM),
    (f"X-Api-Key: {_RANDOM}", _RANDOM),
    (f"Authorization: Bearer {_RANDOM}", _RANDOM),
    ("Authorization: Basic dXNlcjpvYnZpb3VzbHktZmFrZQ==", "dXNlcjpvYnZpb3VzbHktZmFrZQ=="),
    (f"Set-Cookie: session={_RANDOM}; Path=/; HttpOnly", _RANDOM),
    ("postgres://bob:obviously/fake1@db:5432/x", "obviously/fake1"),
    (f"git clone https://{_RANDOM}@host/x.git", _RANDOM),
    ("Server=db;User Id=sa;Password=Obviously!Fake1;Database=x", "Obviously!Fake1"),
    (f"AccountName=x;AccountKey={_RANDOM * 3}==;EndpointSuffix=y", _RANDOM * 3),
    ("//registry.host/:_authToken=11111111-2222-3333-4444-555555555555", "11111111-2222-3333-4444-555555555555"),
    ("machine host\n  login bob\n  password obviously-fake1", "obviously-fake1"),
    ("db.host:5432:data:bob:obviously-fake1", "obviously-fake1"),
    ('"auths": {"host": {"auth": "dXNlcjpvYnZpb3VzbHktZmFrZQ=="}}', "dXNlcjpvYnZpb3VzbHktZmFrZQ=="),
    ("mysql -u root -pobviously-fake1 data", "obviously-fake1"),
    ("tool --password obviously-fake1 --verbose", "obviously-fake1"),
    (f'os.environ.setdefault("API_TOKEN", "{_RANDOM}")', _RANDOM),
    (f"-----BEGIN PRIVATE KEY-----\n{_KEY_LINE}\n{_KEY_LINE}\nabc=\n-----END PRIVATE KEY-----", _KEY_LINE),
    (f'"key": "-----BEGIN PRIVATE KEY-----\\n{_KEY_LINE}\\n-----END PRIVATE KEY-----\\n"', _KEY_LINE),
    (f"ghp_{'a1B2' * 9}", f"ghp_{'a1B2' * 9}"),
    (f"SIGNING_KEY={'0123456789abcdef' * 4}", "0123456789abcdef" * 4),
]

INNOCENT = [
    'password = os.environ["X"]',
    "password=${DB_PASSWORD} token: $TOKEN",
    "token=<your-token> api_key: xxxxxxxxxxxx password=********",
    "def login(password: str, token: Optional[str] = None) -> Token:",
    '"password": "Passwort", "hint": "Enter your password"',
    "error: invalid token: unexpected end of input",
    '"max_tokens": 4096, token_count: 12345',
    "commit da39a3ee5e6b4b0d3255bfef95601890afd80709",
    "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    f'"integrity": "sha512-{_RANDOM * 4}=="',
    "sort_key=abc123def456 cache_key: user:1234:profile99 primary_key=id",
    f"ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQ{_RANDOM * 5} me@host",
    f'public_key = "{_RANDOM * 2}"',
    "const token = await getToken(request.headers.token1);",
    "secretName: my-secret-1, password_file: /run/secrets/db1",
    'api_key_env: OPENAI_API_KEY, apiKey: process.env["KEY_1"]',
    f'<img src="data:image/png;base64,iVBORw0KGgo{_RANDOM * 5}">',
    'if header == "-----BEGIN PRIVATE KEY-----":\n    read(body)\n    return key\n',
    f"-----BEGIN CERTIFICATE-----\n{_KEY_LINE}\n-----END CERTIFICATE-----",
    "postgres://$USER:$PASS@host/db https://host:443/a@b",
    "Basic understanding of Bearer authentication is required",
    "id: 12345678-1234-1234-1234-123456789abc",
]

FRAGMENTS = [
    *(text for text, _ in SECRETS),
    *INNOCENT,
    "\n", "\n", " ", "password=", "token: ", '"', "'", "[REDACTED:token]", "[REDACTED", "]",
    "-----END PRIVATE KEY-----",
    "-----BEGIN RSA PRIVATE KEY-----\n", f"{_KEY_LINE}\n", "Bearer ", "://a:", "@", "é✓", "\\n", ";", "&",
]  # fmt: skip


def leaks(secret: str, text: str) -> bool:
    """Whether 12 characters of a secret in a row stand in a text."""
    return any(secret[at : at + 12] in text for at in range(max(1, len(secret) - 11)))
