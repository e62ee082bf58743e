// A tour through the whole protocol with a client on the official TypeScript SDK.
//   node tour.mjs FOLDER COMMAND [ARG...]
// FOLDER is new and private: a home with a scripted model is made there, and FOLDER/wire-N.jsonl gets every message
// of the N-th agent. Prints one line a step; the first deviation ends the tour with exit code 1.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Agent, Home } from "./furnished.mjs";
import { Visitor } from "./visitor.mjs";

const [folder, ...command] = process.argv.slice(2);
mkdirSync(folder, { recursive: true });
const home = new Home(folder);
const poem = join(home.work, "poem.txt");
const PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const ASKING = { name: "asking", command: process.execPath, args: [fileURLToPath(import.meta.resolve("./asking_server.mjs"))], env: [] };
const UNUSABLE = { type: "http", name: "unusable", url: "gopher://127.0.0.1/", headers: [] };
const AUTH_REQUIRED = -32000, NOT_FOUND = -32002, INVALID_REQUEST = -32600, NO_METHOD = -32601, INVALID_PARAMS = -32602;

let agents = 0, steps = 0, lastLog = () => "";

/** Run `visit` against a new agent process, to its orderly end. */
async function against(visit) {
  const agent = new Agent(home, join(folder, `wire-${(agents += 1)}.jsonl`), command);
  lastLog = () => agent.log;
  const visitor = new Visitor(home);
  await visitor.connect(agent.stream, visit);
  await step("the agent ends when its input does", async () => {
    equal(await agent.quit(), 0);
    equal(visitor.terminals.size, 0, "terminals nobody released");
    equal(visitor.openCalls.size, 0, "tool calls nobody ended");
    check(!agent.log.includes("Traceback"), "a traceback on stderr");
  });
}

async function step(title, body) {
  const said = await body().catch((error) => {
    throw new Error(`${title}: ${error.message}${error.code ? ` (${error.code})` : ""}`, { cause: error });
  });
  console.log(`ok ${String((steps += 1)).padStart(2)} ${title}${said ? `: ${said}` : ""}`);
}

function check(holds, otherwise) {
  if (!holds) throw new Error(otherwise);
}

function equal(found, wanted, what = "") {
  const [one, other] = [JSON.stringify(found), JSON.stringify(wanted)];
  check(one === other, `${what} ${one}, not ${other}`);
}

async function refused(promise, code) {
  const answer = await promise.catch((error) => error);
  check(answer instanceof Error, `answered ${JSON.stringify(answer)}, not refused with ${code}`);
  equal(answer.code, code, answer.message);
}

const option = (options, id) => options.find((each) => each.id === id);
const values = ({ options }) => options.flatMap((each) => each.options ?? [each]).map(({ value }) => value);

async function hello(me) {
  await step("initialize", async () => {
    const { protocolVersion, agentInfo, agentCapabilities: can, authMethods } = await me.initialize();
    equal([protocolVersion, agentInfo.name, can.loadSession], [1, "acp-agent", true]);
    equal(can.promptCapabilities, { image: true, audio: false, embeddedContext: true });
    equal([can.mcpCapabilities.http, can.auth.logout], [true, {}]);
    equal(Object.keys(can.sessionCapabilities).sort(), ["additionalDirectories", "close", "delete", "fork", "list", "resume"]);
    equal(authMethods.map(({ type = "agent", args }) => [type, args]), [["agent", undefined], ["terminal", ["login"]]]);
    me.methods = authMethods.map(({ id }) => id);
    return `${agentInfo.name} ${agentInfo.version}`;
  });
}

async function authentication(me) {
  const where = { cwd: home.work, mcpServers: [] };
  await step("authenticate", async () => {
    await me.ask("authenticate", { methodId: me.methods[0] });
    await refused(me.ask("authenticate", { methodId: me.methods[1] }), INVALID_PARAMS);
    await refused(me.ask("authenticate", { methodId: "retina-scan" }), INVALID_PARAMS);
  });
  await step("logout, then nothing but authentication", async () => {
    await me.ask("logout", {});
    await refused(me.ask("session/new", where), AUTH_REQUIRED);
    await refused(me.ask("session/list", {}), AUTH_REQUIRED);
    await me.ask("authenticate", { methodId: me.methods[0] });
    await refused(me.ask("session/new", { ...where, cwd: "here" }), INVALID_PARAMS);
  });
}

