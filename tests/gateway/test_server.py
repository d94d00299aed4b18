"""Binding, heads, connections and stopping, over real sockets."""

import asyncio
import socket
import ssl
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from palyra.core.errors import Invalid, Unavailable
from palyra.gateway.http.connection import PIPELINED_MAX, BoundedProtocol
from palyra.gateway.http.server import check_bind
from palyra.gateway.http.settings import HEAD_BYTES_MAX, HttpSettings
from palyra.ports.tokens import hash_token
from tests.gateway.prepared import Prepared
from tests.gateway.scene import ADMIN, WAIT_S, Scene, Wire, connected, listening, request_bytes

HEALTH = request_bytes("GET", "/healthz")


@pytest.mark.parametrize(
    "settings",
    [
        HttpSettings(),
        HttpSettings(host="localhost"),
        HttpSettings(host="::1"),
        HttpSettings(host="127.8.8.8"),
        HttpSettings(host="0.0.0.0", tls_cert="c", tls_key="k"),
        HttpSettings(host="192.0.2.7", is_insecure=True),
    ],
)
def test_safe_binds_are_taken(settings: HttpSettings) -> None:
    check_bind(settings)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "palyra.example", ""])
def test_bind_to_a_network_needs_tls(host: str) -> None:
    with pytest.raises(Invalid) as caught:
        check_bind(HttpSettings(host=host))
    assert caught.value.code == "bind_insecure"


@pytest.mark.parametrize("settings", [HttpSettings(tls_cert="c"), HttpSettings(tls_key="k")])
def test_half_of_tls_is_refused(settings: HttpSettings) -> None:
    with pytest.raises(Invalid) as caught:
        check_bind(settings)
    assert caught.value.code == "tls_incomplete"


async def test_taken_address_is_said_plainly(prepared: Prepared) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        scene = Scene(prepared.engine, settings=HttpSettings(port=taken.getsockname()[1]))
        with pytest.raises(Unavailable) as caught:
            async with listening(scene):
                pass
    assert caught.value.code == "address_unusable"
    assert caught.value.message.endswith(": Address already in use; change http in [server]")


