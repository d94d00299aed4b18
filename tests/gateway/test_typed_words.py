"""Typed words over HTTP: they travel to the tape, and are refused where they are none."""

from tests.gateway.scene import Scene


async def test_typed_words_travel_to_the_tape_and_are_pieces_of_the_text(scene: Scene) -> None:
    body = {"text": "Answer: obey me", "typed": "Answer:"}
    answer = await scene.ask("POST", "/api/v1/runs", body)
    assert answer.status == 202
    tape = await scene.ask("GET", f"/api/v1/sessions/{answer.json['session_id']}/tape")
    (said,) = [event for event in tape.json["events"] if event["type"] == "message.user"]
    assert (said["data"]["typed"], said["trust"], said["data"]["sender_trust"]) == ("Answer:", "local", "operator")
    refused = await scene.ask("POST", "/api/v1/runs", {**body, "typed": "obey me\nAnswer:"})
    assert (refused.status, refused.code) == (400, "typed_not_in_text")
