"""Questions to a person: the keys that answer an approval, and what each key sends.

Does not own: drawing (card), sending (conversation, run_view).
Invariant: an answer is a key and Enter, never a single keystroke, so that text typed ahead approves nothing.
"""

import re
import shlex
from collections.abc import Mapping

import msgspec

from palyra.cli.terminal.style import in_one_line, shown
from palyra.core.errors import Invalid
from palyra.core.events.base import JsonObject

TTL_DEFAULT_S = 3600
TTL_S_MAX = 30 * 86_400  # What the daemon takes. The words for it are better here, where the person types days.
ARGUMENTS_LENGTH_MAX = 400
BRIEF_LENGTH_MAX = 160
SUBJECT_LENGTH_MAX = 48  # Leaves room for the line that is typed.
OPTION_LENGTH_MAX = 300  # An option must show everything it opens.
_TELLING = ("command", "path", "url", "query", "pattern", "prompt", "id", "name")
_DURATION = re.compile(r"([1-9][0-9]{0,5})\s*([smhd]?)")
_UNIT_S = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_SCOPE_KEYS = {"once": "a", "session": "s", "timeboxed": "t"}
_SCOPE_TEXTS = {"once": "allow once", "session": "allow for this session", "timeboxed": "allow for a while (t 30m)"}
_REFUSAL_TEXTS = {"session": "deny for this session", "timeboxed": "deny for a while (dt 30m)"}
_DECIDED = {"allow": "allowed", "deny": "denied"}
_WORDS = {"y": "a", "yes": "a", "allow": "a", "n": "d", "no": "d", "deny": "d"}
_UNCERTAIN = (
    ("r", "retry: run it again", "retry"),
    ("o", "treat it as done", "done"),
    ("g", "give up on it", "give_up"),
)


LABEL = "› "


class AnswerChoice(msgspec.Struct, frozen=True):
    """One way to answer. `number` answers too: it is the option's number in the API and in `palyra approvals show`."""

    key: str
    text: str
    body: JsonObject
    number: int | None = None

    @property
    def shown_key(self) -> str:
        return self.key if self.number is None else f"{self.number} {self.key}"

    @property
    def is_refusal(self) -> bool:
        """Tells whether it is a no that covers later calls too."""
        return self.body.get("decision") == "deny" and "scope" in self.body


class CardQuestion(msgspec.Struct, frozen=True):
    """`calls` are the arguments of each call the question is about; `record` is everything known about the question."""

    approval_id: str
    run_id: str | None
    title: str
    calls: tuple[object, ...]
    choices: tuple[AnswerChoice, ...]
    record: Mapping[str, object]

    @property
    def keys(self) -> str:
        """Returns the keys for the prompt. Those of refusals are on the card only, which leaves room to type."""
        return "/".join(choice.key for choice in self.choices if not choice.is_refusal)

    @property
    def subject(self) -> str:
        """Returns the tool and what it would do, in a few words."""
        name = text_of(self.record.get("tool")) or text_of(self.record.get("kind"))
        said = brief_arguments(self.calls[0]) if self.calls else ""
        return in_one_line(f"{name} {said}".strip(), SUBJECT_LENGTH_MAX)

    def mistaken(self, line: str) -> str:
        """Returns why a line does not answer the question."""
        key, _, rest = line.strip().partition(" ")
        chosen = _chosen(self, key)
        if chosen is not None and rest and chosen.body.get("scope") == "timeboxed":
            typed = rest.split(" ")[0] if chosen.is_refusal else rest
            return f"{in_one_line(typed.strip(), BRIEF_LENGTH_MAX)} is no duration of at most 30d, such as 90s, 30m, 2h or 7d"
        if chosen is not None and "without" in chosen.body:
            return "w takes the paths to leave out, such as w .envrc"
        return f"that is no answer to {self.subject}"


