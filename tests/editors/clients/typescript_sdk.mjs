// A client on the official TypeScript SDK that a person can talk to.
//   node typescript_sdk.mjs new|load COMMAND [ARG...]
// What is typed is a prompt; while a question is open, the kind of an option; /cancel cancels the turn.
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk";
import { serving, Terminals } from "./serving.mjs";

const [how, command, ...args] = process.argv.slice(2);
const agent = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
const { client: serve, agent: ask } = acp.methods;
const lines = createInterface({ input: process.stdin });
let question, speaking;

function print(text) {
  process.stdout.write(`${speaking ? "\n" : ""}${text}\n`);
  speaking = undefined;
}

function speak(kind, text) {
  if (speaking !== kind) print(`${kind}:`);
  speaking = kind;
  process.stdout.write(text);
}

function contentOf({ type, content, path, oldText, newText, terminalId }) {
  if (type === "content") return content.text ?? `(${content.type})`;
  if (type === "diff") return [path, ...marked("- ", oldText), ...marked("+ ", newText)].join("\n");
  return `(terminal ${terminalId})`;
}

function marked(mark, text) {
  return (text ?? "").split("\n").map((line) => mark + line);
}

function show(update) {
  const { sessionUpdate: kind, content } = update;
  if (kind.endsWith("_chunk")) return speak(kind.replace("_chunk", ""), content.text);
  if (!kind.startsWith("tool_call")) return print(`(${kind})`);
  print(`${update.toolCallId.slice(0, 8)} ${update.title ?? ""} ${update.status ?? ""}`);
  for (const each of content ?? []) print(contentOf(each));
  if (update.rawOutput) print(`raw output: ${JSON.stringify(update.rawOutput)}`);
}

function permission({ toolCall, options }) {
  print(`? ${toolCall.title}`);
  for (const each of toolCall.content ?? []) print(contentOf(each));
  for (const { kind, name } of options) print(`  ${kind}: ${name}`);
  return new Promise((resolve) => {
    question = (line) => {
      const chosen = options.find(({ kind }) => kind === line);
      question = undefined;
      const outcome = chosen ? { outcome: "selected", optionId: chosen.optionId } : { outcome: "cancelled" };
      resolve({ outcome });
    };
  });
}

const app = serving(acp.client({ name: "typescript-sdk" }), new Terminals())
  .onNotification(serve.session.update, ({ params }) => show(params.update))
  .onRequest(serve.session.requestPermission, ({ params }) => permission(params));

async function opened(ctx) {
  const place = { cwd: process.cwd(), mcpServers: [] };
  if (how === "new") return (await ctx.request(ask.session.new, place)).sessionId;
  const { sessions } = await ctx.request(ask.session.list, { cwd: place.cwd });
  const { sessionId } = sessions[0];
  await ctx.request(ask.session.load, { ...place, sessionId });
  return sessionId;
}

await app.connectWith(stream, async (ctx) => {
  await ctx.request(ask.initialize, {
    protocolVersion: acp.PROTOCOL_VERSION,
    clientCapabilities: { fs: { readTextFile: true, writeTextFile: true }, terminal: true },
    clientInfo: { name: "typescript-sdk", version: "1" },
  });
  const sessionId = await opened(ctx);
  print("ready");
  const turn = async (text) => {
    const { stopReason } = await ctx.request(ask.session.prompt, { sessionId, prompt: [{ type: "text", text }] });
    await new Promise(setImmediate); // the SDK hands over a response before the updates that came earlier
    print(`(${stopReason})`);
  };
  for await (const line of lines) {
    if (line === "/cancel") {
      await ctx.notify(ask.session.cancel, { sessionId });
      question?.("cancelled");
    } else if (question) question(line);
    else turn(line).catch((error) => print(`error: ${error.message}`));
  }
});
