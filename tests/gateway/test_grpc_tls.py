"""gRPC over TLS, with certificates of clients, and the addresses that are refused without it."""

import asyncio
import datetime
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from palyra.app import grpc_service
from palyra.config import Config, ListenAddress
from palyra.config.records import ServerConfig
from palyra.core.errors import Invalid, Unavailable
from palyra.gateway.grpc.port import check_grpc_bind, hold_port
from palyra.gateway.grpc.settings import GrpcSettings
from palyra.gateway.v1 import sessions_pb2
from tests.gateway.grpc_scene import GrpcScene, open_grpc
from tests.gateway.scene import Scene

BEGIN = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
END = datetime.datetime(2120, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True)
class Authority:
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def issue(self, name: str) -> tuple[bytes, bytes]:
        """A key and a certificate for it, both PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
        builder = builder_for(name, self.certificate.subject, key).add_extension(names, critical=False)
        return private_pem(key), builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def builder_for(name: str, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(BEGIN)
        .not_valid_after(END)
    )


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def authority(name: str) -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    basic = x509.BasicConstraints(ca=True, path_length=None)
    certificate = builder_for(name, subject, key).add_extension(basic, critical=True).sign(key, hashes.SHA256())
    return Authority(key, certificate)


@dataclass(frozen=True)
class Files:
    ours: Authority
    clients: Authority
    cert: str
    key: str
    client_ca: str


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("tls")
    ours, clients = authority("server"), authority("clients")
    key, cert = ours.issue("127.0.0.1")
    for name, content in (("cert", cert), ("key", key), ("client_ca", clients.pem)):
        (folder / name).write_bytes(content)
    return Files(ours, clients, str(folder / "cert"), str(folder / "key"), str(folder / "client_ca"))


@asynccontextmanager
async def asking(server: GrpcScene, trusted: bytes, pair: tuple[bytes, bytes] | None) -> AsyncIterator[GrpcScene]:
    key, cert = pair or (None, None)
    credentials = grpc.ssl_channel_credentials(trusted, key, cert)
    async with grpc.aio.secure_channel(server.server.address, credentials) as channel:
        yield GrpcScene(server.scene, server.gateway, server.server, channel)


async def is_answered(server: GrpcScene, trusted: bytes, pair: tuple[bytes, bytes] | None) -> bool:
    async with asking(server, trusted, pair) as client:
        try:
            await client.ask("ListSessions", sessions_pb2.ListSessionsRequest())
        except grpc.aio.AioRpcError as error:
            assert error.code() is grpc.StatusCode.UNAVAILABLE
            return False
    return True


async def test_tls_is_spoken_and_plain_text_is_not(scene: Scene, files: Files) -> None:
    async with open_grpc(scene, GrpcSettings(port=0, tls_cert=files.cert, tls_key=files.key)) as server:
        assert await is_answered(server, files.ours.pem, None)
        assert not await is_answered(server, files.clients.pem, None)  # A client that trusts somebody else.
        with pytest.raises(grpc.aio.AioRpcError):  # The scene's own channel has no TLS.
            await server.ask("ListSessions", b"")


async def test_with_a_client_ca_only_its_certificates_get_in(scene: Scene, files: Files) -> None:
    settings = GrpcSettings(port=0, tls_cert=files.cert, tls_key=files.key, client_ca=files.client_ca)
    async with open_grpc(scene, settings) as server:
        assert await is_answered(server, files.ours.pem, files.clients.issue("a client"))
        assert not await is_answered(server, files.ours.pem, None)
        assert not await is_answered(server, files.ours.pem, files.ours.issue("not a client"))
        async with asking(server, files.ours.pem, files.clients.issue("a client")) as client:
            found = await client.refusal("ListSessions", b"", None)  # A certificate is no token.
            assert found.code == "token_missing"


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        (GrpcSettings(host="0.0.0.0"), "bind_insecure"),
        (GrpcSettings(tls_cert="x"), "tls_incomplete"),
        (GrpcSettings(client_ca="x"), "tls_incomplete"),
        (GrpcSettings(tls_cert="/none/cert", tls_key="/none/key"), "tls_unreadable"),
    ],
    ids=["network", "half", "ca_alone", "no_file"],
)
def test_an_unsafe_or_half_configured_address_is_refused(settings: GrpcSettings, code: str) -> None:
    with pytest.raises(Invalid) as refused:
        check_grpc_bind(settings)
    assert refused.value.code == code


def test_insecure_accepts_the_risk() -> None:
    check_grpc_bind(GrpcSettings(host="0.0.0.0", is_insecure=True))


def test_a_taken_port_is_known_before_anything_is_loaded(tmp_path: Path) -> None:
    with hold_port(GrpcSettings(port=0)) as held, pytest.raises(Unavailable) as refused:
        hold_port(GrpcSettings(port=held.getsockname()[1]))
    assert refused.value.code == "address_unusable"


async def test_a_port_that_is_free_a_moment_later_is_taken(scene: Scene) -> None:
    """A forked child has the held port until it has become its program."""
    held = hold_port(GrpcSettings(port=0))
    port = held.getsockname()[1]
    asyncio.get_running_loop().call_later(0.1, held.close)
    async with open_grpc(scene, GrpcSettings(port=port)) as server:
        assert server.server.port == port


def test_a_taken_default_port_switches_grpc_off_and_a_chosen_one_is_an_error() -> None:
    with hold_port(GrpcSettings(port=0)) as held:
        taken = GrpcSettings(port=held.getsockname()[1])
        assert grpc_service.hold(Config(), taken) is None
        chosen = Config(server=ServerConfig(grpc=ListenAddress("127.0.0.1", taken.port)))
        with pytest.raises(Unavailable):
            grpc_service.hold(chosen, taken)
