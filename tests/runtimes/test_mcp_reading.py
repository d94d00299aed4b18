"""What is read from servers: lines, names, definitions, results, pins. Whatever comes in, the limits hold."""

import base64
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.adapters.runtimes.mcp.cleaning import clean, clean_line
from palyra.adapters.runtimes.mcp.definitions import (
    NAME_LENGTH_MAX,
    SCHEMA_BYTES_MAX,
    SCHEMA_DEPTH_MAX,
    TOOLS_MAX,
    own_name,
    read_definitions,
)
from palyra.adapters.runtimes.mcp.lines import EDGE_BYTES, LineCutter, TooLong
from palyra.adapters.runtimes.mcp.offers import Offering
from palyra.adapters.runtimes.mcp.pace import PARTS_MAX, count_parts, has_too_many_parts
from palyra.adapters.runtimes.mcp.pins import Pins
from palyra.adapters.runtimes.mcp.process import scrubbed
from palyra.adapters.runtimes.mcp.results import (
    BLOCKS_MAX,
    MADE_MAX,
    OUTPUT_CHARS_MAX,
    prompt_result,
    resource_result,
    tool_result,
)
from palyra.adapters.runtimes.mcp.settings import ServerSettings, is_named
from palyra.adapters.schema import JsonSchemaCheck
from palyra.config import Config
from palyra.config.read import read_config
from palyra.core.events.tool import EffectClass, Outcome, Risk

CHECK = JsonSchemaCheck()
OBJECT = {"type": "object"}
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=20,
)
blocks = st.lists(
    values
    | st.fixed_dictionaries(
        {"type": st.sampled_from(["text", "image", "audio", "resource", "resource_link", "x"])},
        optional={"text": values, "data": values, "mimeType": values, "resource": values, "uri": values},
    ),
    max_size=6,
)


@given(st.lists(st.binary(max_size=40)), st.integers(min_value=1, max_value=64))
def test_lines_are_those_of_the_whole_however_it_is_cut(pieces: list[bytes], limit: int) -> None:
    cutter = LineCutter(limit)
    got = [line for piece in pieces for line in cutter.feed(piece)]
    whole = b"".join(pieces).split(b"\n")[:-1]
    assert [line for line in got if isinstance(line, bytes)] == [
        each.strip() for each in whole if len(each) <= limit and each.strip()
    ]
    assert [line.size_bytes for line in got if isinstance(line, TooLong)] == [
        len(each) for each in whole if len(each) > limit
    ]
    assert cutter.held_bytes <= limit + 2 * EDGE_BYTES + 40


@pytest.mark.parametrize(
    ("line", "answers"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":{"x":"' + b"y" * 2_000 + b'"}}', 7),
        (b'{"id": 8, "result":"' + b"y" * 2_000 + b'"}', 8),
        (b'{"jsonrpc":"2.0","result":"' + b"y" * 2_000 + b'","id":9}', 9),
        (b'{"result":"' + b"y" * 2_000 + b'", "id": 9, "jsonrpc": "2.0"}', 9),
        (b'{"result":"' + b"y" * 2_000 + b'"}', None),
        (b"y" * 2_000, None),
    ],
)
def test_line_that_is_too_long_tells_whose_answer_it_was(line: bytes, answers: int | None) -> None:
    cutter = LineCutter(1_000)
    (cut,) = [
        each for start in range(0, len(line) + 1, 100) for each in cutter.feed((line + b"\n")[start : start + 100])
    ]
    assert cut == TooLong(len(line), answers)


@pytest.mark.parametrize(
    ("value", "is_refused"),
    [
        ([[]] * PARTS_MAX, True),
        ([[]] * (PARTS_MAX // 2 - 10), False),
        ([{"": 0}] * PARTS_MAX, True),
        ([""] * (PARTS_MAX + 10), True),
        ("," * 5 * PARTS_MAX, False),
        ('[{"a": "b\\\\"}], \\"' * PARTS_MAX, False),
        ("x" * 1_000_000, False),
    ],
)
def test_parts_are_counted_outside_of_texts(value: object, is_refused: bool) -> None:
    message = msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "result": {"content": value}})
    assert has_too_many_parts(message) is is_refused


@given(values)
def test_parts_are_never_counted_too_low(value: object) -> None:
    def parts(each: object) -> int:
        inner = each.values() if isinstance(each, dict) else each if isinstance(each, list) else ()
        return 1 + sum(parts(one) for one in inner)

    assert count_parts(msgspec.json.encode(value)) >= parts(value) // 2


