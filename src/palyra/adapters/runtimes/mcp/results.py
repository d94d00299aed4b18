"""Turns answers of MCP servers into tool results: text and bodies, within bounds.

Does not own: asking the server (connection).
An answer is read as it came, member by member. A member that is missing or of the wrong kind is named in the text and
harms nothing else. Everything here is content from outside.
"""

import base64
import binascii
import re
from collections.abc import Iterable

import msgspec

from palyra.adapters.runtimes.mcp.server_text import clean_line
from palyra.core.events.tool import Outcome, ToolError
from palyra.core.tools import Made, ToolResult

OUTPUT_CHARS_MAX = 1024 * 1024
BLOCKS_MAX = 1_000
MADE_MAX = 16  # Limits the bodies of one answer. The limit of a message bounds their size.
LABEL_LENGTH_MAX = 300  # Limits an address or a title.

_MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9.+-]{0,63}/[a-z0-9][a-z0-9.+-]{0,63}")
_ENDINGS = {
    "image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp", "image/svg+xml": "svg",
    "audio/wav": "wav", "audio/mpeg": "mp3", "audio/ogg": "ogg", "application/pdf": "pdf", "application/json": "json",
    "text/plain": "txt", "text/html": "html",
}  # fmt: skip


class _ResultWriter:
    """The text and the bodies of a result, as far as they are written."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.made: list[Made] = []
        self._chars = 0
        self._cut_chars = 0

    def write(self, text: str) -> None:
        room = OUTPUT_CHARS_MAX - self._chars
        if len(text) > room:
            self._cut_chars += len(text) - room
            text = text[:room]
        if text:
            self._chars += len(text)
            self.parts.append(text)

    def keep(self, kind: str, encoded: object, media_type: object) -> None:
        """Adds a body beside the text, or writes the reason why there is none."""
        known = media_type.lower() if isinstance(media_type, str) else ""
        media = known if _MEDIA_TYPE.fullmatch(known) else "application/octet-stream"
        if len(self.made) >= MADE_MAX:
            return self.write(f"[{kind}: left out, the answer holds more than {MADE_MAX} bodies]")
        try:
            body = base64.b64decode(encoded if isinstance(encoded, str) else "", validate=True)
        except (binascii.Error, ValueError):
            return self.write(f"[{kind}: left out, it is not base64]")
        name = f"{kind}-{len(self.made) + 1}.{_ENDINGS.get(media, 'bin')}"
        self.made.append(Made(name=name, media_type=media, body=body))

    def text(self) -> str:
        whole = "\n".join(self.parts)
        if self._cut_chars:
            whole += f"\n[The answer was longer: {self._cut_chars} characters are left out.]"
        return whole


def tool_result(raw: dict[str, object], tool: str, source: str) -> ToolResult:
    """Returns the result of `tools/call`. `isError` is the tool's own failure, which the server tells as content."""
    writer = _ResultWriter()
    _write_blocks(writer, raw.get("content"))
    structured = raw.get("structuredContent")
    if not writer.parts and structured is not None:
        writer.write(_as_json(structured))
    if raw.get("isError") is True:
        message = f"{tool} says that it failed. What it says is below."
        error = ToolError(code="tool_error", message=message)
        return ToolResult(
            outcome=Outcome.FAILED, output=writer.text(), error=error, source=source, made=tuple(writer.made)
        )
    return _fine(writer, "The tool gave nothing back.", source)


def resource_result(raw: dict[str, object], source: str) -> ToolResult:
    writer = _ResultWriter()
    for content in _objects(raw.get("contents")):
        _write_resource(writer, content)
    return _fine(writer, "The resource is empty.", source)


def prompt_result(raw: dict[str, object], source: str) -> ToolResult:
    """Returns the result of `prompts/get`: what each side would say, one after the other."""
    writer = _ResultWriter()
    for message in _objects(raw.get("messages")):
        role = message.get("role")
        writer.write(f"{role if role in ('user', 'assistant') else 'unknown'}:")
        content = message.get("content")
        _write_blocks(writer, content if isinstance(content, list) else [content])
    return _fine(writer, "The prompt is empty.", source)


def list_result(rows: Iterable[str], source: str) -> ToolResult:
    writer = _ResultWriter()
    for row in rows:
        writer.write(row)
    return _fine(writer, "There is none.", source)


def row_of(listed: object, *keys: str) -> str | None:
    """Returns one line of a list: the address or name first, then its description."""
    if not isinstance(listed, dict) or not isinstance(listed.get(keys[0]), str):
        return None
    said = [clean_line(text, LABEL_LENGTH_MAX) for key in keys if isinstance(text := listed.get(key), str) and text]
    return " - ".join(dict.fromkeys(each for each in said if each))


def _fine(writer: _ResultWriter, if_empty: str, source: str) -> ToolResult:
    made = tuple(writer.made)
    text = writer.text() or ("" if made else f"[{if_empty}]")
    return ToolResult(outcome=Outcome.OK, output=text, source=source, made=made)


def _write_blocks(writer: _ResultWriter, content: object) -> None:
    blocks = content if isinstance(content, list) else []
    for block in blocks[:BLOCKS_MAX]:
        _write_block(writer, block)
    if len(blocks) > BLOCKS_MAX:
        writer.write(f"[{len(blocks) - BLOCKS_MAX} more parts of the answer are left out.]")


def _write_block(writer: _ResultWriter, block: object) -> None:
    match block:
        case {"type": "text", "text": str(text)}:
            writer.write(text)
        case {"type": ("image" | "audio") as kind, "data": data, **rest}:
            writer.keep(str(kind), data, rest.get("mimeType"))
        case {"type": "resource", "resource": dict(resource)}:
            _write_resource(writer, resource)
        case {"type": "resource_link"}:
            writer.write(f"[resource {row_of(block, 'uri', 'title', 'name', 'description') or 'without an address'}]")
        case _:
            writer.write("[A part of the answer is of a kind that is not known here.]")


def _write_resource(writer: _ResultWriter, resource: dict[str, object]) -> None:
    uri = resource.get("uri")
    writer.write(f"[resource {clean_line(uri, LABEL_LENGTH_MAX) if isinstance(uri, str) else 'without an address'}]")
    match resource:
        case {"text": str(text)}:
            writer.write(text)
        case {"blob": blob}:
            writer.keep("blob", blob, resource.get("mimeType"))
        case _:
            writer.write("[It holds neither text nor bytes.]")


def _objects(value: object) -> list[dict[str, object]]:
    return [each for each in value[:BLOCKS_MAX] if isinstance(each, dict)] if isinstance(value, list) else []


def _as_json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
