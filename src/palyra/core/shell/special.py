"""Programs with rules of their own: jq, yq, openssl, fzf, `gh api`, `auth0 api`, kubectl. Owns: those rules. Not: tables."""

import re
from itertools import pairwise

import msgspec

from palyra.core.shell.invocation import Invocation, short
from palyra.core.shell.judgement import Code
from palyra.core.shell.options import option_table, read_line
from palyra.core.shell.programs import Operands, judge_option, judge_program, program
from palyra.core.shell.services import SERVICES
from palyra.core.shell.tools import is_help, judge_tool
from palyra.core.shell.words import Argument, InputFeed, plain

_JQ = program(
    Operands.PATTERN,
    instead="-f --from-file",
    path="-f --from-file -L --slurpfile:2 --rawfile:2 --argfile:2",
    text="--arg:2 --argjson:2 --indent",
    flag="--args --jsonargs",
)
_JQ_MODULES = re.compile(r"\b(?:import|include)\b")

_YQ = option_table(
    writes="-i --inplace --in-place -s --split-exp --split-exp-file",
    runs="--security-enable-system-operator",
    leads_away="--from-file",
    text="-o --output-format -p --input-format -I --indent",
)
_YQ_READS = re.compile(r"\b(?:load\w*|strload|eval|system)\b")

_OPENSSL = option_table(
    is_single_dash=True,
    path="-in -CAfile -CApath -untrusted -CRLfile",
    text="-inform -nameopt -certopt -checkend -checkhost -checkip -checkemail -ext",
    flag="-noout -text -issuer -subject -dates -startdate -enddate -serial -fingerprint -sha1 -sha256 -sha512 -md5 "
    "-pubkey -modulus -purpose -hash -subject_hash -issuer_hash -email -ocsp_uri -alias -verify -lastupdate "
    "-nextupdate -crlnumber -show_chain -a -v -commands -cipher-commands -digest-commands -cipher-algorithms "
    "-digest-algorithms -public-key-algorithms -providers -disabled -help",
)
_OPENSSL_NOOUT = frozenset(("x509", "req", "crl"))
_OPENSSL_TELLS = frozenset(("version", "list", "ciphers", "errstr", "help", "verify"))

_FZF = option_table(
    runs="--listen --listen-unsafe --with-shell --become --tmux --popup",
    writes="--history",
    text="--bind --preview -d --delimiter -n --nth --with-nth -q --query -f --filter --prompt --header "
    "--border-label --pointer --marker --color --expect --height --min-height --margin --padding --info --separator "
    "--scheme --algo --tiebreak--preview-window --preview-label --layout --header-lines --tabstop --ellipsis "
    "--jump-labels --footer --gutter --ghost",
    flag="--header-first --header-border --header-label --header-label-pos --header-lines-border --preview-label-pos "
    "--preview-border --footer-border --footer-label --footer-label-pos --border --list-border --list-label "
    "--history-size",
)
_FZF_RUNNING = re.compile(
    r"(?<![\w-])(?:(?:bg-)?(?:execute|transform|reload)(?:-[a-z-]+)?|become|preview|change-preview)(?![\w-])"
)
_FZF_ONE = re.compile(
    r"[^:]+:(?:reload|reload-sync|preview|transform(?:-[a-z-]+)?|execute(?:-silent)?)(?::(.*)|\((.*)\))"
)
_FZF_ITEM = re.compile(r"\{(?:[+*fnr]*(?:-?\d+(?:\.\.-?\d*)?|\.\.-?\d+)?|q)\}")
_FZF_NAME = "./item"

_GH_API = option_table(
    text="-X --method -H --header -q --jq -t --template -f --raw-field -F --field -p --preview --hostname",
    flag="--paginate --slurp -i --include --silent --verbose",
)
_AUTH0_API = option_table(text="-q --query --tenant", flag="--no-input --no-color --debug --json", writes="-d --data")
_DRY_RUNS = frozenset(("--dry-run", "--dry-run=client", "--dry-run=server"))
_FMT_FLAGS = frozenset("-check -diff -list=true -list=false -recursive -no-color -write=false".split())
_METHODS = frozenset(("post", "put", "patch", "delete", "head", "options"))


def judge_jq(invocation: Invocation) -> None:
    for argument in invocation.arguments:
        if _JQ_MODULES.search(argument.lead):
            invocation.ask(Code.OUTSIDE_WORKSPACE, "jq would load a module that its program names", argument)
    judge_program(_JQ, invocation)


def judge_yq(invocation: Invocation) -> None:
    line = read_line(_YQ, invocation.arguments)
    for option in line.options:
        judge_option(option, invocation, is_closed=False)
    for argument in line.loose:
        invocation.ask(Code.UNKNOWN_VALUE, f"{short(argument.source)} may turn out to be an option of yq", argument)
    for operand in line.operands:
        if operand.value not in ("eval", "e", "eval-all", "ea") and _YQ_READS.search(operand.lead):
            invocation.ask(Code.OUTSIDE_WORKSPACE, "yq would load files that its program names", operand)
        if re.match(r"(?:/|~|\.\./)", operand.lead) or operand.value is None:
            invocation.reads(operand)


def judge_openssl(invocation: Invocation) -> None:
    words = invocation.values()
    command = words[0] if words else ""
    line = read_line(_OPENSSL, invocation.arguments[1:])
    for option in line.options:
        judge_option(option, invocation, is_closed=True)
    is_quiet = any(option.name == "-noout" for option in line.options)
    if not (command in _OPENSSL_TELLS or (command in _OPENSSL_NOOUT and is_quiet)):
        invocation.ask(Code.WRITES, f"openssl {short(command)} is not known to only tell".replace("  ", " "))
    for argument in line.loose:
        doubt = f"{short(argument.source)} may turn out to be an option of openssl: write ./{short(argument.source)}"
        invocation.ask(Code.UNKNOWN_VALUE, doubt, argument)
    for operand in line.operands:
        invocation.reads_if_path(operand)


