"""Another verifier, written from docs/format.md alone: hashlib, json and Ed25519, nothing of ours but the export it reads.

It must agree with `palyra verify` on a whole journal and on what is wrong with a damaged one.
"""

import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from typer.testing import CliRunner

from palyra.cli.main import app
from palyra.core.ids import Principal
from palyra.ports.journal import Erasure
from tests.support.homes import TestHome
from tests.support.journals import START_MS

Event = dict[str, Any]
Place = tuple[str, int]
HEADER = ("actor", "at_ms", "run_id", "seq", "session_id", "trust", "type")
ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def jcs(value: Any) -> bytes:
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: name.encode("utf-16-be"))
        return b"{" + b",".join(jcs(name) + b":" + jcs(value[name]) for name in names) + b"}"
    if isinstance(value, list):
        return b"[" + b",".join(jcs(member) for member in value) + b"]"
    if isinstance(value, float):
        return ecmascript(value).encode()
    return json.dumps(value, ensure_ascii=False).encode()


def ecmascript(value: float) -> str:
    """ECMAScript's Number::toString, from Python's shortest digits."""
    if value == 0:
        return "0"
    digits, exponent = f"{value:.17e}".split("e")
    for precision in range(17):
        digits, exponent = f"{abs(value):.{precision}e}".split("e")
        if math.copysign(float(f"{digits}e{exponent}"), value) == value:
            break
    figures, point = digits.replace(".", "").rstrip("0"), int(exponent) + 1
    sign = "-" if value < 0 else ""
    if len(figures) <= point <= 21:
        return sign + figures + "0" * (point - len(figures))
    if 0 < point <= 21:
        return sign + figures[:point] + "." + figures[point:]
    if -6 < point <= 0:
        return sign + "0." + "0" * -point + figures
    rest = "." + figures[1:] if len(figures) > 1 else ""
    return f"{sign}{figures[0]}{rest}e{'+' if point > 0 else '-'}{abs(point - 1)}"


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def lp(*parts: str) -> bytes:
    return b"".join(len(part.encode()).to_bytes(8, "big") + part.encode() for part in parts)


def node_of(public_key: bytes) -> str:
    bits = int.from_bytes(sha256(lp("node", public_key.hex())), "big") >> 126
    return "".join(ALPHABET[bits >> shift & 31] for shift in range(125, -1, -5))


def is_signed(public_key: bytes | None, message: bytes, signature: str) -> bool:
    if public_key is None:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(bytes.fromhex(signature), message)
    except (InvalidSignature, ValueError):
        return False
    return True


class Independent:
    """Reads an export and a directory of public keys; `bad` are the places where something is wrong."""

    def __init__(self, export: str, keys: Path) -> None:
        self.tapes: dict[str, list[Event]] = {}
        for line in export.splitlines():
            event = json.loads(line)
            self.tapes.setdefault(event["session_id"], []).append(event)
        self.keys = {path.stem: bytes.fromhex(path.read_text()) for path in keys.glob("*.pub")}
        self.bad: set[Place] = set()
        systems = [name for name in self.tapes if name.startswith("system:")]
        self.erased = {place for name in systems for place in self.erasures_on(name)}
        for name in self.tapes:
            self.check_chain(name)
            self.check_attestations(name)
            self.check_parent(name)
        for name in systems:
            self.check_checkpoints(name)

    def erasures_on(self, system: str) -> set[Place]:
        records = [event["data"] for event in self.tapes[system] if event["type"] == "erased"]
        return {
            (record["stream"], seq)
            for record in records
            for span in record["ranges"]
            for seq in range(span["first"], span["last"] + 1)
        }

    def check_chain(self, name: str) -> None:
        previous, due = bytes(32), 1
        for event in self.tapes[name]:
            if event["seq"] != due:
                self.bad.add((name, due))
                previous = None  # type: ignore[assignment]
            header = jcs({member: event[member] for member in HEADER})
            is_linked = previous is None or sha256(previous + header + bytes.fromhex(event["d"])).hex() == event["hash"]
            if not is_linked or not self.is_data_right(name, event):
                self.bad.add((name, event["seq"]))
            previous, due = bytes.fromhex(event["hash"]), event["seq"] + 1

    def is_data_right(self, name: str, event: Event) -> bool:
        is_erased = set(event["data"]) == {"erased"}
        if is_erased is not ((name, event["seq"]) in self.erased):
            return False
        if event["salt"] is None:
            return is_erased
        return sha256(bytes.fromhex(event["salt"]) + jcs(event["data"])).hex() == event["d"]

    def check_checkpoints(self, system: str) -> None:
        previous, position = "0" * 64, 0
        for event in self.tapes[system]:
            if event["type"] != "checkpoint.signed":
                continue
            data = event["data"]
            key = self.keys.get(data["key_id"])
            unsigned = {member: data[member] for member in data if member != "signature"}
            message = b"palyra-checkpoint-v1\x00" + jcs(unsigned)
            is_right = is_signed(key, message, data["signature"]) and data["previous"] == previous
            is_named = key is not None and "system:" + node_of(key) == system == "system:" + data["node"]
            if not (is_right and is_named and data["position"] >= position):
                self.bad.add((system, event["seq"]))
            else:
                self.check_heads(data["heads"])
            previous = sha256(message + bytes.fromhex(data["signature"])).hex()
            position = data["position"]

    def check_heads(self, heads: list[Event]) -> None:
        for head in heads:
            found = {event["seq"]: event["hash"] for event in self.tapes.get(head["stream"], [])}
            last = max(found, default=0)
            if head["seq"] > last:
                self.bad.add((head["stream"], last + 1))
            elif found.get(head["seq"], head["hash"]) != head["hash"]:
                self.bad.add((head["stream"], head["seq"]))

    def check_parent(self, name: str) -> None:
        parent = self.tapes[name][0]["data"].get("parent")
        if parent is not None:
            found = {event["seq"]: event["hash"] for event in self.tapes.get(parent["session_id"], [])}
            if found.get(parent["seq"]) != parent["hash"]:
                self.bad.add((name, 1))

    def check_attestations(self, name: str) -> None:
        proposed: dict[str, Event] = {}
        for event in self.tapes[name]:
            data = event["data"]
            if event["type"] == "tool.proposed" and "erased" not in data:
                proposed[data["call_id"]] = data
            if data.get("attestation") and data["call_id"] in proposed:
                self.check_attestation((name, event["seq"]), data, proposed[data["call_id"]])

    def check_attestation(self, place: Place, data: Event, proposal: Event) -> None:
        attestation = data["attestation"]
        output = data.get("artifact_id") or sha256((data.get("output") or "").encode()).hex()
        message = b"palyra-attestation-v1\x00" + lp(
            data["effect_id"],
            proposal["tool"],
            sha256(jcs(proposal["arguments"])).hex(),
            output,
            data["outcome"],
            attestation["runtime"],
            attestation["sandbox"],
            str(attestation["started_at_ms"]),
            str(attestation["finished_at_ms"]),
        )
        if not is_signed(self.keys.get(attestation["key_id"]), message, attestation["signature"]):
            self.bad.add(place)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> TestHome:
    """With erased events, so that every rule of the document is used."""
    home = TestHome(tmp_path_factory.mktemp("independent") / "home").fill()
    erasure = Erasure(stream=home.second, seqs=(3, 4, 9), reason="asked", actor=Principal("user:owner"), at_ms=START_MS)
    home.run(lambda journal: journal.erase([erasure]))
    return home


