// A client on the official TypeScript SDK: one session, one turn with tool calls, files and terminals served.
//   node sdk_client.mjs FOLDER PROMPT COMMAND [ARG...]
// Prints one line a message it was sent and ends with the stop reason; exit code 1 when a call stayed open.
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk";
import { serving, Terminals } from "./serving.mjs";

const [folder, prompt, command, ...args] = process.argv.slice(2);
const agent = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
const { client: serve } = acp.methods;
const terminals = new Terminals();
const open = new Set();

function show({ update }) {
  if (update.sessionUpdate === "tool_call") open.add(update.toolCallId);
  if (["completed", "failed"].includes(update.status)) open.delete(update.toolCallId);
  const text = update.content?.text ?? update.title ?? update.rawOutput?.output ?? update.status ?? "";
  console.log(`${update.sessionUpdate.padEnd(24)} ${JSON.stringify(text).slice(0, 90)}`);
}

const app = serving(acp.client({ name: "acp-agent-interop" }), terminals)
  .onNotification(serve.session.update, ({ params }) => show(params))
  .onRequest(serve.session.requestPermission, ({ params }) => {
    console.log(`permission               ${JSON.stringify(params.toolCall.title)}`);
    const { optionId } = params.options.find(({ kind }) => kind === "allow_once");
    return { outcome: { outcome: "selected", optionId } };
  });

const { stopReason } = await app.connectWith(stream, async (ctx) => {
  const hello = await ctx.request(acp.methods.agent.initialize, {
    protocolVersion: acp.PROTOCOL_VERSION,
    clientCapabilities: { fs: { readTextFile: true, writeTextFile: true }, terminal: true },
    clientInfo: { name: "acp-agent-interop", version: "1" },
  });
  console.log(`agent                    ${hello.agentInfo.name} ${hello.agentInfo.version}`);
  const { sessionId } = await ctx.request(acp.methods.agent.session.new, { cwd: folder, mcpServers: [] });
  return ctx.request(acp.methods.agent.session.prompt, { sessionId, prompt: [{ type: "text", text: prompt }] });
});
console.log(`stop                     ${stopReason}, ${open.size} calls left open, ${terminals.size} terminals kept`);
agent.stdin.end();
process.exitCode = open.size || terminals.size ? 1 : 0;
