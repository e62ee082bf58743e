"""Which fields and which sentences ask for a secret, and which only speak of one (ACP "Elicitation")."""

import re

from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.secrets import Secrecy, asks_for_secret, names_secret, secrecy, secrecy_hint
from acp_agent.regex import compiled
from tests.rows import each_row


@each_row(
    "name",
    ["password", "dbPassword", "API_KEY", "apikey", "Access token", "client-secret", "pin", "ssh_key", "Key", "CVV"],
)
def test_a_field_for_a_secret_is_known_by_its_name(name: str):
    assert names_secret(name)


@each_row(
    "name", ["name", "issue_key", "keyboard", "primaryKey", "passenger", "tokenizer", "spinner", "author", "", "\ud800"]
)
def test_other_fields_are_not(name: str):
    assert not names_secret(name)


@each_row(
    "text",
    [
        "Please enter your GitHub password",
        "What is the API key for the staging server?",
        "What\u2019s your npm token?",
        "Paste the private key here:",
        "I need your database credentials to go on",
        "Password:",
        "Give me the access token",
    ],
)
def test_a_sentence_that_asks_for_a_secret_is_known(text: str):
    assert asks_for_secret(text)


@each_row(
    "text",
    [
        "Should passwords be hashed with bcrypt or argon2?",
        "Which type of password hashing do you want?",
        "Should the lexer keep whitespace tokens?",
        "What is the password policy of the project?",
        "Which environment variable holds your API key?",
        "May I pin your dependencies?",
        "What is the primary key of the table?",
        "",
    ],
)
def test_a_sentence_that_only_speaks_of_secrets_is_not(text: str):
    assert not asks_for_secret(text)


_NAMES = (
    *(".env", "a.ENV", ".env.local", ".Ssh", "id_rsa", "config.json", ".docker", "etc", "passwd", "k.PEM", "\uff0epem"),
    *("s*h", "proc", "1", "environ", "gcloud", ".config", "a.pem.txt", "x", "environment", "my.env.d"),
)


@given(st.lists(st.lists(st.sampled_from(_NAMES), min_size=1, max_size=3).map("/".join), max_size=6))
def test_the_hint_finds_every_secret_in_a_list_of_paths_as_in_each(paths: list[str]):
    paths = [f"./{path}" for path in paths]
    listed = "".join(f"{path}\0" for path in paths)
    hint = compiled(secrecy_hint().encode(), lines=True, captures=False, utf8=False, case_sensitive=False)
    ends = [listed[: listed.index("\0", found.start())] for found in re.finditer(secrecy_hint(), listed, re.IGNORECASE)]
    hinted = {path.rpartition("\0")[2] for path in ends}
    assert hinted >= {path for path in paths if secrecy(path) is not Secrecy.OPEN}
    assert all(hint.search(f"{path}\0".encode()) for path in hinted)
    assert all(hint.search(path.encode()) for path in hinted)


def test_a_long_text_costs_little():
    asks_for_secret("your " * 1_000_000)
    names_secret("aB" * 1_000_000)
