"""Which tools a turn shows, and why."""

from collections.abc import Mapping, Sequence

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.agent.aids.selection import (
    EmbeddingRanking,
    Inclusion,
    SchemaFilter,
    WordRanking,
    by_words,
    mentioned,
    words,
)
from acp_agent.core.errors import ProviderError, ProviderErrorKind
from acp_agent.core.types import ToolSpec
from tests.rows import each_row
from tests.unit.agent.tool_specs import ALL, BASH, EDIT, ISSUE, PULL, QUERY, READ, SCRAPE, TERSE, WEATHER, of_server

pytestmark = pytest.mark.anyio

TOPICS = ("file", "web", "repository", "database", "weather")


class TopicEmbedder:
    """Places texts by which of a few words they have. Fails, or hangs, as long as it is told to.

    asked   the texts of each request
    """

    def __init__(self, model: str = "fake:topics") -> None:
        self.model = model
        self.asked: list[list[str]] = []
        self.failure: ProviderError | None = None
        self.hangs_after: int | None = None

    async def embed(self, texts: Sequence[str]) -> tuple[tuple[float, ...], ...]:
        self.asked.append([*texts])
        if self.failure is not None:
            raise self.failure
        if self.hangs_after is not None and len(self.asked) > self.hangs_after:
            await anyio.sleep_forever()
        return tuple(self._place(text) for text in texts)

    def _place(self, text: str) -> tuple[float, ...]:
        hits = [float(topic in text.lower()) for topic in TOPICS] + [0.1]
        length = sum(hit * hit for hit in hits) ** 0.5
        return tuple(hit / length for hit in hits)


class Fixed:
    """A ranking that says what it is told, and counts how often it is asked."""

    def __init__(self, scores: Mapping[str, float]) -> None:
        self._scores = scores
        self.asked: list[tuple[str, list[str]]] = []

    async def scores(self, query: str, specs: Sequence[ToolSpec]) -> Mapping[str, float]:
        self.asked.append((query, [spec.name for spec in specs]))
        return self._scores

    def status(self) -> str:
        return "fixed"


def filtering(ranking, *, top_k: int = 1, words: int = 3, always_on: Sequence[str] = ("read", "edit", "bash")):
    return SchemaFilter(ranking, top_k=top_k, min_description_words=words, always_on=always_on)


async def selected(schema_filter: SchemaFilter, prompt: str, specs: Sequence[ToolSpec] = ALL, **boosts: float):
    await schema_filter.begin(prompt, specs, boosts)
    return schema_filter.select(specs)


# -------------------------------------------------------------------------------------------------- the order


async def test_every_tool_is_in_or_out_for_the_first_reason_there_is():
    selection = await selected(filtering(WordRanking()), "run web_scrape and then a SQL query on the database")

    assert selection.included == {
        READ.name: Inclusion.ALWAYS_ON,
        EDIT.name: Inclusion.ALWAYS_ON,
        BASH.name: Inclusion.ALWAYS_ON,
        SCRAPE.name: Inclusion.NAME_MENTIONED,
        QUERY.name: Inclusion.SIMILARITY_RANK,
        TERSE.name: Inclusion.SHORT_DESCRIPTION,
    }
    assert [*selection.excluded] == [ISSUE.name, PULL.name, WEATHER.name]
    assert sorted(rank.place for rank in selection.excluded.values()) == [2, 3, 4]
    assert "rank 2" in {str(rank).partition(",")[0] for rank in selection.excluded.values()}


async def test_always_on_comes_before_a_mention_and_aliases_are_understood():
    selection = await selected(filtering(WordRanking(), always_on=["shell", "Read_File"]), "bash web database")
    assert selection.included[BASH.name] is Inclusion.ALWAYS_ON
    assert selection.included[READ.name] is Inclusion.ALWAYS_ON


async def test_compressing_the_context_is_never_filtered_away():
    compress = ToolSpec("compress_context", "Shorten.", {"type": "object"}, READ.kind, mutates=False)
    selection = await selected(filtering(WordRanking(), always_on=[]), "the database", (*ALL, compress))
    assert selection.included["compress_context"] is Inclusion.ALWAYS_ON


async def test_only_mcp_tools_are_kept_for_a_short_description():
    short = ToolSpec("undo", "Undo.", {"type": "object"}, READ.kind, mutates=True)
    selection = await selected(filtering(WordRanking()), "query the database", (*ALL, short))
    assert "undo" in selection.excluded
    assert TERSE.name in (await selected(filtering(WordRanking(), words=1), "query the database")).excluded


async def test_what_a_tool_prefers_lifts_its_rank():
    ranking = Fixed({ISSUE.name: 0.5, PULL.name: 0.45, QUERY.name: 0.1, SCRAPE.name: 0.1, WEATHER.name: 0.1})
    assert ISSUE.name in (await selected(filtering(ranking), "go")).included
    boosted = await selected(filtering(ranking), "go", ALL, **{PULL.name: 0.15})
    assert boosted.included[PULL.name] is Inclusion.SIMILARITY_RANK
    assert boosted.excluded[ISSUE.name].place == 2


