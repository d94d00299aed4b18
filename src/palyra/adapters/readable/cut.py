"""Cuts a text that is too long, at a line end where there is one."""


def cut_at_line(text: str, chars_max: int) -> str:
    """Returns whole lines that fit. A first line that is too long is cut inside."""
    if len(text) <= chars_max:
        return text
    end = text.rfind("\n", 0, chars_max + 1)
    return text[:end] if end > 0 else text[:chars_max]
