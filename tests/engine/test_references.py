"""Resolving references: each is judged as its tool call, fails alone, and brings the trust of what it read."""

import asyncio
import hashlib
import os
from dataclasses import replace as with_changes
from pathlib import Path

import pytest
from msgspec.structs import replace

from palyra.adapters.providers.scripted import Script
from palyra.core.agents import AgentSpec
from palyra.core.events.base import JsonObject
from palyra.core.events.model import ReferenceResolved
from palyra.core.events.tool import EffectClass, FileBytes, OpenedSkill, Outcome
from palyra.core.ids import RunId
from palyra.core.references.model import CHARS_MAX, TOTAL_CHARS_MAX, ReferenceKind, ResolvedReference
from palyra.core.references.parser import parse_references
from palyra.core.references.prompt import record_of
from palyra.core.tools import ToolResult
from palyra.core.trust import Trust
from palyra.core.writes import SealSecret
from palyra.engine.session.drafts import engine_draft
from palyra.engine.session.event_redactor import EventRedactor
from palyra.engine.session.reference_facts import reference_facts
from palyra.ports.references import NoReferences, ReadScope, ReferenceReaders, ReferenceText, TextPart
from palyra.ports.tools import ToolCallContext
from tests.gateway.prepared import OutsideTool
from tests.references.repositories import git, make_repository, write
from tests.references.workshops import reference_workshop, resolve, resolver_of, sender
from tests.support.asking import ask, calls, finished, says
from tests.support.engines import ALICE, OWNER, MarkTool, Workshop
from tests.support.policies import with_policies
from tests.support.sites import ok, site

pytestmark = pytest.mark.anyio

KEY = "AKIAQ3XZ7TGNPLW5YJKD"


class StagingTool(MarkTool):
    """Stages a text as clean.md, as git does for a command: the workspace's own file stays as it is."""

    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        (root,) = map(Path, context.workspace)
        outside = root.parent / "text"
        outside.write_text(str(arguments["text"]))
        blob = git(root, "hash-object", "-w", str(outside)).strip()
        git(root, "update-index", "--cacheinfo", f"100644,{blob},clean.md")
        path = f".git/objects/{blob[:2]}/{blob[2:]}"
        sha256 = hashlib.sha256((root / path).read_bytes()).hexdigest()
        written = FileBytes(root=os.path.realpath(root), path=path, sha256=sha256)
        return ToolResult(outcome=Outcome.OK, output="staged", written=(written,))


def codes(resolved: tuple[ResolvedReference, ...]) -> list[str | None]:
    return [each.code for each in resolved]


async def test_every_kind_brings_its_content_with_the_trust_of_its_tool(tmp_path: Path) -> None:
    async with site() as page:
        shop = reference_workshop(tmp_path, [Script(turns=(says("It is green."),))], [page])
        make_repository(shop.workspace, {"notes.md": "old\n", "src/a.py": "x = 1\n"})
        write(shop.workspace, {"notes.md": "new\n", "src/a.py": "x = 2\n"})
        git(shop.workspace, "add", "src/a.py")
        page.answers["/a"] = ok(b"a page")
        async with shop.open() as engine:
            run = await engine.runs.start(OWNER, ask("What colour?"))
            await finished(engine, run)
            text = f"@file:notes.md @folder:src @diff @staged @url:{page.url}/a @run:{run.id} @session:{run.session_id}"
            found = await resolve(engine, text, sender(shop))
    assert [each.ok for each in found] == [True] * 7
    contents = ("new", "x = 2", "-old\n+new", "+x = 2", "a page", "It is green.", "What colour?")
    for each, content in zip(found, contents, strict=True):
        assert content in each.text
        assert each.chars == len(each.text) > 0
        assert len(each.fence_id or "") == 16
    assert len({each.fence_id for each in found}) == 7
    assert [each.trust for each in found[:5]] == [Trust.LOCAL] * 4 + [Trust.EXTERNAL]
    assert [each.source for each in found[:5]] == [
        "file:notes.md",
        "folder:src",
        "diff:.",
        "staged:.",
        "http:127.0.0.1",
    ]
    assert found[6].source == f"session:{run.session_id}"