async function opening(me) {
  await step("session/new with further folders and servers", async () => {
    const opened = await me.open({ cwd: home.work, additionalDirectories: [home.other], mcpServers: [ASKING, UNUSABLE] });
    equal(opened.modes.availableModes.map(({ id }) => id), ["code", "architect", "ask"]);
    equal(opened.configOptions.map(({ id }) => id), ["mode", "model", "auto_approve", "autonomy_level"]);
    const { availableCommands } = await me.update("available_commands_update");
    const names = availableCommands.map(({ name }) => name);
    for (const name of ["help", "status", "model", "mode", "run"]) check(names.includes(name), `no /${name} in ${names}`);
    return names.map((name) => `/${name}`).join(" ");
  });
  await step("session/set_mode", async () => {
    me.mark();
    await me.ask("session/set_mode", { sessionId: me.session, modeId: "architect" });
    equal((await me.update("current_mode_update")).currentModeId, "architect");
    equal(option((await me.update("config_option_update")).configOptions, "mode").currentValue, "architect");
    await refused(me.ask("session/set_mode", { sessionId: me.session, modeId: "yolo" }), INVALID_REQUEST);
    await me.ask("session/set_mode", { sessionId: me.session, modeId: "code" });
  });
}

async function everyOption(me) {
  const set = (configId, value) => me.setOption(configId, value);
  await step("session/set_config_option: every value of every option", async () => {
    const told = [];
    for (const model of [home.model, "anthropic:claude-opus-4-6", "openai:gpt-4.1", "local:qwen3:8b"]) {
      for (const { id, type, currentValue, ...each } of await set("model", model)) {
        if (id === "model") continue;
        const possible = type === "boolean" ? [true, false] : values(each);
        for (const value of [...possible, currentValue]) equal(option(await set(id, value), id).currentValue, value, id);
        if (!told.includes(`${id} (${type})`)) told.push(`${id} (${type})`);
      }
    }
    await refused(set("model", "nobody:nothing"), INVALID_REQUEST);
    await refused(set("colour", "red"), INVALID_REQUEST);
    await set("model", home.model);
    return told.join(", ");
  });
  await step("what is so already is set in silence", async () => {
    const options = await set("mode", "code");
    await me.settled();
    me.mark();
    for (const { id, currentValue } of options) equal(await set(id, currentValue), options);
    equal(me.news.map(({ sessionUpdate }) => sessionUpdate), []);
  });
}

async function turns(me) {
  await step("session/prompt with text, image, resource and link", async () => {
    const resource = { uri: "file:///notes.md", mimeType: "text/markdown", text: "# embedded" };
    writeFileSync(join(home.work, "linked.txt"), "linked\n");
    const { stopReason } = await me.prompt(
      { type: "text", text: "Look at the contents" },
      { type: "image", data: PIXEL, mimeType: "image/png" },
      { type: "resource", resource },
      { type: "resource_link", uri: `file://${home.work}/linked.txt`, name: "linked.txt" },
    );
    equal([stopReason, me.said("agent_message_chunk"), me.said("agent_thought_chunk")], ["end_turn", "I see all of it.", "A picture and more."]);
    const { used, size } = await me.update("usage_update");
    check(used > 0 && size > used, `usage ${used} of ${size}`);
    const notice = await me.update("notice");
    check(notice.title.includes("unusable"), `the server that cannot be used is not mentioned: ${notice.title}`);
    return `${used} of ${size} tokens; ${notice.severity}: ${notice.title}`;
  });
  await step("session_info_update", async () => (await me.update("session_info_update", ({ title }) => title)).title);
  await step("an edit: fs/read_text_file, session/request_permission, fs/write_text_file", async () => {
    writeFileSync(poem, "on disk\n");
    me.unsaved.set(poem, "roses are red\nviolets are red\n");
    equal((await me.say("Mend the poem")).stopReason, "end_turn");
    equal(readFileSync(poem, "utf8"), "roses are red\nviolets are blue\n");
    const [{ toolCall, options }] = me.permissions;
    equal(options.map(({ kind }) => kind).sort(), ["allow_always", "allow_once", "reject_always", "reject_once"]);
    const [diff] = toolCall.content;
    equal([diff.type, diff.path, toolCall.locations[0].path, toolCall.kind], ["diff", poem, poem, "edit"]);
    equal(me.calls.map(({ name, kind, status }) => [name, kind, status]), [["read", "read", "completed"], ["edit", "edit", "completed"]]);
  });
  await step("a command: terminal/*", async () => {
    await me.say("Run the count");
    const [{ name, status, rawOutput, content }] = me.calls;
    equal([name, status, rawOutput.exit_code, content[0].type], ["bash", "failed", 3, "terminal"]);
    return rawOutput.stdout.trim().split(/\s+/).join(" ");
  });
  await step("a call that is not allowed", async () => {
    me.decision = "reject_once";
    await me.say("Do the forbidden");
    equal(me.calls[0].status, "failed");
    me.decision = "allow_always";
  });
  await step("a call that is allowed for good is not asked about again", async () => {
    await me.say("Do it always");
    equal([me.permissions.length, ...me.calls.map(({ status }) => status)], [1, "completed", "completed"]);
    me.decision = "allow_once";
  });
  await step("plan", async () => {
    await me.say("Make a plan");
    const plans = me.news.filter(({ sessionUpdate }) => sessionUpdate === "plan");
    equal(plans.map(({ entries }) => entries.map(({ status }) => status)), [["in_progress", "pending"], ["completed", "completed"]]);
  });
  await step("stop reasons", async () => {
    const { session } = me;
    const reasons = { babble: "max_tokens", unseemly: "refusal", rounds: "max_turn_requests" };
    for (const [word, reason] of Object.entries(reasons)) {
      const { sessionId } = await me.open({ cwd: home.work, mcpServers: [] });
      equal((await me.say(word)).stopReason, reason);
      await me.ask("session/delete", { sessionId });
    }
    me.session = session;
    return Object.values(reasons).join(", ");
  });
  await step("a slash command", async () => {
    await me.say("/status");
    check(me.said("agent_message_chunk").includes("Model"), "no model in the status");
  });
}

