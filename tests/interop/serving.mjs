// What an editor serves: files and terminals of this machine, each method as the protocol has it.
import { spawn } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import * as acp from "@agentclientprotocol/sdk";

const { client: serve } = acp.methods;

/** The terminals of one editor, by id; those that were released are gone. */
export class Terminals {
  #open = new Map();
  #made = 0;

  get size() {
    return this.#open.size;
  }

  create({ command, args = [], cwd, env = [] }) {
    const child = spawn(command, args, {
      cwd,
      env: { ...process.env, ...Object.fromEntries(env.map(({ name, value }) => [name, value])) },
      stdio: ["ignore", "pipe", "pipe"],
    });
    const terminal = { output: "", exit: undefined, child };
    for (const pipe of [child.stdout, child.stderr]) pipe.on("data", (data) => (terminal.output += data));
    terminal.done = new Promise((resolve) =>
      child.on("close", (exitCode, signal) => resolve((terminal.exit = { exitCode, signal }))),
    );
    const terminalId = `t${(this.#made += 1)}`;
    this.#open.set(terminalId, terminal);
    return { terminalId };
  }

  output({ terminalId }) {
    const { output, exit } = this.#open.get(terminalId);
    return { output, truncated: false, exitStatus: exit };
  }

  waitForExit({ terminalId }) {
    return this.#open.get(terminalId).done;
  }

  kill({ terminalId }) {
    this.#open.get(terminalId).child.kill();
    return {};
  }

  release({ terminalId }) {
    this.#open.delete(terminalId);
    return {};
  }
}

/** Have a client of the SDK serve files and terminals. `unsaved` is what open buffers hold, by path. */
export function serving(app, terminals, unsaved = new Map()) {
  return app
    .onRequest(serve.fs.readTextFile, async ({ params: { path, line, limit } }) => {
      const text = unsaved.get(path) ?? (await readFile(path, "utf8").catch(refuse));
      if (line == null && limit == null) return { content: text };
      const first = (line ?? 1) - 1;
      return { content: text.split(/(?<=\n)/).slice(first, limit == null ? undefined : first + limit).join("") };
    })
    .onRequest(serve.fs.writeTextFile, async ({ params: { path, content } }) => {
      unsaved.delete(path);
      await writeFile(path, content);
      return {};
    })
    .onRequest(serve.terminal.create, ({ params }) => terminals.create(params))
    .onRequest(serve.terminal.output, ({ params }) => terminals.output(params))
    .onRequest(serve.terminal.waitForExit, ({ params }) => terminals.waitForExit(params))
    .onRequest(serve.terminal.kill, ({ params }) => terminals.kill(params))
    .onRequest(serve.terminal.release, ({ params }) => terminals.release(params));
}

function refuse(error) {
  throw error.code === "ENOENT" ? acp.RequestError.resourceNotFound(error.path) : error;
}
