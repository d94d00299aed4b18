"""A question of the daemon as an editor asks it.

Owns: what the person in the editor sees of an approval, and the answer that a picked option stands for.
Does not own: asking (turn).
Invariants: every call that an answer allows is shown. An option that lasts is named by what it covers, and answered by
its number, so that it opens nothing else (L7).
"""

import msgspec

from palyra.cli.acp.content import kind_of, text_block
from palyra.core.events.base import JsonObject
from palyra.core.spelling import spell_json, spell_out

_ALLOW, _ALLOW_SESSION, _REJECT, _REJECT_SESSION = "allow", "allow_session", "reject", "reject_session"


def shown_call(card: JsonObject) -> JsonObject:
    """Returns the tool call of the question. One about several calls shows each of them."""
    tool, calls = card.get("tool"), _records(card.get("calls"))
    title = str(tool or "budget")
    several = f" ({len(calls)} calls)" if len(calls) > 1 else ""
    is_each = len(calls) > 1 and card.get("is_cut") is not True  # The preview of a cut card is the whole text by now.
    texts = [_shown(call) for call in calls] if is_each else [str(card.get("preview") or "")]
    return {
        "toolCallId": str(card.get("call_id") or card.get("id")),
        "title": f"{title}{several}",
        "kind": kind_of(title),
        "rawInput": card.get("arguments"),
        "content": [{"type": "content", "content": text_block(text)} for text in texts if text],
    }


def options_of(card: JsonObject) -> list[JsonObject]:
    options: list[JsonObject] = [{"optionId": _ALLOW, "name": "Allow once", "kind": "allow_once"}]
    lasting = _lasting(card)
    if lasting is not None and "allow" in _decisions(lasting[1]):
        name = f"Allow {spell_out(str(lasting[1].get('text')))}"
        options.append({"optionId": _ALLOW_SESSION, "name": name, "kind": "allow_always"})
    options.append({"optionId": _REJECT, "name": "Reject", "kind": "reject_once"})
    if lasting is not None and "deny" in _decisions(lasting[1]):
        options.append({"optionId": _REJECT_SESSION, "name": "Reject in this session", "kind": "reject_always"})
    return options


def answer_of(card: JsonObject, chosen: JsonObject) -> JsonObject | None:
    """Returns the answer for the daemon; None if the editor cancelled the question together with its prompt."""
    outcome, lasting = chosen.get("outcome"), _lasting(card)
    picked = outcome.get("optionId") if isinstance(outcome, dict) and outcome.get("outcome") == "selected" else None
    answers: dict[object, JsonObject] = {_ALLOW: {"decision": "allow"}, _REJECT: {"decision": "deny"}}
    if lasting is not None:
        answers[_ALLOW_SESSION] = {"decision": "allow", "scope": "session", "option": lasting[0]}
        answers[_REJECT_SESSION] = {"decision": "deny", "scope": "session", "option": lasting[0]}
    return answers.get(picked) if isinstance(picked, str) else None


def _lasting(card: JsonObject) -> tuple[int, JsonObject] | None:
    """Returns the first option for the session and its number. Trusting sources is no answer to a call alone."""
    options = enumerate(_records(card.get("options")))
    return next(((n, each) for n, each in options if each.get("scope") == "session" and not each.get("trusts")), None)


def _decisions(option: JsonObject) -> list[object]:
    """Returns which of allow and deny may name this option. A call of critical risk is allowed once."""
    decisions = option.get("decisions")
    return decisions if isinstance(decisions, list) else []


def _records(value: object) -> list[JsonObject]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _shown(call: JsonObject) -> str:
    preview = call.get("preview")
    return str(preview) if preview else spell_json(msgspec.json.encode(call.get("arguments"), order="sorted").decode())
