"""Configuration: every value is checked, every problem is told at once with its line, and no text can crash the reader."""

import json
import tomllib
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import NODEFAULT
from msgspec.structs import FieldInfo, fields

from palyra.config import (
    Config,
    ConfigInvalid,
    ConfigProblem,
    ListenAddress,
    SecretRef,
    SecretSource,
    load,
    require_safe_bind,
    setting_names,
)
from palyra.config import read_config as read
from palyra.config.example import EXAMPLE
from palyra.config.forms import parse_cron
from palyra.config.lines import find_lines
from palyra.config.records import ServerConfig, plain_sections, repeated_sections
from palyra.core.errors import Invalid

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "configuration.md"
FILE = "palyra.toml"


def config_of(text: str, **environ: str) -> Config:
    found = read(text, environ, FILE)
    assert isinstance(found, Config), [str(problem) for problem in found]
    return found


def problems_of(text: str, **environ: str) -> list[str]:
    found = read(text, environ, FILE)
    assert not isinstance(found, Config)
    return [str(problem) for problem in found]


def test_no_configuration_gives_the_defaults() -> None:
    config = config_of("")
    assert config == Config()
    assert (str(config.server.http), str(config.server.grpc)) == ("127.0.0.1:7142", "127.0.0.1:7143")
    assert (config.run.wall_clock_s, config.run.max_tool_calls, config.approvals.timeout_s) == (900, 64, 900)
    assert config.provider_hint is None


def test_example_reads_and_holds_every_key() -> None:
    config = config_of(EXAMPLE)
    assert config.agents[0].route == "main"
    assert config.providers[0].api_key == SecretRef(SecretSource.ENVIRONMENT, "ANTHROPIC_API_KEY")
    assert config.http.allow == (ListenAddress("192.168.1.20", 8123),)
    assert config.channels[0].mention_patterns == (r"(?i)\bpalyra\b",)
    document = tomllib.loads(EXAMPLE)
    given_keys = {f"{name}.{key}" for name in plain_sections() for key in document[name]}
    given_keys |= {f"{name}.{key}" for name in repeated_sections() for table in document[name] for key in table}
    assert sorted(set(setting_names()) - given_keys) == []


def test_page_holds_the_example_and_a_row_for_every_key() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert EXAMPLE in text
    assert [name for name in setting_names() if f"| `{name}` |" not in text] == []


def test_page_tells_the_default_of_every_key() -> None:
    text = PAGE.read_text(encoding="utf-8")
    rows = {line.split("`")[1]: line.split("|")[2].strip() for line in text.splitlines() if line.startswith("| `")}
    sections = {**plain_sections(), **repeated_sections()}
    settings = {f"{name}.{field.name}": field for name, section in sections.items() for field in fields(section)}
    assert {name: rows[name] for name in settings} == {name: shown_default(field) for name, field in settings.items()}


def shown_default(field: FieldInfo) -> str:
    if field.required or field.default is None:
        return "needed" if field.required else ""
    default = {} if field.default is NODEFAULT else getattr(field.default, "value", field.default)
    if isinstance(default, str | ListenAddress):
        return f'`"{default}"`'
    shown = f"{default:g}" if isinstance(default, float) else json.dumps(default, default=str)
    return f"`{shown}`"


