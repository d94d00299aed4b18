"""The viewer of a resource: the principal whose permissions apply when a caller names it.

Owns: choosing between the caller and the owner, and recording a change to another's resource before it is made.
Does not own: the decision (the access policy), the resources (engine).
Invariant: a caller who may not see another's resource views it as themselves, and the engine answers as for one that
is not there (L11): 404, and never 403, which would tell that it exists.
"""

from palyra.core.errors import Unauthorized
from palyra.core.events.system import AdminActed
from palyra.core.ids import Principal
from palyra.engine.api.admin_log import AdminLog
from palyra.engine.api.owners import OwnerLookup
from palyra.gateway.access.caller import Caller
from palyra.gateway.access.resources import ResourceRef
from palyra.gateway.access.roles import EVERYONE, Operation, require
from palyra.ports.policy import AccessPolicy

TRUST = "sessions.trust"


class Viewers:
    def __init__(self, policy: AccessPolicy, owners: OwnerLookup, acts: AdminLog) -> None:
        self._policy = policy
        self._owners = owners
        self._acts = acts

    async def viewer_for(self, caller: Caller, operation: Operation, resource: ResourceRef | None) -> Principal:
        """The caller, or the owner where the policy permits it. Unauthorized if not even an own resource is permitted."""
        own = caller.principal
        is_owned = resource is not None and resource.kind.owner_of is not None
        require(self._policy, caller, operation.action, own if is_owned else None)
        if resource is None or operation.others is None:
            return own
        owner = await self._owner_of(own, resource)
        if owner is None or owner == own:
            return own
        try:
            require(self._policy, caller, operation.action, owner)
        except Unauthorized:
            return own
        if not operation.is_read_only:
            act = AdminActed(action=operation.action, target=str(resource), detail=f"of {owner}")
            await self._acts.record(own, act)
        return owner

    def require_also(self, caller: Caller, action: str) -> None:
        """Unauthorized unless the caller may do this too: what they ask for leads to it."""
        require(self._policy, caller, action, None)

    def may_trust(self, caller: Caller) -> bool:
        """Tells whether the caller may vouch for a source of their own sessions."""
        try:
            require(self._policy, caller, TRUST, caller.principal)
        except Unauthorized:
            return False
        return True

    def reader_for(self, caller: Caller, action: str, is_everyone: bool) -> Principal | None:
        """For lists: the caller, or None for everyone's resources where the policy permits that."""
        if not is_everyone:
            return caller.principal
        require(self._policy, caller, action, EVERYONE)
        return None

    def may_oversee(self, caller: Caller, action: str) -> bool:
        try:
            require(self._policy, caller, action, EVERYONE)
        except Unauthorized:
            return False
        return True

    async def _owner_of(self, principal: Principal, resource: ResourceRef) -> Principal | None:
        kind = resource.kind
        if kind.owner_of is None:
            return None
        return await kind.owner_of(self._owners, principal, kind.read_id(resource.id))
