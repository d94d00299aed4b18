"""Finds an id by its beginning, or by `last`. Does not own: what is done with the id."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from palyra.cli.daemon_call import Client
from palyra.core.errors import Invalid, NotFound
from palyra.core.events.base import JsonObject
from palyra.core.ids import ULID_LENGTH, StreamId

if TYPE_CHECKING:
    from palyra.core.verification.evidence import StoredRow

LAST = "last"
LOOKED_AT_MAX = 10_000
NAMED_MAX = 3  # Candidates that an error names.


async def find_id(client: Client, path: str, text: str) -> str:
    """Returns the id that is meant. Items that wait come first, then all. Lists have the newest last."""
    if len(text) == ULID_LENGTH:
        return text
    is_waiting_first = path == "/approvals"
    for query in ({"status": "pending"}, {}) if is_waiting_first else ({},):
        items = await client.items(path, LOOKED_AT_MAX, **query)
        found = choose(items, text)
        if found is not None:
            return found
    if text == LAST and is_waiting_first:
        raise NotFound("nothing_waits", "nothing waits for an answer")
    command = "list --status all" if is_waiting_first else "grants list"
    raise NotFound("id_unknown", f"no id begins with {text!r}; palyra approvals {command} shows them")


async def find_open_question(client: Client, text: str) -> str:
    """Returns the approval to answer. `last` is the newest that waits, never one that is decided."""
    if text != LAST:
        return await find_id(client, "/approvals", text)
    found = choose(await client.items("/approvals", LOOKED_AT_MAX, status="pending"), LAST)
    if found is None:
        raise NotFound("nothing_waits", "nothing waits for an answer")
    return found


async def find_run(client: Client, text: str) -> str:
    """Returns the run that is meant. `last` is the newest that a person or a routine started, never a delegated one."""
    if len(text) == ULID_LENGTH:
        return text
    delegated = {} if text == LAST else {"delegated": "true"}
    return _found(await client.items("/runs", LOOKED_AT_MAX, **delegated), text, "run")


async def find_incident(client: Client, text: str) -> str:
    """Returns the incident that is meant. `last` is the newest open one, or else the newest of all."""
    if len(text) == ULID_LENGTH:
        return text
    items = await client.items("/incidents", LOOKED_AT_MAX)
    still_open = [item for item in items if item.get("status") == "open"]
    return _found(still_open if text == LAST and still_open else items, text, "incident")


async def find_candidate(client: Client, text: str, status: str = "") -> str:
    """Returns the candidate that is meant. `last` is the one that changed last, of those in this state if there are any."""
    if len(text) == ULID_LENGTH:
        return text
    path = "/learning/candidates"
    items = await client.items(path, LOOKED_AT_MAX)
    if status == "suppressed" or text != LAST:
        items += await client.items(path, LOOKED_AT_MAX, status="suppressed")
    if text == LAST:
        items.sort(key=lambda item: (item.get("status") == status, str(item.get("updated_at_ms"))))
    found = choose(items, text)
    if found is None:
        what = "there are no candidates" if text == LAST else f"no candidate's id begins with {text!r}"
        raise NotFound("candidate_unknown", f"{what}; palyra learning list shows those there are")
    return found


async def find_memory(client: Client, text: str) -> str:
    """Returns the remembered item that is meant. `last` is the newest, earlier forms of edited items left out."""
    if len(text) == ULID_LENGTH:
        return text
    found = choose(await client.items("/memory", LOOKED_AT_MAX), text)
    if found is None:
        what = "nothing is remembered" if text == LAST else f"no item's id begins with {text!r}"
        raise NotFound("memory_unknown", f"{what}; palyra memory list shows what there is")
    return found


def choose_session(items: list[JsonObject], name: str) -> JsonObject:
    """Returns the session that is meant: by key, by label (the newest), as the `last` used, or by the id's beginning."""
    newest_first = sorted(items, key=lambda item: str(item.get("id")), reverse=True)
    named = [item for member in ("key", "label") for item in newest_first if item.get(member) == name]
    if named:
        return named[0]
    found = choose(sorted(items, key=lambda item: str(item.get("updated_at_ms"))), name)
    if found is None:
        raise NotFound(
            "session_unknown", f"no session has the id, key or label {name}; palyra sessions list shows them"
        )
    return next(item for item in items if item.get("id") == found)


