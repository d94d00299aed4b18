"""The rule about addresses: what it refuses, what it lets pass, and that what it lets pass means one thing to every reader."""

import string
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import urlsplit

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from yarl import URL

from palyra.core.hosts import (
    URL_LENGTH_MAX,
    AddressRefusal,
    HostPort,
    UrlTarget,
    allowed,
    judge_endpoint,
    judge_url,
    refuse_address,
)
from tests.support.examples import examples

REFUSED = [
    "http://127.0.0.1/",
    "http://localhost/",
    "http://LOCALHOST./",
    "http://a.localhost/",
    "http://printer/",
    "http://nas.local/",
    "http://metadata.google.internal/",
    "http://10.0.0.1",
    "http://100.64.0.1",
    "http://169.254.169.254/latest",
    "http://0/",
    "http://127.1/",
    "http://2130706433/",
    "http://0x7f.1/",
    "http://0177.0.0.1/",
    "http://1.2.3.4.5/",
    "http://08.8.8.8/",
    "http://8.8.8.8./",
    "http://example.com./",
    "http://example..com/",
    "http://-example.com/",
    "http://[::1]/",
    "http://[::]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:8.8.8.8]/",
    "http://[::127.0.0.1]/",
    "http://[fe80::1%25eth0]/",
    "http://[fe80::1]/",
    "http://[fd00::1]/",
    "http://[fec0::1]/",
    "http://[64:ff9b::10.0.0.1]/",
    "http://[64:ff9b:1::8.8.8.8]/",
    "http://[2002:7f00:1::]/",
    "http://[2001:0:808:808::80ff:fffe]/",
    "http://[2001:20::1]/",
    "http://[2606:4700::5efe:10.0.0.1]/",
    "http://[2002:808:808::5efe:10.0.0.1]/",
    "http://[4000::1]/",
    "http://[::1/",
    "http://::1/",
    "http://\uff11\uff12\uff17.\uff10.\uff10.\uff11/",
    "http://\uff18.\uff18.\uff18.\uff18/",
    "http://①②⑦.0.0.1/",
    "http://127。0。0。1/",
    "http://user@example.com/",
    "http://example.com@127.0.0.1/",
    "http://127.0.0.1\\@example.com/",
    "http://example.com\\.evil.org/",
    "http://exa%6dple.com/",
    "http://example.com:0/",
    "http://example.com:65536/",
    "http://example.com:/",
    "http://example.com:080/",
    "http://example.com:\uff18\uff10/",
    "http://example.com:80:80/",
    "http://exa mple.com/",
    "http://example.com/a b",
    "http://example.com/\r\nHost: x",
    "http://example.com/\u202e",
    " http://example.com/",
    "http:example.com",
    "http:///example.com",
    "//example.com/",
    "example.com",
    "ftp://example.com/",
    "file:///etc/passwd",
    "javascript:alert(1)",
    "http://",
    "",
    "http://straße.de/",
    f"http://example.com/{'a' * URL_LENGTH_MAX}",
    f"http://{'a' * 64}.com/",
    f"http://{'a.' * 130}com/",
]
ALLOWED = {
    "http://example.com": "http://example.com/",
    "HTTPS://Example.COM:443/A?b=C#d": "https://example.com/A?b=C",
    "https://example.com:8443?x": "https://example.com:8443/?x",
    "http://8.8.8.8:81/": "http://8.8.8.8:81/",
    "http://[2606:4700:0::1111]/": "http://[2606:4700::1111]/",
    "http://[64:ff9b::8.8.8.8]/": "http://[64:ff9b::808:808]/",
    "https://例子.测试/路": "https://xn--fsqu00a.xn--0zwm56d/%E8%B7%AF",
    "http://ⓔⓧⓐⓜⓟⓛⓔ.ⓒⓞⓜ": "http://example.com/",
    "http://a_b.example.com/~x/(y)": "http://a_b.example.com/~x/(y)",
    "http://1337.net/": "http://1337.net/",
}
urls = st.one_of(
    st.text(max_size=40),
    st.builds(
        lambda *parts: "".join(parts),
        st.sampled_from(["http://", "https://", "HTTP://", "http:/", "ftp://", "//", "http:\\\\", ""]),
        st.sampled_from(["", "u@", "u:p@", "[", "127.0.0.1@", "example.com\\@"]),
        st.lists(
            st.one_of(
                st.sampled_from(
                    ["127.0.0.1", "example.com", "0x7f", "::1", ".", ":", "localhost", "8", "\uff11", "。", "%2e"]
                ),
                st.text(alphabet=string.ascii_letters + string.digits + ".:-_[]%@/\\?#\t ßİ①", max_size=6),
            ),
            max_size=5,
        ).map("".join),
        st.sampled_from(["", ":80", ":8080", ":", ":0", "]", "]:80", ".", "@x.com"]),
        st.sampled_from(["", "/", "/a?b", "?q", "#f", "/é", "\\x", "/%zz", "/a@b:80"]),
    ),
)


