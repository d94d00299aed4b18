"""The judge of shell texts: what is free, what asks and why, and that no trick makes what asks free."""

import shlex
import shutil
import string
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.adapters.shell import TreeSitterShell
from palyra.core.shell import Code, Judgement, Network, ShellCapability, ShellScope, judge
from palyra.core.shell.judge import TEXT_BYTES_MAX
from palyra.core.shell.table import RULES
from palyra.core.shell.versions import VERSIONED

PARSER = TreeSitterShell()
SCOPE = ShellScope(cwd="/ws", roots=("/ws",), repositories=("/ws",), home="/home/u")
OPEN = ShellScope(cwd="/ws", roots=("/ws",), repositories=("/ws",), home="/home/u", network=Network.OPEN)


def judged(text: str, scope: ShellScope = SCOPE) -> Judgement:
    return judge(text, scope, PARSER.parse)


def codes(text: str, scope: ShellScope = SCOPE) -> set[Code]:
    return {reason.code for reason in judged(text, scope).reasons}


FREE = {
    "plain": ["ls", "ls -la src", "cat a.txt b.txt", "wc -l *.py", "head -20 README.md", "stat .", "/bin/ls -l"],
    "pipes": ["cat a | grep b | sort -u | head -5", "ls |& cat", "git log --oneline | head", "du -sh * | sort -h"],
    "lists": ["ls && cat a || echo no; pwd", "ls & cat b", "! grep -q x a", "ls;\n cat b\n"],
    "groups": ["(ls; cat a)", "{ ls; cat a; }", "(cd src && ls) && ls"],
    "branches": ["if [ -f a ]; then cat a; else echo none; fi", 'case "$x" in a|b) ls;; *) pwd;; esac'],
    "tests": ["[ -f a ] && ls", "[[ $x == a* && -f b ]]", 'test -n "$x"', '[ "$x" = y ]', '[ "$n" -gt 3 ]'],
    "loops": [
        'for f in *.py; do head -5 "$f"; done', "for d in src tests; do ls $d; done",
        'while read -r line; do echo "$line"; done < a', "for a in x y; do for b in 1 2; do cat $a/$b; done; done",
    ],
    "substitutions": ["echo $(date)", "echo `whoami`", 'echo "now: $(date +%s)"', "diff <(sort a) <(sort b)"],
    "variables": ["x=src; ls $x", "ls $PWD/src", "cat $(pwd)/a", 'echo "$HOME"', 'd=src && cat "$d/a.py"'],
    "redirections": ["ls > /dev/null 2>&1", "ls 2>/dev/null", "cat < a", "ls &>/dev/null", "ls >&2", "cat 0<a 3<&-"],
    "here-documents": [
        "cat <<EOF\n$(ls) and $x\nEOF", "cat <<'EOF'\n$(rm -rf x)\nEOF", "cat <<EOF | grep a\nb\nEOF", 'cat <<< "x"',
    ],
    "folders": ["cd src && cat ../a", "cd src && cd .. && ls", "cd ./a/../b; ls", "cd -- src && ls"],
    "wrappers": [
        "env ls", "env FOO=bar ls", "nice -n 5 ls", "timeout 5 cat a", "time ls", "command -v git", "command ls",
    ],
    "shells": [
        "bash -c 'ls | wc -l'", "sh -ec 'pwd'", 'bash -lc "cat a && ls"', "bash -o pipefail -c 'ls'",
        "zsh -c 'ls -l'",
    ],
    "xargs": [
        "find . -name '*.py' -print0 | xargs -0 grep foo", "git ls-files -z | xargs -0 wc -l", "xargs cat",
        "rg -l foo | sort | head -3 | xargs -d '\\n' cat", "find . -print0 | xargs -0 sort",
    ],
    "find": [
        "find . -type f -name '*.py' -mtime -7", "find src \\( -name a -o -name b \\) -print",
        "find . -exec grep -l x {} +", "find . -name *.py", "fd -e py -x wc -l",
    ],
    "environment": ["LANG=C sort a", "FOO=1 ls", "export LC_ALL=C; ls", "set -euo pipefail; ls", "TZ=UTC git log"],
    "git": [
        "git status", "git diff HEAD~1 -- src", "git log main..dev", "git show HEAD:a", "git branch -a",
        "git stash list",
        "git config --get user.name", "git -C . status", "git push --help",
    ],
    "text tools": [
        "sed -n '1,5p' a", "sed 's/[/]/x/g;$d' a", "awk -F: '{print $1}' a", "grep '/api/v1' -r src", "cut -d/ -f1 a",
        "awk '$1 > 3 {s += $2} END {print s}' a", "jq '.a[] | .b' a.json", "sort -t / -k 2 a",
    ],
    "archives": ["tar tzf a.tgz", "tar -tvf a.tar", "unzip -l a.zip", "gzip -dc a.gz", "7z l a.7z"],
    "versions": ["python --version", "node -v", "java -version", "bash --version"],
    "system software": ["ls /usr/bin", "head /usr/share/dict/words", "cat /usr/include/stdio.h"],
    "queries": [
        "sqlite3 -readonly a.db 'SELECT count(*) FROM t'", "sqlite3 :memory: 'select 1'",
        "sqlite3 -readonly -json a.db 'select * from t where a in (1, 2)'",
    ],
    "waiting": ["ls & wait", "ls & wait $!", "ls & wait -n", "wait 12 %1", "jobs -lp", "jobs %1"],
    "patterns": [
        "grep --include=*.py -r x .", "sort ./*", "tar tf ./*.tar", "cat *", "head -n 5 *", "file ./*", "find . -name *.py",
        'for f in *.py; do [ -f "$f" ] && head -n 3 "$f"; done', 'for f in *; do printf "%s\\n" "$f"; done',
        "uniq -f 1 a", "date +%s", "tree -L 2 src", "xxd -l 16 a", "shuf -n 3 a", "du -sh *", "ls -I '*.pyc'",
    ],
    "checkers": ["ruff check --no-cache --no-fix --no-fix-only .", "ruff check --diff --no-cache src"],
    "braces": ["cat src/{a,b}.py", "ls {src,tests}/*.py", "echo {} {a}"],
}  # fmt: skip

