"""The schema that editors of the file use: as committed, and true."""

import json
import tomllib
from pathlib import Path

import jsonschema
import pytest

from acp_agent.cli.config import schema_text
from acp_agent.config.layers import RULES, keys
from acp_agent.config.settings import config_schema
from tests.rows import each_row

COMMITTED = Path(__file__).parents[3] / "schemas" / "config.schema.json"


def test_the_committed_schema_is_what_the_settings_say():
    made = schema_text(config_schema())
    assert COMMITTED.read_text() == made, "run `acp-agent schema config > schemas/config.schema.json`"


def test_the_schema_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(config_schema())


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("[tools.shell]\ntimeout = 3\n[[tools.permissions.bash]]\npattern = '*'\naction = 'ask'", True),
        ("[tools.shell]\ntime = 3", False),
        ("[agent]\nmax_tool_iterations = 10001", False),
        ("[acp]\nmode = 'x'", False),
    ],
)
def test_the_schema_judges_like_the_loader(loading, text, good):
    validator = jsonschema.Draft202012Validator(config_schema())
    assert validator.is_valid(tomllib.loads(text)) is good
    assert (not loading(text).problems) is good


@each_row("key", [key for name, key in keys().items() if name != RULES])
def test_every_setting_is_described_and_its_examples_are_good(key):
    assert key.info.description
    assert key.info.description.endswith(".")
    for example in key.info.examples or []:
        key.read(example)


def test_the_schema_is_small_enough_for_an_editor():
    assert len(json.dumps(config_schema())) < 64_000
