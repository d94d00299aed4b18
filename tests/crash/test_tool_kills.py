"""SIGKILL in the middle of each kind of tool: what its class promises holds, seen from outside the daemon.

Every tool here is caught while its effect is under way: it waits for something the test holds back. After the kill the test lets
go, a new daemon takes the run up, and the world is looked at: how often did it happen, what does the tape say.
"""

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.browser.scenes import needs_chromium, ref_of
from tests.runtimes.wasm_plugins import MANY, SPIN, manifest, module, shelve
from tests.support.daemons import Daemon
from tests.support.waiting import wait_until

SERVER = Path(__file__).parents[1] / "support" / "mcp_servers" / "marking.py"


class Scene:
    """A home with one scripted call, and what the test can see of its effect."""

    def __init__(self, root: Path, tool: str, arguments: Mapping[str, object], config: str = "") -> None:
        self.home = root / "home"
        self.workspace = self.home / "workspace"
        self.workspace.mkdir(parents=True)
        call = json.dumps({"tool": tool, "arguments": dict(arguments)})
        (self.home / "script.json").write_text(
            json.dumps({"scripts": [{"turns": [{"calls": [json.loads(call)]}, {"text": "Over."}]}]})
        )
        self.daemon = Daemon(self.home)
        (self.home / "palyra.toml").write_text(
            f'[[provider]]\nname = "scripted"\nkind = "scripted"\nfile = "script.json"\n{config}'
        )

    def begin(self) -> str:
        """Starts the run, says yes if it asks, and comes back once the tool has been started."""
        _, record = self.daemon.call("POST", "/api/v1/runs", {"text": "go"})
        run_id: str = record["id"]
        for frame in self.daemon.follow(run_id):
            if frame["type"] == "run.waiting":
                for card in self.daemon.call("GET", "/api/v1/approvals?status=pending")[1]["items"]:
                    self.daemon.call("POST", f"/api/v1/approvals/{card['id']}", {"decision": "allow"})
            if frame["type"] == "tool.judged":
                assert frame["data"]["verdict"] != "deny", frame["data"]
            if frame["type"] == "tool.started":
                return run_id
        raise AssertionError("the tool was never started")

    def end(self, run_id: str) -> list[dict[str, Any]]:
        """The run's whole record once it is over, in a daemon that came after."""
        events = [frame for frame in self.daemon.follow(run_id) if "seq" in frame]
        assert self.daemon.call("GET", "/api/v1/journal/verify")[1]["ok"] is True
        return events


def types(events: list[dict[str, Any]], start: str = "tool.") -> list[str]:
    return [event["type"] for event in events if event["type"].startswith(start)]


def outcome(events: list[dict[str, Any]]) -> str:
    (finished,) = [event["data"] for event in events if event["type"] == "tool.finished"]
    return str(finished["outcome"])


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


@contextmanager
def serving(server: ThreadingHTTPServer) -> Iterator[None]:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


