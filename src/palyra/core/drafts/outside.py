"""Files that something outside the sandbox runs or obeys: two lists, by name.

Owns: `is_run_outside`, what a program of the person runs or obeys by itself, and `is_run_next`, what the person's next
ordinary command runs. Does not own: what is done about them (policy).
Names are compared without case, and without characters that show nothing, because some file systems ignore both.
"""

import functools
import unicodedata

from palyra.core.sensitive_files import GIT_HOOKS, INSTRUCTION_FILES

# Git only stores data here. Everything else below a `.git` folder names programs, or may.
_GIT_DATA_FOLDERS = frozenset({"objects", "refs", "logs", "lfs"})
_GIT_DATA_FILES = frozenset(
    """
    head orig_head fetch_head merge_head cherry_pick_head revert_head rebase_head auto_merge merge_msg merge_mode merge_rr
    squash_msg commit_editmsg tag_editmsg index packed-refs shallow gc.log description rr-cache
    """.split()
)
_GIT_LINKED = frozenset({"alternates", "http-alternates"})  # They name other folders of objects.
_GIT_FILES = frozenset({".gitattributes", ".gitconfig", ".gitmodules", ".mailmap"})
_BARE_FILES = frozenset({"head", "packed-refs"})  # They make an ordinary folder a repository, whose config then counts.
_HOOK_FOLDERS = frozenset({".githooks", ".git-hooks", "githooks", "git-hooks", "git_hooks", ".husky", ".lefthook"})
_HOOK_NAMES = GIT_HOOKS - {
    "update"
}  # Any folder may be git's folder of hooks (core.hooksPath), and these names say so.
_EDITOR_FOLDERS = frozenset(
    ".vscode .vscode-server .idea .fleet .zed .helix .vim .nvim .emacs.d .devcontainer .settings .eclipse .run".split()
)
_EDITOR_FILES = frozenset(
    """
    .vimrc .gvimrc .exrc .nvimrc .nvim.lua .nanorc .emacs .dir-locals.el .dir-locals-2.el .ycm_extra_conf.py .lvimrc
    .local.vimrc .devcontainer.json .sublime-project
    """.split()
)
_AGENT_FOLDERS = frozenset(".claude .cursor .windsurf .codex .gemini .aider .continue .palyra .roo .clinerules".split())
_AGENT_FILES = frozenset(
    ".cursorrules .windsurfrules .clinerules .aider.conf.yml .mcp.json mcp.json .goosehints .roorules".split()
)
_SHELL_FILES = frozenset(
    """
    .bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile .zlogin .zlogout .kshrc
    .cshrc .tcshrc .login .inputrc .xprofile .xinitrc .xsession .pam_environment .tmux.conf .screenrc config.fish .pdbrc
    .gdbinit .lldbinit .irbrc .pryrc .pythonrc .python_startup.py .sqliterc .psqlrc .my.cnf .wgetrc .curlrc
    """.split()
)
_TOOL_FILES = frozenset(
    """
    .envrc .tool-versions .mise.toml mise.toml .rtx.toml .autoenv .autoenv.zsh .npmrc .yarnrc .yarnrc.yml .pnpmfile.cjs
    .pnp.cjs .pnp.loader.mjs .pre-commit-config.yaml .pre-commit-config.yml lefthook.yml lefthook.yaml .lefthook.yml
    .lefthook.yaml .bazelrc .condarc .pypirc .netrc .ruby-version .rspec .rvmrc .direnvrc .sdkmanrc
    """.split()
)
_OUTSIDE_FOLDERS = _HOOK_FOLDERS | _EDITOR_FOLDERS | _AGENT_FOLDERS
_OUTSIDE_FILES = _EDITOR_FILES | _AGENT_FILES | _SHELL_FILES | _TOOL_FILES | INSTRUCTION_FILES
_NEXT_FILES = frozenset(
    """
    makefile gnumakefile justfile .justfile rakefile gemfile guardfile vagrantfile procfile jenkinsfile tiltfile earthfile
    taskfile.yml taskfile.yaml magefile.go package.json package-lock.json yarn.lock pnpm-lock.yaml pnpm-workspace.yaml
    bunfig.toml deno.json deno.jsonc conftest.py setup.py setup.cfg pyproject.toml tox.ini noxfile.py tasks.py fabfile.py
    dodo.py manage.py sitecustomize.py usercustomize.py pytest.ini manifest.in pipfile pipfile.lock cargo.toml build.rs
    go.mod build.gradle build.gradle.kts settings.gradle settings.gradle.kts gradle.properties pom.xml build.xml build.sbt
    cmakelists.txt cmakepresets.json meson.build sconstruct sconscript build build.bazel workspace workspace.bazel
    module.bazel dockerfile containerfile docker-compose.yml docker-compose.yaml compose.yml compose.yaml configure
    composer.json mix.exs rebar.config flake.nix shell.nix default.nix .gitlab-ci.yml .travis.yml azure-pipelines.yml
    appveyor.yml .drone.yml karma.conf.js gulpfile.js gruntfile.js webpack.config.js vite.config.js vite.config.ts
    vitest.config.ts jest.config.js jest.config.ts babel.config.js rollup.config.js next.config.js tailwind.config.js
    postcss.config.js eslint.config.js eslint.config.mjs .eslintrc.js .prettierrc.js playwright.config.ts
    """.split()
)
_NEXT_FOLDERS = frozenset({".github", ".gitlab", ".circleci", ".buildkite", ".woodpecker", ".forgejo", ".gitea"})
_NEXT_SUFFIXES = (
    ".mk",
    ".pth",
    ".gemspec",
    ".cabal",
    ".csproj",
    ".vcxproj",
    ".targets",
    ".props",
    ".dockerfile",
    ".sh",
)
_EXECUTE_BITS = 0o111
# Tools make these folders by themselves, and nothing in them is run or obeyed.
_CACHE_FOLDERS = frozenset(
    """
    .pytest_cache .mypy_cache .ruff_cache .hypothesis .cache .tox .nox .nyc_output .coverage .parcel-cache .turbo .gradle
    .ipynb_checkpoints .sass-cache .benchmarks .pyre .pytype
    """.split()
)
_CACHE_FILES = frozenset({".coverage", ".eslintcache", ".stylelintcache", ".tsbuildinfo", ".ds_store", ".gitkeep"})


