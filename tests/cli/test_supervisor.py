"""The rules of the supervisor: when a daemon is started again, how soon, when that ends, and where there is none."""

import signal

import pytest

from palyra.cli import supervisor
from palyra.cli.supervisor import ChildEnd, RestartPolicy, Restarts, is_under_systemd
from palyra.engine.healing import loop_watch

POLICY = RestartPolicy()


def test_delays_grow_to_a_limit_and_a_long_life_makes_them_short_again() -> None:
    restarts = Restarts(POLICY._replace(restarts_max=100))
    delays = [restarts.next_delay_s(float(second), 1.0) for second in range(12)]
    assert delays[:4] == [0.1, 0.2, 0.4, 0.8]
    assert delays[-1] == POLICY.delay_max_s
    assert restarts.next_delay_s(100.0, POLICY.steady_s) == 0.1


def test_too_many_restarts_within_a_time_are_the_last() -> None:
    restarts = Restarts(POLICY)
    assert all(restarts.next_delay_s(float(second), 1.0) is not None for second in range(20))
    assert restarts.next_delay_s(20.0, 1.0) is None
    assert restarts.next_delay_s(599.0, 1.0) is None
    assert restarts.next_delay_s(600.0, 1.0) is not None  # The oldest no longer counts.


@pytest.mark.parametrize(
    ("end", "is_wanted"),
    [
        (ChildEnd(0, None), False),
        (ChildEnd(1, None), False),
        (ChildEnd(2, None), False),
        (ChildEnd(supervisor.RESTART_EXIT_CODE, None), True),
        (ChildEnd(None, signal.SIGKILL), True),
        (ChildEnd(None, signal.SIGSEGV), True),
        (ChildEnd(None, signal.SIGABRT), True),
    ],
)
def test_killed_and_stuck_daemons_are_started_again_and_others_are_not(end: ChildEnd, is_wanted: bool) -> None:
    assert end.wants_restart is is_wanted


def test_supervisor_and_loop_watch_mean_the_same_exit_code() -> None:
    assert supervisor.RESTART_EXIT_CODE == loop_watch.RESTART_EXIT_CODE


def test_reason_names_the_signal() -> None:
    assert ChildEnd(None, signal.SIGSEGV).reason == "it was killed by SIGSEGV"
    assert ChildEnd(None, 63).reason == "it was killed by signal 63"


@pytest.mark.parametrize(
    ("environ", "is_so"),
    [
        ({}, False),
        ({"INVOCATION_ID": "a"}, True),
        ({"NOTIFY_SOCKET": "/run/x"}, True),
        ({"INVOCATION_ID": "a", "SYSTEMD_EXEC_PID": "7"}, True),
        ({"INVOCATION_ID": "a", "SYSTEMD_EXEC_PID": "8"}, False),
    ],
)
def test_systemd_restarts_what_it_started_itself(environ: dict[str, str], is_so: bool) -> None:
    assert is_under_systemd(environ, pid=7) is is_so
