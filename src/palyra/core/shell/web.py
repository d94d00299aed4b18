"""curl, wget and look-ups of names. Owns: which requests only fetch. Not: whether the network may be used at all (judgement).

A request that only fetches still tells its address something, so it must be known word for word before it runs, name a public
host, and carry nothing out of a file. Addresses of this machine and its neighbours ask: `http.fetch` guards those, curl does not.
"""

import re

from palyra.core.shell.invocation import Invocation, short
from palyra.core.shell.judgement import Code
from palyra.core.shell.options import OptionKind, option_table, read_line
from palyra.core.shell.paths import is_sink
from palyra.core.shell.programs import judge_option
from palyra.core.shell.words import Argument

_URL = re.compile(
    r"(?:(?P<scheme>[a-z]+)://)?(?:[^@/?#]*@)?(?P<host>[^/?#:@\[\]{}]+)(?::\d+)?(?P<rest>[/?#].*)?", re.IGNORECASE
)
_PUBLIC_HOST = re.compile(r"(?=.*[a-z])(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+[a-z]{2,}\.?", re.IGNORECASE)
_NEAR_HOST = re.compile(r".*\.(?:local|localhost|internal|intranet|lan|home|corp|arpa|test|onion)\.?", re.IGNORECASE)
_SCHEMES = frozenset(("http", "https", "ftp", "ftps"))
_FETCHES = frozenset(("GET", "HEAD", "OPTIONS", "TRACE"))

_CURL = option_table(
    writes="-O --remote-name --remote-name-all -J --remote-header-name --output-dir -D --dump-header -c --cookie-jar "
    "--trace --trace-ascii --stderr --etag-save --hsts --alt-svc --libcurl --xattr --create-dirs",
    leads_away="-K --config -x --proxy --preproxy --socks4 --socks4a --socks5 --socks5-hostname --unix-socket "
    "--abstract-unix-socket --connect-to --resolve --interface --dns-servers --doh-url -n --netrc --netrc-optional "
    "--netrc-file --cert -E --key --variable --engine -b --cookie --etag-compare --proxy-header",
    sends="-d --data --data-raw --data-ascii --data-binary --data-urlencode --json -F --form --form-string -T "
    "--upload-file --mail-from --mail-rcpt --mail-auth -a --append -t --telnet-option",
    text="-o --output --url -X --request -H --header -A --user-agent -e --referer -u --user -w --write-out -m "
    "--max-time --connect-timeout --retry --retry-delay --retry-max-time --max-redirs -r --range -C --continue-at -z "
    "--time-cond --limit-rate --cacert --capath --ciphers --tls-max --oauth2-bearer --noproxy --max-filesize -Q "
    "--quote --parallel-max --keepalive-time -Y -y --speed-limit --speed-time --url-query "
    "--curves --tls13-ciphers --pinnedpubkey --rate --cert-type --login-options --expect100-timeout "
    "--happy-eyeballs-timeout-ms --local-port",
    flag="-v --verbose -s --silent -S --show-error -L --location --location-trusted -f --fail --fail-with-body -i "
    "--include -I --head -k --insecure -g --globoff -N --no-buffer -0 --http1.0 --http1.1 --http2 --http3 "
    "--http2-prior-knowledge --compressed -# --progress-bar -4 --ipv4 -6 --ipv6 -1 --tlsv1 -2 -3 --tlsv1.0 --tlsv1.1 "
    "--tlsv1.2 --tlsv1.3 --basic --digest --ntlm --negotiate --anyauth -Z --parallel --raw --tcp-nodelay "
    "--path-as-is --no-keepalive --no-progress-meter --retry-all-errors --retry-connrefused -q --disable --ssl "
    "--ssl-reqd -l --list-only -G --get -V --version -M --manual -h --help --no-sessionid -j --junk-session-cookies "
    "--fail-early --ftp-pasv --tr-encoding --post301 --post302 --post303 --trace-time --styled-output "
    "--ssl-no-revoke --ssl-revoke-best-effort --ca-native --cert-status --disable-eprt --disable-epsv --http0.9 "
    "--parallel-immediate --suppress-connect-headers --tcp-fastopen --ignore-content-length --no-alpn -R "
    "--remote-time --disallow-username-in-url",
)
_FTP_LOOKS = frozenset("PWD NLST LIST STAT HELP TYPE SYST FEAT NOOP SIZE MDTM MLSD MLST".split())
_WGET = option_table(
    text="-T --timeout -t --tries -U --user-agent --header --connect-timeout --read-timeout --dns-timeout "
    "--max-redirect",
    flag="--spider -q --quiet -v --verbose -nv --no-verbose -S --server-response --no-check-certificate -4 -6 "
    "--https-only -h --help -V --version",
)


