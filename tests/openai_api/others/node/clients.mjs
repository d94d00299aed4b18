// The Vercel AI SDK against a daemon: plain answers, the caller's tools, and streams, by three of its providers.
// Prints one line of JSON for each provider; the campaign compares them.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const baseURL = process.env.PALYRA_URL + "/v1";
const apiKey = process.env.PALYRA_TOKEN;
const openai = createOpenAI({ baseURL, apiKey });
const compatible = createOpenAICompatible({ name: "palyra", baseURL, apiKey });
const tools = {
  get_weather: tool({
    description: "Tells the weather.",
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => "rain in " + city,
  }),
};
const models = { compatible: compatible("main"), chat: openai.chat("main"), responses: openai.responses("main") };

for (const [name, model] of Object.entries(models)) {
  const plain = await generateText({ model, prompt: "hello" });
  const asked = { model, prompt: "How is the weather?", tools, stopWhen: stepCountIs(4) };
  const called = await generateText(asked);
  const stream = streamText(asked);
  let text = "";
  for await (const delta of stream.textStream) text += delta;
  console.log(JSON.stringify([name, plain.text, plain.finishReason, called.text, called.steps.length, text]));
}
