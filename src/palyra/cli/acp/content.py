"""Content blocks of ACP: what an editor sends, and what it is shown.

Owns: both forms. Does not own: when they are sent (turn).
Invariants: neither a file's own text nor a fence that the person left open ends the file's fence, and its name holds no
reference and no fence. What stands outside of fences is read as the person's words, and a reference there is resolved in
the person's name.
"""

import posixpath
import re

from palyra.core.errors import Invalid
from palyra.core.events.base import JsonObject
from palyra.core.references.parser import open_fence, parse_references

_KINDS = {"read": "read", "list": "read", "search": "search", "write": "edit", "patch": "edit", "run": "execute"}


def read_prompt(blocks: object) -> tuple[str, list[JsonObject]]:
    """Returns the text of a prompt, and its attachments as the daemon takes them."""
    if not isinstance(blocks, list):
        raise Invalid("prompt_invalid", "a prompt is a list of content blocks")
    texts: list[str] = []
    attachments: list[JsonObject] = []
    for block in blocks:
        match block:
            case {"type": "text", "text": str() as text}:
                texts.append(_closed(text))
            case {"type": "resource_link", "uri": str() as uri}:
                texts.append(_named(f"[{block.get('name') or posixpath.basename(uri)}]({uri})"))
            case {"type": "resource", "resource": {"text": str() as text, "uri": str() as uri}}:
                texts.append(f"{_named(uri)}:\n{_fenced(text)}")
            case {"type": "image", "data": str() as data, "mimeType": str() as media_type}:
                name = f"image {len(attachments) + 1}"
                attachments.append({"name": name, "media_type": media_type, "data_base64": data})
            case _:
                raise Invalid("prompt_invalid", "a content block is text, image, resource or resource_link")
    return "\n\n".join(texts) or ("(see what is attached)" if attachments else ""), attachments


def _closed(text: str) -> str:
    """Ends the fence that the person left open: the next file's would end it, and leave the file outside of both."""
    marks = open_fence(text)
    return f"{text}\n{marks}" if marks else text


def _named(name: str) -> str:
    """Returns a name as one line without marks of code, in which no reference begins."""
    line = " ".join(name.replace("`", "'").replace("~~~", "---").split())
    return line.replace("@", "@@") if parse_references(line) else line


def _fenced(text: str) -> str:
    marks = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{marks}\n{text}\n{marks}"


def text_block(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def kind_of(tool: str) -> str:
    """What an editor shows beside a call of this tool."""
    owner, _, verb = tool.rpartition(".")
    if owner in ("fs", "shell"):
        return _KINDS.get(verb, "other")
    return "fetch" if tool == "http.fetch" else "other"