PROVIDER = '[[provider]]\nname = "p"\nkind = "demo"\n'
MODEL = '[[model]]\nname = "m"\nprovider = "p"\n'
SERVER_KEYS = "detect, grpc, grpc_client_ca, hosts, http, insecure, tls_cert, tls_key"
CASES = {
    "section": ("[sever]\n", ["palyra.toml:1: sever: there is no such section; did you mean server?"]),
    "far_key": (
        "\n[server]\nport = 1\n",
        ["palyra.toml:3: server.port: there is no such key; there are " + SERVER_KEYS],
    ),
    "key": ("\n[server]\nhtpp = 1\n", ["palyra.toml:3: server.htpp: there is no such key; did you mean http?"]),
    "top_key": ("http = 1\n", ["palyra.toml:1: http: is one table: write [http] and its keys below"]),
    "type": ('[run]\nwall_clock_s = "9"\n', ["palyra.toml:2: run.wall_clock_s: expected `int`, got `str`"]),
    "boolean_is_no_number": (
        "[run]\nwall_clock_s = true\n",
        ["palyra.toml:2: run.wall_clock_s: expected `int`, got `bool`"],
    ),
    "range": ("[run]\nparallel_tools = 0\n", ["palyra.toml:2: run.parallel_tools: expected `int` >= 1"]),
    "not_a_number": ("[learning]\nsample = nan\n", ["palyra.toml:2: learning.sample: must be a finite number"]),
    "enum": (
        '[journal]\ndurability = "ful"\n',
        ["palyra.toml:2: journal.durability: must be one of full, normal; did you mean full?"],
    ),
    "address": (
        '[server]\nhttp = "127.0.0.1"\n',
        ['palyra.toml:2: server.http: must be "host:port" with a port from 0 to 65535'],
    ),
    "ipv6": (
        '[server]\nhttp = "[::g]:1"\n',
        ["palyra.toml:2: server.http: must have an IPv6 address between its brackets"],
    ),
    "list_element": (
        '[http]\nallow = [\n  "a:1",\n  "b",\n]\n',
        ['palyra.toml:4: http.allow: must be "host:port" with a port from 0 to 65535'],
    ),
    "list": ('[http]\nallow = "a:1"\n', ["palyra.toml:2: http.allow: must be a list"]),
    "single_brackets": (
        "[provider]\n",
        ["palyra.toml:1: provider: is a list of tables: write [[provider]] before the keys of each"],
    ),
    "double_brackets": ("[[server]]\n", ["palyra.toml:1: server: is one table: write [server] and its keys below"]),
    "missing": ('[[provider]]\nname = "p"\n', ["palyra.toml:1: provider: needs the key kind"]),
    "kind": (
        '[[provider]]\nname = "p"\nkind = "openai-chats"\n',
        ["palyra.toml:3: provider.kind: there is no such kind; did you mean openai-chat?"],
    ),
    "provider_of_model": (
        '[[model]]\nname = "m"\nprovider = "p"\n',
        ["palyra.toml:3: model.provider: there is no [[provider]] of this name"],
    ),
    "model_of_route": (
        PROVIDER + MODEL + '[[route]]\nname = "r"\nmodels = ["m",\n"n"]\n',
        ["palyra.toml:10: route.models: there is no [[model]] of this name"],
    ),
    "empty_route": ('[[route]]\nname = "r"\nmodels = []\n', ["palyra.toml:3: route.models: must not be empty"]),
    "route_of_agent": (
        '[[route]]\nname = "main"\nmodels = []\n[[agent]]\nname = "a"\nroute = "mian"\n',
        [
            "palyra.toml:3: route.models: must not be empty",
            "palyra.toml:6: agent.route: there is no [[route]] of this name; did you mean main?",
        ],
    ),
    "duplicate": (PROVIDER + PROVIDER, ["palyra.toml:5: provider.name: another provider has this name already"]),
    "two_defaults": (
        '[[agent]]\nname = "a"\ndefault = true\n[[agent]]\nname = "b"\ndefault = true\n',
        ["palyra.toml:6: agent.default: another agent is the default already"],
    ),
    "no_limit": (
        '[[budget]]\nscope = "run"\n',
        ["palyra.toml:1: budget: needs one of the keys limit_usd, limit_tokens"],
    ),
    "unknown_zone": (
        '[[budget]]\nscope = "run"\nlimit_usd = 1\nlimit_tokens = 1\ntimezone = "Mars/Olympus"\n',
        ['palyra.toml:5: budget.timezone: must be the name of a time zone, such as "Europe/Prague"'],
    ),
    "two_times": (
        '[[routine]]\nname = "r"\nprompt = "p"\nevery_s = 1\ncron = "* * * * *"\n',
        ["palyra.toml:5: routine.cron: cannot stand beside every_s; keep one of them"],
    ),
    "time_zone": (
        '[[routine]]\nname = "r"\nprompt = "p"\nevery_s = 1\ntimezone = "Mars"\n',
        ['palyra.toml:5: routine.timezone: must be the name of a time zone, such as "Europe/Prague"'],
    ),
    "cron": (
        '[[routine]]\nname = "r"\nprompt = "p"\ncron = "hourly"\n',
        ['palyra.toml:4: routine.cron: must be a cron expression of five fields, such as "30 7 * * 1-5"'],
    ),
    "cron_range": (
        '[[routine]]\nname = "r"\nprompt = "p"\ncron = "0 25 * * *"\n',
        ["palyra.toml:4: routine.cron: its hour must be from 0 to 23"],
    ),
    "routine_agent": (
        '[[routine]]\nname = "r"\nprompt = "p"\nevery_s = 1\nagent = "maim"\n',
        ["palyra.toml:5: routine.agent: there is no [[agent]] of this name; did you mean main?"],
    ),
    "channel_needs": (
        '[[channel]]\nname = "c"\nkind = "webhook"\n',
        ["palyra.toml:1: channel: a channel of kind webhook needs the key secret"],
    ),
    "guild": (
        '[[channel]]\nname = "c"\nkind = "discord"\ntoken = "env:T"\nguilds = ["our team"]\n',
        ['palyra.toml:5: channel.guilds: must be ids of guilds, which are digits, such as "81384788765712384"'],
    ),
    "mail_server": (
        '[[channel]]\nname = "c"\nkind = "email"\nimap = "imap://a"\nsmtp = "smtp://a"\nauthserv_id = "mx; dmarc=pass"\n',
        [
            "palyra.toml:6: channel.authserv_id: must be the name alone that the server gives itself, "
            "such as mx.example.com"
        ],
    ),
    "mail_server_of_another_kind": (
        '[[channel]]\nname = "c"\nkind = "telegram"\ntoken = "env:T"\nauthserv_id = "mx.example.com"\n',
        ["palyra.toml:5: channel.authserv_id: only a channel of kind email has the name of a mail server"],
    ),
    "pattern": (
        '[[channel]]\nname = "c"\nkind = "discord"\ntoken = "env:T"\nmention_patterns = ["("]\n',
        ["palyra.toml:5: channel.mention_patterns: must be a regular expression of Python's re module"],
    ),
    "secret_in_env": (
        '[[mcp]]\nname = "m"\nurl = "http://a/"\n[mcp.env]\nAPI_TOKEN = "abc"\n',
        ['palyra.toml:5: mcp.env.API_TOKEN: its name says it is a secret: write "env:NAME" or "vault:NAME"'],
    ),
    "password_in_url": (
        '[[mcp]]\nname = "m"\nurl = "http://a:b@c/"\n',
        ["palyra.toml:3: mcp.url: must not hold a password; secrets are env:NAME or vault:NAME"],
    ),
    "journal": (
        '[journal]\nurl = "mysql://x"\n',
        [
            'palyra.toml:2: journal.url: must be "sqlite:journal.db": the journal is in the home, '
            "which PALYRA_HOME or --home moves"
        ],
    ),
    "tls_pair": (
        '[server]\ntls_cert = "c"\n',
        ["palyra.toml:2: server.tls_cert: tls_cert and tls_key go together: name both files or none"],
    ),
    "thresholds": (
        "[learning]\nreview_bps = 9500\n",
        ["palyra.toml:2: learning.review_bps: must not be above auto_write_bps"],
    ),
    "embedder_alone": (
        '[[provider]]\nname = "p"\nkind = "openai-chat"\n[[model]]\nname = "m"\nprovider = "p"\n'
        '[memory]\nembedder = "m"\n',
        ["palyra.toml:8: memory.embedder: m is the only [[model]], and it answers no questions; add one that does"],
    ),
    "embedder": (
        '[memory]\nembedder = "bundle"\n',
        ["palyra.toml:2: memory.embedder: must be bundled or minilm, or name a [[model]]; did you mean bundled?"],
    ),
    "not_toml": ("[run]\nwall_clock_s =\n", ["palyra.toml:2: is not TOML: invalid value"]),
    "dotted": ("server.htp = 1\n", ["palyra.toml:1: server.htp: there is no such key; did you mean http?"]),
    "inline": ('run = { drain_s = "x" }\n', ["palyra.toml:1: run.drain_s: expected `float`, got `str`"]),
}


