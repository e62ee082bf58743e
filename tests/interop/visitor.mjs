// The editor of the tour: asks, answers, and keeps what it was told.
import * as acp from "@agentclientprotocol/sdk";
import { serving, Terminals } from "./serving.mjs";

const { client: serve } = acp.methods;
const PATIENCE = 20_000;
const CAPABILITIES = {
  fs: { readTextFile: true, writeTextFile: true },
  terminal: true,
  auth: { terminal: true },
  session: { configOptions: { boolean: {} }, notices: {}, compaction: {} },
  elicitation: { form: {}, url: {} },
};
const MESSAGES = ["user_message_chunk", "agent_message_chunk", "agent_thought_chunk"];

export class Visitor {
  terminals = new Terminals();
  unsaved = new Map();
  openCalls = new Set();
  decision = "allow_once"; // how permission questions are answered, by kind
  answer = { action: "cancel" }; // to elicitations; "never" leaves them open
  session = "";
  permissions = [];
  elicitations = [];
  completed = [];
  #told = []; // session/update params, in order
  #mark = 0;
  #withdrawn = 0;
  #changed = () => {};

  constructor(home) {
    this.home = home;
    this.app = serving(acp.client({ name: "acp-agent-tour" }), this.terminals, this.unsaved)
      .onNotification(serve.session.update, ({ params }) => this.#take(params))
      .onNotification(serve.elicitation.complete, ({ params }) => this.completed.push(params.elicitationId))
      .onRequest(serve.session.requestPermission, ({ params }) => this.#decide(params))
      .onRequest(serve.elicitation.create, ({ params, signal }) => this.#elicited(params, signal));
  }

  /** The SDK tells of what it cannot read, or did not ask for, on the console: none of that is to happen. */
  async connect(stream, visit) {
    const complaints = [];
    const { error } = console;
    console.error = (...words) => complaints.push(words.map(String).join(" "));
    try {
      await this.app.connectWith(stream, async (agent) => {
        this.agent = agent;
        await visit(this);
      });
    } finally {
      console.error = error;
    }
    if (complaints.length) throw new Error(`the SDK complains: ${complaints.join("; ")}`);
  }

  // ------------------------------------------------------------------------------------ asking

  ask(method, params, options) {
    return this.#patiently(`an answer to ${method}`, this.agent.request(method, params, options));
  }

  tell(method, params) {
    return this.agent.notify(method, params);
  }

  initialize() {
    return this.ask("initialize", {
      protocolVersion: acp.PROTOCOL_VERSION,
      clientCapabilities: CAPABILITIES,
      clientInfo: { name: "acp-agent-tour", version: "1" },
    });
  }

  async open(params) {
    const opened = await this.ask("session/new", params);
    this.session = opened.sessionId;
    return opened;
  }

  async setOption(configId, value) {
    const type = typeof value === "boolean" ? { type: "boolean" } : {};
    const params = { sessionId: this.session, configId, ...type, value };
    return (await this.ask("session/set_config_option", params)).configOptions;
  }

  prompt(...blocks) {
    return this.ask("session/prompt", { sessionId: this.session, prompt: blocks });
  }

  /** A turn whose updates are the `news`; what was asked in former ones is forgotten. */
  say(text, options) {
    this.mark();
    Object.assign(this, { permissions: [], elicitations: [], completed: [] });
    const params = { sessionId: this.session, prompt: [{ type: "text", text }] };
    return this.ask("session/prompt", params, options);
  }

  cancel() {
    return this.tell("session/cancel", { sessionId: this.session });
  }

  // ------------------------------------------------------------------------------------ what was told

  mark() {
    this.#mark = this.#told.length;
  }

  /** Forget all that was told. */
  begin() {
    this.#told = [];
    this.#mark = 0;
  }

  get #updates() {
    return this.#told.filter(({ sessionId }) => sessionId === this.session).map(({ update }) => update);
  }

  /** What the session has told since the mark. */
  get news() {
    const since = this.#told.slice(this.#mark);
    return since.filter(({ sessionId }) => sessionId === this.session).map(({ update }) => update);
  }

  newsBut(kind) {
    return this.news.filter(({ sessionUpdate }) => sessionUpdate !== kind);
  }

  /** The first update of a kind since the mark, waiting for it. */
  update(kind, wanted = () => true) {
    const found = () => this.news.find((each) => each.sessionUpdate === kind && wanted(each));
    return this.#until(kind, found);
  }

  asked() {
    return this.#until("a question", () => this.elicitations.length > 0);
  }

  withdrawn() {
    return this.#until("a question to be withdrawn", () => this.#withdrawn > 0);
  }

  /** Nothing is on its way any more that was told before this. */
  settled() {
    return this.ask("session/list", { cwd: this.home.folder });
  }

  said(kind) {
    const chunks = this.news.filter(({ sessionUpdate }) => sessionUpdate === kind);
    return chunks.map(({ content }) => content.text ?? "").join("");
  }

  /** The tool calls since the mark, each with all its updates in one. */
  get calls() {
    return cards(this.news);
  }

  /** What the user sees of the whole session: messages of the agent, cards, plan, title. */
  conversation() {
    return folded(this.#updates);
  }

  // ------------------------------------------------------------------------------------ serving

  #take(params) {
    const { update } = params;
    if (update.sessionUpdate === "tool_call") this.openCalls.add(update.toolCallId);
    if (["completed", "failed"].includes(update.status)) this.openCalls.delete(update.toolCallId);
    this.#told.push(params);
    this.#changed();
  }

  #decide(params) {
    this.permissions.push(params);
    const { optionId } = params.options.find(({ kind }) => kind === this.decision);
    return { outcome: { outcome: "selected", optionId } };
  }

  async #elicited(params, signal) {
    this.elicitations.push(params);
    this.#changed();
    if (this.answer !== "never") return this.answer;
    await new Promise((resolve) => signal.addEventListener("abort", resolve));
    this.#withdrawn += 1;
    this.#changed();
    return { action: "cancel" };
  }

  // ------------------------------------------------------------------------------------ waiting

  async #until(what, found) {
    for (;;) {
      const result = found();
      if (result) return result;
      await this.#patiently(what, new Promise((resolve) => (this.#changed = resolve)));
    }
  }

  async #patiently(what, promise) {
    let timer;
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error(`${what} did not come within ${PATIENCE / 1000} s`)), PATIENCE);
    });
    return Promise.race([promise, late]).finally(() => clearTimeout(timer));
  }
}

/** Tool calls, each with all its updates in one. */
function cards(updates) {
  return folded(updates, (card) => card).filter(({ toolCallId }) => toolCallId);
}

/** Without what commands showed: terminals are gone when their story is told again. Their `rawOutput` is not. */
function lasting({ content, ...card }) {
  return content && card.kind !== "execute" ? { ...card, content } : card;
}

/** Updates as an editor draws them. */
function folded(updates, kept = lasting) {
  const drawn = new Map();
  for (const update of updates) {
    const { sessionUpdate: kind, toolCallId, messageId, content, _meta, ...members } = update;
    if (kind === "user_message_chunk") continue; // an editor draws what it sends itself
    if (MESSAGES.includes(kind)) {
      const message = drawn.get(messageId) ?? { kind, text: "" };
      drawn.set(messageId, { ...message, text: message.text + content.text });
    } else if (toolCallId) {
      drawn.set(toolCallId, { toolCallId, ...drawn.get(toolCallId), ...members, ...(content && { content }) });
    } else if (kind === "plan") {
      drawn.set("plan", update);
    }
  }
  return [...drawn.values()].map(kept);
}