async def test_server_answers_on_the_port_it_names_and_then_no_more(prepared: Prepared) -> None:
    scene = Scene(prepared.engine, settings=HttpSettings(port=0))
    async with listening(scene) as server:
        assert server.address == f"http://127.0.0.1:{server.port}"
        async with connected(server.port) as wire:
            await wire.send(HEALTH)
            head = await wire.until(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK")
            assert b"server:" not in head.lower()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", server.port)


async def test_failure_in_the_block_stops_the_server_and_stays_what_it_was(prepared: Prepared) -> None:
    ports = []

    async def fail() -> None:
        async with listening(Scene(prepared.engine, settings=HttpSettings(port=0))) as server:
            ports.append(server.port)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", ports[0])


async def test_bounds_before_there_is_a_request(prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    """One server for two bounds: heads that are too large or too slow."""
    monkeypatch.setattr(BoundedProtocol, "head_timeout_s", 0.3)
    scene = Scene(prepared.engine, settings=HttpSettings(port=0))
    async with listening(scene) as server:
        async with connected(server.port) as wire:
            half = request_bytes("GET", "/healthz", filler="x" * HEAD_BYTES_MAX)[:-2]
            await wire.send(half)
            answer = await wire.rest()
            assert answer.startswith(b"HTTP/1.1 431 ")
            assert b'"head_too_large"' in answer
        async with connected(server.port) as silent, connected(server.port) as slow:
            await slow.send(HEALTH[:-2])
            assert await silent.rest() == b""
            assert await slow.rest() == b""


async def test_one_connection_too_many_takes_the_place_of_the_one_that_has_waited_longest(prepared: Prepared) -> None:
    """Else whoever opens connections and says nothing locks everyone else out."""
    scene = Scene(prepared.engine, settings=HttpSettings(port=0, connections_max=3))
    async with (
        listening(scene) as server,
        connected(server.port) as kept,
        connected(server.port) as silent,
        connected(server.port) as slow,
    ):
        await slow.send(HEALTH[:-2])
        await kept.send(HEALTH)  # It has waited for a shorter time than the others since its answer.
        assert b"200 OK" in await kept.until(b"\r\n\r\n")
        assert b"200 OK" in await ask_health(server.port)
        assert await silent.rest() == b""
        await slow.send(HEALTH[-2:])
        assert b"200 OK" in await slow.until(b"\r\n\r\n")


async def test_a_connection_with_a_request_under_way_gives_its_place_to_nobody(prepared: Prepared) -> None:
    scene = Scene(prepared.engine, settings=HttpSettings(port=0, connections_max=2))
    whole = request_bytes("POST", "/api/v1/sessions", b"{}")
    async with listening(scene) as server, connected(server.port) as one, connected(server.port) as two:
        for wire in (one, two):
            await wire.send(HEALTH + whole[:-1])
            assert b"200 OK" in await wire.until(b"\r\n\r\n")
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await ask_health(server.port)
        for wire in (one, two):
            await wire.send(whole[-1:])
            assert b"200 OK" in await wire.until(b"200 OK")


async def ask_health(port: int) -> bytes:
    async with connected(port) as wire:
        await wire.send(HEALTH)
        return await wire.until(b"\r\n\r\n")


async def test_requests_sent_ahead_are_answered_and_no_more_of_them_wait_than_the_limit(prepared: Prepared) -> None:
    scene = Scene(prepared.engine, settings=HttpSettings(port=0))
    async with listening(scene) as server:
        async with connected(server.port) as wire:
            for _ in range(3):
                await wire.send(HEALTH * 40)
                for _ in range(40):
                    assert b"200 OK" in await wire.until(b"\r\n\r\n")
        async with connected(server.port) as wire:
            await wire.send(HEALTH * (PIPELINED_MAX + 2))
            assert (await wire.rest()).count(b"200 OK") <= PIPELINED_MAX
        assert b"200 OK" in await ask_health(server.port)


async def test_client_that_sends_faster_than_it_is_answered_is_cut_off(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else every answer would let in another read, and the requests that wait would grow without a bound."""
    most: list[int] = []
    begin = BoundedProtocol.on_message_begin

    def count(self: BoundedProtocol) -> None:
        most.append(len(self.pipeline))
        begin(self)

    monkeypatch.setattr(BoundedProtocol, "on_message_begin", count)
    scene = Scene(prepared.engine, settings=HttpSettings(port=0))
    async with listening(scene) as server:
        async with connected(server.port) as wire:
            with suppress(ConnectionError):
                for _ in range(2_000):
                    await wire.send(HEALTH * 20)
        assert b"200 OK" in await ask_health(server.port)
    assert max(most) <= PIPELINED_MAX


async def test_head_over_the_limit_is_refused_even_if_it_comes_at_once(prepared: Prepared) -> None:
    scene = Scene(prepared.engine, settings=HttpSettings(port=0))
    async with listening(scene) as server, connected(server.port) as wire:
        await wire.send(request_bytes("GET", "/healthz", filler="x" * 70_000))
        assert (await wire.rest()).startswith(b"HTTP/1.1 431 ")


async def test_large_head_below_the_limit_is_answered_with_its_body(prepared: Prepared) -> None:
    scene = Scene(prepared.engine, settings=HttpSettings(port=0))
    async with listening(scene) as server, connected(server.port) as wire:
        body = b'{"text":"' + b"x" * 100_000 + b'"}'
        await wire.send(request_bytes("POST", "/api/v1/runs", body, filler="x" * (HEAD_BYTES_MAX // 2)))
        assert b"202 Accepted" in await wire.until(b"\r\n\r\n")


async def test_fields_behind_a_body_are_no_headers(prepared: Prepared) -> None:
    """A proxy that removes a header from the head does not look for it there."""
    scene = Scene(prepared.engine, settings=HttpSettings(port=0))
    async with listening(scene) as server, connected(server.port) as wire:
        head = request_bytes("POST", "/api/v1/runs", authorization="none", transfer_encoding="chunked")
        head = head.replace(b"authorization: none\r\n", b"")
        await wire.send(head + f"2\r\n{{}}\r\n0\r\nAuthorization: Bearer {ADMIN}\r\n\r\n".encode())
        assert (await wire.until(b"\r\n")).startswith(b"HTTP/1.1 401 ")


async def test_refused_upload_closes_its_connection(prepared: Prepared) -> None:
    scene = Scene(prepared.engine, settings=HttpSettings(port=0))
    async with listening(scene) as server, connected(server.port) as wire:
        head = request_bytes("POST", "/api/v1/runs", authorization="Bearer wrong", content_length="5000000")
        await wire.send(head)
        answer = await wire.rest()
        assert answer.startswith(b"HTTP/1.1 401 ")


def certificate(folder: Path) -> tuple[Path, Path]:
    """A self-signed one for this machine, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    names = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(key.private_bytes(*form))
    return folder / "cert.pem", folder / "key.pem"


async def exchange(wire: Wire, request: bytes) -> bytes:
    await wire.send(request)
    head = await wire.until(b"\r\n\r\n")
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    async with asyncio.timeout(WAIT_S):
        return head + await wire.reader.readexactly(int(length.partition(b":")[2]))


async def test_tls_is_served_and_nothing_else_is_answered_there(prepared: Prepared, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    scene = Scene(prepared.engine, settings=HttpSettings(port=0, tls_cert=str(cert), tls_key=str(key)))
    trusting = ssl.create_default_context(cafile=str(cert))
    async with listening(scene) as server:
        assert server.address == f"https://127.0.0.1:{server.port}"
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trusting)
        wire = Wire(reader, writer)
        assert b"200 OK" in await exchange(wire, request_bytes("GET", "/api/v1/me"))
        code = scene.logins.new_code(hash_token(ADMIN))
        body = f'{{"code":"{code}"}}'.encode()
        logged_in = await exchange(wire, request_bytes("POST", "/api/v1/login", body))
        assert f"palyra_session_{server.port}=".encode() in logged_in
        assert b"; HttpOnly; SameSite=Strict; Secure\r\n" in logged_in
        writer.close()
        async with connected(server.port) as plain:
            await plain.send(HEALTH)
            assert b"200" not in await plain.rest()
        with pytest.raises(ssl.SSLError):
            await asyncio.open_connection("127.0.0.1", server.port, ssl=ssl.create_default_context())


async def test_the_loopback_address_of_ipv6_is_served(prepared: Prepared) -> None:
    scene = Scene(prepared.engine, settings=HttpSettings(host="::1", port=0))
    async with listening(scene) as server:
        assert server.address == f"http://[::1]:{server.port}"
        reader, writer = await asyncio.open_connection("::1", server.port)
        wire = Wire(reader, writer)
        host = f"[::1]:{server.port}"
        assert b"200 OK" in await exchange(wire, request_bytes("GET", "/api/v1/me", host=host, origin=f"http://{host}"))
        assert b"host_refused" in await exchange(wire, request_bytes("GET", "/api/v1/me", host="[::2]"))
        assert b"401" in await exchange(wire, request_bytes("GET", "/api/v1/me", host=host, authorization="Bearer x"))
        writer.close()


async def test_a_bind_beyond_this_machine_without_tls_never_listens(prepared: Prepared) -> None:
    with pytest.raises(Invalid) as caught:
        async with listening(Scene(prepared.engine, settings=HttpSettings(host="0.0.0.0", port=0))):
            pass
    assert caught.value.code == "bind_insecure"
