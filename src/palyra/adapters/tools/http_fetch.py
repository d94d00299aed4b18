"""The tool http.fetch: the arguments of a fetch, and what a call of it would touch.

Does not own: the guard and redirects (adapters.net), nor how the answer is presented (http_page).
GET and HEAD only read. Every other method is an effect that cannot be repeated. A call with headers never counts as one
to a known address, whatever its URL. A header can carry a secret out as well as a URL can.
"""

import re
from functools import partial
from threading import Event

import msgspec
from msgspec.structs import replace

from palyra.adapters.net.guard import Guard
from palyra.adapters.net.guard_exchange import BODY_BYTES_MAX, TOTAL_S, FetchedResponse, FetchRequest, GuardedExchange
from palyra.adapters.tools.http_page import present
from palyra.adapters.tools.offload import offload
from palyra.core.argument_schemas import arguments_schema, text_schema
from palyra.core.errors import Invalid, PalyraError
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import EffectClass, ParallelClass, Risk
from palyra.core.hosts import CODE, URL_LENGTH_MAX, UrlTarget
from palyra.core.spelling import spell_out
from palyra.core.taint import label
from palyra.core.tools import CallNature, Capability, ToolResult, ToolSpec, Trait, failed
from palyra.core.trust import Trust
from palyra.ports.tools import ToolCallContext

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
LOOKING = frozenset({"GET", "HEAD"})
SENT_LENGTH_MAX = 1024 * 1024
HEADERS_MAX = 32
HEADER_LENGTH_MAX = 8 * 1024
PREVIEW_LENGTH_MAX = 4 * 1024  # More than surfaces show at once, so that a cut text is known as one.

# These headers say how the message itself travels. Whoever sets them contradicts what is sent.
_OURS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade", "expect"}
    | {"accept-encoding", "http2-settings"}
)
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_HOST_WRITTEN = re.compile(r"[^/]*//([^/?#]*)")
_HOST_SHOWN_MAX = 253

SPEC = ToolSpec(
    name="http.fetch",
    description=(
        "Fetches an http(s) address and returns its status and readable text; a body that is no text becomes an artifact. "
        "Private and local addresses are refused. A redirect to another host is not followed: it is named, so that you can "
        "fetch it. GET and HEAD only look, other methods may change something and ask."
    ),
    input_schema=arguments_schema(
        {
            "url": text_schema(URL_LENGTH_MAX, "The whole address, with http:// or https://."),
            "method": {"enum": list(METHODS), "description": "Default GET."},
            "headers": {
                "type": "object",
                "maxProperties": HEADERS_MAX,
                "additionalProperties": {"type": "string", "maxLength": HEADER_LENGTH_MAX},
                "description": "Headers to send, for instance Accept or Authorization.",
            },
            "body": {
                "type": "string",
                "maxLength": SENT_LENGTH_MAX,
                "description": "The text to send, not with GET or HEAD. JSON is sent as JSON unless Content-Type is set.",
            },
        },
        ["url"],
    ),
    capabilities=frozenset({Capability.NETWORK}),
    effect_class=EffectClass.ONCE,
    parallel_class=ParallelClass.NEVER,
    risk=Risk.MEDIUM,
    output_trust=Trust.EXTERNAL,
    timeout_s=TOTAL_S + 20.0,
    traits=frozenset({Trait.SENDS_REQUEST, Trait.READS_OUTSIDE}),
)


# These faults come before a byte of the request left. After any other fault the request may have arrived.
_NEVER_SENT = frozenset({CODE, "name_unknown", "connect_failed", "connect_timed_out", "address_invalid"})


