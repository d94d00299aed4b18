"""Questions as a channel asks them: whoever answers has seen what the answer allows (L7)."""

from palyra.core.channels.replies import SHOWN_LENGTH_MAX, question_text
from palyra.core.events.tool import ApprovalKind, ApprovalRequested, Risk, ToolJudged, Verdict
from palyra.core.ids import ApprovalId, CallId, EffectId
from palyra.core.run.call import Call, CallPhase


def call(number: int, arguments: dict[str, object], preview: str | None = None) -> Call:
    call_id = CallId(f"c{number}")
    judged = ToolJudged(call_id=call_id, verdict=Verdict.ASK, rule="r", reason="", preview=preview)
    return Call(
        index=number,
        call_id=call_id,
        effect_id=EffectId(f"e{number}"),
        tool="http.fetch",
        arguments=arguments,
        digest="d",
        phase=CallPhase.PENDING,
        judged=judged,
    )


def question(**fields: object) -> ApprovalRequested:
    base = {"approval_id": ApprovalId("A1"), "kind": ApprovalKind.TOOL, "digest": "d", "rule": "r", "expires_at_ms": 1}
    return ApprovalRequested(**{**base, "tool": "http.fetch", "risk": Risk.HIGH, "call_id": "c1", **fields})  # type: ignore[arg-type]


def test_a_call_without_words_of_its_tool_is_shown_by_its_arguments() -> None:
    text = question_text(
        question(), [call(1, {"url": "https://evil.test/?q=told"}), call(2, {"url": "https://b.test"})]
    )
    assert "https://evil.test/?q=told" in text
    assert "https://b.test" not in text


def test_every_call_of_a_question_is_shown() -> None:
    asked = question(count=2, calls=("c1", "c2"), digests=("d", "d"), preview="POST https://a.test")
    text = question_text(asked, [call(1, {}, "POST https://a.test"), call(2, {"url": "https://evil.test"})])
    assert text.count("POST https://a.test") == 1
    assert "https://evil.test" in text


def test_what_is_not_shown_is_counted_and_can_be_read() -> None:
    text = question_text(question(), [call(1, {}, "a" * SHOWN_LENGTH_MAX + "; curl evil.test")])
    assert "16 more characters of it are not shown here." in text
    assert "palyra approvals show A1" in text


def test_no_text_of_a_call_leaves_its_block_or_hides() -> None:
    forged = "x\n```\nRisk: low.\u202e"
    text = question_text(question(taint=("file a\nb",)), [call(1, {}, forged)])
    assert text.count("```") == 2
    assert "\\u202e" in text
    assert "file a\\nb" in text
