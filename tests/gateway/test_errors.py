"""Refusals have one shape and the right status; a fault of ours says nothing but an id that the log explains."""

import logging

import pytest

from palyra.core.errors import Conflict, Corrupt, Invalid, NotFound, PalyraError, Unauthorized, Unavailable
from palyra.gateway.http.settings import ARTIFACT_BYTES_MAX, JSON_BYTES_MAX, PLACES_MAX, UPLOADS_MAX
from tests.gateway.frames import SESSION_ID
from tests.gateway.scene import ADMIN, HOST, RUN, SESSION, Answer, Failing, Scene

ONE_RUN = f"/api/v1/runs/{RUN}"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Invalid("text_empty", "nothing to do"), 400),
        (Unauthorized("not_yours", "that is not yours"), 403),
        (NotFound("run_unknown", "there is no such run"), 404),
        (Conflict("session_busy", "busy"), 409),
        (Unavailable("disk_full", "the disk is full"), 503),
        (Corrupt("tape_damaged", "damaged at seq 3"), 500),
    ],
)
async def test_error_of_the_tree_has_its_status(scene: Scene, error: PalyraError, status: int) -> None:
    scene.engine.runs = Failing(error)
    answer = await scene.ask("GET", ONE_RUN)
    expected = {"code": error.code, "message": error.message, "retryable": error.is_retryable}
    assert (answer.status, answer.json) == (status, {"error": expected})
    assert answer.headers["content-type"] == "application/json"


async def test_subclass_of_an_error_has_its_status_too(scene: Scene) -> None:
    class Special(Conflict):
        pass

    scene.engine.runs = Failing(Special("special", "special"))
    assert (await scene.ask("GET", ONE_RUN)).status == 409


async def test_unexpected_failure_says_nothing_but_an_id(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.engine.runs = Failing(ZeroDivisionError("the secret detail"))
    with caplog.at_level(logging.ERROR, "palyra.gateway"):
        answer = await scene.ask("GET", ONE_RUN)
    error = answer.json["error"]
    assert (answer.status, error["code"], error["retryable"]) == (500, "internal", False)
    assert b"secret detail" not in answer.body
    assert [record.getMessage() in f"{error['message']}" for record in caplog.records] == [True]
    assert "the secret detail" in caplog.text


async def test_unknown_route_is_not_found(scene: Scene) -> None:
    for path in ("/nope", "/api/v1", "/api/v1/runs/", f"{ONE_RUN}/nope", "//healthz", "/api/v1/sessions//tape"):
        answer = await scene.ask("GET", path)
        assert (path, answer.status, answer.code) == (path, 404, "route_unknown")


async def test_other_method_is_told_which_ones_there_are(scene: Scene) -> None:
    answer = await scene.ask("PUT", f"/api/v1/sessions/{SESSION}")
    assert (answer.status, answer.code, answer.headers["allow"]) == (405, "method_not_allowed", "DELETE, GET, PATCH")


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/sessions/nope",
        f"/api/v1/sessions/{SESSION_ID.lower()}",
        "/api/v1/sessions/nope/tape",
        "/api/v1/sessions/nope/events",
        "/api/v1/runs/nope",
        "/api/v1/runs/nope/events",
        "/api/v1/approvals/nope",
        f"/api/v1/artifacts/{'ab' * 31}a",
    ],
)
async def test_id_of_another_form_names_nothing(scene: Scene, path: str) -> None:
    answer = await scene.ask("GET", path)
    assert (answer.status, answer.code.endswith("_unknown"), scene.asked) == (404, True, [])


