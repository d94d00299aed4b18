"""Verifies the journal in a child process: `palyra verify --json` with limits.

Owns: starting it, its limits, and ending it when nobody waits any more. Does not own: checking (core.verification).
"""

import asyncio
import contextlib
import os
import resource
import sys

import msgspec

from palyra.app import Home
from palyra.core.errors import Unavailable

CPU_S_MAX = 3_600  # Millions of events; a process that needs more has gone wrong.
MEMORY_BYTES_MAX = 4 << 30
NICENESS = 10


async def verify_journal(home: Home) -> dict[str, object]:
    """Returns the report. Cancelling this ends the process."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "palyra", "--home", str(home.root), "verify", "--json"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _limit(process.pid)
        output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    # Exit code 1 comes with a report too if something is damaged; anything without a report is a failure.
    try:
        return msgspec.json.decode(output, type=dict[str, object])
    except msgspec.DecodeError as cause:
        lines = errors.decode("utf-8", "replace").strip().splitlines()
        message = f"verifying ended with code {process.returncode}: {lines[-1] if lines else 'no output'}"
        raise Unavailable("verify_failed", message) from cause


def _limit(pid: int) -> None:
    """Limits a process that has just begun. One that is over already needs no limit."""
    with contextlib.suppress(ProcessLookupError, PermissionError, AttributeError):  # Only Linux has prlimit.
        resource.prlimit(pid, resource.RLIMIT_CPU, (CPU_S_MAX, CPU_S_MAX))
        resource.prlimit(pid, resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
        os.setpriority(os.PRIO_PROCESS, pid, NICENESS)
