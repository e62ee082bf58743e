"""`[llm]`: which model answers, the providers of models, the headers of their requests, and the options of models."""

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any, cast

from acp_agent.config.section import HIDDEN, HttpUrl, PathText, Seconds, Section, holds_secret, is_everyday
from acp_agent.core.errors import ConfigError
from acp_agent.shape import AfterValidator, BeforeValidator, Field

_MOST_DEPTH = 20
"""The most levels of a value in `extra_body`."""
_OURS = frozenset({"model", "messages", "input", "tools", "stream", "system", "instructions"})
_INSTEAD = {
    "num_ctx": "context_window, so that the agent knows the size as well",
    "max_tokens": "max_tokens beside extra_body, so that the agent knows the limit as well",
    "temperature": "temperature beside extra_body; it is not sent to models that do not take it",
    "keep_alive": "keep_alive beside extra_body",
}


class OpenAIApi(StrEnum):
    """Which of OpenAI's two APIs is used for a model."""

    AUTO = "auto"
    RESPONSES = "responses"
    CHAT = "chat"


class Effort(StrEnum):
    """The time that a model may think. Not every model supports every value."""

    NONE = "none"
    MINIMAL = "minimal"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    XHIGH = "xhigh"
    MAX = "max"


def _extra_body(value: object) -> object:
    """Return the fields if they are JSON and none is the agent's own. Raises ValueError with what is expected."""
    if not isinstance(value, dict):
        return value
    fields = cast("dict[str, object]", value)
    for name in fields:
        if name in _OURS:
            raise ValueError(f"no {name}: the agent sets it itself")
        if name in _INSTEAD:
            raise ValueError(f"no {name}: set {_INSTEAD[name]}")
    options = fields.get("options")
    if isinstance(options, dict) and "num_ctx" in options:
        raise ValueError(f"no num_ctx: set {_INSTEAD['num_ctx']}")
    if not _is_json(fields, _MOST_DEPTH):
        raise ValueError(f"texts, finite numbers, true and false, lists and tables, at most {_MOST_DEPTH} levels deep")
    return fields


def _is_json(value: object, levels: int) -> bool:
    match value:
        case dict():
            inner = cast("dict[str, object]", value)
            return levels > 0 and all(_is_json(item, levels - 1) for item in inner.values())
        case list():
            items = cast("list[object]", value)
            return levels > 0 and all(_is_json(item, levels - 1) for item in items)
        case float():
            return abs(value) < float("inf")
        case _:
            return isinstance(value, str | bool | int)


ExtraBody = Annotated[Mapping[str, object], BeforeValidator(_extra_body), Field(strict=False)]
"""Further fields of every request body, with JSON values. The names in `_OURS` and `_INSTEAD` are refused."""


class ModelOptions(Section):
    """The options of one model or of all models of a provider. An unset one has its value from the model table."""

    context_window: Annotated[
        int | None,
        Field(
            ge=1000,
            le=10_000_000,
            description="Size of the context window in tokens. Unset: the known size of the model.",
        ),
    ] = None
    max_tokens: Annotated[
        int | None,
        Field(ge=1, le=1_000_000, description="The most tokens of one answer. Unset: a value that suits the model."),
    ] = None
    images: Annotated[
        bool | None, Field(description="Whether the model accepts images. Unset: as known of the model.")
    ] = None
    tools: Annotated[bool | None, Field(description="false: the model is offered no tools.")] = None
    thinking: Annotated[
        bool | None,
        Field(description="Whether the model is asked to think before it answers. Unset: as known of the model."),
    ] = None
    effort: Annotated[
        Effort | None,
        Field(strict=False, description="How much a thinking model thinks. Unset: the server's own choice."),
    ] = None
    temperature: Annotated[
        float | None,
        Field(
            ge=0,
            le=2,
            allow_inf_nan=False,
            description="Sampling temperature. It is not sent to models that think, which do not accept it.",
        ),
    ] = None
    api: Annotated[
        OpenAIApi | None,
        Field(
            strict=False,
            description="For type openai: responses, chat (Chat Completions) or auto, which is responses at OpenAI "
            "itself and chat anywhere else. Unset: auto.",
        ),
    ] = None


class PriceSettings(Section):
    """The price of a model in US dollars for a million tokens."""

    input: Annotated[float, Field(ge=0, le=10_000, allow_inf_nan=False, description="Input tokens.")]
    output: Annotated[float, Field(ge=0, le=10_000, allow_inf_nan=False, description="Output tokens.")]
    cache_read: Annotated[
        float | None, Field(ge=0, le=10_000, allow_inf_nan=False, description="Tokens read from the cache.")
    ] = None
    cache_write: Annotated[
        float | None, Field(ge=0, le=10_000, allow_inf_nan=False, description="Tokens written to the cache.")
    ] = None


