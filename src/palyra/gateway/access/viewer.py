"""Oversight. Owns: through whose eyes a request looks, and recording what is changed for another. Not: the decision (policy).

Whoever may not look through another's eyes looks through their own, and then the engine answers as it does for a thing
that is not there (L11): 404, and never 403, which would tell that it exists.
"""

from palyra.core.errors import Unauthorized
from palyra.core.events.system import AdminActed
from palyra.core.ids import Principal
from palyra.gateway.access.roles import EVERYONE, require
from palyra.gateway.facade import Owners
from palyra.gateway.http.request_reader import approval_in, grant_in, run_in, session_in
from palyra.gateway.http.route import AnyHttpCall, AnyHttpRoute, Caller
from palyra.gateway.services import GatewayServices

_OWNED = frozenset({"session_id", "run_id", "approval_id", "grant_id"})


async def eyes_for(desk: GatewayServices, route: AnyHttpRoute, caller: Caller, path: dict[str, str]) -> Principal:
    """Unauthorized where the caller may not do this at all, not even with a thing of their own."""
    policy, own = desk.doors.policy, caller.principal
    is_owned = not _OWNED.isdisjoint(path)
    require(policy, caller, route.action, own if is_owned else None)
    if route.others is None or not is_owned:
        return own
    owner = await _owner_in(desk.engine.owners, own, path)
    if owner is None or owner == own:
        return own
    try:
        require(policy, caller, route.action, owner)
    except Unauthorized:
        return own
    if route.method != "GET":
        act = AdminActed(action=route.action, target="/".join(path.values()), detail=f"of {owner}")
        await desk.engine.acts.record(own, act)
    return owner


def reader_of(call: AnyHttpCall, is_everyone: bool) -> Principal | None:
    """For lists: the caller, or None for everyone's things where the policy permits that."""
    if not is_everyone:
        return call.principal
    require(call.desk.doors.policy, call.caller, call.action, EVERYONE)
    return None


async def _owner_in(owners: Owners, principal: Principal, path: dict[str, str]) -> Principal | None:
    if "run_id" in path:
        return await owners.of_run(principal, run_in(path))
    if "approval_id" in path:
        return await owners.of_approval(principal, approval_in(path))
    if "grant_id" in path:
        return await owners.of_grant(principal, grant_in(path))
    return await owners.of_session(principal, session_in(path))
