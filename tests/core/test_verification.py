"""The verifier's checks of tapes, checkpoints and erasures, on journals in memory."""

import hashlib

import msgspec
import pytest

from palyra.core.chain import digest_data
from palyra.core.checkpoint import draft_checkpoint, key_id
from palyra.core.events.codec import encode_erased
from palyra.core.events.system import Erased, Head, SeqRange
from palyra.core.ids import StreamId
from palyra.core.verification import VerifyFinding
from tests.support.evidence import Scene
from tests.support.journals import FixedSigner, Ids, draft, run_cycle, session_branched, session_created


def scene_of_two() -> tuple[Scene, StreamId, StreamId]:
    """Two sessions with a run each, 14 events a tape, all signed."""
    scene, ids = Scene(), Ids()
    streams = (ids.session(), ids.session())
    for stream in streams:
        scene.append(stream, [session_created(), *run_cycle(ids.run())])
    scene.checkpoint()
    return scene, *streams


def first(scene: Scene) -> VerifyFinding:
    report = scene.verify()
    assert not report.is_whole
    return report.findings[0]


def test_untouched_journal_is_whole() -> None:
    scene, _, _ = scene_of_two()
    report = scene.verify()
    assert report.findings == ()
    assert (report.summary.tapes_count, report.summary.events_count, report.summary.checkpoints_count) == (3, 30, 2)
    assert report.summary.unsigned_events_count == 0
    assert report.summary.key_ids == (key_id(scene.signer.public_key),)


def test_finding_has_its_stable_form() -> None:
    assert str(VerifyFinding(StreamId("01X"), 7, "it is gone")) == "session 01X seq 7: it is gone"


@pytest.mark.parametrize(
    "changes",
    [
        {"type": "run.started"},
        {"at_ms": 1},
        {"actor": "user:mallory"},
        {"actor": "user:\udcff"},
        {"trust": "system"},
        {"trust": "holy"},
        {"run_id": None},
        {"hash": bytes(32)},
        {"digest": bytes(32)},
    ],
    ids=str,
)
def test_changed_header_column_is_one_finding_at_its_seq(changes: dict[str, object]) -> None:
    scene, _, stream = scene_of_two()
    scene.spoil(stream, 5, **changes)
    report = scene.verify()
    assert [(finding.stream, finding.seq) for finding in report.findings] == [(stream, 5)]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data": b'{"text":"other"}'}, "digest"),
        ({"data": b"\xff"}, "digest"),
        ({"salt": bytes(16)}, "digest"),
        ({"salt": b"short"}, "salt"),
        ({"salt": None}, "salt is gone"),
        ({"data": encode_erased("mine")}, "salt was kept"),
        ({"data": encode_erased("mine"), "salt": None}, "no event on a system tape"),
    ],
    ids=str,
)
def test_changed_data_is_one_finding_at_its_seq(changes: dict[str, object], words: str) -> None:
    scene, stream, _ = scene_of_two()
    scene.spoil(stream, 3, **changes)
    report = scene.verify()
    assert [(finding.stream, finding.seq) for finding in report.findings] == [(stream, 3)]
    assert words in report.findings[0].what


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'{"text": "spaced"}', "canonical"),
        (b'{"text":"a","text":"b"}', "canonical"),
        (b'{"words":"b"}', "event_data_invalid"),
        (b'{"text":"a","v":9}', "event_version_unknown"),
        (b"\xff\xfe", "cannot be read"),
        (b"[]", "cannot be read"),
    ],
)
def test_data_that_was_hashed_must_still_be_canonical_and_readable(data: bytes, words: str) -> None:
    scene, ids = Scene(), Ids()
    stream = ids.session()
    scene.append(stream, [session_created(), *run_cycle(ids.run())])
    salt = bytes(16)
    scene.spoil(stream, 3, data=data, salt=salt, digest=hashlib.sha256(salt + data).digest())
    scene.rechain(stream)
    finding = first(scene)
    assert (finding.stream, finding.seq) == (stream, 3)
    assert words in finding.what


def test_removed_event_is_named() -> None:
    scene, stream, _ = scene_of_two()
    del scene.tapes[stream][4]
    report = scene.verify()
    assert [(finding.seq, finding.what) for finding in report.findings] == [(5, "this event is missing")]


def test_removed_events_are_named_as_one_gap() -> None:
    scene, stream, _ = scene_of_two()
    del scene.tapes[stream][:3]
    assert first(scene) == VerifyFinding(stream, 1, "the events from here to 3 are missing")


def test_swapped_pair_is_found_at_the_first() -> None:
    scene, stream, _ = scene_of_two()
    tape = scene.tapes[stream]
    tape[4], tape[5] = (msgspec.structs.replace(tape[5], seq=5), msgspec.structs.replace(tape[4], seq=6))
    assert (first(scene).stream, first(scene).seq) == (stream, 5)