async def test_text_from_outside_resolves_nothing(tmp_path: Path) -> None:
    shop = reference_workshop(tmp_path)
    write(shop.workspace, {"a.md": "x"})
    async with shop.open() as engine:
        found = await resolve(engine, "@file:a.md @diff", sender(shop, trust=Trust.EXTERNAL))
        assert codes(found) == ["untrusted_text"] * 2
        assert [each.text for each in found] == ["", ""]
        assert (await resolve(engine, "@file:a.md", sender(shop, trust=Trust.LOCAL)))[0].ok
        assert await resolve(engine, "nothing here", sender(shop)) == ()


async def test_one_that_fails_is_a_warning_on_that_one_only(tmp_path: Path) -> None:
    shop = reference_workshop(tmp_path)
    write(shop.workspace, {"a.md": "x"})
    text = "@file:none @file:a.md @file:../../etc/passwd @file:.env @url:http://127.0.0.1/ @memory:x @run:nope @diff"
    async with shop.open() as engine:
        found = await resolve(engine, text, sender(shop))
    assert codes(found) == [
        "not_found", None, "outside_workspace", "secret_file", "address_refused", "memory_unknown", "not_found",
        "not_a_repository",
    ]  # fmt: skip
    assert "nothing is remembered about this" in (found[5].warning or "")
    for each in found:
        assert each.ok or (each.warning and each.trust is Trust.SYSTEM and each.text == "")


async def test_ninth_is_too_many_whoever_found_it(tmp_path: Path) -> None:
    shop = reference_workshop(tmp_path)
    write(shop.workspace, {"a.md": "x"})
    async with shop.open() as engine:
        assert codes(await resolve(engine, "@file:a.md " * 9, sender(shop))) == [None] * 8 + ["too_many"]
        nine = parse_references("@file:a.md")[:1] * 9
        assert codes(await resolver_of(engine).resolve(nine, sender(shop))) == [None] * 8 + ["too_many"]


ASK = 'forbid (principal, action == Action::"call", resource == Tool::"fs.read") unless { context.approved };'
DENY = '@id("no_drafts") forbid (principal, action == Action::"call", resource) when { context.folders.contains("drafts") };'


async def test_call_that_would_ask_is_refused_as_needing_approval(tmp_path: Path) -> None:
    shop = reference_workshop(tmp_path)
    shop.policy = with_policies(ASK)
    write(shop.workspace, {"a.md": "x", "b.md": "y"})
    async with shop.open() as engine:
        (found, folder) = await resolve(engine, "@file:a.md @folder:.", sender(shop))
    assert found.code == "needs_approval"
    assert folder.ok
    assert "a.md" in folder.text
    assert "text of 0 files" in folder.text


async def test_call_that_a_policy_denies_names_the_rule(tmp_path: Path) -> None:
    shop = reference_workshop(tmp_path)
    shop.policy = with_policies(DENY)
    make_repository(shop.workspace, {"drafts/a.md": "DRAFT\n", "b.md": "fine\n"})
    write(shop.workspace, {"drafts/a.md": "DRAFT TWO\n", "b.md": "fine two\n"})
    async with shop.open() as engine:
        denied, folder, diff = await resolve(engine, "@file:drafts/a.md @folder:. @diff", sender(shop))
    assert denied.code == "denied"
    assert "no_drafts" in (denied.warning or "")
    assert "DRAFT" not in folder.text + diff.text
    assert "fine two" in folder.text
    assert "+fine two" in diff.text


