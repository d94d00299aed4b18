"""Content blocks of ACP: what an editor sends, and what it is shown.

Owns: both forms. Does not own: when they are sent (turn), whether an embedded file is the person's own (embedded).
Invariant: the text of a prompt is what the person typed, and nothing else. Whatever the editor embeds is an attachment
with its address, of trust external unless it is the person's own.
"""

import base64
import posixpath
from collections.abc import Callable, Iterable

import msgspec

from palyra.cli.acp.embedded import real_path
from palyra.core.errors import Invalid
from palyra.core.events.base import JsonObject
from palyra.core.references.parser import open_fence
from palyra.core.spelling import spell_out

NAME_CHARS_MAX = 200
SOURCE_CHARS_MAX = 900
ATTACHMENTS_MAX = 16  # As many as a run takes: what an editor embeds beyond it is put together.
EDITOR = "editor"  # The source of what an editor adds without an address.
_KINDS = {"read": "read", "list": "read", "search": "search", "write": "edit", "patch": "edit", "run": "execute"}

IsOwn = Callable[[str, bytes | None], bool]


class Embedded(msgspec.Struct, frozen=True, kw_only=True):
    """What the editor embeds beside the person's words. A link's body is its address."""

    name: str
    uri: str
    body: bytes
    media_type: str = "text/plain"
    is_own: bool = False
    paths: tuple[str, ...] = ()


def read_prompt(blocks: object, is_own: IsOwn) -> tuple[str, list[JsonObject]]:
    """Returns what the person typed, and the attachments as the daemon takes them.

    `is_own` tells of an address, and the body that came with it, whether it is the person's own file.
    """
    if not isinstance(blocks, list):
        raise Invalid("prompt_invalid", "a prompt is a list of content blocks")
    texts: list[str] = []
    images: list[JsonObject] = []
    found: list[Embedded] = []
    for block in blocks:
        match block:
            case {"type": "text", "text": str() as text} if _is_typed(block):
                texts.append(_closed(text))
            case {"type": "text", "text": str() as text}:
                found.append(Embedded(name="a note of the editor", uri=EDITOR, body=_encoded(text)))
            case {"type": "resource_link", "uri": str() as uri}:
                link = Embedded(name=_name(block.get("name"), uri), uri=uri, body=_encoded(uri))
                found.append(_standing(link, is_own=is_own(uri, None)))
            case {"type": "resource", "resource": {"text": str() as text, "uri": str() as uri}}:
                body = _encoded(text)
                file = Embedded(name=_name(None, uri), uri=uri, body=body)
                found.append(_standing(file, is_own=is_own(uri, body)))
            case {"type": "image", "data": str() as data, "mimeType": str() as media_type}:
                name = f"image {len(images) + 1}"
                images.append({"name": name, "media_type": media_type, "data_base64": data})
            case _:
                raise Invalid("prompt_invalid", "a content block is text, image, resource or resource_link")
    attachments = [*images, *map(_attachment, _fitting(found, ATTACHMENTS_MAX - len(images)))]
    return "\n\n".join(texts) or ("(see what is attached)" if attachments else ""), attachments


def tell_folder(folder: str) -> str:
    """Returns the sentence about the open folder. Its name is somebody's text: one quoted line, in which all is seen."""
    return f"The person's editor has this folder open: {_quoted(folder)}" if folder else ""


def _closed(text: str) -> str:
    """Ends a fence that the person left open: a reference in the next block would stand in it."""
    marks = open_fence(text)
    return f"{text}\n{marks}" if marks else text


def _standing(given: Embedded, *, is_own: bool) -> Embedded:
    """Returns it with its files, of which the daemon knows whether a tainted session wrote them."""
    return msgspec.structs.replace(given, is_own=True, paths=(real_path(given.uri),)) if is_own else given


def _quoted(text: str) -> str:
    return '"' + spell_out(text[:SOURCE_CHARS_MAX]).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _is_typed(block: JsonObject) -> bool:
    """Text that the editor marks as meant for others than the person is the editor's, not typed."""
    match block.get("annotations"):
        case {"audience": list() as audience}:
            return "user" in audience
        case _:
            return True


def _fitting(found: list[Embedded], room: int) -> Iterable[Embedded]:
    """Puts texts together if there are more than a run takes: the person's own, and those from outside."""
    if len(found) <= max(room, 0):
        return found
    together = ([each for each in found if each.is_own], [each for each in found if not each.is_own])
    return [_joined(group) for group in together if group]


def _joined(group: list[Embedded]) -> Embedded:
    uri = group[0].uri if len(group) == 1 else f"{EDITOR}, {len(group)} files"
    body = b"\n\n".join(_encoded(_quoted(each.uri)) + b":\n" + each.body for each in group)
    paths = tuple(path for each in group for path in each.paths)
    name = f"{len(group)} files of the editor"
    return Embedded(name=name, uri=uri, body=body, is_own=group[0].is_own, paths=paths)


def _attachment(given: Embedded) -> JsonObject:
    return {
        "name": given.name,
        "media_type": given.media_type,
        "data_base64": base64.b64encode(given.body).decode(),
        "trust": "local" if given.is_own else "external",
        "source": spell_out(given.uri)[:SOURCE_CHARS_MAX] or EDITOR,
        "paths": list(given.paths),
    }


def _name(given: object, uri: str) -> str:
    name = given if isinstance(given, str) and given.strip() else posixpath.basename(uri)
    return spell_out(" ".join(name.split()))[:NAME_CHARS_MAX] or "a file"


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace") or b"\n"


def text_block(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def kind_of(tool: str) -> str:
    """What an editor shows beside a call of this tool."""
    owner, _, verb = tool.rpartition(".")
    if owner in ("fs", "shell"):
        return _KINDS.get(verb, "other")
    return "fetch" if tool == "http.fetch" else "other"
