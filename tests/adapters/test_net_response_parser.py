"""What responses say, however their bytes are cut; what is no response is refused, and nothing grows without end."""

import itertools

import pytest
from httptools import HttpParserError
from hypothesis import given
from hypothesis import strategies as st

from palyra.adapters.net.response_parser import HEAD_BYTES_MAX, Parsing

BODIES = st.binary(max_size=60)
PIECES = st.lists(st.binary(min_size=1, max_size=20), max_size=5)
STATUSES = st.sampled_from([200, 201, 400, 404, 429, 500, 529])
INTERIM = st.sampled_from([b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"])


def with_length(status: int, body: bytes) -> bytes:
    return b"HTTP/1.1 %d Said\r\nX-One: 1\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)


def in_chunks(status: int, pieces: list[bytes], trailers: bytes = b"") -> bytes:
    chunks = b"".join(b"%x;of=me\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return b"HTTP/1.1 %d Said\r\nX-One: 1\r\nTransfer-Encoding: chunked\r\n\r\n%b0\r\n%b\r\n" % (
        status,
        chunks,
        trailers,
    )


def cut(whole: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(whole) + 1) for place in places} | {0, len(whole)})
    return [whole[start:end] for start, end in itertools.pairwise(ends)]


def parsed(pieces: list[bytes]) -> Parsing:
    parsing = Parsing(is_bodiless=False)
    for piece in pieces:
        parsing.feed(piece)
    return parsing


CUTS = st.lists(st.integers(min_value=0, max_value=1000), max_size=8)


@given(STATUSES, BODIES, INTERIM, CUTS)
def test_a_body_of_known_length_in_any_cuts(status: int, body: bytes, before: bytes, places: list[int]) -> None:
    parsing = parsed(cut(before + with_length(status, body), places))
    assert (parsing.status, parsing.reason, parsing.headers["x-one"]) == (status, b"Said", "1")
    assert "link" not in parsing.headers
    assert parsing.is_whole
    assert parsing.may_stay
    assert parsing.take() == body


@given(STATUSES, PIECES, st.sampled_from([b"", b"X-Sum: abc\r\n"]), CUTS)
def test_a_body_in_chunks_in_any_cuts(status: int, pieces: list[bytes], trailers: bytes, places: list[int]) -> None:
    parsing = parsed(cut(in_chunks(status, pieces, trailers), places))
    assert parsing.is_whole
    assert parsing.may_stay
    assert parsing.take() == b"".join(pieces)
    assert "x-sum" not in parsing.headers


@given(PIECES, st.binary(min_size=1, max_size=30), CUTS)
def test_what_stands_behind_a_response_spoils_the_connection_and_not_the_response(
    pieces: list[bytes], behind: bytes, places: list[int]
) -> None:
    parsing = parsed([*cut(in_chunks(200, pieces) + behind, places), b"still more"])
    assert parsing.is_whole
    assert not parsing.may_stay
    assert parsing.take() == b"".join(pieces)


@given(st.lists(st.binary(max_size=40), max_size=6), st.booleans())
def test_what_is_no_response_is_refused_and_never_anything_else(noise: list[bytes], is_begun: bool) -> None:
    parsing = Parsing(is_bodiless=False)
    try:
        for piece in [in_chunks(200, [b"abc"])[:40]] * is_begun + noise:
            parsing.feed(piece)
    except HttpParserError:
        return
    assert parsing.unread_bytes == sum(map(len, parsing.pieces))


def test_a_body_without_a_length_lasts_until_the_connection_ends() -> None:
    parsing = parsed([b"HTTP/1.1 200 OK\r\nX: y\r\n\r\nso", b" far"])
    assert not parsing.is_whole
    assert parsing.ends_with_connection
    assert parsing.take() == b"so far"
    assert not parsed([b"HTTP/1.1 200 OK\r\n"]).ends_with_connection
    assert parsed([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\nso"]).ends_with_connection
    assert not parsed([in_chunks(200, [b"abc"])[:-3]]).ends_with_connection
    assert not parsed([with_length(200, b"abc")[:-1]]).ends_with_connection


def test_an_answer_to_head_has_no_body_whatever_its_length_says() -> None:
    parsing = Parsing(is_bodiless=True)
    parsing.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
    assert parsing.is_whole
    assert not parsing.may_stay


def test_another_protocol_ends_the_response() -> None:
    parsing = parsed([b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n\x81\x01"])
    assert parsing.status == 101
    assert parsing.is_whole
    assert not parsing.may_stay


@pytest.mark.parametrize(("version", "header", "may_stay"), [
    (b"1.1", b"", True), (b"1.1", b"Connection: close\r\n", False), (b"1.0", b"", False),
    (b"1.0", b"Connection: keep-alive\r\n", True),
])  # fmt: skip
def test_a_connection_stays_as_the_server_says(version: bytes, header: bytes, may_stay: bool) -> None:
    parsing = parsed([b"HTTP/%b 200 OK\r\n%bContent-Length: 1\r\n\r\na" % (version, header)])
    assert parsing.is_whole
    assert parsing.may_stay is may_stay


def test_careless_servers_are_understood() -> None:
    parsing = parsed([b"HTTP/1.1 200 OK\nContent-Type:  text/plain \nContent-Length: 2\n\nok"])
    assert parsing.take() == b"ok"
    assert parsing.headers["content-type"] == "text/plain"


def test_headers_may_be_as_long_as_the_limit_and_not_longer() -> None:
    most = b"a" * (HEAD_BYTES_MAX - 200)
    assert parsed([b"HTTP/1.1 200 OK\r\nX: " + most + b"\r\nContent-Length: 0\r\n\r\n"]).is_whole
    with pytest.raises(HttpParserError):
        parsed([b"HTTP/1.1 200 OK\r\nX: " + b"a" * HEAD_BYTES_MAX + b"\r\nContent-Length: 0\r\n\r\n"])


@pytest.mark.parametrize("start", [b"HTTP/1.1 200 OK\r\nX: ", in_chunks(200, [b"abc"])[:-2] + b"X: ", b"HTTP/1.1 200 "])
def test_what_never_ends_is_given_up(start: bytes) -> None:
    with pytest.raises(HttpParserError):
        parsed([start] + [b"a" * 1000] * (2 * HEAD_BYTES_MAX // 1000))
