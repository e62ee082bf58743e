import assert from "node:assert/strict";
import { test } from "node:test";
import { type ExitStatus, launch, type Launched } from "../src/terminal/pty.js";

/** Run a command on pipes, as where VS Code has no pseudo-terminal library. */
function run(command: string, seen?: (output: string, launched: Launched) => void) {
  let output = "";
  return new Promise<{ output: string; status: ExitStatus }>((resolve) => {
    const launched = launch(
      undefined,
      { command: "sh", args: ["-c", command], cwd: "/", env: process.env },
      {
        output: (text) => {
          output += text;
          seen?.(output, launched);
        },
        ended: (status) => {
          resolve({ output, status });
        },
      },
    );
  });
}

test("a command's output and exit code are told", async () => {
  const { output, status } = await run("echo out; echo err >&2; exit 3");
  assert.deepEqual([...output.split("\r\n")].sort(), ["", "err", "out"]);
  assert.deepEqual(status, { exitCode: 3, signal: null });
});

test("what the person types reaches the command and is shown", async () => {
  let typed = false;
  const { output } = await run("printf 'name? '; read name; echo hello $name", (seen, launched) => {
    if (typed || !seen.includes("name? ")) return;
    typed = true;
    launched.write("Ann\r");
  });
  assert.equal(output, "name? Ann\r\nhello Ann\r\n");
});

test("a kill ends the command with all that it started", async () => {
  // The end comes when the pipes are closed, and the sleep holds them.
  const { status } = await run("sleep 60 & echo started; wait", (seen, launched) => {
    if (seen.includes("started")) launched.kill();
  });
  assert.equal(status.signal, "SIGTERM");
});

test("Control-C interrupts, Control-D ends the input", async () => {
  const interrupted = await run("trap 'echo stopped; exit 0' INT; echo on; while :; do sleep 0.05; done", (seen, launched) => {
    if (seen === "on\r\n") launched.write("\u0003");
  });
  assert.match(interrupted.output, /stopped/);
  const ended = await run("echo on; cat; echo end", (seen, launched) => {
    if (seen === "on\r\n") launched.write("\u0004");
  });
  assert.match(ended.output, /end/);
});

test("a program that does not exist ends with 127", async () => {
  const status = await new Promise<ExitStatus>((resolve) => {
    const line = { command: "/nowhere/program", args: [], cwd: "/", env: {} };
    launch(undefined, line, { output: () => undefined, ended: resolve });
  });
  assert.deepEqual(status, { exitCode: 127, signal: null });
});
