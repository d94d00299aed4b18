"""The table of all rules. Owns: which rule judges which program. Not: the rules.

A program that is not here asks.
"""

from functools import partial

from palyra.core.shell import builtins, host, packages, special, sql, web, wrappers
from palyra.core.shell.archives import judge_gzip, judge_seven, judge_tar, judge_unzip
from palyra.core.shell.awk import judge_awk
from palyra.core.shell.cloud import judge_aws, judge_az, judge_gcloud
from palyra.core.shell.find_command import judge_fd, judge_find
from palyra.core.shell.git import judge_git
from palyra.core.shell.invocation import Rule
from palyra.core.shell.programs import judge_program
from palyra.core.shell.readers import READERS
from palyra.core.shell.sed import judge_sed
from palyra.core.shell.services import SERVICES
from palyra.core.shell.tools import judge_tool

_WORDS: dict[str, Rule] = {
    "alias unalias": builtins.judge_changing,
    "awk gawk mawk nawk original-awk": judge_awk,
    "sed gsed": judge_sed,
    "find gfind": judge_find,
    "fd fdfind": judge_fd,
    "git": judge_git,
    "tar gtar bsdtar": judge_tar,
    "unzip": judge_unzip,
    "gzip gunzip bzip2 bunzip2 xz unxz lzma zstd unzstd lz4": judge_gzip,
    "7z 7za 7zr 7zz": judge_seven,
    "aws": judge_aws,
    "az": judge_az,
    "gcloud": judge_gcloud,
    "curl": web.judge_curl,
    "wget": web.judge_wget,
    "dig host nslookup ping ping6": web.judge_lookup,
    "sqlite3 duckdb": sql.judge_sqlite,
    "psql": sql.judge_psql,
    "mysql mariadb": sql.judge_mysql,
    "sqlcmd": sql.judge_sqlcmd,
    "jq": special.judge_jq,
    "yq": special.judge_yq,
    "openssl": special.judge_openssl,
    "fzf": special.judge_fzf,
    "gh": special.judge_gh,
    "auth0": special.judge_auth0,
    "helm": special.judge_helm,
    "kubectl": special.judge_kubectl,
    "terraform tofu": special.judge_terraform,
    "ip": host.judge_ip,
    "ifconfig": host.judge_ifconfig,
    "dscl": host.judge_dscl,
    "ruff": packages.judge_ruff,
    "brew": packages.judge_brew,
    "env": wrappers.judge_env,
    "xargs gxargs": wrappers.judge_xargs,
    "sh bash dash zsh": wrappers.judge_shell,
    "nice ionice timeout time stdbuf setsid caffeinate arch builtin command": wrappers.judge_wrapper,
    "printf": builtins.judge_printf,
    "test [": builtins.judge_test,
    "read": builtins.judge_read,
    "export": builtins.judge_export,
    "set": builtins.judge_set,
    "exit return break continue shift times type": builtins.judge_steering,
    "wait jobs": builtins.judge_waiting,
}

RULES: dict[str, Rule] = {
    **{name: partial(judge_program, row) for name, row in READERS.items()},
    **{name: partial(judge_program, row) for name, row in host.HOST_PROGRAMS.items()},
    **{name: partial(judge_program, row) for name, row in packages.PACKAGE_PROGRAMS.items()},
    **{name: partial(judge_tool, row) for name, row in SERVICES.items()},
    **{name: partial(judge_tool, row) for name, row in packages.PACKAGE_TOOLS.items()},
    **dict.fromkeys(host.FIRST_WORD_PROGRAMS, host.judge_first_word),
    **dict.fromkeys(builtins.CHANGING, builtins.judge_changing),
    **dict.fromkeys(wrappers.PRIVILEGED, wrappers.judge_privileged),
    **{name: rule for names, rule in _WORDS.items() for name in names.split()},
}
