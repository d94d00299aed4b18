"""Drafts by the rules: the walk of a drafted call, the two lists, judging a set, and applying it by hashes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from palyra.core.drafts.changes import (
    ChangeSet,
    decode_changes,
    describe_changes,
    digest_changes,
    encode_changes,
    in_order,
    unmatched,
    without_paths,
    written_files,
)
from palyra.core.drafts.judge import ALONE_MAX, PathGroup, deletes_many, group_changes
from palyra.core.drafts.outside import is_cache, is_git_data, is_run_next, is_run_outside
from palyra.core.drafts.plan import ABSENT, FileState, join, plan_apply, reverse
from palyra.core.errors import Invalid
from palyra.core.events.draft import ChangeKind, ConflictCause, DraftConflicted, DraftJudged, FileChange, ToolDrafted
from palyra.core.events.run import RunWaiting
from palyra.core.events.tool import (
    ApprovalKind,
    ApprovalRequested,
    ApprovalResolved,
    ApprovalStatus,
    Decision,
    EffectClass,
    Outcome,
    ParallelClass,
    ToolFinished,
    ToolStarted,
    Verdict,
)
from palyra.core.run.call import CallPhase
from palyra.core.run.effects import ApplyDraft, DiscardDraft, Execute, ForgetDraft, JudgeDraft
from palyra.core.run.fold_drafts import ATTEMPTS_MAX
from palyra.core.run.states import RunState
from palyra.core.trust import Trust
from tests.support.runs import ALICE, Script, call_id

SHELL: tuple[str, dict[str, object]] = ("shell.run", {"command": "make"})


def change(path: str, kind: ChangeKind = ChangeKind.MODIFIED, **fields: object) -> FileChange:
    before = None if kind is ChangeKind.CREATED else f"before {path}"
    after = None if kind is ChangeKind.DELETED else f"after {path}"
    made = FileChange(root="/w", path=path, kind=kind, before_sha256=before, after_sha256=after, mode=0o644)
    return replace(made, before_mode=0 if before is None else 0o644, **fields)


def started(effect_class: EffectClass = EffectClass.DRAFTED) -> Script:
    script = Script().begin().propose(SHELL)
    return script.judge(1, Verdict.ALLOW, effect_class, ParallelClass.NEVER)


def drafted(script: Script, digest: str = "d1") -> Script:
    call = script.state.calls[0]
    return script.feed(
        ToolDrafted(
            call_id=call.call_id,
            effect_id=call.effect_id,
            exit_status=0,
            digest=digest,
            changes_count=1,
            trust=Trust.LOCAL,
        )
    )


def judged(script: Script, verdict: Verdict, digest: str = "d1") -> Script:
    return script.feed(
        DraftJudged(call_id=call_id(1), digest=digest, verdict=verdict, rule="run_outside", reason="", asking=("x",))
    )


def conflicted(script: Script, digest: str = "d1") -> Script:
    call = script.state.calls[0]
    return script.feed(
        DraftConflicted(
            call_id=call.call_id, effect_id=call.effect_id, digest=digest, cause=ConflictCause.DRAFT, path="a"
        )
    )


def phase(script: Script) -> CallPhase:
    return script.state.calls[0].phase


def test_a_sealed_draft_is_judged_and_nothing_is_applied_before() -> None:
    script = drafted(started())
    assert phase(script) is CallPhase.DRAFTED
    assert script.effects == (JudgeDraft(call_id(1)),)


def test_an_allowed_draft_has_an_intent_before_it_is_applied() -> None:
    script = judged(drafted(started()), Verdict.ALLOW)
    effect_id = script.state.calls[0].effect_id
    assert script.types()[-2:] == ["draft.judged", "draft.applying"]
    assert script.effects == (ApplyDraft(call_id(1), effect_id, "d1"),)


def test_a_draft_that_asks_waits_for_a_person_and_is_bound_to_its_digest() -> None:
    script = judged(drafted(started()), Verdict.ASK)
    request = script.data(ApprovalRequested)[-1]
    assert isinstance(request, ApprovalRequested)
    assert (request.kind, request.digest, script.state.state) == (ApprovalKind.DRAFT, "d1", RunState.WAITING)
    assert isinstance(script.tape[-1].data, RunWaiting)
    answered = ApprovalResolved(
        approval_id=request.approval_id,
        status=ApprovalStatus.ALLOWED,
        decision=Decision.ALLOW,
        decided_by=ALICE,
        digest="another",
    )
    with pytest.raises(Invalid, match="approval_mismatch"):
        script.feed(answered)
    script.feed(replace(answered, digest="d1", without=("x",)))
    assert script.types()[-2:] == ["run.resumed", "draft.applying"]
    assert script.state.calls[0].without == ("x",)


def test_a_draft_that_a_person_discards_is_reported_with_its_output_and_not_applied() -> None:
    script = judged(drafted(started()), Verdict.ASK).resolve(Decision.DENY)
    effect_id = script.state.calls[0].effect_id
    assert script.effects == (DiscardDraft(call_id(1), effect_id, "d1"),)
    assert "draft.applying" not in script.types()
    script.finish(1, Outcome.DENIED)
    assert any(isinstance(effect, ForgetDraft) for effect in script.effects)


def test_a_command_that_was_killed_runs_again_and_is_never_uncertain() -> None:
    script = started().restart()
    assert script.types()[-2:] == ["run.resumed", "tool.started"]
    assert isinstance(script.effects[0], Execute)


@pytest.mark.parametrize("path", [".git/COMMIT_EDITMSG", ".git/refs/heads/main", "sub/.git/objects"])
def test_a_link_among_what_git_stores_asks(path: str) -> None:
    group = PathGroup(changes=(change(path, ChangeKind.LINKED),))
    assert group.nature("/w").makes_link
    assert is_run_outside(path, is_link=True)
    assert not is_run_outside(path)


def test_a_command_with_network_that_was_killed_is_uncertain() -> None:
    assert "tool.uncertain" in started(EffectClass.ONCE).restart().types()


@pytest.mark.parametrize("verdict", [None, Verdict.ALLOW])
def test_a_sealed_draft_survives_a_restart_and_the_command_does_not_run_again(verdict: Verdict | None) -> None:
    script = drafted(started())
    if verdict is not None:
        judged(script, verdict)
    wanted = script.effects
    script.restart()
    assert script.effects == wanted
    assert len(script.data(ToolStarted)) == 1


def test_a_conflict_runs_the_command_again_three_times_at_most() -> None:
    script = started()
    for attempt in range(1, ATTEMPTS_MAX):
        judged(drafted(script, f"d{attempt}"), Verdict.ALLOW, f"d{attempt}")
        conflicted(script, f"d{attempt}")
        assert phase(script) is CallPhase.STARTED
        assert script.state.calls[0].attempt == attempt + 1
    judged(drafted(script, "last"), Verdict.ALLOW, "last")
    with pytest.raises(Invalid, match="effect_repeated"):
        conflicted(script, "last")


def test_a_once_command_never_runs_again_after_a_conflict() -> None:
    script = judged(drafted(started(EffectClass.ONCE)), Verdict.ALLOW)
    with pytest.raises(Invalid, match="effect_repeated"):
        conflicted(script)


def test_a_run_that_is_cancelled_drops_a_draft_that_nobody_agreed_to() -> None:
    script = judged(drafted(started()), Verdict.ASK).cancel()
    assert [type(effect) for effect in script.effects] == [ForgetDraft]
    assert script.is_in(RunState.CANCELLED)
    assert "draft.applying" not in script.types()


def test_a_cancel_lets_a_draft_that_is_being_applied_finish() -> None:
    script = judged(drafted(started()), Verdict.ALLOW).cancel()
    assert not script.is_in(RunState.CANCELLED)
    script.finish(1)
    finished = script.data(ToolFinished)[-1]
    assert isinstance(finished, ToolFinished)
    assert finished.outcome is Outcome.OK
    assert script.is_in(RunState.CANCELLED)


OUTSIDE = """
.git/hooks/pre-commit tools/git/pre-push tools/githooks/lib
.git/config .git/info/attributes .git/info/exclude .GIT/Hooks/post-merge sub/.git/config .git
.git/modules/x/config .git/worktrees/w/commondir .git/rebase-merge/git-rebase-todo .git/objects/info/alternates bare.git/config
.gitattributes .gitmodules .gitconfig a/HEAD .envrc .vscode/tasks.json .idea/workspace.xml x.code-workspace .bashrc
a/.zshenv AGENTS.md docs/agents.md skills/x/SKILL.md CLAUDE.md .cursorrules .husky/pre-push .pre-commit-config.yaml
.yarnrc.yml .g\u200cit/config git~1/config .git./config .devcontainer/devcontainer.json .config/fish/config.fish .mcp.json
.bsp/x.json hie.yaml .formatter.exs .lazy.lua .factorypath app.pro.user .devfile.yaml .gitpod/automations.yaml .clangd
AGENT.md .roomodes .aiassistant/rules/x.md .cline/x.md .github/hooks/x.json .github/agents/x.md .amp/settings.json .replit
.RData .octaverc .erlang .perldb .byebugrc _irbrc .htaccess .user.ini u/.forward u/.p10k.zsh u/.nvm/nvm.sh u/.cargo/env
u/.config/fish/fish_variables u/.config/starship.toml u/.config/ghostty/config u/.kube/config u/.docker/config.json
u/Library/LaunchAgents/x.plist u/.cargo/bin/ls mise.dev.toml mise/config.toml hk.pkl .python-version .nvmrc .trunk/trunk.yaml
.hg/sharedpath .sl/requires .jj/repo .jj/workspace-config.toml .palyra-draft-0/old-1 sub/.PALYRA-draft-0
""".split()
DATA = """
.git/objects/ab/cdef .git/refs/heads/main .git/index .git/index.lock .git/logs/HEAD .git/HEAD .git/COMMIT_EDITMSG
.git/ORIG_HEAD .git/packed-refs .git/info/refs sub/.git/refs/tags/v1 .git/objects/pack/pack-1.idx
""".split()
ORDINARY = """
src/app.py src/update README.md notes/config data/objects/x tests/test_hooks.py hooks.py build/a.o gitlog.txt mise.md
cargo/bin/x src/activate.py aws/config docs/agents/x.md
""".split()
NEXT = """
Makefile package.json conftest.py setup.py pyproject.toml .github/workflows/ci.yml Dockerfile docker/Dockerfile.dev
sub/GNUmakefile build.sh requirements-dev.txt CMakeLists.txt tests/conftest.py Cargo.toml build.rs
pip.conf uv.lock Cargo.lock go.work Package.swift build.zig deps.edn x.fsproj u/.gradle/init.d/x.gradle init.d/x.gradle.kts
Gulpfile.mjs toxfile.py gunicorn.conf.py docs/conf.py venv/bin/activate venv/bin/activate.fish venv/pyvenv.cfg
docker-compose-dev.yml Procfile.dev x.desktop x.service x.zsh tsconfig.json jupyter_server_config.py crontab
""".split()


@pytest.mark.parametrize("path", OUTSIDE)
def test_what_is_run_or_obeyed_outside_is_known_by_its_name(path: str) -> None:
    assert is_run_outside(path)


@pytest.mark.parametrize("path", DATA)
def test_what_git_only_stores_is_free(path: str) -> None:
    assert is_git_data(path)
    assert not is_run_outside(path)
    assert not is_run_next(path, 0o755)


@pytest.mark.parametrize("path", ORDINARY)
def test_ordinary_files_are_in_neither_list(path: str) -> None:
    assert not is_run_outside(path)
    assert not is_run_next(path, 0o644)


@pytest.mark.parametrize("path", NEXT)
def test_what_a_persons_next_command_runs_is_known_by_its_name(path: str) -> None:
    assert is_run_next(path)


def test_whatever_can_be_executed_is_run_next() -> None:
    assert is_run_next("notes.txt", 0o755)


def test_many_deletions_ask_and_folders_do_not_count() -> None:
    files = [change(f"a/{number}", ChangeKind.DELETED) for number in range(20)]
    assert deletes_many(ChangeSet(changes=tuple(files)))
    assert not deletes_many(ChangeSet(changes=(*files[:19], change("a/", ChangeKind.DELETED))))
    assert deletes_many(ChangeSet(changes=tuple(files[:2]), emptied_roots=("/w",)))
    assert not deletes_many(ChangeSet(changes=tuple(files[:1]), emptied_roots=("/w",)))


def test_a_large_set_is_judged_by_folders_and_every_file_is_judged() -> None:
    files = [change(f"{number % 7}/f{number}", ChangeKind.CREATED) for number in range(ALONE_MAX + 100)]
    groups = group_changes(files)
    assert len(groups) == 7
    assert sorted(one.path for group in groups for one in group.changes) == sorted(one.path for one in files)


def test_a_model_sees_deletions_first_and_all_of_them() -> None:
    files = [change(f"new{number}", ChangeKind.CREATED) for number in range(500)]
    gone = [change(f"gone{number}", ChangeKind.DELETED) for number in range(300)]
    lines = describe_changes([*files, *gone]).splitlines()
    assert lines[:300] == [f"deleted gone{number}" for number in range(300)]
    assert lines[-1] == "and 300 more changes"


def test_paths_that_a_person_leaves_out_take_their_content_with_them() -> None:
    files = [change("a/x"), change("a/y/z"), change("ab"), change("c")]
    assert [one.path for one in without_paths(files, ["a", "c"])] == ["ab"]


@pytest.mark.parametrize(
    ("left_out", "kept"),
    [
        (["new/x", "new/s/y"], ["gone/", "gone/x", "gone/y", "swap", "swap/", "swap/x"]),
        (["gone/x"], ["gone/y", "new/", "new/s/", "new/s/y", "new/x", "swap", "swap/", "swap/x"]),
        (["swap/x"], ["gone/", "gone/x", "gone/y", "new/", "new/s/", "new/s/y", "new/x"]),
    ],
)
def test_folders_follow_the_content_that_a_person_leaves_out(left_out: list[str], kept: list[str]) -> None:
    """No empty folder comes, none goes that still holds something, and nothing takes the place of one that stays."""
    created = [change(path, ChangeKind.CREATED) for path in ("new/", "new/s/", "new/s/y", "new/x", "swap")]
    deleted = [change(path, ChangeKind.DELETED) for path in ("gone/", "gone/x", "gone/y", "swap/", "swap/x")]
    assert [one.path for one in without_paths(in_order([*created, *deleted]), left_out)] == kept


def test_the_digest_covers_every_change_and_survives_storage() -> None:
    files = (change("a"), change("b", ChangeKind.DELETED))
    assert decode_changes(encode_changes(files)) == files
    assert ChangeSet(changes=files).digest == digest_changes(files) != digest_changes(files[:1])


def test_only_files_with_new_content_carry_taint() -> None:
    files = [change("a"), change("b", ChangeKind.DELETED), change("c", ChangeKind.MODE)]
    assert [one.path for one in written_files(files, ("web:x",))] == ["a"]


kinds = st.sampled_from([ChangeKind.CREATED, ChangeKind.MODIFIED, ChangeKind.DELETED])
sets = st.lists(st.builds(change, st.sampled_from(["a", "b", "c/d", "c/e"]), kinds), unique_by=lambda one: one.path)


def _before(one: FileChange) -> FileState:
    return ABSENT if one.before_sha256 is None else FileState(sha256=one.before_sha256, mode=one.before_mode)


def _after(one: FileChange) -> FileState:
    return ABSENT if one.after_sha256 is None else FileState(sha256=one.after_sha256, mode=one.mode)


@given(sets, st.integers(0, 4))
def test_a_plan_goes_on_after_any_prefix_of_it(changes: list[FileChange], done: int) -> None:
    disk = {one.path: _before(one) for one in changes}
    first = plan_apply(changes, lambda one: disk[one.path])
    assert (first.conflict, len(first.steps)) == (None, len(changes))
    for step in first.steps[:done]:
        disk[step.path] = _after(step)
    rest = plan_apply(changes, lambda one: disk[one.path])
    assert rest.steps == first.steps[done:]


@given(sets.filter(bool), st.integers(0, 3))
def test_a_file_that_is_neither_before_nor_after_stops_the_whole_set(changes: list[FileChange], index: int) -> None:
    foreign = changes[index % len(changes)]
    states = {one.path: _before(one) for one in changes} | {foreign.path: FileState(sha256="a person's", mode=0o644)}
    plan = plan_apply(changes, lambda one: states[one.path])
    assert (plan.steps, plan.conflict) == ((), foreign)


def test_a_folder_that_became_a_file_is_planned_and_goes_on() -> None:
    gone = FileChange(root="/w", path="d/", kind=ChangeKind.DELETED, mode=0o755)
    inner = change("d/x", ChangeKind.DELETED)
    made = change("d", ChangeKind.CREATED)
    states = {"d/": FileState(sha256=""), "d/x": _before(inner), "d": FileState(sha256="")}
    plan = plan_apply([made, gone, inner], lambda one: states[one.path])
    assert [step.path for step in plan.steps] == ["d/x", "d/", "d"]
    states = dict.fromkeys(states, _after(made)) | {"d/x": ABSENT}
    assert plan_apply([made, gone, inner], lambda one: states[one.path]).done_count == 3


@given(sets)
def test_taking_a_set_back_leads_to_where_it_began(changes: list[FileChange]) -> None:
    disk = {one.path: _after(one) for one in changes}
    plan = plan_apply([reverse(one) for one in changes], lambda one: disk[one.path])
    assert plan.conflict is None
    for step in plan.steps:
        disk[step.path] = _after(step)
    assert disk == {one.path: _before(one) for one in changes}


def test_changes_of_several_calls_join_to_one_a_path() -> None:
    made = change("a", ChangeKind.CREATED)
    changed = replace(change("a"), before_sha256="after a", after_sha256="second")
    gone = replace(change("a", ChangeKind.DELETED), before_sha256="second")
    assert join([made, changed, gone]) == ()
    (joined,) = join([made, changed])
    assert (joined.kind, joined.before_sha256, joined.after_sha256) == (ChangeKind.CREATED, None, "second")


def test_programs_that_a_test_runner_keeps_are_no_cache() -> None:
    """`.tox` and `.nox` hold virtual environments, whose modules run at the next call."""
    assert is_cache(".pytest_cache/v/x")
    assert is_cache(".mypy_cache/x.json")
    assert not is_cache(".tox/py/lib/python3/site-packages/pytest/__init__.py")
    assert not is_cache(".nox/tests/lib/python3/site-packages/x.py")


@pytest.mark.parametrize("letter", "\u034f\ufe0f\u3164\u115f\u200b\u2800\U000e0100")
def test_letters_that_show_nothing_hide_no_name(letter: str) -> None:
    """A disk that ignores case ignores such letters too."""
    assert is_run_outside(f"AGENTS{letter}.md")
    assert is_run_outside(f".git{letter}/config")
    assert is_run_next(f"Make{letter}file")
    assert not is_run_outside(f"notes{letter}.md")


@pytest.mark.parametrize("name", ["", "/", "//"])
def test_an_empty_name_means_none_of_the_changes(name: str) -> None:
    changes = (change("a", ChangeKind.CREATED),)
    assert without_paths(changes, (name,)) == changes
    assert unmatched(changes, (name,)) == (name,)
