"""Ways out of the sandbox that must lead nowhere. Each is really tried, as root's daemon and as an ordinary user's."""

import os
import signal
import socket
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtimes.shells import NOBODY, SECRET, USERS, Attempt, House, attempt, open_house

REFUSED = ("Permission denied", "Operation not permitted", "Read-only file system", "No such file", "not permitted")


@pytest.fixture(params=USERS)
def user(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def house(user: str) -> Iterator[House]:
    with open_house(user) as made:
        yield made


def python(body: str) -> str:
    return f"python3 - <<'PY'\n{textwrap.dedent(body)}\nPY"


def call_number(name: str, *arguments: str) -> str:
    """A system call by its number, and the name of the error it gave."""
    return python(f"""
        import ctypes, errno, platform
        numbers = {{"x86_64": dict(ptrace=101, bpf=321, keyctl=250, add_key=248, userfaultfd=323, io_uring_setup=425,
            perf_event_open=298, mount=165, unshare=272, setns=308, open_by_handle_at=304, init_module=175, kexec_load=246,
            process_vm_readv=310, memfd_create=319, clone3=435, openat2=437, pivot_root=155, chroot=161),
            "aarch64": dict(ptrace=117, bpf=280, keyctl=219, add_key=217, userfaultfd=282, io_uring_setup=425,
            perf_event_open=241, mount=40, unshare=97, setns=268, open_by_handle_at=265, init_module=105, kexec_load=104,
            process_vm_readv=270, memfd_create=279, clone3=435, openat2=437, pivot_root=41, chroot=51)}}
        libc = ctypes.CDLL(None, use_errno=True)
        came = libc.syscall(numbers[platform.machine()]["{name}"], {", ".join(arguments) or "0, 0, 0, 0, 0"})
        print("errno", errno.errorcode.get(ctypes.get_errno(), "none") if came < 0 else "none")
    """)


# --- Reading and writing outside


@pytest.mark.parametrize(
    "path",
    [
        "{outside}/secret.txt",
        "{home}/secret.txt",
        "{workspace}/../outside/secret.txt",
        "/etc/shadow",
        "/root",
    ],
)
def test_nothing_outside_the_roots_can_be_read(user: str, house: House, path: str) -> None:
    place = path.format(outside=house.outside, home=house.home, workspace=house.workspace, base=house.base)
    done = attempt(user, f"cat {place}; ls -la {place} {place}/*", house)
    assert "outside: " not in done.output
    assert "palyra: " not in done.output
    assert any(word in done.output for word in REFUSED)


def test_links_of_the_workspace_lead_nowhere(user: str, house: House) -> None:
    (house.workspace / "file").symlink_to(house.outside / "secret.txt")
    (house.workspace / "folder").symlink_to(house.outside)
    (house.workspace / "top").symlink_to("/")
    done = attempt(
        user, f"cat file folder/secret.txt top{house.outside}/secret.txt; echo x > file; echo x > folder/new", house
    )
    assert SECRET not in done.output
    assert sorted(path.name for path in house.outside.iterdir()) == ["secret.txt"]


@pytest.mark.parametrize("way", ["/proc/1/root", "/proc/self/root", "/proc/2/root", "/proc/1/cwd", "/proc/$PPID/root"])
def test_proc_opens_no_other_root(user: str, house: House, way: str) -> None:
    done = attempt(user, f"cat {way}{house.outside}/secret.txt {way}/../../outside/secret.txt {way}/etc/shadow", house)
    assert SECRET not in done.output
    assert "root:" not in done.output


def test_only_three_descriptors_are_inside(user: str, house: House) -> None:
    with (house.outside / "secret.txt").open() as held:
        os.set_inheritable(held.fileno(), True)
        done = attempt(
            user,
            "for p in /proc/[0-9]*; do ls -l $p/fd; done; timeout 1 cat /proc/self/fd/* </dev/null 2>/dev/null; true",
            house,
        )
    assert SECRET not in done.output
    assert "secret.txt" not in done.output
    targets = {line.split(" -> ")[1] for line in done.output.splitlines() if " -> " in line}
    assert [
        one
        for one in targets
        if not one.startswith(("/dev/null", "pipe:", "/proc/", "/run/palyra/command", "anon_inode"))
    ] == []


def test_no_secret_of_the_daemon_is_in_any_environment(
    user: str, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALYRA_TEST_SECRET", SECRET)
    monkeypatch.setenv("GIT_DIR", str(house.outside))
    done = attempt(user, "env; cat /proc/*/environ; cat /proc/*/cmdline", house)
    assert SECRET not in done.output
    assert "GIT_DIR" not in done.output
    path = next(line for line in done.output.splitlines() if line.startswith("PATH="))
    assert str(house.workspace) not in path


def test_only_the_workspace_and_private_memory_can_be_written(user: str, house: House) -> None:
    done = attempt(
        user,
        "for f in / /dev /etc /usr /run /run/palyra /home /proc /bin /var /opt; do touch $f/x && echo wrote $f; done",
        house,
    )
    assert "wrote" not in done.output
    name = house.base.name  # No other program has a file of this name.
    done = attempt(user, f"for f in . /tmp ~ /dev/shm; do touch $f/{name} && echo wrote $f; done", house)
    assert done.output.count("wrote") == 4
    assert not Path("/tmp", name).exists()
    assert not Path("/dev/shm", name).exists()


def test_renaming_and_linking_races_lead_nowhere(user: str, house: House) -> None:
    """One side swaps a folder for a link to the outside while the other reads through it."""
    body = f"""
        import os, threading, time
        os.mkdir("real"); open("real/secret.txt", "w").write("inside")
        os.symlink("{house.outside}", "link")
        stop = time.process_time() + 0.8  # Of the processor: beside others it takes longer until both sides had turns.
        def swap():
            while time.process_time() < stop:
                os.rename("real", "x"); os.rename("link", "real"); os.rename("real", "link"); os.rename("x", "real")
        thread = threading.Thread(target=swap); thread.start()
        seen = set()
        while time.process_time() < stop:
            try:
                seen.add(open("real/secret.txt").read())
            except OSError as error:
                seen.add(error.errno)
        thread.join(); print(seen)
    """
    done = attempt(user, python(body), house)
    assert "inside" in done.output
    assert SECRET not in done.output


def test_a_root_that_a_command_turned_into_a_link_is_not_followed(house: House, user: str) -> None:
    """The working folder of the next call is looked at anew, and refused when it leads out."""
    attempt(user, f"mkdir sub && rmdir sub && ln -s {house.outside} sub", house, direct=True)
    done = attempt(user, "cat secret.txt", house, cwd="sub")
    assert (done.outcome, done.code) == ("failed", "outside_workspace")


# --- The network


def test_no_listener_of_the_machine_is_reached(user: str, house: House) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
    ):
        datagrams.bind(("127.0.0.1", 0))
        tcp, udp = listener.getsockname()[1], datagrams.getsockname()[1]
        done = attempt(
            user, f"(echo > /dev/tcp/127.0.0.1/{tcp}) && echo reached; echo sent > /dev/udp/127.0.0.1/{udp}", house
        )
        for waiting in (listener, datagrams):
            waiting.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()
        with pytest.raises(BlockingIOError):
            datagrams.recv(10)
    assert "reached" not in done.output


def test_there_is_no_network_but_its_own_loopback(user: str, house: House) -> None:
    done = attempt(
        user, "cut -d: -f1 -s /proc/net/dev | tr -d ' '; tail -n +2 /proc/net/route; cat /etc/resolv.conf", house
    )
    assert done.output.splitlines()[0] == "lo"
    assert len(done.output.splitlines()) == 2
    assert "resolv.conf: No such file" in done.output


def test_sockets_beyond_the_usual_are_refused(user: str, house: House) -> None:
    body = """
        import socket
        kinds = {"raw": (2, 3, 1), "packet": (17, 3, 0), "vsock": (40, 1, 0), "alg": (38, 5, 0), "bluetooth": (31, 3, 0)}
        for name, kind in kinds.items():
            try:
                socket.socket(*kind); print(name, "worked")
            except OSError as error:
                print(name, "refused", error)
    """
    done = attempt(user, python(body), house)
    assert "worked" not in done.output
    assert done.output.count("refused") == 5


def test_no_abstract_or_named_socket_of_the_machine_is_reached(user: str, house: House) -> None:
    with socket.socket(socket.AF_UNIX) as abstract, socket.socket(socket.AF_UNIX) as named:
        abstract.bind(f"\0palyra-test-{os.getpid()}")
        abstract.listen()
        named.bind(str(house.outside / "socket"))
        named.listen()
        body = f"""
            import socket
            for where in ("\\0palyra-test-{os.getpid()}", "{house.outside}/socket", "/run/docker.sock", "/run/systemd/notify"):
                try:
                    socket.socket(socket.AF_UNIX).connect(where); print("connected", where)
                except OSError as error:
                    print("refused", error)
        """
        done = attempt(user, python(body), house)
    assert "connected" not in done.output
    assert done.output.count("refused [") == 4


# --- The kernel


@pytest.mark.parametrize(
    "name",
    ["ptrace", "bpf", "keyctl", "add_key", "userfaultfd", "io_uring_setup", "perf_event_open", "mount", "setns",
     "open_by_handle_at", "init_module", "kexec_load", "process_vm_readv", "pivot_root", "chroot"],
)  # fmt: skip
def test_dangerous_system_calls_are_refused(user: str, house: House, name: str) -> None:
    assert "errno EPERM" in attempt(user, call_number(name), house).output


def test_new_namespaces_are_refused(user: str, house: House) -> None:
    assert "errno EPERM" in attempt(user, call_number("unshare", "0x10000000"), house).output
    assert "errno EPERM" in attempt(user, call_number("unshare", "0x00020000"), house).output
    assert "errno ENOSYS" in attempt(user, call_number("clone3"), house).output
    done = attempt(user, "unshare -U true && echo made; unshare -Ur mount -t tmpfs x /tmp && echo made", house)
    assert "made" not in done.output


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="only x86_64 has a second calling form")
def test_another_calling_form_kills_the_program(house: House, user: str) -> None:
    body = "import ctypes; ctypes.CDLL(None).syscall(0x40000000 + 39); print('came back')"
    done = attempt(user, f'python3 -c "{body}"; echo status $?', house)
    assert "came back" not in done.output.splitlines()
    assert f"status {128 + signal.SIGSYS}" in done.output