@pytest.mark.parametrize("name", CASES)
def test_each_problem_is_told_with_its_line(name: str) -> None:
    text, expected = CASES[name]
    assert problems_of(text) == expected


def test_all_problems_are_told_at_once_in_order() -> None:
    text = "\n".join(CASES[name][0] for name in ("key", "range", "enum", "missing"))
    assert [problem.split(":")[1] for problem in problems_of(text)] == ["3", "6", "9", "11"]


@pytest.mark.parametrize("cron", ["*/90 0-23/5 1,31 JAN-DEC 7", "0 0 * * 5#3", "59 23 L 12 MON-FRI"])
def test_steps_names_and_counts_are_no_wrong_numbers_of_a_cron(cron: str) -> None:
    assert parse_cron(cron) == cron


def test_literal_secret_is_refused_without_repeating_it() -> None:
    text = PROVIDER + 'api_key = "sk-live-4242424242424242"\n'
    (problem,) = problems_of(text)
    assert problem.startswith('palyra.toml:4: provider.api_key: must be "env:NAME" or "vault:NAME"')
    assert "4242" not in problem


@pytest.mark.parametrize(
    ("text", "source", "name"),
    [("env:OPENAI_API_KEY", SecretSource.ENVIRONMENT, "OPENAI_API_KEY"), ("vault:a.b-c", SecretSource.VAULT, "a.b-c")],
)
def test_secrets_are_references(text: str, source: SecretSource, name: str) -> None:
    assert config_of(f'{PROVIDER}api_key = "{text}"\n').providers[0].api_key == SecretRef(source, name)