@given(st.text(), st.integers(min_value=1, max_value=50))
def test_cleaned_text_shows_all_it_holds(text: str, length_max: int) -> None:
    cleaned = clean(text, length_max)
    assert len(cleaned) <= length_max
    assert all(letter in "\n\t" or letter.isprintable() for letter in cleaned)
    assert "\n" not in clean_line(text, length_max)


@pytest.mark.parametrize(
    "hidden", ["\x00", "\x1b", "\u200b", "\u202e", "\ufeff", "\ufe01", "\u3164", "\U000e0041", "\U000e0101"]
)
def test_hidden_letters_fall_out(hidden: str) -> None:
    assert clean(f"a{hidden}b", 10) == "ab"
    assert clean(f"Größe{hidden} 日本", 20) == "Größe 日本"


@given(st.text(min_size=1), st.text(min_size=1))
def test_own_names_fit_every_provider_and_two_names_stay_two(one: str, other: str) -> None:
    for raw in (one, other):
        assert 0 < len(own_name(raw)) <= NAME_LENGTH_MAX
        assert all(letter.isascii() and (letter.isalnum() or letter in "_-") for letter in own_name(raw))
    assert (own_name(one) == own_name(other)) == (one == other)


def test_plain_names_stay_as_they_are() -> None:
    assert own_name("read_file-2") == "read_file-2"
    assert own_name("n" * NAME_LENGTH_MAX) == "n" * NAME_LENGTH_MAX
    assert own_name("n" * (NAME_LENGTH_MAX + 1)) != "n" * NAME_LENGTH_MAX


definitions = st.lists(
    values
    | st.fixed_dictionaries(
        {"name": values | st.sampled_from(["a", "b", "c d"]), "inputSchema": values | st.just(OBJECT)},
        optional={"description": values, "annotations": values},
    )
)


@given(definitions)
def test_definitions_are_read_or_left_out_whatever_they_are(listed: list[object]) -> None:
    usable, left_out = read_definitions(listed, CHECK)
    assert len({each.name for each in usable}) == len(usable)
    assert all(each.reason for each in left_out)
    for each in usable:
        assert CHECK.schema_errors(each.input_schema) == ()


def nested(depth: int) -> dict[str, object]:
    schema: dict[str, object] = {"type": "object"}
    for _ in range(depth):
        schema = {"not": schema}
    return {"type": "object", **schema}


@pytest.mark.parametrize(
    ("schema", "is_usable"),
    [
        (nested(SCHEMA_DEPTH_MAX - 2), True),
        (nested(SCHEMA_DEPTH_MAX + 1), False),
        ({"type": "object", "$comment": "x" * (SCHEMA_BYTES_MAX - 100)}, True),
        ({"type": "object", "$comment": "x" * SCHEMA_BYTES_MAX}, False),
    ],
)
def test_schema_at_its_limits(schema: dict[str, object], is_usable: bool) -> None:
    usable, left_out = read_definitions([{"name": "t", "inputSchema": schema}], CHECK)
    assert (len(usable), len(left_out)) == ((1, 0) if is_usable else (0, 1))


def test_number_of_tools_at_its_limit() -> None:
    tools: list[object] = [{"name": f"t{number}", "inputSchema": OBJECT} for number in range(TOOLS_MAX + 1)]
    assert read_definitions(tools[:TOOLS_MAX], CHECK)[1] == ()
    usable, left_out = read_definitions(tools, CHECK)
    assert (len(usable), len(left_out)) == (TOOLS_MAX, 1)


def test_what_a_server_calls_destructive_is_of_high_risk_even_untrusted() -> None:
    offering = Offering(ServerSettings(name="s"), CHECK, Pins())
    listed: list[object] = [
        {"name": "wipe", "inputSchema": OBJECT, "annotations": {"destructiveHint": True, "readOnlyHint": True}},
        {"name": "calm", "inputSchema": OBJECT, "annotations": {"readOnlyHint": "yes"}},
    ]
    specs = [each.spec for each in offering.read(listed).offered]
    assert [(spec.risk, spec.effect_class) for spec in specs] == [
        (Risk.HIGH, EffectClass.ONCE),
        (Risk.MEDIUM, EffectClass.ONCE),
    ]


