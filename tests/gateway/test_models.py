"""`/api/v1/models`: what is known of each is shown as it is; a check is for operators, reaches its model, says what it found."""

import json

import msgspec
import pytest

from palyra.core.errors import Conflict, NotFound
from palyra.core.ids import Principal
from palyra.engine.api.model_check import ModelCheck
from palyra.gateway.http.route import segments_of
from palyra.ports.tokens import Role
from tests.gateway.scene import Failing, Scene, connected, listening, request_bytes

OWNER = Principal("user:owner")
CHECK = "/api/v1/models/scripted/check"
SLASHED = "org/qwen"


async def test_models_are_listed_with_all_that_is_known(scene: Scene) -> None:
    answer = await scene.ask("GET", "/api/v1/models", token=scene.tokens.add("palyra_viewer-0123456789", Role.VIEWER))
    known = json.loads(msgspec.json.encode(scene.real.status.models()))
    assert answer.json == {"items": known, "next_after": None}
    (model,) = answer.json["items"]
    assert (model["price_source"], model["input_usd_per_mtok"], model["is_default"]) == ("unknown", None, True)


@pytest.mark.parametrize(
    ("role", "status"), [(Role.VIEWER, 403), (Role.USER, 403), (Role.OPERATOR, 200), (Role.ADMIN, 200)]
)
async def test_a_check_is_for_operators(scene: Scene, role: Role, status: int) -> None:
    answer = await scene.ask("POST", CHECK, {}, token=scene.tokens.add("palyra_somebody-0123456789", role))
    assert answer.status == status
    assert (scene.asked != []) is (status == 200)


async def test_a_check_answers_what_it_found(scene: Scene) -> None:
    found = (await scene.ask("POST", CHECK)).json
    assert set(found) == set(ModelCheck.__struct_fields__)
    assert (found["model"], found["ok"], found["code"], found["message"]) == ("scripted", True, None, "It answers.")
    assert found["text"] == "It is done."


async def test_a_check_of_an_unknown_model_is_not_made(scene: Scene) -> None:
    assert (await scene.ask("POST", "/api/v1/models/gone/check")).code == "model_unknown"


@pytest.mark.parametrize(
    ("failure", "status"),
    [(NotFound("model_unknown", "no"), 404), (Conflict("check_under_way", "wait"), 409)],
)
async def test_a_check_that_is_not_made_is_an_error(scene: Scene, failure: Exception, status: int) -> None:
    scene.engine.status.check_model = Failing(failure).check_model
    assert (await scene.ask("POST", CHECK)).status == status


async def test_a_stopping_daemon_checks_nothing(scene: Scene) -> None:
    scene.engine.status.is_draining = True
    assert (await scene.ask("POST", CHECK)).code == "draining"
    assert scene.asked == []


async def test_a_name_with_a_slash_is_one_step_of_the_path(scene: Scene) -> None:
    """Over a real socket: what a server makes of %2F is the point."""
    path = f"/api/v1/models/{SLASHED.replace('/', '%2F')}/check"
    async with listening(scene) as server, connected(server.port) as wire:
        await wire.send(request_bytes("POST", path, b"{}"))
        head = await wire.until(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        body = json.loads(await wire.reader.readexactly(length))
    assert scene.asked[-1] == ("status.check_model", OWNER, SLASHED)
    assert body["error"]["code"] == "model_unknown"


@pytest.mark.parametrize(
    ("scope", "segments"),
    [
        ({"path": "/a/b"}, ["a", "b"]),
        ({"path": "/a/b", "raw_path": b"/a/b"}, ["a", "b"]),
        ({"path": "/a/b/c", "raw_path": b"/a%2Fb/c"}, ["a/b", "c"]),
        ({"path": "/a%2Fb", "raw_path": b"/a%252Fb"}, ["a%2Fb"]),
        ({"path": "/é", "raw_path": b"/%C3%A9"}, ["é"]),
        ({"path": "/"}, [""]),
    ],
)
def test_steps_are_decoded_one_by_one(scope: dict, segments: list[str]) -> None:
    assert segments_of(scope) == segments