def test_position_that_goes_back_is_found() -> None:
    scene, stream, _ = scene_of_two()
    scene.spoil(stream, 4, position=1)
    assert (first(scene).seq, "position" in first(scene).what) == (4, True)


def test_cut_tail_is_named_by_its_first_missing_seq() -> None:
    scene, stream, _ = scene_of_two()
    del scene.tapes[stream][11:]
    report = scene.verify()
    assert [(finding.stream, finding.seq) for finding in report.findings] == [(stream, 12)]
    assert report.findings[0].what == f"the tape was cut here: {scene.system} seq 2 names its seq 14"


def test_removed_tape_is_named_from_its_first_seq() -> None:
    scene, stream, _ = scene_of_two()
    del scene.tapes[stream]
    scene.rows = {key: row for key, row in scene.rows.items() if getattr(row, "session_id", row.id) != stream}
    assert first(scene) == VerifyFinding(stream, 1, f"the tape is missing: {scene.system} seq 2 names its seq 14")


def test_emptied_tape_is_found_though_nothing_signed_it() -> None:
    scene, ids = Scene(), Ids()
    stream = ids.session()
    scene.append(stream, [session_created()])
    scene.tapes[stream].clear()
    assert first(scene) == VerifyFinding(stream, 1, "the tape holds no event")


def test_tail_after_the_last_checkpoint_is_counted_and_no_damage() -> None:
    scene, stream, _ = scene_of_two()
    scene.append(stream, run_cycle(Ids(50).run()))
    report = scene.verify()
    assert report.is_whole
    assert report.summary.unsigned_events_count == 13


def test_tape_rewritten_between_two_checkpoints_is_found_by_the_older() -> None:
    """Every hash was made to fit, and the node then signed the forged head; the earlier signature still stands."""
    scene, stream, _ = scene_of_two()
    other = Scene()
    other.append(stream, [session_created(label="forged"), *run_cycle(Ids(70).run())])
    scene.tapes[stream] = other.tapes[stream]
    scene.rows = {key: row for key, row in scene.rows.items() if getattr(row, "session_id", row.id) != stream}
    scene.rows |= other.rows
    for index, stored in enumerate(scene.tapes[stream]):
        scene.tapes[stream][index] = msgspec.structs.replace(stored, position=100 + index)
    scene.append(stream, run_cycle(Ids(90).run()))
    scene.checkpoint()
    assert first(scene) == VerifyFinding(stream, 14, f"not the event that {scene.system} seq 2 signed")


def test_checkpoint_with_edited_heads_and_fitting_hashes_has_a_bad_signature() -> None:
    scene, stream, _ = scene_of_two()
    unsigned = draft_checkpoint(
        scene.signer.public_key, "0" * 64, 28, (Head(stream=stream, seq=1, hash=scene.tapes[stream][0].hash.hex()),)
    )
    scene.tapes[scene.system].clear()
    scene.append_signed(unsigned, FixedSigner(9))
    assert first(scene) == VerifyFinding(scene.system, 1, "the checkpoint's signature does not hold")


def test_checkpoint_under_another_key_does_not_speak_for_this_node() -> None:
    scene, _, _ = scene_of_two()
    mallory = FixedSigner(9)
    scene.keys[key_id(mallory.public_key)] = mallory.public_key
    scene.tapes[scene.system].clear()
    unsigned = draft_checkpoint(mallory.public_key, "0" * 64, 28, ())
    scene.append_signed(unsigned, mallory)
    assert first(scene) == VerifyFinding(scene.system, 1, "the checkpoint is signed with a key that is not this node's")


def test_checkpoint_under_an_unknown_key_is_found() -> None:
    scene, _, _ = scene_of_two()
    scene.keys.clear()
    assert first(scene).what == "the checkpoint is signed with a key that does not lie beside the journal"


def test_checkpoint_must_follow_the_one_before_it() -> None:
    scene, _, _ = scene_of_two()
    scene.append_signed(draft_checkpoint(scene.signer.public_key, "0" * 64, 29, ()), scene.signer)
    assert first(scene) == VerifyFinding(scene.system, 3, "the checkpoint does not follow the one before it")


def test_checkpoint_position_must_not_go_back() -> None:
    scene, _, _ = scene_of_two()
    unsigned = draft_checkpoint(scene.signer.public_key, scene._previous, 3, ())
    scene.append_signed(unsigned, scene.signer)
    assert first(scene) == VerifyFinding(scene.system, 3, "the checkpoint's position goes back")


def test_checkpoints_that_follow_each_other_are_whole() -> None:
    scene, stream, _ = scene_of_two()
    for number in range(3):
        scene.append(stream, run_cycle(Ids(100 + number).run()))
        scene.checkpoint()
    assert scene.verify().is_whole


