"""What is a secret and what is not, case by case. All keys here are made up, and put together at run time so that scanners of
repositories, which look for the same shapes, leave this file alone."""

import pytest

from palyra.core.errors import Invalid
from palyra.core.redaction import Json, Redactor, Secret, find_markers, restore

REDACTOR = Redactor(bytes(range(32)))
LONG = bytes(range(256)).hex() * 3

R62 = "q7Zk2Vw9" + "Lx4Tn8Rb" + "3Hd6Yc1M" + "s5Jf0Gp2" + "Wb8Qe4Ua" + "6Kt9Xv3N" + "z1Pm7Sd5" + "Fh2Cg8Ry"
HEX = "9f3a71c0" + "5be824d6" + "1a07f9b3" + "c42e58d0" + "7b6195ea" + "30fc82d4" + "e81b6a90" + "4c7d25f3"
UP = "Q4RT7YHN" + "2MPL9XZC" + "8WKD3VBS" + "6JFG5TAE"

FORMATS = (
    ("aws_access_key", "AK" + "IA" + UP[:16]),
    ("github_token", "gh" + "p_" + R62[:36]),
    ("github_token", "github" + "_pat_" + R62[:50]),
    ("gitlab_token", "gl" + "pat-" + R62[:20]),
    ("slack_token", "xo" + "xb-" + "123456789012-1234567890123-" + R62[:24]),
    ("slack_token", "xa" + "pp-1-" + UP[:11] + "-1234567890123-" + HEX),
    ("slack_webhook", "https://hooks." + "slack.com/services/T0AB1CD2E/B0AB1CD2E/" + R62[:24]),
    ("stripe_key", "sk" + "_live_" + R62[:24]),
    ("google_key", "AI" + "za" + R62[:35]),
    ("openai_key", "sk" + "-proj-" + R62[:48]),
    ("anthropic_key", "sk" + "-ant-api03-" + R62[:60]),
    ("huggingface_token", "h" + "f_" + "QzWxEcRvTbYnUmIkOlPaSdFgHjKlZxCvBn"),
    ("npm_token", "np" + "m_" + R62[:36]),
    ("sendgrid_key", "S" + "G." + R62[:22] + "." + R62[10:53]),
    ("shopify_token", "shp" + "at_" + HEX[:32]),
    ("telegram_token", "123456789" + ":AA" + R62[:33]),
    ("jwt", "ey" + "JhbGciOiJIUzI1NiJ9." + "ey" + "JzdWIiOiIxMjM0NTYifQ." + R62[:43]),
    ("age_key", "AGE-" + "SECRET-KEY-1" + (UP + UP)[:58]),
    ("vault_token", "hv" + "s." + R62[:40]),
    ("cloud_token", "do" + "p_v1_" + HEX),
    ("azure_secret", "aB3" + "8Q~" + R62[:34]),
    ("onepassword_key", "A3-" + UP[:6] + "-" + UP[6:17] + "-" + UP[:5] + "-" + UP[5:10] + "-" + UP[10:15]),
    ("sentry_token", "sntry" + "u_" + HEX),
    ("notion_token", "nt" + "n_" + "12345678901" + R62[:35]),
    ("atlassian_token", "ATAT" + "T3" + R62),
    ("service_token", "PM" + "AK-" + HEX[:24] + "-" + HEX[:34]),
    ("prefixed_token", "acme" + "_pk_" + R62[:40]),
)


@pytest.mark.parametrize(("kind", "token"), FORMATS)
def test_a_key_of_a_known_format_is_found_without_a_name(kind: str, token: str) -> None:
    redacted = REDACTOR.text(f"see {token} there")
    assert [(secret.kind, secret.value) for secret in redacted.secrets] == [(kind, token)]
    assert redacted.text == f"see ‹secret:{kind}:{redacted.secrets[0].id}› there"


