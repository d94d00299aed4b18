"""How many files and sockets this process may have open at once.

Owns: raising the soft limit, and the part of it that connections may take, so that strangers leave files for runs.
Does not own: the limits of programs that tools start (adapters.runtimes).
"""

import resource

FILES_WANTED = 16_384  # Twice what all connections at their limits take together.
HTTP_PART = 2  # A half, and a quarter for gRPC: the rest is for the journal, artifacts, programs and providers.
GRPC_PART = 4


def raise_limit() -> None:
    """Many systems allow 1,024 at first, and far more to whoever asks."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = FILES_WANTED if hard == resource.RLIM_INFINITY else min(FILES_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


def share(most: int, part: int) -> int:
    """Returns `most`, or a part of what this process may have open if that is less."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if soft == resource.RLIM_INFINITY else min(most, soft // part)