class Site:
    """A loopback site that counts requests and holds each back while `is_holding`."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.is_holding = True
        site = self

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.requests.append(self.command)
                self.rfile.read(int(self.headers.get("content-length") or 0))
                wait_until(lambda: not site.is_holding, "the end of the test")
                body = b"hello"
                try:
                    self.send_response(200)
                    self.send_header("content-type", "text/plain")
                    self.send_header("content-length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                except OSError:
                    return  # Whoever asked was killed.

            do_POST = do_GET

            def log_message(self, *_: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.port = self.server.server_address[1]

    @contextmanager
    def open(self) -> Iterator["Site"]:
        with serving(self.server):
            try:
                yield self
            finally:
                self.is_holding = False


def killed_in_the_middle(
    scene: Scene, is_under_way: Callable[[], bool], let_go: Callable[[], None]
) -> list[dict[str, Any]]:
    with scene.daemon:
        run_id = scene.begin()
        wait_until(is_under_way, "the effect")
        scene.daemon.kill()
        let_go()
        scene.daemon.start()
        return scene.end(run_id)


def test_once_shell_command_is_never_run_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "shell.run", {"command": "echo ran $$ >> ran; sleep 600", "direct": True})
    ran = scene.workspace / "ran"
    events = killed_in_the_middle(scene, lambda: bool(lines(ran)), lambda: None)
    assert len(lines(ran)) == 1
    assert types(events) == ["tool.proposed", "tool.judged", "tool.started", "tool.uncertain"]
    wait_until(lambda: not processes_with("sleep 600"), "the end of the sandbox")


def processes_with(words: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except (OSError, ValueError):
            continue
        if command == words:
            found.append(int(entry.name))
    return found


def test_drafted_shell_command_runs_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "shell.run", {"command": "cat pipe"})
    pipe = scene.workspace / "pipe"
    os.mkfifo(pipe)

    def let_go() -> None:
        pipe.unlink()
        pipe.write_text("through\n")

    events = killed_in_the_middle(scene, lambda: bool(processes_with("cat pipe")), let_go)
    assert types(events) == ["tool.proposed", "tool.judged", "tool.started", "tool.started", "tool.finished"]
    assert outcome(events) == "ok"


def test_background_process_dies_with_the_daemon(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "shell.run", {"command": "sleep 601", "background": True})
    with scene.daemon:
        run_id = scene.begin()
        wait_until(lambda: bool(processes_with("sleep 601")), "the background process")
        scene.daemon.kill()
        wait_until(lambda: not processes_with("sleep 601"), "its end")
        scene.daemon.start()
        assert scene.end(run_id)[-1]["type"] == "run.done"
    assert not processes_with("sleep 601")


@pytest.mark.parametrize(("method", "count", "last"), [("GET", 2, "tool.finished"), ("POST", 1, "tool.uncertain")])
def test_fetch_is_repeated_only_if_it_reads(tmp_path: Path, method: str, count: int, last: str) -> None:
    with Site().open() as site:
        arguments: dict[str, object] = {"url": f"http://127.0.0.1:{site.port}/x", "method": method}
        scene = Scene(tmp_path, "http.fetch", arguments, f'[http]\nallow = ["127.0.0.1:{site.port}"]\n')

        def let_go() -> None:
            site.is_holding = False

        events = killed_in_the_middle(scene, lambda: bool(site.requests), let_go)
        assert site.requests == [method] * count
    assert types(events)[-1] == last


@pytest.mark.parametrize(
    ("trusted", "count", "last"), [("", 1, "tool.uncertain"), ('read_only = ["mark"]', 2, "tool.finished")]
)
def test_call_of_an_mcp_server_is_repeated_only_if_the_operator_says_it_reads(
    tmp_path: Path, trusted: str, count: int, last: str
) -> None:
    marks, hold = tmp_path / "marks", tmp_path / "hold"
    hold.touch()
    config = f'[[mcp]]\nname = "marks"\ncommand = {json.dumps([sys.executable, str(SERVER), str(marks), str(hold)])}\n{trusted}\n'
    scene = Scene(tmp_path, "mcp.marks.mark", {}, config)
    with scene.daemon:
        wait_until(lambda: has_tool(scene.daemon, "mcp.marks.mark"), "the server's tools")
        run_id = scene.begin()
        wait_until(lambda: bool(lines(marks)), "the effect")
        scene.daemon.kill()
        hold.unlink()
        scene.daemon.start()
        events = scene.end(run_id)
    assert len(lines(marks)) == count
    assert types(events)[-1] == last


def has_tool(daemon: Daemon, name: str) -> bool:
    tools = daemon.call("GET", "/api/v1/tools")[1]["items"]
    return any(tool["name"] == name and tool.get("available", True) for tool in tools)


@pytest.mark.parametrize("round_number", range(3))
def test_files_are_whole_and_in_the_end_as_they_were_meant(tmp_path: Path, round_number: int) -> None:
    """Too quick to be caught in the middle from outside; tests of the tools themselves kill between their steps."""
    old, new = "old\n" * 2_000, "new\n" * 2_000
    patch = "".join(
        ["--- a/a.txt\n+++ b/a.txt\n@@ -1,2000 +1,2000 @@\n", *(f"-{line}\n" for line in old.splitlines())]
        + [f"+{line}\n" for line in new.splitlines()]
    )
    tool, arguments = [("fs.write", {"path": "a.txt", "content": new}), ("fs.patch", {"patch": patch})][
        round_number % 2
    ]
    scene = Scene(tmp_path, tool, arguments)
    (scene.workspace / "a.txt").write_text(old)
    with scene.daemon:
        run_id = scene.begin()
        scene.daemon.kill()
        assert (scene.workspace / "a.txt").read_text() in (old, new)
        scene.daemon.start()
        events = scene.end(run_id)
    assert outcome(events) == "ok"
    assert (scene.workspace / "a.txt").read_text() == new
    assert sorted(path.name for path in scene.workspace.iterdir()) == ["a.txt"]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("fs.read", {"path": "a.txt"}),
        ("fs.list", {"path": "."}),
        ("fs.search", {"pattern": "hello"}),
        ("session.search", {"query": "go"}),
        ("skill.open", {"name": "investigate-failure"}),
        ("time.now", {}),
    ],
)
def test_what_only_looks_is_finished_after_a_kill(tmp_path: Path, tool: str, arguments: dict[str, object]) -> None:
    scene = Scene(tmp_path, tool, arguments)
    (scene.workspace / "a.txt").write_text("hello\n")
    with scene.daemon:
        run_id = scene.begin()
        scene.daemon.kill()
        scene.daemon.start()
        events = scene.end(run_id)
    assert outcome(events) == "ok"
    assert events[-1]["type"] == "run.done"


@pytest.mark.parametrize(("effect", "last"), [("once", "tool.uncertain"), ("read_only", "tool.finished")])
def test_plugin_is_run_again_only_if_its_manifest_says_it_reads(tmp_path: Path, effect: str, last: str) -> None:
    scene = Scene(tmp_path, "wasm.p.f", {})
    wasm = module(SPIN)

    def install(timeout_s: float) -> None:
        text = manifest(wasm, limits=f"fuel = {MANY}, timeout_s = {timeout_s}")
        shelve(scene.home / "plugins", wasm, text.replace("[[function]]", f'[[function]]\neffect_class = "{effect}"'))

    install(60.0)
    events = killed_in_the_middle(scene, lambda: True, lambda: install(0.5))
    starts = [event for event in events if event["type"] == "tool.started"]
    assert (types(events)[-1], len(starts)) == (last, 1 if effect == "once" else 2)


def test_page_of_a_browser_is_opened_again_and_no_browser_is_left(tmp_path: Path) -> None:
    needs_chromium()
    with Site().open() as site:
        arguments: dict[str, object] = {"url": f"http://127.0.0.1:{site.port}/x"}
        scene = Scene(tmp_path, "browser.open", arguments, f'[http]\nallow = ["127.0.0.1:{site.port}"]\n')

        def let_go() -> None:
            wait_until(lambda: not chromium_of(scene.home), "the end of its browser")
            site.is_holding = False

        events = killed_in_the_middle(scene, lambda: bool(site.requests), let_go)
    assert types(events)[-2:] == ["tool.started", "tool.finished"]
    assert outcome(events) == "ok"


FORM = b"<title>Form</title><form action=/sent><button>Send</button></form>"


class Form:
    """A loopback site with a form, and a model beside it that opens the form and presses its button by the ref it is shown."""

    def __init__(self) -> None:
        self.sent_count = 0
        self.is_holding = True
        here = self

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.startswith("/sent"):
                    here.sent_count += 1
                    wait_until(lambda: not here.is_holding, "the end of the test")
                self.answer("text/html", FORM)

            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
                told = [message["content"] for message in asked["messages"] if message["role"] == "tool"]
                self.answer("text/event-stream", here.turn(told))

            def answer(self, media_type: str, body: bytes) -> None:
                try:
                    self.send_response(200)
                    self.send_header("content-type", media_type)
                    self.send_header("content-length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                except OSError:
                    return  # Whoever asked was killed.

            def log_message(self, *_: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.address = f"127.0.0.1:{self.server.server_address[1]}"

    def turn(self, told: list[str]) -> bytes:
        if not told:
            delta = self.call("browser__open", {"url": f"http://{self.address}/form"})
        elif len(told) == 1:
            delta = self.call("browser__click", {"ref": ref_of(told[0], "Send")})
        else:
            delta = {"content": "Over."}
        finish = "tool_calls" if len(told) < 2 else "stop"
        chunks: list[dict[str, object]] = [{"delta": delta}, {"delta": {}, "finish_reason": finish}]
        lines = [f"data: {json.dumps({'choices': [{'index': 0, **chunk}]})}\n\n" for chunk in chunks]
        return "".join([*lines, "data: [DONE]\n\n"]).encode()

    @staticmethod
    def call(tool: str, arguments: dict[str, object]) -> dict[str, object]:
        function = {"name": tool, "arguments": json.dumps(arguments)}
        return {"tool_calls": [{"index": 0, "id": f"c-{tool}", "type": "function", "function": function}]}

    @contextmanager
    def open(self) -> Iterator["Form"]:
        with serving(self.server):
            try:
                yield self
            finally:
                self.is_holding = False


def test_button_of_a_page_is_never_pressed_again(tmp_path: Path) -> None:
    needs_chromium()
    with Form().open() as form:
        scene = Scene(tmp_path, "time.now", {})
        (scene.home / "palyra.toml").write_text(
            f'[[provider]]\nname = "here"\nkind = "openai-chat"\nbase_url = "http://{form.address}"\n'
            f'[[model]]\nname = "pressing"\nprovider = "here"\n[http]\nallow = ["{form.address}"]\n'
        )
        with scene.daemon:
            run_id = scene.begin()

            def is_pressed() -> bool:
                for card in scene.daemon.call("GET", "/api/v1/approvals?status=pending")[1]["items"]:
                    scene.daemon.call("POST", f"/api/v1/approvals/{card['id']}", {"decision": "allow"})
                return form.sent_count > 0

            wait_until(is_pressed, "the button")
            scene.daemon.kill()
            wait_until(lambda: not chromium_of(scene.home), "the end of its browser")
            form.is_holding = False
            scene.daemon.start()
            events = scene.end(run_id)
    assert types(events)[-3:] == ["tool.judged", "tool.started", "tool.uncertain"]
    assert form.sent_count == 1


def chromium_of(home: Path) -> list[str]:
    """Processes that work with a profile of this home."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes().decode(errors="replace")
        except (OSError, ValueError):
            continue
        if f"--user-data-dir={home}" in command:
            found.append(entry.name)
    return found