async def test_equals_keep_the_order_of_the_catalogue():
    ranking = Fixed(dict.fromkeys((WEATHER.name, QUERY.name, PULL.name, ISSUE.name, SCRAPE.name), 0.5))
    selection = await selected(filtering(ranking, top_k=2), "go")
    assert [name for name, why in selection.included.items() if why is Inclusion.SIMILARITY_RANK] == [
        SCRAPE.name,
        ISSUE.name,
    ]


# --------------------------------------------------------------------------------------- when nothing is known


@pytest.mark.parametrize("prompt", ["", "  \n", "go on, please", "修正して", "!?"])
async def test_a_prompt_that_says_nothing_of_tools_gets_them_all(prompt):
    selection = await selected(filtering(WordRanking()), prompt)
    assert not selection.excluded
    assert selection.included[ISSUE.name] is Inclusion.NO_EMBEDDING


async def test_nothing_is_compared_when_all_would_be_in_anyway():
    ranking = Fixed({})
    selection = await selected(filtering(ranking, top_k=5), "database")
    assert not selection.excluded
    assert not ranking.asked


async def test_only_tools_that_are_in_doubt_are_compared():
    ranking = Fixed({})
    await selected(filtering(ranking), "web_scrape it")
    assert ranking.asked == [("web_scrape it", [ISSUE.name, PULL.name, QUERY.name, WEATHER.name])]


async def test_before_the_first_turn_and_after_a_clear_all_are_in():
    schema_filter = filtering(WordRanking())
    assert not schema_filter.select(ALL).excluded
    assert (await selected(schema_filter, "query the database")).excluded
    schema_filter.clear()
    assert not schema_filter.select(ALL).excluded


# -------------------------------------------------------------------------------------------- within a turn


async def test_a_tool_that_joins_in_the_middle_of_a_turn_is_shown_and_the_others_stay():
    schema_filter = filtering(WordRanking())
    before = await selected(schema_filter, "query the database")
    late = of_server("notes", "list_notes", "List the notes of this user.")

    after = schema_filter.select((*ALL, late))

    assert after.included == {**before.included, late.name: Inclusion.NO_EMBEDDING}
    assert after.excluded == before.excluded


async def test_a_tool_the_model_called_is_shown_until_the_turn_ends():
    schema_filter = filtering(WordRanking())
    await selected(schema_filter, "query the database")
    schema_filter.refer(PULL.name)
    assert schema_filter.select(ALL).included[PULL.name] is Inclusion.REFERENCED
    assert PULL.name in (await selected(schema_filter, "query the database")).excluded


async def test_status_is_one_line_with_what_is_shown():
    schema_filter = filtering(WordRanking())
    await selected(schema_filter, "query the database")
    assert schema_filter.status(ALL) == (
        "Tool filter: the model is shown 5 of 9 tools: 3 always and 1 that fit best, compared by words, since no "
        "embedding model is set"
    )


# ------------------------------------------------------------------------------------------------- mentions


@each_row(
    "prompt, found",
    [
        ("use read", {"read"}),
        ("READ it.", {"read"}),
        ("`read`, **edit** or _bash_?", {"read", "edit", "bash"}),
        ("read/edit", {"read", "edit"}),
        ("使用bash运行", {"bash"}),
        ("spread, reader, read-only, re-read, read_file, read_overflow, bread", set()),
        ("web_scrape the page", {"web_scrape"}),
        ("web scrape the page", set()),
        ("call mcp_github_create_issue", {ISSUE.name}),
        ("create_issue for this", {ISSUE.name}),
        ("query the forecast now", set()),
        ("xmcp_github_create_issue", set()),
    ],
)
def test_a_name_counts_as_a_word_of_its_own(prompt, found):
    assert mentioned(prompt, ALL) == found


# --------------------------------------------------------------------------------------------------- by words


def test_words_are_split_where_names_are():
    assert words("createIssue web_scrape pages the GitHub") == [
        "createissue", "web", "scrape", "page", "github", "create", "issue", "git", "hub",
    ]  # fmt: skip


def test_the_tool_with_the_rarer_words_fits_best_and_the_best_has_1():
    scores = by_words("merge the pull requests of this repository", ALL)
    assert max(scores, key=scores.__getitem__) == PULL.name
    assert scores[PULL.name] == 1.0
    assert scores[PULL.name] > scores[ISSUE.name] > scores[WEATHER.name] == 0.0
    assert by_words("pull requests", ()) == {}


PROMPTS = st.lists(
    st.sampled_from(
        ["web", "page", "database", "issue", "weather", "read", "merge", "sql", "_", "read_overflow", "go"]
    ),
    max_size=8,
).map(" ".join)


@given(PROMPTS | st.text(max_size=40))
def test_scores_by_words_are_between_0_and_1_and_the_same_every_time(prompt):
    scores = by_words(prompt, ALL)
    assert scores == by_words(prompt, ALL)
    assert all(0.0 <= score <= 1.0 for score in scores.values())


