"""Tool calls for tests: the catalog the daemon has, and a context to call its tools in."""

from pathlib import Path
from urllib.parse import urlsplit

from palyra.adapters.cron import SimulatedCron
from palyra.adapters.net.guard import Guard
from palyra.adapters.skills.skill_index import FolderSkills
from palyra.adapters.tools.artifact_read import ArtifactRead
from palyra.adapters.tools.catalog import ToolCatalog
from palyra.adapters.tools.fs_list import FsList
from palyra.adapters.tools.fs_patch import FsPatch
from palyra.adapters.tools.fs_read import FsRead
from palyra.adapters.tools.fs_search import FsSearch
from palyra.adapters.tools.fs_write import FsWrite
from palyra.adapters.tools.http_fetch import HttpFetch
from palyra.adapters.tools.routine_create import RoutineCreate
from palyra.adapters.tools.session_search import SessionSearch
from palyra.adapters.tools.skill_open import SkillOpen
from palyra.adapters.tools.time_now import TimeNow
from palyra.core.events.base import JsonObject
from palyra.core.ids import ArtifactId, EffectId, Principal, RunId, SessionId, StreamId, derive_routine_id
from palyra.core.routines.model import Routine
from palyra.core.routines.wish import RoutineWish, make_definition
from palyra.core.tools import ToolResult
from palyra.core.writes import LinkArtifact
from palyra.ports.search import NoSearch
from palyra.ports.state import NoState
from palyra.ports.tools import Tool, ToolCallContext
from tests.support.sites import standing_site

NOW_MS = 1_750_000_000_000  # 2025-06-15T15:06:40Z, a Sunday.
ARTIFACT = ArtifactId("a" * 64)
ARTIFACT_BODY = b"kept\n"


class OneArtifact:
    """Holds ARTIFACT and no other."""

    async def put(self, body: bytes) -> ArtifactId:
        return ARTIFACT

    async def get(self, artifact_id: ArtifactId, offset: int, limit: int) -> bytes:
        return ARTIFACT_BODY[offset : offset + limit]

    async def size(self, artifact_id: ArtifactId) -> int | None:
        return len(ARTIFACT_BODY)

    async def settled(self, older_than_s: float) -> tuple[ArtifactId, ...]:
        return ()

    async def remove(self, artifact_id: ArtifactId, older_than_s: float = 0.0) -> bool:
        return True


class OneLink(NoState):
    """Links ARTIFACT to the caller."""

    async def artifact_for(self, artifact_id: ArtifactId, principal: Principal) -> LinkArtifact | None:
        is_known = artifact_id == ARTIFACT
        return LinkArtifact(ARTIFACT, StreamId("s"), len(ARTIFACT_BODY), "text/plain", 1) if is_known else None


class OneRoutine:
    """Makes the same routine for the same effect, and stores none."""

    async def make(self, principal: Principal, wish: RoutineWish, effect_id: EffectId) -> Routine:
        definition = make_definition(wish, SimulatedCron().check)
        return Routine(
            id=derive_routine_id(effect_id),
            principal=principal,
            definition=definition,
            next_at_ms=NOW_MS,
            created_at_ms=NOW_MS,
            updated_at_ms=NOW_MS,
        )

    def describe(self, wish: RoutineWish) -> str:
        return str(make_definition(wish, SimulatedCron().check))


def make_catalog() -> ToolCatalog:
    site = urlsplit(standing_site())
    return ToolCatalog(
        [
            TimeNow(),
            HttpFetch(Guard([(site.hostname or "", site.port or 0)])),
            SkillOpen(FolderSkills(Path("no-home-here"))),
            FsRead(),
            FsWrite(),
            FsList(),
            FsSearch(),
            FsPatch(),
            ArtifactRead(OneArtifact(), OneLink()),
            SessionSearch(NoSearch()),
            RoutineCreate(OneRoutine()),
        ]
    )


def context(*workspace: Path, effect: str = "e" * 64) -> ToolCallContext:
    return ToolCallContext(
        session_id=SessionId(StreamId("01JZ0000000000000000SESS01")),
        run_id=RunId("01JZ0000000000000000RUN001"),
        effect_id=EffectId(effect),
        principal=Principal("user:alice"),
        agent="main",
        workspace=tuple(str(root) for root in workspace),
        now_ms=NOW_MS,
        emit=lambda stream, text: None,
    )


async def execute(tool: Tool, arguments: JsonObject, *workspace: Path) -> ToolResult:
    return await tool.execute(arguments, context(*workspace))


def code_of(result: ToolResult) -> str | None:
    return result.error.code if result.error else None