def test_mounting_and_becoming_root_have_no_effect(user: str, house: House) -> None:
    mounts = "mount -t tmpfs x /tmp; mount --bind /usr /run/home; umount /proc/sys"
    done = attempt(
        user,
        f"{mounts}; su -c id root; sudo -n id; newgrp root; id -u; grep -E 'NoNewPrivs|CapEff|CapBnd' /proc/self/status",
        house,
    )
    assert "uid=0" not in done.output
    assert [line.split() for line in done.output.splitlines()[-3:]] == [
        ["CapEff:", "0000000000000000"],
        ["CapBnd:", "0000000000000000"],
        ["NoNewPrivs:", "1"],
    ]


def test_no_file_can_be_made_setuid(user: str, house: House) -> None:
    body = """
        import os
        os.close(os.open("plain", os.O_CREAT | os.O_WRONLY, 0o755))
        for make in (lambda: os.chmod("plain", 0o4755), lambda: os.fchmod(os.open("plain", os.O_RDONLY), 0o2755),
                     lambda: os.open("new", os.O_CREAT | os.O_WRONLY, 0o6755), lambda: os.mknod("node", 0o104755),
                     lambda: os.chmod("plain", 0o6755, dir_fd=os.open(".", os.O_RDONLY))):
            try:
                make(); print("made")
            except OSError as error:
                print("refused", error)
    """
    done = attempt(
        user,
        f"{python(body)}\ncp /usr/bin/true copied; chmod u+s copied; install -m 4755 /usr/bin/true installed",
        house,
    )
    assert done.output.count("refused") == 5
    assert "made" not in done.output
    assert [path.name for path in house.workspace.iterdir() if path.stat().st_mode & 0o6000] == []