def judge_fzf(invocation: Invocation) -> None:
    """It shows names; what it runs for them is judged as a text with a name in it."""
    line = read_line(_FZF, invocation.arguments)
    for option in line.options:
        judge_option(option, invocation, is_closed=False)
        for value in option.values:
            if option.name == "--preview":
                _judge_preview(invocation, value)
            elif option.name == "--bind" and (not value.is_certain or _FZF_RUNNING.search(value.value or "")):
                _judge_binding(invocation, value)
    for argument in line.loose:
        invocation.ask(Code.UNKNOWN_VALUE, f"{short(argument.source)} may turn out to be an option of fzf", argument)


def _judge_preview(invocation: Invocation, command: Argument) -> None:
    if invocation.place.feed is InputFeed.ANYTHING:
        invocation.ask(Code.UNKNOWN_VALUE, "what fzf would show may not be names of the workspace", command)
    if command.value is None or command.is_pattern:
        invocation.ask(Code.UNKNOWN_VALUE, f"what {short(command.source)} runs is not known", command)
        return
    text = plain(_FZF_ITEM.sub(_FZF_NAME, command.value), command)
    invocation.run_text(msgspec.structs.replace(text, source=command.source), invocation.place)


def _judge_binding(invocation: Invocation, binding: Argument) -> None:
    """A key with one action that runs one command; more of them in one word are not taken apart."""
    one = _FZF_ONE.fullmatch(binding.value or "")
    if one and binding.is_certain:
        _judge_preview(invocation, msgspec.structs.replace(binding, value=one[1] or one[2] or ""))
        return
    invocation.ask(Code.RUNS_CODE, f"{short(binding.source)} makes fzf run something", binding)


def judge_gh(invocation: Invocation) -> None:
    if invocation.values()[:1] != ("api",) or is_help(invocation, frozenset()):
        judge_tool(SERVICES["gh"], invocation)
        return
    line = read_line(_GH_API, invocation.arguments[1:])
    methods = [
        option.values[-1].value or "" for option in line.options if option.name in ("-X", "--method") and option.values
    ]
    has_fields = any(option.name in ("-f", "-F", "--field", "--raw-field") for option in line.options)
    for option in line.options:
        judge_option(option, invocation, is_closed=True)
        if any("@" in (value.value or "") for value in option.values):
            invocation.ask(Code.SENDS, "gh api would send a file", option.argument)
    is_get = all(method.upper() == "GET" for method in methods) and (bool(methods) or not has_fields)
    if not is_get or any(
        (operand.value or "").startswith("graphql") or "://" in operand.lead for operand in line.operands
    ):
        invocation.ask(Code.SENDS, "gh api would do more than fetch")
    invocation.is_known()
    invocation.needs_network("api.github.com")


def judge_auth0(invocation: Invocation) -> None:
    if invocation.values()[:1] != ("api",):
        judge_tool(SERVICES["auth0"], invocation)
        return
    line = read_line(_AUTH0_API, invocation.arguments[1:])
    for option in line.options:
        judge_option(option, invocation, is_closed=True)
    if not line.operands or (line.operands[0].value or "").lower() in _METHODS:
        invocation.ask(Code.SENDS, "auth0 api would do more than fetch")
    invocation.is_known()
    invocation.needs_network("auth0.com")


def judge_helm(invocation: Invocation) -> None:
    """A dry run renders and asks the cluster, and changes nothing."""
    words = invocation.values()
    for index, word in enumerate(words):
        # After an option it may be that option's value.
        is_certain = word in _DRY_RUNS and index > 0 and not words[index - 1].startswith("-")
        if is_certain and words[0] in ("install", "upgrade", "rollback", "uninstall"):
            named = (plain("template", invocation.arguments[0]), *invocation.arguments[1:])
            judge_tool(SERVICES["helm"], msgspec.structs.replace(invocation, arguments=named))
            return
    judge_tool(SERVICES["helm"], invocation)


def judge_terraform(invocation: Invocation) -> None:
    words = invocation.values()
    if (
        words[:1] == ("fmt",)
        and "-check" in words[1:2]
        and all(word in _FMT_FLAGS or not word.startswith("-") for word in words)
    ):
        for argument in invocation.arguments[2:]:
            invocation.reads(argument)
        return
    if words[:1] == ("output",) and {"-json", "-raw", "--json", "--raw"} & set(words):
        invocation.ask(Code.DISCLOSES, "terraform would show outputs that are marked as secret")
    judge_tool(SERVICES["terraform"], invocation)


def judge_kubectl(invocation: Invocation) -> None:
    """Secrets are listed freely and shown on an answer only."""
    judge_tool(SERVICES["kubectl"], invocation)
    words = invocation.values()
    shown = [word for word in words if re.match(r"-o|--output|--template|-ojson|-oyaml", word)]
    is_plain = all(word in ("-owide", "-oname", "--output=wide", "--output=name", "-o", "--output") for word in shown)
    kinds = [after for word, after in pairwise(words) if word in ("-o", "--output")]
    names_secret = any(re.search(r"secret", word, re.IGNORECASE) for word in words)
    for argument in invocation.arguments:
        template = re.search(r"-file=(.*)", argument.value or "")
        if template:
            invocation.reads(plain(template[1], argument))
    if "get" in words and names_secret and (not is_plain or not set(kinds) <= {"wide", "name"}):
        invocation.ask(Code.DISCLOSES, "kubectl would show what a secret holds")
