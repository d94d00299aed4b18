"""The machine itself: network, log, services, disks. Owns: when its tools only tell. Not: the files of the workspace.

In the sandbox most of them see little. They are here because people ask agents what a machine is and does, and telling
changes nothing.
"""

import re

from palyra.core.shell.invocation import Invocation, short
from palyra.core.shell.judgement import Code
from palyra.core.shell.programs import Operands, ProgramRule, program

HOST_PROGRAMS: dict[str, ProgramRule] = {
    "dmesg": program(
        Operands.NONE,
        writes="-c --read-clear -C --clear -D --console-off -E --console-on -n --console-level",
        path="-F --file -K --kmsg-file",
        text="-l --level -f --facility --since --until -s --buffer-size --time-format",
        flag="--color --ctime --decode",
    ),
    "journalctl": program(
        Operands.TEXT,
        writes="--vacuum-size --vacuum-time --vacuum-files --rotate --flush --sync --relinquish-var "
        "--smart-relinquish-var --update-catalog --setup-keys --cursor-file",
        path="-D --directory --file --root --image",
        text="-u --unit -n --lines -S --since -U --until -p --priority -o --output -g --grep -t --identifier -F "
        "--field -c --cursor",
    ),
}

_IP_FLAGS = frozenset(
    "-4 -6 -0 -B -M -br -brief -o -oneline -d -details -s -stats -statistics -j -json -p -pretty -c -color -h -human "
    "-human-readable --human-readable -iec -r -resolve -t -timestamp -ts -a -all -N -V -Version".split()
)
# Words may be cut short, so only whole ones are taken: `ip addr a` is `ip addr add`.
_IP_LOOKS = frozenset("show list ls lst get identify pids list-id help".split())
_IP_EXCEPTIONS = frozenset((("netns", "get"), ("xfrm", "get")))

# By program: what its first word must be like. Everything else changes something, or is not known.
_FIRST_WORDS: dict[str, re.Pattern[str]] = {
    "networksetup": re.compile(r"-(?:get|list|show|is)[A-Za-z0-9]+|-help|-version|-printcommands"),
    "scutil": re.compile(r"--get|--dns|--proxy|--nwi|-r|-w|--help"),
    "diskutil": re.compile(r"list|info|listFilesystems|activity|help"),
    "launchctl": re.compile(r"list|print|print-cache|print-disabled|blame|plist|procinfo|hostinfo|dumpstate|dumpjpcategory|"
                            r"managername|manageruid|managerpid|error|help|version|examine"),
    "tmutil": re.compile(r"help|version|destinationinfo|latestbackup|listbackups|listlocalsnapshots|listlocalsnapshotdates|"
                         r"machinedirectory|uniquesize|verifychecksums|compare|isexcluded|currentphase|status|calculatedrift"),
    "hdiutil": re.compile(r"info|verify|checksum|imageinfo|isencrypted|plugins|pmap|help|udifderez"),
    "profiles": re.compile(r"help|status|list|show|validate|version"),
    "pkgutil": re.compile(r"--(?:pkgs|packages|pkgs-plist|files|pkg-info|pkg-info-plist|file-info|file-info-plist|payload-files|"
                          r"check-signature|group-pkgs|groups|groups-plist|help|volumes)(?:=.*)?|-h"),
    "defaults": re.compile(r"read|read-type|domains|find|help"),
    "security": re.compile(r"help|find-certificate|find-identity|get-identity-preference|dump-trust-settings|error|leaks|"
                           r"list-smartcards|list-keychains|translocate-policy-check|translocate-status-check|"
                           r"translocate-original-path|requirement-evaluate|verify-cert|show-keychain-info|smartcards"),
    "spctl": re.compile(r"--assess|-a|--status|--list"),
    "codesign": re.compile(r"-d|-dv+|--display|-v+|--verify|-h|--validate-constraint"),
    "plutil": re.compile(r"-lint|-p|-help|-type"),
    "mdimport": re.compile(r"-t|-L|-X|-A"),
    "sips": re.compile(r"-g|--getProperty|--verify|--help|-h|--formats"),
    "xattr": re.compile(r"-[lprxvs]+"),
    "sysctl": re.compile(r"(?:-[anNebd]+|[a-z][\w./-]*)"),
}  # fmt: skip
# Words that, anywhere after the first, make it do more than tell.
_MORE: dict[str, re.Pattern[str]] = {
    "launchctl": re.compile(r"--?(?:kill|stop|start).*"),
    "security": re.compile(r"-[wgo]|-z|--export.*"),
    "codesign": re.compile(r"-s|--sign|-f|--force|--remove-signature|-r.*|--extract-certificates.*|--file-list.*"),
    "sips": re.compile(
        r"-[sdefrzZcpoxXiljm]|--(?:set|delete|out|extract|embed|match|load|add|rotate|flip|crop|pad|resample|optimize|delete).*"
    ),
    "xattr": re.compile(r"-.*[wdc].*"),
    "sysctl": re.compile(r".*=.*|-[wpf].*|--(?:write|load|system).*"),
    "plutil": re.compile(r"-o|-convert|-insert|-replace|-remove|-create|-s"),
    "mdimport": re.compile(r"-[rio]"),
    "scutil": re.compile(r"--set|--nc|--prefs"),
    "spctl": re.compile(r"--(?:add|remove|enable|disable|master-.*|global-.*|reset-default)"),
    "pkgutil": re.compile(r"--(?:forget|learn|expand.*|flatten.*|bom|edit-pkg|repair)"),
    "diskutil": re.compile(r"-.*(?:force|set).*"),
    "hdiutil": re.compile(r"-o|-outfile|-passphrase"),
    "defaults": re.compile(r"write|delete|rename|import|export"),
    "profiles": re.compile(r"-(?:output|o).*"),
}
_DSCL_LOOKS = frozenset(
    f"{dash}{name}" for dash in ("", "-") for name in ("read", "readall", "readpl", "list", "search", "diff")
)
_OF_FILES = frozenset(("plutil", "sips", "xattr", "mdimport", "hdiutil", "codesign", "spctl"))
FIRST_WORD_PROGRAMS = frozenset(_FIRST_WORDS)


