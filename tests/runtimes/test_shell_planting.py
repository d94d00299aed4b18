"""Texts that plant what a program outside the sandbox runs or obeys. Each runs for real, and none gets by without a card."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.runtimes.shells import NOBODY, USERS, House, drafted, open_house

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
LONG = "n" * 255
# In a session without content from outside too.
PLANTED = [
    "echo x > .GIT/hooks/pre-commit || { mkdir -p .GIT/hooks; echo x > .GIT/hooks/pre-commit; }",
    "git config core.hooksPath tools",
    "GIT_CONFIG_COUNT=0 git config --file .git/config core.fsmonitor ./tools/x",
    "git config --worktree core.pager x",
    "git config include.path ../notes",
    "git config alias.st '!touch x'",
    "mkdir -p .git/modules/sub/hooks; echo x > .git/modules/sub/hooks/post-checkout",
    "mkdir -p .git/worktrees/w; echo ../.. > .git/worktrees/w/commondir",
    "git worktree add -q w3",
    "echo 'gitdir: ../meta' > sub/.git",
    "echo '*.c filter=x' > .gitattributes",
    "echo '*.c filter=x' > sub/.gitattributes",
    "mkdir -p .git/info; echo '* filter=x' > .git/info/attributes",
    "printf '[submodule \"s\"]\\n\\tpath=s\\n\\turl=./x\\n\\tupdate=!x\\n' > .gitmodules",
    "mkdir -p .git/rebase-merge; echo 'exec x' > .git/rebase-merge/git-rebase-todo",
    "mkdir -p .git/objects/info; echo /x > .git/objects/info/alternates",
    "chmod +x .git/hooks/waiting",
    "chmod 777 .git/hooks; echo x > y",
    "ln -s ../../notes .git/hooks/post-merge",
    "ln -s ../hooks/waiting .git/refs/x",
    "cp notes tools/pre-push",
    "mv .git/hooks/waiting .git/hooks/pre-commit",
    "git init -q --bare inner.git",
    "git init -q --bare inner",
    "printf '[core]\\n\\tfsmonitor = ./x\\n' >> bare/config",
    "printf '[core]\\n\\tfsmonitor = ./x\\n' >> meta/config",
    "echo x > meta/info/attributes",
    "echo x >> included.conf",
    "echo x >> tools/clean.txt",
    "rm tools/clean.txt; ln -s ../notes tools/clean.txt",
    "echo x > tools/monitor/any",
    "mkdir -p .hg; printf '[hooks]\\nupdate = x\\n' > .hg/hgrc",
    "mkdir -p .jj/repo; echo x > .jj/repo/config.toml",
    "echo x > agents.MD",
    "echo x > $'AGENTS\\u200b.md'",
    "echo x > 'AGENTS.md.'",
    "echo x > $'\\uff21GENTS.md'",
    "mkdir -p a/b; echo x > a/b/CLAUDE.md",
    "ln AGENTS.md other; echo x >> other",
    "ln -s AGENTS.md other; echo x >> other",
    "rm AGENTS.md; ln -s notes AGENTS.md",
    "echo x >> guide.md",
    "sed -i s/a/b/ AGENTS.md",
    "mkdir -p .kiro/steering; echo x > .kiro/steering/x.md",
    "mkdir -p .junie; echo x > .junie/guidelines.md",
    "mkdir -p .github/instructions; echo x > .github/instructions/x.instructions.md",
    "echo '{}' > opencode.json",
    "echo x > WARP.md",
    "mkdir -p .amazonq/rules; echo x > .amazonq/rules/x.md",
    "mkdir -p .VSCode; echo x > .VSCode/tasks.json",
    "mkdir -p .idea/runConfigurations; echo x > .idea/runConfigurations/x.xml",
    "mkdir .vs; echo x > .vs/tasks.vs.json",
    "mkdir .nova; echo x > .nova/Configuration.json",
    "echo x > .gitpod.yml",
    "echo x > rust-analyzer.toml",
    "mkdir .cargo; echo x > .cargo/config.toml",
    "mkdir -p .husky; echo x > .husky/pre-commit",
    "echo x > .huskyrc.json",
    "echo x > lefthook-local.yml",
    "echo x > .pre-commit-config.yaml",
    "echo x > .overcommit.yml",
    "echo x > lint-staged.config.mjs",
    "echo x > .commitlintrc.js",
    "echo script-shell=./x > .npmrc",
    "mkdir -p home/u; echo x > home/u/.bashrc",
    "mkdir -p home/u/.bashrc.d; echo x > home/u/.bashrc.d/x",
    "mkdir -p home/u/.ssh; echo 'ProxyCommand x' > home/u/.ssh/config",
    "mkdir -p home/u/.config/git; echo x > home/u/.config/git/config",
    "mkdir -p home/u/.config/autostart; echo x > home/u/.config/autostart/x.desktop",
    "mkdir -p home/u/.config/systemd/user; echo x > home/u/.config/systemd/user/x.service",
    "mkdir -p home/u/.local/bin; echo x > home/u/.local/bin/ls",
    "mkdir -p home/u/.ipython/profile_default/startup; echo x > home/u/.ipython/profile_default/startup/x.py",
    "echo x > .mise.local.toml",
    "mkdir -p .direnv/bin; echo x > .direnv/bin/ls",
    "echo x > .Rprofile",
    "echo x > .ghci",
    f"mkdir {LONG}; echo x > {LONG}/AGENTS.md",
    "d=$(printf 'd/%.0s' {1..150}); mkdir -p $d; echo x > $d/.envrc",
]
# With content from outside: what the next ordinary command runs.
RUN_NEXT = [
    "chmod +x notes",
    "echo x > build.gradle.kts",
    "mkdir -p gradle/wrapper; echo x > gradle/wrapper/gradle-wrapper.properties",
    "mkdir -p home/u/.gradle; echo x > home/u/.gradle/init.gradle",
    "echo x > vite.config.mts",
    "echo x > docker-compose.override.yml",
    "echo x > Taskfile.dist.yml",
    "echo x > rules.bzl",
    "echo x > find.cmake",
    "echo x > mypy.ini",
    "echo x > pylintrc",
    "echo x > rust-toolchain.toml",
    "echo x > bitbucket-pipelines.yml",
    "echo x > main.tf",
    "echo x > tasks.rake",
    "mkdir .mvn; echo x > .mvn/extensions.xml",
]
# These leave nothing at all, or nothing that could be applied.
LEFT_OUT = [
    "printf x > $'AGENTS.md\\nx'",
    "printf x > $'\\xff\\xfe.md'",
    "mkfifo pipe",
    "python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('s')\"",
    "ln -s /etc/passwd AGENTS.md.x",
    "mknod n c 1 3 || true",
]


def lay(house: House, user: str) -> None:
    """A repository with what people have: a hook that waits for its bit, a bare one, filters and included settings."""
    root = house.workspace
    for folder in ("tools/monitor", "sub"):
        (root / folder).mkdir(parents=True)
    for name in ("AGENTS.md", "notes", "guide.md", "tools/clean.txt"):
        (root / name).write_text("a\n")
    (root / "included.conf").write_text("[core]\n")
    (root / "CLAUDE.md").symlink_to("guide.md")
    for words in (
        ["init", "-q", "."],
        ["init", "-q", "--bare", "bare"],
        ["init", "-q", "--separate-git-dir", "meta", "apart"],
        ["-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-q", "--allow-empty", "-m", "x"],
        ["config", "include.path", "../included.conf"],
        ["config", "filter.x.clean", "sh tools/clean.txt %f"],
        ["config", "core.hooksPath", "tools/monitor"],
    ):
        subprocess.run(["git", "-c", "safe.directory=*", *words], cwd=root, check=True)
    (root / ".git/hooks/waiting").write_text("#!/bin/sh\n")
    for path in [root, *root.rglob("*")] if user == "nobody" else ():
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


def tree(root: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(root)): (path.lstat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in root.rglob("*")
    }


@pytest.mark.parametrize("user", USERS)
def test_nothing_that_runs_outside_is_planted_without_a_card(user: str) -> None:
    with open_house(user) as house:
        lay(house, user)
        before = tree(house.workspace)
        found = {text: drafted(user, text, house) for text in (*PLANTED, *RUN_NEXT, *LEFT_OUT)}
        assert tree(house.workspace) == before
        without_change = [text for text in (*PLANTED, *RUN_NEXT) if not found[text].changes_count]
        assert without_change == [], [found[text].output for text in without_change]
        assert [text for text in PLANTED if not found[text].asking] == []
        assert [text for text in RUN_NEXT if not found[text].asking_if_tainted] == []
        assert [text for text in LEFT_OUT if found[text].changes_count] == []


@pytest.mark.parametrize("user", USERS)
def test_ordinary_work_asks_nobody(user: str) -> None:
    """What people want their agents to do without a question."""
    texts = [
        "mkdir -p src && echo x > src/a.py && echo x > README.md",
        "git add notes && git -c user.name=a -c user.email=a@example.org commit -qm x",
        "mkdir -p docs/conf build && echo x > docs/conf/config && echo x > build/out.cfg",
        "echo x > config && echo x > tools/other.txt && rm guide.md.bak 2>/dev/null; echo x > info",
        "python3 -m venv --copies --without-pip env && rm -r env && echo x > done",
        "mkdir -p .cache .pytest_cache && echo x > .pytest_cache/x && echo x > .cache/y",
    ]
    with open_house(user) as house:
        lay(house, user)
        found = {text: drafted(user, text, house) for text in texts}
        assert {text: each.asking for text, each in found.items() if each.asking or not each.changes_count} == {}
