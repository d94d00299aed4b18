"""Images are what their bytes say, and what no provider would take is told from what one would."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.core.events.run import Attachment
from palyra.core.images import (
    ENCODED_BYTES_MAX,
    IMAGE_BYTES_MAX,
    IMAGE_SIDE_MAX,
    IMAGE_TYPES,
    IMAGES_BYTES_MAX,
    IMAGES_MAX,
    find_fault,
    find_sides,
    find_type,
    fitting_count,
    is_image,
    normal_type,
)
from tests.support.images import attached, gif, jpeg, png, webp

Make = Callable[[int, int], bytes]
KINDS: dict[str, tuple[str, Make]] = {
    "png": ("image/png", png),
    "jpeg": ("image/jpeg", jpeg),
    "gif": ("image/gif", gif),
    "webp": ("image/webp", webp),
    "webp lossless": ("image/webp", lambda width, height: webp(width, height, b"VP8L")),
    "webp simple": ("image/webp", lambda width, height: webp(width, height, b"VP8 ")),
}
kinds = pytest.mark.parametrize("kind", KINDS)


@kinds
@given(width=st.integers(1, IMAGE_SIDE_MAX), height=st.integers(1, IMAGE_SIDE_MAX))
def test_kind_and_size_are_read_from_the_bytes(kind: str, width: int, height: int) -> None:
    media_type, make = KINDS[kind]
    body = make(width, height)
    assert (find_type(body), find_sides(body), find_fault(media_type, body)) == (media_type, (width, height), None)


@kinds
def test_type_that_the_bytes_contradict_is_a_fault(kind: str) -> None:
    media_type, make = KINDS[kind]
    for other in IMAGE_TYPES.keys() - {media_type}:
        fault = find_fault(other, make(1, 1))
        assert fault is not None
        assert media_type in fault
        assert other in fault
    assert "no PNG" in str(find_fault(media_type, b"<svg/>"))


@kinds
def test_image_that_is_too_long_a_side_is_a_fault(kind: str) -> None:
    media_type, make = KINDS[kind]
    assert str(IMAGE_SIDE_MAX + 1) in str(find_fault(media_type, make(IMAGE_SIDE_MAX + 1, 1)))
    assert str(IMAGE_SIDE_MAX + 1) in str(find_fault(media_type, make(1, IMAGE_SIDE_MAX + 1)))


@kinds
def test_header_that_is_cut_short_is_a_fault_and_never_a_crash(kind: str) -> None:
    media_type, make = KINDS[kind]
    whole = make(1, 1)
    faults = [find_fault(media_type, whole[:length]) for length in range(len(whole))]
    assert all(faults[:10])
    assert faults[0] != faults[12]


def test_size_of_the_file_is_bounded_by_its_encoding() -> None:
    largest = png(filler=b"x" * (IMAGE_BYTES_MAX - len(png())))
    assert find_fault("image/png", largest) is None
    assert -(-len(largest) // 3) * 4 <= ENCODED_BYTES_MAX
    assert str(IMAGE_BYTES_MAX) in str(find_fault("image/png", largest + b"x"))


def test_frame_of_a_jpeg_is_found_behind_whatever_comes_before_it() -> None:
    before = b"\xff\xe1\x00\x06\xff\xc0\xff\xc0" + b"\xff\xff\xff\x01" + b"\xff\xc4\x00\x03x" + b"\xff\xd0"
    assert find_sides(jpeg(12, 34, before)) == (12, 34)
    assert find_sides(jpeg(12, 34, b"\xff\xe1\xff\xff")) is None
    assert find_sides(jpeg(12, 34, b"\xff\xe1\x00\x00")) == (12, 34)
    assert find_sides(jpeg(12, 34, b"no marker")) is None


@given(
    st.sampled_from([b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF89a", b"RIFF\0\0\0\0WEBPVP8 "]), st.binary(max_size=80)
)
def test_no_bytes_crash_the_reader(head: bytes, rest: bytes) -> None:
    media_type = find_type(head + rest)
    assert media_type in IMAGE_TYPES
    sides = find_sides(head + rest)
    fault = find_fault(media_type or "", head + rest)
    assert (fault is None) == (sides is not None and 0 < min(sides) <= max(sides) <= IMAGE_SIDE_MAX)


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        ("image/jpg", "image/jpeg"),
        ("IMAGE/PNG", "image/png"),
        ("text/Plain", "text/plain"),
        ("image/heic", "image/heic"),
    ],
)
def test_media_types_have_one_spelling(given: str, normal: str) -> None:
    assert normal_type(given) == normal


def test_other_kinds_of_image_are_files() -> None:
    assert is_image(attached(png()))
    assert not is_image(attached(b"<svg/>", "a.svg", "image/svg+xml"))


def sized(bytes_count: int) -> Attachment:
    return Attachment(artifact_id="a", name="a", media_type="image/png", bytes=bytes_count)


@given(st.lists(st.integers(0, IMAGE_BYTES_MAX).map(sized), max_size=30))
def test_as_many_of_the_newest_are_sent_as_fit(images: list[Attachment]) -> None:
    count = fitting_count(images)
    sizes = [image.bytes for image in images]
    assert count <= IMAGES_MAX
    assert sum(sizes[len(sizes) - count :]) <= IMAGES_BYTES_MAX
    is_full = count in (IMAGES_MAX, len(images)) or sum(sizes[len(sizes) - count - 1 :]) > IMAGES_BYTES_MAX
    assert is_full
