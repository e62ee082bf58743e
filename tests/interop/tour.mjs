// A tour through the whole protocol with a client on the official TypeScript SDK.
//   node tour.mjs FOLDER COMMAND [ARG...]
// FOLDER is new and private: a home with a scripted model is made there, and FOLDER/wire-N.jsonl gets every message
// of the N-th agent. Prints one line a step; the first deviation ends the tour with exit code 1.
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { AUTH_REQUIRED, INVALID_PARAMS, INVALID_REQUEST, NO_METHOD, NOT_FOUND } from "./checks.mjs";
import { check, equal, refused, step, taken } from "./checks.mjs";
import { Agent, Home } from "./furnished.mjs";
import { cancelling, questions, turns } from "./turns.mjs";
import { Visitor } from "./visitor.mjs";

const [folder, ...command] = process.argv.slice(2);
mkdirSync(folder, { recursive: true });
const home = new Home(folder);
const SERVER = fileURLToPath(import.meta.resolve("./asking_server.mjs"));
const ASKING = { name: "asking", command: process.execPath, args: [SERVER], env: [] };
const UNUSABLE = { type: "http", name: "unusable", url: "gopher://127.0.0.1/", headers: [] };

let agents = 0, lastLog = () => "";

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

const option = (options, id) => options.find((each) => each.id === id);
const values = ({ options }) => options.flatMap((each) => each.options ?? [each]).map(({ value }) => value);

async function hello(me) {
  await step("initialize", async () => {
    const { protocolVersion, agentInfo, agentCapabilities: can, authMethods } = await me.initialize();
    equal([protocolVersion, agentInfo.name, can.loadSession], [1, "acp-agent", true]);
    equal(can.promptCapabilities, { image: true, embeddedContext: true });
    equal([can.mcpCapabilities.http, can.auth.logout], [true, {}]);
    const offered = Object.keys(can.sessionCapabilities).sort();
    equal(offered, ["additionalDirectories", "close", "delete", "fork", "list", "resume"]);
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
    const place = { cwd: home.work, additionalDirectories: [home.other] };
    const opened = await me.open({ ...place, mcpServers: [ASKING, UNUSABLE] });
    equal(opened.modes.availableModes.map(({ id }) => id), ["suggest", "auto-edit", "full-auto", "architect", "ask"]);
    equal(opened.configOptions.map(({ id }) => id), ["mode", "model"]);
    const { availableCommands } = await me.update("available_commands_update");
    const names = availableCommands.map(({ name }) => name);
    for (const name of ["help", "status", "model", "mode", "run"])
      check(names.includes(name), `no /${name} in ${names}`);
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
        for (const value of [...possible, currentValue])
          equal(option(await set(id, value), id).currentValue, value, id);
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
    equal(me.newsBut("available_commands_update"), []); // the servers come up meanwhile
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
    const fork = () => me.ask("session/fork", { ...where, sessionId: session });
    const made = await Promise.all(Array.from({ length: 52 }, fork));
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
    equal(me.newsBut("available_commands_update"), []);
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
    for (const method of ["_acp_agent/teleport", "session/teleport"])
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
    const place = { cwd: home.work, mcpServers: [] };
    const { modes, configOptions } = await me.ask("session/load", { sessionId: session, ...place });
    equal([modes.currentModeId, option(configOptions, "mode").currentValue], ["architect", "architect"]);
    equal(option(await me.setOption("mode", "code"), "mode").currentValue, "auto-edit");
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
  console.log(`${taken()} steps`);
} catch (error) {
  console.log(`not ok ${error.message}\n${lastLog().slice(-4000)}`);
  process.exitCode = 1;
  process.exit();
}
