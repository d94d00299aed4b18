"""Taint of files: which of the files that a call reads, shows by name or carries on were written under taint (L8).

Does not own: what that makes of the call's result (tool_call), nor of its verdict (gate).
"""

from collections.abc import Iterable

from palyra.core.events.tool import FileBytes
from palyra.core.projections.provenance import full_path
from palyra.core.taint import label
from palyra.ports.views import ProvenanceViews


async def tainted_names(
    provenance: ProvenanceViews, read: Iterable[FileBytes], named: tuple[str, ...] = ()
) -> frozenset[str]:
    """Returns the paths of tainted files below their roots. Bytes without a hash are not known: their path decides."""
    names = {file.path for file in read if file.sha256 and await provenance.tainted_file(full_path(file), file.sha256)}
    unknown = tuple(full_path(file) for file in read if not file.sha256)
    rows = await provenance.tainted_paths((*named, *unknown))
    return frozenset(names | {row.path.removeprefix(f"{row.root.rstrip('/')}/") for row in rows})


def file_source(names: frozenset[str], tool: str) -> str:
    """Returns the source of what came from these files: the file, and for several the tool itself."""
    return label("file", next(iter(names))) if len(names) == 1 else label("tool", tool)


async def carried_taint(
    provenance: ProvenanceViews, carried: Iterable[FileBytes], tool: str, vouched: frozenset[str]
) -> tuple[str, ...]:
    """Returns the sources that a call carries from files it reads into files it writes, unless a person vouches."""
    names = await tainted_names(provenance, carried) if carried else frozenset()
    source = file_source(names, tool) if names else None
    return () if source is None or source in vouched else (source,)
