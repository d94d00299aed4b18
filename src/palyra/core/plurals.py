"""A count and its noun: `1 run`, `2 runs`."""


def counted(count: int, noun: str, plural: str = "") -> str:
    return f"{count} {noun if count == 1 else plural or noun + 's'}"