ASKS = {
    Code.UNKNOWN_PROGRAM: [
        "rm x", "ls; rm x", "ls | tee x", "cp a b", "'r''m' x", "r\\m x", "$'\\x72m' x", "make", "pytest",
        "echo $(rm x)",
        "ls `rm x`", "cat <<EOF\n$(rm x)\nEOF", "cat <(rm x)", "ls > >(rm x)", "cat <<< $(rm x)",
        "if rm x; then ls; fi",
        "for x in $(rm x); do ls; done", "case $(rm x) in a) ls;; esac", "case a in $(rm x)) ls;; esac", "x=$(rm x)",
        "while rm x; do ls; done", "echo ${x:-$(rm x)}", "! rm x", "time rm x", "(rm x)", "{ rm x; }", "ls & rm x",
        "env rm x", "nice rm x", "timeout 5 rm x", "command rm x", "bash -c 'ls; rm x'", "bash -c \"bash -c 'rm x'\"",
        "xargs rm", "find . -exec rm {} +", "fd -x rm", "[[ -f $(rm x) ]]", "unknown --help", "nohup ls", "watch ls",
        "fzf --preview 'rm {}'", "yarn list", "xargs -I{} rm {}", "pytest --help", "timeout 5 nice rm x",
        "xargs rm < l",
    ],
    Code.UNKNOWN_COMMAND: [
        "docker run x", "gh repo delete x", "kubectl delete pod x", "pip install x", "uv version --bump=patch",
        "brew install x", "uv run ls", "helm install a b", "docker", "pip install help",
    ],
    Code.WRITES: [
        "echo x > f", "echo x >> f", "ls 2> err", "ls &> all", "cat a >| b", "ls >& f", "sort -o out a",
        "sort -uo out a",
        "sort --outp=x a", "sed -i s/a/b/ f", "sed -ni p f", "sed --in-pl p f", "tree -o x", "uniq a b", "xxd a b",
        "find . -delete", "find . -fprint x", "tar xf a", "tar cf a b", "unzip a", "gzip a", "git add .",
        "git branch x",
        "git tag v1", "git log --output=x", "git config a.b c", "git config user.get list", "git stash", "black .",
        "git branch --list -D x", "black --foo --check .", "ruff check --fix", "ruff format", "rpm -i x", "date -s x",
        "sqlite3 a.db 'select 1'", "sqlite3 -readonly a.db 'drop table t'",
        "sqlite3 -readonly a.db 'select 1; delete from t'", "mktemp", "uniq ./*", "git push",
        "sqlite3 -readonly a.db \"select 1 -- '\n; drop table t -- '\"",
        "sqlite3 -readonly a.db 'with x as (select 1) delete from t'",
        "sqlite3 -readonly a.db \"select writefile('a', 'b')\"", "psql -c 'select \"lo_export\"(1)'",
    ],
    Code.RUNS_CODE: [
        "./x", "bin/ls", "/tmp/ls", "bash", "bash x.sh", "sh <<EOF\nls\nEOF", "cat x | bash -s", "rg --pre ./x y",
        "sort --compress-prog=./x a", "awk 'BEGIN{system(\"x\")}'", "awk '{print | \"sh\"}' a",
        "awk '{print > \"x\"}' a",
        "awk '{print a,\nb > \"f\"}' a", "awk -f x a", "awk 'BEGIN{getline x < \"/etc/passwd\"}'", "sed 's/a/b/e' f",
        "awk 'BEGIN{ARGV[1]=\"/etc/passwd\"} 1' a", "sed 's/a/b/gw x' f", "sed '1{p;w x\n}' f", "sed -f x f",
        'awk \'BEGIN{ exit /"/ + system("id") + "/" } # "\'', "sed 't\nwout' f", "sed '$!N;r /etc/passwd' f",
        "git -c core.fsmonitor=./x status", "git --exec-path=. status", "git grep -O./x y", "git -C sub status",
        "cd sub && git status", "find . -execdir git status \\;", "sqlite3 a.db", "gh pr view --web",
        "git diff --ext-diff",
        "echo '.shell rm x' | sqlite3 -readonly a.db", "find . -ok cat {} \\;", "kubectl --kubeconfig=x get pods",
        "brew info ./x.rb", "fzf --bind 'a:become(ls)'", 'awk "$x" a', 'sed "$x" a', "! cd sub || git status",
        "ls | cat | cat && cd sub; git status",
    ],
    Code.OUTSIDE_WORKSPACE: [
        "cat /etc/passwd", "cat ../x", "ls ..", "cat ~/.ssh/id_rsa", 'cat "$HOME"/x', "cat $PWD/../x",
        "cat $(pwd)/../x",
        "cd / && ls", "cd && ls", "cd - && ls", "cd .. && ls", "cd src/../.. && ls", "cat < /etc/passwd", "find /etc",
        "grep -f/etc/passwd x", "grep --fil=/etc/passwd x", "grep --fil /etc/passwd x", "grep -e a /etc/passwd",
        "ls .*",
        "grep a -- /etc/passwd", "find . -newer /etc/passwd", "cat .?/x", "cat */../../x", "cat {/etc/passwd,x}",
        "cat x{,/../../y}", "sed -e p /etc/passwd", "awk 1 /etc/passwd", "jq . /etc/passwd",
        "sh -c 'cat /etc/passwd'",
        "env -C / ls", "git diff a /etc/passwd", "git diff --no-index a b", "tar tf /etc/x", "cd src; cat ../a",
        "while true; do cat ../a; cd src; done", "x=/etc/passwd; cat $x", "for f in a /etc/passwd; do cat $f; done",
        "wc --files0-from=x", "for i in 1 2; do cat $x/../a; x=..; done", "cat /proc/self/environ", "cat /dev/sda",
        "(cd ..; ls)",
    ],
    Code.UNKNOWN_VALUE: [
        "cat $x", 'cat "$x"', "cat $(cat list)", "$x", "$(echo rm) x", "`echo ls`", "*", 'cat "$@"', "cat ${x%.py}",
        "cat ~other/x", 'bash -c "$x"', "sort *", "rg x *", "git diff $x", "echo /etc/passwd | xargs -0 cat",
        "cat list | xargs -0 cat", "xargs cat < list", "xargs -a list cat", "{ xargs cat; ls; } < list",
        "ls | xargs -0 sort", "ls -l | xargs -0 cat", "find . | sed s/a/b/ | xargs -0 cat", "find . | xargs cat",
        "find . | sort -n list | xargs -0 cat", "find . -printf '/etc/passwd' | xargs -0 cat",
        "git ls-files --format=x | xargs -0 cat", "find . | xargs -0 -I{} sh -c 'cat {}'", "find . -name *",
        "find . -exec sh -c 'cat {}' \\;", "for f in *.py; do cat $f; done", 'read f < a; cat "$f"', "test $x",
        "x=a; read x; cat $x", "while true; do cat $x; x=/etc/passwd; done", "if true; then x=a; fi; cat $x",
        "x=a; (x=/etc); cat $y", "[ $x = a ]", "cat list | fzf --preview 'cat {}'", "x=a & cat $x",
        "x=a; ls | cat | cat && x=/etc/passwd; cat $x",
        "echo x | grep -l --label=/etc/passwd x - | xargs -0 cat",
    ],
    Code.SETS_ENVIRONMENT: [
        "PATH=. ls", "LD_PRELOAD=./x ls", "env LD_PRELOAD=./x ls", "GIT_EXTERNAL_DIFF=x git diff", "PAGER=x git log",
        "FOO=1 git log", "export PATH=.", "export FOO=1", "read PATH", "for PATH in a; do ls; done", "IFS=x",
        "BASH_ENV=x bash -c ls", "env -u X ls", "PROMPT_COMMAND=x; ls", "DYLD_INSERT_LIBRARIES=x ls", "time X=1 ls",
        "x=1 PATH=2 cat a", "env -u",
    ],
    Code.CHANGES_SHELL: [
        "eval ls", ". x", "source x", "exec ls", "trap 'rm x' EXIT", "alias ls=rm", "f() { ls; }",
        "function f { ls; }",
        "unset x", "let x=1", "declare -x A=1", "hash -p ./x ls", "shopt -s extglob", "printf -v PATH x", "pushd a",
        "test -v 'a[$(x)]'", "enable -f x y", "builtin eval ls", "coproc ls", "set -- a b", "mapfile x", "umask 0",
    ],
    Code.CHANGES_SYSTEM: [
        "sudo ls", "su -c ls", "hostname x", "date 0101", "ip addr add 1.2.3.4/8 dev x", "ip addr a 1.2.3.4",
        "ifconfig eth0 up", "sysctl -w a=b", "sysctl a=b", "launchctl load x",
    ],
    Code.NOT_UNDERSTOOD: [
        "", "# nothing", "ls '", "ls |", "((x=1))", "echo $((x))", "echo ${x@P}", "echo ${!x}", "echo ${x:=y}",
        "echo ${a[$(x)]}", "[[ -v a ]]", "[[ $x -eq 1 ]]", "a=(1 2)", "for ((;;)); do ls; done", "cat <> f", "{}",
        "[a]",
        "select x in a; do ls; done", "ls\r", "ls\u00a0x", "ls\u202ex", "r\\\nm x", 'echo "$\\\n(rm x)"', "!'ls'",
        "2=3",
        "echo `echo \\`rm x\\``", "zsh -c 'ls *(e:rm:)'", "cat -l<<E\nx\nE", "ls <<A <<B\na\nA\nb\nB",
        "if a; then b; else'c' d; fi",
    ],
    Code.NEEDS_NETWORK: [
        "curl https://example.com", "gh pr list", "docker ps", "aws s3 ls", "git ls-remote origin",
        "dig x.org",
    ],
    Code.TOO_LONG: ["ls " + "a" * TEXT_BYTES_MAX, "ls" + " a" * 600, "cd a;" * 20 + "ls"],
}  # fmt: skip

