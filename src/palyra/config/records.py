"""The settings: every section and key of palyra.toml, with its type, bounds and default.

Does not own: reading them (tables).
Invariant: with no file and no variable, `Config()` is a working node on this machine.
"""

from typing import Annotated, get_args

import msgspec
from msgspec import Meta

from palyra.config.choices import Durability, Headless
from palyra.config.forms import (
    JOURNAL_URL,
    ListenAddress,
    Parsed,
    ParsedEach,
    SecretRef,
    parse_address,
    parse_anchor,
    parse_cron,
    parse_document_path,
    parse_guild,
    parse_host,
    parse_http_url,
    parse_imap_url,
    parse_journal_url,
    parse_kind,
    parse_local_target,
    parse_model_name,
    parse_name,
    parse_optional_address,
    parse_pattern,
    parse_secret,
    parse_server_name,
    parse_smtp_url,
    parse_target,
    parse_text,
    parse_time,
    parse_timezone,
)
from palyra.core.agents import DEFAULT_INSTRUCTION_FILES
from palyra.core.budget import BudgetAction, BudgetPeriod, BudgetScope
from palyra.core.channels.model import BroadcastStrategy, ChannelBusy, ChannelKind, DirectMessages
from palyra.core.events.model import RouteMode
from palyra.core.healing.model import HealingDomain, HealingMode
from palyra.core.ids import parse_principal
from palyra.core.routines.model import MISFIRE_MAX_DEFAULT, MISFIRE_MAX_LIMIT, Misfire, Overlap

Name = Annotated[str, Parsed(parse_name)]
OptionalName = Annotated[str | None, Parsed(parse_name)]
ModelName = Annotated[str, Parsed(parse_model_name)]
Text = Annotated[str, Parsed(parse_text)]
OptionalText = Annotated[str | None, Parsed(parse_text)]
Secret = Annotated[SecretRef | None, Parsed(parse_secret)]
HttpUrl = Annotated[str | None, Parsed(parse_http_url)]
Bind = Annotated[ListenAddress, Parsed(parse_address)]
OptionalBind = Annotated[ListenAddress | None, Parsed(parse_optional_address)]
TimeoutS = Annotated[float, Meta(gt=0, le=86_400)]
Positive = Annotated[int, Meta(ge=1, le=1_000_000_000)]
OptionalPositive = Positive | None
OptionalTotal = Annotated[int, Meta(ge=1, le=1_000_000_000_000)] | None
OptionalPrice = Annotated[float, Meta(ge=0, le=1_000_000)] | None
Ratio = Annotated[float, Meta(ge=0, le=1)]
BasisPoints = Annotated[int, Meta(ge=0, le=10_000)]
# Where Ollama, LM Studio, llama.cpp and vLLM listen unless told otherwise.
LOCAL_SERVERS = tuple(ListenAddress("127.0.0.1", port) for port in (11434, 1234, 8080, 8000))


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """One table of the file."""


class ServerConfig(Section, frozen=True, kw_only=True):
    http: Bind = ListenAddress("127.0.0.1", 7142)
    grpc: OptionalBind = ListenAddress("127.0.0.1", 7143)
    grpc_client_ca: OptionalText = None
    tls_cert: OptionalText = None
    tls_key: OptionalText = None
    hosts: Annotated[tuple[str, ...], ParsedEach(parse_host)] = ()
    insecure: bool = False
    detect: Annotated[tuple[ListenAddress, ...], ParsedEach(parse_local_target)] = LOCAL_SERVERS

    @property
    def has_tls(self) -> bool:
        return self.tls_cert is not None and self.tls_key is not None


class JournalConfig(Section, frozen=True, kw_only=True):
    url: Annotated[str, Parsed(parse_journal_url)] = JOURNAL_URL
    durability: Durability = Durability.FULL
    retention_days: OptionalPositive = None
    anchors: Annotated[tuple[str, ...], ParsedEach(parse_anchor)] = ()


class ProviderConfig(Section, frozen=True, kw_only=True):
    name: Name
    kind: Annotated[str, Parsed(parse_kind)]
    base_url: HttpUrl = None
    file: OptionalText = None
    api_key: Secret = None
    connect_timeout_s: TimeoutS = 10.0
    first_token_timeout_s: TimeoutS = 120.0
    idle_timeout_s: TimeoutS = 60.0
    retries: Annotated[int, Meta(ge=0, le=10)] = 2


class ModelConfig(Section, frozen=True, kw_only=True):
    """`id` is the name on the wire; it defaults to `name`."""

    name: ModelName
    provider: Name
    id: OptionalText = None
    window_tokens: OptionalPositive = None
    max_output_tokens: OptionalPositive = None
    input_usd_per_mtok: OptionalPrice = None
    output_usd_per_mtok: OptionalPrice = None
    cached_input_usd_per_mtok: OptionalPrice = None
    vision: bool = False
    tools: bool = True


