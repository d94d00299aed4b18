"""Attachments of a message.

Owns: whose they are (L11), that their types are those of their bytes, and keeping them with their session.
Does not own: the text of documents (attached_texts), showing them to a model (core.context, core.attachments,
engine.session.images).
Invariants: a body is written before the message is recorded and linked in the same commit. A crash in between leaves a
body that nothing refers to, and the next sweep removes it. An artifact keeps its trust when it is attached (L8).
"""

import asyncio
import hashlib
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from palyra.core.documents import UNREADABLE, kind_of_type
from palyra.core.errors import Invalid, NotFound
from palyra.core.events.run import AttachedText, Attachment
from palyra.core.ids import ArtifactId, Principal
from palyra.core.images import IMAGE_BYTES_MAX, IMAGE_TYPES, IMAGES_BYTES_MAX, find_fault, normal_type
from palyra.core.taint import label
from palyra.core.trust import Trust, is_tainting, lowest
from palyra.core.writes import LinkArtifact
from palyra.engine.api.artifacts import MEDIA_TYPE_LENGTH_MAX, UPLOAD_BYTES_MAX
from palyra.engine.api.requests import ATTACHMENTS_MAX, NAME_LENGTH_MAX, GivenAttachment
from palyra.engine.session.attached_texts import PreparedText, TextIntake
from palyra.engine.session.commands import SendInput, StartRun
from palyra.engine.session.pending_commit import PendingCommit
from palyra.ports.artifacts import Artifacts
from palyra.ports.state import State
from palyra.ports.views import ProvenanceViews

READ_S = 60.0  # Reading all documents of one message; whoever sends it waits for that.
TEXT_TYPE = "text/plain"