def palyra(home: TestHome, *arguments: str) -> str:
    return CliRunner().invoke(app, ["--home", str(home.home.root), *arguments]).stdout


def verdicts(home: TestHome) -> tuple[set[Place], set[Place]]:
    """What the other verifier says and what ours says."""
    ours = json.loads(palyra(home, "verify", "--json"))["findings"]
    theirs = Independent(palyra(home, "export", "--all"), home.home.public_keys).bad
    return theirs, {(finding["session_id"], finding["seq"]) for finding in ours}


def test_both_verifiers_find_a_journal_with_erasures_whole(pristine: TestHome) -> None:
    assert verdicts(pristine) == (set(), set())


SPOILING: dict[str, Callable[[TestHome], str]] = {
    "header": lambda home: f"UPDATE events SET at_ms = 7 WHERE {home.event(home.first, 5)}",
    "data": lambda home: (
        "UPDATE events SET data = CAST(replace(CAST(data AS TEXT), 'README', 'readme') AS BLOB) "
        f"WHERE {home.event(home.first, 3)}"
    ),
    "digest": lambda home: f"UPDATE events SET digest = zeroblob(32) WHERE {home.event(home.first, 5)}",
    "removed": lambda home: f"DELETE FROM events WHERE {home.event(home.first, 5)}",
    "tail": lambda home: f"DELETE FROM events WHERE {home.tape(home.branch)} AND seq > 6",
    "erased": lambda home: (
        f'UPDATE events SET data = CAST(\'{{"erased":"asked"}}\' AS BLOB), salt = NULL '
        f"WHERE {home.event(home.second, 5)}"
    ),
    "system": lambda home: f"UPDATE events SET actor = 'user:x' WHERE {home.event(home.system, 3)}",
}


@pytest.mark.parametrize("spoil", SPOILING.values(), ids=SPOILING.keys())
def test_both_verifiers_name_the_same_places(
    pristine: TestHome, tmp_path: Path, spoil: Callable[[TestHome], str]
) -> None:
    home = pristine.copy_to(tmp_path / "home")
    home.spoil(spoil(home))
    theirs, ours = verdicts(home)
    assert ours
    assert theirs == ours


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"), (-0.0, "0"), (1.5, "1.5"), (-2.25, "-2.25"), (0.000001, "0.000001"), (1e-7, "1e-7"),
        (1.25e-9, "1.25e-9"), (1e21, "1e+21"), (1.5e300, "1.5e+300"), (5e-324, "5e-324"), (100.0, "100"),
        (0.1 + 0.2, "0.30000000000000004"),
    ],
)  # fmt: skip
def test_numbers_of_the_other_verifier_are_ecmascripts(value: float, text: str) -> None:
    from palyra.core.canonical import canonical_bytes

    assert ecmascript(value) == text
    assert canonical_bytes(value) == text.encode()
