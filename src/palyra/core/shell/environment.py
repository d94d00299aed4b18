"""Variables that are set before a command. Owns: which may be, without changing what runs. Not: what their values are.

For programs of the plain table it is known which variables they heed, so others may have any name. Everything else may heed what
nobody here has heard of, so only names that are known to be harmless may be set for it.
"""

import re

# What a language, a time, a terminal or a log looks like.
_HARMLESS = re.compile(
    r"LANG|LANGUAGE|LC_[A-Z]+|TZ|TERM|COLUMNS|LINES|NO_COLOR|FORCE_COLOR|CLICOLOR|CLICOLOR_FORCE|COLORTERM|CI|DEBIAN_FRONTEND|"
    r"AWS_REGION|AWS_DEFAULT_REGION|AWS_DEFAULT_OUTPUT|PYTHONUNBUFFERED|PYTHONIOENCODING|RUST_BACKTRACE"
)
# What the loader, the shell and the plain programs heed.
_HEEDED = re.compile(
    r"(?:LD|DYLD|BASH|GLIBC|MALLOC|GCONV|PYTHON|PERL|RUBY|NODE|JAVA|GIT|SSH|LESS|MAN|GREP|RIPGREP|FZF|BAT|JQ|TAR|ZIP|GZIP|XZ|AWK|"
    r"POSIX|TREE|DIRCOLORS|LS|FD|AG|HOMEBREW|NPM|PIP|CARGO|RUST|GO|DOCKER|KUBE|HELM|AWS|AZURE|GCLOUD|CLOUDSDK|GH|GITHUB|ANSIBLE|"
    r"TF|PG|MYSQL|SQLITE|CURL|WGET|SSL|OPENSSL)(?:_.*|[A-Z0-9]*)|"
    r".*(?:PATH|PRELOAD|PAGER|EDITOR|VISUAL|BROWSER|SHELL|OPTS|OPTIONS|OPT|FLAGS|ARGS|COMMAND|CMD|EXEC|PROXY|PROMPT|CONFIG|RC|HOOK|"
    r"WRAPPER|LIBRARY|PLUGIN|HOME|DIR)|"
    r"ENV|IFS|CDPATH|GLOBIGNORE|PS[0-4]|PWD|OLDPWD|TMP|TEMP|USER|LOGNAME|HISTFILE|ZDOTDIR|TMOUT|UID|EUID|PPID|REPLY|_|"
    # To the shell these are numbers: what is assigned to them is reckoned, and that may run commands.
    r"SECONDS|RANDOM|SRANDOM|HISTCMD|OPTIND|LINENO|EPOCHSECONDS|EPOCHREALTIME|SHLVL|FUNCNEST|GROUPS|DIRSTACK|FUNCNAME",
    re.IGNORECASE,
)


def is_harmless_name(name: str) -> bool:
    """Whether a variable may be set for the rest of a text."""
    return bool(_HARMLESS.fullmatch(name)) or not _HEEDED.fullmatch(name)


def is_harmless_for(name: str, *, is_plain: bool) -> bool:
    """Whether a variable may be set for one command."""
    return bool(_HARMLESS.fullmatch(name)) or (is_plain and not _HEEDED.fullmatch(name))