@given(PROMPTS, st.integers(1, 9), st.integers(0, 9), st.sets(st.sampled_from([spec.name for spec in ALL])))
async def test_every_tool_is_on_one_side_with_a_reason(prompt, top_k, min_words, always_on):
    schema_filter = filtering(WordRanking(), top_k=top_k, words=min_words, always_on=sorted(always_on))

    selection = await selected(schema_filter, prompt)

    assert sorted([*selection.included, *selection.excluded]) == sorted(spec.name for spec in ALL)
    assert always_on <= selection.included.keys()
    ranked = [why for why in selection.included.values() if why is Inclusion.SIMILARITY_RANK]
    assert len(ranked) <= top_k
    assert len(ranked) == top_k or not selection.excluded
    assert all(rank.place > top_k for rank in selection.excluded.values())
    assert schema_filter.select(ALL) == selection


# ---------------------------------------------------------------------------------------------- by meaning


async def test_tools_are_ranked_by_their_vectors():
    embedder = TopicEmbedder()
    selection = await selected(filtering(EmbeddingRanking(embedder)), "what do we keep in the database?")
    assert selection.included[QUERY.name] is Inclusion.SIMILARITY_RANK
    assert {*selection.excluded} == {SCRAPE.name, ISSUE.name, PULL.name, WEATHER.name}


async def test_vectors_of_tools_are_asked_for_once_and_again_when_the_text_or_the_model_changes():
    embedder = TopicEmbedder()
    schema_filter = filtering(EmbeddingRanking(embedder))
    await selected(schema_filter, "the database")
    await selected(schema_filter, "the weather")
    assert [len(texts) for texts in embedder.asked] == [6, 1]
    changed = of_server("postgres", "query", "Run any SQL query against the database.", "sql")
    await selected(schema_filter, "the web", [changed if spec is QUERY else spec for spec in ALL])
    assert len(embedder.asked[-1]) == 2
    embedder.model = "fake:other"
    await selected(schema_filter, "the web")
    assert len(embedder.asked[-1]) == 6


async def test_a_failing_model_leaves_all_tools_in_and_status_says_so():
    embedder = TopicEmbedder()
    embedder.failure = ProviderError("connection refused", kind=ProviderErrorKind.NETWORK)
    ranking = EmbeddingRanking(embedder)
    assert not (await selected(filtering(ranking), "the database")).excluded
    assert ranking.status() == "by meaning (fake:topics, 0 texts; connection refused)"
    embedder.failure = None
    assert (await selected(filtering(ranking), "the database")).excluded
    assert ranking.status() == "by meaning (fake:topics, 5 texts)"


async def test_what_came_before_time_was_up_is_used_and_kept():
    embedder = TopicEmbedder()
    embedder.hangs_after = 1
    many = [of_server("big", f"tool_{i:02}", f"Number {i} reads the database of the weather.") for i in range(40)]
    ranking = EmbeddingRanking(embedder, seconds=0.05)

    selection = await selected(filtering(ranking, top_k=3), "the database", many)

    assert [len(texts) for texts in embedder.asked] == [32, 9]
    assert sum(why is Inclusion.NO_EMBEDDING for why in selection.included.values()) == 9
    assert len(selection.excluded) == 31 - 3
    assert "no answer in 0.05 s" in ranking.status()
    embedder.hangs_after = None
    await selected(filtering(ranking, top_k=3), "the database", many)
    assert [len(texts) for texts in embedder.asked[2:]] == [10]


async def test_a_hanging_model_leaves_all_tools_in():
    embedder = TopicEmbedder()
    embedder.hangs_after = 0
    assert not (await selected(filtering(EmbeddingRanking(embedder, seconds=0.01)), "the database")).excluded


async def test_vectors_that_cannot_be_compared_leave_their_tools_in():
    class Odd(TopicEmbedder):
        async def embed(self, texts):
            return tuple(
                (1.0,)
                if "database" in text and "postgres" in text
                else (float("nan"),) * 6
                if "weather" in text
                else place
                for text, place in zip(texts, await super().embed(texts), strict=True)
            )

    selection = await selected(filtering(EmbeddingRanking(Odd())), "a web page")
    assert selection.included[QUERY.name] is selection.included[WEATHER.name] is Inclusion.NO_EMBEDDING
    assert selection.included[SCRAPE.name] is Inclusion.SIMILARITY_RANK


async def test_of_a_long_prompt_head_and_tail_are_compared():
    embedder = TopicEmbedder()
    await selected(filtering(EmbeddingRanking(embedder)), "database " + "x" * 100_000 + " weather")
    query = embedder.asked[0][0]
    assert len(query) < 4_100
    assert query.startswith("database ")
    assert query.endswith(" weather")


async def test_a_secret_in_a_prompt_does_not_reach_the_embedding_model_not_even_half_of_it():
    embedder, secret = TopicEmbedder(), "obviously-fake-passphrase"
    ranking = EmbeddingRanking(embedder, redact=lambda text: text.replace(secret, "[REDACTED]"))
    await selected(filtering(ranking), "x" * 1_990 + secret + "y" * 5_000 + secret)
    assert "obviously" not in embedder.asked[0][0]
    assert embedder.asked[0][0].endswith("[REDACTED]")
