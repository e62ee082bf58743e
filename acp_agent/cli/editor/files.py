"""The editor's files: `fs/*` served from the disk (ACP "File System")."""

from anyio import Path

from acp_agent.cli.editor.frames import JsonRpcError, at, text_at
from acp_agent.cli.editor.terminals import INTERNAL_ERROR, INVALID_PARAMS, RESOURCE_NOT_FOUND
from acp_agent.core.types import Json, JsonObject


async def read_text_file(params: JsonObject) -> Json:
    """The result of `fs/read_text_file`: the text from the 1-based `line` on, `limit` lines. Raises JsonRpcError."""
    path = _absolute(params)
    try:
        text = (await path.read_bytes()).decode("utf-8")
    except FileNotFoundError as error:
        raise JsonRpcError(RESOURCE_NOT_FOUND, f"no such file: {path}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise JsonRpcError(INTERNAL_ERROR, f"cannot read {path}: {error}") from error
    line, limit = at(params, "line"), at(params, "limit")
    first = line - 1 if isinstance(line, int) else 0
    lines = text.splitlines(keepends=True)[max(first, 0) :]
    return {"content": "".join(lines[:limit] if isinstance(limit, int) else lines)}


async def write_text_file(params: JsonObject) -> Json:
    """The result of `fs/write_text_file`; makes the file and its folders when missing. Raises JsonRpcError."""
    path = _absolute(params)
    try:
        await path.parent.mkdir(parents=True, exist_ok=True)
        await path.write_bytes(text_at(params, "content").encode("utf-8"))
    except OSError as error:
        raise JsonRpcError(INTERNAL_ERROR, f"cannot write {path}: {error.strerror}") from error
    return {}


def _absolute(params: JsonObject) -> Path:
    path = Path(text_at(params, "path"))
    if not path.is_absolute():
        raise JsonRpcError(INVALID_PARAMS, f"path must be absolute: {str(path)!r}")
    return path
