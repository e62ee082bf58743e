// An MCP server over stdio with one tool, `sign_in`, which has the user open a page and says when that is done.
import { createInterface } from "node:readline";

const PAGE = { mode: "url", message: "Sign in first.", url: "https://login.example/start", elicitationId: "theirs" };
const asked = new Map();

function send(message) {
  process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
}

function answer({ method, params }) {
  switch (method) {
    case "initialize":
      return {
        protocolVersion: params.protocolVersion,
        capabilities: { tools: {} },
        serverInfo: { name: "asking", version: "1" },
      };
    case "tools/list":
      return { tools: [{ name: "sign_in", description: "Signs in.", inputSchema: { type: "object" } }] };
    default:
      return {};
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const message = JSON.parse(line);
  if (message.method === "tools/call") {
    const id = `ask-${message.id}`;
    asked.set(id, message.id);
    send({ id, method: "elicitation/create", params: PAGE });
  } else if (message.method && message.id !== undefined) {
    send({ id: message.id, result: answer(message) });
  } else if (asked.has(message.id)) {
    send({ method: "notifications/elicitation/complete", params: { elicitationId: PAGE.elicitationId } });
    const text = message.result?.action ?? JSON.stringify(message.error);
    send({ id: asked.get(message.id), result: { content: [{ type: "text", text }] } });
  }
}
