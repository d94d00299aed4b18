"""Slots of active runs: each depth of delegation has its own, in the order of waiting."""

from palyra.core.ids import SessionId, StreamId
from palyra.engine.session.slots import RunSlots


def session(name: str) -> SessionId:
    return SessionId(StreamId(name))


def test_a_child_does_not_wait_for_its_parents_slot() -> None:
    slots = RunSlots(1)
    assert slots.has_room(session("parent"))
    assert not slots.has_room(session("other"))
    assert slots.has_room(session("child"), 1)
    assert not slots.has_room(session("sibling"), 1)
    assert slots.taken_count == 2


def test_a_free_slot_goes_to_who_waits_at_that_depth() -> None:
    slots = RunSlots(1)
    for name, depth in (("parent", 0), ("child", 1)):
        assert slots.has_room(session(name), depth)
    assert not slots.has_room(session("other"))
    assert not slots.has_room(session("sibling"), 1)
    slots.leave(session("child"))
    assert slots.next_waiting() == "sibling"
    assert slots.next_waiting() is None
    slots.leave(session("parent"))
    assert slots.next_waiting() == "other"


def test_a_stopping_daemon_lets_active_runs_delegate() -> None:
    slots = RunSlots(4)
    assert slots.has_room(session("parent"))
    slots.is_closed = True
    assert not slots.has_room(session("new"))
    assert slots.has_room(session("child"), 1)


def test_a_session_with_a_queue_passes_its_slot_on_to_who_waits() -> None:
    slots = RunSlots(8, {"discord:team": 1})
    busy, other = session("busy"), session("other")
    assert slots.has_room(busy, origin="discord:team")
    assert slots.has_room(busy, origin="discord:team")
    assert not slots.has_room(other, origin="discord:team")
    assert not slots.has_room(busy, origin="discord:team")
    slots.leave(busy)
    assert slots.next_waiting() == other
    assert slots.has_room(other, origin="discord:team")
    slots.leave(other)
    assert slots.next_waiting() == busy


def test_a_slot_that_would_not_help_who_waits_is_kept() -> None:
    slots = RunSlots(8, {"discord:team": 1})
    assert slots.has_room(session("a"), origin="discord:team")
    assert slots.has_room(session("b"), origin="http")
    assert not slots.has_room(session("c"), origin="discord:team")
    assert slots.has_room(session("b"), origin="http")
