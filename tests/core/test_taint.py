"""Taint: what is met stays met, until a reset or a person's word; folding on is folding in one go (L8)."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from palyra.core.errors import Corrupt
from palyra.core.events import DATA_TYPES, Data, Draft, ErasedData, Event
from palyra.core.events.model import Finish, MemoryRecalled, ModelOutput, RecalledItem, ReferenceResolved
from palyra.core.events.run import MessageUser, RunAccepted
from palyra.core.events.session import (
    Parent,
    SessionBranched,
    SessionReset,
    SourceDistrusted,
    SourceTrusted,
    TaintSource,
)
from palyra.core.events.tool import EffectClass, FileBytes, Outcome, ParallelClass, ToolFinished, ToolJudged, Verdict
from palyra.core.ids import CallId, EffectId, Principal, SessionId, StreamId
from palyra.core.projections.project import RowKey, keys_of, project
from palyra.core.projections.rows import FileRow, Row, TaintRow
from palyra.core.run.loop import make_limits
from palyra.core.taint import (
    ACT_TYPES,
    LABEL_LENGTH_MAX,
    MANY,
    MEETING_TYPES,
    SOURCES_MAX,
    UNNAMED,
    Taint,
    decode_taint,
    encode_taint,
    find_source,
    fold_drafts,
    fold_taint,
    label,
    labels,
    source_of,
    touches_taint,
    trust_of_taint,
)
from palyra.core.tools import CallNature, Runtime, ToolSpec
from palyra.core.trust import Trust, is_tainting, lowest

ALICE = Principal("user:alice")
SESSION = StreamId("01JZ0000000000000000SESS01")
FILE = FileBytes(root="/w", path="notes.md", sha256="ab" * 32)


def draft(data: Data, trust: Trust = Trust.SYSTEM, actor: Principal = ALICE) -> Draft:
    return Draft(data=data, actor=actor, trust=trust, at_ms=1)


def result(source: str | None, trust: Trust = Trust.EXTERNAL, written: tuple[FileBytes, ...] = ()) -> Draft:
    finished = ToolFinished(
        call_id=CallId("c1"),
        effect_id=EffectId("e1"),
        outcome=Outcome.OK,
        error=None,
        attestation=None,
        output="x",
        source=source,
        tool="http.fetch" if source else None,
        written=written,
    )
    return draft(finished, trust)


def output(trust: Trust) -> Draft:
    said = ModelOutput(turn=1, text="in short", tool_calls=(), finish=Finish.STOP, usage=None)
    return draft(said, trust)


def event(said: Draft, seq: int = 1, data: Data | ErasedData | None = None) -> Event:
    return Event(
        seq=seq,
        position=seq,
        stream=SESSION,
        run_id=said.run_id,
        type=said.data.TYPE,
        at_ms=said.at_ms,
        actor=said.actor,
        trust=said.trust,
        data=data if data is not None else said.data,
        hash="",
        salt=None,
        digest="",
    )


def fold_all(*drafts: Draft) -> Taint:
    return fold_drafts((), drafts, 0)


def branched(taint: Taint) -> Draft:
    parent = Parent(session_id=SessionId(SESSION), seq=1, hash="")
    return draft(SessionBranched(owner=ALICE, agent="main", parent=parent, taint=taint))


def test_source_is_remembered_with_its_first_call() -> None:
    taint = fold_all(result("http:a"), result("http:b"), result("http:a"))
    first = TaintSource(source="http:a", since_seq=1, call_id=CallId("c1"), tool="http.fetch")
    assert taint == (first, replace(first, source="http:b", since_seq=2))
    assert labels(taint) == ("http:a", "http:b")


@pytest.mark.parametrize("trust", [Trust.SYSTEM, Trust.OPERATOR, Trust.LOCAL])
def test_what_is_not_below_local_is_no_source(trust: Trust) -> None:
    assert fold_all(result("file:x", trust), draft(MessageUser(text="hello"), trust)) == ()


def test_what_a_model_says_adds_no_source_and_takes_none() -> None:
    taint = fold_all(result("http:a"), output(Trust.EXTERNAL))
    assert labels(taint) == ("http:a",)
    assert fold_all(output(Trust.EXTERNAL)) == ()


def test_result_without_a_source_still_taints() -> None:
    assert labels(fold_all(result(None))) == (UNNAMED,)


def test_words_of_a_stranger_taint_by_their_channel() -> None:
    accepted = RunAccepted(agent="main", origin="discord", can_ask=True, limits=make_limits())
    said = draft(MessageUser(text="hi"), Trust.EXTERNAL, Principal("channel:discord:1234"))
    assert labels(fold_all(draft(accepted, Trust.EXTERNAL), said)) == ("channel:discord",)
    assert labels(fold_all(draft(MessageUser(text="hi"), Trust.EXTERNAL))) == ("channel:user:alice",)


def test_recalled_and_referenced_content_taints_by_its_own_trust() -> None:
    recalled = MemoryRecalled(turn=1, items=(RecalledItem(memory_id="m", score_bps=1, trust=Trust.EXTERNAL),))
    referenced = ReferenceResolved(raw="@x", kind="url", ok=True, trust=Trust.EXTERNAL)
    assert labels(fold_all(draft(recalled), draft(referenced))) == ("memory:recall", "reference:url")
    named = ReferenceResolved(raw="@x", kind="url", ok=True, trust=Trust.EXTERNAL, source="http:example.com")
    local = ReferenceResolved(raw="@y", kind="file", ok=True, trust=Trust.LOCAL, source="file:notes.md")
    assert labels(fold_all(draft(named), draft(local))) == ("http:example.com",)


def test_a_persons_word_lifts_one_source_until_it_is_taken_back() -> None:
    met = (result("http:a"), result("http:b"))
    trusted = (*met, draft(SourceTrusted(source="http:a")))
    assert labels(fold_all(*trusted)) == ("http:b",)
    assert labels(fold_all(*trusted, result("http:a"))) == ("http:b",)
    assert labels(fold_all(*trusted, draft(SourceDistrusted(source="http:a")))) == ("http:a", "http:b")


def test_reset_ends_taint_and_trust_alike() -> None:
    before = (result("http:a"), draft(SourceTrusted(source="http:a")), draft(SessionReset()))
    assert fold_all(*before) == ()
    assert labels(fold_all(*before, result("http:a"))) == ("http:a",)


def test_branch_inherits_what_its_parent_had() -> None:
    parent = fold_all(result("http:a"), result("http:b"), draft(SourceTrusted(source="http:b")))
    branch = fold_all(branched(parent))
    assert labels(branch) == ("http:a",)
    assert {each.since_seq for each in branch} == {1}


def test_sources_are_bounded_and_nobody_vouches_for_many() -> None:
    flood = [result(f"http:{number}") for number in range(SOURCES_MAX + 10)]
    taint = fold_all(*flood)
    assert len(taint) == SOURCES_MAX + 1
    assert find_source(taint, MANY) is not None
    words = [draft(SourceTrusted(source=each.source)) for each in taint]
    assert labels(fold_all(*flood, *words)) == (MANY,)


def test_erasing_makes_nothing_more_trusted() -> None:
    erased = ErasedData(erased="delete")
    assert labels(fold_taint((), event(result("http:a"), data=erased), 1)) == (UNNAMED,)
    trusted = fold_all(result("http:a"), draft(SourceTrusted(source="http:a")))
    assert labels(fold_taint(trusted, event(draft(SourceDistrusted(source="http:a")), data=erased), 3)) == ("http:a",)
    assert fold_taint(trusted, event(draft(SessionReset()), data=erased), 3) == ()
    met = fold_all(result("http:a"))
    assert fold_taint(met, event(draft(SourceTrusted(source="http:a")), data=erased), 2) == met


def test_every_event_type_is_known_as_bringing_content_in_or_not() -> None:
    """A new type is put into one of these by whoever adds it."""
    acts = ACT_TYPES | {"session.labelled", "session.checkpointed", "pin.added", "pin.removed", "grant.revoked"}
    acts |= {"learning.applied", "document.changed", "changes.undoing", "changes.undone"}
    acts |= {"changes.keeping", "changes.kept"}
    acts |= {"memory.stored", "memory.superseded", "memory.forgotten"}
    nouns = ("checkpoint", "admin", "erased", "approval", "guard", "routine", "incident", "candidate", "pairing")
    ours = {name for name in DATA_TYPES if name.split(".")[0] in nouns}
    made = ("model", "route", "usage", "context", "objectives", "answer")
    derived = {name for name in DATA_TYPES if name.split(".")[0] in made}
    lifecycle = {name for name in DATA_TYPES if name.startswith(("run.", "cancel."))} - MEETING_TYPES
    tools = {"tool.proposed", "tool.judged", "tool.started", "tool.held", "tool.uncertain"}
    # What a command printed in its draft reaches a model with its outcome, and not before.
    tools |= {"tool.drafted", "draft.judged", "draft.applying", "draft.conflicted"}
    said = {"message.assistant", "session.compacted"}
    assert set(DATA_TYPES) == MEETING_TYPES | acts | ours | derived | lifecycle | tools | said


SPEC = ToolSpec(name="http.fetch", description="", input_schema={})
NATURE = CallNature(
    effect_class=EffectClass.READ_ONLY, parallel_class=ParallelClass.IDEMPOTENT_NETWORK, host="Evil.Example"
)


@pytest.mark.parametrize(
    ("spec", "nature", "source"),
    [
        (SPEC, NATURE, "http:evil.example"),
        (SPEC, None, "tool:http.fetch"),
        (replace(SPEC, name="mcp.github.search", runtime=Runtime.MCP), NATURE, "mcp:github"),
        (replace(SPEC, name="wasm.parser.run", runtime=Runtime.WASM), None, "wasm:parser"),
    ],
)
def test_sources_are_named_by_what_the_daemon_knows(spec: ToolSpec, nature: CallNature | None, source: str) -> None:
    assert source_of(spec, nature) == source


@given(st.text(), st.text())
def test_labels_are_short_single_lines_and_differ_as_their_names_do(one: str, other: str) -> None:
    made = label("file", one)
    assert len(made) <= LABEL_LENGTH_MAX
    assert made.isprintable()
    assert not set(made) & set("<>[]")
    assert (label("file", other) == made) == (one == other)


def test_damaged_row_is_corrupt() -> None:
    with pytest.raises(Corrupt, match="row_unreadable"):
        decode_taint('[{"source": 1}]')


sources = st.sampled_from(["http:a", "http:b", "mcp:c", "file:d", None])
facts = st.one_of(
    st.builds(result, sources, st.sampled_from(list(Trust))),
    st.builds(output, st.sampled_from(list(Trust))),
    st.builds(lambda trust: draft(MessageUser(text="x"), trust), st.sampled_from(list(Trust))),
    st.builds(lambda source: draft(SourceTrusted(source=source)), st.sampled_from(["http:a", "file:d", MANY, UNNAMED])),
    st.builds(lambda source: draft(SourceDistrusted(source=source)), st.sampled_from(["http:a", "file:d"])),
    st.just(draft(SessionReset())),
)


@given(st.lists(facts, max_size=30), st.lists(st.integers(min_value=0, max_value=30), max_size=3))
def test_folding_on_after_any_restart_is_folding_in_one_go(story: list[Draft], restarts: list[int]) -> None:
    whole = fold_all(*story)
    cuts = sorted({0, len(story), *(cut for cut in restarts if cut < len(story))})
    taint: Taint = ()
    for first, last in pairwise(cuts):
        taint = fold_drafts(decode_taint(encode_taint(taint)), story[first:last], first)
    assert taint == whole


@given(st.lists(facts, max_size=30))
def test_taint_falls_by_a_reset_or_a_persons_word_alone(story: list[Draft]) -> None:
    taint: Taint = ()
    for seq, said in enumerate(story, start=1):
        before, taint = taint, fold_taint(taint, said, seq)
        if not isinstance(said.data, SessionReset):
            allowed = {said.data.source} if isinstance(said.data, SourceTrusted) else set()
            assert set(labels(before)) - set(labels(taint)) <= allowed
            assert isinstance(said.data, SourceTrusted) or is_tainting(trust_of_taint(taint)) >= is_tainting(
                trust_of_taint(before)
            )
        if is_tainting(said.trust) and said.data.TYPE in MEETING_TYPES:
            assert taint


@given(st.lists(facts, max_size=20), st.lists(facts, max_size=10), st.integers(min_value=0, max_value=20))
def test_branch_is_never_more_trusted_than_its_parent_was_there(
    story: list[Draft], after: list[Draft], at_seq: int
) -> None:
    parent = fold_all(*story[:at_seq])
    branch = fold_all(branched(parent))
    assert labels(branch) == labels(parent)
    unlifted = [said for said in after if not isinstance(said.data, SessionReset | SourceTrusted)]
    assert set(labels(parent)) <= set(labels(fold_drafts(branch, unlifted, 1)))


@given(st.lists(st.sampled_from(list(Trust)), max_size=8))
def test_what_is_derived_is_trusted_no_more_than_its_inputs(levels: list[Trust]) -> None:
    derived = lowest(levels)
    assert lowest((derived, *levels)) is derived
    assert any(is_tainting(level) for level in levels) == is_tainting(derived)


class Tables:
    """The projection tables of one tape, filled event by event as a store does."""

    def __init__(self) -> None:
        self.rows: dict[RowKey, Row] = {}
        self.seq = 0

    def add(self, said: Draft) -> None:
        self.seq += 1
        recorded = event(said, self.seq)
        keys = keys_of(recorded)
        for row in project(recorded, {key: self.rows[key] for key in keys if key in self.rows}):
            assert RowKey(type(row), row.id) in keys
            self.rows[RowKey(type(row), row.id)] = row

    def files(self) -> list[FileRow]:
        return [row for row in self.rows.values() if isinstance(row, FileRow)]

    def taint(self) -> Taint:
        row = self.rows.get(RowKey(TaintRow, SESSION))
        return decode_taint(row.sources) if isinstance(row, TaintRow) else ()


# Without resets: those change the session's own row, which these tables do not have.
@given(st.lists(facts.filter(lambda said: not isinstance(said.data, SessionReset)), max_size=30))
def test_row_of_a_session_is_its_fold(story: list[Draft]) -> None:
    tables = Tables()
    for said in story:
        tables.add(said)
    assert tables.taint() == fold_all(*story)


@given(facts)
def test_what_changes_the_taint_is_announced(said: Draft) -> None:
    taint = fold_all(result("http:a"), result("file:d"), draft(SourceTrusted(source="file:d")))
    if fold_taint(taint, said, 4) != taint:
        assert touches_taint(event(said, 4))


def judged(verdict: Verdict = Verdict.ALLOW, taint: tuple[str, ...] = ("http:a",)) -> Draft:
    return draft(ToolJudged(call_id=CallId("c1"), verdict=verdict, rule="r", reason="", taint=taint, writes=(FILE,)))


def test_bytes_to_be_written_under_taint_are_known_before_they_are_there() -> None:
    tables = Tables()
    tables.add(judged())
    (row,) = tables.files()
    assert (row.root, row.path, row.sha256, row.sources, row.seq) == ("/w", "/w/notes.md", "ab" * 32, '["http:a"]', 1)
    assert "notes" not in row.id


@pytest.mark.parametrize("said", [judged(Verdict.DENY), judged(taint=()), result(None, Trust.SYSTEM, (FILE,))])
def test_refused_and_untainted_writes_leave_no_row(said: Draft) -> None:
    tables = Tables()
    tables.add(said)
    assert tables.files() == []


def test_same_bytes_written_again_without_taint_stay_tainted() -> None:
    tables = Tables()
    for said in (
        result(None, Trust.SYSTEM, (replace(FILE, taint=("http:a",)),)),
        judged(),
        judged(taint=("http:b",)),
        result(None, Trust.SYSTEM, (FILE,)),
    ):
        tables.add(said)
    (row,) = tables.files()
    assert (row.sources, row.seq) == ('["http:a"]', 1)


def test_one_outcome_may_leave_several_files() -> None:
    tables = Tables()
    files = tuple(FileBytes(root="/w", path=name, sha256="cd" * 32, taint=("http:a",)) for name in ("a", "b", "a"))
    tables.add(result(None, Trust.SYSTEM, files))
    assert sorted(row.path for row in tables.files()) == ["/w/a", "/w/b"]