def judge_curl(invocation: Invocation) -> None:
    line = read_line(_CURL, invocation.arguments)
    if not line.operands and all(option.kind is OptionKind.FLAG for option in line.options):
        return
    for option in line.options:
        judge_option(option, invocation, is_closed=True)
        if option.name in ("-X", "--request"):
            _judge_method(invocation, option.values[-1:])
        elif option.name in ("-o", "--output"):
            _judge_output(invocation, option.values[-1:])
        elif option.name in ("-Q", "--quote"):
            _judge_quote(invocation, option.values[-1:])
        elif option.name in ("-H", "--header", "--url-query") and any("@" in value.lead for value in option.values):
            invocation.ask(Code.SENDS, f"{option.name} of curl may send a file", option.argument)
        elif option.name in ("-w", "--write-out") and any(
            value.lead.startswith("@") or "%output" in value.lead for value in option.values
        ):
            invocation.ask(Code.WRITES, f"{option.name} of curl reads or writes a file", option.argument)
        elif option.name in ("--cacert", "--capath"):
            for value in option.values:
                invocation.reads(value)
    if not invocation.is_known():
        return
    named = (value for option in line.options if option.name == "--url" for value in option.values)
    for operand in (*line.operands, *named):
        _judge_url(invocation, operand)


def _judge_method(invocation: Invocation, values: tuple[Argument, ...]) -> None:
    if not values or (values[0].value or "").upper() not in _FETCHES:
        invocation.ask(Code.SENDS, "curl would do more than fetch", values[0] if values else None)


def _judge_output(invocation: Invocation, values: tuple[Argument, ...]) -> None:
    if not values or not (values[0].value == "-" or is_sink(values[0].value or "")):
        invocation.ask(Code.WRITES, "curl would save what it fetches", values[0] if values else None)


def _judge_quote(invocation: Invocation, values: tuple[Argument, ...]) -> None:
    word = (values[0].value or "").lstrip("-+*").partition(" ")[0].upper() if values else ""
    if word not in _FTP_LOOKS:
        invocation.ask(Code.SENDS, f"curl would send the command {short(word)}", values[0] if values else None)


def _judge_url(invocation: Invocation, operand: Argument) -> None:
    match = _URL.fullmatch(operand.value or "")
    host = match["host"] if match else ""
    if match is None or (match["scheme"] or "http").lower() not in _SCHEMES:
        invocation.ask(Code.OUTSIDE_WORKSPACE, f"{short(operand.source)} is not an address of the web", operand)
    elif not _PUBLIC_HOST.fullmatch(host) or _NEAR_HOST.fullmatch(host):
        invocation.ask(Code.OUTSIDE_WORKSPACE, f"{short(host)} may be this machine or its neighbour", operand)
    invocation.needs_network(host)


def judge_wget(invocation: Invocation) -> None:
    line = read_line(_WGET, invocation.arguments)
    for option in line.options:
        if option.kind is OptionKind.UNKNOWN:
            words = f"{short(option.name)} of wget is not known to be harmless"
            invocation.ask(Code.UNKNOWN_OPTION, words, option.argument)
    if not any(option.name == "--spider" for option in line.options):
        invocation.ask(Code.WRITES, "wget without --spider saves what it fetches")
    if not invocation.is_known():
        return
    for operand in line.operands:
        _judge_url(invocation, operand)


def judge_lookup(invocation: Invocation) -> None:
    """dig, host, nslookup, ping: they tell a name to the network, and nothing else that is in their words."""
    words = invocation.values()
    if any(word.startswith(("-f", "@", "-k", "+trusted-key", "-I", "-p")) for word in words):
        invocation.ask(Code.UNKNOWN_OPTION, f"{invocation.program} with these options is not followed")
    if invocation.is_known():
        invocation.needs_network()
