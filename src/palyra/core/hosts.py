"""Judges whether a host or address chosen by a model, a message or a page may be reached, and says why not.

Does not own: resolving names, connecting (adapters.net.guard).
The rule reads one strict grammar and returns a canonical target, and only that target is used afterwards. Two readers
of one text can disagree about its host; two readers of a canonical target cannot.
Invariant: text that is not understood is refused. A name is judged here by its spelling, and again by every address it
resolves to.
"""

import re
from collections.abc import Set
from ipaddress import IPv4Address, IPv6Address, ip_network
from urllib.parse import quote

import msgspec

CODE = "address_refused"
URL_LENGTH_MAX = 8 * 1024
HOST_LENGTH_MAX = 253
PORT_MAX = 65535
PORTS = {"http": 80, "https": 443}

_URL = re.compile(r"(https?)://([^/?#]*)([^#]*)(?:#.*)?", re.IGNORECASE)
_BRACKETED = re.compile(r"\[([^\]]*)\](?::(.*))?")
_NAMED = re.compile(r"([^:]*)(?::(.*))?")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_QUAD = re.compile(r"(?:(?:0|[1-9][0-9]{0,2})(?:\.|$)){4}")
_PATH_SAFE = "%/?:@!$&'()*+,;=-._~[]"
# The old and the new rules of international names give different names for these, so their meaning is unclear.
_AMBIGUOUS = frozenset("ßẞς")

# Names that mean this machine or this network, whatever a name server says.
_INNER_SUFFIXES = (
    "localhost",
    "localdomain",
    "local",
    "internal",
    "intranet",
    "private",
    "corp",
    "home",
    "lan",
    "home.arpa",
)