def test_changed_tool_cannot_take_the_name_of_another() -> None:
    offering = Offering(ServerSettings(name="s"), CHECK, Pins())
    offering.read([{"name": "echo", "inputSchema": OBJECT}])
    changed: dict[str, object] = {"name": "echo", "inputSchema": OBJECT, "description": "else"}
    (fresh,) = offering.read([changed]).offered
    taken = fresh.spec.name.removeprefix("mcp.s.")
    offers = offering.read([changed, {"name": taken, "inputSchema": OBJECT}])
    assert [each.raw_name for each in offers.offered] == [taken]
    assert offers.changed == ("mcp.s.echo",)


def test_back_to_what_it_was_is_its_old_self_again() -> None:
    offering = Offering(ServerSettings(name="s"), CHECK, Pins())
    first = offering.read([{"name": "echo", "inputSchema": OBJECT}]).offered
    offering.read([{"name": "echo", "inputSchema": OBJECT, "description": "else"}])
    assert offering.read([{"name": "echo", "inputSchema": OBJECT}]).offered == first


@given(values, blocks, values)
def test_results_are_made_of_whatever_comes(whole: object, content: list[object], structured: object) -> None:
    answers = [{"content": content, "structuredContent": structured, "isError": whole}, {"content": whole}]
    if isinstance(whole, dict):
        answers.append(whole)
    for answer in answers:
        result = tool_result(answer, "mcp.s.t", "mcp:s")
        assert result.outcome in (Outcome.OK, Outcome.FAILED)
        assert result.output or result.made or result.outcome is Outcome.FAILED
        resource_result({"contents": content}, "mcp:s")
        prompt_result({"messages": [{"role": whole, "content": each} for each in content]}, "mcp:s")


def test_output_blocks_and_bodies_at_their_limits() -> None:
    letters: list[object] = [{"type": "text", "text": "x" * OUTPUT_CHARS_MAX}]
    assert tool_result({"content": letters}, "t", "s").output == "x" * OUTPUT_CHARS_MAX
    more = tool_result({"content": [*letters, {"type": "text", "text": "y"}]}, "t", "s").output
    assert more.endswith("[The answer was longer: 1 characters are left out.]")
    many: list[object] = [{"type": "text", "text": "a"}] * (BLOCKS_MAX + 1)
    assert tool_result({"content": many}, "t", "s").output.endswith("[1 more parts of the answer are left out.]")
    body = base64.b64encode(b"x").decode()
    images: list[object] = [{"type": "image", "data": body, "mimeType": "image/png"}] * (MADE_MAX + 1)
    result = tool_result({"content": images}, "t", "s")
    assert len(result.made) == MADE_MAX
    assert "left out" in result.output


@pytest.mark.parametrize(
    ("patterns", "is_there"),
    [((), False), (("get_*",), True), (("GET_*",), False), (("*",), True), (("x", "get_a"), True)],
)
def test_patterns_are_of_the_servers_own_name(patterns: tuple[str, ...], is_there: bool) -> None:
    assert is_named("get_a", patterns) is is_there


def test_environment_is_scrubbed_to_what_programs_need() -> None:
    ours = {"PATH": "/bin", "HOME": "/h", "PALYRA_VAULT_PASSPHRASE": "x", "OPENAI_API_KEY": "y", "LD_PRELOAD": "z"}
    assert scrubbed(ours) == {"PATH": "/bin", "HOME": "/h"}


@pytest.mark.anyio
async def test_pins_last_over_restarts_and_a_broken_file_starts_anew(tmp_path: Path) -> None:
    path = tmp_path / "pins.json"
    pins = Pins(path)
    await pins.load()
    assert pins.first_seen("s", "t", "one") == "one"
    await pins.save()
    again = Pins(path)
    await again.load()
    assert again.first_seen("s", "t", "two") == "one"
    assert msgspec.json.decode(path.read_bytes()) == {"s": {"t": "one"}}
    path.write_text("{")
    broken = Pins(path)
    await broken.load()
    assert broken.first_seen("s", "t", "two") == "two"


def test_sections_that_the_documentation_shows_are_read() -> None:
    text = (Path(__file__).parents[2] / "docs" / "mcp.md").read_text(encoding="utf-8")
    shown = "\n".join(part.partition("```")[0] for part in text.split("```toml\n")[1:])
    config = read_config(shown, {}, "mcp.md")
    assert isinstance(config, Config)
    assert [server.name for server in config.mcp_servers] == ["time", "git", "files", "everything", "tracker"]