EVALUATES = {
    Code.CHANGES_SHELL: [
        "jobs -x bash -c 'touch x'", "jobs -lx touch x", "builtin jobs -x touch x", "command jobs -x touch x", "jobs -l $x",
        "wait -n -p 'a[$(touch x)]'", "ls & wait -n -p 'a[$(touch x)]'", "wait -p x", "wait -np x", "wait $x", 'wait "$x"',
        "wait *", "jobs *", "wait -n*", "builtin wait -p x",
        "printf '12345%n' PATH", "printf '%s%%%5ln' a b", "printf * PATH", "printf x* PATH", "read a*", "read 'a[$(touch x)]'",
        "export LANG*",
    ],
    Code.SETS_ENVIRONMENT: [
        "SECONDS='a[$(touch x)]'", "HISTCMD='a[$(touch x)]'", "read SRANDOM", "for SECONDS in 'a[$(touch x)]'; do ls; done",
        "read HISTCMD", "SRANDOM='a[$(touch x)]' ls",
    ],
    Code.UNKNOWN_VALUE: [
        "[ * ]", "test *", "test -f *", "[ * -a x ]", "[ * = x ]", "test -n *.py", 'for f in *; do test "$f" x; done',
        "bash -c 'ls '*", 'for f in *; do bash -c "ls $f"; done', 'for f in *; do y="$f"; sh -c "ls $y"; done',
        "fzf --preview='ls '*",
    ],
    Code.RUNS_CODE: [
        'for f in *; do fzf --bind "a:reload:ls $f"; done',
        'for f in *; do awk "/$f/" a; done', 'for f in *; do sed "/$f/p" a; done', "awk *", "sed s/a/*/ b",
    ],
}  # fmt: skip

