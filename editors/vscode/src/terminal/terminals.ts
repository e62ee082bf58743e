// terminal/* of ACP in terminals of VS Code. The person sees the command there and can type into it.

import * as acp from "@agentclientprotocol/sdk";
import * as vscode from "vscode";
import { cleanEnvironment } from "../agent/environment.js";
import { OutputBuffer } from "./output.js";
import { type ExitStatus, findNodePty, launch, type Launched } from "./pty.js";
import { plainOutput, tail } from "./text.js";

const DEFAULT_LIMIT = 1024 * 1024;
const SHOWN_CHARACTERS = 20_000;
/** Bytes of which a card shows the end; escapes take a part of them. */
const SHOWN_BYTES = 64_000;
const MOST_KEPT = 20;
/** Milliseconds between two reports of new output to the chat. */
const REPORT_MS = 100;

class AgentTerminal implements vscode.Pseudoterminal {
  private readonly writer = new vscode.EventEmitter<string>();
  private readonly closer = new vscode.EventEmitter<number>();
  readonly onDidWrite = this.writer.event;
  readonly onDidClose = this.closer.event;
  readonly output: OutputBuffer;
  readonly exited: Promise<ExitStatus>;
  status: ExitStatus | undefined;
  terminal: vscode.Terminal | undefined;
  released = false;
  private process: Launched | undefined;
  private pending: string[] | undefined = [];
  private finish: (status: ExitStatus) => void = () => undefined;

  constructor(
    readonly id: string,
    readonly sessionId: string,
    limit: number,
    private readonly report: () => void,
  ) {
    this.output = new OutputBuffer(limit);
    this.exited = new Promise((resolve) => (this.finish = resolve));
  }

  /** Run the command. What it prints before VS Code has opened the terminal is shown when it has. */
  run(start: (watcher: { output(text: string): void; ended(status: ExitStatus): void }) => Launched): void {
    this.process = start({
      output: (text) => {
        this.output.append(text);
        this.show(text);
        this.report();
      },
      ended: (status) => {
        this.status = status;
        this.show(`\r\n\u001b[2m${describe(status)}\u001b[0m\r\n`);
        this.finish(status);
        this.report();
      },
    });
  }

  open(size: vscode.TerminalDimensions | undefined): void {
    if (size !== undefined) this.process?.resize(size.columns, size.rows);
    for (const text of this.pending ?? []) this.writer.fire(text);
    this.pending = undefined;
  }

  /** The person closed the terminal, which ends the command. */
  close(): void {
    this.terminal = undefined;
    this.kill();
  }

  handleInput(data: string): void {
    if (this.status === undefined) this.process?.write(data);
  }

  setDimensions(size: vscode.TerminalDimensions): void {
    this.process?.resize(size.columns, size.rows);
  }

  kill(): void {
    if (this.status === undefined) this.process?.kill();
  }

  dispose(): void {
    this.kill();
    this.terminal?.dispose();
  }

  private show(text: string): void {
    if (this.pending !== undefined) this.pending.push(text);
    else this.writer.fire(text);
  }
}

export class Terminals implements vscode.Disposable {
  private readonly all = new Map<string, AgentTerminal>();
  private readonly timers = new Map<string, NodeJS.Timeout>();
  private readonly pty = findNodePty(vscode.env.appRoot);
  private made = 0;

  /** `titleOf` returns the command that a card shows: the agent hands over a script. */
  constructor(
    private readonly changed: (sessionId: string, terminalId: string) => void,
    private readonly titleOf: (sessionId: string) => string | undefined,
  ) {}

