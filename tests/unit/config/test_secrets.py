"""Keys never show: not in a repr, not in a problem, not where they were put by mistake."""

import pytest

from acp_agent.config.section import secret_values, shown
from tests.rows import each_row

KEY = "sk-obviously-fake-0123456789"


def everything(loaded) -> str:
    return repr(loaded) + str(loaded.settings) + "\n".join(map(str, loaded.problems))


@pytest.mark.parametrize(
    "text",
    [
        f"[[llm.providers]]\nname = 'x'\ntype = 'openai'\napi_key = '{KEY}'",
        f"[[llm.providers]]\nname = 'x'\ntype = 'openai'\napi_key_env = '{KEY}'",
        f"[[llm.providers]]\ntype = 'openai'\napi_key = '{KEY}'",
        f"[[llm.providers]]\nname = 'x'\ntype = 'openai'\nbase_url = 'https://me:{KEY}@h/v1'",
        f"[llm]\napi_key = '{KEY}'",
        f"[llm.openai]\ntoken = '{KEY}'",
        f"[openai]\nsecret = ['{KEY}']",
        f"password = '{KEY}'",
    ],
)
def test_a_key_written_into_the_file_is_not_repeated(loading, text):
    loaded = loading(text)
    assert loaded.problems
    assert KEY not in everything(loaded)


def test_a_key_of_the_environment_is_not_repeated_wherever_else_it_was_pasted(loading):
    loaded = loading(
        f"[llm]\nmodel = '{KEY}'\n[acp]\nmode = '{KEY}'\n[logging]\nlvl = '{KEY}'",
        environ={"OPENAI_API_KEY": KEY, "ACP_AGENT_X__NAME": KEY, "ACP_AGENT_OPENAI__KEY": "short"},
    )
    assert len(loaded.problems) == 5
    assert KEY not in everything(loaded)
    assert '"short"' not in everything(loaded)


def test_a_name_that_only_sounds_secret_is_shown_when_it_is_a_number(loading):
    loaded = loading("[[llm.providers]]\nname = 'x'\ntype = 'openai'\nmax_tokens = 0")
    assert "max_tokens = 0: expected a whole number from 1" in str(loaded.problems[0])


def test_secret_values_are_those_of_secret_names_and_long_enough_to_be_no_word():
    environ = {
        "A_API_KEY": "k" * 20,
        "GITHUB_TOKEN": "t" * 21,
        "DB_PASSWORD": "p" * 22,
        "PGPASSWD": "q" * 23,
        "SHORT_KEY": "abc",
        "HOME": "/home/somebody",
        "KEYBOARD": "querty-querty",
    }
    assert secret_values(environ) == ("q" * 23, "p" * 22, "t" * 21, "k" * 20)


def test_everyday_values_are_no_secrets_whatever_their_names_say():
    environ = {
        "POSTGRES_PASSWORD": "postgres",
        "MINIO_SECRET_KEY": "minioadmin",
        "CI_JOB_TOKEN": "disabled",
        "A_TOKEN": "${OTHER_TOKEN}",
        "B_TOKEN": "Undefined",
        "C_PASSWORD": "changeme123",
        "D_PASSWORD": "xxxxxxxx",
        "GOOGLE_APPLICATION_CREDENTIALS": "/etc/google/application-credentials.json",
        "SSH_KEY": "/home/u/.ssh/id_rsa",
        "SSL_KEY": "certificates/server.key",
        "DEPLOY_KEY": "~/.ssh/deploy key",
        "PWD": "/home/user/project",
    }
    assert secret_values(environ) == ()


@each_row(
    "name, value",
    [
        ("GH_PAT", "obviously-fake-1"),
        ("DB_PASS", "hunter2abc"),
        ("DB_PWD", "hunter2abc"),
        ("SENTRY_DSN", "https://abc@o0.example/1"),
        ("AWS_SECRET_ACCESS_KEY", "/Zk3fFAKE8hrel1wU7Cjl+kL9Qz2XvB7nT5wYr4U"),
        ("A_PASSWORD", "correct horse battery staple"),
        ("A_TOKEN", "zqkfjwpvnxtrmlhgdscb"),
    ],
)
def test_values_that_stand_nowhere_by_chance_are_secrets(name, value):
    assert secret_values({name: value, "PATTERN": value, "COMPASS": value}) == (value,)


def test_a_shown_value_is_short_whatever_it_is():
    deep: list[object] = []
    for _ in range(500):
        deep = [deep]
    assert shown("x", deep) == '[[[[["…"]]]]]'
    assert len(shown("x", "y" * 10_000)) == 100
    assert shown("x", None) == ""