def test_recorded_erasure_is_whole_and_counted() -> None:
    scene, stream, _ = scene_of_two()
    scene.erase(stream, [2, 3, 4, 10])
    report = scene.verify()
    assert report.findings == ()
    assert report.summary.erased_count == 4


def test_whole_tape_may_be_erased() -> None:
    scene, stream, _ = scene_of_two()
    scene.erase(stream, range(1, 15))
    assert scene.verify().findings == ()


def test_erasure_beyond_what_was_recorded_is_damage() -> None:
    scene, stream, _ = scene_of_two()
    scene.erase(stream, [3])
    scene.spoil(stream, 4, data=encode_erased("retention"), salt=None)
    assert (first(scene).stream, first(scene).seq) == (stream, 4)


def test_recorded_erasure_that_did_not_happen_is_damage() -> None:
    scene, stream, _ = scene_of_two()
    scene.append(scene.system, [draft(Erased(stream=stream, ranges=(SeqRange(first=3, last=3),), reason="forget"))])
    assert first(scene) == VerifyFinding(stream, 3, "a system tape records its erasure, but its data is still there")


def test_no_record_excuses_an_erased_system_tape() -> None:
    scene, _, _ = scene_of_two()
    span = SeqRange(first=1, last=1)
    scene.append(scene.system, [draft(Erased(stream=scene.system, ranges=(span,), reason="forget"))])
    scene.spoil(scene.system, 1, data=encode_erased("forget"), salt=None)
    assert first(scene) == VerifyFinding(
        scene.system, 1, "its data was erased, and no event on a system tape records that"
    )


def test_erasure_of_a_seq_that_is_gone_shows_the_cut() -> None:
    scene, ids = Scene(), Ids()
    stream = ids.session()
    scene.append(stream, [session_created(), *run_cycle(ids.run())])
    scene.erase(stream, [13, 14])
    del scene.tapes[stream][10:]
    assert (first(scene).stream, first(scene).seq) == (stream, 11)


def test_branch_is_bound_to_its_parents_history() -> None:
    scene, ids = Scene(), Ids()
    parent, child = ids.session(), ids.session()
    events = scene.append(parent, [session_created(), *run_cycle(ids.run())])
    scene.append(child, [session_branched(events[4])])
    assert scene.verify().is_whole
    scene.spoil(parent, 5, at_ms=2)
    scene.rechain(parent)
    found = [finding for finding in scene.verify().findings if finding.stream == child]
    assert found == [VerifyFinding(child, 1, f"it branches from {parent} seq 5, which is another event")]


def test_event_of_a_system_tape_does_not_belong_on_a_session() -> None:
    scene, stream, _ = scene_of_two()
    scene.spoil(stream, 3, type="erased")
    scene.rechain(stream)
    assert first(scene) == VerifyFinding(stream, 3, "an event of this type does not belong on this tape")


def test_progress_is_told() -> None:
    from palyra.core.verification import verify

    scene, ids = Scene(), Ids()
    stream = ids.session()
    scene.append(stream, [session_created()])
    for _ in range(80):
        scene.append(stream, run_cycle(ids.run()))
    heard: list[int] = []
    assert verify(scene.evidence(), heard.append).is_whole
    assert heard == [1000]


def unattested(scene: Scene, ids: Ids) -> StreamId:
    """Appends a run whose outcome has no attestation."""
    stream = ids.session()
    for each in (session_created(), *run_cycle(ids.run())):
        scene._append(stream, each)
    return stream


def test_outcome_without_an_attestation_is_damage() -> None:
    scene, ids = Scene(), Ids()
    scene.append(ids.session(), [session_created()])
    stream = unattested(scene, ids)
    scene.checkpoint()
    finding = first(scene)
    assert (finding.stream, finding.what) == (stream, "the outcome has no attestation")


def test_older_releases_attested_less_and_their_journals_are_whole() -> None:
    scene, ids = Scene(), Ids()
    scene.tapes[scene.system] = []
    older = draft_checkpoint(scene.signer.public_key, scene._previous, 0, ())
    scene.append_signed(msgspec.structs.replace(older, attests_all=False), scene.signer)
    unattested(scene, ids)
    assert scene.verify().is_whole
    scene.checkpoint()
    assert scene.verify().is_whole
    stream = unattested(scene, ids)
    scene.checkpoint()
    assert [finding.stream for finding in scene.verify().findings] == [stream]


def test_what_a_checkpoint_says_about_attestations_is_signed() -> None:
    scene, _, _ = scene_of_two()
    position = len(scene.tapes[scene.system])
    data = scene.tapes[scene.system][-1].data
    weaker = data.replace(b'"attests_all":true,', b"")
    assert weaker != data
    stored = scene.tapes[scene.system][-1]
    assert stored.salt is not None
    scene.spoil(scene.system, position, data=weaker, digest=digest_data(stored.salt, weaker))
    scene.rechain(scene.system)
    assert first(scene).what == "the checkpoint's signature does not hold"