def test_toml_times_count_as_times() -> None:
    text = '[[routine]]\nname = "r"\nprompt = "p"\nat = 2027-01-01T09:00:00Z\n'
    assert config_of(text).routines[0].at == "2027-01-01T09:00:00+00:00"


def test_variables_stand_over_the_file() -> None:
    config = config_of(
        '[server]\nhttp = "127.0.0.1:1"\n[run]\nmax_tool_calls = 5\n',
        PALYRA_SERVER__HTTP="[::1]:8000",
        PALYRA_RUN__MAX_TOOL_CALLS="7",
        PALYRA_RUN__DRAIN_S="0.5",
        PALYRA_LEARNING__ENABLED="off",
        PALYRA_HTTP__ALLOW="a:1, b:2",
        PALYRA_JOURNAL__DURABILITY="normal",
        PALYRA_HEALING__MODE="",
        PALYRA_HOME="/srv",
    )
    assert (config.server.http, config.run.max_tool_calls, config.run.drain_s) == (ListenAddress("::1", 8000), 7, 0.5)
    assert config.http.allow == (ListenAddress("a", 1), ListenAddress("b", 2))
    assert (config.learning.enabled, config.journal.durability.value) == (False, "normal")
    assert config_of("", PALYRA_HTTP__ALLOW='["a:1"]').http.allow == (ListenAddress("a", 1),)


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("PALYRA_SERVER__HTPP", "a:1", "[server] has no key htpp; did you mean http?"),
        ("PALYRA_SEVER__HTTP", "a:1", "there is no section sever; did you mean server?"),
        ("PALYRA_SERVER__HTTP", "a", 'must be "host:port" with a port from 0 to 65535'),
        ("PALYRA_RUN__DRAIN_S", "soon", "expected `float`, got `str`"),
        ("PALYRA_RUN__DRAIN_S", "nan", "must be a finite number"),
        ("PALYRA_RUN__MAX_TOOL_CALLS", "9" * 5000, "expected `int`, got `str`"),
        ("PALYRA_HTTP__ALLOW", "[", "must be a list"),
        ("PALYRA_PROVIDER__NAME", "x", "[[provider]] is a list of tables, which only the file can hold"),
        ("PALYRA_MEMORY__EMBEDDER", "other", "must be bundled or minilm, or name a [[model]]"),
        ("OPENAI_BASE_URL", "localhost", "must be a URL that begins with http:// or https:// and names a host"),
    ],
)
def test_problem_of_a_variable_names_it(name: str, value: str, what: str) -> None:
    assert problems_of("", **{name: value}) == [f"{name}: {what}"]


