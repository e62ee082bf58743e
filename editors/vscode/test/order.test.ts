import assert from "node:assert/strict";
import { test } from "node:test";
import * as acp from "@agentclientprotocol/sdk";
import { updatesHandled } from "../src/session/session.js";

test("updates that came before a response are handled once it was waited for", async () => {
  const answers = new TransformStream<Uint8Array, Uint8Array>();
  const asked = new TransformStream<Uint8Array, Uint8Array>();
  const seen: string[] = [];
  let app = acp.client({ name: "test" });
  for (let other = 0; other < 20; other += 1) app = app.onRequest(`_other/${other}`, (params) => params, () => null);
  app.onNotification(acp.methods.client.session.update, ({ params }) => {
    seen.push(params.sessionId);
  });
  const connection = app.connect(acp.ndJsonStream(asked.writable, answers.readable));
  const answer = connection.agent.request(acp.methods.agent.session.load, { sessionId: "s", cwd: "/", mcpServers: [] });
  const line = await asked.readable.getReader().read();
  const { id } = JSON.parse(new TextDecoder().decode(line.value)) as { id: number };
  const update = { sessionUpdate: "agent_message_chunk", content: { type: "text", text: "word" } };
  const told = { jsonrpc: "2.0", method: "session/update", params: { sessionId: "s", update } };
  const lines = [told, told, { jsonrpc: "2.0", id, result: {} }].map((each) => `${JSON.stringify(each)}\n`).join("");
  await answers.writable.getWriter().write(new TextEncoder().encode(lines));
  await answer;
  await updatesHandled();
  assert.deepEqual(seen, ["s", "s"]);
  connection.close();
});