PASSWORD = "hunter2" + "!x"
TOKEN = R62[:24]
SYNTAXES = (
    ("DB_PASSWORD={}", PASSWORD),
    ("export DB_PASSWORD={}", PASSWORD),
    ("MYSQL_PWD=" + "{}", "correcthorse"),
    ("password: {}", PASSWORD),
    ('password = "{}"', "correcthorse"),
    ('password = "{}"', "two words " + TOKEN),
    ('{{"user": "a", "password": "{}"}}', PASSWORD),
    ('{{\\"password\\": \\"{}\\"}}', PASSWORD),
    ('{{"config.ini": "API_TOKEN={}\\nBACKUP=true"}}', TOKEN),
    ("<apiKey>{}</apiKey>", TOKEN),
    ("<apiKey>\n    {}\n</apiKey>", TOKEN),
    ('<add key="ApiKey" value="{}"/>', TOKEN),
    ("<key>password</key>\n<string>{}</string>", PASSWORD),
    ("- name: API_TOKEN\n  value: {}", TOKEN),
    ('  "apiToken" => "{}"', TOKEN),
    ("$apiToken .= '{}'", TOKEN),
    ("apiToken := `{}`", TOKEN),
    ("API_TOKEN ?= {}", TOKEN),
    ('api_TOKEN :::= "{}"', TOKEN),
    ('var apiToken string = "{}"', TOKEN),
    ('api_token: str = "{}"', TOKEN),
    ('String apiToken = "{}";', TOKEN),
    ('System.setProperty("API_TOKEN", "{}")', TOKEN),
    ('os.environ["API_KEY"] = "{}"', TOKEN),
    ('connect(host="x", password="{}")', PASSWORD),
    ('SecretKeySpec key; clientSecret = SecretStr("{}")', TOKEN),
    ("tool login --token {} --verbose", TOKEN),
    ("tool --password={} run", PASSWORD),
    ("tool --password {}", PASSWORD),
    ("curl -u admin:{} https://h/", PASSWORD),
    ('curl --user "admin:{}" https://h/', PASSWORD),
    ("postgres://app:{}@db.internal:5432/x", PASSWORD),
    ("redis://:{}@cache:6379/0", PASSWORD),
    ("Server=db;User Id=sa;Password={};Encrypt=true", PASSWORD),
    ("https://h/path?access_token={}&page=2", TOKEN),
    ("Authorization: Bearer {}", TOKEN),
    ("Authorization: Basic {}", "dXNlcjpodW50ZXIy"),
    ("authorization: token {}", TOKEN),
    ("-H 'X-Api-Key: {}'", TOKEN),
    ("Cookie: auth-token={}; theme=dark", TOKEN),
    ("machine h login me password {}", PASSWORD),
    ("The password is {}", PASSWORD),
    ("(use the client secret: {})", TOKEN),
    ("AccountKey={};EndpointSuffix=x", TOKEN + "+/" + TOKEN + "=="),
    ("aws_secret_access_key = {}", TOKEN + "/" + TOKEN[:15]),
    ("sourcegraph: {}", HEX[:40]),
    ("BUNDLE_GEMS__EXAMPLE__ORG: {}", "cafe1234" + ":" + "beef5678"),
)


@pytest.mark.parametrize(("frame", "secret"), SYNTAXES)
def test_a_value_named_secret_is_found_in_every_syntax(frame: str, secret: str) -> None:
    redacted = REDACTOR.text(frame.format(secret))
    assert secret not in redacted.text
    assert [found.value for found in redacted.secrets] == [secret]
    assert MARK.format(redacted.secrets[0].kind, redacted.secrets[0].id) in redacted.text


MARK = "‹secret:{}:{}›"

ORDINARY = (
    "The token is passed to the next handler, and the key is the name of the field.",
    "Enter your password: it must have 8 characters.",
    "password = os.environ['DB_PASSWORD']",
    "password = get_password(user1)",
    "password: str",
    "def login(user: str, password: str | None = None) -> Token2:",
    "PASSWORD=${DB_PASSWORD}",
    "PASSWORD=$1",
    "api_key: <your api key>",
    "API_KEY=xxxxxxxxxxxxxxxxxxxxxxxx",
    "token: ********",
    'password = "changeme"',
    "max_tokens: 4096, input_tokens=123456789012",
    '"next_page_token": "CAUQAA1b2c3d4e5f6"',
    "public_key = " + R62[:40],
    "commit " + HEX[:40],
    "sha256:" + HEX,
    "id 1b2c3d4e-5f60-4718-92a3-b4c5d6e7f809",
    "key_size = Cipher20.key_size",
    "SigningKey = Curve448.SigningKey",
    "kms_key_name = 1b2c3d4e-5f60-4718-92a3-b4c5d6e7f809",
    "https://host:8000/path@2x.png",
    "docker run -u 1000:1000 image",
    "curl -u user:$TOKEN https://h/",
    "-----BEGIN PUBLIC KEY-----\n" + R62 + "\n-----END PUBLIC KEY-----",
    "A file starts with -----BEGIN PRIVATE KEY----- and then some lines follow.",
    "git clone git@github.com:owner/name.git",
    "for key, value in items.items(): print(key, value)",
    "REVISION = " + '"' + HEX[:40] + '"',
    "monkey = passenger + compass1",
)


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert REDACTOR.text(text).text == text


def test_a_private_key_is_redacted_as_a_whole_even_without_its_end() -> None:
    begin, body = "-----BEGIN " + "RSA PRIVATE KEY-----\n", "\n".join((R62, R62, R62))
    whole = REDACTOR.text("x\n" + begin + body + "\n-----END " + "RSA PRIVATE KEY-----\ny")
    assert whole.text.startswith("x\n‹secret:private_key:")
    assert whole.text.endswith("›\ny")
    cut = REDACTOR.text(begin + body + "\nand so on, with words that are no key")
    assert R62 not in cut.text
    assert cut.text.endswith("\nand so on, with words that are no key")