# Unquoted, a pattern becomes every name that it matches, and a name may be that of an option.
SPREADS = [
    "tar tf *", "tar -t -f *", "tar tf a.tar *", "tar tvf *.tar", "tar --list --file=*", "tar tf $x", "ls | xargs -0 tar tf",
    "uniq -f *", "uniq -f$x a", "uniq -*", "uniq *", "uniq ./*", "xxd -l *", "xxd -*", "xxd ./*", "shuf -n *", "shuf *",
    "tree -L *", "tree -R -L 1 -H .", "date -d *", "date -*", "fd -E *", "fd *", "file -m *", "file *", "sort -k *", "sort -*",
    "sort --*", "sort -u*", "sort --out*", "sort -k$x a", "rg -g *", "rg -e *", "iconv -f * a", "awk -v *", "awk -* 1 a",
    "xargs -n * ls", "xargs -* ls", "env -C * ls", "env -* ls", "env -u * ls", "timeout -s * 5 ls", "timeout * ls",
    "timeout $x ls", "nice -n * ls", "stdbuf -o * ls", "git log -n *", "git log *", "git log -*", "git grep -e *",
    "git branch --contains *", "git config user.*", "git config --get *", "git symbolic-ref *", "git symbolic-ref x*",
    "openssl x509 -noout *", "openssl x509 -noout -in *", "yq -o *", "yq *", "jq --arg *", "bat -l *", "bat cache -b",
    "zstdcat -o x a", "zstdcat *", "lspci -O net.cache_name=x -q", "man *", "man -s *", "gzip -l *", "7z l *", "unzip -l *",
    "pip show *", "pip list --format *", "ip *", "ifconfig *", "sysctl *", "find . -name [[:punct:]]delete",
    "find . -name [^a]delete", "find . -newer *", "cat .[^a]/x", "grep -e *", "cut -d *", 'head -n "$x"* a',
    "sqlite3 -readonly a.db *", "ls * | xargs -0 cat",
]  # fmt: skip

