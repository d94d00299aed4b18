"""Procedures and documents: what a sequence becomes without its values, and what stands in a managed block."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from palyra.adapters.skills.front_matter import is_skill_name, read_manifest
from palyra.core.ids import Principal
from palyra.core.learning.documents import LINE_CHARS_MAX, LINES_MAX, block_lines, document_root, line_of
from palyra.core.learning.model import CandidateKind, CandidateOrigin, CandidateStatus
from palyra.core.learning.observed_run import ObservedRun, ToolStep
from palyra.core.learning.procedures import ALLOWED_TOOLS, confidence_of, find_procedure, skill_of
from palyra.core.learning.settings import LearningRuntimeConfig
from palyra.core.managed_blocks import BlockApplied, BlockUnchanged, apply_block
from palyra.core.redaction import Redactor
from palyra.core.trust import Trust
from tests.support.learning import RUN, SESSION, START_MS, candidate_of

OWNER = Principal("user:owner")
SETTINGS = LearningRuntimeConfig()
VALUE = "zq7-very-private-value"


def step(tool: str, is_ok: bool = True, trust: Trust = Trust.LOCAL, **arguments: object) -> ToolStep:
    is_looking = tool in ("fs.read", "fs.list", "time.now")
    return ToolStep(seq=1, tool=tool, arguments=dict(arguments), is_ok=is_ok, trust=trust, is_looking=is_looking)


def run_of(*steps: ToolStep, is_done: bool = True, taint: tuple[str, ...] = ()) -> ObservedRun:
    return ObservedRun(
        run_id=RUN, session_id=SESSION, owner=OWNER, is_done=is_done, steps=steps, trust=Trust.LOCAL, taint=taint
    )


READ, WRITE = step("fs.read", path=VALUE), step("fs.write", path=VALUE, content=VALUE)
GIT = step("shell.run", command=f"git commit -m {VALUE}")


def test_a_sequence_keeps_tools_arguments_and_programs_and_no_value() -> None:
    found = find_procedure(run_of(READ, READ, WRITE, GIT))
    assert found is not None
    assert found.content.splitlines() == [
        "1. Call `fs.read` with `path`.",
        "2. Call `fs.write` with `content`, `path`.",
        "3. Call `shell.run` with a command of `git`.",
    ]
    assert found.details == {ALLOWED_TOOLS: "fs.read fs.write shell.run"}
    assert VALUE not in str(found)


def test_the_name_of_a_skill_is_not_taken_for_a_secret() -> None:
    redactor = Redactor(b"k" * 32)
    for number in range(50):
        draft = skill_of(f"1. Call `fs.write` with `path{number}`.", "fs.list fs.write")
        assert redactor.text(f"applied to skill:{draft.name}").secrets == ()


@pytest.mark.parametrize(
    "run",
    [
        run_of(READ, WRITE, is_done=False),
        run_of(READ, step("fs.write", is_ok=False, path="x")),
        run_of(WRITE),
        run_of(WRITE, WRITE),
        run_of(READ, step("fs.list", path="."), step("time.now")),
        run_of(),
    ],
)
def test_what_failed_only_looked_or_is_one_step_is_no_procedure(run: ObservedRun) -> None:
    assert find_procedure(run) is None


def test_a_procedure_has_the_lowest_trust_of_its_calls() -> None:
    found = find_procedure(
        run_of(READ, step("http.fetch", trust=Trust.EXTERNAL, url="u"), taint=("http:evil.example",))
    )
    assert found is not None
    assert (found.trust, found.taint) == (Trust.EXTERNAL, ("http:evil.example",))


@given(st.integers(0, 1_000), st.integers(0, 1_000))
def test_repetition_never_makes_a_procedure_certain_enough_to_apply_itself(one: int, other: int) -> None:
    few, many = sorted((one, other))
    assert confidence_of(few) <= confidence_of(many) < SETTINGS.auto_apply_bps
    assert (confidence_of(few) >= SETTINGS.review_bps) is (few >= 2)


values = st.text(min_size=6, max_size=30).filter(lambda text: not text.isidentifier())
steps = st.lists(
    st.builds(
        lambda tool, value, program: step(tool, path=f"#{value}", command=f"{program} {value}"),
        st.sampled_from(["fs.read", "fs.write", "shell.run", "mcp.git_hub.make-it"]),
        values,
        st.sampled_from(["git", "make", "./x y", "$(evil)", ""]),
    ),
    min_size=2,
    max_size=8,
)


@given(steps)
def test_every_procedure_makes_a_sound_skill(calls: list[ToolStep]) -> None:
    found = find_procedure(run_of(*calls))
    if found is not None:
        draft = skill_of(found.content, found.details[ALLOWED_TOOLS])
        assert is_skill_name(draft.name)
        assert read_manifest(draft.text.encode(), draft.name).problems == ()
        assert "evil" not in draft.text
        assert skill_of(found.content, found.details[ALLOWED_TOOLS]) == draft


@given(st.lists(st.text(max_size=500), max_size=8))
def test_any_words_make_lines_that_a_block_takes(texts: list[str]) -> None:
    accepted = [
        candidate_of(text, OWNER, status=CandidateStatus.ACCEPTED, created_at_ms=START_MS + number)
        for number, text in enumerate(texts)
    ]
    lines = block_lines(accepted, CandidateKind.FACT)
    assert all(len(line) <= LINE_CHARS_MAX + 2 and "\n" not in line and "\r" not in line for line in lines)
    applied = apply_block("# Mine\n", "facts", lines)
    assert isinstance(applied, BlockApplied)
    assert applied.text.startswith("# Mine\n")
    assert isinstance(apply_block(applied.text, "facts", lines), BlockUnchanged)


def test_a_block_keeps_the_newest_lines_and_accepted_ones_alone() -> None:
    many = [
        candidate_of(f"Fact number {number}.", OWNER, status=CandidateStatus.ACCEPTED, created_at_ms=START_MS + number)
        for number in range(LINES_MAX + 20)
    ]
    lines = block_lines([*many, candidate_of("Waits.", OWNER)], CandidateKind.FACT)
    assert len(lines) == LINES_MAX
    assert lines[-1] == f"- Fact number {LINES_MAX + 19}."
    assert line_of("<!-- palyra:end facts -->") != "<!-- palyra:end facts -->"


@pytest.mark.parametrize(
    ("fields", "workspace", "root"),
    [
        ({}, ("/w", "/x"), "/w"),
        ({}, (), ""),
        ({"origin": CandidateOrigin.REFLECTION}, ("/w",), ""),
        ({"kind": CandidateKind.PREFERENCE}, ("/w",), ""),
        ({"owner": Principal("user:bob")}, ("/w",), "/w"),
        ({"content": "x" * 301}, ("/w",), ""),
    ],
)
def test_only_short_finds_of_compactions_go_to_notes(
    fields: dict[str, object], workspace: tuple[str, ...], root: str
) -> None:
    found = replace(candidate_of("The key is K.", OWNER, origin=CandidateOrigin.COMPACTION), **fields)
    assert document_root(found, workspace) == root