class HttpFetch:
    spec = SPEC

    def __init__(self, guard: Guard, total_s: float = TOTAL_S, body_bytes_max: int = BODY_BYTES_MAX) -> None:
        self._guard = guard
        self._exchange = GuardedExchange(guard, total_s, body_bytes_max)

    def nature(self, arguments: JsonObject, workspace: tuple[str, ...]) -> CallNature:
        url, method = arguments.get("url"), arguments.get("method", "GET")
        is_looking = isinstance(method, str) and method in LOOKING and not arguments.get("body")
        is_plain = not arguments.get("headers") and not arguments.get("body")
        return CallNature(
            effect_class=EffectClass.READ_ONLY if is_looking else EffectClass.ONCE,
            parallel_class=ParallelClass.IDEMPOTENT_NETWORK if is_looking else ParallelClass.NEVER,
            host=self._host_of(url) if isinstance(url, str) else None,
            address=url if isinstance(url, str) and is_plain else None,
            preview=None if is_looking else _preview(arguments),
        )

    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        try:
            asked = _read_arguments(arguments)
            target = self._guard.judge(asked.url)
        except PalyraError as refused:
            return replace(failed(refused.code, refused.message), trust=Trust.SYSTEM)
        try:
            answer = await self._exchange.perform(asked)
        except PalyraError as fault:
            is_unknown = asked.method not in LOOKING and fault.code not in _NEVER_SENT
            return replace(_fault(fault, target), is_unknown=is_unknown)
        result = await offload(partial(_present, answer))
        return replace(result, source=label("http", answer.target.endpoint.host))

    def _host_of(self, url: str) -> str:
        """Returns the host that is judged.

        For an address that will be refused it returns the text, so that the refusal can name it.
        """
        try:
            return self._guard.judge(url).endpoint.host
        except PalyraError:
            written = _HOST_WRITTEN.match(url)
        return (written[1] if written else "")[:_HOST_SHOWN_MAX].lower() or "invalid"


def _present(answer: FetchedResponse, stop: Event) -> ToolResult:
    return present(answer, stop.is_set)


def _fault(fault: PalyraError, target: UrlTarget) -> ToolResult:
    """Turns a fault into a result.

    The words hold nothing of the other side's, but a refused redirect was its choice.
    """
    told = failed(fault.code, fault.message)
    if fault.code == CODE:
        return replace(told, source=label("http", target.endpoint.host))
    return replace(told, trust=Trust.SYSTEM)


def _read_arguments(arguments: JsonObject) -> FetchRequest:
    """Reads the arguments. Raises Invalid with what to write instead."""
    url, method = arguments.get("url"), arguments.get("method", "GET")
    body, headers = arguments.get("body", ""), arguments.get("headers", {})
    if not isinstance(url, str) or not isinstance(body, str) or not isinstance(headers, dict):
        raise Invalid("arguments_invalid", "url and body are texts, headers is an object of texts")
    if not isinstance(method, str) or method not in METHODS:
        raise Invalid("arguments_invalid", f"method is one of {', '.join(METHODS)}")
    if body and method in LOOKING:
        raise Invalid("arguments_invalid", f"{method} sends no body; use another method")
    sent = {name: _checked(name, value) for name, value in headers.items()}
    if len({name.lower() for name in sent}) < len(sent) or len(sent) > HEADERS_MAX:
        raise Invalid("header_refused", f"at most {HEADERS_MAX} headers are sent, and each once")
    content = body.encode("utf-8", "replace")
    if len(content) > 4 * SENT_LENGTH_MAX:
        raise Invalid("arguments_invalid", f"the body is longer than {SENT_LENGTH_MAX} characters")
    if content and "content-type" not in {name.lower() for name in sent}:
        sent["Content-Type"] = _media_type(content)
    return FetchRequest(url=url, method=method, headers=sent, body=content)


def _checked(name: str, value: object) -> str:
    if _HEADER_NAME.fullmatch(name) is None:
        raise Invalid("header_refused", "a header's name has letters, digits and hyphens only")
    if name.lower() in _OURS or name.lower().startswith("proxy-"):
        raise Invalid("header_refused", f"the header {name} is set by the daemon itself; leave it out")
    is_fit = isinstance(value, str) and len(value) <= HEADER_LENGTH_MAX and value.replace("\t", " ").isprintable()
    if not isinstance(value, str) or not is_fit:
        raise Invalid("header_refused", f"the value of the header {name} is one line of visible characters")
    return value


def _media_type(content: bytes) -> str:
    try:
        is_structured = isinstance(msgspec.json.decode(content), dict | list)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        is_structured = False
    return "application/json" if is_structured else "text/plain; charset=utf-8"


def _preview(arguments: JsonObject) -> str:
    """Shows what would be sent to the person who is asked. Headers are named only: their values may be keys."""
    headers, body = arguments.get("headers"), arguments.get("body")
    names = ", ".join(sorted(map(str, headers))) if isinstance(headers, dict) and headers else "none"
    lines = [f"{arguments.get('method', 'GET')} {arguments.get('url')}", f"headers: {names}", ""]
    text = "\n".join([*lines, body if isinstance(body, str) else ""])
    shown = spell_out(text[:PREVIEW_LENGTH_MAX], kept="\n\t")
    rest = len(text) - PREVIEW_LENGTH_MAX
    return shown if rest <= 0 else f"{shown}…\n[{rest} more characters are not shown]"
