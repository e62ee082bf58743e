// A command with its input and output: on a pseudo-terminal where VS Code brings one, else on pipes.

import { spawn } from "node:child_process";
import { closeSync, constants, openSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

export interface Launched {
  write(data: string): void;
  resize(columns: number, rows: number): void;
  /** End the command and all that it started. */
  kill(): void;
}

export interface ExitStatus {
  exitCode: number | null;
  signal: string | null;
}

export interface CommandLine {
  command: string;
  args: string[];
  cwd: string;
  env: NodeJS.ProcessEnv;
}

export interface Watcher {
  output(text: string): void;
  ended(status: ExitStatus): void;
}

/** The part of node-pty that is used here. VS Code ships it for its own terminals. */
interface NodePty {
  spawn(
    file: string,
    args: string[],
    options: { name: string; cols: number; rows: number; cwd: string; env: NodeJS.ProcessEnv },
  ): {
    readonly pid: number;
    onData(listener: (data: string) => void): void;
    onExit(listener: (status: { exitCode: number; signal?: number }) => void): void;
    write(data: string): void;
    resize(columns: number, rows: number): void;
    kill(signal?: string): void;
  };
}

/** Return the node-pty of this VS Code, or undefined if it cannot be loaded. */
export function findNodePty(appRoot: string): NodePty | undefined {
  const load = createRequire(join(appRoot, "package.json"));
  for (const folder of ["node_modules", "node_modules.asar.unpacked", "node_modules.asar"]) {
    try {
      return load(join(appRoot, folder, "node-pty")) as NodePty;
    } catch {
      continue;
    }
  }
  return undefined;
}

export function launch(pty: NodePty | undefined, line: CommandLine, watcher: Watcher): Launched {
  return pty === undefined ? onPipes(line, watcher) : onPty(pty, line, watcher);
}

function onPty(pty: NodePty, line: CommandLine, watcher: Watcher): Launched {
  const options = { name: "xterm-256color", cols: 120, rows: 30, cwd: line.cwd, env: line.env };
  const child = pty.spawn(line.command, line.args, options);
  let running = true;
  let fresh = false;
  child.onData((data) => {
    fresh = true;
    watcher.output(data);
  });
  holdOpen(child, () => {
    const quiet = !fresh;
    fresh = false;
    return quiet;
  });
  child.onExit(({ exitCode, signal }) => {
    running = false;
    watcher.ended(signal ? { exitCode: null, signal: SIGNALS[signal] ?? `SIG${signal}` } : { exitCode, signal: null });
  });
  return {
    write: (data) => {
      if (running) child.write(data);
    },
    resize: (columns, rows) => {
      if (running && columns > 0 && rows > 0) child.resize(columns, rows);
    },
    kill: () => {
      if (!running) return;
      killGroup(child.pid, () => {
        child.kill();
      });
    },
  };
}

const WATCH_MS = 20;

/**
 * Keep the terminal open until all output of a command that ended is read. On Linux what is unread when the last program
 * closes a terminal is lost with it: often the summary of a test run.
 *
 * quiet   returns whether nothing was read since it was called last
 */
function holdOpen(child: object & { readonly pid: number }, quiet: () => boolean): void {
  const name = "_pty" in child ? child._pty : undefined;
  if (process.platform !== "linux" || typeof name !== "string") return;
  let held: number;
  try {
    held = openSync(name, constants.O_RDWR | constants.O_NOCTTY);
  } catch {
    return; // the command has ended already
  }
  const timer = setInterval(() => {
    if (isAlive(child.pid) || !quiet()) return;
    clearInterval(timer);
    closeSync(held);
  }, WATCH_MS);
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

const SIGNALS: Record<number, string> = { 1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 6: "SIGABRT", 9: "SIGKILL", 15: "SIGTERM" };

/** Without a pseudo-terminal what is typed is shown by us and sent line by line. */
function onPipes(line: CommandLine, watcher: Watcher): Launched {
  const child = spawn(line.command, line.args, {
    cwd: line.cwd,
    env: line.env,
    stdio: ["pipe", "pipe", "pipe"],
    detached: process.platform !== "win32", // a process group of its own, to be ended as a whole
  });
  let running = true;
  const end = (status: ExitStatus) => {
    if (running) {
      running = false;
      watcher.ended(status);
    }
  };
  for (const pipe of [child.stdout, child.stderr]) {
    pipe.setEncoding("utf8").on("data", (text: string) => {
      watcher.output(text.replace(/\r?\n/g, "\r\n"));
    });
  }
  child.stdin.on("error", () => undefined); // the command closed its input
  child.once("error", (error) => {
    watcher.output(`${error.message}\r\n`);
    end({ exitCode: 127, signal: null });
  });
  child.once("close", (exitCode, signal) => {
    end({ exitCode, signal });
  });
  const kill = (signal: NodeJS.Signals) => {
    const { pid } = child;
    if (!running || pid === undefined) return;
    if (signal === "SIGINT") killWith(pid, signal);
    else killGroup(pid, () => child.kill("SIGKILL"));
  };
  return {
    write: (data) => {
      if (data === "\u0003") kill("SIGINT");
      else if (data === "\u0004") child.stdin.end();
      else {
        const text = data.replace(/\r/g, "\n");
        watcher.output(text.replace(/\n/g, "\r\n"));
        child.stdin.write(text);
      }
    },
    resize: () => undefined,
    kill: () => {
      kill("SIGTERM");
    },
  };
}

const GRACE_MS = 1500;

/** End a process group: ask, then make sure. */
function killGroup(pid: number, otherwise: () => void): void {
  if (process.platform === "win32" || !killWith(pid, "SIGTERM")) {
    otherwise();
    return;
  }
  killWith(pid, "SIGHUP");
  setTimeout(() => {
    killWith(pid, "SIGKILL");
  }, GRACE_MS).unref();
}

function killWith(pid: number, signal: NodeJS.Signals): boolean {
  try {
    process.kill(-pid, signal);
    return true;
  } catch {
    return false;
  }
}
