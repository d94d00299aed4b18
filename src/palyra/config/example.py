"""An example palyra.toml with every section and key, each at a sensible value. Does not own: the defaults (records)."""

EXAMPLE = """\
# palyra.toml: every section and key there is. Leave out what you do not need: each key has a default or is optional.

[server]
http = "127.0.0.1:7142"
grpc = "127.0.0.1:7143"          # or "off"
grpc_client_ca = "/etc/palyra/clients.pem"
tls_cert = "/etc/palyra/cert.pem"
tls_key = "/etc/palyra/key.pem"
hosts = ["palyra.example.com"]
insecure = false
detect = ["127.0.0.1:11434"]      # local model servers to look for while there is no [[provider]]

[journal]
url = "sqlite:journal.db"
durability = "full"              # or "normal": faster, may lose the last moments in a power cut
retention_days = 365             # leave out to keep everything
anchors = ["file:/mnt/other/palyra-anchors.jsonl"]  # heads of signed checkpoints go there too

[[provider]]
name = "anthropic"
kind = "anthropic-messages"
base_url = "https://api.anthropic.com"
api_key = "env:ANTHROPIC_API_KEY"
connect_timeout_s = 10
first_token_timeout_s = 120
idle_timeout_s = 60
retries = 2

[[provider]]
name = "workstation"             # any server with the OpenAI protocol: vLLM, Ollama, llama.cpp …
kind = "openai-chat"
base_url = "http://127.0.0.1:11434/v1"

[[provider]]
name = "rehearsal"               # says what a file tells it to, for tests
kind = "scripted"
file = "script.toml"

[[model]]
name = "sonnet"
provider = "anthropic"
id = "claude-sonnet-4-5"
window_tokens = 200000
max_output_tokens = 16000
input_usd_per_mtok = 3.0
output_usd_per_mtok = 15.0
cached_input_usd_per_mtok = 0.3
vision = true
tools = true

[[model]]
name = "qwen"
provider = "workstation"
id = "qwen3:14b"
window_tokens = 32768
input_usd_per_mtok = 0.0         # Runs at home. A budget in USD leaves out models of unknown price.
output_usd_per_mtok = 0.0

[[route]]
name = "main"
models = ["sonnet", "qwen"]      # in order of failover
mode = "enforced"

[[agent]]
name = "main"
default = true
instructions = "You look after this machine. Say plainly what you did."
route = "main"
tools = ["*"]
delegates = ["*"]
workspace = ["~/projects"]
instruction_files = ["AGENTS.md", "CLAUDE.md", "PALYRA.md", "MEMORY.md"]

[[budget]]
scope = "global"
period = "day"
limit_usd = 10.0
action = "deny"
timezone = "Europe/Prague"

[[budget]]
scope = "run"
period = "none"
limit_tokens = 500000
action = "ask"

[run]
wall_clock_s = 900
max_tool_calls = 64
parallel_tools = 4
drain_s = 5

[approvals]
timeout_s = 900
headless = "deny"

[http]
allow = ["192.168.1.20:8123"]

[browser]                        # tools of the extra `browser`
executable = "/usr/bin/chromium" # leave out to take the one on the PATH
idle_s = 600
sessions_max = 3                 # a Chromium takes some 300 MB

[context]
compaction_trigger = 0.7
compaction_min_tokens = 480
auto_compaction = true

[memory]
auto_inject = true
embedder = "bundled"

[learning]
enabled = true
sample = 1.0
review_bps = 7500
auto_write_bps = 9000
auto_apply_bps = 9500

[healing]
mode = "observe_only"

[healing.domains]
run = "auto"

[limits]
requests_per_minute = 600
runs_active_max = 256
runs_queued_per_session_max = 32
streams_max = 2048
streams_per_token_max = 512

[telemetry]
otlp_url = "http://127.0.0.1:4318" # a collector of OpenTelemetry; leave out for no traces
service_name = "palyra"
trace_ratio = 1.0

[[mcp]]
name = "files"
command = ["npx", "-y", "@modelcontextprotocol/server-filesystem", "/srv/files"]
env = { LOG_LEVEL = "warn", FILES_TOKEN = "vault:files_token" }
trust_annotations = false        # true: believe what the server says of its tools
read_only = ["read_*", "list_*"] # of the tools' names: these change nothing, so they need not ask
idempotent = ["write_file"]      # these may be repeated
timeout_s = 60

[[mcp]]
name = "tracker"
url = "https://mcp.example.com/mcp"
token = "vault:tracker_token"

[[routine]]
name = "morning"
prompt = "What is on today?"
cron = "30 7 * * 1-5"
timezone = "Europe/Prague"
misfire = "once"                 # times missed while no daemon ran: skip, once, all
overlap = "forbid"               # due while its last run goes on: forbid, queue, replace
channel = "team"                 # whose conversation hears the answers

[[routine]]
name = "sweep"
prompt = "Tidy the download folder."
every_s = 3600
misfire = "all"
misfire_max = 3
session_key = "sweep"
principal = "user:owner"
agent = "main"

[[routine]]
name = "new-year"
prompt = "Write a review of the year."
at = "2027-01-01T09:00:00+01:00"

[[channel]]
name = "team"
kind = "slack"
token = "vault:slack_bot"
app_token = "vault:slack_app"
signing_secret = "vault:slack_signing"
dm_policy = "pairing"
allow_from = ["U012AB3CD"]
deny_from = []
mention_patterns = ["(?i)\\\\bpalyra\\\\b"]
broadcast = "mention_only"
isolate_session_by_sender = false
concurrency = 4
response_prefix = ""
agent = "main"
when_busy = "steer"              # words while a run is active: steer, queue
coalesce_ms = 300                # how long further words are waited for
conversation = "C012AB3CD"       # hears answers of routines

[[channel]]
name = "guild"
kind = "discord"
token = "vault:discord_bot"
guilds = ["81384788765712384"]   # others that invited the bot are not heard
allow_from = ["*"]

[[channel]]
name = "tickets"
kind = "webhook"
secret = "vault:tickets_secret"
outbound_url = "https://tickets.example.com/palyra"
mapping = { text = "ticket.body", sender_id = "ticket.author" }

[[channel]]
name = "phone"
kind = "telegram"
token = "vault:telegram_bot"
api_url = "http://127.0.0.1:8081" # a Bot API server of your own

[[channel]]
name = "mail"
kind = "email"
imap = "imaps://palyra@mail.example.com"
smtp = "smtps://palyra@mail.example.com"
authserv_id = "mx.example.com"
token = "vault:mail_password"
"""