class ModelSettings(ModelOptions):
    """One `[[llm.models]]` entry. It takes precedence over the provider's entry and over the model table."""

    id: Annotated[
        str,
        Field(
            pattern=r"^[^\s:]+:\S*$",
            max_length=500,
            description='"PROVIDER:MODEL", or the beginning of such names. If several entries match a model, the one '
            "with the longest id counts.",
        ),
    ]
    price: Annotated[PriceSettings | None, Field(description="US dollars for a million tokens.")] = None

    def check(self) -> None:
        """Raise ValueError, with what is expected, if the values do not fit each other."""
        if self.model_fields_set <= {"id"}:
            raise ValueError("a key besides id, such as context_window")


_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")  # RFC 9110 5.1
_VALUE = re.compile(r"[!-~]([ -~]{0,2046}[!-~])?")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_MOST = 32
_RESERVED = re.compile(
    r"(?xi) host | content-.* | transfer-encoding | connection | keep-alive | te | trailer | upgrade | expect | cookie"
    r" | accept | accept-encoding | proxy-.* | anthropic-version | authorization | x-api-key"
)


def _headers(value: Mapping[str, str]) -> Mapping[str, str]:
    if len(value) > _MOST:
        raise ValueError(f"at most {_MOST} headers")
    for name, text in value.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"names such as X-Title, not {name[:50]!r}")
        if name.lower() in ("authorization", "x-api-key"):
            raise ValueError(f"no {name}: keys go through api_key_env")
        if _RESERVED.fullmatch(name):
            raise ValueError(f"no {name}: the agent sets it itself")
        if not _VALUE.fullmatch(text):
            raise ValueError(f"a value of 1 to 2048 printable ASCII characters for {name}")
    if len({name.lower() for name in value}) < len(value):
        raise ValueError("each header once: capital letters make no difference")
    return value


Headers = Annotated[Mapping[str, str], AfterValidator(_headers), Field(strict=False)]
"""HTTP headers by name. Headers that the agent sets itself, or that would break the request, are refused."""


