"""What the verifier makes of careful forgers: damage behind a hundred findings, odd seqs, invented nodes, other reasons."""

from dataclasses import replace

import msgspec
import pytest

from palyra.core.events import Draft
from palyra.core.events.codec import encode_erased
from palyra.core.events.system import Erased, SeqRange
from palyra.core.ids import StreamId, derive_node_id, system_stream
from palyra.core.projections.project import RowKey
from palyra.core.projections.rows import RunRow
from palyra.core.verification import FINDINGS_MAX, Evidence, VerifyFinding, verify
from palyra.core.verification.tape import TapeCheck
from tests.support.evidence import Scene
from tests.support.journals import FixedSigner, Ids, draft, run_cycle, session_created

NO_KEY = "no key of this node lies beside the journal"
UNRECORDED = "its data was erased, and no event on a system tape records that"


def scene_of_one() -> tuple[Scene, StreamId]:
    """A session with a run, 14 events, signed."""
    scene, ids = Scene(), Ids()
    stream = ids.session()
    scene.append(stream, [session_created(), *run_cycle(ids.run())])
    scene.checkpoint()
    return scene, stream


def evidence_of(scene: Scene) -> Evidence:
    """With the names of the nodes whose keys are at hand."""
    nodes = frozenset(derive_node_id(key) for key in scene.keys.values())
    return replace(scene.evidence(), node_ids=lambda: nodes)


def record_of(stream: StreamId, seq: int, reason: str) -> Draft:
    return draft(Erased(stream=stream, ranges=(SeqRange(first=seq, last=seq),), reason=reason))


def test_first_damage_of_a_tape_is_kept_behind_any_number_of_row_findings() -> None:
    scene, _ = scene_of_one()
    row = next(row for key, row in scene.rows.items() if key.row_type is RunRow)
    for number in range(FINDINGS_MAX + 1):
        name = f"invented-{number}"
        scene.rows[RowKey(RunRow, name)] = msgspec.structs.replace(row, id=name)
    other = StreamId("7" + "Z" * 25)
    scene.append(other, [session_created(), *run_cycle(Ids(50).run())])
    scene.spoil(other, 3, at_ms=1)
    report = scene.verify()
    assert all(finding.is_of_row for finding in report.findings)
    assert report.tape_damage is not None
    assert (report.tape_damage.stream, report.tape_damage.seq) == (other, 3)


def test_report_of_edited_rows_alone_names_no_damage_of_a_tape() -> None:
    scene, _ = scene_of_one()
    scene.rows.clear()
    report = scene.verify()
    assert (report.is_whole, report.tape_damage) == (False, None)


@pytest.mark.parametrize("seq", [-1, 0])
def test_checkpoint_at_a_seq_that_no_tape_has_is_found(seq: int) -> None:
    scene, _ = scene_of_one()
    moved = msgspec.structs.replace(scene.tapes[scene.system][0], seq=seq)
    scene.tapes[scene.system][0] = moved
    assert scene.verify().findings[0] == VerifyFinding(scene.system, seq, "a tape has no such seq here; 1 was due")


def test_erasure_at_a_seq_that_no_tape_has_excuses_nothing() -> None:
    scene, stream = scene_of_one()
    scene.erase(stream, [3])
    record = scene.tapes[scene.system].pop()
    scene.tapes[scene.system].insert(0, msgspec.structs.replace(record, seq=-1))
    assert VerifyFinding(stream, 3, UNRECORDED) in scene.verify().findings


def test_event_moved_before_the_first_is_found_there_and_missed_where_it_was() -> None:
    scene, stream = scene_of_one()
    scene.tapes[stream][0] = msgspec.structs.replace(scene.tapes[stream][0], seq=-1)
    assert scene.verify().findings[1] == VerifyFinding(stream, 1, "this event is missing")


def test_tape_with_every_header_changed_is_checked_in_steps_of_one_size() -> None:
    """Each wrong event leaves guesses of what the next may follow; they must not pile up."""
    scene, stream = scene_of_one()
    for number in range(100):
        scene.append(stream, run_cycle(Ids(100 + number).run()))
    check = TapeCheck(stream, None)
    for stored in scene.tapes[stream]:
        assert check.check(msgspec.structs.replace(stored, at_ms=1)).findings
    assert len(check._previous) == 3


def test_system_tape_of_a_known_node_is_believed() -> None:
    scene, stream = scene_of_one()
    scene.erase(stream, [3])
    assert verify(evidence_of(scene)).findings == ()


@pytest.mark.parametrize("name", [system_stream(derive_node_id(FixedSigner(9).public_key)), "system:nobody"])
def test_system_tape_of_no_known_node_is_found_and_its_erasures_excuse_nothing(name: str) -> None:
    scene, stream = scene_of_one()
    invented = StreamId(name)
    scene.append(invented, [record_of(stream, 3, "retention")])
    scene.spoil(stream, 3, data=encode_erased("retention"), salt=None)
    scene.refold(stream)
    found = verify(evidence_of(scene)).findings
    assert found == (VerifyFinding(invented, 1, NO_KEY), VerifyFinding(stream, 3, UNRECORDED))


def test_erased_event_must_give_the_reason_on_record() -> None:
    scene, stream = scene_of_one()
    scene.erase(stream, [3, 4], reason="asked to be forgotten")
    scene.spoil(stream, 4, data=encode_erased("retention"))
    what = "its data gives another reason than the record of its erasure"
    assert scene.verify().findings == (VerifyFinding(stream, 4, what),)


def test_later_record_does_not_change_the_reason_of_an_earlier_one() -> None:
    scene, stream = scene_of_one()
    scene.erase(stream, [3], reason="asked to be forgotten")
    scene.append(scene.system, [record_of(stream, 3, "retention")])
    assert scene.verify().is_whole
    scene.spoil(stream, 3, data=encode_erased("retention"))
    assert [finding.seq for finding in scene.verify().findings] == [3]


def test_each_erasure_has_its_own_reason() -> None:
    scene, stream = scene_of_one()
    for reason, seqs in (("a", [2, 3]), ("b", [10]), ("c", [4, 9]), ("d", [11, 12])):
        scene.erase(stream, seqs, reason=reason)
    assert scene.verify().findings == ()


def test_signed_text_that_an_unsigned_record_erased_is_counted_until_the_record_is_signed() -> None:
    scene, stream = scene_of_one()
    scene.append(stream, run_cycle(Ids(50).run()))
    scene.erase(stream, [3, 4, 20])  # Nobody has signed seq 20 yet.
    report = scene.verify()
    assert (report.findings, report.summary.erased_count, report.summary.unsigned_erased_count) == ((), 3, 2)
    scene.checkpoint()
    assert scene.verify().summary.unsigned_erased_count == 0
    scene.append(scene.system, [record_of(stream, 3, "retention")])
    assert scene.verify().summary.unsigned_erased_count == 0
