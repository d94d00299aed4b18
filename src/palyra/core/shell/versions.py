"""Programs that may only be asked who they are. Owns: that `python --version` is free. Not: anything else they do.

They run what they are given, so everything else asks. They are found on PATH, which nothing can change without asking.
"""

from palyra.core.shell.invocation import Invocation

VERSIONED = frozenset(
    """
    ansible ansible-console ansible-inventory ansible-lint ansible-playbook ansible-pull ansible-test ansible-vault bash black
    bun bundle cc cdk clang clang++ cmake code composer curl dash deno  duckdb elixir emacs eslint fish fzf g++ gcc ghc
    git  gzip gunzip iconv isort java javac jest julia just kotlin make meson  mypy mysql nginx ninja node nodejs npx
    ocaml openssl perl php pipenv pipx pkgutil poetry prettier profiles prometheus psql pyenv pyright  python python2
    python3 R rbenv rtk ruby ruff    scala sh sqlcmd sqlite3 ssh svn swift swiftc textutil tmutil  tsc uvx
    valgrind vim virtualenv vite vitest wget xxd yq zig zsh
    """.split()
)
_LONG = frozenset(("--version", "--help"))
# Only where the letter is known to print and end: to `bash`, -h is a setting, and it goes on to run its input.
_SHORT: dict[str, str] = {
    **dict.fromkeys(("python", "python2", "python3"), "-V -h"),
    **dict.fromkeys(("node", "nodejs", "ruby", "perl", "php", "make"), "-v -h"),
    **dict.fromkeys(("java", "javac", "sqlite3", "duckdb", "textutil"), "-version -help"),
    **dict.fromkeys(("psql", "mysql", "ssh"), "-V"),
    **dict.fromkeys(("curl", "wget"), "-V -h"),
    **dict.fromkeys(("gcc", "g++", "clang", "cc", "xxd"), "-v"),
    **dict.fromkeys(("ansible", "ansible-vault", "ansible-console", "ansible-pull", "ansible-playbook"), "-h"),
    **dict.fromkeys(("cdk", "fzf", "isort", "prometheus", "rtk", "pkgutil", "black"), "-h"),
}


def is_version(invocation: Invocation) -> bool:
    """Whether the program is asked for nothing but its version or help."""
    words = invocation.values()
    if len(words) != 1 or invocation.program not in VERSIONED:
        return False
    return words[0] in _LONG or words[0] in _SHORT.get(invocation.program, "").split()
