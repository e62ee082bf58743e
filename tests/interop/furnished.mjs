// A private home for one agent with a model that plays a script, and the agent as a process.
import { spawn } from "node:child_process";
import { appendFileSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk";

const uses = (name, args) => ({ tools: [{ name, arguments: args }] });
const says = (text) => ({ text });
const plan = (first, second) => [
  { content: "look", status: first, priority: "high" },
  { content: "mend", status: second, priority: "low" },
];

/** What the model does, by a word of the prompt. */
const TURNS = {
  contents: [{ thought: ["A picture ", "and more."], text: ["I see ", "all of it."] }],
  poem: [
    uses("read", { path: "poem.txt" }),
    uses("edit", { path: "poem.txt", old_string: "violets are red", new_string: "violets are blue" }),
    says("Mended."),
  ],
  count: [uses("bash", { command: "echo one; echo two; exit 3" }), says("It fails.")],
  forbidden: [uses("write", { path: "never.txt", content: "no\n" }), says("Then not.")],
  always: [uses("bash", { command: "git init nested" }), uses("bash", { command: "git init another" }), says("Twice.")],
  plan: [
    uses("update_plan", { entries: plan("in_progress", "pending") }),
    uses("update_plan", { entries: plan("completed", "completed") }),
    says("Planned."),
  ],
  question: [
    uses("ask_user", { questions: [{ question: "Which colour?", options: [{ label: "red" }, { label: "blue" }] }] }),
    says("Thank you."),
  ],
  "sign in": [uses("mcp_asking_sign_in", {}), says("Signed in.")],
  endless: [{ text: "I think", hang: true }],
  babble: [{ text: "and on", stop: "max_tokens" }],
  unseemly: [{ text: "No.", stop: "refusal" }],
  rounds: Array.from({ length: 9 }, (_, number) => uses("list_directory", { path: number % 2 ? "." : ".." })),
  branch: [says("In a branch.")],
  again: [says("Still here.")],
};

/** A home below `folder`: configuration, script, data. */
export class Home {
  constructor(folder) {
    this.folder = join(folder, "home");
    this.work = join(folder, "work");
    this.other = join(folder, "other");
    for (const each of [this.folder, this.work, this.other]) mkdirSync(each, { recursive: true });
    const turns = Object.entries(TURNS).map(([when, steps]) => ({ when, steps }));
    const script = this.file("script.json", JSON.stringify({ turns }));
    this.model = `scripted:${script}`;
    this.config = this.file(
      "config.toml",
      `[llm]
model = ${JSON.stringify(this.model)}
list_models = false
[[llm.models]]
id = "anthropic:claude-opus-4-6"
context_window = 100000
[[llm.models]]
id = "openai:gpt-4.1"
context_window = 100000
[[llm.models]]
id = "local:qwen3:8b"
context_window = 100000
[[llm.providers]]
name = "local"
type = "ollama"
base_url = "http://127.0.0.1:9"
thinking = true
[agent]
max_tool_iterations = 4
[memory.sessions]
titles = "prompt"
`,
    );
  }

  file(name, text) {
    const path = join(this.folder, name);
    writeFileSync(path, text);
    return path;
  }

  /** No key, history or setting of this machine is seen. */
  get environment() {
    return {
      PATH: process.env.PATH,
      LANG: "C.UTF-8",
      HOME: this.folder,
      ACP_AGENT_CONFIG: this.config,
      ACP_AGENT_DATA_DIR: join(this.folder, "data"),
      ACP_AGENT_ACP_FORK: "1",
      ANTHROPIC_API_KEY: "obviously-fake-key",
      OPENAI_API_KEY: "obviously-fake-key",
    };
  }
}

/** One agent process. Every message is appended to `wire`, a line each, with who sent it. */
export class Agent {
  log = "";

  constructor(home, wire, [command, ...args]) {
    this.process = spawn(command, args, { cwd: home.folder, env: home.environment, stdio: ["pipe", "pipe", "pipe"] });
    this.process.stderr.on("data", (data) => (this.log += data));
    this.ended = new Promise((resolve, reject) => {
      this.process.on("close", (code, signal) => resolve(signal ?? code));
      this.process.on("error", reject);
    });
    const { readable, writable } = acp.ndJsonStream(
      Writable.toWeb(this.process.stdin),
      Readable.toWeb(this.process.stdout),
    );
    const recorded = (from) =>
      new TransformStream({
        transform(message, controller) {
          appendFileSync(wire, `${JSON.stringify({ from, message })}\n`);
          controller.enqueue(message);
        },
      });
    const outgoing = recorded("editor");
    outgoing.readable.pipeTo(writable).catch(() => {});
    this.stream = { readable: readable.pipeThrough(recorded("agent")), writable: outgoing.writable };
  }

  /** Close its input, as an editor does that quits; how it ended. */
  async quit() {
    this.process.stdin.end();
    return this.ended;
  }
}
