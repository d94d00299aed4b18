"""Identifiers: shapes, order and derivation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.core import ids
from palyra.core.errors import Invalid
from palyra.core.ids import RunId

moments = st.integers(0, ids.AT_MS_MAX)
entropy = st.binary(min_size=10, max_size=10)


@given(moments, entropy)
def test_ulid_parses_and_tells_its_time(at_ms: int, random_bytes: bytes) -> None:
    ulid = ids.make_ulid(at_ms, random_bytes)
    assert ids.parse_session_id(ulid) == ulid
    assert ids.ulid_at_ms(ulid) == at_ms


@given(moments, moments, entropy, entropy)
def test_ulids_sort_by_time(left_ms: int, right_ms: int, left: bytes, right: bytes) -> None:
    if left_ms < right_ms:
        assert ids.make_ulid(left_ms, left) < ids.make_ulid(right_ms, right)


@given(st.text(max_size=30))
def test_only_well_formed_ids_parse(text: str) -> None:
    try:
        assert ids.parse_run_id(text) == text
    except Invalid as refusal:
        assert refusal.code == "run_id_invalid"
    else:
        assert len(text) == ids.ULID_LENGTH


@pytest.mark.parametrize(
    "text", ["", "8ZZZZZZZZZZZZZZZZZZZZZZZZZ", "01arz3ndektsv4rrffq69g5fav", "01ARZ3NDEKTSV4RRFFQ69G5FAU\n"]
)
def test_malformed_session_ids_are_refused(text: str) -> None:
    with pytest.raises(Invalid):
        ids.parse_session_id(text)


@pytest.mark.parametrize("text", ["user:alice", "channel:discord:1234", "system:reflection", "agent:main"])
def test_principals_of_the_glossary_parse(text: str) -> None:
    assert ids.parse_principal(text) == text


@pytest.mark.parametrize("text", ["", "alice", "user:", "user:a b", "root:x", "user:a\n", "user:" + "x" * 256])
def test_malformed_principals_are_refused(text: str) -> None:
    with pytest.raises(Invalid):
        ids.parse_principal(text)


def test_refusals_of_ids_and_principals_show_an_example() -> None:
    with pytest.raises(Invalid, match="such as user:alice"):
        ids.parse_principal("alice")
    with pytest.raises(Invalid, match="26 digits and capital letters, such as 01JXQ0Z7N8E4T5Y6W7V8S9R0QP"):
        ids.parse_session_id("nope")


def test_streams_are_sessions_or_system_tapes() -> None:
    node = ids.derive_node_id(b"key")
    assert ids.parse_stream(ids.system_stream(node)) == f"system:{node}"
    assert ids.is_system_stream(ids.system_stream(node))
    with pytest.raises(Invalid):
        ids.parse_stream("system:somewhere")


def test_effect_id_tells_calls_apart_by_run_index_tool_and_arguments() -> None:
    run, other = RunId("01JZ0000000000000000RUN001"), RunId("01JZ0000000000000000RUN002")
    made = {
        ids.derive_effect_id(run, 1, "fs.read", {"path": "a"}),
        ids.derive_effect_id(run, 2, "fs.read", {"path": "a"}),
        ids.derive_effect_id(run, 1, "fs.list", {"path": "a"}),
        ids.derive_effect_id(run, 1, "fs.read", {"path": "b"}),
        ids.derive_effect_id(other, 1, "fs.read", {"path": "a"}),
    }
    assert len(made) == 5
    assert ids.derive_effect_id(run, 1, "t", {"a": 1, "b": 2}) == ids.derive_effect_id(run, 1, "t", {"b": 2, "a": 1})


@given(st.lists(st.binary(max_size=4), max_size=4), st.lists(st.binary(max_size=4), max_size=4))
def test_length_prefixes_keep_parts_apart(left: list[bytes], right: list[bytes]) -> None:
    assert (ids.length_prefixed(*left) == ids.length_prefixed(*right)) is (left == right)
