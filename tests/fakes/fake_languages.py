"""Language servers that answer what a test wants."""

from collections.abc import Mapping

from acp_agent.core.errors import AgentError
from acp_agent.core.types import Json, JsonObject


class FakeLanguages:
    """Answers by method; an error in place of an answer is raised. `asked` has every question in order."""

    def __init__(self, answers: Mapping[str, Json | AgentError]) -> None:
        self.answers = dict(answers)
        self.asked: list[tuple[str, JsonObject]] = []

    def offers(self, method: str) -> bool:
        return method in self.answers

    async def ask(self, method: str, params: JsonObject) -> Json:
        self.asked.append((method, params))
        answer = self.answers[method]
        if isinstance(answer, AgentError):
            raise answer
        return answer