class CheckedAttachment(msgspec.Struct, frozen=True, kw_only=True):
    """An attachment with which nothing is wrong. `link` is that of an artifact that exists already."""

    given: GivenAttachment
    media_type: str
    bytes: int
    link: LinkArtifact | None = None
    text: PreparedText | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachmentIntake:
    """Accepts attachments: checks and reads them all, then stores their bodies."""

    artifacts: Artifacts
    state: State
    texts: TextIntake
    provenance: ProvenanceViews

    async def take(
        self, principal: Principal, given: tuple[GivenAttachment, ...], message: str
    ) -> tuple[Attachment, ...]:
        """Returns the attachments as the message will name them. All are checked before any is stored."""
        if not given:
            return ()
        if len(given) > ATTACHMENTS_MAX:
            raise _refusal(f"a message has at most {ATTACHMENTS_MAX} attachments, this one has {len(given)}")
        given = tuple([await self._lowered(item) for item in given])
        checked = [await self._check(principal, item, at) for at, item in enumerate(given, 1)]
        images_bytes = sum(each.bytes for each in checked if each.media_type in IMAGE_TYPES)
        if images_bytes > IMAGES_BYTES_MAX:
            raise _refusal(
                f"the images of a message have together at most {IMAGES_BYTES_MAX} bytes, not {images_bytes}"
            )
        read = await self._read_all(checked)
        texts = await self.texts.show([each.text for each in read], message)
        ids = [each.given.artifact_id or await self.artifacts.put(each.given.body or b"") for each in read]
        return tuple(
            _attachment(each, artifact_id, text) for each, artifact_id, text in zip(read, ids, texts, strict=True)
        )

    async def _lowered(self, item: GivenAttachment) -> GivenAttachment:
        """Returns the attachment as one from outside, if its bytes may have been written under taint."""
        rows = await self.provenance.tainted_paths(item.paths) if item.paths else ()
        if not rows:
            return item
        return replace(item, trust=Trust.EXTERNAL, source=label("file", rows[0].path))

    async def _check(self, principal: Principal, item: GivenAttachment, at: int) -> CheckedAttachment:
        if not 1 <= len(item.name) <= NAME_LENGTH_MAX or not 1 <= len(item.media_type) <= MEDIA_TYPE_LENGTH_MAX:
            lengths = f"a name has 1 to {NAME_LENGTH_MAX} characters, a type {MEDIA_TYPE_LENGTH_MAX}"
            raise _refusal(f"attachment {at}: {lengths}")
        if (item.artifact_id is None) == (item.body is None):
            raise _refusal(f"attachment {at}: it has either an artifact's id or its own bytes")
        link = await self._link(principal, item)
        size = len(item.body or b"") if link is None else link.bytes
        if size > UPLOAD_BYTES_MAX:
            raise _refusal(f"attachment {at}: {size} bytes; the most is {UPLOAD_BYTES_MAX}")
        kind = normal_type(item.media_type)
        if kind in IMAGE_TYPES:
            # One byte more than an image may have shows that an image is too large.
            fault = find_fault(kind, await self._body(item, IMAGE_BYTES_MAX + 1))
            if fault is not None:
                raise _refusal(f"attachment {at}: {fault}")
        return CheckedAttachment(given=item, media_type=kind, bytes=size, link=link)

    async def _link(self, principal: Principal, item: GivenAttachment) -> LinkArtifact | None:
        if item.artifact_id is None:
            return None
        link = await self.state.artifact_for(item.artifact_id, principal)
        if link is None:
            raise NotFound("artifact_unknown", f"there is no artifact {item.artifact_id}")
        return link

    async def _body(self, item: GivenAttachment, limit: int) -> bytes:
        if item.artifact_id is None:
            return item.body or b""
        return await self.artifacts.get(item.artifact_id, 0, limit)

    async def _read_all(self, checked: list[CheckedAttachment]) -> list[CheckedAttachment]:
        """Reads the documents among them, the same bytes once."""
        known: dict[tuple[str, str], PreparedText | None] = {}
        try:
            async with asyncio.timeout(READ_S):
                return [await self._read(each, at, known) for at, each in enumerate(checked, 1)]
        except TimeoutError as cause:
            raise _refusal(
                f"reading the documents of one message may take {READ_S:.0f} s; send fewer at once"
            ) from cause

    async def _read(
        self, checked: CheckedAttachment, at: int, known: dict[tuple[str, str], PreparedText | None]
    ) -> CheckedAttachment:
        """Adds the readable text. A type that promises text must have it; any other file may be without."""
        if checked.media_type in IMAGE_TYPES:
            return checked
        body = await self._body(checked.given, checked.bytes)
        key = await asyncio.to_thread(_digest, body), checked.media_type
        if key not in known:
            try:
                known[key] = await self.texts.read(body, checked.given.media_type)
            except Invalid as refused:
                if refused.code != UNREADABLE:
                    raise
                if kind_of_type(checked.media_type) is not None:
                    raise _refusal(f"attachment {at}: {refused.message}") from refused
                known[key] = None
        return replace(checked, text=known[key])


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _attachment(checked: CheckedAttachment, artifact_id: ArtifactId, text: AttachedText | None) -> Attachment:
    link, given = checked.link, checked.given
    known = [each for each in (given.trust, link.trust if link is not None else None) if each is not None]
    trust = lowest(known)
    return Attachment(
        artifact_id=artifact_id,
        name=given.name,
        media_type=checked.media_type,
        bytes=checked.bytes,
        text=text,
        trust=trust if trust in (Trust.LOCAL, Trust.EXTERNAL) else None,
        source=_source(given, link) if is_tainting(trust) else None,
    )


def _source(given: GivenAttachment, link: LinkArtifact | None) -> str:
    """Returns where an attachment from outside came from: the artifact's own origin counts before the sender's word."""
    if link is not None and is_tainting(link.trust):
        return link.source or label("artifact", link.artifact_id[:16])
    return given.source or label("attached", given.name)


def link_attached(pending: PendingCommit, command: StartRun | SendInput, now_ms: int) -> PendingCommit:
    """Links what is attached to the message's session, so that deleting the session releases it.

    An attachment has the trust of the message it came with, or its own if that is lower. So has its text.
    """
    links = [
        LinkArtifact(
            ArtifactId(artifact_id),
            pending.state.session_id,
            size,
            media_type,
            now_ms,
            lowest((command.trust, each.trust or command.trust)),
            each.source,
        )
        for each in command.message.attachments
        for artifact_id, size, media_type in _bodies(each)
    ]
    return replace(pending, writes=(*pending.writes, *links)) if links else pending


def _bodies(attachment: Attachment) -> list[tuple[str, int, str]]:
    """Returns the bodies that an attachment refers to: itself, and its text if that was stored."""
    bodies = [(attachment.artifact_id, attachment.bytes, attachment.media_type)]
    text = attachment.text
    if text is not None and text.is_cut and text.sha256 != attachment.artifact_id:
        bodies.append((text.sha256, text.bytes, TEXT_TYPE))
    return bodies


def _refusal(message: str) -> Invalid:
    return Invalid("attachment_invalid", message)
