"""Conversations as people have them with a coding agent, written once for every model API.

A conversation is a list of steps: what the user says, what the model answers, what its tools gave. The answers are
played to us and to the vendor's own SDK as the same bytes; the rest each side puts into its own words.
"""

import base64
from dataclasses import dataclass, field
from typing import TypeAlias

from acp_agent.core.types import ImagePart, JsonObject, ToolKind, ToolSpec
from tests.sizes import sized

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\nnot really").decode()


@dataclass(frozen=True)
class Say:
    """The user: texts and pictures, in this order."""

    texts: tuple[str, ...]
    images: tuple[ImagePart, ...] = ()


@dataclass(frozen=True)
class Call:
    """A tool call, its arguments as the model wrote them: JSON text."""

    id: str
    name: str
    arguments: str

    def wire(self) -> dict[str, str]:
        """As `streams` takes it."""
        return {"id": self.id, "name": self.name, "arguments": self.arguments}


@dataclass(frozen=True)
class Answer:
    """The model. `text` and `thought` come in these pieces."""

    text: tuple[str, ...] = ()
    calls: tuple[Call, ...] = ()
    thought: tuple[str, ...] = ()


@dataclass(frozen=True)
class Result:
    """What one tool gave."""

    text: str
    is_error: bool = False
    images: tuple[ImagePart, ...] = ()


@dataclass(frozen=True)
class Results:
    """What the tools of the last answer gave, in order; and what the user said at once after them."""

    results: tuple[Result, ...]
    texts: tuple[str, ...] = ()


Step: TypeAlias = Say | Answer | Results


@dataclass(frozen=True)
class Conversation:
    """Each answer is one request. `lacks` names the formats that cannot say it."""

    name: str
    steps: tuple[Step, ...]
    system: str = "You are a coding agent.\nBe brief."
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int | None = None
    thinking: bool = False
    lacks: frozenset[str] = field(default_factory=frozenset[str])

    @property
    def answers(self) -> tuple[Answer, ...]:
        """What the model says, request by request."""
        return tuple(step for step in self.steps if isinstance(step, Answer))


def _tool(name: str, description: str, properties: JsonObject, *required: str) -> ToolSpec:
    schema: JsonObject = {"type": "object", "properties": properties, "required": [*required]}
    return ToolSpec(name, description, schema, ToolKind.OTHER, mutates=False)


BASH = _tool("bash", "Run a command.", {"command": {"type": "string"}, "timeout": {"type": "number"}}, "command")
READ = _tool(
    "read",
    "Read a file.",
    {"path": {"type": "string"}, "offset": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}},
    "path",
)
TREE = _tool(
    "tree",
    "Nested parameters — with “quotes”, ünïcode and a\u2028separator.",
    {
        "filters": {
            "type": "array",
            "items": {"type": "object", "properties": {"kind": {"enum": ["a", "b"]}}, "additionalProperties": False},
        }
    },
)
_TOOLS = (BASH, READ)
_LS = Call("call_1", "bash", '{"command": "ls -la"}')
_CAT = Call("call_2", "read", '{"path": "src/main.py", "offset": 10}')


def _image(data: str = PNG, mime_type: str = "image/png") -> ImagePart:
    return ImagePart(data, mime_type)


def _rounds(count: int) -> tuple[Step, ...]:
    """A long history: calls, results and words, again and again."""
    steps: list[Step] = [Say(("Mend all tests.",))]
    for number in range(count):
        steps.append(
            Answer((f"Step {number}.",), (Call(f"call_{number}", "bash", f'{{"command": "make t{number}"}}'),))
        )
        steps.append(Results((Result(f"ok {number}\n" * 3, is_error=number % 3 == 2),)))
    return (*steps, Answer(("Done.",)))


def _talk(count: int) -> tuple[Step, ...]:
    steps: list[Step] = []
    for number in range(count):
        steps += [Say((f"Question {number}?",)), Answer((f"Answer {number}", "."))]
    return tuple(steps)


_NO_PICTURES_IN_RESULTS = frozenset({"ollama"})
_BREAKS_ITS_CLIENT = frozenset({"ollama"})  # which takes U+2028 in an answer for the end of a line