def test_the_id_depends_on_key_and_value_alone() -> None:
    first = REDACTOR.text(f"password={PASSWORD} pwd: {PASSWORD}")
    assert len(set(find_markers(first.text))) == 1
    assert len(first.secrets) == 1
    other = Redactor(b"another key").text(f"password={PASSWORD}")
    assert other.secrets[0].id != first.secrets[0].id


VALUES: tuple[tuple[Json, str], ...] = (
    ({"password": "correcthorse"}, "correcthorse"),
    ({"headers": {"Authorization": "Bearer " + TOKEN}}, TOKEN),
    ({"env": [{"name": "DB_PASSWORD", "value": PASSWORD}]}, PASSWORD),
    ({"headers": [["X-Api-Key", TOKEN]]}, TOKEN),
    ({"argv": ["tool", "--password", PASSWORD, "run"]}, PASSWORD),
    ({"passwords": [PASSWORD]}, PASSWORD),
    ({"content": f"API_KEY={TOKEN}\n"}, TOKEN),
    ({"by_key": {FORMATS[1][1]: 1}}, FORMATS[1][1]),
    ([None, 1, 2.5, True, {"command": f"curl -u a:{PASSWORD} http://h"}], PASSWORD),
)


@pytest.mark.parametrize(("value", "secret"), VALUES)
def test_a_json_value_is_redacted_by_the_names_around_it(value: Json, secret: str) -> None:
    redacted = REDACTOR.value(value)
    assert [found.value for found in redacted.secrets] == [secret]
    assert secret not in repr(redacted.value)
    assert restore(redacted.value, {found.id: found.value for found in redacted.secrets}) == value


def test_plain_fields_keep_their_values() -> None:
    value: Json = {
        "max_tokens": 4096,
        "token_type": "bearer",
        "password": None,
        "key": "name",
        "tokens": ["the", "cat"],
        "path": "/home/user/secrets.txt",
        "session_id": "01JABCDEFGHJKMNPQRSTVWXYZ0",
    }
    assert REDACTOR.value(value).value == value


def test_a_value_too_deep_to_walk_is_refused() -> None:
    value: Json = "x"
    for _ in range(300):
        value = [value]
    with pytest.raises(Invalid):
        REDACTOR.value(value)
    with pytest.raises(Invalid):
        restore(value, {})


def test_a_forged_marker_stays_text_and_restores_to_nothing_else() -> None:
    forged = "‹secret:token:0123456789ab›"
    text = f"password={forged} and {forged}"
    assert REDACTOR.text(text).text == text
    assert REDACTOR.text(text).secrets == ()
    assert restore(text, {"ba9876543210": PASSWORD}) == text


def test_restoring_leaves_unknown_ids_and_looks_into_no_value() -> None:
    known, unknown = "‹secret:token:0123456789ab›", "‹secret:token:ffffffffffff›"
    assert restore([known, {known: unknown}], {"0123456789ab": unknown}) == [unknown, {unknown: unknown}]


def test_a_secret_with_a_lone_surrogate_is_redacted() -> None:
    redacted = REDACTOR.text('password = "a1!\ud800b2c3"')
    assert redacted.secrets == (Secret("password", redacted.secrets[0].id, "a1!\ud800b2c3"),)


@pytest.mark.parametrize(
    "name",
    "auth session_id sessionid sid JSESSIONID PHPSESSID sig signature token access_token refresh_token ticket jwt api_key"
    " auth_token X-Amz-Signature hmac".split(),
)
@pytest.mark.parametrize("value", ["abcdefghijkl", "continue-reading", "abcdef123456", "k3Jd8sLq2Mz9", LONG])
@pytest.mark.parametrize(
    "address", ["https://ex.org/p?{}", "https://ex.org/p?page=2&{}&x=1", "/callback?{}#top", "(http://a/?{})"]
)
def test_parameter_that_opens_an_address_loses_its_value_whatever_it_looks_like(
    name: str, value: str, address: str
) -> None:
    text = address.format(f"{name}={value}")
    redacted = REDACTOR.text(f"see {text} there")
    assert value not in redacted.text
    assert redacted.text.endswith(" there")


@pytest.mark.parametrize(
    "query",
    [
        "page=123456789012",
        "q=some-long-search-words",
        "session_id=01JXT21Q000000000000000001",
        "token=short",
        "pageToken=abcdefghijkl",
        "next_page_token=abcdefghijkl",
        "sort=signature-descending",
        "token={access_token_here}",
        "token=$ACCESS_TOKEN",
        "token=<your-access-token>",
    ],
)
def test_harmless_parameter_stays(query: str) -> None:
    text = f"see https://ex.org/p?{query}&x=1 there"
    assert REDACTOR.text(text).text == text
