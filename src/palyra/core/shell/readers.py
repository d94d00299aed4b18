"""The table of programs that read files and text. Owns: which options make them do more. Not: applying it (programs).

A program is here because nothing it can be told makes it write, run or send, but for what its row names. Rows name what
the GNU, BSD and macOS versions do. A program that is in no table asks.
"""

from palyra.core.shell.programs import Operands, ProgramRule, program

# No option of these does more than read the files they are given.
_PLAIN = """
b2sum base32 bzcat cat cksum cmp colrm comm df dir expand fmt fold hd head hexdump lzcat md5 md5sum nl od pr readelf
readlink realpath rev sha1sum sha224sum sha256sum sha384sum sha512sum shasum size stat strings sum tac tail tokei tsort
unexpand users vdir who xzcat zcat zdiff zipinfo ls
"""
# What follows these is text, and none of it is opened.
_TEXT = """
: basename cal dirname echo expr factor false findmnt free getconf getent groups hostid id iostat locale logname
lsblk lscpu lsmod lsusb mpstat ncal netstat nproc numfmt pgrep pidof printenv ps pstree pwd seq sleep sw_vers test
tput tr true tty uname uptime vm_stat vmstat w whereis which whoami yes
"""

_GREP = program(
    Operands.PATTERN,
    instead="-e -f --regexp --file",
    path="-f --file --exclude-from",
    text="-e --regexp -m --max-count -A --after-context -B --before-context -C --context -d --directories -D "
    "--devices --include --exclude --exclude-dir --label --binary-files --group-separator",
    flag="--color --colour --count --null --files-with-matches --files-without-match --only-matching --line-number "
    "--recursive --fixed-strings --extended-regexp --perl-regexp --no-messages --invert-match --ignore-case "
    "--word-regexp --line-regexp --quiet --silent --with-filename --no-filename --null-data --text --version --help",
)

_BAT = program(
    runs="--pager --lessopen",
    writes="-b --build -c --clear",
    leads_away="--config-file --config-dir --cache-dir --generate-config-file",
    text="-l --language -H --highlight-line --style --theme -r --line-range --tabs --wrap --color --paging -m "
    "--map-syntax --terminal-width --decorations --italic-text --file-name --diff-context",
    flag="--config --theme-dark --theme-light",
)

READERS: dict[str, ProgramRule] = {
    **dict.fromkeys(_PLAIN.split(), program()),
    **dict.fromkeys(_TEXT.split(), program(Operands.TEXT)),
    **dict.fromkeys(("grep", "egrep", "fgrep", "zgrep", "zegrep", "zfgrep", "bzgrep", "xzgrep"), _GREP),
    "rg": program(
        Operands.PATTERN,
        instead="-e --regexp -f --file --files --type-list",
        runs="--pre --hostname-bin",
        path="-f --file --ignore-file",
        text="-e --regexp -g --glob --iglob -t --type -T --type-not --type-add --type-clear -A --after-context -B "
        "--before-context -C --context -m --max-count -M --max-columns -d --max-depth --maxdepth --sort --sortr -r "
        "--replace -E --encoding --color --colors --engine -j --threads --max-filesize --context-separator "
        "--field-context-separator --field-match-separator --path-separator --dfa-size-limit --regex-size-limit "
        "--pre-glob --hyperlink-format",
    ),
    "ag": program(
        Operands.PATTERN,
        instead="-g --filename-pattern",
        runs="--pager",
        path="-p --path-to-ignore",
        text="-g --filename-pattern -G --file-search-regex -A --after -B --before -C --context -m --max-count "
        "--depth --ignore --ignore-dir --width --workers --color-line-number --color-match --color-path",
    ),
    "bat": _BAT,
    "batcat": _BAT,
    "cut": program(text="-d --delimiter -f --fields -c --characters -b --bytes --output-delimiter"),
    "paste": program(text="-d --delimiters"),
    "join": program(text="-t -o -e"),
    "wc": program(leads_away="--files0-from"),
    "du": program(leads_away="--files0-from", path="-X --exclude-from", text="-d --max-depth --exclude"),
    "diff": program(
        path="--from-file --to-file -X --exclude-from",
        text="-x --exclude -I --ignore-matching-lines -F --show-function-line -L --label -U",
    ),
    "diff3": program(runs="--diff-program", text="-L --label"),
    "sort": program(
        writes="-o --output",
        runs="--compress-program",
        leads_away="--files0-from",
        path="-T --temporary-directory --random-source",
        text="-k --key -t --field-separator -S --buffer-size --batch-size --parallel --sort",
    ),
    "uniq": program(operand_count_max=1, text="-f --skip-fields -s --skip-chars -w --check-chars"),
    "shuf": program(writes="-o --output", path="--random-source", text="-n --head-count -i --input-range"),
    "column": program(text="-s --separator"),
    "look": program(Operands.PATTERN, text="-t"),
    "iconv": program(writes="-o --output", text="-f --from-code -t --to-code"),
    "base64": program(writes="-o --output", path="-i --input", text="-w --wrap"),
    "tree": program(
        writes="-o -R", path="--gitfile --infofile", text="-L -P -I --charset --filelimit --timefmt --sort"
    ),
    "zstdcat": program(only=True, flag="-d -c -f -q -v --decompress --stdout --force --quiet --verbose"),
    "lspci": program(Operands.TEXT, writes="-q -Q -O", path="-i -F", text="-s -d -p -A", flag="-v -n -k -t -m -x -D"),
    "file": program(writes="-C --compile", leads_away="-f --files-from", path="-m --magic-file"),
    "date": program(
        Operands.TEXT, operand_start="+", writes="-s --set", path="-f --file -r --reference", text="-d --date -v"
    ),
    "hostname": program(Operands.NONE, writes="-F --file -b --boot"),
    "fuser": program(writes="-k --kill"),
    "ss": program(Operands.TEXT, writes="-K --kill -D --diag", path="-F --filter"),
    "lsof": program(Operands.TEXT, writes="-D"),
    "top": program(Operands.TEXT, text="-n -d -p -u -U -w -o -l"),
    "xxd": program(
        is_single_dash=True,
        operand_count_max=1,
        writes="-r -revert",
        text="-l -len -c -cols -s -seek -g -groupsize -o",
    ),
    "man": program(only=True, text="-s -S --sections", flag="-k -f -w -a --where --path --apropos --whatis"),
    "mktemp": program(
        Operands.TEXT,
        only=True,
        requires="-u --dry-run",
        text="-t -p --suffix",
        flag="-u --dry-run -d --directory -q --quiet",
    ),
    "locate": program(Operands.TEXT, path="-d --database", text="-l --limit -n"),
    "mdfind": program(Operands.TEXT, is_single_dash=True, path="-onlyin"),
    "mdls": program(is_single_dash=True, only=True, text="-name -nullMarker", flag="-raw"),
    "symbols": program(is_single_dash=True, text="-arch -lookup -uuid", writes="-saveSignature"),
    "lipo": program(is_single_dash=True, only=True, flag="-info -archs -detailed_info"),
    "qlmanage": program(Operands.NONE, is_single_dash=True, only=True, flag="-m -h"),
    "system_profiler": program(Operands.TEXT, is_single_dash=True, text="-detailLevel -timeout"),
}