def is_run_outside(path: str, *, is_link: bool = False) -> bool:
    """Tells whether a program outside the sandbox runs or obeys this file by itself.

    A link in a `.git` folder is never data: git would write through it, into a hook for example.
    """
    parts = _parts(path)
    if not parts:
        return False
    name = parts[-1]
    if is_git_data(path) and not is_link:
        return False
    if any(part == ".git" or part.endswith(".git") for part in parts) or name in _GIT_FILES or name in _BARE_FILES:
        return True
    is_hook = name in _HOOK_NAMES or (name in GIT_HOOKS and "hooks" in parts[:-1])
    is_fish = "fish" in parts[:-1] and name.endswith(".fish")
    is_editors = name.endswith((".code-workspace", ".sublime-project"))
    is_listed = name in _OUTSIDE_FILES or any(part in _OUTSIDE_FOLDERS for part in parts)
    return is_hook or is_fish or is_editors or is_listed


def is_run_next(path: str, mode: int = 0) -> bool:
    """Tells whether a person's next ordinary command runs this file."""
    parts = _parts(path)
    if not parts or is_git_data(path) or path.endswith("/"):
        return False
    name = parts[-1]
    is_named_so = (
        name in _NEXT_FILES or name.endswith(_NEXT_SUFFIXES) or name.startswith(("requirements", "dockerfile."))
    )
    return is_named_so or bool(mode & _EXECUTE_BITS) or any(part in _NEXT_FOLDERS for part in parts[:-1])


def is_git_data(path: str) -> bool:
    """Tells whether git stores data in this file of a `.git` folder: objects, refs, the index, logs."""
    parts = _parts(path)
    if ".git" not in parts[:-1] or parts.count(".git") != 1:
        return False
    inside = parts[parts.index(".git") + 1 :]
    name = inside[-1].removesuffix(".lock")
    if inside[0] in _GIT_DATA_FOLDERS:
        return name not in _GIT_LINKED
    return inside == ["info", "refs"] or (len(inside) == 1 and name in _GIT_DATA_FILES)


def is_cache(path: str) -> bool:
    """Tells whether a tool keeps results of its own in this file, which nothing runs or obeys."""
    parts = _parts(path)
    return bool(parts) and (parts[-1] in _CACHE_FILES or any(part in _CACHE_FOLDERS for part in parts))


def _parts(path: str) -> list[str]:
    return [_plain(part) for part in path.split("/") if part not in ("", ".")]


@functools.lru_cache(maxsize=4096)  # The folders of a large set come again and again.
def _plain(part: str) -> str:
    seen = "".join(letter for letter in unicodedata.normalize("NFKC", part) if unicodedata.category(letter) != "Cf")
    # An 8.3 name of Windows, and a stream of NTFS, are other spellings of the same file.
    plain = seen.split(":", 1)[0].rstrip(". ").casefold()
    return ".git" if plain.startswith("git~") else plain