  create(params: acp.CreateTerminalRequest): acp.CreateTerminalResponse {
    this.made += 1;
    const id = `terminal-${this.made}`;
    const terminal = new AgentTerminal(id, params.sessionId, params.outputByteLimit ?? DEFAULT_LIMIT, () => {
      this.reportLater(terminal);
    });
    const added = Object.fromEntries((params.env ?? []).map(({ name, value }) => [name, value]));
    const env = cleanEnvironment(process.env, added);
    const cwd = params.cwd ?? vscode.workspace.workspaceFolders?.[0]?.uri.fsPath ?? process.cwd();
    const line = { command: params.command, args: params.args ?? [], cwd, env };
    try {
      terminal.run((watcher) => launch(this.pty, line, watcher));
    } catch (error) {
      throw new acp.RequestError(-32603, error instanceof Error ? error.message : String(error));
    }
    const title = this.titleOf(params.sessionId) ?? [params.command, ...(params.args ?? [])].join(" ");
    terminal.terminal = vscode.window.createTerminal({
      name: title.split("\n")[0]?.slice(0, 60) ?? "acp-agent",
      pty: terminal,
      iconPath: new vscode.ThemeIcon("hubot"),
    });
    this.all.set(id, terminal);
    this.forgetOld();
    return { terminalId: id };
  }

  output(params: acp.TerminalOutputRequest): acp.TerminalOutputResponse {
    const terminal = this.get(params.terminalId);
    const { text, truncated } = terminal.output;
    return { output: text, truncated, ...(terminal.status === undefined ? {} : { exitStatus: terminal.status }) };
  }

  async waitForExit(params: acp.WaitForTerminalExitRequest): Promise<acp.WaitForTerminalExitResponse> {
    return this.get(params.terminalId).exited;
  }

  kill(params: acp.KillTerminalRequest): acp.KillTerminalResponse {
    this.get(params.terminalId).kill();
    return {};
  }

  /** The agent needs the terminal no more. The person may still read it. */
  release(params: acp.ReleaseTerminalRequest): acp.ReleaseTerminalResponse {
    const terminal = this.get(params.terminalId);
    terminal.kill();
    terminal.released = true;
    return {};
  }

  /** Return the end of a terminal's output as a card shows it. */
  shown(terminalId: string): { output: string; exit?: string } | undefined {
    const terminal = this.all.get(terminalId);
    if (terminal === undefined) return undefined;
    const output = tail(plainOutput(terminal.output.end(SHOWN_BYTES)), SHOWN_CHARACTERS);
    return { output, ...(terminal.status === undefined ? {} : { exit: describe(terminal.status) }) };
  }

  /** Show a terminal to the person. Return whether it still exists. */
  reveal(terminalId: string): boolean {
    const shown = this.all.get(terminalId)?.terminal;
    shown?.show();
    return shown !== undefined;
  }

  /** The agent is gone: nobody waits for these commands any more. */
  killAll(): void {
    for (const terminal of this.all.values()) terminal.kill();
  }

  dispose(): void {
    for (const timer of this.timers.values()) clearTimeout(timer);
    for (const terminal of this.all.values()) terminal.dispose();
  }

  private get(id: string): AgentTerminal {
    const terminal = this.all.get(id);
    if (terminal === undefined || terminal.released) throw acp.RequestError.resourceNotFound(id);
    return terminal;
  }

  private reportLater(terminal: AgentTerminal): void {
    if (this.timers.has(terminal.id)) return;
    const timer = setTimeout(() => {
      this.timers.delete(terminal.id);
      this.changed(terminal.sessionId, terminal.id);
    }, REPORT_MS);
    this.timers.set(terminal.id, timer);
  }

  /** Close the oldest terminals that are done, so that a long session does not fill the panel. */
  private forgetOld(): void {
    const done = [...this.all.values()].filter((each) => each.released && each.status !== undefined);
    for (const terminal of done.slice(0, Math.max(0, done.length - MOST_KEPT))) {
      terminal.dispose();
      this.all.delete(terminal.id);
    }
  }
}

function describe({ exitCode, signal }: ExitStatus): string {
  return signal === null ? `exit code ${exitCode ?? "unknown"}` : `ended by ${signal}`;
}