@pytest.mark.parametrize("url", REFUSED)
def test_place_that_may_not_be_reached_is_refused_with_a_reason(url: str) -> None:
    judged = judge_url(url)
    assert isinstance(judged, AddressRefusal)
    assert judged.reason


@pytest.mark.parametrize(("url", "canonical"), ALLOWED.items())
def test_public_place_is_allowed_in_its_canonical_form(url: str, canonical: str) -> None:
    judged = judge_url(url)
    assert isinstance(judged, UrlTarget)
    assert judged.url == canonical


@pytest.mark.parametrize("address", ["", "::::", "1.2.3", "fe80::1%lo", "example.com", "0x7f000001", "1.2.3.4 "])
def test_answer_that_is_no_plain_address_is_refused(address: str) -> None:
    assert refuse_address(address) is not None


def test_allowed_entry_opens_its_host_and_port_alone() -> None:
    allow = frozenset({allowed("127.0.0.1", 8000), allowed("NAS.local", 80), allowed("0:0::1", 9)})
    opened = ["http://127.0.0.1:8000/x", "http://nas.local/", "http://NAS.local:80/", "http://[::1]:9/"]
    closed = [
        "http://127.0.0.1/",
        "http://127.0.0.2:8000/",
        "https://nas.local/",
        "http://localhost:8000/",
        "http://[::1]/",
    ]
    assert [url for url in opened if isinstance(judge_url(url, allow), AddressRefusal)] == []
    assert [url for url in closed if isinstance(judge_url(url, allow), UrlTarget)] == []


def test_endpoint_of_a_tunnel_needs_a_port() -> None:
    assert judge_endpoint("example.com:443") == HostPort("example.com", 443)
    assert judge_endpoint("[2606:4700::1]:443") == HostPort("2606:4700::1", 443)
    assert isinstance(judge_endpoint("example.com"), AddressRefusal)
    assert isinstance(judge_endpoint("example.com:443/x"), AddressRefusal)


@settings(max_examples=examples(200))
@given(urls)
def test_every_reader_finds_the_judged_host_and_port_in_what_is_allowed(url: str) -> None:
    judged = judge_url(url)
    if isinstance(judged, AddressRefusal):
        return
    ours = (judged.endpoint.host, judged.endpoint.port)
    theirs = URL(judged.url)
    assert (theirs.raw_host, theirs.port) == ours
    split = urlsplit(judged.url)
    assert (split.hostname, split.port or {"http": 80, "https": 443}[split.scheme]) == ours
    assert judge_url(judged.url) == judged


@settings(max_examples=examples(200))
@given(urls)
def test_allowed_text_in_plain_letters_means_the_same_before_it_is_made_canonical(url: str) -> None:
    assume(url.isascii())
    judged = judge_url(url)
    if isinstance(judged, AddressRefusal):
        return
    theirs = URL(url)
    assert (theirs.raw_host, theirs.port) == (judged.endpoint.host, judged.endpoint.port)
    assert urlsplit(url).username is None


@given(st.ip_addresses(v=4))
def test_address_that_is_not_of_the_public_is_refused_in_every_dress(address: IPv4Address) -> None:
    """The standard library knows fewer that are special, and none that we do not."""
    if not address.is_global or address.is_multicast:
        assert refuse_address(str(address)) is not None
    low = int(address)
    dressed = [
        low,
        0xFFFF << 32 | low,
        0x64FF9B << 96 | low,
        0x2002 << 112 | low << 80,
        0x2001 << 112 | 0x08080808 << 64 | low ^ 0xFFFFFFFF,
        0x26064700 << 96 | 0x5EFE << 32 | low,
    ]
    if refuse_address(str(address)) is not None:
        assert [form for form in dressed if refuse_address(str(IPv6Address(form))) is None] == []


@given(st.ip_addresses(v=6))
def test_address_that_the_standard_library_calls_private_is_refused(address: IPv6Address) -> None:
    if not address.is_global or address.is_multicast:
        assert refuse_address(str(address)) is not None
