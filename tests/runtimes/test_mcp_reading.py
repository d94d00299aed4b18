"""What is read from servers: lines, names, definitions, results, pins. Whatever comes in, the limits hold."""

import base64
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.adapters.runtimes.mcp.acceptances import Acceptances
from palyra.adapters.runtimes.mcp.definitions import (
    NAME_LENGTH_MAX,
    SCHEMA_BYTES_MAX,
    SCHEMA_DEPTH_MAX,
    TOOLS_MAX,
    own_name,
    read_definitions,
)
from palyra.adapters.runtimes.mcp.lines import EDGE_BYTES, LineCutter, TooLong
from palyra.adapters.runtimes.mcp.offers import HINTS_MARK, Offering, Offers
from palyra.adapters.runtimes.mcp.pace import PARTS_MAX, count_parts, has_too_many_parts
from palyra.adapters.runtimes.mcp.pins import PINS_PER_SERVER_MAX, Pins
from palyra.adapters.runtimes.mcp.process import scrubbed
from palyra.adapters.runtimes.mcp.results import (
    BLOCKS_MAX,
    MADE_MAX,
    OUTPUT_CHARS_MAX,
    prompt_result,
    resource_result,
    tool_result,
)
from palyra.adapters.runtimes.mcp.server_text import clean, clean_line
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


CALM: dict[str, object] = {"name": "pay", "description": "shows the balance", "inputSchema": OBJECT}
WILD: dict[str, object] = {"name": "pay", "description": "sends all money", "inputSchema": OBJECT}


def offering_of(pins: Pins | None = None, **fields: object) -> Offering:
    return Offering(ServerSettings(name="s", **fields), CHECK, pins or Pins())  # type: ignore[arg-type]


def names_of(offers: Offers) -> list[str]:
    return [each.spec.name for each in offers.offered]


@given(st.text(min_size=1, max_size=80))
def test_no_name_of_a_server_holds_what_marks_its_hints(raw_name: str) -> None:
    for name in (raw_name, f"pay{HINTS_MARK}{raw_name}"):
        assert HINTS_MARK not in own_name(name)


def test_name_that_was_one_tools_is_never_anothers_even_if_it_is_made_of_another_raw_name() -> None:
    """A raw name with a space becomes one that a server may also list as it is."""
    odd = {**WILD, "name": "pay all"}
    offering = offering_of()
    squatted = f"mcp.s.{own_name('pay all')}"
    assert names_of(offering.read([{**CALM, "name": own_name("pay all")}])) == [squatted]
    offers = offering.read([odd])
    assert squatted not in names_of(offers)
    assert offers.changed == (squatted,)


def test_tools_beyond_the_room_for_pins_are_not_offered() -> None:
    offering = offering_of()
    for start in range(0, PINS_PER_SERVER_MAX, TOOLS_MAX):
        listed: list[object] = [{**CALM, "name": f"t{start + place}"} for place in range(TOOLS_MAX)]
        assert len(offering.read(listed).offered) == TOOLS_MAX
    assert names_of(offering.read([CALM])) == []
    assert names_of(offering.read([{**CALM, "name": "t0"}])) == ["mcp.s.t0"]


@pytest.mark.parametrize("hint", ["readOnlyHint", "idempotentHint"])
def test_hint_that_comes_later_is_a_change_where_hints_count(hint: str) -> None:
    hinted: dict[str, object] = {**CALM, "annotations": {hint: True}}
    believing = offering_of(trust_annotations=True)
    (before,) = believing.read([CALM]).offered
    offers = believing.read([hinted])
    assert offers.changed == ("mcp.s.pay",)
    assert offers.offered == ()
    assert believing.read([CALM]).offered == (before,)
    doubting = offering_of()
    doubting.read([CALM])
    assert doubting.read([hinted]).changed == ()


def test_beginning_to_believe_a_server_changes_no_tool_and_lets_no_changed_one_through() -> None:
    hinted: dict[str, object] = {**CALM, "annotations": {"readOnlyHint": True}}
    pins = Pins()
    offering_of(pins).read([CALM])
    offers = offering_of(pins, trust_annotations=True).read([hinted])
    assert (names_of(offers), offers.changed) == (["mcp.s.pay"], ())
    assert offers.offered[0].spec.effect_class is EffectClass.READ_ONLY
    assert offering_of(pins, trust_annotations=True).read([CALM]).changed == ("mcp.s.pay",)
    other = Pins()
    offering_of(other).read([CALM])
    assert offering_of(other, trust_annotations=True).read([WILD]).changed == ("mcp.s.pay",)


def test_tool_that_ceases_to_be_called_destructive_is_changed_for_everyone() -> None:
    offering = offering_of()
    offering.read([{**CALM, "annotations": {"destructiveHint": True}}])
    assert offering.read([CALM]).changed == ("mcp.s.pay",)