class RouteConfig(Section, frozen=True, kw_only=True):
    name: Name
    models: Annotated[tuple[str, ...], ParsedEach(parse_model_name), Meta(min_length=1)]
    mode: RouteMode = RouteMode.ENFORCED


class AgentConfig(Section, frozen=True, kw_only=True):
    name: Name
    default: bool = False
    instructions: OptionalText = None
    route: OptionalName = None
    tools: Annotated[tuple[str, ...], ParsedEach(parse_text)] = ("*",)
    workspace: Annotated[tuple[str, ...], ParsedEach(parse_text)] = ()
    delegates: Annotated[tuple[str, ...], ParsedEach(parse_text)] = ("*",)
    instruction_files: Annotated[tuple[str, ...], ParsedEach(parse_document_path), Meta(max_length=16)] = (
        DEFAULT_INSTRUCTION_FILES
    )


class BudgetConfig(Section, frozen=True, kw_only=True):
    scope: BudgetScope
    period: BudgetPeriod = BudgetPeriod.NONE
    limit_usd: OptionalPrice = None
    limit_tokens: OptionalTotal = None
    action: BudgetAction = BudgetAction.DENY
    timezone: Annotated[str, Parsed(parse_timezone)] = "UTC"


class RunConfig(Section, frozen=True, kw_only=True):
    wall_clock_s: Annotated[int, Meta(ge=1, le=604_800)] = 900
    max_tool_calls: Annotated[int, Meta(ge=1, le=10_000)] = 64
    parallel_tools: Annotated[int, Meta(ge=1, le=4)] = 4
    drain_s: Annotated[float, Meta(ge=0, le=600)] = 5.0


class ApprovalConfig(Section, frozen=True, kw_only=True):
    timeout_s: Annotated[int, Meta(ge=1, le=2_592_000)] = 900
    headless: Headless = Headless.DENY


class FetchConfig(Section, frozen=True, kw_only=True):
    allow: Annotated[tuple[ListenAddress, ...], ParsedEach(parse_target)] = ()


class BrowserConfig(Section, frozen=True, kw_only=True):
    executable: OptionalText = None
    idle_s: TimeoutS = 600.0
    sessions_max: Annotated[int, Meta(ge=1, le=32)] = 3


class ContextConfig(Section, frozen=True, kw_only=True):
    compaction_trigger: Annotated[float, Meta(ge=0, le=1)] = 0.7
    compaction_min_tokens: Annotated[int, Meta(ge=1)] = 480
    auto_compaction: bool = True


class MemoryConfig(Section, frozen=True, kw_only=True):
    auto_inject: bool = True
    embedder: ModelName = "bundled"


class LearningConfig(Section, frozen=True, kw_only=True):
    enabled: bool = True
    sample: Ratio = 1.0
    review_bps: BasisPoints = 7500
    auto_write_bps: BasisPoints = 9000
    auto_apply_bps: BasisPoints = 9500


class HealingConfig(Section, frozen=True, kw_only=True):
    mode: HealingMode = HealingMode.OBSERVE_ONLY
    domains: dict[HealingDomain, HealingMode] = msgspec.field(default_factory=dict)


class LimitConfig(Section, frozen=True, kw_only=True):
    requests_per_minute: Positive = 600
    runs_active_max: Positive = 256
    runs_queued_per_session_max: Annotated[int, Meta(ge=0, le=100_000)] = 32
    streams_max: Annotated[int, Meta(ge=1, le=100_000)] = 2048
    streams_per_token_max: Annotated[int, Meta(ge=1, le=100_000)] = 512


class McpServerConfig(Section, frozen=True, kw_only=True):
    name: Name
    command: Annotated[tuple[str, ...] | None, ParsedEach(parse_text), Meta(min_length=1)] = None
    url: HttpUrl = None
    env: dict[str, str] = msgspec.field(default_factory=dict)
    token: Secret = None
    trust_annotations: bool = False
    read_only: Annotated[tuple[str, ...], ParsedEach(parse_text)] = ()
    idempotent: Annotated[tuple[str, ...], ParsedEach(parse_text)] = ()
    timeout_s: TimeoutS = 60.0


class RoutineConfig(Section, frozen=True, kw_only=True):
    """`channel` names the `[[channel]]` whose `conversation` hears the answers."""

    name: Name
    prompt: Text
    every_s: OptionalPositive = None
    cron: Annotated[str | None, Parsed(parse_cron)] = None
    at: Annotated[str | None, Parsed(parse_time)] = None
    timezone: Annotated[str, Parsed(parse_timezone)] = "UTC"
    misfire: Misfire | None = None
    misfire_max: Annotated[int, Meta(ge=1, le=MISFIRE_MAX_LIMIT)] = MISFIRE_MAX_DEFAULT
    overlap: Overlap = Overlap.FORBID
    session_key: OptionalText = None
    channel: OptionalName = None
    principal: Annotated[str, Parsed(parse_principal)] = "user:owner"
    agent: OptionalName = None


