"""artifact.read: pages that join to the whole, for its owner alone, with the trust it was kept with."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palyra.adapters.artifacts.files import FileArtifacts
from palyra.adapters.tools.artifact_read import PAGE_BYTES_MAX, PAGE_BYTES_MIN, ArtifactRead
from palyra.core.events.tool import Outcome
from palyra.core.ids import ArtifactId, Principal, StreamId
from palyra.core.redaction.markers import MARKER
from palyra.core.tools import OUTPUT_INLINE_BYTES_MAX, ToolResult
from palyra.core.trust import Trust
from palyra.core.writes import LinkArtifact
from palyra.ports.state import NoState
from tests.support.tool_calls import code_of, execute

pytestmark = pytest.mark.anyio

MARK = "‹secret:api_key:0123456789ab›"


class Links(NoState):
    """Links of user:alice, who is the caller of these tests."""

    def __init__(self) -> None:
        self.links: dict[str, LinkArtifact] = {}

    async def artifact_for(self, artifact_id: ArtifactId, principal: Principal) -> LinkArtifact | None:
        return self.links.get(artifact_id) if principal == "user:alice" else None


class Shelf:
    def __init__(self, root: Path) -> None:
        self.artifacts, self.links = FileArtifacts(root), Links()
        self.tool = ArtifactRead(self.artifacts, self.links)

    async def put(self, body: bytes, trust: Trust = Trust.LOCAL, source: str | None = None) -> ArtifactId:
        artifact_id = await self.artifacts.put(body)
        link = LinkArtifact(artifact_id, StreamId("s"), len(body), "text/plain", 1, trust, source)
        self.links.links[artifact_id] = link
        return artifact_id

    async def read(self, artifact_id: str, **arguments: object) -> ToolResult:
        return await execute(self.tool, {"id": artifact_id, **arguments})

    async def read_all(self, artifact_id: str, limit: int) -> str:
        """Following what the last line of each page says."""
        whole, offset = "", 0
        while True:
            output = (await self.read(artifact_id, offset=offset, limit=limit)).output
            page, has_note, note = output.rpartition("\n[Bytes ")
            if not has_note:
                return whole + output
            whole += page
            if "; read on with offset " not in note:
                return whole
            before, offset = offset, int(note.rpartition("offset ")[2].rstrip(".]"))
            assert offset > before


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "artifacts")


async def test_a_short_text_comes_back_as_it_is(shelf: Shelf) -> None:
    result = await shelf.read(await shelf.put(b"hello\nthere\n"))
    assert (result.outcome, result.output) == (Outcome.OK, "hello\nthere\n")


async def test_a_page_ends_with_a_line_says_how_to_read_on_and_does_not_spill(shelf: Shelf) -> None:
    artifact_id = await shelf.put("".join(f"line {number}\n" for number in range(3000)).encode())
    output = (await shelf.read(artifact_id)).output
    page, _, note = output.rpartition("\n[")
    assert page.endswith("\n")
    assert note == f"Bytes 0 to {len(page)} of 28890; read on with offset {len(page)}.]"
    assert PAGE_BYTES_MAX // 2 < len(output) <= OUTPUT_INLINE_BYTES_MAX
    assert (await shelf.read(artifact_id, offset=len(page))).output.startswith("line ")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    parts=st.lists(st.sampled_from(["a ", "\n", "ž", "🦊", "日本語", MARK, "x" * 60]), min_size=1, max_size=120),
    limit=st.integers(64, 400),
)
async def test_pages_join_to_the_whole_and_break_no_marker(shelf: Shelf, parts: list[str], limit: int) -> None:
    text = "".join(parts)
    artifact_id = await shelf.put(text.encode())
    assert await shelf.read_all(artifact_id, limit) == text
    first = (await shelf.read(artifact_id, limit=limit)).output
    assert len(MARKER.findall(first)) == first.count("‹") == first.count("›")


async def test_the_smallest_page_still_moves_on(shelf: Shelf) -> None:
    text = f"🦊ž{MARK}日" * 9
    assert await shelf.read_all(await shelf.put(text.encode()), PAGE_BYTES_MIN) == text
    assert code_of(await shelf.read("e" * 64, limit=PAGE_BYTES_MIN - 1)) == "arguments_invalid"


async def test_an_offset_inside_of_a_character_means_the_next_one(shelf: Shelf) -> None:
    artifact_id = await shelf.put("🦊🐻 end".encode())
    assert [(await shelf.read(artifact_id, offset=offset)).output[0] for offset in range(5)] == ["🦊", *"🐻🐻🐻🐻"]


async def test_what_is_no_text_is_described_and_not_shown(shelf: Shelf) -> None:
    for body in (b"\x89PNG\x00\x00rest", b"caf\xe9 in another encoding, and more"):
        output = (await shelf.read(await shelf.put(body))).output
        assert output == f"[text/plain, {len(body)} bytes: this is no UTF-8 text, so it is not shown.]"


async def test_an_empty_artifact_and_an_offset_beyond_the_end_are_told(shelf: Shelf) -> None:
    assert (await shelf.read(await shelf.put(b""))).output == "[The artifact is empty.]"
    artifact_id = await shelf.put(b"12345")
    assert code_of(await shelf.read(artifact_id, offset=5)) == "offset_past_end"
    assert (await shelf.read(artifact_id, offset=4)).output.startswith("5\n[Bytes 4 to 5 of 5: the end.]")


async def test_trust_and_source_are_those_it_was_kept_with(shelf: Shelf) -> None:
    outside = await shelf.read(await shelf.put(b"from outside", Trust.EXTERNAL, "http:evil.example"))
    assert (outside.trust, outside.source) == (Trust.EXTERNAL, "http:evil.example")
    nameless = await shelf.read(nameless_id := await shelf.put(b"from before", Trust.EXTERNAL))
    assert (nameless.trust, nameless.source) == (Trust.EXTERNAL, f"artifact:{nameless_id[:16]}")
    local = await shelf.read(await shelf.put(b"ours"))
    assert (local.trust, local.source) == (Trust.LOCAL, None)


async def test_what_is_anothers_or_erased_is_unknown_and_brings_nothing_in(shelf: Shelf) -> None:
    artifact_id = await shelf.put(b"kept")
    await shelf.artifacts.remove(artifact_id)
    for asked in (artifact_id, "d" * 64, "../../etc/passwd"):
        refused = await shelf.read(asked)
        assert (code_of(refused), refused.trust) == ("artifact_unknown", Trust.SYSTEM)
