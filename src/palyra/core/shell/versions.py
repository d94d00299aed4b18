"""Programs that may only be asked who they are. Owns: that `python --version` is free. Not: anything else they do.

They run what they are given, so everything else asks. They are found on PATH, which nothing can change without asking.
Left out: programs that obey a file of the workspace before they answer. ansible writes to the log that `ansible.cfg` names; jest
goes over to the copy in `node_modules`; poetry, bundle and composer load plug-ins; cargo may be the one that `rust-toolchain.toml`
names.
"""

from palyra.core.shell.invocation import Invocation

VERSIONED = frozenset(
    """
    bash black bun cc cdk clang clang++ cmake code curl dash deno duckdb emacs eslint fish fzf g++ gcc ghc git gzip gunzip iconv
    isort java javac julia just kotlin make meson mypy mysql nginx ninja node nodejs ocaml openssl perl php pipenv pipx pkgutil
    prettier profiles prometheus psql pyenv pyright python python2 python3 R rbenv rtk ruby ruff scala sh sqlcmd sqlite3 ssh svn
    swift swiftc textutil tmutil tsc uvx vim virtualenv vite vitest wget xxd yq zig zsh
    """.split()
)
# Asked for anything else, help too, they may load what a file of the workspace names.
_ONLY_VERSION = frozenset(("npm", "npx"))
_LONG = frozenset(("--version", "--help"))
# Only where the letter is known to print and end: to `bash`, -h is a setting, and it goes on to run its input.
_SHORT: dict[str, str] = {
    **dict.fromkeys(("python", "python2", "python3"), "-V -h"),
    **dict.fromkeys(("node", "nodejs", "ruby", "perl", "php", "make"), "-v -h"),
    **dict.fromkeys(("java", "javac", "sqlite3", "duckdb", "textutil"), "-version -help"),
    **dict.fromkeys(("psql", "mysql", "ssh"), "-V"),
    **dict.fromkeys(("curl", "wget"), "-V -h"),
    **dict.fromkeys(("gcc", "g++", "clang", "cc", "xxd"), "-v"),
    **dict.fromkeys(("cdk", "fzf", "isort", "prometheus", "rtk", "pkgutil", "black"), "-h"),
}


def is_version(invocation: Invocation) -> bool:
    """Whether the program is asked for nothing but its version or help."""
    words = invocation.values()
    if invocation.program in _ONLY_VERSION:
        return words in (("--version",), ("-v",))
    if len(words) != 1 or invocation.program not in VERSIONED:
        return False
    return words[0] in _LONG or words[0] in _SHORT.get(invocation.program, "").split()