async function questions(me) {
  await step("elicitation/create with a form, accepted and declined", async () => {
    me.answer = { action: "accept", content: { q1: "blue" } };
    await me.say("Ask me a question");
    const [{ mode, requestedSchema, sessionId }] = me.elicitations;
    equal([mode, sessionId, requestedSchema.properties.q1.oneOf.length], ["form", me.session, 2]);
    check(JSON.stringify(me.calls[0].rawOutput).includes("blue"), "the answer did not arrive");
    me.answer = { action: "decline" };
    await me.say("Ask me a question");
    equal(me.calls[0].status, "completed");
  });
  await step("elicitation/create with a page, elicitation/complete", async () => {
    me.answer = { action: "accept" };
    await me.say("Please sign in");
    const [{ mode, url, elicitationId }] = me.elicitations;
    equal([mode, url, me.completed], ["url", "https://login.example/start", [elicitationId]]);
    equal(me.calls[0].status, "completed");
  });
}

async function cancelling(me) {
  await step("session/cancel, and a second prompt meanwhile", async () => {
    const turn = me.say("Go on, endless");
    await me.update("agent_message_chunk");
    await refused(me.prompt({ type: "text", text: "too early" }), INVALID_REQUEST);
    await me.cancel();
    equal((await turn).stopReason, "cancelled");
  });
  await step("session/cancel while a question stands: $/cancel_request from the agent", async () => {
    me.answer = "never";
    const turn = me.say("Ask me a question");
    await me.asked();
    await me.cancel();
    equal((await turn).stopReason, "cancelled");
    await me.withdrawn();
  });
  await step("$/cancel_request from an AbortSignal", async () => {
    const abort = new AbortController();
    const turn = me.say("Go on, endless", { cancellationSignal: abort.signal });
    await me.update("agent_message_chunk");
    abort.abort();
    equal(await turn.then(({ stopReason }) => stopReason, ({ code }) => code), "cancelled");
    equal((await me.say("once again")).stopReason, "end_turn");
  });
}

