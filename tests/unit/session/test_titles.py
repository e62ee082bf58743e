"""The title of a session: at once from the prompt, later from a model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.config.settings import SessionsSettings
from acp_agent.core.errors import ConfigError, ProviderError, ProviderErrorKind
from acp_agent.core.messages import ModelStop
from acp_agent.core.ports import Provider
from acp_agent.session.titles import _SUMMARY_INPUT, _SUMMARY_TOKENS, Summarizer, TitleWriter
from tests.fakes.scripted_provider import ScriptedProvider, Step, say
from tests.rows import each_row

pytestmark = pytest.mark.anyio


def hidden(text: str) -> str:
    return text.replace("hunter2", "[REDACTED]")


class Rig:
    """TitleWriter with a model that plays a script."""

    def __init__(self, *script: Step | ProviderError, **settings: object) -> None:
        self.provider = ScriptedProvider([*script], name="a", model="m")
        self.named: list[str] = []
        self.titles = TitleWriter(SessionsSettings.model_validate(settings), self._model, hidden)

    async def _model(self, name: str) -> Provider:
        self.named.append(name)
        return self.provider


def first(prompt: str, most: int = 60) -> str:
    return Rig(title_max_chars=most).titles.first(prompt, "12345678-9abc")


@each_row(
    "prompt, title",
    [
        ("Fix the tests", "Fix the tests"),
        ("\n\n  Fix\tthe\u202e tests \nand more", "Fix the tests"),
        ("my password is hunter2", "my password is [REDACTED]"),
        (" \n\t", "Session 12345678"),
        ("Mend the parser of the config", "Mend the…"),
        ("Donaudampfschifffahrtsgesellschaft", "Donaudampfs…"),
    ],
)
def test_the_first_title_is_the_prompts_first_words(prompt: str, title: str) -> None:
    assert first(prompt, 12 if "…" in title else 60) == title


@given(prompt=st.text(max_size=300), most=st.integers(10, 80))
def test_a_title_is_one_short_line_whatever_the_prompt(prompt: str, most: int) -> None:
    title = first(prompt, most)
    assert title
    assert len(title) <= max(most, len("Session 12345678"))
    assert title.isprintable() or not title.isascii()
    assert "\n" not in title


@each_row(
    "answer, title",
    [
        ("Fix the failing parser tests", "Fix the failing parser tests"),
        ('"**Fix the `parser`.**"\n\nIt says so.', "Fix the parser"),
        ("# Title: Fix hunter2", "Fix [REDACTED]"),
        ("\u201cFix it\u201d", "Fix it"),
        ("Keep snake_case names", "Keep snake_case names"),
        ("\u202e\x1b[31m\n``", ""),
        ("", ""),
    ],
)
async def test_what_a_model_says_becomes_a_plain_line(answer: str, title: str) -> None:
    assert await Rig(Step(text=answer)).titles.better("hi") == title


async def test_the_model_gets_the_prompt_without_secrets_and_may_say_little() -> None:
    rig = Rig(say("Fine title"), title_provider="b:small")
    assert await rig.titles.better("the key is hunter2 " * 1000) == "Fine title"
    [request] = rig.provider.requests
    assert "[REDACTED]" in request.messages[0].text
    assert "hunter2" not in request.messages[0].text
    assert len(request.messages[0].text) < 4200
    assert (request.tools, request.max_tokens) == ((), 400)
    assert rig.named == ["b:small"]


async def test_a_summary_of_an_output_is_short_and_is_made_of_a_fenced_part_of_it() -> None:
    provider = ScriptedProvider([say(" what matters \n"), ProviderError("down", kind=ProviderErrorKind.NETWORK)])

    async def made() -> ScriptedProvider:
        return provider

    summarize = Summarizer(made)
    assert await summarize("line\n" * 100_000) == "what matters"
    (request,) = provider.requests
    assert (request.max_tokens, request.tools) == (_SUMMARY_TOKENS, ())
    assert len(request.messages[0].text) < _SUMMARY_INPUT + 1000
    assert await summarize("x") == ""


@pytest.mark.parametrize(
    "step", [ProviderError("down", kind=ProviderErrorKind.NETWORK), Step(text="Half a", stop=ModelStop.MAX_TOKENS)]
)
async def test_without_a_good_answer_there_is_no_better_title(step: Step | ProviderError) -> None:
    assert await Rig(step).titles.better("hi") == ""


async def test_where_no_model_is_wanted_or_there_none_is_asked() -> None:
    rig = Rig(say("x"), titles="prompt")
    assert await rig.titles.better("hi") == ""
    assert await Rig(say("x")).titles.better(" ") == ""
    assert rig.named == []

    async def none(_: str) -> None:
        return None

    async def broken(name: str) -> Provider:
        raise ConfigError("[llm]", "model", name, "a configured provider")

    for model in (none, broken):
        assert await TitleWriter(SessionsSettings(), model, str).better("hi") == ""