def judge_first_word(invocation: Invocation) -> None:
    """Programs of one word that says what is done."""
    if not invocation.is_known():
        return
    words = invocation.values()
    first, *rest = words or ("",)
    if not _FIRST_WORDS[invocation.program].fullmatch(first):
        invocation.ask(
            Code.CHANGES_SYSTEM, f"{invocation.program} {short(first)} is not known to only tell".replace("  ", " ")
        )
    more = _MORE.get(invocation.program)
    for argument, word in zip(invocation.arguments[1:], rest, strict=True):
        if more is not None and more.fullmatch(word):
            words_of = f"{short(word)} makes {invocation.program} do more than tell"
            invocation.ask(Code.CHANGES_SYSTEM, words_of, argument)
        elif invocation.program in _OF_FILES:
            invocation.reads_if_path(argument)


def judge_ip(invocation: Invocation) -> None:
    words = [argument for argument in invocation.arguments if not argument.lead.startswith("-")]
    for argument in invocation.arguments:
        if argument.lead.startswith("-") and argument.value not in _IP_FLAGS:
            invocation.ask(Code.UNKNOWN_OPTION, f"{short(argument.source)} of ip is not known to be harmless", argument)
    invocation.is_known()
    thing, look = ([word.value or "" for word in words] + ["", ""])[:2]
    if thing.startswith("mo") or not thing:
        return
    if look and (look not in _IP_LOOKS or (thing, look) in _IP_EXCEPTIONS):
        invocation.ask(Code.CHANGES_SYSTEM, f"ip {short(thing)} {short(look)} is not known to only tell", words[1])


def judge_ifconfig(invocation: Invocation) -> None:
    operands = [argument for argument in invocation.arguments if not argument.lead.startswith("-")]
    odd = [
        argument
        for argument in invocation.arguments
        if not argument.is_certain or argument.lead in ("-arp", "-promisc")
    ]
    if (
        len(operands) > 1
        or odd
        or not {word for word in invocation.values() if word.startswith("-")} <= {"-a", "-s", "-v", "-l", "-L"}
    ):
        invocation.ask(Code.CHANGES_SYSTEM, "ifconfig with more than an interface changes it")


def judge_dscl(invocation: Invocation) -> None:
    words = [word for word in invocation.values() if word not in ("-plist", "-raw", "-url", "-q")]
    if (
        not invocation.is_known()
        or len(words) < 2
        or words[0] not in (".", "/Search", "localhost")
        or words[1] not in _DSCL_LOOKS
    ):
        invocation.ask(Code.CHANGES_SYSTEM, "dscl with another command than read, list or search changes the directory")
