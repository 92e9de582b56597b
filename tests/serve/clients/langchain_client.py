"""LangChain against the server whose address is the argument; the model `chat` has a template with tools."""

import sys
from typing import Any, Literal

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI
from pydantic import BaseModel, ConfigDict


@tool
def weather(city: Literal["Oslo"]) -> str:
    """The weather."""
    return f"It is cold in {city}."


class City(BaseModel):
    """A city. The small model would write blanks for ever."""

    model_config = ConfigDict(json_schema_extra={"x-guidance": {"whitespace_flexible": False}})
    name: Literal["Oslo"]


fields: Any = {"base_url": f"{sys.argv[1]}/v1", "api_key": "none", "model": "chat", "max_tokens": 60, "temperature": 0}
llm, ask = ChatOpenAI(**fields), HumanMessage("What is the weather in Oslo?")
assert "".join(str(chunk.content) for chunk in llm.stream([ask])) == llm.invoke([ask]).content
called = llm.bind_tools([weather], tool_choice="weather", strict=True).invoke([ask])
(call,) = called.tool_calls
assert (call["name"], call["args"]) == ("weather", {"city": "Oslo"})
assert llm.bind_tools([weather]).invoke([ask, called, ToolMessage("3 degrees", tool_call_id=call["id"])]) is not None
assert llm.with_structured_output(City, method="function_calling", strict=True).invoke("A city.") == City(name="Oslo")
assert llm.with_structured_output(City, method="json_schema", strict=True).invoke("A city.") == City(name="Oslo")
assert ChatOpenAI(use_responses_api=True, **fields).invoke([ask]).text
assert OpenAI(**fields).invoke("def main():")
