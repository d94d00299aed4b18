"""What a page may reach: what the guard allows, and nothing else by any way a browser knows."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from palyra.adapters.net.guard import Guard
from palyra.adapters.net.proxy import GuardedProxy
from tests.browser.scenes import Datagrams, Scene, ref_of, scene
from tests.support.sites import LOOPBACK, moved, ok, site
from tests.support.waiting import WAIT_S, until

pytestmark = pytest.mark.anyio
TEST_S = WAIT_S

# Every way out that a script has, to each of the addresses; the page says when all have been tried.
WAYS = """
<!doctype html><title>trying</title><body><script>
const add = (name, values) => {
  const made = document.createElement(name);
  Object.assign(made, values);
  document.body.append(made);
  return made;
};
const quietly = (work) => { try { return Promise.resolve(work()).catch(() => 0); } catch { return 0; } };
const tryAll = (bad, index) => {
  add('img', {src: bad + '/img'}); add('script', {src: bad + '/script'}); add('iframe', {src: bad + '/frame'});
  add('link', {rel: 'stylesheet', href: bad + '/style'}); add('link', {rel: 'preconnect', href: bad});
  add('link', {rel: 'dns-prefetch', href: bad}); add('link', {rel: 'prefetch', href: bad + '/prefetch'});
  add('object', {data: bad + '/object'}); add('embed', {src: bad + '/embed'}); add('video', {src: bad + '/video'});
  add('iframe', {name: 'inner' + index});
  const form = add('form', {action: bad + '/form', method: 'post', target: 'inner' + index});
  quietly(() => form.submit());
  quietly(() => navigator.sendBeacon(bad + '/beacon', 'x'));
  quietly(() => new WebSocket(bad.replace('http', 'ws') + '/socket'));
  quietly(() => new EventSource(bad + '/events'));
  quietly(() => new Worker(URL.createObjectURL(new Blob([`fetch('${bad}/worker', {mode: 'no-cors'})`]))));
  quietly(() => new WebTransport(bad.replace('http:', 'https:') + '/transport'));
  const call = new XMLHttpRequest(); quietly(() => { call.open('GET', bad + '/xhr'); call.send(); });
  return [quietly(() => fetch(bad + '/fetch', {mode: 'no-cors'})),
    quietly(() => fetch(bad + '/post', {method: 'POST', body: 'x', mode: 'no-cors'}))];
};
const peer = new RTCPeerConnection({iceServers: [
  {urls: 'stun:@UDP@'}, {urls: 'turn:@UDP@?transport=udp', username: 'a', credential: 'b'},
  {urls: 'turn:@TCP@?transport=tcp', username: 'a', credential: 'b'}]});