# A file of the workspace makes them run or write something.
OBEYS = [
    "cargo version", "cargo --version", "cargo help", "cargo x --help", "cargo locate-project", "rustup show", "rustup --version",
    "ruff check", "ruff check .", "ruff check --no-fix --no-cache", "ruff check --isolated", "ruff check --no-fix --no-fix-only",
    "npm ls", "npm help ls", "npm fund x", "npm config list", "npm --help", "npx --help", "pnpm ls", "pnpm --version",
    "yarn --version", "poetry --version", "bundle --version", "composer --help", "jest --version", "cdk version",
    "ansible --version", "ansible-doc -l", "ansible-config dump", "ansible-galaxy role list", "packer version",
    "uv version --bump=patch", "make -n", "mvn -version", "gradle --version", "eslint .", "pylint a", "mypy a",
]  # fmt: skip

ASKS_WHEN_OPEN = {
    Code.SENDS: [
        "curl -d x https://example.com", "curl -XPOST https://example.com",
        "curl --request DELETE https://example.com",
        "curl -H @x https://example.com", "gh api -X DELETE x", "gh api x -f a=b", "aws ec2 run-instances",
        "az vm delete -n x", "az vm delete list", "gcloud compute instances delete list", "gcloud run deploy list",
        "git ls-remote ext::sh", "aws ec2 terminate-instances --instance-ids help", "curl -T x https://example.com",
    ],
    Code.UNKNOWN_COMMAND: ["gh pr merge 1", "docker compose up", "kubectl apply -f x"],
    Code.WRITES: [
        "curl -O https://example.com", "curl -so x https://example.com", "wget https://example.com",
        "docker save x -o y",
        "aws s3api get-object --bucket a --key b out", "curl -w '%output{x}' https://example.com",
    ],
    Code.DISCLOSES: [
        "kubectl get secret x -o yaml", "kubectl get pods,secrets -ojson", "gh auth status --show-token",
        "aws ssm get-parameter --name x --with-decryption", "aws secretsmanager get-secret-value --secret-id x",
        "az keyvault secret show --name x", "terraform output -json", "az storage account keys list -n x",
    ],
    Code.OUTSIDE_WORKSPACE: [
        "curl file:///etc/passwd", "curl http://localhost/", "curl http://127.1/", "curl http://169.254.169.254/",
        "curl 'http://[::1]/'", "curl http://a.internal/", "curl https://e.com@127.0.0.1/", "curl -K x https://e.com",
        "aws ec2 describe-instances --endpoint http://x", "docker -H x ps", "curl -b cookies https://example.com",
    ],
    Code.UNKNOWN_VALUE: [
        "curl https://e.com/$(cat x)", "aws s3 ls $x", "kubectl get pods -o $x", "docker logs $(docker ps -q)",
    ],
    Code.UNKNOWN_OPTION: [
        "docker --foo ps run x", "aws --foo ec2 describe-instances x", "gcloud --foo compute instances list",
        "kubectl --foo get delete pods",
    ],
}  # fmt: skip

READS_REMOTELY = [
    "curl https://example.com", "curl -sSL -o /dev/null https://example.com", "wget -q --spider https://example.com",
    "gh pr list --state open", "gh api repos/a/b", "kubectl get pods -n x", "docker ps -a", "az vm list -g x",
    "helm list",
    "aws ec2 describe-instances --region x", "gcloud compute instances list --project delete",
    "git ls-remote origin",
]  # fmt: skip


