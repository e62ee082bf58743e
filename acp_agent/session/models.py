"""The models of one session (for turns, for chores, for embeddings), and the tokens and costs of their calls."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import anyio.to_thread

from acp_agent.agent.aids.arguments import whole_answer
from acp_agent.config.llm_settings import LlmSettings, ModelOptions, ProviderType
from acp_agent.config.load import Loaded
from acp_agent.config.vendors import model_advice
from acp_agent.core.data import frozen
from acp_agent.core.errors import AgentError, ConfigError, ProviderError, ProviderErrorKind
from acp_agent.core.messages import Usage
from acp_agent.core.ports import Embedder, ModelRequest, Provider
from acp_agent.core.secrets import Redact
from acp_agent.core.session_options import Chosen
from acp_agent.core.sessions import UsageTotals
from acp_agent.llm.catalog import Catalog, ModelRef, parse_model
from acp_agent.llm.models import Price
from acp_agent.llm.retry import FallbackProvider, MeteredProvider, RetryingProvider, RetryPolicy, SanitizingProvider


class UsageMeter:
    """The tokens and costs of all model calls of a session, chores and summaries included.

    tokens     of all calls for which the server reported them
    cost       US dollars of the calls whose price is known; None before the first
    complete   whether the price of every call is known
    """

    def __init__(self) -> None:
        self.tokens = Usage()
        self.cost: float | None = None
        self.complete = True

    def restore(self, totals: UsageTotals) -> None:
        """Continue from the totals of a stored session."""
        self.tokens, self.cost, self.complete = totals.usage, totals.cost, totals.complete

    def add(self, price: Callable[[ModelRef], Price | None], ref: ModelRef, usage: Usage | None) -> None:
        """Count one call. `usage` is None if the server did not report it."""
        self.tokens += usage or Usage()
        cost = _cost(price, ref, usage)
        if cost is None:
            self.complete = False
        else:
            self.cost = (self.cost or 0.0) + cost

    def status(self) -> Sequence[str]:
        """Return a line for /status, or none before the first call. With unknown prices it says "at least"."""
        usage = self.tokens
        if usage == Usage():
            return ()
        cached = f", {usage.cache_read:,} from the cache" if usage.cache_read else ""
        least = "" if self.complete else "at least "
        money = "" if self.cost is None else f"; {least}${self.cost:.4f}"
        read = usage.input + usage.cache_read + usage.cache_write
        return (f"Tokens: {read:,} read{cached}, {usage.output:,} written{money}",)


def _cost(price: Callable[[ModelRef], Price | None], ref: ModelRef, usage: Usage | None) -> float | None:
    if usage is None or usage == Usage():  # the server reports no tokens
        return None
    try:
        known = price(ref)
    except ConfigError:
        return None
    return None if known is None else known.cost(usage)


_IMPATIENT = RetryPolicy(longest_asked=10.0)
"""For a model with a fallback: asking the fallback is better than waiting a minute."""


@frozen
class _Asked:
    """The models that run turns, with their options. All models after the first are fallbacks."""

    catalog: Catalog
    refs: tuple[ModelRef, ...]
    options: tuple[ModelOptions, ...]


class SessionModels:
    """The models of one session. They are built when they are needed, because a session can exist without a model.

    catalog   the catalog of a configuration
    loaded    the configuration in force: a corrected file may name the model that was missing
    redact    removes secrets from errors: some servers quote what they refuse
    tell      tells the user that a call is retried, or that another model is asked
    chosen    returns the session's choices for a model, which replace the configuration from the next turn on. A model
              gets only those that it supports. "" stands for the first model
    usage     the tokens and costs of all of them so far
    """

    def __init__(
        self,
        catalog: Callable[[LlmSettings], Catalog],
        loaded: Callable[[], Loaded],
        redact: Redact,
        tell: Callable[[str], Awaitable[None]],
        chosen: Callable[[str], Chosen],
    ) -> None:
        self._catalog = catalog
        self._loaded = loaded
        self._redact = redact
        self._tell = tell
        self._chosen = chosen
        self._built: tuple[_Asked, Provider] | None = None
        self.usage = UsageMeter()

    async def answering(self) -> Provider:
        """Return the provider for turns: the chosen model, else `llm.model`, followed by `llm.fallback`.

        It stays the same object until the choice changes, because it remembers which fallback answers. Raises
        AgentError, with advice.
        """
        to_ask = self._to_ask()
        if self._built is None or self._built[0] != to_ask:
            self._built = to_ask, await self._asked(to_ask.refs, to_ask.options)
        return SanitizingProvider(self._built[1], self._redact)

    async def for_chores(self, name: str = "") -> Provider:
        """Return a model by name, or by default the models for turns, the one in use first. Raises AgentError.

        The objects are not those of turns, because a chore must not change which model the next turn asks.
        """
        if name:
            return await self._asked([parse_model(name)])
        refs, in_use = self._refs(), self._in_use()
        return await self._asked(sorted(refs, key=lambda ref: ref != in_use))

    async def for_agents(self, name: str = "") -> Provider:
        """Return the model of a sub-agent: by name, or by default those for turns with the session's choices.

        The objects are not those of turns, since sub-agents run beside them. Raises AgentError.
        """
        if name:
            return SanitizingProvider(await self.for_chores(name), self._redact)
        to_ask = self._to_ask()
        return SanitizingProvider(await self._asked(to_ask.refs, to_ask.options), self._redact)

    async def opinion(self, name: str, request: ModelRequest) -> str:
        """Return the answer of the model that `for_titles` returns; "" if it was cut off. Raises AgentError."""
        model = await self.for_titles(name)
        if model is None:
            raise ProviderError("a scripted model has no opinion", kind=ProviderErrorKind.NOT_CONFIGURED)
        return await whole_answer(model, request)

    async def for_titles(self, name: str = "") -> Provider | None:
        """Return a model by name, or by default the one in use, with the least thinking and without retries.

        Return None for a scripted model, which cannot write titles. Raises AgentError.
        """
        ref = parse_model(name) if name else self._in_use() or self._refs()[0]
        catalog = self._configured()
        if catalog.find(ref).type is ProviderType.SCRIPTED:
            return None
        build = partial(catalog.build, ref, catalog.least_thinking(ref))
        return self._counted(catalog, await anyio.to_thread.run_sync(build, abandon_on_cancel=True))

    def embedder(self, settings: LlmSettings) -> Embedder | None:
        """Return the model that `llm.embedding_model` names, or None. Raises ConfigError."""
        if settings.embedding_model is None:
            return None
        return self._catalog(settings).embedder(parse_model(settings.embedding_model, key="embedding_model"))

    def window(self) -> int:
        """Return the context window in tokens of the model in use or asked next; 0 without a model."""
        if (answers := self._answers) is not None:
            return answers.context_window
        ref = self._in_use()
        return 0 if ref is None else self._configured().window(ref)

    def take_tools(self, provider: Provider | None = None) -> bool:
        """Return whether a model is given tools, by default the one in use or asked next."""
        ref = self._in_use() if provider is None else ModelRef(provider.name, provider.model)
        try:
            return ref is None or self._configured().takes_tools(ref)
        except ConfigError:
            return True  # it will not be asked

    async def _asked(self, refs: Sequence[ModelRef], options: Sequence[ModelOptions] = ()) -> Provider:
        """Return models in the order in which they are asked. Those with a fallback are retried only briefly.

        options   for each model
        """
        catalog = self._configured()
        counted = partial(self._counted, catalog)
        if len(refs) == 1:
            build = partial(catalog.build, refs[0], *options)
            at_once = catalog.builds_at_once(refs[0])
            model = build() if at_once else await anyio.to_thread.run_sync(build, abandon_on_cancel=True)
            return RetryingProvider(counted(model), on_retry=self._tell_status)
        chain = await anyio.to_thread.run_sync(catalog.chain, refs, options, abandon_on_cancel=True)
        *before, last = map(counted, chain)
        retrying = [RetryingProvider(model, on_retry=self._tell_status, policy=_IMPATIENT) for model in before]
        retrying.append(RetryingProvider(last, on_retry=self._tell_status))
        return FallbackProvider(retrying, self._tell_status)

    def _counted(self, catalog: Catalog, model: Provider) -> Provider:
        return MeteredProvider(model, spent=partial(self.usage.add, catalog.price))

    def _to_ask(self) -> _Asked:
        """Return which models the next turn asks. Raises AgentError, with advice."""
        refs, catalog = tuple(self._refs()), self._configured()
        chosen = ((ref, self._chosen(str(ref))) for ref in refs)  # what the model supports of the session's choices
        options = (catalog.options_for(ref, each.thought_level, each.temperature) for ref, each in chosen)
        return _Asked(catalog, refs, tuple(options))

    @property
    def _answers(self) -> Provider | None:
        """Return the built provider for turns, or None if there is none or the choice has changed."""
        try:
            return self._built[1] if self._built and self._built[0] == self._to_ask() else None
        except AgentError:
            return None

    def _refs(self) -> list[ModelRef]:
        """Return the models that run turns, in the order in which they are asked. Raises AgentError, with advice."""
        loaded = self._loaded()
        llm = loaded.settings.llm
        first = self._chosen("").model or llm.model
        if first is None:
            advice = model_advice(llm.providers, loaded.file)
            raise ProviderError(advice, kind=ProviderErrorKind.NOT_CONFIGURED)
        return [parse_model(name) for name in dict.fromkeys((first, *llm.fallback))]

    @property
    def in_use(self) -> str:
        """The model that runs turns, or its fallback, as `PROVIDER:MODEL`; empty before the first turn."""
        if self._built is None:
            return ""
        answers = self._built[1]
        return f"{answers.name}:{answers.model}"

    @property
    def in_force(self) -> str:
        """The model that the running or next turn asks, or its fallback, as `PROVIDER:MODEL`; "" for none."""
        first = self._chosen("").model or self._loaded().settings.llm.model or ""
        stands = self._built is not None and str(self._built[0].refs[0]) == first
        return self.in_use if stands else first

    def _in_use(self) -> ModelRef | None:
        """Return the model that answered last, else the one that would be asked first; None if there is none."""
        if (answers := self._answers) is not None:
            return ModelRef(answers.name, answers.model)
        try:
            return self._refs()[0]
        except AgentError:
            return None

    def _configured(self) -> Catalog:
        return self._catalog(self._loaded().settings.llm)

    async def _tell_status(self, status: str) -> None:
        await self._tell(self._redact(status))


def spent(usage: Usage, cost: float | None, *, complete: bool) -> Sequence[str]:
    """Return the lines of /cost; none before the first answer. No price is estimated: a line says which are unknown.

    cost       US dollars of the calls whose price is known; None if no price is known
    complete   whether the price of every call is known
    """
    if usage == Usage() and cost is None:
        return () if complete else ("The model's server does not report how many tokens its answers take.",)
    if cost is None:
        price = "Price: not known for this model"
    else:
        price = f"Price: ${cost:.4f}" if complete else f"Price: at least ${cost:.4f}; that of some calls is not known"
    kinds = (
        ("sent", usage.input),
        ("sent and kept in the cache", usage.cache_write),
        ("read from the cache", usage.cache_read),
        ("written by the model", usage.output),
    )
    return (
        *(f"{count:,} tokens {kind}" for kind, count in kinds if count),
        price,
    )
