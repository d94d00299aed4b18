"""Whose job comes next.

Owns: choosing among jobs that are due. Does not own: finding them (ports.jobs), nor claiming them (engine.jobs).
Invariant: however many jobs one principal has queued, another's first job is chosen before that principal's second of
the same priority.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from palyra.core.ids import Principal
from palyra.core.jobs.model import Job


def choose(due: Iterable[Job], running: Mapping[Principal, int], count_max: int) -> tuple[Job, ...]:
    """Returns up to `count_max` jobs in the order in which to begin them.

    A higher priority goes first. Among equals the principal with the fewest running jobs goes first, then the job that
    has waited longest.
    """
    waiting: dict[tuple[int, Principal], list[Job]] = {}
    for job in sorted(due, key=lambda job: (job.not_before_ms, job.id), reverse=True):
        waiting.setdefault((-job.priority, job.principal), []).append(job)
    counts = Counter(running)
    chosen: list[Job] = []
    while waiting and len(chosen) < count_max:
        place = min(waiting, key=lambda place: (place[0], counts[place[1]], _age(waiting[place])))
        chosen.append(waiting[place].pop())
        counts[place[1]] += 1
        if not waiting[place]:
            del waiting[place]
    return tuple(chosen)


def _age(jobs: list[Job]) -> tuple[int, str]:
    return jobs[-1].not_before_ms, jobs[-1].id