@pytest.mark.parametrize(
    ("environ", "kind", "key", "url"),
    [
        ({"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"}, "anthropic-messages", "env:ANTHROPIC_API_KEY", None),
        ({"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://a/v1"}, "openai-chat", "env:OPENAI_API_KEY", "http://a/v1"),
        ({"OPENAI_BASE_URL": "http://127.0.0.1:8080/v1"}, "openai-chat", "None", "http://127.0.0.1:8080/v1"),
    ],
)
def test_keys_of_vendors_hint_at_a_provider(environ: dict[str, str], kind: str, key: str, url: str | None) -> None:
    hint = config_of("", **environ).provider_hint
    assert hint is not None
    assert (hint.kind, str(hint.api_key), hint.base_url) == (kind, key, url)
    assert config_of(PROVIDER, **environ).provider_hint is None


def test_load_reads_the_file_of_a_home(tmp_path: Path) -> None:
    assert load(tmp_path, {}) == Config()
    (tmp_path / FILE).write_text("[run]\nmax_tool_calls = 3\n")
    assert load(tmp_path, {}).run.max_tool_calls == 3
    (tmp_path / FILE).write_bytes(b"[run]\n# \xff\n")
    with pytest.raises(ConfigInvalid, match=f"{FILE}:2: is not text in UTF-8"):
        load(tmp_path, {})


@pytest.mark.parametrize(
    ("server", "is_safe"),
    [
        ("", True),
        ('http = "localhost:1"', True),
        ('http = "0.0.0.0:1"', False),
        ('grpc = "10.0.0.1:1"', False),
        ('http = "0.0.0.0:1"\ninsecure = true', True),
        ('http = "0.0.0.0:1"\ntls_cert = "c"\ntls_key = "k"', True),
    ],
)
def test_only_a_safe_bind_passes(server: str, is_safe: bool) -> None:
    config = config_of(f"[server]\n{server}\n")
    with nullcontext() if is_safe else pytest.raises(Invalid, match="bind_insecure"):
        require_safe_bind(config)


def test_records_are_frozen() -> None:
    with pytest.raises(AttributeError):
        ServerConfig().insecure = True  # type: ignore[misc]
    assert all(
        section.__struct_config__.frozen for section in (*plain_sections().values(), *repeated_sections().values())
    )


MUTATIONS = st.lists(
    st.tuples(st.integers(0, len(EXAMPLE)), st.integers(0, 12), st.text("[]{}=.,#\"'\\\n ab1_-", max_size=6)),
    max_size=6,
)


@given(MUTATIONS)
def test_no_change_of_the_file_crashes_the_reader(mutations: list[tuple[int, int, str]]) -> None:
    text = EXAMPLE
    for place, removed_count, added in mutations:
        text = text[:place] + added + text[place + removed_count :]
    check_read(text, {})


@given(
    st.text(),
    st.dictionaries(
        st.sampled_from([f"PALYRA_{name.replace('.', '__').upper()}" for name in setting_names()]), st.text()
    ),
)
def test_no_text_and_no_variable_crashes_the_reader(text: str, environ: dict[str, str]) -> None:
    check_read(text, environ)


def check_read(text: str, environ: dict[str, str]) -> None:
    found = read(text, environ, FILE)
    if isinstance(found, Config):
        return
    assert found
    for problem in found:
        assert isinstance(problem, ConfigProblem)
        assert (problem.line is None) is (problem.source in environ)
        assert problem.line is None or 1 <= problem.line <= text.count("\n") + 1


def test_deep_nesting_and_long_files_are_problems() -> None:
    assert problems_of("a = " + "[" * 50_000) != []
    assert problems_of("#" * 1_000_001) == [f"{FILE}:1: is longer than 1000000 characters"]


KEYS = st.text("abc", min_size=1, max_size=2)
QUOTED = st.sampled_from(["{}", '"{}"', "'{}'"])
SCALARS = st.sampled_from(
    ["1", "true", '"a # [x] = \\" {"', "'lit \\'", '"""\nmore\n= "" """', "'''x''''", "1979-05-27 07:32:00", "0.5"]
)


