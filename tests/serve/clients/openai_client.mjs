// OpenAI's client for JavaScript against the server whose address is the argument; the model `chat` has a template with tools.
import assert from "node:assert";
import OpenAI from "openai";

const client = new OpenAI({ baseURL: `${process.argv[2]}/v1`, apiKey: "none", maxRetries: 0 });
const fields = { model: "chat", max_tokens: 60, temperature: 0, messages: [{ role: "user", content: "What is the weather in Oslo?" }] };
const whole = await client.chat.completions.create(fields);
const stream = client.chat.completions.stream({ ...fields, stream_options: { include_usage: true } });
assert.equal(await stream.finalContent(), whole.choices[0].message.content);
assert.equal((await stream.totalUsage()).total_tokens, whole.usage.total_tokens);

const parameters = { type: "object", properties: { city: { enum: ["Oslo"] } }, required: ["city"], additionalProperties: false };
const called = [];
const runner = client.chat.completions.runTools({
  ...fields,
  max_tokens: 60,
  tool_choice: { type: "function", function: { name: "weather" } },
  tools: [{ type: "function", function: { name: "weather", parameters, parse: JSON.parse, function: (given) => (called.push(given), "3 degrees") } }],
});
await runner.finalMessage().catch(() => undefined);
assert.deepEqual(called[0], { city: "Oslo" });

const answer = await client.responses.create({ model: "chat", input: "Hello", max_output_tokens: 8, temperature: 0 });
assert.ok(answer.output_text);
let text = "";
for await (const event of await client.responses.create({ model: "chat", input: "Hello", max_output_tokens: 8, temperature: 0, stream: true }))
  if (event.type === "response.output_text.delta") text += event.delta;
assert.equal(text, answer.output_text);
await assert.rejects(client.chat.completions.create({ ...fields, nope: 1 }), (error) => error.status === 400 && error.param === "nope");
