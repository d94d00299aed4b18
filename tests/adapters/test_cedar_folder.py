"""The operator's folder: read at the start and when it changes; whatever is wrong with it leaves the old set in force."""

import os
import threading
from pathlib import Path

import pytest

from palyra.adapters.policy.cedar import CedarPolicy
from palyra.adapters.policy.draft import load_draft
from palyra.adapters.policy.folder import FolderChange, PolicyFolder
from palyra.core.errors import Invalid, NotFound
from palyra.core.events.tool import EffectClass, Verdict
from palyra.core.ids import Principal
from palyra.core.tools import Capability
from palyra.ports.policy import ApiQuestion
from tests.support.policies import put_policy, question
from tests.support.waiting import wait_until

ALLOW, ASK, DENY = Verdict.ALLOW, Verdict.ASK, Verdict.DENY
NO_WRITES = '@id("no") @says("No.") forbid (principal, action == Action::"call", resource) when { context.paths.contains("a") };'
FREE_ONCE = (
    '@id("free") permit (principal, action == Action::"call", resource) when { context.effect_class == "once" };'
)
BROKEN = "forbid (principal, action, resource) when { context.hots };"
READING, WRITING = (
    question(frozenset({Capability.FS_READ}), EffectClass.READ_ONLY, ("b",)),
    question(frozenset({Capability.FS_WRITE}), EffectClass.IDEMPOTENT, ("a",)),
)
ONCE = question(effect=EffectClass.ONCE)


class Scene:
    """A folder whose time passes only when it is told so."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now_s = 0.0
        self.changes: list[FolderChange] = []
        self.folder = PolicyFolder(root, monotonic_s=lambda: self.now_s, on_change=self.changes.append)
        self.policy = CedarPolicy(self.folder)

    def pass_time(self) -> None:
        """Long enough for two looks, each of which somebody's question brings about."""
        for _ in range(2):
            self.now_s += 1
            self.folder.current()

    def verdict(self) -> Verdict:
        return self.policy.judge(WRITING).verdict


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "policies"


def test_no_folder_is_the_bundled_policies(root: Path) -> None:
    scene = Scene(root)
    assert (scene.verdict(), scene.folder.state(), scene.changes) == (ALLOW, "ok", [])


def test_files_are_read_at_the_start_and_other_names_are_not(root: Path) -> None:
    put_policy(root, NO_WRITES)
    put_policy(root, BROKEN, "notes.txt")
    put_policy(root, BROKEN, "mine.cedar.bak")
    scene = Scene(root)
    assert scene.policy.judge(WRITING).rule == "mine/no"
    assert scene.folder.state() == "ok"


def test_change_is_taken_up_when_two_looks_agree_on_it(root: Path) -> None:
    scene = Scene(root)
    before = scene.folder.current().sha256
    put_policy(root, NO_WRITES)
    assert scene.verdict() is ALLOW
    scene.now_s += 1
    assert scene.verdict() is ALLOW
    scene.now_s += 0.4
    assert scene.verdict() is ALLOW
    scene.now_s += 1
    assert scene.verdict() is DENY
    assert [change.action for change in scene.changes] == ["policy.reloaded"]
    assert scene.changes[0].sha256 == scene.folder.current().sha256 != before


def test_file_that_keeps_changing_is_not_read_in_between(root: Path) -> None:
    put_policy(root, NO_WRITES)
    scene = Scene(root)
    for size in range(1, 6):
        (root / "mine.cedar").write_text(" " * size)
        scene.now_s += 1
        assert scene.verdict() is DENY
    scene.now_s += 1
    assert scene.verdict() is ALLOW