@pytest.mark.parametrize(("construct", "text"), [(name, text) for name, texts in FREE.items() for text in texts])
def test_what_only_reads_in_the_workspace_is_free(construct: str, text: str) -> None:
    judgement = judged(text)
    assert judgement.reasons == ()
    assert judgement.is_free
    assert judgement.commands


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_what_is_free_leaves_a_folder_as_it_was(tmp_path: Path) -> None:
    for name in ("a", "b", "a.txt", "b.txt", "x.py", "src/a.py", "src/b.py", "tests/a"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1/2:3 x\n")
    before = snapshot(tmp_path)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    for text in (text for texts in FREE.values() for text in texts):
        subprocess.run(
            ["bash", "-c", text],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert snapshot(tmp_path) == before, text


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path): (path.stat().st_mode, path.read_bytes()) for path in paths}


@pytest.mark.parametrize(("code", "text"), [(code, text) for code, texts in ASKS.items() for text in texts])
def test_what_does_more_asks_and_says_why(code: Code, text: str) -> None:
    judgement = judged(text)
    assert not judgement.is_free
    assert code in {reason.code for reason in judgement.reasons}, judgement.reasons
    assert all(reason.words for reason in judgement.reasons)


@pytest.mark.parametrize(("code", "text"), [(code, text) for code, texts in EVALUATES.items() for text in texts])
def test_a_word_that_bash_or_a_program_evaluates_asks(code: Code, text: str) -> None:
    assert code in codes(text)


@pytest.mark.parametrize("text", SPREADS)
def test_a_pattern_that_may_become_an_option_or_a_second_file_asks(text: str) -> None:
    assert not judged(text, OPEN).is_free


@pytest.mark.parametrize("text", OBEYS)
def test_what_a_file_of_the_workspace_can_make_run_or_write_asks(text: str) -> None:
    assert not judged(text, OPEN).is_free


@pytest.mark.parametrize("text", ["npm --version", "npm -v", "npx --version", "go version", "pip list", "python3 -V"])
def test_a_version_that_no_file_of_the_workspace_rules_is_free(text: str) -> None:
    assert judged(text).is_free


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize("text", [text for texts in EVALUATES.values() for text in texts] + SPREADS)
def test_every_trick_with_words_is_about_a_text_that_bash_accepts(text: str) -> None:
    """A text with an error in it would ask for that, and prove nothing."""
    checked = subprocess.run(["bash", "-n", "-c", text], capture_output=True, timeout=60, check=False)
    assert checked.returncode == 0
    assert Code.NOT_UNDERSTOOD not in codes(text)


@pytest.mark.parametrize(("code", "text"), [(code, text) for code, texts in ASKS_WHEN_OPEN.items() for text in texts])
def test_an_open_network_frees_nothing_but_fetching(code: Code, text: str) -> None:
    assert code in codes(text, OPEN)


@pytest.mark.parametrize("text", READS_REMOTELY)
def test_fetching_is_free_only_where_the_network_is_open(text: str) -> None:
    closed = judged(text)
    assert judged(text, OPEN).is_free
    assert not closed.is_free
    assert closed.is_read_only
    assert {reason.code for reason in closed.reasons} == {Code.NEEDS_NETWORK}
    assert ShellCapability.NETWORK in closed.capabilities


def test_a_judgement_tells_commands_paths_hosts_and_capabilities() -> None:
    judgement = judged("cd src && cat ../a | sort; sh -c 'wc -l c'; curl -s https://example.com/x", OPEN)
    assert [seen.words for seen in judgement.commands] == [
        ("cd", "src"),
        ("cat", "../a"),
        ("sort",),
        ("sh", "-c", "'wc -l c'"),
        ("wc", "-l", "c"),
        ("curl", "-s", "https://example.com/x"),
    ]
    assert judgement.paths == ("/ws/src", "/ws/a", "/ws/c", "/ws/src/c")
    assert judgement.hosts == ("example.com",)
    assert judgement.capabilities == {ShellCapability.READ, ShellCapability.NETWORK}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("ls && rm x", "rm"),
        ("cat ö /etc/passwd", "/etc/passwd"),
        ("echo x > f", "> f"),
        ("bash -c 'ls; rm x'", "'ls; rm x'"),
        ("X=1 PATH=. ls", "PATH=."),
        ("ls\nf() { rm x; }", "f() { rm x; }"),
    ],
)
def test_a_reason_points_at_its_words(text: str, place: str) -> None:
    (reason,) = judged(text).reasons
    assert text[slice(*reason.span)] == place