def secret_parts(headers: Mapping[str, str], environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the secret texts of headers: the values of variables, and the text of headers whose names mean a secret."""
    for name, text in headers.items():
        yield from (environ[variable] for variable in _VARIABLE.findall(text) if environ.get(variable))
        if _hides(name, text):
            yield text


def _hides(name: str, text: str) -> bool:
    return holds_secret(name) and not _VARIABLE.search(text) and not is_everyday(text)


class ProviderType(StrEnum):
    """The wire format of a provider."""

    ANTHROPIC = "anthropic"
    OPENAI = "openai"
    OLLAMA = "ollama"
    SCRIPTED = "scripted"


class ProviderEndpoint(Section):
    """The address of a provider and how requests reach it."""

    name: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
            description="The provider's name, which is before the colon in `model`.",
        ),
    ]
    type: Annotated[
        ProviderType,
        Field(
            strict=False,
            description="Wire format: anthropic (Messages), openai (Responses or Chat Completions), ollama, or "
            "scripted (plays a script, needs no network).",
        ),
    ]
    base_url: Annotated[
        HttpUrl | None,
        Field(
            description="Address of the API. Unset: that of the usual variable, else the vendor's own.",
        ),
    ] = None
    api_key_env: Annotated[
        str | None,
        Field(
            pattern=r"^[A-Z_][A-Z0-9_]*$",
            description="Environment variable (capital letters) that holds the key. Unset: the vendor's usual one if "
            "base_url is unset too, else no key is sent.",
        ),
    ] = None
    script: Annotated[
        PathText | None,
        Field(description="File that a scripted provider plays. Unset: the packaged script that `model` names."),
    ] = None
    timeout: Annotated[
        Seconds, Field(description="Seconds of silence from the server before a call counts as failed.")
    ] = 300.0
    headers: Annotated[
        Headers | None,
        Field(
            repr=False,
            description="Further HTTP headers of each request. ${NAME} in a value is replaced by that environment "
            "variable.",
        ),
    ] = None
    extra_body: Annotated[
        ExtraBody | None,
        Field(
            description="Further fields of each request to a model, as its API names them, such as { top_p = 0.9 }.",
        ),
    ] = None
    keep_alive: Annotated[
        str | None,
        Field(
            pattern=r"^(-1|0|\d{1,6}(s|m|h))$",
            description='For type ollama: how long a model stays in memory, such as "30m"; "-1" = for ever. Unset: '
            "the server's own setting.",
        ),
    ] = None


class ProviderSettings(ModelOptions, ProviderEndpoint):
    """One `[[llm.providers]]` entry: an endpoint, and the options of all its models."""

    def __hash__(self) -> int:
        return hash(self.name)  # its tables are not hashable

    def api_key(self, environ: Mapping[str, str]) -> str:
        """Return the key in this provider's variable, or "" if there is none."""
        return environ.get(self.api_key_env, "") if self.api_key_env else ""

    @property
    def key_variables(self) -> tuple[str, ...]:
        """The environment variables of the key and of the headers."""
        texts = (self.headers or {}).values()
        return (*filter(None, (self.api_key_env,)), *(name for text in texts for name in _VARIABLE.findall(text)))

    def request_headers(self, environ: Mapping[str, str]) -> Mapping[str, str]:
        """Return the further headers with each `${NAME}` replaced.

        Raises:
            ConfigError: A variable is not set, or its value cannot be in a header.

        """
        filled: dict[str, str] = {}
        where = f"provider {self.name!r}"
        for name, text in (self.headers or {}).items():
            for variable in _VARIABLE.findall(text):
                if not environ.get(variable):
                    raise ConfigError(where, f"headers.{name}", text, f"the environment variable {variable} to be set")
            filled[name] = _VARIABLE.sub(lambda match: environ[match[1]].strip(), text)
            if not _VALUE.fullmatch(filled[name]):
                raise ConfigError(where, f"headers.{name}", text, "variables of printable ASCII")
        return filled

    def secrets(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """Return the texts that must never be shown: the key, and the secret values of headers."""
        return tuple(filter(None, (self.api_key(environ), *secret_parts(self.headers or {}, environ))))

    def model_dump(self, *, exclude_defaults: bool = False, exclude_none: bool = False) -> dict[str, Any]:
        """Return the values as JSON has them, with the secret values of headers hidden."""
        dumped = super().model_dump(exclude_defaults=exclude_defaults, exclude_none=exclude_none)
        if self.headers and "headers" in dumped:
            dumped["headers"] = {name: HIDDEN if _hides(name, text) else text for name, text in self.headers.items()}
        return dumped

    def check(self) -> None:
        """Raise ValueError, with what is expected, if the values do not fit each other."""
        scripted = self.type is ProviderType.SCRIPTED
        if scripted and (self.base_url or self.api_key_env):
            raise ValueError("neither base_url nor api_key_env: a scripted provider calls nobody")
        if self.script and not scripted:
            raise ValueError("no script: only a provider of type scripted plays one")
        if self.api and self.type is not ProviderType.OPENAI:
            raise ValueError("no api: only a provider of type openai has two")
        if self.keep_alive and self.type is not ProviderType.OLLAMA:
            raise ValueError("no keep_alive: only a provider of type ollama has it")


def model_name(value: str) -> str:
    """Return the text if it names a provider and a model. Raises ValueError with what is expected."""
    provider, _, model = value.partition(":")
    if not provider or not model or any(character.isspace() for character in value):
        raise ValueError('"PROVIDER:MODEL", for example "ollama:qwen3:8b"')
    return value


_Model = Annotated[str, AfterValidator(model_name)]


def _optional_model_name(value: str) -> str:
    return value and model_name(value)


OptionalModel = Annotated[str, AfterValidator(_optional_model_name)]
"""The name of a model, `PROVIDER:MODEL`, or the empty text for none."""


class LlmSettings(Section):
    """`[llm]`: which model answers."""

    model: Annotated[
        _Model | None,
        Field(
            description='"PROVIDER:MODEL". Unset: no model; commands such as /run still work.',
            examples=["ollama:qwen3:8b"],
        ),
    ] = None
    fallback: Annotated[
        tuple[_Model, ...],
        Field(
            strict=False,
            max_length=10,
            description="Models that are asked, in this order, if the one before does not answer. Unset: none.",
            examples=[["ollama:qwen3:8b"]],
        ),
    ] = ()
    embedding_model: Annotated[
        _Model | None,
        Field(
            description='"PROVIDER:MODEL" that computes embeddings for the memory and the tool filter. The provider '
            "is of type ollama or openai. Unset: none; texts are compared by their words.",
            examples=["ollama:nomic-embed-text"],
        ),
    ] = None
    list_models: Annotated[
        bool, Field(description="Whether providers are asked, in the background, which models they offer.")
    ] = True
    models: Annotated[
        tuple[ModelSettings, ...],
        Field(
            strict=False,
            max_length=200,
            description="Your own data about models: size, abilities, price.",
            examples=[[{"id": "local:", "context_window": 65_536, "images": False}]],
        ),
    ] = ()
    providers: Annotated[
        tuple[ProviderSettings, ...],
        Field(
            strict=False,
            description="Providers of models. ANTHROPIC_API_KEY, OPENAI_API_KEY, OPENAI_BASE_URL, OLLAMA_HOST and "
            "similar variables add their own; `scripted` is always present.",
            examples=[
                [
                    {
                        "name": "local",
                        "type": "openai",
                        "base_url": "http://127.0.0.1:8080/v1",
                        "api_key_env": "LOCAL_API_KEY",
                    }
                ]
            ],
        ),
    ] = ()
