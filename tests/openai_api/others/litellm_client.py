"""litellm as a client of a daemon. Runs in an environment of its own.

Prints one line of JSON: [API, answer, tokens, call, answer after the call, streamed text], and one of the failures.
"""

import json
import os
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # It would download prices.
import litellm  # type: ignore[import-not-found]

litellm.suppress_debug_info = True
WEATHER = {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
TOOLS = [{"type": "function", "function": WEATHER}]


def complete(messages: list[Any], **fields: Any) -> Any:
    given = {
        "model": "openai/main",
        "api_base": os.environ["PALYRA_URL"] + "/v1",
        "api_key": os.environ["PALYRA_TOKEN"],
        "max_retries": 0,
    }
    return litellm.completion(messages=messages, **{**given, **fields})


def said(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def failure(**fields: Any) -> str:
    try:
        complete([said("hello")], **fields)
    except Exception as error:
        return type(error).__name__
    return "none"


if __name__ == "__main__":
    plain = complete([said("hello")])
    asked = complete([said("How is the weather?")], tools=TOOLS).choices[0].message
    call = asked.tool_calls[0]
    result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
    answer = complete([said("How is the weather?"), asked, result], tools=TOOLS)
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in complete([said("hello")], stream=True))
    shown = [call.function.name, json.loads(call.function.arguments)]
    text = answer.choices[0].message.content
    tokens = plain.usage.total_tokens
    print(json.dumps(["chat", plain.choices[0].message.content, tokens > 0, shown, text, streamed]))
    print(json.dumps([failure(api_key="nobody"), failure(model="openai/nothing")]))
