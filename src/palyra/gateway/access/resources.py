"""Kinds of resources that have an owner, and references to one of them.

Owns: how an id of each kind is read, and how its owner is found.
Does not own: who may see it (viewer), the lookup itself (engine.api.owners).
Invariant: an id of the wrong form and an id that nobody has are the same answer, NotFound.

A noun whose resources only its own routes name may declare its kind beside them.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from palyra.core.errors import Invalid, NotFound
from palyra.core.ids import GrantId, Principal, parse_approval_id, parse_artifact_id, parse_run_id, parse_session_id
from palyra.engine.api.owners import OwnerLookup

Id = TypeVar("Id", bound=str)


@dataclass(frozen=True, slots=True)
class ResourceKind(Generic[Id]):
    """`owner_of` is None for a kind that is shown to nobody but those the engine shows it to anyway."""

    name: str
    parse: Callable[[str], Id]
    owner_of: Callable[[OwnerLookup, Principal, Id], Awaitable[Principal | None]] | None = None

    @property
    def parameter(self) -> str:
        """The name of its id in paths."""
        return f"{self.name}_id"

    def read_id(self, text: str) -> Id:
        try:
            return self.parse(text)
        except Invalid as cause:
            raise NotFound(f"{self.name}_unknown", f"there is no such {self.name}") from cause


AnyResourceKind = ResourceKind[Any]


@dataclass(frozen=True, slots=True)
class ResourceRef:
    """One resource, by the id that a client named. `part` names something inside of it."""

    kind: AnyResourceKind
    id: str
    part: str = ""

    def __str__(self) -> str:
        return f"{self.id}/{self.part}" if self.part else self.id


def _parse_grant_id(text: str) -> GrantId:
    """Ids of grants are derived like those of approvals and have their form."""
    return GrantId(parse_approval_id(text))


SESSION = ResourceKind(
    "session", parse_session_id, lambda owners, principal, session_id: owners.of_session(principal, session_id)
)
RUN = ResourceKind("run", parse_run_id, lambda owners, principal, run_id: owners.of_run(principal, run_id))
APPROVAL = ResourceKind(
    "approval", parse_approval_id, lambda owners, principal, approval_id: owners.of_approval(principal, approval_id)
)
GRANT = ResourceKind("grant", _parse_grant_id, lambda owners, principal, grant_id: owners.of_grant(principal, grant_id))
ARTIFACT = ResourceKind("artifact", parse_artifact_id)
