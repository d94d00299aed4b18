"""Drafts in words: what a command changed on disk, and the events of its draft in one line each.

Owns: which changes a person is told when a command ends. Does not own: differences (`palyra runs diff`), cards (card).
"""

from collections.abc import Mapping

from palyra.cli.terminal.style import in_one_line
from palyra.core.drafts.changes import place_of, without_paths
from palyra.core.drafts.review import unpack_places
from palyra.core.events.draft import ChangeKind, FileChange
from palyra.core.plurals import counted

LINES_MAX = 6  # A person is told the first changes; `palyra runs diff` shows the rest.
_PATH_LENGTH_MAX = 120
_WORDS: dict[object, str] = {"mode": "permissions of"}


class DraftNotes:
    """Keeps what the draft of each call changed until the call ends."""

    def __init__(self) -> None:
        self._drafted: dict[object, Mapping[str, object]] = {}
        self._without: dict[object, tuple[str, ...]] = {}
        self._held: dict[object, str] = {}

    def seal(self, data: Mapping[str, object]) -> None:
        self._drafted[data.get("call_id")] = data

    def judge(self, data: Mapping[str, object]) -> None:
        self._held[data.get("call_id")] = str(data.get("held") or "")

    def leave_out(self, data: Mapping[str, object]) -> None:
        self._without[data.get("call_id")] = tuple(map(str, _listed(data.get("without"))))

    def end(self, finished: Mapping[str, object]) -> tuple[object, list[str]]:
        """Returns what the call itself printed, and a line for each change that was applied or was not.

        The recorded output of a drafted command ends with a list of changes for the model. A person gets the lines.
        """
        call_id = finished.get("call_id")
        drafted, without = self._drafted.pop(call_id, {}), self._without.pop(call_id, ())
        packed = self._held.pop(call_id, "")
        found = finished.get("changes_count")
        applied_count = found if isinstance(found, int) else 0
        lines = _change_lines(drafted, without, packed)[:LINES_MAX] if applied_count else []
        if drafted and applied_count > len(lines):  # A long list is not in the event, only its length is.
            noun = "more change" if lines else "change"
            more = f"… {counted(applied_count - len(lines), noun)}"
            lines.append(f"{more}; palyra runs diff shows them")
        held_count = finished.get("held_count")
        if isinstance(held_count, int) and held_count:
            lines.append(
                f"kept in this session only: {counted(held_count, 'change')}; palyra runs keep shows and applies them"
            )
        printed = (drafted or finished).get("output")
        return printed, [*lines, *_left_out_lines(drafted, without)]

    def clear(self) -> None:
        self._drafted.clear()
        self._without.clear()
        self._held.clear()


def drafted_text(data: Mapping[str, object]) -> str:
    changes = _change_lines(data, (), "")
    changes_count = data.get("changes_count")
    count = changes_count if isinstance(changes_count, int) else len(changes)
    named = f": {', '.join(changes)}" if changes else ""
    return f"{data.get('call_id')} exit status {data.get('exit_status')}, {counted(count, 'change')}{named}"


def draft_judged_text(data: Mapping[str, object]) -> str:
    held_count = data.get("held_count")
    held = (
        f" ({counted(held_count, 'change')} kept in this session only)"
        if isinstance(held_count, int) and held_count
        else ""
    )
    return f"{data.get('call_id')} {data.get('verdict')} by {data.get('rule')}: {data.get('reason')}{held}"


def draft_applying_text(data: Mapping[str, object]) -> str:
    without = ", ".join(map(str, _listed(data.get("without"))))
    return f"{data.get('call_id')}{f' without {without}' if without else ''}"


def draft_conflicted_text(data: Mapping[str, object]) -> str:
    return f"{data.get('call_id')} {data.get('path')} was changed meanwhile ({data.get('cause')})"


def _change_lines(drafted: Mapping[str, object], without: tuple[str, ...], packed: str) -> list[str]:
    changes = [each for each in _listed(drafted.get("changes")) if isinstance(each, dict)]
    listed = [_change(each) for each in changes]
    applied = {place_of(change) for change in without_paths(listed, without)} - unpack_places(listed, packed)
    return [
        f"{_WORDS.get(each.get('kind'), each.get('kind'))} {in_one_line(str(each.get('path')), _PATH_LENGTH_MAX)}"
        for each in changes
        if (str(each.get("root")), str(each.get("path"))) in applied
    ]


def _change(each: Mapping[str, object]) -> FileChange:
    kind = next((kind for kind in ChangeKind if kind.value == each.get("kind")), ChangeKind.MODIFIED)
    return FileChange(root=str(each.get("root")), path=str(each.get("path")), kind=kind)


def _left_out_lines(drafted: Mapping[str, object], without: tuple[str, ...]) -> list[str]:
    found = [each for each in _listed(drafted.get("left_out")) if isinstance(each, dict)]
    reasons = [(str(each.get("path")), str(each.get("reason"))) for each in found]
    reasons += [(path, "you left it out") for path in without]
    said = [f"not applied: {path} ({reason})" for path, reason in reasons]
    lines = [in_one_line(line, 2 * _PATH_LENGTH_MAX) for line in said[:LINES_MAX]]
    counted_by_event = drafted.get("left_out_count")
    unnamed_count = max(0, counted_by_event - len(found)) if isinstance(counted_by_event, int) else 0
    more_count = len(said) - len(lines) + unnamed_count
    return [*lines, f"… {more_count} more not applied"] if more_count else lines


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []
