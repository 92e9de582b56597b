"""LiteLLM against the server whose address is the argument; the model `chat` has a template with tools."""

import json
import os
import sys
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
import litellm

place = {"type": "object", "properties": {"city": {"enum": ["Oslo"]}}, "required": ["city"], "additionalProperties": False}
tools = [{"type": "function", "function": {"name": "weather", "description": "The weather.", "parameters": place}}]
fields: Any = {"model": "openai/chat", "api_base": f"{sys.argv[1]}/v1", "api_key": "none", "max_tokens": 60, "temperature": 0}
ask: list[Any] = [{"role": "user", "content": "What is the weather in Oslo?"}]
whole = litellm.completion(messages=ask, **fields).choices[0].message.content
pieces = litellm.completion(messages=ask, stream=True, **fields)
assert "".join(chunk.choices[0].delta.content or "" for chunk in pieces) == whole
called = litellm.completion(
    messages=ask,
    tools=tools,
    tool_choice="required",
    parallel_tool_calls=False,
    allowed_openai_params=["parallel_tool_calls"],
    **fields,
).choices[0]
(call,) = called.message.tool_calls
assert called.finish_reason == "tool_calls" and json.loads(call.function.arguments) == {"city": "Oslo"}
history = [*ask, called.message.model_dump(), {"role": "tool", "tool_call_id": call.id, "content": "3 degrees"}]
assert litellm.completion(messages=history, tools=tools, **fields).choices[0].message is not None
text = litellm.text_completion(prompt="def main():", **{**fields, "model": "text-completion-openai/chat"})
assert text.choices[0].text
answer = litellm.responses(input="Hello", max_output_tokens=8, **{k: v for k, v in fields.items() if k != "max_tokens"})
assert answer.output[0].content[0].text
