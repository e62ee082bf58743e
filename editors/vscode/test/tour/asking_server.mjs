// An MCP server of a few lines: one tool has the user fill in a form, the other has them open a page.
import { createInterface } from "node:readline";

const PROPERTIES = {
  name: { type: "string", title: "Name", minLength: 2 },
  count: { type: "integer", title: "Count", minimum: 1, maximum: 9 },
  urgent: { type: "boolean", title: "Urgent" },
  colour: { type: "string", title: "Colour", enum: ["red", "blue"] },
};
const FORM = { mode: "form", message: "What shall be sent?", requestedSchema: { type: "object", properties: PROPERTIES, required: ["name", "count"] } };
const PAGE = { mode: "url", message: "Sign in first.", url: "https://login.example/start", elicitationId: "theirs" };
const QUESTIONS = { fill_in: FORM, sign_in: PAGE };
const TOOLS = Object.keys(QUESTIONS).map((name) => ({ name, description: `Asks by ${name}.`, inputSchema: { type: "object" } }));
const calls = new Map();

const say = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);

for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params, result } = JSON.parse(line);
  if (method === "tools/call") {
    calls.set(`ask-${calls.size}`, id);
    say({ id: [...calls.keys()].at(-1), method: "elicitation/create", params: QUESTIONS[params.name] });
  } else if (method !== undefined && id !== undefined) {
    const about = { protocolVersion: params?.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "asking", version: "1" } };
    say({ id, result: method === "initialize" ? about : method === "tools/list" ? { tools: TOOLS } : {} });
  } else if (calls.has(id)) {
    if (result.content === undefined) say({ method: "notifications/elicitation/complete", params: { elicitationId: PAGE.elicitationId } });
    say({ id: calls.get(id), result: { content: [{ type: "text", text: JSON.stringify(result) }] } });
  }
}
