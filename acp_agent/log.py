"""The agent's own log: structlog to stderr or a file, never to stdout, which belongs to the protocol.

Making a `Log` imports nothing: structlog is imported when the first event is logged. Before `configure` only
exceptions are logged, without any values, because the redaction is not set up yet.
"""

import contextlib
import json
import logging
import os
import stat
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Mapping, MutableMapping
from types import TracebackType
from typing import Any, TypeAlias

from acp_agent.core.secrets import Redact, verbatim

_STDERR = 2
_Event: TypeAlias = MutableMapping[str, Any]


class Log:
    """The log of a module. `event` is a fixed phrase, and the fields carry the values. Neither may hold secrets."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def debug(self, event: str, **fields: object) -> None:
        """Log a detail that helps to find a bug."""
        self._write("debug", event, fields)

    def info(self, event: str, **fields: object) -> None:
        """Log an ordinary event."""
        self._write("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Log a problem that the user may want to fix."""
        self._write("warning", event, fields)

    def error(self, event: str, **fields: object) -> None:
        """Log a failure. `exc_info=error` adds the traceback."""
        self._write("error", event, fields)

    def _write(self, level: str, event: str, fields: Mapping[str, object]) -> None:
        configured = next((each for each in logging.getLogger().handlers if isinstance(each, _Forwarding)), None)
        try:
            if configured is not None and not configured.begin(level):
                return
        except Exception as trouble:  # noqa: BLE001 - logging must not raise; the next event tries again
            _Lines(_STDERR).msg(_early(event, trouble))
            return
        structlog = sys.modules.get("structlog")
        if structlog is not None and structlog.is_configured():  # unconfigured, structlog prints to stdout
            try:
                getattr(structlog.get_logger(), level)(event, **{**fields, "log": self._name})
            except Exception as trouble:  # noqa: BLE001 - logging must not raise in its callers
                _Lines(_STDERR).msg(_early(event, trouble))
        elif fields.get("exc_info") and (error := sys.exception()) is not None:
            _Lines(_STDERR).msg(_early(event, error))


@contextlib.contextmanager
def without(module: str) -> Generator[None]:
    """Let imports in the body see a module as not installed, unless it was loaded before.

    Some libraries load another one only for coloured output.
    """
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # pyright: ignore[reportArgumentType] - None makes Python raise ImportError
    try:
        yield
    finally:
        del sys.modules[module]


def configure(level: str, file: str | None = None, redact: Redact = verbatim) -> str:
    """Start logging as text on stderr, or as JSON lines in `file`. Return a problem for the user, or "".

    Every line, and every traceback of a crash from now on, goes through `redact`. A file that cannot be opened is
    replaced by stderr.

    level   the lowest level that is logged: debug, info, warning or error
    """
    fd, trouble = _STDERR, ""
    if file is not None:
        try:
            fd = _open(file)
        except OSError as error:
            trouble = error.strerror or str(error)

    def render(_logger: object, _method: str, event: _Event) -> str:
        return redact(_text(event) if fd == _STDERR else json.dumps(event, default=str))

    def begin() -> None:
        with without("rich"):  # structlog would load rich, which takes 5 MB, for coloured tracebacks
            import structlog  # noqa: PLC0415 - takes 20 ms, and most processes log nothing
        structlog.configure(
            processors=[
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                structlog.processors.format_exc_info,
                render,
            ],
            wrapper_class=structlog.make_filtering_bound_logger(level),
            logger_factory=lambda *_: _Lines(fd),
            cache_logger_on_first_use=False,
        )

    _redact_crashes(redact)
    logging.getLogger().handlers[:] = [_Forwarding(level, begin)]
    if trouble:
        Log(__name__).warning("the log file cannot be opened, so the log is on stderr", file=file, error=trouble)
        return f"{file}: cannot be opened ({trouble}); the log is on stderr"
    return ""


def _open(file: str) -> int:
    """Open the log file for appending, readable by its owner only. Non-blocking, so that a FIFO does not block."""
    os.makedirs(os.path.dirname(file), exist_ok=True)
    fd = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    status = os.fstat(fd)
    if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) & 0o077:
        os.fchmod(fd, 0o600)
    return fd


def _early(event: str, error: BaseException) -> str:
    """Return a line without any value: the event, the exception's type, and the line numbers of its traceback."""
    places = (f"{os.path.basename(at.filename)}:{at.lineno}" for at in traceback.extract_tb(error.__traceback__))
    return f"{event}: {type(error).__name__} at {' > '.join(places)}"


class _Lines:
    """A writer of lines for structlog. One call writes a line, so lines of several threads or processes do not mix."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def msg(self, line: str) -> None:
        """Write one line. Errors are ignored: the agent works without its log."""
        with contextlib.suppress(OSError):
            os.write(self._fd, line.encode("utf-8", "backslashreplace") + b"\n")

    debug = info = warning = error = critical = exception = msg


def _text(event: _Event) -> str:
    """Return an event as text. Values are escaped as in JSON, so that they cannot control a terminal."""
    head = f"{event.pop('timestamp')} {event.pop('level'):7} {json.dumps(str(event.pop('event')))[1:-1]}"
    return " ".join((head, *(f"{name}={json.dumps(value, default=str)}" for name, value in event.items())))


def _redact_crashes(redact: Redact) -> None:
    """Redact the tracebacks that Python itself writes to stderr, since the texts of errors may hold secrets."""

    def tell(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
        if not issubclass(kind, SystemExit):
            _Lines(_STDERR).msg(redact("".join(traceback.format_exception(kind, error, trace))).rstrip())

    sys.excepthook = tell
    threading.excepthook = lambda crash: tell(crash.exc_type, crash.exc_value, crash.exc_traceback)


class _Forwarding(logging.Handler):
    """A handler that passes warnings of libraries on to our own log, such as asyncio's "exception was never retrieved".

    lowest      the lowest level that is logged
    configure   configures structlog, once
    """

    def __init__(self, lowest: str, configure: Callable[[], None]) -> None:
        super().__init__()
        self._lowest = logging.getLevelNamesMapping()[lowest.upper()]
        self._configure: Callable[[], None] | None = configure

    def begin(self, level: str) -> bool:
        """Return whether events of a level are logged. structlog is configured then."""
        if logging.getLevelNamesMapping()[level.upper()] < self._lowest:
            return False
        with self.lock or contextlib.nullcontext():
            if self._configure is not None:
                self._configure()
                self._configure = None
        return True

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            trace = "" if record.exc_info is None else "".join(traceback.format_exception(*record.exc_info))
            Log(record.name).warning("library", message=record.getMessage(), trace=trace)
