"""No secret reaches the memory or the model that places notes: real SQLite, the real redactor, the real tool."""

from collections.abc import Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path

import pytest

from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.types import ToolResult
from acp_agent.output.redaction.redactor import Redactor
from acp_agent.output.redaction.rules import KnownSecrets
from acp_agent.session.toolset.settings import RedactedMemories
from acp_agent.store.memories import MemoryStore
from acp_agent.tools.memory import MemorySave, MemorySearch
from tests.unit.store.databases import opened, others
from tests.unit.tools.workbench import Workbench

pytestmark = pytest.mark.anyio

SECRET = "obviously-fake-passphrase-7731"


class Overheard:
    """An Embedder of another vendor, who keeps all he is sent."""

    model = "elsewhere:embed"

    def __init__(self) -> None:
        self.texts: list[str] = []

    async def embed(self, texts: Sequence[str]) -> tuple[tuple[float, ...], ...]:
        self.texts += texts
        return tuple((1.0, 0.5) for _ in texts)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


@asynccontextmanager
async def memories(path: Path, embedder: Overheard):
    known = KnownSecrets()
    known.add((SECRET,))
    async with opened(path) as database:
        store = MemoryStore(database, max_notes=10, max_bytes=8192, embedder=embedder)
        yield RedactedMemories(store, Redactor(known))


async def run(store: RedactedMemories, name: str, **arguments: object) -> ToolResult:
    bench = Workbench(tools=[MemorySave(), MemorySearch()])
    invocation = await bench.understand(name, **arguments)
    context = bench.context(invocation)
    return await invocation.run(replace(context, backends=replace(context.backends, memories=store)))


async def test_neither_the_database_nor_the_embedding_vendor_sees_a_secret(path: Path):
    embedder = Overheard()
    async with memories(path, embedder) as store:
        saved = await run(store, "memory_save", content=f"the staging login is {SECRET}")
        found = await run(store, "memory_search", query=f"login {SECRET}")
        assert found.text.endswith("] the staging login is [REDACTED:known]")
        assert store.method == "words and meaning (elsewhere:embed)"
    assert saved.text == "Saved as note 1, without the secrets in it: placeholders stand in their places"
    assert len(embedder.texts) == 2
    assert all("login" in text and SECRET not in text for text in embedder.texts)
    with closing(others(path)) as connection:
        kept = connection.execute("SELECT content FROM memories").fetchall()
    assert kept == [("the staging login is [REDACTED:known]",)]
    assert all(SECRET.encode() not in file.read_bytes() for file in path.parent.iterdir() if file.is_file())


async def test_a_note_of_plain_words_is_kept_word_for_word(path: Path):
    async with memories(path, Overheard()) as store:
        assert (await run(store, "memory_save", content="uses [REDACTED:x] in docs")).text == "Saved as note 1"
        assert [note.content for note in await store.search("docs", 5)] == ["uses [REDACTED:x] in docs"]


@pytest.mark.parametrize("content", [SECRET, f"  {SECRET}\n{SECRET} ", "[REDACTED:password]"])
async def test_a_note_that_is_nothing_but_secrets_is_refused_and_says_so(path: Path, content: str):
    async with memories(path, Overheard()) as store:
        with pytest.raises(ToolError, match="nothing but a secret") as caught:
            await run(store, "memory_save", content=content)
        assert caught.value.failure.category is ToolErrorCategory.INVALID_PARAMETERS
        assert await store.search("", 5) == ()
