"""Package managers and checkers. Owns: which of their commands only look. Not: applying it (tools, programs).

What builds, resolves or checks code usually runs some of it: `cargo check` runs build scripts, `brew bundle` and every `yarn`
a file that the workspace names, `uv` the interpreter of its `.venv`. So most of it asks, whatever it is called. Some are in no
table at all, because a file of the workspace rules even what only looks: cargo and rustup (`rust-toolchain.toml` may name the
programs themselves, an alias any words), npm (`.npmrc` names the browser, the git and the folder of its logs), pnpm
(`.pnpmfile.cjs`), ansible (`ansible.cfg` names folders of plug-ins and a log), packer (plug-ins in the folder it starts in).
"""

from palyra.core.shell.invocation import Invocation, short
from palyra.core.shell.judgement import Code
from palyra.core.shell.programs import Operands, ProgramRule, judge_program, program
from palyra.core.shell.tools import ToolRule, is_help, judge_tool, tool

_NO_CONFIG = "-c --config-file -o --option"

PACKAGE_TOOLS: dict[str, ToolRule] = {
    "pip": tool(
        """
        list show freeze check inspect hash help debug
        index: versions
        config: list get debug
        cache: dir info list
        """,
        is_remote=True,
        local="list show freeze check inspect hash help debug config cache",
        writes="--log --report",
        runs="--python",
        leads_away="--proxy --cert --client-cert --trusted-host --keyring-provider --cache-dir --find-links "
        "--extra-index-url",
        path="--path -r --requirement",
        text="-i --index-url --format --exclude -a --algorithm",
        flag="--files",
    ),
    "brew": tool(
        """
        info list ls search deps desc leaves uses outdated missing config doctor dr options tap-info formulae casks log cat
        commands command formula help shellenv abv livecheck lc linkage analytics!
        analytics completions: state
        services: list info
        """,
        is_remote=True,
        local="list ls leaves config doctor dr commands help shellenv log cat formulae casks missing formula "
        "command linkage",
        forwards="ruby irb sh",
        runs="--graph --github",
    ),
    "uv": tool("help", forwards="run tool", leads_away="--config-file --directory --project --cache-dir"),
    "gem": tool(
        "list search environment env help which contents", is_remote=True, leads_away="--source -s --config-file"
    ),
    "apt": tool("list show search policy depends rdepends", leads_away=_NO_CONFIG),
    "apt-cache": tool("show search policy depends rdepends madison stats pkgnames showpkg", leads_away=_NO_CONFIG),
    "go": tool(
        "version help env",
        is_single_dash=True,
        writes="-w -u",
        # Options end at the first word that is none, so what follows it belongs to something else.
        forwards="build clean fix fmt generate get install list mod run telemetry test tool vet work",
    ),
    "pre-commit": tool("validate-config validate-manifest help", forwards="try-repo run"),
    "systemctl": tool(
        """
        status list-units list-unit-files is-active is-enabled is-failed show cat get-default list-timers list-sockets list-jobs
        list-dependencies is-system-running
        """,
        leads_away="-H --host -M --machine --root --image",
        text="-t --type -p --property -n --lines -o --output --state",
        flag="--no-pager --all -a --user --system --failed -l --full -q --quiet",
    ),
}
PACKAGE_TOOLS["pip3"] = PACKAGE_TOOLS["pip"]

PACKAGE_PROGRAMS: dict[str, ProgramRule] = {
    "dpkg": program(
        Operands.TEXT,
        only=True,
        flag="-l --list -L --listfiles -s --status -S --search -p --print-avail --get-selections "
        "--print-architecture -V --verify --version --help",
    ),
    "dpkg-query": program(
        Operands.TEXT,
        only=True,
        text="-f --showformat",
        flag="-l --list -W --show -s --status -L --listfiles -S --search -p --print-avail --version --help",
    ),
    "rpm": program(
        Operands.TEXT,
        only=True,
        requires="-q --query --version --help",  # Without it, -i installs.
        text="--qf --queryformat",
        flag="-q --query -a --all -i --info -l --list -f --file --requires --provides --changelog --version --help",
    ),
}

PACKAGE_PROGRAMS["black"] = program(
    requires="--check --diff",
    path="--config",
    text="-t --target-version -l --line-length --include --exclude --extend-exclude",
)
PACKAGE_PROGRAMS["isort"] = program(
    requires="--check-only --check -c", path="--settings-path --settings-file", text="--profile --line-length -l"
)
_RUFF = program(
    writes="--fix --fix-only --output-file -o --add-noqa --watch -w",
    path="--config --cache-dir --stdin-filename",
    text="--select --extend-select --ignore --extend-ignore --exclude --extend-exclude --output-format "
    "--target-version --line-length",
)
# `fix`, `fix-only` and `cache-dir` may be set in a file; these words win over it.
_RUFF_PLAIN = frozenset(("--no-cache", "--no-fix", "--no-fix-only"))
_RUFF_DIFF = frozenset(("--no-cache", "--diff"))
_BREW_WORDS = frozenset(
    "--cache --caskroom --cellar --prefix --repository --repo --env --config --version -v -S".split()
)


def judge_ruff(invocation: Invocation) -> None:
    words = invocation.values()
    if is_help(invocation, frozenset()) or words[:1] in (("version",), ("help",), ("linter",), ("rule",)):
        return
    if words[:1] not in (("check",), ("lint",)):
        invocation.ask(Code.WRITES, "ruff with another command than check may rewrite files")
    if not any(wanted.issubset(words) for wanted in (_RUFF_PLAIN, _RUFF_DIFF)):
        words_of = " ".join(sorted(_RUFF_PLAIN))
        invocation.ask(Code.WRITES, f"settings of the workspace may make ruff rewrite files: write {words_of}")
    if any(
        "=" in argument.lead.removeprefix("--config=") and "fix" in argument.lead for argument in invocation.arguments
    ):
        invocation.ask(Code.WRITES, "a setting makes ruff rewrite files")
    judge_program(_RUFF, invocation)


def judge_brew(invocation: Invocation) -> None:
    """Formulae are programs: one that is a file is run to be shown."""
    for argument in invocation.arguments:
        if ".rb" in argument.source or ("/" in argument.lead and argument.lead.startswith((".", "/", "~"))):
            invocation.ask(Code.RUNS_CODE, f"brew would run {short(argument.source)} to show it", argument)
    words = invocation.values()
    if words[:1] and words[0] in _BREW_WORDS and (len(words) == 1 or words[0] not in ("-v", "--version", "--config")):
        invocation.is_known()
        return
    judge_tool(PACKAGE_TOOLS["brew"], invocation)
