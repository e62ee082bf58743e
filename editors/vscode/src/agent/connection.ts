// One agent process and the connection to it: spawn, initialize, stop. It is made anew after a crash.

import { spawn, type ChildProcess } from "node:child_process";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk";
import { cleanEnvironment } from "./environment.js";

const START_SECONDS = 30;
const STOP_SECONDS = 3;

export interface Launch {
  program: string;
  args: string[];
  env: Record<string, string>;
  cwd: string;
}

/** Registers the handlers of what the agent may ask. */
export type Serve = (app: acp.ClientApp) => acp.ClientApp;

export class AgentConnection {
  private constructor(
    private readonly child: ChildProcess,
    private readonly connection: acp.ClientConnection,
    readonly about: acp.InitializeResponse,
    /** Resolves when the process has ended, with the way it ended. */
    readonly ended: Promise<string>,
  ) {}

  get agent(): acp.ClientContext {
    return this.connection.agent;
  }

  /** Start the agent. Rejects with a message for the user if it does not start or answer. */
  static async start(
    launch: Launch,
    capabilities: acp.ClientCapabilities,
    version: string,
    serve: Serve,
    log: (text: string) => void,
  ): Promise<AgentConnection> {
    const child = spawn(launch.program, launch.args, {
      cwd: launch.cwd,
      env: cleanEnvironment(process.env, launch.env),
      stdio: ["pipe", "pipe", "pipe"],
    });
    let said = "";
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      said = (said + text).slice(-2000);
      log(text);
    });
    child.stdin.on("error", () => undefined); // the agent is gone: `ended` says so
    const ended = new Promise<string>((resolve) => {
      child.once("error", (error) => {
        resolve(`it cannot be started: ${error.message}`);
      });
      child.once("close", (code, signal) => {
        resolve(`it ended with ${signal ?? `exit code ${code ?? "unknown"}`}`);
      });
    });
    const stream = acp.ndJsonStream(
      Writable.toWeb(child.stdin) as WritableStream<Uint8Array>,
      Readable.toWeb(child.stdout) as ReadableStream<Uint8Array>,
    );
    const connection = serve(acp.client({ name: "acp-agent-vscode" })).connect(stream);
    try {
      const about = await withinTime(
        Promise.race([
          connection.agent.request(acp.methods.agent.initialize, {
            protocolVersion: acp.PROTOCOL_VERSION,
            clientCapabilities: capabilities,
            clientInfo: { name: "acp-agent-vscode", title: "acp-agent for VS Code", version },
          }),
          ended.then((how) => {
            const why = said.trim().split("\n").at(-1) ?? "";
            throw new Error(why === "" ? how : `${how}: ${why}`);
          }),
        ]),
        START_SECONDS,
      );
      if (about.protocolVersion !== acp.PROTOCOL_VERSION) {
        throw new Error(`it speaks version ${about.protocolVersion} of the protocol, not ${acp.PROTOCOL_VERSION}`);
      }
      return new AgentConnection(child, connection, about, ended);
    } catch (error) {
      child.kill();
      connection.close();
      throw error;
    }
  }

  /** End the agent: close its input, and kill it if it does not end by that. */
  async stop(): Promise<void> {
    this.child.stdin?.end();
    const timer = setTimeout(() => this.child.kill("SIGKILL"), STOP_SECONDS * 1000);
    await this.ended;
    clearTimeout(timer);
    this.connection.close();
  }
}

async function withinTime<T>(work: Promise<T>, seconds: number): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      reject(new Error(`it did not answer within ${seconds} seconds`));
    }, seconds * 1000);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}