CONVERSATIONS = (
    Conversation("one word", (Say(("hi",)), Answer(("Hello.",)))),
    Conversation("no system prompt", (Say(("hi",)), Answer(("Hello.",))), system=""),
    Conversation("an answer in many pieces", (Say(("Tell me.",)), Answer(tuple("naïve 😀 answer")), *_talk(1))),
    Conversation("three questions", _talk(3)),
    Conversation("many questions", _talk(sized(8, 30))),
    Conversation("a limit on the answer", _talk(2), max_tokens=777),
    Conversation("tools that are not used", _talk(2), tools=_TOOLS),
    Conversation("a tool with nested parameters", _talk(1), tools=(TREE, *_TOOLS)),
    Conversation(
        "one call",
        (Say(("ls",)), Answer((), (_LS,)), Results((Result("a.py\nb.py"),)), Answer(("Two.",))),
        tools=_TOOLS,
    ),
    Conversation(
        "words before a call",
        (Say(("ls",)), Answer(("Let me ", "look."), (_LS,)), Results((Result("a.py"),)), Answer(("One.",))),
        tools=_TOOLS,
    ),
    Conversation(
        "two calls at once",
        (Say(("go",)), Answer((), (_LS, _CAT)), Results((Result("a"), Result("b"))), Answer(("Done.",))),
        tools=_TOOLS,
    ),
    Conversation(
        "twelve calls at once",
        (
            Say(("go",)),
            Answer(("All.",), tuple(Call(f"call_{n}", "read", f'{{"path": "f{n}"}}') for n in range(12))),
            Results(tuple(Result(f"text {n}") for n in range(12))),
            Answer(("Done.",)),
        ),
        tools=_TOOLS,
    ),
    Conversation(
        "a call without arguments",
        (Say(("go",)), Answer((), (Call("call_1", "tree", "{}"),)), Results((Result("x"),)), Answer(("Done.",))),
        tools=(TREE,),
    ),
    Conversation(
        "arguments with every kind of value",
        (
            Say(("go",)),
            Answer(
                (), (Call("c1", "tree", '{"a": [1, 2.5, null, true], "b": {"c": "é\u2028\\n\\"q\\""}, "d": -1e-7}'),)
            ),
            Results((Result("x"),)),
            Answer(("Done.",)),
        ),
        tools=(TREE,),
        lacks=_BREAKS_ITS_CLIENT,
    ),
    Conversation(
        "a failed call",
        (
            Say(("go",)),
            Answer((), (_LS,)),
            Results((Result("[error] timed out after 120 s", is_error=True),)),
            Answer(("Sorry.",)),
        ),
        tools=_TOOLS,
    ),
    Conversation(
        "one of two calls failed",
        (
            Say(("go",)),
            Answer((), (_LS, _CAT)),
            Results((Result("a"), Result("no", is_error=True))),
            Answer(("Half.",)),
        ),
        tools=_TOOLS,
    ),
    Conversation("a long history of calls", _rounds(sized(8, 20)), tools=_TOOLS),
    Conversation(
        "the user speaks after a result",
        (
            Say(("go",)),
            Answer((), (_LS,)),
            Results((Result("a"),), ("Stop there.",)),
            Answer(("Stopped.",)),
            Say(("Go on.",)),
            Answer(("Gone on.",)),
        ),
        tools=_TOOLS,
    ),
    Conversation("a picture", (Say(("What is this?",), (_image(),)), Answer(("A PNG.",)), *_talk(1))),
    Conversation(
        "three pictures of different kinds",
        (
            Say(("Compare.",), (_image(), _image(mime_type="image/jpeg"), _image(mime_type="image/webp"))),
            Answer(("Ok.",)),
        ),
    ),
    Conversation(
        "a picture from a tool",
        (Say(("go",)), Answer((), (_CAT,)), Results((Result("a chart", images=(_image(),)),)), Answer(("Nice.",))),
        tools=_TOOLS,
        lacks=_NO_PICTURES_IN_RESULTS,
    ),
    Conversation(
        "thinking",
        (Say(("Think.",)), Answer(("Thought.",), thought=("First ", "this.")), Say(("And?",)), Answer(("So.",))),
        thinking=True,
    ),
    Conversation(
        "thinking before a call",
        (
            Say(("Think.",)),
            Answer((), (_LS,), thought=("I need ", "a listing.")),
            Results((Result("a"),)),
            Answer(("So.",), thought=("Now I know.",)),
            Say(("And?",)),
            Answer(("That.",)),
        ),
        tools=_TOOLS,
        thinking=True,
    ),
    Conversation(
        "thinking, words and calls in one answer",
        (
            Say(("Think.",)),
            Answer(("Looking.",), (_LS, _CAT), thought=("Both.",)),
            Results((Result("a"), Result("b"))),
            Answer(("So.",)),
        ),
        tools=_TOOLS,
        thinking=True,
    ),
    Conversation(
        "thinking through many rounds",
        (
            Say(("Think.",)),
            *(
                step
                for n in range(8)
                for step in (
                    Answer((f"Round {n}.",), (Call(f"call_{n}", "bash", '{"command": "make"}'),), thought=(f"r{n}",)),
                    Results((Result(f"out {n}"),)),
                )
            ),
            Answer(("Done.",)),
        ),
        tools=_TOOLS,
        thinking=True,
    ),
    Conversation(
        "text that is hard to carry",
        (
            Say(("a\u2028b\u2029c \U0001f469\u200d\U0001f4bb \x7f \\u0041 </script> \t",)),
            Answer(("\u00e9\u2028\U0001f600",)),
            *_talk(1),
        ),
        lacks=_BREAKS_ITS_CLIENT,
    ),
    Conversation("a very long text", (Say(("long " * 40_000,)), Answer(("Long.",)), *_talk(1))),
    Conversation("a long system prompt", _talk(2), system="Rule. " * 5_000, tools=_TOOLS),
)
