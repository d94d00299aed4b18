"""The Cron port: reads cron expressions. Does not own: other schedules (core.routines.schedule)."""

from typing import Protocol

from palyra.core.routines.model import CronSchedule


class Cron(Protocol):
    def check(self, schedule: CronSchedule) -> None:
        """Invalid if the expression cannot be read or never comes."""
        ...

    def next_ms(self, schedule: CronSchedule, after_ms: int) -> int | None:
        """Returns the first time after the moment. It depends on the arguments alone."""
        ...
