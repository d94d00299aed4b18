"""LangChain as a client of a daemon, by both APIs. Runs in an environment of its own.

Prints one line of JSON for each API: [API, answer, tokens, call, answer after the call, streamed text].
"""

import json
import os

from langchain_core.messages import HumanMessage  # type: ignore[import-not-found]
from langchain_core.tools import tool  # type: ignore[import-not-found]
from langchain_openai import ChatOpenAI  # type: ignore[import-not-found]


@tool
def get_weather(city: str) -> str:
    """Tells the weather."""
    return f"rain in {city}"


def use(name: str, *, is_responses: bool) -> None:
    model = ChatOpenAI(
        base_url=os.environ["PALYRA_URL"] + "/v1",
        api_key=os.environ["PALYRA_TOKEN"],
        model="main",
        use_responses_api=is_responses,
        max_retries=0,
    )
    plain = model.invoke("hello")
    armed = model.bind_tools([get_weather])
    messages = [HumanMessage("How is the weather?")]
    asked = armed.invoke(messages)
    call = asked.tool_calls[0]
    answer = armed.invoke([*messages, asked, get_weather.invoke(call)])
    streamed = "".join(chunk.text for chunk in model.stream("hello"))
    tokens = plain.usage_metadata["total_tokens"]
    told = [name, plain.text, tokens > 0, [call["name"], call["args"]], answer.text, streamed]
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    use("chat", is_responses=False)
    use("responses", is_responses=True)