@pytest.mark.parametrize(
    "path",
    ["/proc/sys/kernel/hostname", "/proc/sys/kernel/domainname", "/proc/sys/vm/drop_caches", "/proc/sysrq-trigger",
     "/proc/sys/net/ipv4/ip_forward", "/proc/pressure/memory", "/proc/irq/default_smp_affinity", "/proc/mtrr"],
)  # fmt: skip
def test_switches_of_the_kernel_cannot_be_written(user: str, house: House, path: str) -> None:
    """Opened for writing only: were it possible, the machine of the test should not notice."""
    done = attempt(user, f"(exec 3>>{path}) && echo opened", house)
    assert "opened" not in done.output


@pytest.mark.parametrize(
    "path",
    ["/proc/version", "/proc/meminfo", "/proc/sys/kernel/hostname", "/usr/bin/true", "/usr"],
)
def test_what_belongs_to_the_machine_keeps_its_mode_owner_and_times(user: str, house: House, path: str) -> None:
    """Tried with what they have already: were it possible, the machine of the test should not notice."""
    mode = oct(os.stat(path).st_mode & 0o777)[2:]
    done = attempt(
        user,
        f"chmod -v {mode} {path} && echo done; chown 1000 {path} && echo done; touch -r {path} {path} && echo done",
        house,
    )
    assert "done" not in done.output


def test_devices_keep_their_modes(user: str, house: House) -> None:
    """An ordinary user's command cannot change them; after one of root's they are put back."""
    before = os.stat("/dev/full").st_mode
    done = attempt(user, "chmod 600 /dev/full; echo begun", house)
    assert "begun" in done.output
    assert os.stat("/dev/full").st_mode == before


