"""The card of a draft: what a person reads before its changes are allowed.

Owns: what the card names and shows, in which order, and what is kept beside it where it is too long.
Does not own: judging (draft_gate), who has read it (api.approvals).
"""

import asyncio
from dataclasses import dataclass

import msgspec

from palyra.core.drafts.changes import Place, describe_changes, describe_held, describe_left_out, place_of
from palyra.core.drafts.git import GitText
from palyra.core.drafts.judge import name_asking
from palyra.core.events.draft import FileChange
from palyra.core.events.tool import MadeArtifact
from palyra.core.ids import RunId
from palyra.core.run.call import Call
from palyra.core.spelling import spell_out
from palyra.engine.session.draft_git import name_write
from palyra.engine.session.full_previews import FullPreviews
from palyra.ports.drafts import CARD_ROOM, FULL_ROOM, Drafts, PreviewRoom, ShownChanges

PREVIEW_LENGTH_MAX = 16 * 1024
NAMES_LENGTH_MAX = 3 * 1024  # Of a card: what asks by kind and folder. The differences need the rest.
CUT_MARK = "\n[the rest is not shown]"
FULL_NAME = "changes.diff.txt"
COMMAND_SHOWN_MAX = 300


class AskedDraft(msgspec.Struct, frozen=True, kw_only=True):
    """What a card is about: the changes and the writes of git that ask, and what stays in the layer of the session."""

    call: Call
    changes: tuple[FileChange, ...]
    git: tuple[GitText, ...]
    kept: frozenset[Place]
    root: str


@dataclass(frozen=True, slots=True)
class DraftCard:
    drafts: Drafts
    full: FullPreviews

    async def show(self, run_id: RunId, asked: AskedDraft) -> tuple[str, MadeArtifact | None]:
        """Shows the command, then what asks in git and in files, then the rest by name, then what is not applied.

        Where that is too long for a card, all that asks is named by kind and folder, and the whole is kept beside it.
        """
        changes = (await self.drafts.read(asked.call.effect_id)).changes
        if not asked.changes and not asked.git:
            asked = msgspec.structs.replace(asked, changes=changes)
        command, others = _command(asked.call), await self._others(asked)
        shown = await self._shown(asked, CARD_ROOM)
        is_crowd = len(asked.changes) + len(asked.git) > CARD_ROOM.files_max
        if shown.is_whole and len(command) + len(shown.text) <= PREVIEW_LENGTH_MAX and not is_crowd:
            return _cut(f"{command}{shown.text}{others}", PREVIEW_LENGTH_MAX), None
        in_files = await asyncio.to_thread(name_asking, asked.changes, asked.root)
        named = "\n".join((*(name_write(text.write, asked.root) for text in asked.git), *in_files))
        listed = f"{command}what asks:\n{_cut(named, NAMES_LENGTH_MAX)}\n\n{shown.text}{others}"
        preview = _cut(listed, PREVIEW_LENGTH_MAX)
        if shown.is_whole and len(named) <= NAMES_LENGTH_MAX:
            return preview, None
        whole = await self._shown(asked, FULL_ROOM)
        text = f"{command}what asks:\n{named}\n\n{whole.text}{others}"
        return preview, await self.full.keep(run_id, FULL_NAME, text)

    async def _shown(self, asked: AskedDraft, room: PreviewRoom) -> ShownChanges:
        git = await self.drafts.preview_git(asked.git, room) if asked.git else ShownChanges("", True)
        left = msgspec.structs.replace(room, length_max=max(0, room.length_max - len(git.text)))
        if not asked.changes:
            return git
        files = await self.drafts.preview(asked.call.effect_id, asked.changes, left)
        text = "\n\n".join(part for part in (git.text, files.text) if part)
        return ShownChanges(text, git.is_whole and files.is_whole)

    async def _others(self, asked: AskedDraft) -> str:
        change_set = await self.drafts.read(asked.call.effect_id)
        changes, kept = change_set.changes, asked.kept
        names = {place_of(change) for change in asked.changes}
        rest = tuple(change for change in changes if place_of(change) not in names and place_of(change) not in kept)
        others = f"\n\nand without a question of their own:\n{describe_changes(rest)}" if rest else ""
        unapplied = describe_left_out(change_set.left_out, change_set.left_out_count)
        others += f"\n\n{unapplied}" if unapplied else ""
        return others + (f"\n\n{describe_held([each for each in changes if place_of(each) in kept])}" if kept else "")


def _command(call: Call) -> str:
    """Returns the command in a line of its own, for surfaces that show no arguments."""
    command = call.arguments.get("command") if isinstance(call.arguments, dict) else None
    if not isinstance(command, str):
        return ""
    shown = spell_out(command)
    return f"$ {shown if len(shown) <= COMMAND_SHOWN_MAX else shown[: COMMAND_SHOWN_MAX - 1] + '…'}\n\n"


def _cut(text: str, length_max: int) -> str:
    return text if len(text) <= length_max else text[: length_max - len(CUT_MARK)] + CUT_MARK
