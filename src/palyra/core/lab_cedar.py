"""Writes proposed grants as Cedar policies, which open what a proposal shows until they expire.

Does not own: judging by such a policy (adapters.policy).
A policy cannot look at single arguments. One that names a file or a folder opens it whatever the other arguments are,
and `opens` says so. An exact call is named by its hash, and its policy opens nothing else.
"""

import hashlib
from datetime import UTC, datetime

from palyra.core.grants import Operator
from palyra.core.lab_grants import GrantProposal, names_of

PATHS_SHOWN_MAX = 5
VALUE_CHARS_MAX = 200  # Shown of an argument; the constraints in the JSON answer hold it whole.
_PATH = "path"
_ID_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")
_TOOL_CHARS_MAX = 32


def policy_id(proposal: GrantProposal) -> str:
    """Returns the same id for the same terms, so that a policy made again replaces the old one."""
    parts = (*_scope(proposal), *(_condition(proposal) or ()), *sorted(proposal.taint))
    digest = hashlib.sha256("\n".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
    tool = "".join(letter if letter in _ID_LETTERS else "_" for letter in proposal.tool)[:_TOOL_CHARS_MAX]
    return f"lab_{tool}_{digest[:8]}"


def permit_text(proposal: GrantProposal) -> str | None:
    """Returns the policy's text; None if no policy can be as narrow as the terms are."""
    condition = _condition(proposal)
    if condition is None:
        return None
    principal, agent, tool = _scope(proposal)
    conditions = [f"context.agent == Agent::{agent}", *condition, _taint(proposal)]
    conditions.append(f"context.now_ms < {proposal.expires_at_ms}")
    joined = " &&\n    ".join(conditions)
    count = proposal.answers.allowed_count
    return (
        f"// Ends {moment(proposal.expires_at_ms)}.\n"
        f"// Allowed {count} times, the last on {moment(proposal.last_at_ms)}.\n"
        f'@id("{policy_id(proposal)}")\n'
        f'@says("Allowed {count} times before; free until {moment(proposal.expires_at_ms)}.")\n'
        f'permit (\n    principal == Principal::{principal},\n    action == Action::"call",\n'
        f"    resource == Tool::{tool}\n)\nwhen {{\n    {joined}\n}};\n"
    )


def opens(proposal: GrantProposal) -> tuple[str, ...]:
    """Returns all that a person opens with the policy, one sentence each."""
    said = [_what(proposal)]
    if proposal.paths_seen:
        more = proposal.paths_count - PATHS_SHOWN_MAX
        shown = ", ".join(proposal.paths_seen[:PATHS_SHOWN_MAX])
        said.append(f"seen so far: {shown}{f', and {more} more' if more > 0 else ''}")
    said.append(f"for {proposal.principal} with agent {proposal.agent}, in every session and from every channel")
    sources = ", ".join(sorted(proposal.taint))
    said.append(f"also after content from: {sources}" if sources else "only while nothing from outside was read")
    said.append(f"until {moment(proposal.expires_at_ms)}")
    return tuple(said)


def moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M UTC")


def quoted(text: str) -> str:
    """Returns a string literal of Cedar; characters that are not plainly printable are written by their number."""
    return '"' + "".join(_escaped(letter) for letter in text) + '"'


def _what(proposal: GrantProposal) -> str:
    rest = [name for name in names_of(proposal) if name != _PATH]
    whatever = f", whatever its {' and '.join(rest)}" if rest else ""
    if proposal.arguments_sha256 is not None:
        return f"{proposal.tool} with exactly these arguments: {_exactly(proposal)}"
    if proposal.file is not None:
        return f"{proposal.tool} on {proposal.file} alone{whatever}"
    if proposal.folder is not None:
        return f"{proposal.tool} on any file in {proposal.folder}/ and below it{whatever}"
    terms = "; ".join(f"{each.argument or 'arguments'} {each.operator} {each.value}" for each in proposal.constraints)
    return f"{proposal.tool} where {terms}"


def _exactly(proposal: GrantProposal) -> str:
    """Shows values as JSON, cut where they are long; a value too long to be kept is named by its hash."""
    said = []
    for each in proposal.constraints:
        is_hashed = each.operator == Operator.HAS_SHA256.value
        value = f"(a long text, sha256 {each.value[:12]}…)" if is_hashed else _cut(each.value)
        said += [f"{each.argument}: {value}"] if each.argument else []
    return ", ".join(said) or "none"


def _cut(text: str) -> str:
    return text if len(text) <= VALUE_CHARS_MAX else f"{text[: VALUE_CHARS_MAX - 1]}…"


def _scope(proposal: GrantProposal) -> tuple[str, str, str]:
    return quoted(proposal.principal), quoted(proposal.agent), quoted(proposal.tool)


def _condition(proposal: GrantProposal) -> tuple[str, ...] | None:
    if proposal.arguments_sha256 is not None:
        return (f"context.arguments_sha256 ==\n        {quoted(proposal.arguments_sha256)}",)
    if proposal.file is not None:
        return ("context.in_workspace", f"context.paths == [{quoted(proposal.file)}]")
    if proposal.folder is not None:
        return ("context.in_workspace", f"context.folders.contains({quoted(proposal.folder)})")
    return None


def _taint(proposal: GrantProposal) -> str:
    if not proposal.taint:
        return "context.taint.isEmpty()"
    return f"[{', '.join(quoted(source) for source in sorted(proposal.taint))}].containsAll(context.taint)"


def _escaped(letter: str) -> str:
    if letter in '"\\':
        return f"\\{letter}"
    return letter if letter.isprintable() else f"\\u{{{ord(letter):x}}}"
