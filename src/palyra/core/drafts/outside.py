"""Files that something outside the sandbox runs or obeys: two lists, by name.

Owns: `is_run_outside`, what a program of the person runs or obeys by itself, and `is_run_next`, what the person's next
ordinary command runs. Also `is_stage`: where the daemon itself keeps files while it applies a draft.
Does not own: what is done about them (policy).
Names are compared without case, and without characters that show nothing, because some file systems ignore both.
"""

import functools
import re
import unicodedata
from itertools import pairwise

from palyra.core.sensitive_files import GIT_HOOKS, INSTRUCTION_FILES
from palyra.core.spelling import is_seen

STAGE_PREFIX = ".palyra-draft-"  # Begins the name of a folder in a root that is not on the daemon's own disk.
# Git only stores data here. Everything else below a `.git` folder names programs, or may.
_GIT_DATA_FOLDERS = frozenset({"objects", "refs", "logs", "lfs"})
# The folders that git makes among its objects. In any other one a repository could lie, with settings and hooks.
_OBJECT_FOLDER = re.compile("[0-9a-f]{2}|info|pack|maintenance.lock|tmp_objdir-.*")
_GIT_DATA_FILES = frozenset(
    """
    head orig_head fetch_head merge_head cherry_pick_head revert_head rebase_head auto_merge merge_msg merge_mode merge_rr
    squash_msg commit_editmsg tag_editmsg index packed-refs shallow gc.log description rr-cache
    """.split()
)
_SAMPLE = ".sample"  # Git runs a hook by its whole name, so none of these.
_GIT_LINKED = frozenset({"alternates", "http-alternates"})  # They name other folders of objects.
_GIT_FILES = frozenset({".gitattributes", ".gitconfig", ".gitmodules", ".mailmap"})
_BARE_FILES = frozenset({"head", "packed-refs"})  # They make an ordinary folder a repository, whose config then counts.
_HOOK_FOLDERS = frozenset({".githooks", ".git-hooks", "githooks", "git-hooks", "git_hooks", ".husky", ".lefthook"})
_HOOK_NAMES = GIT_HOOKS - {
    "update"
}  # Any folder may be git's folder of hooks (core.hooksPath), and these names say so.
# Settings of other version control, which name programs as git's do: the folder, and the name of a file below it.
_OTHER_VCS = frozenset(
    {(".hg", "hgrc"), (".hg", "hgrc-not-shared"), (".jj", "config.toml"), (".sl", "config"), (".bzr", "branch.conf")}
    | {("_darcs", "defaults"), (".pijul", "config")}
    | {(".hg", "sharedpath"), (".hg", "requires"), (".sl", "sharedpath"), (".sl", "requires")}  # Of another repository.
    | {(".jj", "repo"), (".jj", "workspace-config.toml")}
)
_EDITOR_FOLDERS = frozenset(
    """
    .vscode .vscode-server .vs .idea .fleet .zed .helix .vim .nvim .emacs.d .devcontainer .settings .eclipse .run .nova
    .theia .codesandbox .idx .externaltoolbuilders
    .bsp .lsp .gitpod nbproject
    """.split()
)
_EDITOR_FILES = frozenset(
    """
    .vimrc _vimrc .gvimrc .exrc .nvimrc .nvim.lua .nanorc .emacs .dir-locals.el .dir-locals-2.el .ycm_extra_conf.py .lvimrc
    .local.vimrc .devcontainer.json .sublime-project .vimspector.json .neoconf.json .luarc.json .gitpod.yml .project
    rust-analyzer.toml .rust-analyzer.toml .merlin
    hie.yaml .factorypath .classpath .formatter.exs .lazy.lua .vimrc.local .clangd .ccls .luarc.jsonc .solargraph.yml .kateproject
    devfile.yaml .devfile.yaml .emacs.el .spacemacs
    """.split()
)
_EDITOR_SUFFIXES = (".code-workspace", ".sublime-project", ".ipr", ".pro.user", ".txt.user")
_AGENT_FOLDERS = frozenset(
    """
    .claude .cursor .windsurf .codex .gemini .aider .continue .palyra .roo .clinerules .agent .agents .amazonq .augment
    .copilot .crush .factory .goose .junie .kilocode .kiro .opencode .openhands .qwen .serena .tabnine .trae .warp .zencoder
    .aiassistant .amp .cline .codeium .cody .devin .firebender .gptme .grok .iflow .kilo .qodo .rovodev
    """.split()
)
_AGENT_FILES = frozenset(
    """
    .cursorrules .windsurfrules .clinerules .aider.conf.yml .mcp.json mcp.json .goosehints .roorules .rules
    .augment-guidelines .continuerc.json opencode.json opencode.jsonc .opencode.json crush.json .crush.json warp.md qwen.md
    crush.md replit.md
    agent.md codex.md iflow.md .claude.json .roomodes .kilocodemodes .replit gptme.toml firebender.json
    """.split()
)
_AGENT_SUFFIXES = (".instructions.md", ".prompt.md", ".chatmode.md", ".agent.md")
_SHELL_FILES = frozenset(
    """
    .bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile .zlogin .zlogout .kshrc
    .cshrc .tcshrc .login .inputrc .xprofile .xinitrc .xsession .pam_environment .tmux.conf .screenrc config.fish .pdbrc
    .gdbinit .gdbearlyinit .lldbinit .irbrc .pryrc .pythonrc .python_startup.py .sqliterc .psqlrc .my.cnf .wgetrc .curlrc
    .xonshrc .asdfrc .lessfilter .mailcap .muttrc .wezterm.lua .hgrc .rprofile .renviron .ghci .ocamlinit .iex.exs .radare2rc
    .rdata .octaverc startup.m startup.jl .juliarc.jl .gnuplot .erlang .perldb .byebugrc .rdbgrc .rdbgrc.rb irb.rc _irbrc
    .pdbrc.py .duckdbrc .mongorc.js .mongoshrc.js .guile .sbclrc .lesskey .tigrc .xdefaults .xresources .xsessionrc .xserverrc
    .forward .procmailrc .aliases .zsh_aliases .bash_functions .bash_completion .fzf.bash .fzf.zsh .p10k.zsh .zimrc .zpreztorc
    .htaccess .user.ini web.config
    """.split()
)
# Of a person's home, which may be a workspace or lie in one.
_HOME_FOLDERS = frozenset(
    """
    .ssh .gnupg .local .bashrc.d .bash.d .bash_completion.d .profile.d .zshrc.d .zsh .oh-my-zsh .elvish .ipython .jupyter
    .hammerspoon .direnv .devenv .shadowenv.d .mise
    .nvm .pyenv .rbenv .asdf .sdkman .zinit .doom.d .spacemacs.d .smartcd
    """.split()
)
_CONFIG_FOLDERS = frozenset(
    """
    git nvim vim emacs doom helix zed autostart systemd environment.d mise kitty alacritty wezterm tmux zsh nushell elvish
    xonsh direnv goose opencode crush i3 sway hypr plasma-workspace code vscodium micro lf ranger
    fish ghostty foot zellij awesome bspwm sxhkd openbox niri river labwc mpv yazi kak go jj sapling gh glab lazygit cursor
    windsurf claude gemini nix nixpkgs home-manager broot sheldon atuin qutebrowser polybar waybar user-tmpfiles.d
    starship.toml mimeapps.list lesskey
    """.split()
)
_TOOL_FILES = frozenset(
    """
    .envrc .tool-versions .mise.toml mise.toml .rtx.toml .autoenv .autoenv.zsh .npmrc .yarnrc .yarnrc.yml .pnpmfile.cjs
    .pnp.cjs .pnp.loader.mjs .pre-commit-config.yaml .pre-commit-config.yml lefthook.yml lefthook.yaml .lefthook.yml
    .lefthook.yaml .bazelrc .condarc .pypirc .netrc .ruby-version .rspec .rvmrc .direnvrc .sdkmanrc .mise.local.toml
    mise.local.toml .autoenv_leave.zsh .pnpmfile.mjs .overcommit.yml prek.toml grumphp.yml .rusty-hook.toml .gitlint
    .env.leave .ondirrc .nvmrc .node-version .python-version .java-version .go-version .php-version .ruby-gemset
    .terraform-version hk.pkl .hk.pkl hk.local.pkl
    """.split()
)
# Runners of git's hooks have settings in several forms: `lefthook-local.yml`, `.lintstagedrc.mjs`.
_HOOK_RUNNERS = (
    "lefthook.", "lefthook-local.", ".lefthook.", ".lefthook-local.", ".huskyrc", ".lintstagedrc", "lint-staged.config.",
    ".commitlintrc", "commitlint.config.", ".simple-git-hooks.", "simple-git-hooks.", "captainhook.",
)  # fmt: skip
_OUTSIDE_FOLDERS = _HOOK_FOLDERS | _EDITOR_FOLDERS | _AGENT_FOLDERS | _HOME_FOLDERS | {".cargo-husky"}
# A folder or a file, by its name and the name of the folder that holds it.
_OUTSIDE_PAIRS = frozenset(
    {(".github", "hooks"), (".github", "agents"), (".trunk", "trunk.yaml"), ("mise", "config.toml")}
    | {(".cargo", "env"), (".cargo", "bin"), (".kube", "config"), (".aws", "config"), (".docker", "config.json")}
    | {(".docker", "cli-plugins"), (".subversion", "config"), ("library", "launchagents"), ("library", "launchdaemons")}
)
_OUTSIDE_FILES = _EDITOR_FILES | _AGENT_FILES | _SHELL_FILES | _TOOL_FILES | INSTRUCTION_FILES
_NEXT_FILES = frozenset(
    """
    makefile gnumakefile justfile .justfile rakefile gemfile guardfile vagrantfile procfile jenkinsfile tiltfile earthfile
    magefile.go package.json package-lock.json yarn.lock pnpm-lock.yaml pnpm-workspace.yaml
    bunfig.toml deno.json deno.jsonc conftest.py setup.py setup.cfg pyproject.toml tox.ini noxfile.py tasks.py fabfile.py
    dodo.py manage.py sitecustomize.py usercustomize.py pytest.ini manifest.in pipfile pipfile.lock cargo.toml build.rs
    go.mod build.gradle build.gradle.kts settings.gradle settings.gradle.kts gradle.properties pom.xml build.xml build.sbt
    cmakelists.txt cmakepresets.json meson.build sconstruct sconscript build build.bazel workspace workspace.bazel
    module.bazel dockerfile containerfile configure
    composer.json mix.exs rebar.config flake.nix shell.nix default.nix .gitlab-ci.yml .travis.yml azure-pipelines.yml
    appveyor.yml .drone.yml gulpfile.js gruntfile.js jest.setup.js vitest.workspace.ts .eslintrc.cjs
    .eslintrc.js .prettierrc.js init.gradle init.gradle.kts gradlew mvnw gradle-wrapper.properties gradle-wrapper.jar mypy.ini
    .mypy.ini pylintrc .pylintrc rust-toolchain rust-toolchain.toml bitbucket-pipelines.yml cloudbuild.yaml netlify.toml
    skaffold.yaml ansible.cfg phpunit.xml phpunit.xml.dist artisan cabal.project stack.yaml setup.hs dune makefile.am
    cmakeuserpresets.json configure.ac meson_options.txt buck snakefile nextflow.config dvc.yaml ipython_config.py activate.r
    xmake.lua premake5.lua wscript waf tupfile thorfile capfile brewfile pnpmfile.js devbox.json devenv.nix pixi.toml
    pip.conf pip.ini uv.toml uv.lock poetry.lock cargo.lock go.work go.sum gemfile.lock composer.lock mix.lock flake.lock bun.lock
    deno.lock package.swift podfile podfile.lock build.zig build.zig.zon project.clj deps.edn bb.edn shadow-cljs.edn nuget.config
    global.json makefile.pl build.pl makefile.in configure.in meson.options conanfile.py conanfile.txt vcpkg.json turbo.json
    nx.json lerna.json angular.json tsconfig.json jakefile jakefile.js toxfile.py pavement.py hatch_build.py pdm_build.py
    hatch.toml locustfile.py gunicorn.conf.py conf.py alembic.ini jupyter_config.py jupyter_lab_config.py
    jupyter_notebook_config.py jupyter_server_config.py activate activate.csh activate_this.py pyvenv.cfg pants.toml
    project.toml pubspec.yaml shard.yml devenv.yaml environment.yml docker-bake.hcl helmfile.yaml kustomization.yaml
    terragrunt.hcl serverless.yml build.ninja compile_commands.json config.ru fastfile crontab
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
    ".bzl",
    ".cmake",
    ".rake",
    ".sbt",
    ".tf",
    ".tfvars",
    ".gradle",
    ".gradle.kts",
    ".sln",
    ".fsproj",
    ".vbproj",
    ".smk",
    ".nf",
    ".bash",
    ".zsh",
    ".fish",
    ".ps1",
    ".bat",
    ".cmd",
    ".desktop",
    ".service",
    ".timer",
)
_NEXT_PREFIXES = (
    "requirements", "dockerfile.", "containerfile.", "docker-compose.", "docker-compose-", "compose.", "taskfile.", "procfile.",
    "gulpfile.", "gruntfile.",
)  # fmt: skip
_SCRIPT_SUFFIXES = (".js", ".cjs", ".mjs", ".ts", ".cts", ".mts")  # `vite.config.mts`, `karma.conf.js`
_EXECUTE_BITS = 0o111
# Tools make these folders by themselves, and nothing in them is run or obeyed.
CACHE_FOLDERS = frozenset(
    """
    .pytest_cache .mypy_cache .ruff_cache .hypothesis .cache .nyc_output .coverage .parcel-cache .turbo .gradle
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
    if is_stage(path):
        return True
    is_hook = name in _HOOK_NAMES or (name in GIT_HOOKS and "hooks" in parts[:-1]) or name.startswith(_HOOK_RUNNERS)
    is_named_so = name.endswith((*_EDITOR_SUFFIXES, *_AGENT_SUFFIXES))
    is_listed = name in _OUTSIDE_FILES or any(part in _OUTSIDE_FOLDERS for part in parts)
    return is_hook or is_named_so or is_listed or _is_settings(parts)


def is_stage(path: str) -> bool:
    """Tells whether a path leads into a folder of a draft that is being applied, or would be taken for one."""
    return any(part.startswith(STAGE_PREFIX) for part in _parts(path))


def _is_settings(parts: list[str]) -> bool:
    """Tells whether a program finds its settings here by the folder and the name together."""
    name, folders = parts[-1], parts[:-1]
    is_fish = "fish" in folders and name.endswith(".fish")
    is_cargos = folders[-1:] == [".cargo"] and name in ("config", "config.toml")
    is_mises = name.startswith(("mise.", ".mise.")) and name.endswith(".toml")
    is_paired = any(pair in _OUTSIDE_PAIRS for pair in pairwise(parts))
    is_home = any(pair[0] == ".config" and pair[1] in _CONFIG_FOLDERS for pair in pairwise(parts))
    is_others = any((folder, name) in _OTHER_VCS for folder in folders)
    return is_fish or is_cargos or is_mises or is_paired or is_home or is_others


def is_run_next(path: str, mode: int = 0) -> bool:
    """Tells whether a person's next ordinary command runs this file."""
    parts = _parts(path)
    if not parts or is_git_data(path) or path.endswith("/"):
        return False
    name = parts[-1]
    is_configuration = name.endswith(_SCRIPT_SUFFIXES) and (".config." in name or ".conf." in name)
    is_named_so = name in _NEXT_FILES or name.endswith(_NEXT_SUFFIXES) or name.startswith(_NEXT_PREFIXES)
    return (
        is_named_so
        or is_configuration
        or bool(mode & _EXECUTE_BITS)
        or any(part in _NEXT_FOLDERS for part in parts[:-1])
    )


def is_git_data(path: str) -> bool:
    """Tells whether git stores data in this file of a `.git` folder: objects, refs, the index, logs."""
    parts = _parts(path)
    if ".git" not in parts[:-1] or parts.count(".git") != 1:
        return False
    inside = parts[parts.index(".git") + 1 :]
    name = inside[-1].removesuffix(".lock")
    if inside[0] == "objects" and len(inside) > 1 and _OBJECT_FOLDER.fullmatch(inside[1]) is None:
        return False
    if inside[0] in _GIT_DATA_FOLDERS:
        return name not in _GIT_LINKED
    is_sample = len(inside) == 2 and inside[0] == "hooks" and name.endswith(_SAMPLE)
    return is_sample or inside == ["info", "refs"] or (len(inside) == 1 and name in _GIT_DATA_FILES)


def is_cache(path: str) -> bool:
    """Tells whether a tool keeps results of its own in this file, which nothing runs or obeys."""
    parts = _parts(path)
    return bool(parts) and (parts[-1] in _CACHE_FILES or any(part in CACHE_FOLDERS for part in parts))


def _parts(path: str) -> list[str]:
    return [_plain(part) for part in path.split("/") if part not in ("", ".")]


@functools.lru_cache(maxsize=4096)  # The folders of a large set come again and again.
def _plain(part: str) -> str:
    seen = "".join(filter(is_seen, unicodedata.normalize("NFKC", part)))
    # An 8.3 name of Windows, and a stream of NTFS, are other spellings of the same file.
    plain = seen.split(":", 1)[0].rstrip(". ").casefold()
    return ".git" if plain.startswith("git~") else plain
