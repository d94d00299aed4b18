"""A real daemon with policies of its operator: taken up while it runs, refused aloud, on record."""

from pathlib import Path

from palyra.app import Home, open_archive
from palyra.core.events.codec import decode_data
from palyra.core.events.system import AdminActed
from palyra.core.ids import is_system_stream
from tests.support.daemons import Daemon
from tests.support.policies import put_policy
from tests.support.waiting import wait_until

NO_CLOCK = (
    '@id("no_clock") @says("No clocks.") forbid (principal, action == Action::"call", resource == Tool::"time.now");'
)


def rule_of(daemon: Daemon) -> str:
    status, answer = daemon.call("POST", "/api/v1/policy/explain", {"tool": "time.now", "arguments": {}})
    assert status == 200
    return str(answer["rule"])


def acts_of(home: Path) -> list[str]:
    with open_archive(Home(home)) as archive:
        tapes = [stream for stream in archive.streams() if is_system_stream(stream)]
        events = [event for tape in tapes for event in archive.events(tape) if event.type == AdminActed.TYPE]
        acts = [decode_data(event.type, event.data) for event in events]
    return [act.action for act in acts if isinstance(act, AdminActed) and act.action.startswith("policy.")]


def state_of(daemon: Daemon) -> str:
    return str(daemon.call("GET", "/readyz")[1]["parts"]["policy"])


def test_policies_are_taken_up_refused_and_recorded_while_the_daemon_runs(tmp_path: Path) -> None:
    policies = tmp_path / "home" / "policies"
    with Daemon(tmp_path / "home") as daemon:
        assert (rule_of(daemon), state_of(daemon)) == ("internal_read", "ok")
        put_policy(policies, NO_CLOCK)
        wait_until(lambda: rule_of(daemon) == "mine/no_clock")
        put_policy(policies, "permit (principal, action, resource) when { context.hots };")
        wait_until(lambda: state_of(daemon) != "ok")
        assert "mine.cedar:1" in state_of(daemon)
        assert rule_of(daemon) == "mine/no_clock"
        assert daemon.call("GET", "/readyz")[0] == 503
        daemon.stop()
        daemon.start()
        assert rule_of(daemon) == "policy_broken"
    assert "policy_rejected" in daemon.log()
    assert acts_of(daemon.home) == ["policy.reloaded", "policy.rejected", "policy.rejected"]


def test_change_is_taken_up_though_nobody_asks(tmp_path: Path) -> None:
    """The first question after it is judged by the new set, however long the daemon was left alone."""
    with Daemon(tmp_path / "home") as daemon:
        folder = daemon.home / "policies"
        folder.mkdir(exist_ok=True)
        (folder / "mine.cedar").write_text('@id("no") forbid (principal, action == Action::"call", resource);')
        wait_until(lambda: "policy_reloaded" in daemon.log(), "the change")
        asked = {"tool": "time.now", "arguments": {}}
        assert daemon.call("POST", "/api/v1/policy/explain", asked)[1]["verdict"] == "deny"
