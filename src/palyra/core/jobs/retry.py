"""What follows when an attempt at a job fails.

Owns: how long to wait before the next attempt, and when there is none. Randomness arrives as an argument.
"""

from palyra.core.jobs.model import JobKind

LOSSES_MAX = 100  # A job whose worker dies this often is what kills it.
LOSS_DELAY_MAX_MS = 60_000


def retry_delay_ms(kind: JobKind, attempts: int, random: float) -> int | None:
    """Returns the wait before the next attempt, or None after the last one.

    The wait doubles with each attempt up to the kind's maximum. Half of it is random, so that jobs that failed together
    do not come back together.
    """
    if attempts >= kind.attempts_max:
        return None
    doubled = kind.backoff_s * 2 ** min(attempts - 1, 30)
    longest = min(doubled, kind.backoff_max_s)
    return int(1000 * longest * (0.5 + random / 2))


def loss_delay_ms(losses: int) -> int | None:
    """Returns the wait after a worker was lost, or None once the job itself must be the cause.

    The first loss waits for nothing: a restart should not delay work. Later ones wait longer, so that a job that kills
    its daemon does not do so at every start.
    """
    if losses >= LOSSES_MAX:
        return None
    return 0 if losses == 0 else min(1000 * 2 ** min(losses - 1, 10), LOSS_DELAY_MAX_MS)
