// The sessions of this window and the agent that runs them: start, restart after a crash, new, load, resume, delete.

import * as acp from "@agentclientprotocol/sdk";
import { AgentConnection, type Launch, type Serve } from "../agent/connection.js";
import type { Frame } from "../chat/messages.js";
import { Session, type SessionListener, updatesHandled } from "./session.js";
import type { TerminalOutput } from "./transcript.js";

const MOST_CRASHES = 3;
const CRASH_WINDOW_MS = 60_000;
/** A session may still be open in the process that the reload of a window left behind. */
const LOAD_ATTEMPTS = 6;
const LOAD_PAUSE_MS = 500;

export interface Host {
  /** Return how the agent is started. Undefined if there is no program. Throws with a message for the user. */
  launch(): Promise<Launch | undefined>;
  capabilities(): acp.ClientCapabilities;
  folders(): string[];
  /** Return the MCP servers that new and loaded sessions get. */
  mcpServers(takes: acp.McpCapabilities | undefined): acp.McpServer[];
  serve(app: acp.ClientApp): acp.ClientApp;
  /** The agent is there, until the returned function is called. */
  connected(agent: acp.ClientContext): () => void;
  /** The state of the agent or the current session changed. */
  changed(): void;
  /** Remember the session that a new window opens again. */
  remember(sessionId: string | undefined): void;
  /** Return whether a turn of the session ran when the agent was stopped, and forget it. */
  wasInterrupted(sessionId: string): boolean;
  log(text: string): void;
  version: string;
}

export class Conversations {
  current: Session | undefined;
  state: Frame["agent"] = "starting";
  detail = "";
  connection: AgentConnection | undefined;
  private readonly sessions = new Map<string, Session>();
  private starting: Promise<void> | undefined;
  private crashes: number[] = [];
  private stopping = false;
  private disconnected: () => void = () => undefined;

  constructor(
    private readonly host: Host,
    private readonly listener: SessionListener,
    private readonly terminalOutput: TerminalOutput,
  ) {}

  get(id: string): Session | undefined {
    return this.sessions.get(id);
  }

  /** Whether the agent runs, and shall go on. */
  get alive(): boolean {
    return this.connection !== undefined && !this.stopping;
  }

  /** Start the agent, unless it runs, and open the session `reopen` or a new one. */
  start(reopen?: string): Promise<void> {
    if (this.state === "ready") return Promise.resolve();
    this.starting ??= this.startNow(reopen).finally(() => (this.starting = undefined));
    return this.starting;
  }

  async restart(): Promise<void> {
    const reopen = this.current?.prompted === true ? this.current.id : undefined;
    await this.stop();
    this.crashes = [];
    await this.start(reopen);
  }

  async stop(): Promise<void> {
    this.stopping = true;
    try {
      await this.connection?.stop();
    } finally {
      this.stopping = false;
      this.connection = undefined;
      this.become("stopped", "");
    }
  }

  async open(): Promise<Session> {
    const agent = this.agent();
    const place = this.place();
    const answer = await agent.request(acp.methods.agent.session.new, place);
    const session = this.make(answer.sessionId, place.cwd);
    session.opened(answer);
    this.show(session);
    return session;
  }

  /** Show a session. One that is not open is loaded, or resumed without its conversation. */
  async load(id: string, cwd: string, how: "load" | "resume" = "load"): Promise<void> {
    const known = this.sessions.get(id);
    if (known !== undefined) {
      this.show(known);
      return;
    }
    const session = this.make(id, cwd);
    try {
      await this.loadInto(session, how);
    } catch (error) {
      this.sessions.delete(id);
      throw error;
    }
    if (how === "resume") session.transcript.notice("info", "The session goes on. What was said before is not shown.");
    this.show(session);
  }

  async list(): Promise<acp.SessionInfo[]> {
    const found: acp.SessionInfo[] = [];
    let cursor: string | undefined;
    do {
      const page: acp.ListSessionsResponse = await this.agent().request(acp.methods.agent.session.list, {
        cwd: this.place().cwd,
        ...(cursor === undefined ? {} : { cursor }),
      });
      found.push(...page.sessions);
      cursor = page.nextCursor ?? undefined;
    } while (cursor !== undefined && found.length < 500);
    return found;
  }

  async delete(id: string): Promise<void> {
    await this.agent().request(acp.methods.agent.session.delete, { sessionId: id });
    this.sessions.delete(id);
    if (this.current?.id === id) await this.open();
  }

  show(session: Session): void {
    this.current = session;
    this.host.remember(session.id);
    this.host.changed();
  }

