"""Names of files by what lists of file types know: Python's tables, and the lexers of Pygments."""

import mimetypes
from importlib.machinery import BYTECODE_SUFFIXES, EXTENSION_SUFFIXES

from pygments.lexers import get_all_lexers  # type: ignore[import-untyped]


def names_of_file_types() -> list[str]:
    """Returns a name for each file type, also those of compiled code that a next command would load."""
    patterns = [pattern for _, _, filenames, _ in get_all_lexers() for pattern in filenames]
    plain = [pattern.replace("*", "evil") for pattern in patterns if not set("[]?") & set(pattern)]
    suffixes = [
        *mimetypes.types_map,
        *mimetypes.common_types,
        *BYTECODE_SUFFIXES,
        *EXTENSION_SUFFIXES,
        ".node",
        ".class",
    ]
    compiled = [f"{name}{suffix}" for name in ("evil", "conftest", "sitecustomize", "setup") for suffix in suffixes]
    cached = [f"__pycache__/{name}.cpython-311{end}.pyc" for name in ("conftest", "a") for end in ("", "-pytest-8.3.4")]
    return sorted({*plain, *compiled, *cached, "evil"})
