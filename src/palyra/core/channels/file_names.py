"""Names of files that go out, so that no platform and no header reads them as anything else."""

import re

NAME_LENGTH_MAX = 120
_UNFIT = re.compile(r'[\x00-\x1f\x7f"\\/:*?<>|\u202a-\u202e\u2066-\u2069]')


def file_name(name: str) -> str:
    """Returns a name without quotes, separators, controls and marks of direction. Its ending is kept."""
    fit = _UNFIT.sub("_", name).strip(". ") or "file"
    return fit if len(fit) <= NAME_LENGTH_MAX else fit[: NAME_LENGTH_MAX - 20] + fit[-20:]
