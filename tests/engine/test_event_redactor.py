"""The event redactor: no declared text keeps a secret, no identifier changes."""

from typing import Any, cast

import msgspec
import pytest

from palyra.core.events import DATA_TYPES, Data, Draft, EventData
from palyra.core.events.base import Holds
from palyra.core.events.declarations import rewriter_of
from palyra.core.events.model import Finish, ModelOutput, ToolCall
from palyra.core.events.run import RunAccepted, RunLimits
from palyra.core.events.tool import MadeArtifact, Outcome, ToolFinished
from palyra.core.ids import CallId, EffectId, Principal, RunId
from palyra.core.redaction import Redactor
from palyra.core.trust import Trust
from palyra.core.writes import SealSecret
from palyra.engine.session.event_redactor import EventRedactor
from tests.support.samples import sample_of

SECRET = "ghp_Zk3Vq8LmT2xW7cR9yB4nD6sF1hJ0gP5uEa8Q"
LIMITS = RunLimits(wall_clock_ms=1, max_tool_calls=1, max_turns=1, parallel_tools=1)


class PlainSealer:
    @property
    def marker_key(self) -> bytes:
        return b"k" * 32

    def seal(self, value: bytes, context: bytes) -> bytes:
        return value

    def unseal(self, sealed: bytes, context: bytes) -> bytes:
        return sealed


def clean(data: Data) -> tuple[Any, tuple[Any, ...]]:
    draft = Draft(data=data, actor=Principal("user:a"), trust=Trust.SYSTEM, at_ms=1, run_id=RunId("run"))
    cleaned, writes = EventRedactor(Redactor(b"k" * 32), PlainSealer()).clean(draft)
    return cleaned.data, writes


@pytest.mark.parametrize("data_type", DATA_TYPES.values(), ids=lambda data_type: data_type.TYPE)
def test_a_secret_stays_in_no_text_and_every_identifier_stays(data_type: type[EventData]) -> None:
    data = sample_of(data_type, f"see {SECRET} there")
    cleaned, writes = clean(cast(Data, data))
    rewrite = rewriter_of(data_type)
    if rewrite is None:
        assert cleaned is data
        return
    texts: list[str] = []

    def blank(holds: Holds, value: object) -> object:
        texts.append(str(value))
        return None if holds is Holds.PROVIDER_STATE else ""

    blanked = rewrite(cleaned, blank)
    assert texts
    assert not any(SECRET in text for text in texts)
    assert blanked == rewrite(data, lambda holds, value: None if holds is Holds.PROVIDER_STATE else "")
    assert [write.sealed for write in writes if isinstance(write, SealSecret)] == [SECRET.encode()]


@pytest.mark.parametrize("data_type", DATA_TYPES.values(), ids=lambda data_type: data_type.TYPE)
def test_an_event_without_secrets_is_the_same_object(data_type: type[EventData]) -> None:
    data = sample_of(data_type, "plain words")
    cleaned, writes = clean(cast(Data, data))
    assert cleaned is data
    assert writes == ()


def test_names_of_properties_do_not_make_secrets_of_a_schema() -> None:
    schema: dict[str, object] = {"properties": {"access_token": {"$ref": "#/$defs/AccessToken"}}, "title": "answer"}
    accepted = RunAccepted(agent="a", origin="api", can_ask=True, limits=LIMITS, answer_schema=schema)
    assert clean(accepted)[0] is accepted
    telling = msgspec.structs.replace(accepted, answer_schema={**schema, "default": SECRET})
    cleaned, _ = clean(telling)
    assert cleaned.answer_schema["default"].startswith("‹")
    assert cleaned.answer_schema["properties"] == schema["properties"]


def test_the_name_of_an_argument_makes_a_secret_of_its_value() -> None:
    call = ToolCall(call_id=CallId("c1"), tool="http.fetch", arguments={"password": "Xk29dkLLq0zz81"})
    cleaned, _ = clean(ModelOutput(turn=1, text="", tool_calls=(call,), finish=Finish.STOP, usage=None))
    assert "Xk29dkLLq0zz81" not in str(cleaned.tool_calls)


def test_a_provider_state_with_a_secret_is_dropped_whole() -> None:
    output = ModelOutput(turn=1, text="", tool_calls=(), finish=Finish.STOP, usage=None)
    kept = msgspec.structs.replace(output, provider_state={"signature": SECRET})
    assert clean(kept)[0] is kept
    assert clean(msgspec.structs.replace(output, provider_state={"said": SECRET}))[0].provider_state is None


def test_the_name_of_what_a_call_made_is_redacted() -> None:
    made = MadeArtifact(artifact_id="a", name=f"{SECRET}.png", media_type="image/png", bytes=1)
    finished = ToolFinished(
        call_id=CallId("c1"),
        effect_id=EffectId("e"),
        outcome=Outcome.OK,
        error=None,
        attestation=None,
        made=(made,),
    )
    assert SECRET not in clean(finished)[0].made[0].name