async def test_grant_of_another_form_names_nothing(scene: Scene) -> None:
    assert (await scene.ask("DELETE", "/api/v1/grants/nope")).code == "grant_unknown"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/v1/runs", None),
        ("/api/v1/runs", {}),
        ("/api/v1/runs", {"text": ""}),
        ("/api/v1/runs", {"text": "x" * 200_001}),
        ("/api/v1/runs", {"text": 1}),
        ("/api/v1/runs", {"text": "hi", "unknown": 1}),
        ("/api/v1/runs", {"text": "hi", "when_busy": "later"}),
        ("/api/v1/runs", {"text": "hi", "session_id": "nope"}),
        ("/api/v1/runs", {"text": "hi", "must_call": ["a"] * 65}),
        ("/api/v1/runs", {"text": "hi", "objectives": ["a"] * 17}),
        ("/api/v1/runs", {"text": "hi", "objectives": ["a" * 1_001]}),
        ("/api/v1/runs", {"text": "hi", "objectives": [""]}),
        ("/api/v1/runs", {"text": "hi", "objectives": "file:a exists"}),
        ("/api/v1/runs", {"text": "hi", "attachments": [{"name": "a", "media_type": "a/b", "artifact_id": "x"}]}),
        ("/api/v1/runs", {"text": "hi", "attachments": [{"name": "a", "media_type": "nope", "data_base64": ""}]}),
        ("/api/v1/runs", b"{"),
        ("/api/v1/runs", b"[]"),
        ("/api/v1/runs", b'{"text":"\xff"}'),
        ("/api/v1/runs", b'{"text":"\\ud800"}'),
        ("/api/v1/runs", b'{"text":"hi","answer_schema":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001),
        (f"{ONE_RUN}/cancel", {"reason": "x"}),
        ("/api/v1/sessions", {"key": "x" * 257}),
        ("/api/v1/sessions", {"reset": "yes"}),
        (f"/api/v1/sessions/{SESSION}/branch", {"at_seq": 0}),
    ],
)
async def test_body_that_does_not_fit_is_refused_unasked(scene: Scene, path: str, body: object) -> None:
    answer = await scene.ask("POST", path, body)
    assert (answer.status, answer.code, scene.asked) == (400, "body_invalid", [])
    assert len(answer.body) < 1000


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"text": ""}, "text is empty; it needs at least one character"),
        ({"text": "x" * 200_001}, "text is too long; it must have at most 200000 characters"),
        ({"text": 1}, "text must be a text, not a whole number"),
        ({}, "text is missing; add it"),
        ({"text": "hi", "colour": 1}, "colour is not a field of the body; leave it out"),
        ({"text": "hi", "must_call": ["a"] * 65}, "must_call is too long; it must have at most 64 items"),
        ({"text": "hi", "objectives": [""]}, "objectives[0] is empty; it needs at least one character"),
        (b"[]", "the body must be an object, not a list"),
        (b"{", "the body is not valid: Input data was truncated"),
    ],
)
async def test_body_that_does_not_fit_is_told_in_plain_words(scene: Scene, body: object, message: str) -> None:
    answer = await scene.ask("POST", "/api/v1/runs", body)
    assert answer.json["error"]["message"] == message


async def test_query_out_of_bounds_is_told_in_plain_words(scene: Scene) -> None:
    answer = await scene.ask("GET", "/api/v1/sessions?limit=0")
    assert answer.json["error"]["message"] == "limit must be at least 1"


async def test_id_of_another_form_in_a_body_is_told_what_a_whole_id_is(scene: Scene) -> None:
    answer = await scene.ask("POST", "/api/v1/runs", {"text": "hi", "session_id": "nope"})
    assert answer.json["error"]["message"] == "session_id must be a whole id: 26 characters, digits and capital letters"


async def test_digest_that_is_cut_off_is_told_how_long_one_is(scene: Scene) -> None:
    answer = await scene.ask("PATCH", "/api/v1/skills/notes", {"sha256": "4f2c"})
    assert answer.json["error"]["message"] == "sha256 must have 64 characters, each 0-9 or a-f"


@pytest.mark.parametrize(
    "target",
    [
        "/api/v1/sessions?limit=0",
        "/api/v1/sessions?limit=-1",
        "/api/v1/sessions?limit=many",
        "/api/v1/sessions?limit=",
        "/api/v1/sessions?limit=1&limit=2",
        "/api/v1/sessions?unknown=1",
        "/api/v1/sessions?after=" + "x" * 65,
        "/api/v1/sessions?" + "&".join(f"a{n}=1" for n in range(17)),
        "/api/v1/sessions?justtext",
        "/api/v1/runs?state=sleeping",
        "/api/v1/runs?session_id=nope",
        "/api/v1/approvals?status=maybe",
        f"/api/v1/sessions/{SESSION}/tape?after=-1",
        f"/api/v1/sessions/{SESSION}/tape?after=9007199254740993",
        f"{ONE_RUN}/events?after=x",
        f"{ONE_RUN}?verbose=1",
        "/healthz?verbose=1",
    ],
)
async def test_query_that_does_not_fit_is_refused_unasked(scene: Scene, target: str) -> None:
    answer = await scene.ask("GET", target)
    assert (answer.status, answer.code, scene.asked) == (400, "query_invalid", [])


