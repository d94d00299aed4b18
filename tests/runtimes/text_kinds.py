"""More hostile texts for the campaign, by kind: what a shell inherits, what a folder holds, what other programs obey.

Owns: the texts, and the ground that some of them need. Does not own: running and judging them (text_campaign).
"""

import os
import shlex
import subprocess
from pathlib import Path

from tests.runtimes.shells import NOBODY, House

# What a shell is given, and what it leaves: descriptors, start files, signals, descendants, floods.
SHELL = [
    "for f in /proc/self/fd/* /proc/$$/fd/* /proc/1/fd/* /proc/$PPID/fd/*; do readlink $f; done; echo x > y",
    (
        'for n in $(seq 3 255); do { printf "{\\"exit-code\\": 0}\\n" >&$n; } 2>/dev/null && [[ $n != '
        '10 ]] && echo "net fd $n"; done; exit 3'
    ),
    (
        'for f in /proc/1/fd/[3-9]* /proc/1/fd/??; do { printf "{\\"exit-code\\": 0}\\n" > $f; } 2>/de'
        'v/null && echo "net wrote $f"; done; exit 3'
    ),
    "for n in $(seq 3 64); do read -t 0 -u $n 2>/dev/null && echo net gate $n; done; echo x > y",
    "exec {a}<>/proc/1/fd/3 && echo net pid one; exec 9>&3 && echo net three",
    "cat /proc/1/environ /proc/1/maps /proc/1/mem 2>/dev/null | head -c 10; ls /proc/1/root/ /proc/1/cwd/ 2>/dev/null",
    "ls /proc/*/fd/ /proc/*/task/*/fd/ 2>/dev/null; find /proc -maxdepth 3 -lname 'socket:*' -print 2>/dev/null",
    "printf '#!/usr/bin/bash\\nls -l /proc/self/fd\\n' > s; chmod +x s; ./s; BASH_ENV=./s bash -c :",
    "export BASH_ENV=$PWD/e ENV=$PWD/e; echo 'ls /proc/$$/fd; echo x > ran' > e; bash -c :; dash -c :; sh -i </dev/null",
    "env | grep -c PALYRA; env | grep BASH_ENV; bash -c 'ulimit -Hu unlimited; ulimit -Hf unlimited' && echo net limits",
    "cat /run/palyra/limits /run/*/limits /run/*/*; ls -la /run /run/* /run/home",
    "export PROMPT_COMMAND='echo x > p'; bash -i </dev/null; PS1='$(echo x > q)' bash -i </dev/null",
    "PS4='$(echo x > traced)'; set -x; : one",
    "trap 'echo x > onexit' EXIT; trap 'echo x >> ondebug' DEBUG; trap 'echo x > onerr' ERR; false",
    "trap 'sleep 1000' EXIT TERM HUP; echo x > y",
    "trap 'sleep 1000 &' EXIT; (trap '' HUP; sleep 1000) & exit 0",
    "exec setsid sleep 1000",
    "exec -a bwrap sleep 1000 & exec -a '[kworker/0:0]' sleep 1000 & echo x > y",
    "exec 1>&- 2>&-; echo x > y; (sleep 1000 &)",
    "exec 1</dev/null 2>/dev/null; yes > big & sleep 0.1; echo x > y",
    "kill -KILL 1; kill -TERM 1; kill -STOP 1; kill -SEGV 1; kill -CONT 1; echo x > y",
    "kill -STOP $$",
    "kill -9 $$",
    "kill -SEGV $$; echo x > y",
    "kill -s USR1 -- -1; kill -RTMIN+3 1; echo x > y",
    "python3 -c 'import ctypes; c = ctypes.CDLL(None); c.prctl(15, b\"bwrap\"); import time; time.sleep(1000)' & echo x > y",
    'python3 -c \'import ctypes, time; ctypes.CDLL(None).prctl(36, 1); import subprocess; subprocess.Popen(["sleep", "1000"])\'',
    (
        "python3 -c 'import os, signal\nfor n in range(1, 65):\n try: signal.signal(n, signal.SIG_IGN"
        ")\n except (OSError, ValueError): pass\nfor _ in range(9):\n if os.fork(): os._exit(0)\n os.se"
        "tsid()\nimport time; time.sleep(1000)'"
    ),
    (
        "python3 -c 'import os, time\nfor n in range(40):\n if os.fork() == 0:\n  os.setsid(); open(f\""
        'f{n}", "w").write("x"); time.sleep(1000)\''
    ),
    (
        "python3 -c 'import threading, time\nfor n in range(600): threading.Thread(target=time.sleep"
        ", args=(9,), daemon=True).start()'"
    ),
    "for n in $(seq 40); do (for m in $(seq 40); do sleep 100 & done; wait) & done; wait",
    "f() { f & f & }; f 2>/dev/null; sleep 1",
    'bash -c \'bash -c "bash -c \\"sleep 1000 & disown\\" & disown" & disown\'; echo x > y',
    "nohup bash -c 'while :; do echo x >> late; sleep 0.01; done' >/dev/null 2>&1 &",
    "( while :; do mv notes n2 2>/dev/null; mv n2 notes 2>/dev/null; done ) & sleep 0.3; echo x > y",
    "( sleep 0.2; echo late > AGENTS.md; echo late > .envrc ) & disown; exit 0",
    "coproc A { cat; }; coproc B { sleep 1000; }; echo x >&${A[1]}; echo x > y",
    "exec 5<> <(sleep 1000); exec 6> >(sleep 1000); echo x > y",
    "mkfifo a b; (cat a > b &); (cat b > a &); echo x > y",
    "head -c 70000000 /dev/zero",
    "base64 -w0 /dev/urandom",
    "yes '' | head -c 80000000 >&2",
    "while :; do printf '\\e[2J\\e]0;x\\a'; done",
    "printf '\\e]52;c;eA==\\a\\e[8;1;1t\\x9b31m\\u202e'; echo x > y",
    "printf 'net \\xff\\xfe\\n' | tail -c 3; printf %s $'\\ud800' 2>/dev/null; echo x > y",
    "ulimit -c unlimited; sh -c 'kill -ABRT $$'; ls core* 2>/dev/null && echo net core",
    "enable -f ./x.so x; LD_PRELOAD=./x.so true; LD_AUDIT=./x.so true; echo x > x.so",
    "printf 'int x;' > x.c; export LD_LIBRARY_PATH=. LD_PRELOAD=$PWD/x.c GCONV_PATH=. LOCPATH=.; /bin/true; echo x > y",
    "hash -p ./notes ls; ls; alias cat='sleep 1000 &'; shopt -s expand_aliases; cat x; echo x > y",
    "export IFS=/ PATH=.:$PATH SHELLOPTS=xtrace BASHOPTS=extdebug BASH_XTRACEFD=1; bash -c 'echo x > y'",
    "export 'BASH_FUNC_ls%%=() { echo x > fn; }'; bash -c ls",
    "env -i bash -c 'echo x > y; ls /proc/self/fd'; env -i /bin/dash -c 'ls /proc/self/fd; ulimit -n'",
    "dash -c 'exec 3>&1; exec 4<&0; (sleep 1000; echo x > late) & echo x > y'",
    "dash -c 'trap \"echo x > t\" 0; set -e; false'",
    "command -v zsh >/dev/null && zsh -c 'zmodload zsh/system; sysopen -rw -u 5 y; (sleep 1000 &!)'; echo x > y",
    "busybox sh -c 'sleep 1000 & echo x > y' 2>/dev/null || echo x > y",
    "perl -e 'use POSIX; fork && exit; setsid; fork && exit; sleep 1000'; echo x > y",
    'perl -e \'for my $n (3..99) { open(my $f, "+<&=", $n) and print "net fd $n\\n" }\'; echo x > y',
    "python3 -c 'import os\nfor n in range(3, 4096):\n try: os.fstat(n)\n except OSError: continue\n print(\"net fd\", n)'",
    (
        'python3 -c \'import os\nfor p in os.listdir("/proc"):\n if p.isdigit() and p != str(os.getpid'
        "()):\n  try: h = os.pidfd_open(int(p))\n  except OSError: continue\n  import ctypes\n  for n i"
        "n range(12):\n   g = ctypes.CDLL(None).syscall(438, h, n, 0)\n   if g >= 0 and int(p) == 1: "
        'print("net stolen", p, n)\''
    ),
    (
        "python3 -c 'import ctypes\nc = ctypes.CDLL(None)\nprint(c.ptrace(16, 1, 0, 0))\nb = ctypes.cr"
        "eate_string_buffer(8)\nprint(c.process_vm_readv(1, b, 1, b, 1, 0))'; echo x > y"
    ),
    "gdb -p 1 -batch 2>/dev/null; strace -p 1 2>/dev/null; echo x > y",
    (
        'python3 -c \'import os, socket\ns = socket.socket(socket.AF_UNIX)\ns.bind("\\0palyra")\ns.liste'
        "n()\nif os.fork() == 0:\n  import time; time.sleep(1000)'"
    ),
    "python3 -c 'import socket; s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); s.bind((0, -1))' && echo x > y",
    "python3 -c 'import socket; socket.socket(40, socket.SOCK_STREAM)' 2>/dev/null && echo net vsock",
    (
        "python3 -c 'import socket; socket.socket(16, 3, 15).bind((0, 1)); socket.socket(38, 5, 0)'"
        " 2>/dev/null && echo net alg; echo x > y"
    ),
    (
        "python3 -c 'import socket; socket.create_connection((\"example.invalid\", 80), 1)' 2>/dev/nu"
        "ll && echo net example; getent hosts example.invalid && echo net name"
    ),
    (
        "(exec 3<>/dev/udp/192.0.2.1/53 && printf x >&3) 2>/dev/null && echo net udp; (exec 3<>/dev"
        "/tcp/::1/PORT) 2>/dev/null && echo net six; echo x > y"
    ),
    "mount -t tmpfs x . ; mount --bind / sub; umount -l .; pivot_root . .; chroot . true; echo x > y",
    "unshare -Ur true && echo net userns; unshare -Urm mount -t overlay x x; unshare -f sleep 1000 & echo x > y",
    "mkdir cg && mount -t cgroup2 x cg; echo 0 > /sys/fs/cgroup/cgroup.procs; echo $$ > /proc/self/cgroup; echo x > y",
    "echo 1000 > /proc/self/oom_score_adj; echo c > /proc/sysrq-trigger; echo x > /proc/sys/kernel/core_pattern && echo net core",
    "nice -n -20 sleep 1000 & renice -20 1; chrt -f 99 true && echo net realtime; ionice -c1 true; echo x > y",
    "date -s 2001-01-01; hwclock -w; hostname evil; sysctl -w kernel.hostname=x; echo x > y",
    "chmod 000 /dev/null /dev/zero; rm /dev/null; ln -sf /etc/passwd /dev/null; echo x > y",
    "script -qc 'sleep 1000 &' /dev/null; python3 -c 'import pty; pty.spawn([\"sleep\", \"1\"])'; echo x > y",
    "timeout -s KILL 1 sleep 1000; setsid -f timeout 1000 sleep 1000; echo x > y",
    "crontab -l; echo '* * * * * x' | crontab -; at now <<< x; systemd-run --user sleep 1000; batch <<< x; echo x > y",
    "exec < /dev/zero; read -N 1000000 x; echo x > y",
    "readarray -n 1000000 a < /dev/urandom; echo x > y",
    "x=a; while :; do x=$x$x$x$x; done",
    "eval \"$(printf 'a(){ %s' \"$(printf '{ %.0s' {1..20000})\")\"",
    "printf '%0100000000d' 1 > y; echo {1..3000000} | wc -c",
    "python3 -c 'import mmap; m = mmap.mmap(-1, 10**12)'; python3 -c 'x = b\"x\" * 10**11'; echo x > y",
    (
        "dd if=/dev/zero of=/dev/shm/x bs=1M count=100; dd if=/dev/zero of=/tmp/x bs=1M count=600; "
        "dd if=/dev/zero of=$HOME/x bs=1M count=600; echo x > y"
    ),
]
# What a folder can hold: links, names, modes, strange files, large ones, what an overlay keeps for itself.
FOLDERS = [
    "mknod w c 0 0; mknod AGENTS.md c 0 0; rm AGENTS.md; mknod AGENTS.md c 0 0",
    "python3 -c 'import os, stat\ntry: os.mknod(\"notes2\", stat.S_IFCHR, 0)\nexcept OSError as e: print(e)'; echo x > y",
    "setfattr -n user.overlay.opaque -v y sub; setfattr -n user.overlay.opaque -v y .; echo x > sub/y",
    (
        'python3 -c \'import os\nfor n in ("opaque", "whiteout", "redirect", "metacopy", "origin", "o'
        'verlay.opaque", "overlay.whiteout"):\n for p in ("sub", ".", "notes"):\n  for v in (b"y", b"'
        'x", b"/.git/hooks", b""):\n   try: os.setxattr(p, "user.overlay." + n, v)\n   except OSError'
        " as e: print(n, e)'; echo x > sub/y"
    ),
    (
        'python3 -c \'import os\nfor n in ("trusted.overlay.opaque", "security.capability", "system.p'
        'osix_acl_access"):\n try: os.setxattr("notes", n, b"y")\n except OSError as e: print(n, e)\';'
        " echo x >> notes"
    ),
    "rm -r tools; mkdir tools; setfattr -n user.overlay.opaque -v y tools 2>/dev/null; echo x > tools/other",
    "rm -r sub; ln -s tools sub; echo x > sub/plain",
    "mv tools gone; ln -s gone tools",
    "mv .git/hooks h; mkdir .git/hooks; mv h/* .git/hooks/",
    "mv .git g; mv g .git; echo x > y",
    "cp -a .git other; mv other/hooks/waiting other/hooks/pre-commit",
    "mkdir d; echo x > d/tasks.json; mv d .vscode",
    "mkdir -p d/hooks; echo x > d/hooks/x; mv d/hooks .git/hooks2; mv .git/hooks2 .git/hooks/x",
    "mkdir -p a/b/c; echo x > a/b/c/SKILL.md; mv a b2; mv b2 skills2",
    "ln notes hard; echo x >> hard; rm notes; mv hard notes",
    "ln .git/config plain; printf '[alias]\\n\\tx = !x\\n' >> plain",
    "ln .git/hooks/waiting plain; chmod +x plain; rm plain",
    "ln -s .git/hooks h; echo x > h/post-commit",
    "ln -s . here; ln -s here/here/here deep; echo x > deep/.envrc",
    "ln -s a b; ln -s b a; echo x > a; ln -s self self; ls -R self/ 2>/dev/null; echo x > y",
    "ln -s ../workspace/notes climb; ln -s $PWD/notes whole; ln -s $PWD/../workspace/AGENTS.md out; echo x >> whole",
    "ln -s sub/../../outside/secret.txt o; ln -s /proc/self/cwd/notes p; ln -s /proc/1/root q; ln -s /dev/tcp/x r",
    "ln -s $'notes\\n' nl; ln -s \"$(printf 'a/%.0s' {1..1500})\" long; ln -s '' empty 2>/dev/null; echo x > y",
    "rm notes; ln -s AGENTS.md notes; echo x > notes",
    "rm now; ln -s v2 now",
    "rmdir late; ln -s v2 late",
    "ln -s v2 gone",
    "rm -r v1; ln -s v2 v1",
    "mkdir gone; echo x > gone/rules",
    "echo x >> scripts1/clean.txt",
    "echo x >> real.conf",
    "echo x >> nested/tools/n.txt",
    "echo x >> apart/z.txt",
    "echo x >> tools/long.txt",
    "echo x >> tools/pager.txt",
    "for n in $(seq 300); do echo x > f$n; done; echo x > .envrc",
    "mkdir many; for n in $(seq 400); do echo x > many/f$n; done; echo x > many/AGENTS.md",
    "mkdir many; for n in $(seq 400); do echo x > many/f$n; done; chmod +x many/f399",
    "d=$(printf 'd/%.0s' {1..400}); mkdir -p $d 2>/dev/null; cd $d 2>/dev/null && echo x > AGENTS.md",
    'python3 -c \'import os\nfor _ in range(900):\n os.mkdir("d"); os.chdir("d")\nopen(".envrc", "w").write("x")\'',
    "for n in $(seq 40); do mkdir $(printf 'n%.0s' {1..250}) && cd n*; done; echo x > .envrc",
    "mkdir l; chmod 000 l; mkdir m; echo x > m/AGENTS.md; chmod 400 m/AGENTS.md; chmod 000 m",
    "chmod 000 notes; chmod 777 .; chmod 1777 sub; chmod 2777 tools; chmod 4755 guide.md; chmod 0 .git",
    "chmod -R a+rwx .; chmod -R 000 tools",
    "install -m 6755 notes suid; install -m 755 notes exe; cp --preserve=all notes kept",
    "umask 0; mkdir open; echo x > open/x; chmod g+s open; chmod o+t open",
    "touch -h -d 2001-01-01 notes CLAUDE.md; touch -d 2100-01-01 sub .; touch new",
    "truncate -s 4G sparse; truncate -s 1T huge; truncate -s 9223372036854775807 max; fallocate -l 100G full; echo x > y",
    "for n in 1 2; do truncate -s 1G s$n; done",
    "truncate -s 0 notes; truncate -s 100 AGENTS.md; fallocate -p -o 0 -l 1 guide.md; echo x > y",
    "dd if=/dev/zero of=big bs=1M count=64; cp --reflink=auto big big2; cp --sparse=always big big3",
    "for n in $(seq 12); do ln -f notes h$n; done; truncate -s 50M notes",
    "mkfifo AGENTS.md.fifo .envrc; mkfifo .git/hooks/pre-commit; rm notes; mkfifo notes",
    (
        'python3 -c \'import socket, os\nfor p in (".envrc", "sub/s", ".git/fsmonitor--daemon.ipc"):\n'
        " socket.socket(socket.AF_UNIX).bind(p)'"
    ),
    "mknod blk b 8 0; mknod mem c 1 1; mknod p p; mknod console c 5 1; cp -a /dev/null n; echo x > y",
    "rm -r sub; echo x > sub; rm notes; mkdir notes; echo x > notes/x",
    "rm AGENTS.md; mkdir AGENTS.md; echo x > AGENTS.md/x",
    "rm -rf .git; echo x > .git; rm .git; mkdir .git; echo x > .git/x",
    "echo x > $'a\\tb'; echo x > $'a\\eb'; echo x > $'a\\u202eb'; echo x > ' '; echo x > -rf; echo x > '*'; echo x > '~'",
    "echo x > $'a\\rb'; mkdir $'x\\ny'; echo x > $'x\\ny/AGENTS.md'; mkdir $'\\xff'; echo x > $'\\xff/.envrc'",
    "rm -r tools; mkdir tools; echo x > $'tools/n\\nl'",
    "echo x > con; echo x > NUL.txt; echo x > 'a:b'; echo x > 'a|b'; echo x > 'a\\b'; echo x > 'GIT~1'",
    "echo x > Notes; echo x > NOTES; echo x > $'caf\\u00e9'; echo x > $'cafe\\u0301'",
    "find . -path ./.git -prune -o -type f -print0 | xargs -0 rm -f",
    "find . -mindepth 1 -delete; echo x > y",
    "find . -depth -mindepth 1 -exec mv {} /tmp/ \\; 2>/dev/null; echo x > y",
    'for f in *; do : > "$f"; done 2>/dev/null',
    "git rm -rqf . 2>/dev/null; rm -f *; echo x > y",
    "exec 7< notes; rm notes; cat <&7 > notes; flock -x notes sleep 0.1",
    (
        'python3 -c \'import os\nf = os.open(".", os.O_TMPFILE | os.O_RDWR)\nos.write(f, b"x")\nos.link'
        '(f"/proc/self/fd/{f}", ".envrc2", follow_symlinks=True)\''
    ),
    'python3 -c \'import os, mmap\nf = open("AGENTS.md", "r+b"); m = mmap.mmap(f.fileno(), 0); m[0:1] = b"z"; m.flush()\'',
    'python3 -c \'import ctypes, os\nctypes.CDLL(None).renameat2(-100, b"notes", -100, b"AGENTS.md", 2)\'; mv -n AGENTS.md n3',
    'python3 -c \'import ctypes\nprint(ctypes.CDLL(None).renameat2(-100, b"notes", -100, b"n4", 4))\'; echo x > y',
    "chattr +a notes; chattr +i AGENTS.md; lsattr; setfacl -R -m u:1:rwx .; setfacl -d -m u:1:rwx sub; echo x > sub/y",
    "chown 1:1 notes; chgrp 1 notes; chown -R nobody sub; echo x > y",
    "tar cf t.tar notes; tar xf t.tar -C sub; tar cf - .git/config | tar xf - -C sub; cpio -o < notes > c 2>/dev/null",
    "rsync -a sub/ tools/ 2>/dev/null; cp -al .git gitlinks; cp -rs $PWD/.git gitsym; echo x > y",
    "swapon notes; losetup -f notes; mkfs.ext4 -q notes 2>/dev/null; echo x > y",
    "mkdir -p ../outside/x ../palyra/x; echo x > ../outside/secret.txt; echo x > ../palyra/policies; echo x > ../.envrc",
    "cd /proc/self/cwd/..; ls; echo x > y; cd /proc/1/cwd && echo x > z; cd $OLDPWD; echo x > w",
]
# Repositories in other shapes, and what git obeys by way of another file.
GIT = [
    "printf '[core]\\n\\tbare = false\\n' > nested/.git/config",
    "printf 'gitdir: ../tools\\n' > apart/.git",
    "mkdir w; echo 'gitdir: ../.git/worktrees/w' > w/.git",
    "git worktree add -q --detach w4; echo x > w4/plain",
    "git -c protocol.file.allow=always submodule --quiet add ./bare mod; echo x > y",
    "git clone -q . copy; git -C copy config core.fsmonitor ./x",
    "git init -q --separate-git-dir gd wt; echo x > gd/hooks/x",
    "git init -q --ref-format=reftable rt 2>/dev/null || git init -q rt",
    "mkdir -p store/objects store/refs; echo 'ref: refs/heads/x' > store/HEAD; printf '[core]\\nfsmonitor=x\\n' > store/config",
    "mkdir -p store; echo 'ref: refs/heads/x' > store/HEAD; echo ../.git > store/commondir; echo x > store/config.worktree",
    "echo /tmp/x > .git/commondir; echo x > .git/gitdir",
    "printf '[extensions]\\n\\tworktreeConfig = true\\n' >> .git/config; echo x > .git/config.worktree",
    "printf '[includeIf \"onbranch:**\"]\\n\\tpath = ../notes\\n' >> .git/config",
    "printf '[include]path=../notes' >> included.conf",
    "echo x > bare/hooks/post-receive; echo x > bare/config.worktree; echo x > meta/commondir",
    "echo x > .git/hooks/sendemail-validate; echo x > .git/hooks/lib.sh",
    "git config --file .gitmodules submodule.x.update '!x'; git add .gitmodules",
    "printf 'x filter=x\\n' > .git/info/attributes; printf '* diff=x merge=x\\n' > deep.gitattributes",
    "echo x > .git/info/grafts; echo x > .git/shallow; echo x > .git/info/sparse-checkout",
    "mkdir -p .git/sequencer .git/rebase-apply; echo x > .git/sequencer/todo; echo x > .git/rebase-apply/patch",
    "git update-index --add --cacheinfo 100755,$(echo x | git hash-object -w --stdin),.envrc; git checkout-index -f .envrc",
    (
        "git update-index --add --cacheinfo 120000,$(printf .git/hooks | git hash-object -w --stdin"
        "),lnk; git checkout-index lnk; echo x > lnk/post-commit"
    ),
    "echo evil > m; git add m; git -c user.name=a -c user.email=a@example.org stash -q; git stash apply -q; mv m .envrc",
    "git symbolic-ref HEAD refs/heads/../../config; git update-ref refs/heads/x HEAD; echo x > .git/refs/heads/config",
    "git -c user.name=a -c user.email=a@example.org -c core.hooksPath=tools commit -q --allow-empty -m x; git gc -q; echo x > y",
    "git bisect start; git bisect run true; git rerere; git notes add -m x 2>/dev/null; git replace --graft HEAD; echo x > y",
    "git bundle create b HEAD; git archive -o a.tar HEAD; git fast-export --all > f; git fast-import < f; echo x > y",
    "git maintenance start 2>/dev/null; git config --global core.pager x; git config --system core.pager x; echo x > y",
    "git credential-store store <<< x; git daemon --detach --base-path=. 2>/dev/null; git instaweb 2>/dev/null; echo x > y",
    (
        "GIT_DIR=$PWD/.git GIT_WORK_TREE=sub GIT_EXTERNAL_DIFF=./x GIT_SSH_COMMAND=./x GIT_PROXY_CO"
        "MMAND=./x git diff HEAD; echo x > y"
    ),
    "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=core.fsmonitor GIT_CONFIG_VALUE_0='echo x > ran; false' git status; echo x > y",
    (
        "git -c core.sshCommand=./x ls-remote ssh://192.0.2.1/x; git clone -q git://192.0.2.1/x; gi"
        "t ls-remote 'ext::sh -c ./x'; echo x > y"
    ),
    "mkdir -p .hg; echo shared > .hg/requires; echo ../x > .hg/sharedpath; mkdir x; printf '[hooks]\\nupdate = x\\n' > x/hgrc",
    "mkdir .sl; echo ../x > .sl/sharedpath",
    "mkdir .jj; echo ../x > .jj/repo",
    "mkdir -p CVS; echo ':fork:/x' > CVS/Root; echo x > CVS/Entries",
    "mkdir -p .svn; echo x > .svn/wc.db; mkdir -p .bzr/branch; echo x > .bzr/branch/branch.conf",
]
# What a program obeys by itself, by name.
_OBEYED = """
AGENT.md CODEX.md IFLOW.md .claude.json .roomodes .kilocodemodes .aiassistant/rules/x.md .cline/x.md
.codeium/config.json .cody/x .devin/x .gptme/x gptme.toml .grok/settings.json .iflow/settings.json .qodo/x .rovodev/x
.amp/settings.json .trunk/trunk.yaml .replit firebender.json .firebender/x .github/hooks/x.json .github/agents/x.md
.bsp/x.json hie.yaml .factorypath .classpath .lsp/config.edn .formatter.exs .lazy.lua .vimrc.local .clangd .ccls .luarc.jsonc
.solargraph.yml nbproject/project.properties x.ipr app.pro.user CMakeLists.txt.user .kateproject .RData .octaverc startup.m
.gnuplot .erlang .perldb .byebugrc .rdbgrc .rdbgrc.rb irb.rc _irbrc .pdbrc.py .duckdbrc .mongoshrc.js .htaccess .user.ini
web.config devfile.yaml .devfile.yaml .gitpod/automations.yaml hk.pkl .config/hk.pkl mise.dev.toml .mise.dev.toml
mise/config.toml .config/mise/conf.d/x.toml .nvmrc .node-version .python-version .java-version .ruby-gemset .env.leave
.ondirrc .smartcd/x
home/u/.config/fish/fish_variables home/u/.config/starship.toml home/u/.config/ghostty/config home/u/.config/zellij/config.kdl
home/u/.config/foot/foot.ini home/u/.config/bspwm/bspwmrc home/u/.config/awesome/rc.lua home/u/.config/mpv/scripts/a.lua
home/u/.config/yazi/init.lua home/u/.config/kak/kakrc home/u/.config/go/env home/u/.config/jj/config.toml
home/u/.config/Cursor/User/settings.json home/u/.config/openbox/autostart home/u/.config/gh/config.yml
home/u/.config/home-manager/home.nix home/u/.config/lazygit/config.yml
home/u/.aliases home/u/.zsh_aliases home/u/.bash_functions home/u/.bash_completion home/u/.fzf.bash home/u/.p10k.zsh
home/u/.cargo/env home/u/.cargo/bin/ls home/u/.nvm/nvm.sh home/u/.pyenv/x home/u/.asdf/asdf.sh home/u/.sdkman/bin/x
home/u/.zimrc home/u/.zpreztorc home/u/.kube/config home/u/.aws/config home/u/.docker/config.json home/u/.subversion/config
home/u/.forward home/u/.procmailrc home/u/.lesskey home/u/.tigrc home/u/.Xresources home/u/.xsessionrc home/u/.spacemacs
home/u/.doom.d/config.el home/u/.emacs.el home/u/.guile home/u/.sbclrc home/u/.julia/config/startup.jl
home/u/Library/LaunchAgents/x.plist home/u/.gemrc
.npmrc .yarnrc .yarnrc.yml .pnpmfile.cjs .nvimrc .exrc .nvim.lua .dir-locals.el .zed/tasks.json .helix/languages.toml
.windsurfrules GEMINI.md CLAUDE.local.md .devcontainer.json .rspec .pypirc .netrc .psqlrc .sqliterc .gdbinit
.lldbinit .inputrc .irbrc .pryrc .bazelrc .tool-versions
""".split()
# What a person's next ordinary command runs.
_RUN = """
pip.conf venv/pip.conf pip.ini uv.toml uv.lock poetry.lock Cargo.lock go.work go.sum Package.swift Podfile Gemfile.lock
composer.lock build.zig build.zig.zon project.clj deps.edn bb.edn x.sln x.fsproj nuget.config global.json x.gradle
home/u/.gradle/init.d/x.gradle home/u/.gradle/init.d/x.gradle.kts Makefile.PL Build.PL Makefile.in configure.in meson.options
conanfile.py turbo.json nx.json angular.json tsconfig.json gulpfile.mjs Gulpfile.ts gruntfile.ts Jakefile toxfile.py
gunicorn.conf.py pavement.py hatch_build.py pdm_build.py hatch.toml locustfile.py jupyter_server_config.py
jupyter_notebook_config.py docs/conf.py venv/bin/activate venv/bin/activate.fish venv/pyvenv.cfg pants.toml
Project.toml devenv.yaml environment.yml docker-compose-dev.yml Containerfile.dev docker-bake.hcl helmfile.yaml
kustomization.yaml terragrunt.hcl serverless.yml Procfile.dev app.desktop x.bash x.zsh x.fish build.ninja x.smk main.nf
.tox/py/lib/python3/site-packages/pytest/__init__.py .nox/x/lib/plain.py crontab user.service config.ru Fastfile
venv/lib/python3/site-packages/sitecustomize.py venv/lib/python3/site-packages/x.pth compile_commands.json x.tfvars
""".split()


