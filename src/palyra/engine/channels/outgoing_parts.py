"""The parts of a message that goes out: texts that a platform accepts, and files.

Owns: how a message is divided, and the line that stands for a file which a platform does not take.
Does not own: sending (sender), the limits themselves (ports.channels.ChannelTraits).
Invariant: the same item has the same parts at every attempt, so that counting them tells what was sent. A part is sent,
found again or declared uncertain as a whole, whether it is a text or a file.
"""

from dataclasses import dataclass

from msgspec.structs import replace

from palyra.core.channels.answer_parts import split_answer, without_broadcast
from palyra.core.channels.model import BroadcastStrategy
from palyra.core.channels.outbox import OutboxFile, OutboxItem, part_key
from palyra.core.errors import PalyraError
from palyra.engine.channels.directory import ConfiguredChannel
from palyra.ports.artifacts import Artifacts
from palyra.ports.channels import ChannelTraits, OutgoingFile, OutgoingPart

MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True)
class PlannedPart:
    """One message as a platform will get it. Its files are read when it is sent."""

    text: str
    files: tuple[OutboxFile, ...] = ()


def parts_of(item: OutboxItem, channel: ConfiguredChannel) -> tuple[PlannedPart, ...]:
    """Divides an item. Files follow the text; one that the platform does not take is named in the text instead."""
    rules, traits = channel.rules, channel.adapter.traits
    fitting, notes = _fitting(item.files, traits)
    told = "\n\n".join(each for each in (item.text.strip("\n"), "\n".join(notes)) if each.strip())
    text = told if rules.broadcast is BroadcastStrategy.ALLOW else without_broadcast(told)
    texts = split_answer(f"{rules.response_prefix}{text}" if text.strip() else "", traits.length_max)
    if not traits.joins_files:
        return (*(PlannedPart(each) for each in texts), *(PlannedPart("", (file,)) for file in fitting))
    *before, last = texts or ("",)
    return (*(PlannedPart(each) for each in before), *([PlannedPart(last, fitting)] if last or fitting else []))


def fit_all(files: tuple[OutboxFile, ...], traits: ChannelTraits) -> bool:
    """Tells whether the platform takes every one of these files."""
    return len(_fitting(files, traits)[0]) == len(files)


def outgoing(item: OutboxItem, parts: tuple[PlannedPart, ...]) -> OutgoingPart:
    """Returns the part that is sent next, without its files."""
    is_last = item.part == len(parts) - 1
    return OutgoingPart(
        key=part_key(item),
        conversation_id=item.conversation_id,
        text=parts[item.part].text,
        thread_id=item.thread_id,
        reply_to=item.reply_to if item.part == 0 else None,
        buttons=item.buttons if is_last else (),
        began_at_ms=item.created_at_ms,
    )


async def with_files(part: OutgoingPart, files: tuple[OutboxFile, ...], artifacts: Artifacts) -> OutgoingPart:
    """Reads the files of a part. One that is gone, as after its session was erased, is named in the text."""
    read: list[OutgoingFile] = []
    lines = [part.text] if part.text else []
    for file in files:
        try:
            body = await artifacts.get(file.artifact_id, 0, file.bytes)
        except PalyraError:
            lines.append(f"({file.name} is not attached: it is not stored any more.)")
            continue
        read.append(OutgoingFile(name=file.name, media_type=file.media_type, body=body))
    return replace(part, text="\n\n".join(lines), files=tuple(read))


def _fitting(files: tuple[OutboxFile, ...], traits: ChannelTraits) -> tuple[tuple[OutboxFile, ...], list[str]]:
    """Returns the files that the platform takes, and a line for each of the others."""
    fitting: list[OutboxFile] = []
    notes: list[str] = []
    for file in files:
        used = sum(each.bytes for each in fitting) if traits.joins_files else 0
        if used + file.bytes <= traits.file_bytes_max and file.bytes > 0:
            fitting.append(file)
        else:
            notes.append(f"({file.name} is not attached: {_reason(file, traits)}.)")
    return tuple(fitting), notes


def _reason(file: OutboxFile, traits: ChannelTraits) -> str:
    if not traits.file_bytes_max:
        return "this channel takes no files"
    if not file.bytes:
        return "it is empty"
    return f"it has {file.bytes / MEGABYTE:.1f} MB, and this channel takes {traits.file_bytes_max / MEGABYTE:.0f} MB"
