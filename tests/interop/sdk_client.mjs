// A client on the official TypeScript SDK: one session, one turn with tool calls, files and terminals served.
//   node sdk_client.mjs FOLDER PROMPT COMMAND [ARG...]
// Prints one line a message it was sent and ends with the stop reason; exit code 1 when a call stayed open.
import { spawn } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk";

const [folder, prompt, command, ...args] = process.argv.slice(2);
const agent = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
const { client: serve } = acp.methods;
const terminals = new Map();
const open = new Set();

function createTerminal({ command, args = [], cwd, env = [] }) {
  const terminal = { output: "", exit: undefined };
  const child = spawn(command, args, {
    cwd,
    env: { ...process.env, ...Object.fromEntries(env.map(({ name, value }) => [name, value])) },
    stdio: ["ignore", "pipe", "pipe"],
  });
  for (const pipe of [child.stdout, child.stderr]) pipe.on("data", (data) => (terminal.output += data));
  terminal.child = child;
  terminal.done = new Promise((resolve) =>
    child.on("close", (exitCode, signal) => resolve((terminal.exit = { exitCode, signal }))),
  );
  const terminalId = `t${terminals.size + 1}`;
  terminals.set(terminalId, terminal);
  return { terminalId };
}

function show({ update }) {
  if (update.sessionUpdate === "tool_call") open.add(update.toolCallId);
  if (["completed", "failed"].includes(update.status)) open.delete(update.toolCallId);
  const text = update.content?.text ?? update.title ?? update.rawOutput?.output ?? update.status ?? "";
  console.log(`${update.sessionUpdate.padEnd(24)} ${JSON.stringify(text).slice(0, 90)}`);
}

const app = acp
  .client({ name: "acp-agent-interop" })
  .onNotification(serve.session.update, ({ params }) => show(params))
  .onRequest(serve.session.requestPermission, ({ params }) => {
    console.log(`permission               ${JSON.stringify(params.toolCall.title)}`);
    const { optionId } = params.options.find(({ kind }) => kind === "allow_once");
    return { outcome: { outcome: "selected", optionId } };
  })
  .onRequest(serve.fs.readTextFile, async ({ params }) => ({ content: await readFile(params.path, "utf8") }))
  .onRequest(serve.fs.writeTextFile, async ({ params }) => {
    await writeFile(params.path, params.content);
    return {};
  })
  .onRequest(serve.terminal.create, ({ params }) => createTerminal(params))
  .onRequest(serve.terminal.output, ({ params }) => {
    const { output, exit } = terminals.get(params.terminalId);
    return { output, truncated: false, exitStatus: exit };
  })
  .onRequest(serve.terminal.waitForExit, ({ params }) => terminals.get(params.terminalId).done)
  .onRequest(serve.terminal.kill, ({ params }) => (terminals.get(params.terminalId).child.kill(), {}))
  .onRequest(serve.terminal.release, ({ params }) => (terminals.delete(params.terminalId), {}));

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