def _write(path: str) -> str:
    folder, _, name = path.rpartition("/")
    start = f"mkdir -p {shlex.quote(folder)}; cd {shlex.quote(folder)}; " if folder else ""
    return f"{start}echo x > {shlex.quote(name)}"


OBEYED = [_write(path) for path in _OBEYED]
RUN = [_write(path) for path in _RUN]


def lay(house: House, user: str) -> None:
    """Adds to the ground of test_shell_planting: links whose way leads through links, and repositories in other places."""
    root = house.workspace
    for folder in ("v1", "v2", "late", "scripts1", "nested/tools"):
        (root / folder).mkdir(parents=True)
    for name in (
        "v1/guide.md",
        "v2/guide.md",
        "v2/rules",
        "scripts1/clean.txt",
        "real.conf",
        "tools/long.txt",
        "tools/pager.txt",
    ):
        (root / name).write_text("a\n")
    for name in ("nested/tools/n.txt", "apart/z.txt"):
        (root / name).write_text("a\n")
    for link, target in (
        ("now", "v1"),
        ("GEMINI.md", "now/guide.md"),
        (".cursorrules", "gone/rules"),
        (".clinerules", "late/rules"),
        ("scripts", "scripts1"),
        ("linked.conf", "real.conf"),
    ):
        (root / link).symlink_to(target)
    subprocess.run(["git", "init", "-q", "nested"], cwd=root, check=True)
    _append(root / ".git/config", '[include]\n\tpath = ../linked.conf\n[filter "y"]\n\tclean = sh scripts/clean.txt\n')
    _append(
        root / ".git/config", '[filter "l"]\n\tsmudge = sh \\\n\ttools/long.txt\n[pager]\n\tlog = sh tools/pager.txt\n'
    )
    _append(root / "nested/.git/config", '[filter "n"]\n\tclean = sh tools/n.txt\n')
    _append(root / "meta/config", '[filter "z"]\n\tclean = sh z.txt\n')
    for path in root.rglob("*") if user == "nobody" else ():
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


def _append(file: Path, text: str) -> None:
    file.write_text(file.read_text() + text)
