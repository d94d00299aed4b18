"""Git passes over what only the layer of a session holds, whatever its name is, in nested repositories too."""

import shutil
import subprocess
from pathlib import Path

import pytest

from palyra.adapters.runtimes.shell.git_excludes import git_excludes
from palyra.ports.drafts import OverlayRoot

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")

KEPT = (
    "app.bin",
    "a b[1]*?.bin",
    "!x",
    "#y",
    "back\\slash",
    "ü.bin",
    "end ",
    "src/z.bin",
    "out/deep/er.bin",
    "sub/n.bin",
)
OWN = ("readme.txt", "a b1c.bin", "src/keep.txt", "sub/own.txt")


def make(root: Path, names: tuple[str, ...]) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)


def untracked(root: Path, excludes: Path) -> set[str]:
    command = ["git", "-c", f"core.excludesFile={excludes}", "status", "--porcelain", "-z", "-uall"]
    done = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    return {line[3:] for line in done.stdout.split("\0") if line}


def test_git_passes_over_what_only_the_layer_holds(tmp_path: Path) -> None:
    root, layer, excludes = tmp_path / "root", tmp_path / "layer", tmp_path / "excludes"
    make(root, OWN)
    make(layer, KEPT)
    for repository in (root, root / "sub"):
        subprocess.run(["git", "init", "-q"], cwd=repository, check=True)
    excludes.write_text(git_excludes([OverlayRoot(root=str(root), upper="", work="", layer=str(layer))]))
    shutil.copytree(layer, root, dirs_exist_ok=True)
    make(root, ("node_modules/a/index.js", "src/__pycache__/a.pyc"))
    assert untracked(root, excludes) == {"readme.txt", "a b1c.bin", "src/keep.txt", "sub/"}
    assert untracked(root / "sub", excludes) == {"own.txt"}