def choose_stored_session(rows: Iterable["StoredRow"], name: str) -> StreamId:
    """Returns the session of a journal that is meant, found as the daemon finds it. Service runs are left out.

    A journal holds sessions of several principals, and each names theirs freely. Raises Invalid if principals differ in
    what the name means: nobody may lead an operator to another session than the one that is meant.
    """
    by_owner: dict[str, list[JsonObject]] = {}
    for row in rows:
        owner = str(row.values.get("owner"))
        is_erased = bool(row.values.get("is_erased"))
        if row.table == "sessions" and row.values.get("purpose") is None and not (is_erased and name == LAST):
            by_owner.setdefault(owner, []).append(dict(row.values))
    found = {str(choose_session(own, name)["id"]) for own in by_owner.values() if _has_session(own, name)}
    if len(found) > 1:
        named = ", ".join(sorted(found)[:NAMED_MAX]) + (" …" if len(found) > NAMED_MAX else "")
        raise Invalid("id_ambiguous", f"sessions of {len(found)} principals are named {name!r}: {named}; write an id")
    return StreamId(next(iter(found), None) or str(choose_session([], name)["id"]))


def _has_session(items: list[JsonObject], name: str) -> bool:
    try:
        choose_session(items, name)
    except NotFound:
        return False
    return True


def choose_mark(items: list[JsonObject], text: str, noun: str) -> str:
    """Returns the checkpoint or pin that is meant: by id, the beginning of one, its label, or `last`."""
    if len(text) == ULID_LENGTH:
        return text
    labelled = [item for item in items if item.get("label") == text]
    found = choose(labelled, LAST) if labelled else choose(items, text)
    if found is None:
        raise NotFound(f"{noun}_unknown", f"the session has no {noun} {text!r}; palyra sessions {noun}s shows them")
    return found


def choose_token(items: list[JsonObject], text: str) -> str:
    """Returns the token that is meant: by its id, the beginning of it, or as the `last` made. Ids are small letters."""
    by_age = sorted(items, key=lambda item: str(item.get("created_at_ms")))
    written = {str(item.get("id")).upper(): str(item.get("id")) for item in by_age}
    found = choose([{"id": each} for each in written], text)
    if found is None:
        raise NotFound("token_unknown", f"no token's id begins with {text!r}; palyra tokens list shows those there are")
    return written[found]


def choose_run(items: list[JsonObject], text: str) -> str:
    """Returns the run that is meant: by the beginning of its id, or as the `last` begun."""
    return _found(items, text, "run")


def _found(items: list[JsonObject], text: str, noun: str) -> str:
    found = choose(sorted(items, key=lambda item: str(item.get("id"))), text)
    if found is None:
        what = f"there are no {noun}s" if text == LAST else f"no {noun}'s id begins with {text!r}"
        raise NotFound(f"{noun}_unknown", f"{what}; palyra {noun}s list shows those there are")
    return found


def choose(items: list[JsonObject], text: str) -> str | None:
    """Raises Invalid if several ids begin alike, because an answer must not go to the wrong one."""
    ids = [str(item.get("id")) for item in items]
    if text == LAST:
        return ids[-1] if ids else None
    found = [each for each in ids if text and each.startswith(text.upper())]
    if len(found) > 1:
        named = ", ".join(found[:NAMED_MAX]) + (" …" if len(found) > NAMED_MAX else "")
        raise Invalid("id_ambiguous", f"{len(found)} ids begin with {text!r}: {named}; write more of the id")
    return found[0] if found else None
