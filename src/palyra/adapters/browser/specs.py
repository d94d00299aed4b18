"""The specs of the browser tools: what a model is told of them, and which arguments it may write.

Does not own: executing them (tools).
"""

from palyra.core.argument_schemas import arguments_schema, text_schema
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import EffectClass, ParallelClass, Risk
from palyra.core.hosts import URL_LENGTH_MAX
from palyra.core.tools import Capability, ToolSpec, Trait
from palyra.core.trust import Trust

TEXT_LENGTH_MAX = 32 * 1024
REF_LENGTH_MAX = 16
TIMEOUT_S = 90.0  # Enough for a start of the browser, a response, a load and a look, each at its own limit.

_REF: JsonObject = {
    "type": "string",
    "minLength": 2,
    "maxLength": REF_LENGTH_MAX,
    "description": "The ref of an element as the page was last shown, such as e410233.",
}


OPEN = ToolSpec(
    name="browser.open",
    description=(
        "Opens an http(s) address in a real browser that runs scripts, and returns the page: its text, and its links, "
        "buttons and fields with refs such as [e410233] for browser.click and browser.type. Cookies and logins stay with the "
        "session. Private and local addresses are refused. For a plain page http.fetch is quicker."
    ),
    input_schema=arguments_schema(
        {"url": text_schema(URL_LENGTH_MAX, "The whole address, with http:// or https://.")}, ["url"]
    ),
    capabilities=frozenset({Capability.NETWORK}),
    effect_class=EffectClass.READ_ONLY,
    parallel_class=ParallelClass.NEVER,
    risk=Risk.MEDIUM,
    output_trust=Trust.EXTERNAL,
    timeout_s=TIMEOUT_S,
    traits=frozenset({Trait.READS_OUTSIDE}),
)

READ = ToolSpec(
    name="browser.read",
    description="Returns the page that is open in this session's browser as it is now, with new refs; old ones end.",
    input_schema=arguments_schema({}, []),
    effect_class=EffectClass.READ_ONLY,
    parallel_class=ParallelClass.NEVER,
    risk=Risk.MEDIUM,
    output_trust=Trust.EXTERNAL,
    timeout_s=TIMEOUT_S,
    traits=frozenset({Trait.READS_OUTSIDE}),
)

CLICK = ToolSpec(
    name="browser.click",
    description="Clicks an element of the open page and returns the page as it is afterwards, with new refs.",
    input_schema=arguments_schema({"ref": _REF}, ["ref"]),
    capabilities=frozenset({Capability.NETWORK}),
    effect_class=EffectClass.ONCE,
    parallel_class=ParallelClass.NEVER,
    risk=Risk.HIGH,
    output_trust=Trust.EXTERNAL,
    timeout_s=TIMEOUT_S,
    traits=frozenset({Trait.READS_OUTSIDE}),
)

TYPE = ToolSpec(
    name="browser.type",
    description=(
        "Types into a field of the open page in place of what stands there, or chooses the option of that name in a list, "
        "and returns the page as it is afterwards, with new refs. With submit it presses Enter after it."
    ),
    input_schema=arguments_schema(
        {
            "ref": _REF,
            "text": {"type": "string", "maxLength": TEXT_LENGTH_MAX, "description": "What the field should hold."},
            "submit": {"type": "boolean", "description": "Whether to press Enter afterwards. Default false."},
        },
        ["ref", "text"],
    ),
    capabilities=frozenset({Capability.NETWORK}),
    effect_class=EffectClass.ONCE,
    parallel_class=ParallelClass.NEVER,
    risk=Risk.HIGH,
    output_trust=Trust.EXTERNAL,
    timeout_s=TIMEOUT_S,
    traits=frozenset({Trait.READS_OUTSIDE}),
)

SCREENSHOT = ToolSpec(
    name="browser.screenshot",
    description="Takes a picture of the page that is open in this session's browser and keeps it as an artifact.",
    input_schema=arguments_schema(
        {"full_page": {"type": "boolean", "description": "The whole page instead of its visible part. Default false."}},
        [],
    ),
    effect_class=EffectClass.READ_ONLY,
    parallel_class=ParallelClass.NEVER,
    risk=Risk.MEDIUM,
    output_trust=Trust.EXTERNAL,
    timeout_s=TIMEOUT_S,
    traits=frozenset({Trait.READS_OUTSIDE}),
)