def question_of(approval: Mapping[str, object], arguments: object) -> CardQuestion:
    """Reads a record of the API, or the data of `approval.requested`. `arguments` are the call's, if known."""
    kind, tool = text_of(approval.get("kind")) or "tool", text_of(approval.get("tool"))
    count = approval.get("count")
    titles = {
        "tool": f"{tool or 'a tool'} asks for approval",
        "draft": f"{tool or 'a command'} changed files; apply that?",
        "budget": "a budget is used up; go on?",
        "uncertain": f"nobody knows whether {tool or 'a call'} happened",
        "pairing": "a sender asks to be paired",
    }
    title = titles.get(kind, f"{kind} asks for approval")
    calls = approval.get("calls")
    several = [each["arguments"] for each in calls if "arguments" in each] if isinstance(calls, list) else []
    return CardQuestion(
        approval_id=text_of(approval.get("approval_id")) or text_of(approval.get("id")),
        run_id=text_of(approval.get("run_id")) or None,
        title=f"{title} · {count} calls" if isinstance(count, int) and count > 1 else title,
        calls=tuple(several) or (arguments,),
        choices=_choices_of(kind, approval),
        record=approval,
    )


def seen_text(approval: Mapping[str, object]) -> str:
    """Returns the sources of a question's taint, each with where it came in, as far as that is known."""
    taint, origins = approval.get("taint"), approval.get("taint_origins")
    found = [each for each in (origins if isinstance(origins, list) else []) if isinstance(each, dict)]
    known = {each.get("source"): each for each in found}
    sources = taint if isinstance(taint, list) else []
    return shown(", ".join(_origin_text(str(source), known.get(source, {})) for source in sources))


def _origin_text(source: str, origin: Mapping[str, object]) -> str:
    tool, seq = origin.get("tool"), origin.get("seq")
    facts = [f"by {tool}" if isinstance(tool, str) else "", f"at event {seq}" if isinstance(seq, int) else ""]
    where = " ".join(fact for fact in facts if fact)
    return f"{source} ({where})" if where else source


def label_of(question: CardQuestion | None) -> str:
    """Returns the text before the line: what the open question is about, and the keys that answer it."""
    return LABEL if question is None else f"{question.subject} · {question.keys} {LABEL}"


def answer_of(question: CardQuestion, line: str) -> JsonObject | None:
    key, _, rest = line.strip().partition(" ")
    if not key:
        return None
    chosen = _chosen(question, key)
    if chosen is None:
        return None
    rest = rest.strip()
    if chosen.body.get("decision") == "deny":
        return _denial(chosen.body, rest)
    if "without" in chosen.body:
        return {**chosen.body, "without": _paths(rest)} if rest else None
    if chosen.body.get("scope") == "timeboxed":
        ttl_s = seconds_of(rest) if rest else TTL_DEFAULT_S
        return None if ttl_s is None or ttl_s > TTL_S_MAX else {**chosen.body, "ttl_s": ttl_s}
    return None if rest else chosen.body


def _chosen(question: CardQuestion, key: str) -> AnswerChoice | None:
    word = _WORDS.get(key.lower(), key.lower())
    return next((each for each in question.choices if word == each.key or word == str(each.number)), None)


def decided_text(body: JsonObject, record: Mapping[str, object]) -> str:
    """Returns what an answer did, as a person is told it: `allowed (once)`, `allowed, without .envrc`."""
    if record.get("decided_rule"):
        return f"not allowed, because by now it is forbidden ({text_of(record['decided_rule'])})"
    decision = text_of(body.get("decision"))
    scope = f" ({body['scope']})" if "scope" in body else ""
    left = body.get("without")
    without = f", without {shown(', '.join(map(str, left)))}" if isinstance(left, list) and left else ""
    return f"{_DECIDED[decision]}{scope}{without}" if decision in _DECIDED else f"answered ({decision})"


def _paths(typed: str) -> list[str]:
    """Splits paths as a shell does, so that quotes keep the spaces of a name."""
    try:
        return shlex.split(typed)
    except ValueError:
        return typed.split()  # A quote without its end belongs to a name.


def _denial(body: JsonObject, rest: str) -> JsonObject | None:
    """Returns a no with what follows its key: for how long, where it lasts for a while, then the reason.

    Returns None if it would last too long.
    """
    if body.get("scope") == "timeboxed":
        first, _, more = rest.partition(" ")
        ttl_s = seconds_of(first)
        if ttl_s is not None and ttl_s > TTL_S_MAX:
            return None
        rest = rest if ttl_s is None else more.strip()
        body = {**body, "ttl_s": TTL_DEFAULT_S if ttl_s is None else ttl_s}
    return {**body, "reason": rest} if rest else body


