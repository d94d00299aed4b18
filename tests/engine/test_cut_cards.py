"""Cards that are too long: all that asks is named, and nothing is allowed that was not shown whole."""

from pathlib import Path

import pytest

from palyra.core.errors import Conflict
from palyra.core.events.tool import Decision, Outcome
from palyra.engine.api.requests import ApprovalAnswer
from tests.engine.test_drafts import outcomes, question, shop
from tests.support.asking import ask, finished
from tests.support.engines import ALICE, OWNER

pytestmark = pytest.mark.anyio

YES, NO = ApprovalAnswer(decision=Decision.ALLOW), ApprovalAnswer(decision=Decision.DENY)
CROWD = (
    'mkdir .vscode; for n in $(seq 401); do echo \'{"a": "some words that fill the card"}\' > .vscode/a$n.json; done; '
    "echo evil > .zshenv"
)
LONG_HOOK = (
    "mkdir -p .git/hooks; (for n in $(seq 600); do echo \"# a comment that says nothing at all $n\"; done; echo 'touch pwned') "
    "> .git/hooks/pre-commit"
)


async def test_a_crowd_of_files_hides_none(tmp_path: Path) -> None:
    async with shop(tmp_path, CROWD).open() as engine:
        await engine.runs.start(OWNER, ask())
        card = await question(engine)
        assert card.preview is not None
        told = card.preview.split("\n\n")[1].splitlines()
        assert told[1] == "file: .zshenv"
        assert told[2].startswith("401 files in .vscode/: ")
        assert "+evil" in card.preview
        assert card.touches.paths[0] == ".zshenv"
        assert card.is_cut


async def test_the_last_line_of_a_long_hook_is_shown_before_it_is_allowed(tmp_path: Path) -> None:
    workshop = shop(tmp_path, LONG_HOOK)
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        card = await question(engine)
        assert card.is_cut
        assert "+touch pwned" not in (card.preview or "")
        with pytest.raises(Conflict, match="not_shown"):
            await engine.approvals.answer(OWNER, card.id, YES)
        page = await engine.approvals.full(OWNER, card.id, 0)
        assert "\n+touch pwned\n" in page.text
        assert page.next_offset is None
        await engine.approvals.answer(OWNER, card.id, YES)
        events = await finished(engine, record)
    assert outcomes(events)[0].outcome is Outcome.OK
    assert (workshop.workspace / ".git/hooks/pre-commit").read_text().endswith("touch pwned\n")


async def test_what_one_principal_read_another_has_not(tmp_path: Path) -> None:
    async with shop(tmp_path, LONG_HOOK).open() as engine:
        await engine.runs.start(OWNER, ask())
        card = await question(engine)
        await engine.approvals.full(OWNER, card.id, 0, by=ALICE)
        with pytest.raises(Conflict, match="not_shown"):
            await engine.approvals.answer(OWNER, card.id, YES)
        await engine.approvals.answer(OWNER, card.id, YES, by=ALICE)


async def test_a_cut_card_can_be_denied_unread_and_is_unread_again_after_a_restart(tmp_path: Path) -> None:
    workshop = shop(tmp_path, LONG_HOOK)
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        await engine.approvals.full(OWNER, (await question(engine)).id, 0)
    async with workshop.open() as engine:
        card = await question(engine)
        with pytest.raises(Conflict, match="not_shown"):
            await engine.approvals.answer(OWNER, card.id, YES)
        await engine.approvals.answer(OWNER, card.id, NO)
        events = await finished(engine, record)
    assert outcomes(events)[0].outcome is Outcome.DENIED


async def test_a_long_text_counts_as_read_with_its_last_page(tmp_path: Path) -> None:
    lines = LONG_HOOK.replace("600", "9000")
    async with shop(tmp_path, lines).open() as engine:
        await engine.runs.start(OWNER, ask())
        card = await question(engine)
        first = await engine.approvals.full(OWNER, card.id, 0)
        assert first.next_offset is not None
        await engine.approvals.full(OWNER, card.id, first.total_chars - 1)  # The last one alone is not all.
        with pytest.raises(Conflict, match="not_shown"):
            await engine.approvals.answer(OWNER, card.id, YES)
        text = first.text
        at: int | None = first.next_offset
        while at is not None:
            page = await engine.approvals.full(OWNER, card.id, at)
            text, at = text + page.text, page.next_offset
        assert "\n+touch pwned\n" in text
        await engine.approvals.answer(OWNER, card.id, YES)


async def test_a_secret_is_a_marker_in_the_whole_difference_too(tmp_path: Path) -> None:
    key = "sk-ant-" + "api03-" + "Zq8" * 30
    async with shop(
        tmp_path, f"{LONG_HOOK}; echo 'export ANTHROPIC_API_KEY={key}' >> .git/hooks/pre-commit"
    ).open() as engine:
        await engine.runs.start(OWNER, ask())
        card = await question(engine)
        assert key not in (await engine.approvals.full(OWNER, card.id, 0)).text


@pytest.mark.parametrize(
    "command", ["echo '{}' > .envrc", "rm -rf old", "mkdir .vscode; echo '{}' > .vscode/tasks.json"]
)
async def test_a_card_that_fits_is_answered_as_before(tmp_path: Path, command: str) -> None:
    workshop = shop(tmp_path, command)
    for number in range(3000 if command.startswith("rm") else 0):
        folder = workshop.workspace / "old" / str(number % 300)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.txt").write_text("content\n" * 20)
    (workshop.workspace / "stays").write_text("x")
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        card = await question(engine)
        assert not card.is_cut
        await engine.approvals.answer(OWNER, card.id, YES)
        assert outcomes(await finished(engine, record))[0].outcome is Outcome.OK


async def test_emptying_many_files_asks_as_deleting_them_does(tmp_path: Path) -> None:
    workshop = shop(
        tmp_path, "for f in *.txt; do : > $f; done", "for f in *.log; do head -c 100 $f > t; cat t > $f; done; rm t"
    )
    for number in range(20):
        (workshop.workspace / f"{number}.txt").write_text("words")
        (workshop.workspace / f"{number}.log").write_text("words\n" * 300)
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        for _ in range(2):
            card = await question(engine)
            assert card.rule == "deletes_many"
            assert "20 files" in card.reason
            await engine.approvals.answer(OWNER, card.id, NO)
        await finished(engine, record)
    assert (workshop.workspace / "1.txt").read_text() == "words"