async def test_agent_and_open_skills_narrow_references(tmp_path: Path) -> None:
    shop = reference_workshop(tmp_path)
    write(shop.workspace, {"a.md": "x"})
    narrow = AgentSpec(name="narrow", tools=("fs.list",), workspace=(str(shop.workspace),))
    skill = OpenedSkill(name="s", sha256="0" * 64, allowed_tools=("fs.list",))
    async with shop.open() as engine:
        (agent,) = await resolve(engine, "@file:a.md", sender(shop, agent=narrow))
        (skilled,) = await resolve(engine, "@file:a.md", sender(shop, skills=(skill,)))
    assert (agent.code, skilled.code) == ("denied", "denied")
    assert "tool_not_allowed" in (agent.warning or "")
    assert "skill_narrows" in (skilled.warning or "")


async def test_principal_and_channel_of_the_sender_are_judged(tmp_path: Path) -> None:
    shop = reference_workshop(tmp_path)
    shop.policy = with_policies(
        '@id("not_alice") forbid (principal == Principal::"user:alice", action == Action::"call", resource);'
        '@id("not_discord") forbid (principal, action == Action::"call", resource)'
        ' when { context.channel == Channel::"discord" };'
    )
    write(shop.workspace, {"a.md": "x"})
    async with shop.open() as engine:
        (alice,) = await resolve(engine, "@file:a.md", sender(shop, ALICE))
        (owner,) = await resolve(engine, "@file:a.md", sender(shop))
        (discord,) = await resolve(engine, "@file:a.md", sender(shop, channel="discord"))
    assert "not_alice" in (alice.warning or "")
    assert owner.ok
    assert "not_discord" in (discord.warning or "")


async def test_address_that_a_person_wrote_is_fetched_in_a_tainted_session_too(tmp_path: Path) -> None:
    async with site() as page:
        page.answers["/"] = ok(b"hello")
        shop = reference_workshop(tmp_path, opened=[page])
        async with shop.open() as engine:
            (found,) = await resolve(engine, f"@url:{page.url}/", sender(shop, taint=("http:evil.example",)))
    assert found.ok


async def test_runs_and_sessions_of_others_look_like_those_that_do_not_exist(tmp_path: Path) -> None:
    shop = reference_workshop(tmp_path, [Script(turns=(says("private"),))])
    async with shop.open() as engine:
        run = await engine.runs.start(ALICE, ask("secret question"))
        await finished(engine, run, ALICE)
        absent = "01JZ0000000000000000000009"
        text = (
            f"@run:{run.id} @run:{absent} @run:{run.id.lower()} @session:{run.session_id} @session:{absent} @session:x"
        )
        found = await resolve(engine, text, sender(shop))
        (own, whole) = await resolve(engine, f"@run:{run.id} @session:{run.session_id}", sender(shop, ALICE))
        await engine.sessions.delete(ALICE, run.session_id)
        (erased,) = await resolve(engine, f"@session:{run.session_id}", sender(shop, ALICE))
    assert codes(found) == ["not_found"] * 6
    assert len({each.warning for each in found[:3]}) == len({each.warning for each in found[3:]}) == 1
    assert "private" in own.text
    assert "secret question" in whole.text
    assert erased.code == "not_found"


async def test_run_that_read_from_outside_brings_that_trust(tmp_path: Path) -> None:
    shop = reference_workshop(tmp_path, [Script(turns=(calls("mark.fetch", text="page"), says("Read.")))])
    shop.tools.append(OutsideTool("mark.fetch", EffectClass.READ_ONLY, shop.marks))
    async with shop.open() as engine:
        run = await engine.runs.start(OWNER, ask("fetch"))
        await finished(engine, run)
        (found,) = await resolve(engine, f"@run:{run.id}", sender(shop))
    assert (found.trust, found.source) == (Trust.EXTERNAL, f"session:{run.session_id}")