  private async startNow(reopen: string | undefined): Promise<void> {
    this.become("starting", "The agent is starting...");
    try {
      const launch = await this.host.launch();
      if (launch === undefined) {
        this.become("missing", "The program acp-agent was not found.");
        return;
      }
      this.host.log(`starting ${[launch.program, ...launch.args].join(" ")} in ${launch.cwd}\n`);
      const serve: Serve = (app) => this.host.serve(app);
      const log = this.host.log.bind(this.host);
      const connection = await AgentConnection.start(launch, this.host.capabilities(), this.host.version, serve, log);
      this.connection = connection;
      this.disconnected = this.host.connected(connection.agent);
      void connection.ended.then((how) => {
        this.ended(connection, how);
      });
      await this.reopen(reopen);
      this.become("ready", "");
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      this.host.log(`the agent did not start: ${why}\n`);
      this.become("stopped", `The agent did not start: ${why}`);
    }
  }

  /** Open the session of before. The others of this window are loaded when they are shown. */
  private async reopen(id: string | undefined): Promise<void> {
    const known = id === undefined ? undefined : this.sessions.get(id);
    this.sessions.clear();
    if (id !== undefined) {
      const session = known ?? this.make(id, this.place().cwd);
      session.reconnect(this.agent());
      this.sessions.set(id, session);
      session.transcript.clear();
      this.show(session);
      try {
        await this.loadInto(session, "load");
        return;
      } catch (error) {
        this.sessions.delete(id);
        this.host.log(`session ${id} was not loaded: ${error instanceof Error ? error.message : String(error)}\n`);
      }
    }
    await this.open();
  }

  private async loadInto(session: Session, how: "load" | "resume"): Promise<void> {
    const params: acp.LoadSessionRequest = { sessionId: session.id, ...this.place(), cwd: session.cwd };
    for (let attempt = 1; ; attempt += 1) {
      try {
        const answer =
          how === "load"
            ? await this.agent().request(acp.methods.agent.session.load, params)
            : await this.agent().request(acp.methods.agent.session.resume, params);
        await updatesHandled();
        session.transcript.ended();
        session.prompted = true;
        if (this.host.wasInterrupted(session.id)) session.transcript.notice("warning", "The last turn was interrupted.");
        session.opened(answer);
        return;
      } catch (error) {
        const busy = error instanceof acp.RequestError && error.code === -32600;
        if (!busy || attempt === LOAD_ATTEMPTS) throw error;
        await new Promise((resolve) => setTimeout(resolve, LOAD_PAUSE_MS));
      }
    }
  }

  private ended(connection: AgentConnection, how: string): void {
    this.disconnected();
    this.host.log(`the agent is gone: ${how}\n`);
    if (this.stopping || this.connection !== connection) return;
    this.connection = undefined;
    const now = Date.now();
    this.crashes = [...this.crashes.filter((at) => now - at < CRASH_WINDOW_MS), now];
    if (this.crashes.length > MOST_CRASHES) {
      this.become("stopped", `The agent stopped ${MOST_CRASHES + 1} times within a minute; the last time ${how}`);
      return;
    }
    this.become("starting", `The agent stopped (${how}). It is being started again...`);
    const reopen = this.current?.prompted === true ? this.current.id : undefined;
    if (reopen !== undefined) this.host.wasInterrupted(reopen); // which is told below, in other words
    void this.start(reopen).then(() => {
      if (this.state === "ready") {
        this.current?.transcript.notice("warning", `The agent stopped (${how}) and was started again. Its turn was interrupted.`);
      }
    });
  }

  private make(id: string, cwd: string): Session {
    const session = new Session(id, cwd, this.agent(), this.listener, this.terminalOutput);
    this.sessions.set(id, session);
    return session;
  }

  private agent(): acp.ClientContext {
    if (this.connection === undefined) throw new Error("The agent does not run.");
    return this.connection.agent;
  }

  /** Return where a session works, and with which MCP servers. */
  private place(): acp.NewSessionRequest {
    const [cwd, ...others] = this.host.folders();
    if (cwd === undefined) throw new Error("No folder is open. Open the folder of your project first.");
    const can = this.connection?.about.agentCapabilities;
    const several = can?.sessionCapabilities?.additionalDirectories != null && others.length > 0;
    const mcpServers = this.host.mcpServers(can?.mcpCapabilities);
    return { cwd, mcpServers, ...(several ? { additionalDirectories: others } : {}) };
  }

  private become(state: Frame["agent"], detail: string): void {
    this.state = state;
    this.detail = detail;
    this.host.changed();
  }
}