@pytest.mark.parametrize("cursor", ["x", "-1", "1.0", "9" * 17, "٣", "1 2"])
async def test_cursor_that_is_no_number_is_refused(scene: Scene, cursor: str) -> None:
    sent = cursor.encode().decode("latin-1")
    answer = await scene.ask("GET", f"{ONE_RUN}/events", headers={"last-event-id": sent})
    assert (answer.status, answer.code, scene.asked) == (400, "cursor_invalid", [])


def padded(length: int) -> bytes:
    head, tail = b'{"text":"hi"', b"}"
    return head + b" " * (length - len(head) - len(tail)) + tail


async def test_body_at_the_limit_is_taken_and_one_byte_more_is_not(scene: Scene) -> None:
    assert (await send_whole(scene, padded(JSON_BYTES_MAX))).status == 202
    over = await send_whole(scene, padded(JSON_BYTES_MAX + 1))
    assert (over.status, over.code) == (413, "body_too_large")
    pieces = await send_pieces(scene, "/api/v1/runs", [padded(JSON_BYTES_MAX + 1)[:-9], b"123456789"])
    assert (pieces.status, pieces.headers["connection"]) == (413, "close")


async def test_large_body_of_very_many_values_is_refused_before_it_is_decoded(scene: Scene) -> None:
    """Decoding 24 MiB of metadata held the event loop for 0.7 seconds."""
    values = b",".join([b'"%d":""' % number for number in range(PLACES_MAX + 1)])
    body = b'{"model":"main","messages":[],"metadata":{' + values + b"}}"
    answer = await send_pieces(scene, "/v1/chat/completions", [body])
    assert (answer.status, answer.json["error"]["code"]) == (400, "body_invalid")
    assert "values" in answer.json["error"]["message"]


async def test_artifact_at_the_limit_is_taken_and_one_byte_more_is_not(scene: Scene) -> None:
    half = bytes(ARTIFACT_BYTES_MAX // 2)
    assert (await send_pieces(scene, "/api/v1/artifacts", [half, half])).status == 201
    over = await send_pieces(scene, "/api/v1/artifacts", [half, half, b"x"])
    assert (over.status, over.code) == (413, "body_too_large")


@pytest.mark.parametrize("length", [str(JSON_BYTES_MAX + 1), "9" * 5000, "-5", "x"])
async def test_announced_length_is_refused_before_a_byte_is_read(scene: Scene, length: str) -> None:
    answer = await scene.ask("POST", "/api/v1/runs", {"text": "hi"}, {"content-length": length})
    assert (answer.status, scene.asked) == (413, [])


async def test_uploads_at_once_are_bounded(scene: Scene) -> None:
    services = scene.gateway._services
    with services.uploading(), services.uploading(), services.uploading(), services.uploading():
        answer = await scene.ask("POST", "/api/v1/artifacts", b"x")
        assert (UPLOADS_MAX, answer.status, answer.code) == (4, 503, "uploads_busy")
    assert (await scene.ask("POST", "/api/v1/artifacts", b"x")).status == 201


async def test_other_protocols_get_no_answer(scene: Scene) -> None:
    async def receive() -> dict:
        raise AssertionError

    async def send(message: object) -> None:
        raise AssertionError(message)

    await scene.gateway({"type": "websocket"}, receive, send)


async def send_whole(scene: Scene, body: bytes) -> Answer:
    return await scene.ask("POST", "/api/v1/runs", body, {"content-length": str(len(body))})


async def send_pieces(scene: Scene, path: str, pieces: list[bytes]) -> Answer:
    headers = [("host", HOST), ("authorization", f"Bearer {ADMIN}"), ("transfer-encoding", "chunked")]
    return await scene.raw("POST", path, "", headers, pieces)