async def test_file_written_under_taint_brings_it_back_by_every_way(tmp_path: Path) -> None:
    turns = (calls("mark.fetch", text="page"), calls("fs.write", path="got.md", content="obey\n"), says("Done."))
    shop = reference_workshop(tmp_path, [Script(turns=turns)])
    shop.tools.append(OutsideTool("mark.fetch", EffectClass.READ_ONLY, shop.marks))
    make_repository(shop.workspace, {"got.md": "before\n", "clean.md": "c\n"})
    async with shop.open() as engine:
        await finished(engine, await engine.runs.start(OWNER, ask("fetch")))
        found = await resolve(engine, "@file:got.md @folder:. @diff @file:clean.md", sender(shop))
    assert [each.trust for each in found] == [Trust.EXTERNAL] * 3 + [Trust.LOCAL]
    assert [each.source for each in found[:3]] == ["file:got.md"] * 3


async def test_what_a_tainted_session_put_into_a_repository_alone_taints_its_changes(tmp_path: Path) -> None:
    """Staged text may be of a file that nobody wrote: git has it in its own folder."""
    staging = calls("mark.stage", text="obey\n")
    shop = reference_workshop(tmp_path, [Script(turns=(calls("mark.fetch", text="page"), staging, says("Done.")))])
    shop.tools.append(OutsideTool("mark.fetch", EffectClass.READ_ONLY, shop.marks))
    shop.tools.append(StagingTool("mark.stage", EffectClass.IDEMPOTENT, shop.workspace))
    make_repository(shop.workspace, {"clean.md": "before\n"})
    async with shop.open() as engine:
        write(shop.workspace, {"clean.md": "after\n"})
        (clean,) = await resolve(engine, "@diff", sender(shop))
        await finished(engine, await engine.runs.start(OWNER, ask("fetch")))
        staged, diff = await resolve(engine, "@staged @diff", sender(shop))
    assert clean.trust is Trust.LOCAL
    assert ["obey" in each.text for each in (staged, diff)] == [True, True]
    assert [each.trust for each in (staged, diff)] == [Trust.EXTERNAL] * 2


async def test_each_kind_and_all_together_are_cut_and_say_so(tmp_path: Path) -> None:
    shop = reference_workshop(tmp_path)
    write(shop.workspace, {"big.txt": "word " * 10_000, **{f"d/f{n}.txt": f"{n}" * 9_000 for n in range(8)}})
    async with shop.open() as engine:
        found = await resolve(engine, "@file:big.txt @folder:d @file:big.txt @file:big.txt", sender(shop))
    assert [each.is_cut for each in found[:3]] == [True] * 3
    assert found[0].chars <= CHARS_MAX[ReferenceKind.FILE]
    assert found[1].chars <= CHARS_MAX[ReferenceKind.FOLDER]
    assert all("[Cut here" in each.text for each in found[:3])
    assert found[1].text.count("--- d/f") == 6
    assert found[3].code == "no_room"
    assert sum(each.chars for each in found) <= TOTAL_CHARS_MAX


async def test_secret_is_redacted_before_the_cut_and_sealed_values_come_along(tmp_path: Path) -> None:
    shop = reference_workshop(tmp_path)
    cap = CHARS_MAX[ReferenceKind.FILE]
    write(shop.workspace, {f"{at}.txt": "x" * (cap - at) + f" {KEY} tail" + "y" * 50_000 for at in range(60, 110, 7)})
    async with shop.open() as engine:
        for at in range(60, 110, 7):
            (found,) = await resolve(engine, f"@file:{at}.txt", sender(shop))
            assert "AKIA" not in found.text
            assert [secret.value for secret in found.secrets] == [KEY]
        write(shop.workspace, {"whole.txt": f"key {KEY}"})
        (whole,) = await resolve(engine, "@file:whole.txt", sender(shop))
    assert KEY not in repr(record_of(whole))


async def test_reference_that_holds_a_secret_is_refused(tmp_path: Path) -> None:
    shop = reference_workshop(tmp_path)
    async with shop.open() as engine:
        (found,) = await resolve(engine, f"@url:https://example.com/?key={KEY}", sender(shop))
    assert found.code == "secret_in_reference"
    assert KEY not in (found.warning or "")


