"""Draws the layers of an assembled context as a bar. Does not own: which layers there are (core.context.layers)."""

from palyra.cli.terminal.style import Style
from palyra.core.events.base import JsonObject

WIDTH = 60
_BLOCKS = "█▓▒░▞▚▙"


def context_lines(event: JsonObject, style: Style) -> list[str]:
    """Returns the bar of one turn, then one line for each layer."""
    data = event.get("data")
    if not isinstance(data, dict):
        return []
    layers = [layer for layer in _listed(data.get("layers")) if isinstance(layer, dict)]
    tokens = _number(data.get("input_tokens"))
    budget = _number(data.get("budget_tokens"))
    of = f" of {budget:,} ({100 * tokens / budget:.0f} %)" if budget else ", the model's window is not known"
    lines = [style.bold(f"turn {data.get('turn')}: {tokens:,} tokens{of}")]
    room = max(budget, tokens, 1)
    bar = "".join(_BLOCKS[n % len(_BLOCKS)] * _cells(layer, room) for n, layer in enumerate(layers))
    lines.append(f"[{bar.ljust(WIDTH, '·')[:WIDTH]}]")
    for n, layer in enumerate(layers):
        name = f"{_BLOCKS[n % len(_BLOCKS)]} {layer.get('name')}"
        words = f"  {style.yellow(str(layer['dropped']))}" if layer.get("dropped") else ""
        lines.append(
            f"{name:<16} {_number(layer.get('tokens')):>8,}  {layer.get('source')}  {layer.get('trust')}{words}"
        )
    if data.get("is_compaction_due"):
        lines.append(style.dim("compaction is due: it runs beside the session"))
    return lines


def _cells(layer: JsonObject, room: int) -> int:
    tokens = _number(layer.get("tokens"))
    return max(1, round(WIDTH * tokens / room)) if tokens else 0


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []
