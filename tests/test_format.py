"""docs/format.md and docs/events.md say what the code does: the examples compute, the tables match the records."""

import hashlib
import json
import re
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from palyra.core.canonical import DEPTH_MAX, INTEGER_MAX
from palyra.core.checkpoint import HEADS_MAX
from palyra.core.events import DATA_TYPES, EventData
from palyra.core.events.codec import DATA_BYTES_MAX
from palyra.core.export import check_export

DOCS = Path(__file__).parents[1] / "docs"
FORMAT = (DOCS / "format.md").read_text(encoding="utf-8")
# A row without a type continues the row above it, so that no line is too long to read.
EVENTS = re.sub(r"\|[^|\n]*\|\n\| \|", "", (DOCS / "events.md").read_text(encoding="utf-8"))
JSON_BLOCKS = re.findall(r"^```json\n(.*?)^```", FORMAT, re.MULTILINE | re.DOTALL)
LINES = [json.loads(line) for line in JSON_BLOCKS[0].splitlines()]
CHECKPOINT = json.loads(JSON_BLOCKS[1])
HEADER = ("actor", "at_ms", "run_id", "seq", "session_id", "trust", "type")
ROW = re.compile(r"^\| `([\w.]+)` \|([^|]*)\|", re.MULTILINE)


def plain_jcs(value: object) -> bytes:
    """Enough of JCS for the examples: ASCII names, numbers that Python writes as ECMAScript does."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def test_worked_example_computes_from_the_documents_words_alone() -> None:
    previous = bytes(32)
    for line in LINES:
        digest = hashlib.sha256(bytes.fromhex(line["salt"]) + plain_jcs(line["data"])).digest()
        header = plain_jcs({name: line[name] for name in HEADER})
        previous = hashlib.sha256(previous + header + digest).digest()
        assert (digest.hex(), previous.hex()) == (line["d"], line["hash"])


def test_steps_of_the_example_are_its_values() -> None:
    second = LINES[1]
    assert plain_jcs({name: second[name] for name in HEADER}).decode() in FORMAT
    assert FORMAT.count(second["d"]) == 2
    assert FORMAT.count(second["hash"]) == 2


def test_worked_example_passes_our_own_check() -> None:
    report = check_export(JSON_BLOCKS[0].encode().splitlines())
    assert (report.is_whole, report.summary.events_count) == (True, 3)


def test_checkpoint_example_computes() -> None:
    key = Ed25519PrivateKey.from_private_bytes(bytes([7]) * 32)
    public_key = key.public_key().public_bytes_raw()
    unsigned = {name: value for name, value in CHECKPOINT.items() if name != "signature"}
    signed = b"palyra-checkpoint-v1\x00" + plain_jcs(unsigned)
    assert key.sign(signed).hex() == CHECKPOINT["signature"]
    assert f"`{public_key.hex()}`" in FORMAT
    assert hashlib.sha256(public_key).hexdigest()[:16] == CHECKPOINT["key_id"]
    checkpoint_hash = hashlib.sha256(signed + bytes.fromhex(CHECKPOINT["signature"])).hexdigest()
    assert f"checkpoint hash `{checkpoint_hash}`" in FORMAT
    assert CHECKPOINT["heads"][0]["hash"] == LINES[-1]["hash"]


@pytest.mark.parametrize(
    "words",
    [
        f"at most {DATA_BYTES_MAX} bytes",
        f"nesting than {DEPTH_MAX}",
        f"More than {HEADS_MAX} heads",
    ],
)
def test_limits_are_those_of_the_code(words: str) -> None:
    assert words in FORMAT.replace("\n", " ")


def test_integer_limit_is_that_of_the_code() -> None:
    assert "2^53 − 1" in FORMAT  # noqa: RUF001
    assert INTEGER_MAX == 2**53 - 1


def fields_of(record: type[msgspec.Struct]) -> list[str]:
    """As the tables write them, a `?` after those that are left out while they have their default."""
    return [f"{field.name}{'' if field.required else '?'}" for field in msgspec.structs.fields(record)]


def table_fields(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_every_event_type_is_listed_with_its_fields() -> None:
    listed = {name: table_fields(cell) for name, cell in ROW.findall(EVENTS)}
    listed = {name: fields for name, fields in listed.items() if not name[0].isupper()}
    assert listed == {name: fields_of(data_type) for name, data_type in DATA_TYPES.items()}


def test_every_record_inside_of_data_is_listed_with_its_fields() -> None:
    listed = {name: table_fields(cell) for name, cell in ROW.findall(FORMAT) if name[0].isupper()}
    assert listed == {record.__name__: fields_of(record) for record in inner_records()}


def inner_records() -> set[type[msgspec.Struct]]:
    found: set[type[msgspec.Struct]] = set()
    waiting = [part for data_type in DATA_TYPES.values() for part in msgspec.inspect.multi_type_info([data_type])]
    while waiting:
        part = waiting.pop()
        if isinstance(part, msgspec.inspect.StructType):
            if part.cls in found:
                continue
            if not issubclass(part.cls, EventData):
                found.add(part.cls)
            waiting += [field.type for field in part.fields]
        waiting += getattr(part, "types", ())
        waiting += [inner for name in ("item_type", "key_type", "value_type") if (inner := getattr(part, name, None))]
    return found