def test_no_open_descriptor_is_a_file_of_the_machine(user: str, house: House) -> None:
    done = attempt(
        user, "readlink /proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2; cat; echo > /dev/null && echo fine", house
    )
    assert [line.split(":")[0] for line in done.output.splitlines()] == ["pipe", "pipe", "pipe", "fine"]


def test_core_dumps_cannot_be_led_to_a_program(user: str, house: House) -> None:
    before = Path("/proc/sys/kernel/core_pattern").read_text()
    done = attempt(user, "(exec 3>>/proc/sys/kernel/core_pattern) && echo opened; ulimit -c; ulimit -c 1000", house)
    assert "opened" not in done.output
    assert "0" in done.output.split()
    assert "cannot modify limit" in done.output
    assert Path("/proc/sys/kernel/core_pattern").read_text() == before


def test_the_sandboxs_first_process_has_no_more_rights_than_a_command(user: str, house: House) -> None:
    """It is of the same user, so its memory may be written: that must win nothing."""
    done = attempt(
        user, "grep -hE '^(CapEff|CapPrm|CapBnd|NoNewPrivs|Seccomp):' /proc/1/status /proc/self/status", house
    )
    rights = done.output.splitlines()
    assert rights[:5] == rights[5:]
    assert [line.split()[1] for line in rights[:5]] == ["0000000000000000"] * 3 + ["1", "2"]


def test_the_machines_memory_cannot_be_read(user: str, house: House) -> None:
    done = attempt(
        user,
        "for f in kcore kpageflags kmsg; do head -c 8 /proc/$f && echo was read; done; ls /dev/mem /dev/kmem",
        house,
    )
    assert "was read" not in done.output


# --- The daemon and its machine


def test_no_process_outside_can_be_signalled(user: str, house: House) -> None:
    bystander = subprocess.Popen(["sleep", "60"], user=NOBODY if user == "nobody" else None)
    try:
        attempt(user, f"kill -9 {os.getpid()} {os.getppid()} {bystander.pid}; kill -9 -1", house)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_no_process_of_the_machine_is_seen(user: str, house: House) -> None:
    done = attempt(user, "ls -d /proc/[0-9]* | wc -l; ls -d /proc/[0-9]*", house)
    assert int(done.output.split()[0]) < 10
    assert f"/proc/{os.getpid()}\n" not in done.output


def test_a_terminal_cannot_be_typed_into(user: str, house: House) -> None:
    body = """
        import errno, fcntl, os
        for where in ("/dev/tty", "/proc/self/fd/0"):
            try:
                terminal = os.open(where, os.O_RDWR)
                fcntl.ioctl(terminal, 0x5412, b"x"); print("typed")
            except OSError as error:
                print("refused", errno.errorcode[error.errno])
        own, other = os.openpty()
        try:
            fcntl.ioctl(other, 0x5412, b"x"); print("typed")
        except OSError as error:
            print("refused", errno.errorcode[error.errno])
    """
    done = attempt(user, python(body), house)
    assert "typed" not in done.output
    assert done.output.splitlines()[-1] == "refused EPERM"


def test_escape_codes_of_a_terminal_do_not_come_through(user: str, house: House) -> None:
    done = attempt(user, r"printf 'a\033[2J\033]0;title\007b\033]52;c;ZXZpbA==\007\rc\bd\x9b31m\u202ee\n'", house)
    assert done.outcome == "ok"
    assert all(letter.isprintable() or letter in "\n\t" for letter in done.output)
    assert done.output.startswith("ab\nc")


def test_ordinary_work_is_not_hindered(user: str, house: House) -> None:
    commands = [
        "git init -q . && git config user.email a@b.c && git config user.name a && echo x > f && git add f"
        " && git commit -qm one && git log --oneline | wc -l",
        'python3 -c \'import subprocess, threading, tempfile; print(subprocess.check_output(["echo", "sub"]).decode())\'',
        "mkdir d && chmod 755 d && tar cf a.tar d f && tar tf a.tar | sort -r | head -1",
        "awk 'BEGIN { print 6 * 7 }'; sed -n 1p f; id -un; echo ~; date +%Z >/dev/null && echo dated",
    ]
    done = [attempt(user, command, house) for command in commands]
    assert [Attempt(one.outcome, one.code, "") for one in done] == [Attempt("ok", None, "")] * 4
    assert [one.output.split() for one in done] == [["1"], ["sub"], ["f"], ["42", "x", "agent", "/run/home", "dated"]]
    assert (house.workspace / "f").stat().st_uid == (NOBODY if user == "nobody" else os.geteuid())