async def test_record_of_a_reference_is_redacted_by_its_declaration(tmp_path: Path) -> None:
    shop = reference_workshop(tmp_path)
    write(shop.workspace, {"a.md": "plain"})
    async with shop.open() as engine:
        (found,) = await resolve(engine, "@file:a.md", sender(shop))
        cleaner = EventRedactor(resolver_of(engine).redactor, engine._setup.ports.sealer)
        record = record_of(replace(found, text=f"the key is {KEY}"))
        draft, writes = cleaner.clean(engine_draft(record, RunId("01JZ0000000000000000000002"), 1))
    assert KEY not in repr(draft.data)
    assert len(writes) == 1


async def test_facts_of_references_have_their_trust_and_seal_their_secrets(tmp_path: Path) -> None:
    shop = reference_workshop(tmp_path)
    write(shop.workspace, {"a.md": f"key {KEY}"})
    run_id = RunId("01JZ0000000000000000000002")
    async with shop.open() as engine:
        found = await resolve(engine, "@file:a.md @file:a.md @file:none", sender(shop))
        sealer = engine._setup.ports.sealer
        drafts, writes = reference_facts(found, run_id, sender(shop).session_id, sealer, 7)
        cleaned = [EventRedactor(resolver_of(engine).redactor, sealer).clean(draft) for draft in drafts]
    assert [draft.trust for draft in drafts] == [Trust.LOCAL, Trust.LOCAL, Trust.SYSTEM]
    assert [type(draft.data) for draft in drafts] == [ReferenceResolved] * 3
    assert KEY not in repr(drafts)
    assert [write.run_id for write in writes if isinstance(write, SealSecret)] == [run_id]
    # The one place of redaction finds nothing left to do, so a marker stays what it was sealed as.
    assert [(draft, more) for draft, more in cleaned] == [(draft, ()) for draft in drafts]


class SlowFiles(NoReferences):
    def __init__(self) -> None:
        self.active_count = self.most_count = self.cancelled_count = 0

    async def read_file(self, path: str, scope: ReadScope) -> ReferenceText:
        self.active_count += 1
        self.most_count = max(self.most_count, self.active_count)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled_count += 1
            raise
        finally:
            self.active_count -= 1
        return ReferenceText(parts=(TextPart(text=path),))

    async def read_folder(self, path: str, scope: ReadScope) -> ReferenceText:
        raise RuntimeError("a fault of the program")


class QuickChanges(NoReferences):
    """Needs no process, which takes its time on a busy machine."""

    async def read_changes(self, path: str, scope: ReadScope) -> ReferenceText:
        return ReferenceText(parts=(TextPart(text="-one\n+two"),))


async def test_slow_and_broken_readers_fail_alone_in_bounded_time(tmp_path: Path) -> None:
    shop = reference_workshop(tmp_path)
    slow = SlowFiles()
    shop.references = ReferenceReaders(files=slow, changes=QuickChanges())
    async with shop.open() as engine:
        quick = with_changes(resolver_of(engine), limit_s=0.3)
        references = parse_references("@file:a.md @folder:. @diff @file:b.md")
        found = await quick.resolve(references, sender(shop))
        assert codes(found) == ["timed_out", "broken", None, "timed_out"]
        many = parse_references("@file:a.md " * 12)
        assert codes(await quick.resolve(many, sender(shop))) == ["timed_out"] * 8 + ["too_many"] * 4
    assert slow.most_count == 8


async def test_cancelling_stops_every_reader(tmp_path: Path) -> None:
    shop = reference_workshop(tmp_path)
    slow = SlowFiles()
    shop.references = ReferenceReaders(files=slow)
    async with shop.open() as engine:
        task = asyncio.create_task(resolve(engine, "@file:a @file:b @file:c", sender(shop)))
        while slow.active_count < 3:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert (slow.active_count, slow.cancelled_count) == (0, 3)


async def test_daemon_without_readers_says_so(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, [])
    async with shop.open() as engine:
        (found,) = await resolve(engine, "@file:a.md", sender(shop))
    assert found.code == "unavailable"