@pytest.mark.parametrize(
    ("text", "capability"),
    [
        ("echo x > f", ShellCapability.WRITE),
        ("./x", ShellCapability.EXECUTE),
        ("curl https://a.org", ShellCapability.NETWORK),
        ("cat a", ShellCapability.READ),
    ],
)
def test_capabilities_follow_from_what_is_done(text: str, capability: ShellCapability) -> None:
    assert judged(text).capabilities == {capability}


def test_a_text_that_begins_outside_the_workspace_asks() -> None:
    assert Code.OUTSIDE_WORKSPACE in codes("ls", ShellScope(cwd="/ws/..", roots=("/ws",)))
    assert judged("ls", ShellScope(cwd="/ws/a/", roots=("/other", "/ws/"))).is_free


def test_a_name_that_only_begins_like_the_workspace_is_outside() -> None:
    assert Code.OUTSIDE_WORKSPACE in codes("cat /ws2/a")
    assert judged("cat //ws//a").is_free


def test_without_a_known_home_a_tilde_asks() -> None:
    assert not judged("cat ~/a", ShellScope(cwd="/ws", roots=("/ws", "/home/u"))).is_free
    assert judged("cat ~/a", ShellScope(cwd="/ws", roots=("/ws", "/home/u"), home="/home/u")).is_free


def test_git_is_free_in_every_root_and_nowhere_else() -> None:
    both = ("/ws", "/other/")
    assert judged("git -C /other status", ShellScope(cwd="/ws", roots=both, repositories=both)).is_free
    assert not judged("git status", ShellScope(cwd="/ws/sub", roots=("/ws",), repositories=("/ws", "/ws/sub"))).is_free


def test_git_is_not_free_in_a_root_without_a_repository_of_its_own() -> None:
    without = ShellScope(cwd="/ws", roots=("/ws", "/other"), repositories=("/other",))
    assert codes("git status", without) == {Code.RUNS_CODE}
    assert codes("git -C /other status && cd /ws && git ls-files -m", without) == {Code.RUNS_CODE}
    assert judged("git --version", without).is_free
    assert judged("git -C /other status", without).is_free


@pytest.mark.parametrize(
    ("opening", "closing"), [("echo $(", ")"), ("( ", " )"), ("{ ", "; }"), ("if ls; then ", "; fi")]
)
def test_nesting_is_bounded(opening: str, closing: str) -> None:
    assert judged(opening * 5 + "ls" + closing * 5).is_free
    for depth in (60, 200, 1000):
        assert codes(opening * depth + "ls" + closing * depth) & {Code.TOO_DEEP, Code.NOT_UNDERSTOOD}


def test_loops_inside_loops_are_bounded() -> None:
    words = " ".join(f"w{number}" for number in range(30))
    opening = "".join(f"for x{level} in {words}; do " for level in range(5))
    assert Code.TOO_DEEP in codes(opening + "f() { ls; }; " + "done; " * 4 + "done")


def test_folders_are_followed_only_so_far() -> None:
    """Each change may fail, so every one doubles nothing but adds a folder: without a bound this would take minutes."""
    assert Code.TOO_LONG in codes("cd a;" * 3000 + "ls")


def test_shells_inside_shells_are_bounded() -> None:
    text = "ls"
    for _ in range(8):
        text = f"bash -c {shlex.quote(text)}"
    assert Code.TOO_DEEP in codes(text)


@given(st.text(max_size=200))
def test_any_text_is_judged_and_what_is_free_names_known_programs(text: str) -> None:
    judgement = judged(text)
    assert judgement.is_free == (not judgement.reasons)
    if judgement.is_free:
        assert all(first_word(seen.words) in RULES.keys() | VERSIONED | {"cd", ""} for seen in judgement.commands)


@given(st.text("lsrmcat $(){}[]<>|&;'\"`\\\n-./*?~=#!x", max_size=60))
@settings(max_examples=300)
def test_signs_in_any_order_free_no_unknown_program(text: str) -> None:
    judgement = judged(text)
    if judgement.is_free:
        assert all(first_word(seen.words) != "rm" for seen in judgement.commands)
        assert not any(sign in text for sign in ("`rm ", "$(rm "))


def first_word(words: tuple[str, ...]) -> str:
    return shlex.split(words[0].removeprefix("$"))[0].rpartition("/")[2] if words else ""