peer.createDataChannel('x');
peer.onicecandidate = (each) => { if (each.candidate) add('p', {textContent: each.candidate.candidate}); };
quietly(() => peer.createOffer().then((offer) => peer.setLocalDescription(offer)));
Promise.all(@BAD@.flatMap(tryAll)).then(() => setTimeout(() => { document.title = 'tried'; }, 800));
</script>
"""


@pytest.fixture(scope="module")
async def s(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    async with scene(tmp_path_factory.mktemp("profiles")) as made:
        yield made


async def try_all(s: Scene, bad: list[str], udp_port: int = 9) -> str:
    udp, tcp = f"{LOOPBACK}:{udp_port}", f"{LOOPBACK}:{s.canary.port}"
    body = WAYS.replace("@BAD@", str(bad)).replace("@UDP@", udp).replace("@TCP@", tcp)
    async with asyncio.timeout(TEST_S):
        output = await s.output("open", url=s.page("/ways", body))
        while "Title: tried" not in output:
            output = await s.output("read")
    return output


async def test_no_way_out_of_a_page_reaches_this_machine(s: Scene) -> None:
    loop = asyncio.get_running_loop()
    transport, datagrams = await loop.create_datagram_endpoint(Datagrams, local_addr=(LOOPBACK, 0))
    hosts = [LOOPBACK, "localhost", "[::1]", "0.0.0.0", "127.1", "2130706433", "[::ffff:127.0.0.1]"]
    try:
        bad = [f"http://{host}:{s.canary.port}" for host in hosts]
        output = await try_all(s, bad, transport.get_extra_info("sockname")[1])
        assert (s.canary.connections_count, datagrams.count) == (0, 0)
    finally:
        transport.close()
    assert "candidate:" not in output  # No address of this machine is told either.
    assert any(f"localhost:{s.canary.port}" in asked for asked in s.guard.asked)


async def test_the_same_ways_lead_to_the_pages_own_site(s: Scene) -> None:
    """Else the test above would say nothing."""
    before = len(s.home.requests)
    await try_all(s, [s.home.url])
    paths = {request.split(b" ")[1].decode() for request in s.home.requests[before:]}
    assert {"/img", "/script", "/frame", "/style", "/fetch", "/post", "/beacon", "/events", "/worker", "/xhr"} <= paths
    assert {"/form", "/socket", "/object", "/embed"} <= paths


async def test_site_that_is_allowed_is_reached_by_no_page_of_another(s: Scene) -> None:
    async with site() as friend:
        s.guard.open_to(friend.port)
        await try_all(s, [friend.url])
        await s.call("open", url=s.page("/goes", f"<script>location = '{friend.url}/gone'</script>"))
        posts = f"<form method=post action='{friend.url}/posted'></form><script>document.forms[0].submit()</script>"
        await s.call("open", url=s.page("/posts", posts))
        assert friend.requests == []
        friend.answers["/"] = ok(b"<title>friend</title>", media="text/html")
        assert "friend" in await s.output("open", url=f"{friend.url}/")
        assert len(friend.requests) > 0


async def test_frame_of_another_site_in_an_allowed_page_reaches_it_by_no_script(s: Scene) -> None:
    async with site() as friend:
        s.guard.open_to(friend.port)
        inner = s.page("/inner", f"<script>fetch('{friend.url}/taken', {{method: 'POST', mode: 'no-cors'}})</script>")
        friend.answers["/"] = ok(f"<title>friend</title><iframe src='{inner}'></iframe>".encode(), media="text/html")
        await s.output("open", url=f"{friend.url}/")
        assert not [request for request in friend.requests if b"/taken" in request]


async def test_metadata_of_clouds_is_asked_of_the_guard_and_refused(s: Scene) -> None:
    await try_all(s, ["http://169.254.169.254"])
    assert any(asked.startswith("http://169.254.169.254/fetch") for asked in s.guard.asked)
    assert any(asked.startswith("169.254.169.254:") for asked in s.guard.asked)  # The tunnels of sockets.


async def test_redirect_to_a_refused_address_ends_there(s: Scene) -> None:
    s.home.answers["/away"] = moved(f"{s.canary.url}/")
    result = await s.call("open", url=f"{s.home.url}/away")
    assert result.error is not None
    assert (result.error.code, result.output) == ("address_refused", "")
    assert s.canary.connections_count == 0
    assert await s.code("read") == "no_page"


@pytest.mark.parametrize("scheme", ["file", "chrome", "view-source", "data"])
async def test_other_schemes_are_refused_in_every_way(s: Scene, tmp_path: Path, scheme: str) -> None:
    bait = tmp_path / "bait.html"
    bait.write_text("MARK")
    target = {
        "file": bait.as_uri(),
        "chrome": "chrome://version",
        "view-source": f"view-source:{s.home.url}/",
        "data": "data:text/html,MARK",
    }[scheme]
    assert await s.code("open", url=target) == "address_refused"
    s.home.answers["/scheme"] = moved(target)
    assert await s.code("open", url=f"{s.home.url}/scheme") is not None
    body = f'<a href="{target}">there</a><iframe src="{target}"></iframe><script>location = "{target}"</script>'
    output = await s.output("open", url=s.page("/link", body))
    after = await s.call("click", ref=ref_of(output, "there"))
    assert after.error is not None or after.output.startswith(f"200 {s.home.url}/link")
    seen = [line for line in (output + after.output).splitlines() if target not in line]
    assert "MARK" not in "".join(seen)


async def test_page_gets_no_service_worker_and_no_permission(s: Scene) -> None:
    body = """<script>
    const tell = (text) => { const made = document.createElement('p'); made.textContent = text; document.body.append(made); };
    const frame = document.createElement('iframe'); document.documentElement.append(frame);
    const workers = [navigator.serviceWorker, frame.contentWindow.navigator.serviceWorker];
    const quietly = (work) => { try { return Promise.resolve(work()).catch(() => 0); } catch { return 0; } };
    workers.forEach((each) => quietly(() => each.register('/sw.js')));
    quietly(() => Notification.requestPermission().then((answer) => tell('notes ' + answer)));
    quietly(() => navigator.mediaDevices.getUserMedia({audio: true}).then(() => tell('sound heard')));
    navigator.geolocation.getCurrentPosition(() => tell('place known'), (fault) => tell('place refused ' + fault.code));
    setTimeout(() => tell('tried'), 800);
    </script>"""
    s.home.answers["/sw.js"] = ok(b"", media="text/javascript")
    output = await s.output("open", url=s.page("/worker", f"<body>{body}"))
    async with asyncio.timeout(TEST_S):
        while not {"tried", "place refused 1"} <= set(output.splitlines()):
            output = await s.output("read")
    assert [word for word in ("granted", "heard", "known") if word in output] == []
    assert not any(b"/sw.js" in request for request in s.home.requests)


async def test_download_is_refused(s: Scene) -> None:
    s.home.answers["/file"] = ok(
        b"x" * 100, 'Content-Disposition: attachment; filename="a.bin"', media="application/octet-stream"
    )
    result = await s.call("open", url=f"{s.home.url}/file")
    assert result.error is not None
    assert "http.fetch" in result.error.message
    assert not list(Path(s.folder).rglob("a.bin"))


async def test_proxy_on_a_port_serves_nobody_without_its_credential() -> None:
    async with site() as home, GuardedProxy(Guard([(LOOPBACK, home.port)])) as proxy:
        door = await proxy.start_on_port()
        assert door.password not in repr(door)
        for header in ("", "Proxy-Authorization: Basic cGFseXJhOng=\r\n", "Proxy-Authorization: Basic\r\n"):
            reader, writer = await asyncio.open_connection(LOOPBACK, door.port)
            writer.write(f"GET {home.url}/ HTTP/1.1\r\n{header}\r\n".encode())
            answer = await reader.read()
            writer.close()
            assert answer.startswith(b"HTTP/1.1 407 ")
            assert b"Proxy-Authenticate: Basic" in answer
        assert home.connections_count == 0
        await proxy.close()
        with pytest.raises(OSError):
            await asyncio.open_connection(LOOPBACK, door.port)


async def test_tunnels_end_with_the_browser(tmp_path: Path) -> None:
    async with scene(tmp_path) as own:
        url = own.page("/open", "<script>new WebSocket(location.origin.replace('http', 'ws') + '/held')</script>x")

        async def hold(request: bytes, writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(TEST_S)

        own.home.answers["/held"] = hold
        await own.output("open", url=url)
        async with asyncio.timeout(TEST_S):
            await until(lambda: any(b"/held" in request for request in own.home.requests))
            await own.browsers.close()
            await until(lambda: own.home.open_count == 0)


async def test_chromium_itself_calls_nobody(s: Scene) -> None:
    """No page of these tests names a public site, so whatever does was Chromium's own wish."""
    output = await s.output(
        "open", url=s.page("/form", "<form><input name=email aria-label=Mail><input type=password></form>")
    )
    await s.output("type", ref=ref_of(output, "Mail"), text="a", submit=True)
    public = re.compile(r"[a-z]\.[a-z]{2,}(?::\d+)?(?:/|$)")
    reached = [asked for asked in s.guard.asked if asked.startswith("http") or asked.rpartition(":")[2].isdigit()]
    assert len(reached) > 10
    assert [asked for asked in reached if public.search(asked.removeprefix("http://").partition("/")[0])] == []
