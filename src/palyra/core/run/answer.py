"""The final answer contract: when a model's text may stand as a run's answer.

Does not own: asking the model again (due).
The contract is independent of language where it can be. It checks emptiness, cut-off output, tool markup, names of
tools next to signs of success, must_call, the caller's schema, and what was found of the run's objectives. It does not
judge prose itself.
"""

import re
from collections.abc import Mapping

import msgspec

from palyra.core.events.model import Finish
from palyra.core.events.tool import Outcome
from palyra.core.run.objectives import unmet_words
from palyra.core.run.state import Run
from palyra.core.trust import is_tainting

SCHEMA_ERRORS_SHOWN_MAX = 5  # Enough for the model to correct itself; the rest usually follows from these.

_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)
_TOOL_MARKUP = re.compile(
    r"<\|?/?(?:tool_call|tool_calls|function_call|tool_use|python_tag)\b"
    r"|<(?:invoke|function)[ =]|\[TOOL_CALLS\]|\[TOOL_REQUEST\]|<\|python_tag\|>|\"tool_calls\"\s*:\s*\["
)
_SUCCESS = re.compile(r"[✅✓✔☑]|\b(?:ok|success\w*|succeed\w*|done|completed?|executed)\b", re.IGNORECASE)
_DOUBT = re.compile(
    r"[❌✗✘]|\b(?:not|no|never|fail\w*|denied|refused|error|unable|uncertain|without|if|would)\b|n't\b", re.IGNORECASE
)


_EMPTY = {
    Finish.CONTENT_FILTER: "The provider's content filter cut the answer off. Answer without what it objects to; a person may"
    " word the request otherwise or choose another model.",
    Finish.REFUSAL: "The model refused to answer. Word the request otherwise, or choose another model.",
}


class AnswerCase(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate answer, with the facts that the tape adds."""

    text: str
    finish: Finish
    schema_errors: tuple[str, ...]
    must_call: tuple[str, ...]
    outcomes: Mapping[str, frozenset[Outcome]]
    unmet: tuple[str, ...] = ()


def answer_problems(run: Run) -> tuple[str, ...]:
    """Returns what keeps the output of the present turn from being the run's answer, as far as that is known."""
    output = run.output
    if output is None:
        return ()
    tools = {tool for tool, _ in run.outcomes}
    outcomes = {tool: frozenset(outcome for name, outcome in run.outcomes if name == tool) for tool in tools}
    answer = AnswerCase(
        text=output.text,
        # A caller who set the limit takes an answer that the limit cut.
        finish=Finish.STOP if output.finish is Finish.LENGTH and run.output_tokens_max is not None else output.finish,
        schema_errors=output.schema_errors,
        must_call=run.must_call,
        outcomes=outcomes,
        unmet=unmet_words(run.objectives, run.checked or (), can_retell=not is_tainting(run.trust)),
    )
    return find_problems(answer)


def find_problems(answer: AnswerCase) -> tuple[str, ...]:
    """Returns what keeps the text from being the answer, in words for the model; empty if nothing does."""
    if not answer.text.strip():
        return (_EMPTY.get(answer.finish, "The answer is empty."), *_missing_calls(answer))
    problems: list[str] = []
    if answer.finish is Finish.CONTENT_FILTER:
        problems.append(_EMPTY[Finish.CONTENT_FILTER])
    if answer.finish is Finish.LENGTH:
        problems.append("The answer was cut off at the output limit. Give a shorter, complete one.")
    if _TOOL_MARKUP.search(_CODE.sub(" ", answer.text)):
        problems.append("The answer holds raw tool-call markup. Call the tool properly, or answer in plain text.")
    problems += _contradicted_claims(answer)
    problems += _missing_calls(answer)
    problems += [
        f"The answer does not fit the required schema: {e}" for e in answer.schema_errors[:SCHEMA_ERRORS_SHOWN_MAX]
    ]
    problems += answer.unmet
    return tuple(problems)


def _missing_calls(answer: AnswerCase) -> list[str]:
    return [
        f"The task requires a successful call of {tool}, and there was none."
        for tool in answer.must_call
        if Outcome.OK not in answer.outcomes.get(tool, frozenset())
    ]


def _contradicted_claims(answer: AnswerCase) -> list[str]:
    """Finds lines that name a tool beside a sign of success, though every call of it in this run failed."""
    failed = [tool for tool, outcomes in answer.outcomes.items() if outcomes and Outcome.OK not in outcomes]
    lines = answer.text.splitlines()
    return [
        f"The answer says that {tool} succeeded, but no call of it did. Say what really happened."
        for tool in failed
        if any(_claims_success(line, tool) for line in lines)
    ]


def _claims_success(line: str, tool: str) -> bool:
    if not re.search(rf"(?<![\w.]){re.escape(tool)}(?![\w.]*\w)", line):
        return False
    rest = line.replace(tool, " ")
    return bool(_SUCCESS.search(rest)) and not _DOUBT.search(rest)