@st.composite
def values(draw: st.DrawFn, depth: int = 0) -> str:
    shape = draw(st.integers(0, 3 if depth < 2 else 0))
    if shape == 2:
        break_, inner = draw(st.sampled_from(["", "\n", " # c ]\n"])), draw(st.lists(values(depth + 1), max_size=3))
        return "[" + break_ + f",{break_}".join(inner) + break_ + "]"
    if shape == 3:
        pairs = draw(st.dictionaries(KEYS, values(depth + 1), max_size=3))
        return "{" + ", ".join(f"{key} = {value}" for key, value in pairs.items()) + "}"
    return draw(SCALARS)


@st.composite
def documents(draw: st.DrawFn) -> str:
    lines = []
    for _ in range(draw(st.integers(0, 8))):
        dotted = draw(st.lists(KEYS, min_size=1, max_size=3))
        keys = " . ".join(draw(QUOTED).format(key) for key in dotted)
        shape = draw(st.integers(0, 4))
        lines.append(
            {0: f"[ {keys} ]", 1: f"[[{keys}]] # c", 2: "# [x]", 3: ""}.get(shape, f"{keys} = {draw(values())}")
        )
    return "\n".join(lines) + "\n"


@given(documents())
def test_every_key_of_a_document_has_its_line(text: str) -> None:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    lines = find_lines(text)
    rows = text.split("\n")
    paths = list(paths_of(document, ()))
    assert [path for path in paths if path not in lines] == []
    for path in paths:
        if isinstance(path[-1], str):
            assert path[-1] in rows[lines[path] - 1]


def paths_of(value: object, path: tuple[str | int, ...]) -> list[tuple[str | int, ...]]:
    items: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    return [found for key, inner in items for found in ((*path, key), *paths_of(inner, (*path, key)))]


def test_lines_of_every_kind_of_key() -> None:
    text = (
        'a.b = 1\n[t]\n"x.y" = { k = 1 }\n[[l]]\nn = [\n  1,\n  { z = 2 },\n]\n'
        '[[l]]\n[l.sub]\n\'q\' = """\nn = 1\n"""\nr = 2\n'
    )
    lines = find_lines(text)
    expected = {
        ("a",): 1, ("a", "b"): 1, ("t",): 2, ("t", "x.y"): 3, ("t", "x.y", "k"): 3, ("l",): 4, ("l", 0): 4,
        ("l", 0, "n"): 5, ("l", 0, "n", 0): 6, ("l", 0, "n", 1): 7, ("l", 0, "n", 1, "z"): 7, ("l", 1): 9,
        ("l", 1, "sub"): 10, ("l", 1, "sub", "q"): 11, ("l", 1, "sub", "r"): 14,
    }  # fmt: skip
    assert lines == expected


def test_modes_of_domains_are_words_of_closed_sets() -> None:
    config = config_of('[healing]\nmode = "auto"\n[healing.domains]\nrun = "disabled"\nmcp = "observe_only"\n')
    modes = {domain.value: mode.value for domain, mode in config.healing.domains.items()}
    assert (config.healing.mode.value, modes) == ("auto", {"run": "disabled", "mcp": "observe_only"})
    assert problems_of('[healing.domains]\nrnu = "auto"\nmcp = "sometimes"\n') == [
        "palyra.toml:2: healing.domains.rnu: there is no such key; did you mean run?",
        "palyra.toml:3: healing.domains.mcp: must be one of observe_only, auto, disabled",
    ]
    (problem,) = problems_of("", PALYRA_HEALING__DOMAINS="run")
    assert "which only the file can hold" in problem


def test_grpc_can_be_switched_off_and_client_certificates_need_tls() -> None:
    config = read('[server]\ngrpc = "off"\n', {}, "palyra.toml")
    assert isinstance(config, Config)
    assert config.server.grpc is None
    found = read('[server]\ngrpc_client_ca = "/ca.pem"\n', {}, "palyra.toml")
    assert not isinstance(found, Config)
    assert "needs tls_cert" in found[0].what
