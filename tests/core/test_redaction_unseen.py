"""Secrets of kinds nobody listed: any vendor's random words, values that come again, parameters of addresses."""

import random
import string

import pytest

from palyra.core.redaction import Redactor

REDACTOR = Redactor(b"key")
# Invented vendors, in no list of ours; values of the alphabets that real keys have.
VENDORS = ("abyssine", "flightomat", "kanbanero", "sheetly", "vatlayr", "walkscorer")
ALPHABETS = {
    "hex32": ("0123456789abcdef", 32),
    "hex64": ("0123456789abcdef", 64),
    "mixed32": (string.ascii_letters + string.digits, 32),
    "mixed40": (string.ascii_letters + string.digits, 40),
    "lower32": (string.ascii_lowercase + string.digits, 32),
    "base64": (string.ascii_letters + string.digits + "_-", 43),
    "upper32": (string.ascii_uppercase + string.digits, 32),
    "lower20": (string.ascii_lowercase + string.digits, 20),
}
NO_HASH = {name: shape for name, shape in ALPHABETS.items() if not name.startswith("hex") and name != "lower20"}
# Signs that some vendors' keys hold.
SIGNED = {
    "padded": (string.ascii_letters + string.digits + "+/", 64),
    "dotted": (string.ascii_letters + string.digits + ".", 72),
}
TEMPLATES = (
    "{vendor} token = '{secret}' | '{secret}'",
    "{vendor} - '{secret}'",
    "<secret>{{{vendor} {secret}}}</secret>",
    "https://api.{vendor}.com/v1?sig={secret}",
    "https://api.{vendor}.com/back?code={secret}&state=1",
    "GET /?session_id={secret}",
    "https://{vendor}.com/?auth={secret}",
    "{vendor}: {secret}",
    "the {vendor} key '{secret}' works",
    'os.environ["{vendor}"] = "{secret}"',
    '{vendor} = Client("{secret}")',
    "{vendor}.init('{secret}')",
    "Authorization: {vendor} {secret}",
    '// {vendor}\nlet k = "{secret}";',
    '<add key="{vendor}" value="{secret}" />',
    "X-{vendor}-Key: {secret}",
    "{vendor} | '{secret}'",
)
# Between words alone a hash is a hash; anything else that is random is not.
BARE = ("{vendor} {secret}", "INFO speaking to {vendor} with {secret}")
SIGNED_TEMPLATES = (
    "{vendor} = '{secret}'",
    '{{"{vendor}": "{secret}"}}',
    "{vendor}: {secret}",
    "{vendor} - '{secret}'",
)
SURVIVING_MAX = 0.10


def samples(template: str, alphabets: dict[str, tuple[str, int]]) -> list[tuple[str, str]]:
    source = random.Random(template)
    made = []
    for alphabet, length in alphabets.values():
        for vendor in VENDORS:
            secret = "".join(source.choice(alphabet) for _ in range(length))
            made.append((f"some words\n{template.format(vendor=vendor, secret=secret)}\nmore words", secret))
    return made


@pytest.mark.parametrize(
    ("template", "alphabets"),
    [
        *((template, ALPHABETS) for template in TEMPLATES),
        *((template, NO_HASH) for template in BARE),
        *((template, SIGNED) for template in SIGNED_TEMPLATES),
    ],
)
def test_keys_of_vendors_that_no_list_names_do_not_survive(
    template: str, alphabets: dict[str, tuple[str, int]]
) -> None:
    found = samples(template, alphabets)
    surviving = [text for text, secret in found if secret in REDACTOR.text(text).text]
    assert len(surviving) <= SURVIVING_MAX * len(found), surviving


@pytest.mark.parametrize(
    "text",
    [
        "commit 9f3a71c05be824d61a07f9b3c42e58d07b6195ea",
        'sha256 = "9f3a71c05be824d61a07f9b3c42e58d07b6195ea30fc82d4e81b6a904c7d25f3"',
        "session 01JXT21Q000000000000000001 run 01JXT23JJJASKGF7A508X8MFJ5",
        "id: 7f9c24e8-3b12-4fef-91e0-5a5b2e6d2a77",
        "https://example.com/?page=2&code=404&sort=name",
        "test_http2_server_handler_x2_can_be_closed_twice()",
        "kind = exports.Socks5HostResponse2Type",
        'checkout("9f3a71c05be824d61a07f9b3c42e58d07b6195ea")',
        'path = "src/components/table2/virtualised/rows.tsx"',
        'image: "registry.example.com/team/server:2026.11.18-build7"',
        'Path("tests/fixtures/iso8859_15_encoded_names.txt")',
        '"version": "0.0.0-20261118093021-9f3a71c05be8"',
        "kubectl logs payments-worker-7d9c6bfd4b-x8k2p",
    ],
)
def test_hashes_ids_and_names_are_left_alone(text: str) -> None:
    assert REDACTOR.text(text).text == text


def test_a_value_is_masked_wherever_it_comes_again() -> None:
    text = "password=Xk29dkLLq0zz81 and then\nplain Xk29dkLLq0zz81, (Xk29dkLLq0zz81) fooXk29dkLLq0zz81bar"
    redacted = REDACTOR.text(text)
    assert "Xk29dkLLq0zz81" not in redacted.text
    assert len(redacted.secrets) == 1


def test_a_value_of_a_run_is_masked_in_its_later_texts_and_in_no_other_run() -> None:
    redactor = Redactor(b"key")
    redactor.for_run("a").text("password=Xk29dkLLq0zz81")
    assert "Xk29" not in redactor.for_run("a").text("it is Xk29dkLLq0zz81").text
    stream = redactor.for_run("a").stream()
    assert "Xk29" not in "".join([*map(stream.feed, "it is Xk29dkLLq0zz81 again"), stream.finish()])
    assert redactor.for_run("b").text("it is Xk29dkLLq0zz81").text == "it is Xk29dkLLq0zz81"


def test_a_word_that_people_use_is_not_masked_elsewhere() -> None:
    text = "password=administrator\nThe administrator left."
    assert REDACTOR.text(text).text.endswith("The administrator left.")


@pytest.mark.parametrize("random", ["kX3vT9qLmZ2bW8rNcY5d", "kX3-T9q_mZ2bW-rNc_5dkX3-T9q_mZ2bW-rNc_5dabc"])
def test_our_own_tokens_are_masked(random: str) -> None:
    assert random not in REDACTOR.text(f"use palyra_{random} here").text


@pytest.mark.parametrize("ids", [1, 2, 3])
def test_our_own_ids_are_no_secrets(ids: int) -> None:
    letters = random.Random(ids)
    for _ in range(500):
        own = "".join(letters.choices("0123456789ABCDEFGHJKMNPQRSTVWXYZ", k=26))
        for text in (f"Covered by grant {own}.", f"@run:{own}", f'{{"id":"{own}"}}', f"palyra runs show {own}"):
            assert REDACTOR.text(text).text == text