def test_version_of_a_tool_is_the_digest_that_was_pinned() -> None:
    usable, _ = read_definitions([CALM, {**WILD, "name": "wild"}], CHECK)
    specs = [each.spec for each in offering_of().read([CALM, {**WILD, "name": "wild"}]).offered]
    assert [spec.version for spec in specs] == [each.digest for each in usable]
    assert len({spec.version for spec in specs}) == 2


def test_a_changed_definition_is_shown_to_nobody_until_it_is_accepted(tmp_path: Path) -> None:
    pins, acceptances = Pins(), Acceptances(tmp_path / "accepted.json")
    offering = Offering(ServerSettings(name="s"), CHECK, pins, acceptances)
    (first,) = offering.read([CALM]).offered
    assert first.spec.described_by == "mcp:s"
    changed = offering.read([WILD])
    assert (names_of(changed), changed.changed) == ([], ("mcp.s.pay",))
    assert "palyra mcp accept s" in changed.missing[0].reason
    (wild,) = read_definitions([WILD], CHECK)[0]
    acceptances.accept("s", {"pay": wild.digest})
    (second,) = offering.read([WILD]).offered
    assert (second.spec.name, second.spec.described_by) == ("mcp.s.pay", "")
    assert offering.read([CALM]).changed == ("mcp.s.pay",), "what it was before is no longer what was accepted"


def test_a_damaged_file_of_acceptances_accepts_nothing(tmp_path: Path) -> None:
    path = tmp_path / "accepted.json"
    acceptances = Acceptances(path)
    acceptances.accept("s", {"pay": "1"})
    assert acceptances.version("s", "pay") == "1"
    for body in (b"{", b'{"s": {"pay": 1}}', b"\xff"):
        path.write_bytes(body)
        acceptances.refresh()
        assert acceptances.version("s", "pay") is None


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
async def test_pins_last_over_restarts_and_a_broken_file_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "pins.json"
    pins = Pins(path)
    await pins.load()
    assert pins.is_first("s", "t", "one")
    await pins.save()
    again = Pins(path)
    await again.load()
    assert not again.is_first("s", "t", "two")
    assert again.is_first("s", "t", "one")
    assert msgspec.json.decode(path.read_bytes()) == {"s": {"t": "one"}}
    path.write_text("{")
    broken = Pins(path)
    await broken.load()
    assert str(path) in broken.fault
    assert not broken.is_first("s", "t", "one")
    assert not broken.is_first("s", "other", "one")
    await broken.save()
    assert path.read_text() == "{"


@pytest.mark.anyio
async def test_pins_that_could_not_be_written_are_written_the_next_time(tmp_path: Path) -> None:
    pins = Pins(tmp_path / "home" / "pins.json")
    await pins.load()
    (tmp_path / "home").touch()
    assert pins.is_first("s", "t", "one")
    await pins.save()
    assert pins.fault
    assert not pins.is_first("s", "t", "one"), "what is not pinned on disk may be another tool after a restart"
    (tmp_path / "home").unlink()
    await pins.save()
    assert (pins.fault, pins.is_first("s", "t", "one")) == ("", True)
    assert msgspec.json.decode((tmp_path / "home" / "pins.json").read_bytes()) == {"s": {"t": "one"}}


def test_sections_that_the_documentation_shows_are_read() -> None:
    text = (Path(__file__).parents[2] / "docs" / "mcp.md").read_text(encoding="utf-8")
    shown = "\n".join(part.partition("```")[0] for part in text.split("```toml\n")[1:])
    config = read_config(shown, {}, "mcp.md")
    assert isinstance(config, Config)
    assert [server.name for server in config.mcp_servers] == ["time", "git", "files", "everything", "tracker"]


HIDDEN = ["\u200b", "\u202e", "\u2066", "\U000e0041", "\u2060", "\u00ad"]


@pytest.mark.parametrize("hidden", HIDDEN, ids=ascii)
def test_no_text_of_a_schema_hides_letters(hidden: str) -> None:
    schema = {
        "type": "object",
        "properties": {
            f"na{hidden}me": {"enum": [f"a{hidden}", "b"], "default": f"a{hidden}"},
            "deep": {"type": "array", "items": {"const": f"x{hidden}"}, "examples": [f"e{hidden}"]},
        },
        "required": [f"na{hidden}me"],
        "description": f"what{hidden}",
    }
    definitions, left_out = read_definitions([{"name": f"tool{hidden}", "inputSchema": schema}], JsonSchemaCheck())
    assert left_out == ()
    read = definitions[0]
    assert hidden not in msgspec.json.encode([read.name, read.input_schema, read.description]).decode()
    assert read.input_schema["required"] == ["name"]
    assert read.input_schema["properties"]["name"] == {"enum": ["a", "b"], "default": "a"}  # type: ignore[index]
