"""What a person is told of a compaction.

Does not own: compacting (the daemon).
"""

from palyra.cli.terminal.style import Style, in_one_line
from palyra.core.events.base import JsonObject

LINE_LENGTH_MAX = 140
LINES_MAX = 20


def compaction_lines(answer: JsonObject, style: Style) -> list[str]:
    """Returns what a person wants to know of a compaction."""
    if answer.get("reason"):
        return [str(answer["reason"])]
    head = "compacted" if answer.get("committed") else "would compact"
    lines = [style.bold(f"{head} {answer.get('exchanges_count')} exchanges, summary by the {answer.get('by')}")]
    kept = answer.get("kept")
    for item in kept[:LINES_MAX] if isinstance(kept, list) else []:
        if isinstance(item, dict):
            lines.append(
                f"{style.green('kept')} {item.get('kind')}: {in_one_line(str(item.get('text')), LINE_LENGTH_MAX)}"
            )
    dropped = answer.get("dropped")
    for text in dropped[:LINES_MAX] if isinstance(dropped, list) else []:
        lines.append(f"{style.dim('summarised')} {in_one_line(str(text), LINE_LENGTH_MAX)}")
    probes = answer.get("probes")
    refusals = probes.get("refusals") if isinstance(probes, dict) else None
    for refusal in refusals if isinstance(refusals, list) else []:
        lines.append(f"{style.yellow('a model’s summary was not used')}: {in_one_line(str(refusal), LINE_LENGTH_MAX)}")
    return lines