def brief_arguments(arguments: object) -> str:
    """Returns the one argument that says most, if there is one."""
    if isinstance(arguments, dict):
        told = next((arguments[name] for name in _TELLING if isinstance(arguments.get(name), str)), None)
        return arguments_text(arguments) if told is None else in_one_line(str(told), BRIEF_LENGTH_MAX)
    return arguments_text(arguments)


def arguments_text(arguments: object) -> str:
    """Returns the arguments of a call in one line."""
    if isinstance(arguments, dict) and len(arguments) == 1:
        (value,) = arguments.values()
        arguments = value if isinstance(value, str) else arguments
    text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode() if arguments else ""
    return in_one_line(text, ARGUMENTS_LENGTH_MAX)


def seconds_of(text: str) -> int | None:
    match = _DURATION.fullmatch(text.strip())
    return int(match[1]) * _UNIT_S[match[2]] if match else None


def parse_seconds(text: str, option: str) -> int:
    found = seconds_of(text)
    if found is None:
        raise Invalid("duration_invalid", f"{option} takes a number and s, m, h or d, such as 30m")
    return found


def parse_grant_seconds(text: str) -> int:
    found = parse_seconds(text, "--ttl")
    if found > TTL_S_MAX:
        raise Invalid("duration_invalid", "--ttl takes at most 30d; what should hold for longer is a policy")
    return found


def is_allowable(approval: Mapping[str, object], scope: str) -> bool:
    """Tells whether a yes may have this scope. A call of critical risk is allowed once; only a no may last."""
    return scope == "once" or approval.get("risk") != "critical"


def _choices(approval: Mapping[str, object]) -> tuple[AnswerChoice, ...]:
    """Returns every option that was offered, then deny. Options of the same scope are numbered: s, s2, s3.

    A no that lasts is offered for the first, narrowest option of each scope. `--option` refuses the others.
    """
    options = approval.get("options")
    choices: list[AnswerChoice] = []
    refusals: dict[str, AnswerChoice] = {}
    counts: dict[str, int] = {}
    for index, option in enumerate(options if isinstance(options, list) else []):
        scope = text_of(option.get("scope")) if isinstance(option, dict) else ""
        if scope in _SCOPE_KEYS:
            counts[scope] = counts.get(scope, 0) + 1
            key = _SCOPE_KEYS[scope] + (str(counts[scope]) if counts[scope] > 1 else "")
            covered = in_one_line(text_of(option.get("text")), OPTION_LENGTH_MAX)
            terms: JsonObject = {"scope": scope, "option": index}
            text = f"{_SCOPE_TEXTS[scope]}: {covered}".removesuffix(": ")
            if is_allowable(approval, scope):
                choices.append(AnswerChoice(key, text, {"decision": "allow", **terms}, index))
            if scope in _REFUSAL_TEXTS:
                text = f"{_REFUSAL_TEXTS[scope]}: {covered}".removesuffix(": ")
                refusals.setdefault(scope, AnswerChoice(f"d{_SCOPE_KEYS[scope]}", text, {"decision": "deny", **terms}))
    if not counts.get("once"):
        choices.insert(0, AnswerChoice("a", _SCOPE_TEXTS["once"], {"decision": "allow", "scope": "once"}))
    return (*choices, AnswerChoice("d", "deny (d REASON)", {"decision": "deny"}), *refusals.values())


def _choices_of(kind: str, approval: Mapping[str, object]) -> tuple[AnswerChoice, ...]:
    if kind == "uncertain":
        return _uncertain_choices()
    return _draft_choices() if kind == "draft" else _choices(approval)


def _draft_choices() -> tuple[AnswerChoice, ...]:
    return (
        AnswerChoice("a", "apply these changes", {"decision": "allow"}, 0),
        AnswerChoice("w", "apply without these (w PATH PATH …)", {"decision": "allow", "without": []}),
        AnswerChoice("d", "discard (d REASON)", {"decision": "deny"}),
    )


def _uncertain_choices() -> tuple[AnswerChoice, ...]:
    return tuple(AnswerChoice(key, text, {"decision": decision}) for key, text, decision in _UNCERTAIN)


def text_of(value: object) -> str:
    return shown(value) if isinstance(value, str) else ""
