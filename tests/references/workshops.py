"""An engine whose references really read: files, changes, and pages of sites that a test opens."""

from collections.abc import Sequence
from pathlib import Path

from palyra.adapters.net.guard import Guard
from palyra.adapters.providers.scripted import Script
from palyra.adapters.references.changes import GitChanges
from palyra.adapters.references.files import WorkspaceFiles
from palyra.adapters.references.pages import GuardedPages
from palyra.adapters.tools.fs_list import FsList
from palyra.adapters.tools.http_fetch import HttpFetch
from palyra.adapters.tools.memory_search import MemorySearchTool
from palyra.adapters.tools.session_search import SessionSearch
from palyra.core.ids import Principal, SessionId, StreamId
from palyra.core.references.model import ResolvedReference
from palyra.core.references.parser import parse_references
from palyra.core.trust import Trust
from palyra.engine.engine import Engine
from palyra.engine.session.reference_judge import ReferenceSender
from palyra.engine.session.reference_resolver import ReferenceResolver
from palyra.ports.references import ReferenceReaders
from tests.references.documents import PlainDocuments
from tests.support.engines import OWNER, Workshop
from tests.support.sites import Site

SESSION_ID = SessionId(StreamId("01JZ0000000000000000000001"))


def reference_workshop(root: Path, scripts: Sequence[Script] = (), opened: Sequence[Site] = ()) -> Workshop:
    shop = Workshop(root, scripts)
    guard = Guard(("127.0.0.1", site.port) for site in opened)
    shop.tools += [FsList(), HttpFetch(guard)]
    shop.journal_tools = lambda journal, artifacts: [
        SessionSearch(journal.search),
        MemorySearchTool(journal.memory_search),
    ]
    shop.references = ReferenceReaders(
        files=WorkspaceFiles(), changes=GitChanges(), pages=GuardedPages(guard, PlainDocuments(), 5.0)
    )
    return shop


def resolver_of(engine: Engine) -> ReferenceResolver:
    return engine.previews.resolver


def sender(shop: Workshop, principal: Principal = OWNER, **changes: object) -> ReferenceSender:
    fields = {"agent": shop.agents["main"], "session_id": SESSION_ID, "trust": Trust.OPERATOR, **changes}
    return ReferenceSender(principal=principal, **fields)  # type: ignore[arg-type]


async def resolve(engine: Engine, text: str, by: ReferenceSender) -> tuple[ResolvedReference, ...]:
    return await resolver_of(engine).resolve(parse_references(text), by)