FREE_TEXTS = st.sampled_from(
    [text.strip() for texts in FREE.values() for text in texts if "EOF" not in text and "cd" not in text]
)
ASKING_TEXTS = st.sampled_from(
    [text for code in (Code.UNKNOWN_PROGRAM, Code.WRITES, Code.OUTSIDE_WORKSPACE) for text in ASKS[code]]
)
# Whatever stands around a command, it runs, or may run.
FRAMES = st.sampled_from(
    [
        "{0}; {1}", "{1}; {0}", "{0} && {1}", "{1} && {0}", "{0} || {1}", "{0} | {1}", "{1} | {0}", "{0} & {1}",
        "{0}\n{1}",
        "({0}; {1})", "{{ {1}; }}; {0}", "if {0}; then {1}; fi", "if {1}; then {0}; fi", "while {0}; do {1}; done",
        "! {1}",
        "for x in a b; do {1}; done; {0}", "echo $({1}); {0}", 'echo "$({1})" | {0}', "case x in y) {1};; esac",
        "{0} <({1})", "[[ -n $({1}) ]]", "x=$({1}); {0}",
    ]
)  # fmt: skip


@given(FREE_TEXTS, ASKING_TEXTS, FRAMES)
def test_no_frame_frees_what_asks(free: str, asking: str, frame: str) -> None:
    assert not judged(frame.format(free, asking)).is_free


ROWS = ["{0}; {1}", "( {0} ) && ( {1} )", "{{ {0}; }} || {{ {1}; }}", "{{ {0}; }}\n{1}"]


@given(FREE_TEXTS, FREE_TEXTS, st.sampled_from(ROWS))
@settings(max_examples=60)
def test_two_free_texts_in_a_row_are_free(first: str, second: str, frame: str) -> None:
    assert judged(frame.format(first, second)).is_free


WORDS_OF_BASH = frozenset("then else elif done esac case while until".split())
NAMES = st.text(string.ascii_lowercase, min_size=3, max_size=8).filter(
    lambda name: name not in RULES and name not in VERSIONED and name not in WORDS_OF_BASH
)
PLACES = st.sampled_from(
    [
        "{}", "{} --version", "ls; {}", "ls | {} a", "X=1 {}", "echo $({})", "echo `{}`", "env {}", "xargs {}",
        "bash -c {}",
        "find . -exec {} ;", "nice {}", "time {}", "command {}", "timeout 3 {}", "cat <({})", "ls && {} &",
        "/usr/bin/{}",
        "if {}; then ls; fi", "fzf --preview={}", "cat <<E\n$({})\nE",
    ]
)  # fmt: skip


@given(NAMES, PLACES)
def test_a_program_outside_the_table_is_never_free(name: str, place: str) -> None:
    assert not judged(place.format(name)).is_free


WORDS = st.lists(
    st.sampled_from(
        [
            "-l",
            "-la",
            "a.txt",
            "src",
            "../x",
            "/etc/passwd",
            "--output=x",
            "-o",
            "x",
            "*.py",
            "--",
            "a b",
            "$x",
            "~",
            "-",
        ]
    ),
    max_size=4,
)
PROGRAMS = st.sampled_from(["ls", "cat", "sort", "grep", "rm", "find", "head", "git", "tree", "echo"])
STYLES = st.lists(st.sampled_from(["single", "double", "backslash", "split"]), min_size=6, max_size=6)
BLANKS = st.sampled_from([" ", "  ", "\t", " \\\n  "])


@given(PROGRAMS, WORDS, STYLES, BLANKS)
def test_quotes_and_blanks_change_no_verdict(program: str, words: list[str], styles: list[str], blank: str) -> None:
    plain = " ".join(shlex.quote(word) for word in (program, *words))
    dressed = blank.join(quoted(word, style) for word, style in zip((program, *words), styles, strict=False))
    assert [reason.code for reason in judged(dressed).reasons] == [reason.code for reason in judged(plain).reasons]


def quoted(word: str, style: str) -> str:
    match style:
        case "single":
            return shlex.quote(word)
        case "double":
            return '"' + word.replace("$", "\\$") + '"'
        case "backslash":
            return "".join(f"\\{letter}" for letter in word)
        case _:
            return "".join(f"'{letter}'" for letter in word)


@pytest.mark.parametrize(
    "text",
    [
        "echo {\U000f0000",
        "echo {1..\u3042}",
        "sh -c 'echo {\U000f0000'",
        "echo {- \u00e9",
        "{12..\U0010fffdx}",
        "${{\U0010fffd9",
    ],
)
def test_text_that_would_bring_the_parser_down_is_not_given_to_it(text: str) -> None:
    """In a process of its own: were it given to the parser, that process would end by a signal."""
    program = (
        "import sys; from palyra.adapters.shell import TreeSitterShell; from palyra.core.shell import ShellScope, judge; "
        "print(judge(sys.argv[1], ShellScope(cwd='/w', roots=('/w',)), TreeSitterShell().parse).is_free)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, text], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "False\n")
