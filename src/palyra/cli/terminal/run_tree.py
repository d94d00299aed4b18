"""The tree of a run and what it delegated, as lines for a terminal. Does not own: reading it (commands.runs)."""

from collections.abc import Iterator

from palyra.cli.terminal.style import Style, in_one_line
from palyra.core.events.base import JsonObject
from palyra.core.plurals import counted

TASK_LENGTH_MAX = 80


def tree_lines(tree: JsonObject, style: Style) -> Iterator[str]:
    root = tree.get("root")
    if isinstance(root, dict):
        yield from _lines(root, "", "", style)
    if tree.get("is_cut"):
        yield style.dim("… and more; show the tree of one of these runs")
    yield style.dim(total_text(tree))


def total_text(tree: JsonObject) -> str:
    """Returns how many runs a tree has, and what they used together."""
    count = tree.get("runs_count")
    return f"{counted(count if isinstance(count, int) else 0, 'run')}, {usage_text({'usage': tree.get('total')})}"


def children_of(node: object) -> list[JsonObject]:
    children = node.get("children") if isinstance(node, dict) else None
    return [child for child in children if isinstance(child, dict)] if isinstance(children, list) else []


def usage_text(record: JsonObject) -> str:
    usage = record.get("usage")
    if not isinstance(usage, dict):
        return "–"
    cost = usage.get("cost_usd")
    price = f"${cost:.4f}" if isinstance(cost, int | float) else "price unknown"
    return f"{usage.get('input_tokens')} in, {usage.get('output_tokens')} out, {price}"


def _lines(node: JsonObject, first: str, rest: str, style: Style) -> Iterator[str]:
    """Yields two lines a run: who and how it stands, then its task. `first` and `rest` are what stands before them."""
    children = children_of(node)
    stem = f"{rest}{'│  ' if children else '   '}"
    yield f"{style.dim(first)}{node.get('id')}  {_state(node, style)}  {node.get('agent')}  {style.dim(usage_text(node))}"
    yield f"{style.dim(stem)}{in_one_line(str(node.get('task')), TASK_LENGTH_MAX)}"
    for number, child in enumerate(children, 1):
        is_last = number == len(children)
        yield from _lines(child, f"{rest}{'└─ ' if is_last else '├─ '}", f"{rest}{'   ' if is_last else '│  '}", style)


def _state(node: JsonObject, style: Style) -> str:
    state, reason = str(node.get("state")), node.get("reason")
    text = state if reason in (None, "final_answer", state) else f"{state} ({reason})"
    match state:
        case "done":
            return style.green(text)
        case "failed" | "cancelled":
            return style.red(text)
        case "waiting":
            return style.yellow(text)
        case _:
            return style.cyan(text)