def test_folder_is_looked_at_seldom(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(root)
    looks: list[Path] = []
    real = os.scandir

    def look(path: Path) -> object:
        looks.append(path)
        return real(path)

    monkeypatch.setattr(os, "scandir", look)
    root.mkdir()
    for _ in range(100):
        scene.policy.judge(WRITING)
    assert looks == []
    scene.now_s += 0.6
    scene.policy.judge(WRITING)
    scene.policy.judge(WRITING)
    assert len(looks) == 1


@pytest.mark.parametrize(
    "text", [BROKEN, "permit (", '@id("no") permit (principal, action, resource) when { 1 == "a" };']
)
def test_broken_file_keeps_the_old_set_and_says_why_once(root: Path, text: str) -> None:
    put_policy(root, NO_WRITES)
    scene = Scene(root)
    if "1 ==" in text:
        text = text.replace('1 == "a"', "context.risk == 1")
    put_policy(root, text)
    for _ in range(3):
        scene.pass_time()
    assert scene.policy.judge(WRITING).rule == "mine/no"
    assert "mine.cedar:1: " in scene.folder.state()
    assert "stay in force" in scene.policy.state()
    assert [change.action for change in scene.changes] == ["policy.rejected"]
    put_policy(root, FREE_ONCE)
    scene.pass_time()
    assert (scene.verdict(), scene.folder.state()) == (ALLOW, "ok")
    assert scene.policy.judge(ONCE).rule == "mine/free"


def test_one_broken_file_holds_back_the_others(root: Path) -> None:
    """A set is taken whole: half of what somebody wrote may be the half that opens."""
    put_policy(root, NO_WRITES)
    scene = Scene(root)
    put_policy(root, FREE_ONCE, "second.cedar")
    put_policy(root, BROKEN, "third.cedar")
    scene.pass_time()
    assert scene.policy.judge(ONCE).verdict is ASK
    assert "third.cedar:1" in scene.folder.state()


def test_file_deleted_under_us_stays_in_force_until_a_restart(root: Path) -> None:
    put_policy(root, NO_WRITES)
    scene = Scene(root)
    (root / "mine.cedar").unlink()
    scene.pass_time()
    assert scene.policy.judge(WRITING).rule == "mine/no"
    assert "mine.cedar is gone" in scene.folder.state()
    put_policy(root, FREE_ONCE, "second.cedar")
    scene.pass_time()
    assert scene.policy.judge(WRITING).rule == "mine/no"
    assert scene.policy.judge(ONCE).rule == "second/free"
    put_policy(root, "// nothing any more")
    scene.pass_time()
    assert (scene.verdict(), scene.folder.state()) == (ALLOW, "ok")
    assert Scene(root).verdict() is ALLOW


def test_folder_deleted_under_us_stays_in_force(root: Path) -> None:
    put_policy(root, NO_WRITES)
    scene = Scene(root)
    (root / "mine.cedar").unlink()
    root.rmdir()
    scene.pass_time()
    assert scene.verdict() is DENY
    assert "gone" in scene.folder.state()


@pytest.mark.parametrize("kind", ["binary", "folder", "dangling", "fifo", "name"])
def test_what_is_no_text_is_broken(root: Path, kind: str) -> None:
    put_policy(root, NO_WRITES)
    scene = Scene(root)
    path = root / ("bad name.cedar" if kind == "name" else "bad.cedar")
    if kind == "binary":
        path.write_bytes(b"permit\n\xff\xfe")
    elif kind == "folder":
        path.mkdir()
    elif kind == "dangling":
        path.symlink_to(root / "nowhere")
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.write_text(FREE_ONCE)
    scene.pass_time()
    assert path.name in scene.folder.state()
    assert scene.policy.judge(WRITING).rule == "mine/no"
    assert Scene(root).policy.judge(WRITING).rule == "policy_broken"


def test_folder_that_is_a_file_denies_at_the_start(root: Path) -> None:
    root.write_text("")
    scene = Scene(root)
    assert scene.policy.judge(WRITING).rule == "policy_broken"


def test_broken_at_the_start_reads_ask_and_all_else_is_refused(root: Path) -> None:
    put_policy(root, FREE_ONCE, "fine.cedar")
    put_policy(root, BROKEN)
    scene = Scene(root)
    assert (scene.policy.judge(READING).verdict, scene.policy.judge(READING).rule) == (ASK, "policy_broken")
    for asked in (WRITING, ONCE):
        answer = scene.policy.judge(asked)
        assert (answer.verdict, answer.rule) == (DENY, "policy_broken")
    assert "mine.cedar:1" in scene.folder.state()
    assert [change.action for change in scene.changes] == ["policy.rejected"]

    def permit(role: str, action: str) -> Verdict:
        return scene.policy.permit(ApiQuestion(principal=Principal("user:a"), role=role, action=action)).verdict

    assert (permit("admin", "runs.start"), permit("operator", "runs.start")) == (ALLOW, DENY)
    assert (permit("user", "runs.list"), permit("user", "approvals.answer")) == (ALLOW, DENY)
    put_policy(root, NO_WRITES)
    scene.pass_time()
    assert (scene.policy.judge(READING).verdict, scene.folder.state()) == (ALLOW, "ok")
    assert (scene.policy.judge(WRITING).rule, permit("user", "runs.start")) == ("mine/no", ALLOW)


def _wait_for(folder: PolicyFolder, wanted: str) -> None:
    """Others look too, and the machine may be busy: what counts is that it comes."""
    wait_until(lambda: folder.current().sha256 == wanted, "the new set")


def test_reload_while_others_judge_never_answers_with_half_a_set(root: Path) -> None:
    """Two sets that agree on nothing but this: together they would allow what each alone does not."""
    once = 'when { context.effect_class == "once" }'
    first = f'{NO_WRITES} @id("a") forbid (principal, action == Action::"call", resource) {once};'
    put_policy(root, first)
    folder = PolicyFolder(root, look_every_s=0.0)
    policy = CedarPolicy(folder)
    seen: set[tuple[str, str]] = set()
    failures: list[BaseException] = []
    is_over = threading.Event()

    def judge() -> None:
        try:
            while not is_over.is_set():
                for asked in (WRITING, ONCE):
                    answer = policy.judge(asked)
                    assert answer.snapshot is not None
                    seen.add((answer.snapshot.sha256, answer.rule))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=judge) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(20):
        put_policy(root, first if number % 2 else FREE_ONCE)
        _wait_for(folder, PolicyFolder(root, look_every_s=0.0).current().sha256)
    is_over.set()
    for thread in threads:
        thread.join()
    assert failures == []
    by_hash = {sha256: {rule for known, rule in seen if known == sha256} for sha256, _ in seen}
    assert len(by_hash) == 2
    assert all(
        rules <= {"mine/no", "mine/a"} or rules <= {"mine/free", "workspace_write"} for rules in by_hash.values()
    )