# The whole registries of special-purpose addresses, also those that count as public but belong to no site.
_V4_REFUSED = tuple(
    (ip_network(block), why)
    for block, why in (
        ("0.0.0.0/8", "this network"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "shared by carriers (CGNAT), and metadata of some clouds"),
        ("127.0.0.0/8", "loopback"),
        ("168.63.129.16/32", "metadata of a cloud"),
        ("169.254.0.0/16", "link-local, and metadata of clouds"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved for protocols, and metadata of a cloud"),
        ("192.0.2.0/24", "for documentation"),
        ("192.31.196.0/24", "reserved (AS112)"),
        ("192.52.193.0/24", "reserved (AMT)"),
        ("192.88.99.0/24", "reserved (6to4 relays)"),
        ("192.168.0.0/16", "private"),
        ("192.175.48.0/24", "reserved (AS112)"),
        ("198.18.0.0/15", "for benchmarks"),
        ("198.51.100.0/24", "for documentation"),
        ("203.0.113.0/24", "for documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved or broadcast"),
    )
)
_V6_REFUSED = tuple(
    (ip_network(block), why)
    for block, why in (
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("::ffff:0:0/96", "an IPv4 address mapped into IPv6"),
        ("64:ff9b:1::/48", "translated by a network of its own"),
        ("fc00::/7", "private (ULA)"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "private (site-local)"),
        ("ff00::/8", "multicast"),
        ("2001:db8::/32", "for documentation"),
        ("3fff::/20", "for documentation"),
        ("2620:4f:8000::/48", "reserved (AS112)"),
        ("2002::/16", "an IPv4 address carried by 6to4, which nobody routes any more"),
    )
)
_PROTOCOLS = ip_network("2001::/23")
_TEREDO = ip_network("2001::/32")
_NAT64 = ip_network("64:ff9b::/96")
_COMPATIBLE = ip_network("::/96")
_GLOBAL = ip_network("2000::/3")
_ISATAP_MASK = 0xFCFFFFFF << 32  # Two bits of the mark say who assigned the address, not what it is.
_ISATAP_MARK = 0x00005EFE << 32
_LOW_32 = 0xFFFFFFFF


class HostPort(msgspec.Struct, frozen=True):
    """A host in its canonical form (a name in ASCII, or an address without brackets) and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_address(self) -> bool:
        return ":" in self.host or _QUAD.fullmatch(self.host) is not None


class UrlTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Where a URL leads. Only this judged target is used."""

    scheme: str
    endpoint: HostPort
    path: str

    @property
    def authority(self) -> str:
        host = f"[{self.endpoint.host}]" if ":" in self.endpoint.host else self.endpoint.host
        return host if self.endpoint.port == PORTS[self.scheme] else str(self.endpoint)

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"


class AddressRefusal(msgspec.Struct, frozen=True):
    """Why a place is not reached, in words for a model and a person."""

    reason: str


def judge_url(url: str, allow: Set[HostPort] = frozenset()) -> UrlTarget | AddressRefusal:
    """Returns the canonical target of a URL, or why it is refused. Never raises."""
    unfit = _refuse_letters(url)
    if unfit is not None:
        return AddressRefusal(unfit)
    whole = _URL.fullmatch(url)
    if whole is None:
        return AddressRefusal("only whole http:// and https:// addresses are fetched")
    scheme = whole[1].lower()
    endpoint = judge_endpoint(whole[2], allow, port_default=PORTS[scheme])
    if isinstance(endpoint, AddressRefusal):
        return endpoint
    path = quote(whole[3], safe=_PATH_SAFE)
    return UrlTarget(scheme=scheme, endpoint=endpoint, path=path if path.startswith("/") else f"/{path}")


def judge_endpoint(
    authority: str, allow: Set[HostPort] = frozenset(), port_default: int = 0
) -> HostPort | AddressRefusal:
    """Judges `host:port` as it stands in a URL; without a default the port must be there. Never raises."""
    unfit = _refuse_letters(authority)
    if unfit is not None:
        return AddressRefusal(unfit)
    if "@" in authority:
        return AddressRefusal("a user or a password before the host hides which host is meant; send them in a header")
    parts = (_BRACKETED if authority.startswith("[") else _NAMED).fullmatch(authority)
    if parts is None:
        return AddressRefusal("its host and port are not understood; an IPv6 address stands in brackets")
    port = _read_port(parts[2], port_default)
    host = _read_v6(parts[1]) if authority.startswith("[") else _read_host(parts[1])
    if isinstance(host, AddressRefusal):
        return host
    if isinstance(port, AddressRefusal):
        return port
    endpoint = HostPort(host, port)
    if endpoint in allow:
        return endpoint
    reason = refuse_address(host) if endpoint.is_address else _refuse_name(host)
    return endpoint if reason is None else AddressRefusal(reason)


def refuse_address(text: str) -> str | None:
    """Returns why an IP address, in canonical form or from a resolver, is not reached; None if it may be."""
    try:
        if ":" not in text:
            return _refuse_v4(IPv4Address(text))
        return f"{text} is of one link only" if "%" in text else _refuse_v6(IPv6Address(text))
    except ValueError:
        return "it is no address in its usual form"


def allowed(host: str, port: int) -> HostPort:
    """Returns an entry of `[http] allow` in the form in which endpoints are compared."""
    try:
        return HostPort(str(IPv6Address(host)), port) if ":" in host else HostPort(_to_ascii(host), port)
    except ValueError:
        return HostPort(host.lower(), port)


def _refuse_letters(text: str) -> str | None:
    if not text or len(text) > URL_LENGTH_MAX:
        return f"an address has 1 to {URL_LENGTH_MAX} characters"
    if not text.isprintable() or " " in text:
        return "it holds a space or a character that is not shown; write those as %20 and so on"
    return "it holds a backslash, which readers understand differently; write %5C" if "\\" in text else None


def _read_port(text: str | None, default: int) -> int | AddressRefusal:
    if text is None and default:
        return default
    if text is None or _PORT.fullmatch(text) is None or int(text) > PORT_MAX:
        return AddressRefusal(f"its port is no plain number from 1 to {PORT_MAX}")
    return int(text)


def _read_v6(text: str) -> str | AddressRefusal:
    try:
        return (
            str(IPv6Address(text)) if "%" not in text else AddressRefusal("an address with a zone is of one link only")
        )
    except ValueError:
        return AddressRefusal("what stands in brackets is no IPv6 address")


def _read_host(text: str) -> str | AddressRefusal:
    """Reads a name or an IPv4 address.

    Every connecting program takes a host whose last part is a number as an address.
    """
    if not text or len(text) > HOST_LENGTH_MAX:
        return AddressRefusal(f"its host has 1 to {HOST_LENGTH_MAX} characters")
    try:
        name = _to_ascii(text)
    except ValueError:
        return AddressRefusal("its host is no name; write an international one in its xn-- form")
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        is_plain = text.isascii() and _QUAD.fullmatch(name) is not None
        return name if is_plain else AddressRefusal("a host of numbers is written as four plain decimal numbers")
    if len(name) > HOST_LENGTH_MAX or not all(_LABEL.fullmatch(label) for label in labels):
        return AddressRefusal("its host is no name: letters, digits and hyphens between single dots, none at the end")
    return name


def _to_ascii(text: str) -> str:
    if text.isascii():
        return text.lower()
    if _AMBIGUOUS & set(text):
        raise ValueError(text)
    return text.encode("idna").decode().lower()


def _refuse_name(name: str) -> str | None:
    if "." not in name:
        return f"{name} names a machine of this network; `[http] allow` in palyra.toml can open it"
    if any(name.endswith(f".{suffix}") for suffix in _INNER_SUFFIXES):
        return f"{name} is a name of this machine or network; `[http] allow` in palyra.toml can open it"
    return None


def _refuse_v4(address: IPv4Address) -> str | None:
    for block, why in _V4_REFUSED:
        if address in block:
            return f"{address} is no public address: {why}"
    return None


def _refuse_v6(address: IPv6Address) -> str | None:
    for block, why in _V6_REFUSED:
        if address in block:
            return f"{address} is no public address: {why}"
    for carried in _carried(address):
        reason = _refuse_v4(carried)
        if reason is not None:
            return f"{address} leads to an IPv4 address: {reason}"
    if address in _PROTOCOLS and address not in _TEREDO:
        return f"{address} is no public address: reserved for protocols"
    if address in _GLOBAL or address in _NAT64 or address in _COMPATIBLE:
        return None
    return f"{address} is no public address: nobody has been given it"


def _carried(address: IPv6Address) -> list[IPv4Address]:
    """Returns the IPv4 addresses to which a gateway of the old transition methods would lead."""
    number = int(address)
    found: list[int] = []
    if address in _COMPATIBLE or address in _NAT64 or (number & _ISATAP_MASK) == _ISATAP_MARK:
        found.append(number)
    if address in _TEREDO:
        found += [number >> 64, ~number]
    return [IPv4Address(each & _LOW_32) for each in found]
