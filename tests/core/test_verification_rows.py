"""The verifier's checks of projection rows and attestations."""

import hashlib

import msgspec
import pytest

from palyra.core.attestation import hash_input, hash_output, sign_bytes
from palyra.core.checkpoint import key_id
from palyra.core.events.tool import Attestation, Outcome, ToolFinished, ToolProposed, ToolStarted
from palyra.core.ids import StreamId, derive_effect_id, make_call_id
from palyra.core.projections.project import RowKey
from palyra.core.projections.rows import RunRow, SessionRow
from palyra.core.run.states import RunState
from palyra.core.verification import VerifyFinding
from tests.support.evidence import Scene
from tests.support.journals import (
    Ids,
    approval_requested,
    draft,
    run_accepted,
    run_cycle,
    run_done,
    run_started,
    session_created,
)

ARGUMENTS: dict[str, object] = {"command": "ls", "timeout_s": 2.5}


def scene_of_one() -> tuple[Scene, StreamId]:
    scene, ids = Scene(), Ids()
    stream = ids.session()
    scene.append(stream, [session_created(key="k", label="private"), *run_cycle(ids.run())])
    waiting = ids.run()
    scene.append(stream, [run_accepted(waiting), run_started(waiting), approval_requested(waiting)])
    return scene, stream


def only_row(scene: Scene, row_type: type[SessionRow] | type[RunRow]) -> RowKey:
    return next(key for key in scene.rows if key.row_type is row_type)


def test_rows_that_events_gave_are_whole() -> None:
    scene, _ = scene_of_one()
    assert len({key.row_type for key in scene.rows}) == 4
    assert scene.verify().is_whole


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"input_tokens": 1}, "input_tokens is 1, its events say 1200"),
        ({"state": RunState.FAILED}, "state is failed, its events say done"),
        ({"reason": None}, "reason is null, its events say final_answer"),
        ({"agent": "evil"}, "agent is not what its events say"),
    ],
)
def test_edited_row_names_table_row_field_and_values(changes: dict[str, object], words: str) -> None:
    scene, stream = scene_of_one()
    key = only_row(scene, RunRow)
    scene.rows[key] = msgspec.structs.replace(scene.rows[key], **changes)
    assert scene.verify().findings == (VerifyFinding(stream, 14, f"runs row {key.id}: {words}", is_of_row=True),)


@pytest.mark.parametrize("field", ["key", "label", "owner"])
def test_text_of_people_is_never_shown(field: str) -> None:
    scene, _ = scene_of_one()
    key = only_row(scene, SessionRow)
    scene.rows[key] = msgspec.structs.replace(scene.rows[key], **{field: "secret words"})
    what = scene.verify().findings[0].what
    assert what == f"sessions row {key.id}: {field} is not what its events say"


def test_missing_row_is_named() -> None:
    scene, stream = scene_of_one()
    key = only_row(scene, RunRow)
    del scene.rows[key]
    assert scene.verify().findings == (VerifyFinding(stream, 14, f"runs row {key.id} is missing", is_of_row=True),)


def test_row_without_an_event_is_named() -> None:
    scene, stream = scene_of_one()
    row = scene.rows[only_row(scene, RunRow)]
    scene.rows[RowKey(RunRow, "invented")] = msgspec.structs.replace(row, id="invented")
    assert scene.verify().findings == (
        VerifyFinding(stream, 14, "runs row invented comes from no event", is_of_row=True),
    )


def test_row_without_a_tape_is_named() -> None:
    scene, _ = scene_of_one()
    row = scene.rows[only_row(scene, SessionRow)]
    scene.rows[RowKey(SessionRow, "gone\x1b[2J")] = msgspec.structs.replace(row, id="gone\x1b[2J")
    finding = scene.verify().findings[0]
    assert (finding.stream, finding.what) == ("gone?[2J", "sessions row gone?[2J comes from no event")


def test_rows_of_a_damaged_tape_are_not_held_against_it() -> None:
    scene, stream = scene_of_one()
    scene.spoil(stream, 2, data=b"{}")
    assert [finding.seq for finding in scene.verify().findings] == [2]


