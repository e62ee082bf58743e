// A scripted model on loopback that speaks Chat Completions. A prompt names its script: "script:NAME".
import { createServer } from "node:http";

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/**
 * Start the model. A script is a list of steps, one for each request of a turn; a step has `text` (a list of pieces),
 * `gap` (milliseconds between pieces) and `calls` ([name, arguments]). Returns the address and all requests.
 */
export async function startModel(scripts) {
  const requests = [];
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (data) => (body += data));
    request.on("end", () => {
      if (request.method !== "POST") {
        response.setHeader("content-type", "application/json");
        response.end(JSON.stringify({ object: "list", data: MODELS.map((id) => ({ id, object: "model" })) }));
        return;
      }
      const asked = JSON.parse(body);
      requests.push({ ...asked, authorization: request.headers.authorization });
      void answer(scripts, asked, response);
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${server.address().port}/v1`, requests, stop: () => server.close() };
}

const MODELS = ["tour-large", "tour-small"];

function stepOf(scripts, { messages, tools }) {
  if (!tools?.length) return { text: ["Titled by the model"] };
  const last = messages.findLastIndex(({ role }) => role === "user");
  const content = messages[last]?.content ?? "";
  const said = typeof content === "string" ? content : content.map(({ text }) => text ?? "").join("\n");
  const name = /script:([a-z]+)/.exec(said)?.[1];
  const done = messages.slice(last).filter(({ role }) => role === "assistant").length;
  return scripts[name]?.[done] ?? { text: ["Nothing is scripted here."] };
}

async function answer(scripts, asked, response) {
  const { text = [], gap = 0, calls = [] } = stepOf(scripts, asked);
  const tool_calls = calls.map(([name, args], index) => ({
    index,
    id: `call_${Math.random().toString(36).slice(2, 11)}`,
    type: "function",
    function: { name, arguments: JSON.stringify(args) },
  }));
  const usage = { prompt_tokens: 1200, completion_tokens: 60, total_tokens: 1260 };
  const finish = calls.length > 0 ? "tool_calls" : "stop";
  if (!asked.stream) {
    response.setHeader("content-type", "application/json");
    const message = { role: "assistant", content: text.join(""), ...(calls.length > 0 ? { tool_calls } : {}) };
    response.end(JSON.stringify({ id: "x", object: "chat.completion", choices: [{ index: 0, message, finish_reason: finish }], usage }));
    return;
  }
  response.setHeader("content-type", "text/event-stream");
  const chunk = (delta, finish_reason = null) =>
    response.write(
      `data: ${JSON.stringify({ id: "x", object: "chat.completion.chunk", model: asked.model, choices: [{ index: 0, delta, finish_reason }] })}\n\n`,
    );
  for (const piece of text) {
    if (typeof piece === "object") chunk({ reasoning_content: piece.thought });
    else chunk({ content: piece });
    if (gap > 0) await pause(gap);
  }
  if (tool_calls.length > 0) chunk({ tool_calls });
  chunk({}, finish);
  response.write(`data: ${JSON.stringify({ id: "x", object: "chat.completion.chunk", choices: [], usage })}\n\n`);
  response.end("data: [DONE]\n\n");
}
