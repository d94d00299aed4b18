"""What a person is told of a compaction. Does not own: compacting (the daemon)."""

from palyra.cli.terminal.style import Style, date_time, in_one_line
from palyra.core.events.base import JsonObject
from palyra.core.plurals import counted

LINE_LENGTH_MAX = 140
LINES_MAX = 20


def compaction_lines(answer: JsonObject, style: Style) -> list[str]:
    """Returns what a person wants to know of a compaction."""
    if answer.get("reason"):
        return [str(answer["reason"])]
    head = "compacted" if answer.get("committed") else "would compact"
    lines = [style.bold(f"{head} {_exchanges(answer.get('exchanges_count'))}, summary by the {answer.get('by')}")]
    kept = answer.get("kept")
    for item in kept[:LINES_MAX] if isinstance(kept, list) else []:
        if isinstance(item, dict):
            lines.append(
                f"{style.green('kept')} {item.get('kind')}: {in_one_line(str(item.get('text')), LINE_LENGTH_MAX)}"
            )
    lines += [_retired_line(item, style) for item in _objects(answer.get("retired"))[:LINES_MAX]]
    dropped = answer.get("dropped")
    for text in dropped[:LINES_MAX] if isinstance(dropped, list) else []:
        lines.append(f"{style.dim('summarised')} {in_one_line(str(text), LINE_LENGTH_MAX)}")
    probes = answer.get("probes")
    refusals = probes.get("refusals") if isinstance(probes, dict) else None
    for refusal in refusals if isinstance(refusals, list) else []:
        lines.append(f"{style.yellow('a model’s summary was not used')}: {in_one_line(str(refusal), LINE_LENGTH_MAX)}")
    return lines


def record_lines(event: JsonObject, record: JsonObject | None, style: Style) -> list[str]:
    """Returns what a past compaction kept, dropped and retired, and the probes that a model's summary failed."""
    data = _object(event.get("data"))
    head = f"{date_time(event.get('at_ms'))}  by the {data.get('by', 'rules')}, checkpoint {data.get('checkpoint_id')}"
    lines = [style.bold(head)]
    whole = record if record is not None else {**data, "kept": data.get("items")}
    for item in _objects(whole.get("kept")):
        lines.append(f"  {style.green('kept')} {in_one_line(str(item.get('text')), LINE_LENGTH_MAX)}")
    lines += [f"  {_retired_line(item, style)}" for item in _objects(whole.get("retired"))]
    for item in _objects(whole.get("dropped")):
        said = in_one_line(str(item.get("text")), LINE_LENGTH_MAX)
        lines.append(f"  {style.dim('summarised')} at {item.get('place')}: {said}")
    probes = _objects(whole.get("probes"))
    if probes:
        passed_count = sum(probe.get("is_passed") is True for probe in probes)
        lines.append(f"  {passed_count} of {len(probes)} probes passed")
    for probe in probes:
        if probe.get("is_passed") is not True:
            about = in_one_line(str(probe.get("about")), LINE_LENGTH_MAX)
            lines.append(f"  {style.yellow('failed')} {probe.get('kind')}: {about}")
    refusals = whole.get("refusals")
    for refusal in refusals if isinstance(refusals, list) else []:
        lines.append(
            f"  {style.yellow('a model’s summary was not used')}: {in_one_line(str(refusal), LINE_LENGTH_MAX)}"
        )
    return lines


def _retired_line(item: JsonObject, style: Style) -> str:
    """Returns a line about a rule or a task that is not kept any longer, with the words that say so and their place."""
    how = "done" if item.get("kind") == "task" else "replaced"
    said = f"{item.get('text')} ({how} at {item.get('by_place')}: {item.get('by')})"
    return f"{style.yellow('retired')} {in_one_line(said, LINE_LENGTH_MAX)}"


def _object(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _objects(value: object) -> list[JsonObject]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _exchanges(count: object) -> str:
    return counted(count, "exchange") if isinstance(count, int) else "no exchanges"