class ChannelConfig(Section, frozen=True, kw_only=True):
    name: Name
    kind: ChannelKind
    token: Secret = None
    secret: Secret = None
    app_token: Secret = None
    signing_secret: Secret = None
    dm_policy: DirectMessages = DirectMessages.DENY
    allow_from: Annotated[tuple[str, ...], ParsedEach(parse_text)] = ()
    deny_from: Annotated[tuple[str, ...], ParsedEach(parse_text)] = ()
    guilds: Annotated[tuple[str, ...], ParsedEach(parse_guild)] = ()
    mention_patterns: Annotated[tuple[str, ...], ParsedEach(parse_pattern)] = ()
    broadcast: BroadcastStrategy = BroadcastStrategy.DENY
    isolate_session_by_sender: bool = False
    concurrency: Annotated[int, Meta(ge=1, le=64)] = 4
    response_prefix: str = ""
    agent: OptionalName = None
    outbound_url: HttpUrl = None
    mapping: dict[str, str] = msgspec.field(default_factory=dict)
    imap: Annotated[str | None, Parsed(parse_imap_url)] = None
    smtp: Annotated[str | None, Parsed(parse_smtp_url)] = None
    authserv_id: Annotated[str | None, Parsed(parse_server_name)] = None
    when_busy: ChannelBusy = ChannelBusy.STEER
    coalesce_ms: Annotated[int, Meta(ge=0, le=5_000)] | None = None
    conversation: OptionalText = None
    api_url: HttpUrl = None


class ProviderHint(msgspec.Struct, frozen=True, kw_only=True):
    """The provider that the environment suggests while the file names none."""

    kind: str
    api_key: SecretRef | None
    base_url: str | None
    model: str | None = None


class TelemetryConfig(Section, frozen=True, kw_only=True):
    """`otlp_url` is the base address of a collector; without it no traces are made."""

    otlp_url: HttpUrl = None
    service_name: Text = "palyra"
    trace_ratio: Ratio = 1.0


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """The whole of it. Two members are no sections.

    `provider_hint` is what variables of other programs suggest. `warnings` name settings that were given and have no
    effect yet.
    """

    server: ServerConfig = ServerConfig()
    journal: JournalConfig = JournalConfig()
    providers: tuple[ProviderConfig, ...] = msgspec.field(name="provider", default=())
    models: tuple[ModelConfig, ...] = msgspec.field(name="model", default=())
    routes: tuple[RouteConfig, ...] = msgspec.field(name="route", default=())
    agents: tuple[AgentConfig, ...] = msgspec.field(name="agent", default=())
    budgets: tuple[BudgetConfig, ...] = msgspec.field(name="budget", default=())
    run: RunConfig = RunConfig()
    approvals: ApprovalConfig = ApprovalConfig()
    http: FetchConfig = FetchConfig()
    browser: BrowserConfig = BrowserConfig()
    context: ContextConfig = ContextConfig()
    memory: MemoryConfig = MemoryConfig()
    learning: LearningConfig = LearningConfig()
    healing: HealingConfig = HealingConfig()
    limits: LimitConfig = LimitConfig()
    telemetry: TelemetryConfig = TelemetryConfig()
    mcp_servers: tuple[McpServerConfig, ...] = msgspec.field(name="mcp", default=())
    routines: tuple[RoutineConfig, ...] = msgspec.field(name="routine", default=())
    channels: tuple[ChannelConfig, ...] = msgspec.field(name="channel", default=())
    provider_hint: ProviderHint | None = None


def plain_sections() -> dict[str, type[Section]]:
    """Returns `[name]` tables by their name in the file."""
    return {
        field.encode_name: field.type
        for field in msgspec.structs.fields(Config)
        if isinstance(field.type, type) and issubclass(field.type, Section)
    }


def repeated_sections() -> dict[str, type[Section]]:
    """Returns `[[name]]` tables by their name in the file."""
    return {
        field.encode_name: get_args(field.type)[0]
        for field in msgspec.structs.fields(Config)
        if getattr(field.type, "__origin__", None) is tuple and issubclass(get_args(field.type)[0], Section)
    }


def setting_names() -> list[str]:
    """Returns every key, as `section.key`."""
    sections = {**plain_sections(), **repeated_sections()}
    return [f"{name}.{field.name}" for name, section in sections.items() for field in msgspec.structs.fields(section)]