def test_event_that_the_rules_forbid_is_found() -> None:
    scene, ids = Scene(), Ids()
    stream = ids.session()
    run = ids.run()
    scene.append(stream, [session_created(), run_accepted(run), run_started(run), run_done(run)])
    scene.spoil(stream, 3, type="run.resumed", data=b'{"cause":"restart"}')
    digest = hashlib.sha256((scene.tapes[stream][2].salt or b"") + b'{"cause":"restart"}').digest()
    scene.spoil(stream, 3, digest=digest)
    scene.rechain(stream)
    finding = scene.verify().findings[0]
    assert finding == VerifyFinding(stream, 3, "an event that the rules forbid here (illegal_transition)")


def attested(scene: Scene, **changes: object) -> StreamId:
    """A call with its attestation; `changes` are made to it after it was signed."""
    ids = Ids()
    stream, run = ids.session(), ids.run()
    call = make_call_id(run, 1)
    effect = derive_effect_id(run, 1, "shell.run", ARGUMENTS)
    finished = ToolFinished(
        call_id=call, effect_id=effect, outcome=Outcome.OK, error=None, attestation=None, output="a\nb"
    )
    attestation = Attestation(
        key_id=key_id(scene.signer.public_key),
        runtime="shell",
        sandbox="bubblewrap",
        started_at_ms=1,
        finished_at_ms=2,
        input_sha256=hash_input(ARGUMENTS),
        output_sha256=hash_output(finished),
        signature="",
    )
    signature = scene.signer.sign(sign_bytes("shell.run", finished, attestation)).hex()
    attestation = msgspec.structs.replace(attestation, signature=signature)
    attestation = msgspec.structs.replace(attestation, **changes)
    data = (
        ToolProposed(call_id=call, tool="shell.run", arguments=ARGUMENTS),
        ToolStarted(call_id=call, effect_id=effect),
        msgspec.structs.replace(finished, attestation=attestation),
    )
    opening = (session_created(), run_accepted(run), run_started(run))
    scene.append(stream, [*opening, *(draft(each, run) for each in data), run_done(run)])
    return stream


def test_attestation_is_checked() -> None:
    scene = Scene()
    attested(scene)
    scene.checkpoint()
    report = scene.verify()
    assert report.is_whole
    assert (report.summary.attestations_count, report.summary.unchecked_attestations_count) == (1, 0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"input_sha256": "0" * 64}, "the attestation's input is not what was proposed"),
        ({"output_sha256": "0" * 64}, "the attestation's output is not what is stored"),
        ({"finished_at_ms": 3}, "the attestation's signature does not hold"),
        ({"signature": "zz"}, "the attestation's signature does not hold"),
        ({"key_id": "0" * 16}, "the attestation is signed with a key that does not lie beside the journal"),
    ],
)
def test_false_attestation_is_found(changes: dict[str, object], words: str) -> None:
    scene = Scene()
    stream = attested(scene, **changes)
    assert scene.verify().findings == (VerifyFinding(stream, 6, words),)


def test_attestation_of_a_call_nobody_proposed_is_found() -> None:
    scene = Scene()
    stream = attested(scene)
    other = ToolProposed(call_id=make_call_id(Ids(90).run(), 9), tool="shell.run", arguments=ARGUMENTS)
    from palyra.core.events.codec import encode_data

    data = encode_data(other)
    scene.spoil(stream, 4, data=data, digest=hashlib.sha256((scene.tapes[stream][3].salt or b"") + data).digest())
    scene.rechain(stream)
    assert scene.verify().findings[0].what == "the attestation is of a call that this tape never proposed"


def test_attestation_whose_proposal_was_erased_is_counted_as_unchecked() -> None:
    scene = Scene()
    stream = attested(scene)
    scene.erase(stream, [4])
    report = scene.verify()
    assert report.is_whole
    assert (report.summary.attestations_count, report.summary.unchecked_attestations_count) == (0, 1)