async function afterwards(me) {
  const { session } = me;
  const where = { cwd: home.work, mcpServers: [] };
  const listed = async (params) => (await me.ask("session/list", params)).sessions.map(({ sessionId }) => sessionId);
  await step("session/list by folder and by cursor", async () => {
    const { sessionId: elsewhere } = await me.ask("session/new", { ...where, cwd: home.other });
    equal((await listed({})).sort(), [session, elsewhere].sort());
    equal(await listed({ cwd: home.work }), [session]);
    equal(await listed({ cwd: home.folder }), []);
    await refused(me.ask("session/list", { cursor: "nonsense" }), INVALID_PARAMS);
    const made = await Promise.all(Array.from({ length: 52 }, () => me.ask("session/fork", { ...where, sessionId: session })));
    const pages = [];
    for (let cursor, more = true; more; more = cursor !== undefined) {
      const { sessions, nextCursor } = await me.ask("session/list", { cwd: home.work, cursor });
      pages.push(sessions.map(({ sessionId }) => sessionId));
      cursor = nextCursor;
    }
    equal([pages.length, new Set(pages.flat()).size], [2, 53]);
    for (const { sessionId } of made) await me.ask("session/delete", { sessionId });
    equal(await listed({ cwd: home.work }), [session]);
  });
  const live = me.conversation();
  await step("session/close", async () => {
    await me.ask("session/close", { sessionId: session });
    await refused(me.prompt({ type: "text", text: "once again" }), NOT_FOUND);
  });
  await step("session/load tells all of it again", async () => {
    me.begin();
    await me.ask("session/load", { ...where, sessionId: session });
    equal(me.conversation(), live);
    return `${me.news.length} updates`;
  });
  await step("session/resume tells nothing", async () => {
    me.mark();
    await me.ask("session/resume", { sessionId: session, cwd: home.work });
    equal(me.news.filter(({ sessionUpdate }) => sessionUpdate !== "available_commands_update"), []);
    equal((await me.say("once again")).stopReason, "end_turn");
  });
  await step("session/fork: a branch of its own", async () => {
    const { sessionId, modes, configOptions } = await me.ask("session/fork", { ...where, sessionId: session });
    check(sessionId !== session && modes && configOptions, "not a session of its own");
    me.mark();
    me.session = sessionId;
    equal((await me.say("a branch")).stopReason, "end_turn");
    me.session = session;
    check(!me.news.some(({ content }) => content?.text?.includes("branch")), "the branch is told of in its origin");
    await me.ask("session/delete", { sessionId });
  });
  await step("session/delete, twice", async () => {
    const { sessionId } = await me.ask("session/new", where);
    await me.ask("session/delete", { sessionId });
    await me.ask("session/delete", { sessionId });
    await refused(me.ask("session/load", { ...where, sessionId }), NOT_FOUND);
  });
  await step("methods of our own, and methods of nobody", async () => {
    const { lines } = await me.ask("_acp_agent/status", { sessionId: session });
    check(lines.some((line) => line.startsWith("Model")), `no model in ${lines}`);
    for (const method of ["_acp_agent/teleport", "session/teleport", "session/set_model"])
      await refused(me.ask(method, { sessionId: session }), NO_METHOD);
    await me.tell("session/whatever", {});
    await me.tell("_somebody/else", {});
  });
  return session;
}

async function tomorrow(me, session) {
  await step("another process: session/list, session/load, and on it goes", async () => {
    const { sessions } = await me.ask("session/list", { cwd: home.work });
    equal(sessions.map(({ sessionId }) => sessionId), [session]);
    me.session = session;
    const { modes, configOptions } = await me.ask("session/load", { sessionId: session, cwd: home.work, mcpServers: [] });
    equal([modes.currentModeId, option(configOptions, "auto_approve").currentValue], ["architect", "auto-edit"]);
    check(me.said("user_message_chunk").includes("once again"), "the past is not told");
    equal((await me.say("once again")).stopReason, "end_turn");
    await me.ask("session/delete", { sessionId: session });
    equal((await me.ask("session/list", {})).sessions.filter(({ sessionId }) => sessionId === session), []);
    return sessions[0].title;
  });
}

try {
  let session;
  await against(async (me) => {
    await hello(me);
    await authentication(me);
    await opening(me);
    await everyOption(me);
    await turns(me);
    await questions(me);
    await cancelling(me);
    session = await afterwards(me);
    await me.setOption("auto_approve", "auto-edit");
    await me.ask("session/set_mode", { sessionId: session, modeId: "architect" });
  });
  await against(async (me) => {
    await hello(me);
    await tomorrow(me, session);
  });
  console.log(`${steps} steps`);
} catch (error) {
  console.log(`not ok ${error.message}\n${lastLog().slice(-4000)}`);
  process.exitCode = 1;
  process.exit();
}