def test_draft_takes_the_place_of_the_file_of_its_name(root: Path, tmp_path: Path) -> None:
    put_policy(root, NO_WRITES)
    same, other = tmp_path / "mine.cedar", tmp_path / "draft.cedar"
    same.write_text(FREE_ONCE)
    other.write_text(FREE_ONCE)
    assert load_draft((), root).judge(WRITING).verdict is DENY
    assert load_draft((same,), root).judge(WRITING).verdict is ALLOW
    beside = load_draft((other,), root)
    assert (beside.judge(WRITING).rule, beside.judge(ONCE).rule) == ("mine/no", "draft/free")
    timed = load_draft((other,), root, lambda: 5)
    other.write_text(FREE_ONCE.replace('context.effect_class == "once"', "context.now_ms < 10"))
    assert timed.judge(ONCE).rule == "draft/free"
    assert load_draft((other,), root, lambda: 5).judge(ONCE).rule == "draft/free"
    assert load_draft((other,), root, lambda: 10).judge(ONCE).verdict is ASK


def test_draft_that_is_wrong_is_refused(root: Path, tmp_path: Path) -> None:
    draft = tmp_path / "draft.cedar"
    draft.write_text(BROKEN)
    with pytest.raises(Invalid) as caught:
        load_draft((draft,), root)
    assert caught.value.code == "policy_invalid"
    with pytest.raises((NotFound, Invalid)):
        load_draft((tmp_path / "none.cedar",), root)
