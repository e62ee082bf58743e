// From a checkout to a command in a terminal of VS Code, as a new user does it: commands and clicks are counted.
// A clean HOME, a clean Python environment, a clean clone; code-server stands in for `code`. Key and model are in the environment.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { begin, box, chat, editor, model, page, pause, question, stop, until } from "./steps.mjs";

const run = promisify(execFile);
const checkout = resolve(import.meta.dirname, "../../../..");
const done = { commands: [], clicks: [] };

async function prepare(home, code, environ) {
  const venv = join(home, "venv");
  const clone = join(home, "acp-agent");
  const bin = join(home, "bin");
  // What the user has already: a clone, a Python environment, VS Code with its command `code`, a key and a model.
  await run("git", ["clone", "-q", checkout, clone]);
  await run("python3", ["-m", "venv", venv]);
  await run("mkdir", [bin]);
  await writeFile(join(bin, "code"), `#!/bin/sh\nexec ${code.map((each) => `'${each}'`).join(" ")} "$@"\n`, { mode: 0o755 });
  const { PATH, npm_config_userconfig = join(process.env.HOME, ".npmrc") } = process.env;
  const variables = { ...environ, PATH: `${bin}:${venv}/bin:${PATH}`, npm_config_userconfig };
  for (const name of ["ACP_AGENT_DATA_DIR", "ACP_AGENT_CONFIG"]) delete variables[name];
  for (const command of ["make extension", "pip install .", "acp-agent setup vscode --write"]) {
    done.commands.push(command);
    const { stdout } = await run("sh", ["-c", command], { cwd: clone, env: variables, maxBuffer: 1 << 26 });
    if (command.startsWith("acp-agent")) console.log(stdout.replaceAll(home, "~").trim());
  }
  return { ...variables, OPENAI_BASE_URL: model.url, OPENAI_API_KEY: "fake-key-of-the-tour", ACP_AGENT_MODEL: "openai:tour-large" };
}

begin({
  files: { "shop.py": "PRICE = 1\n" },
  scripts: { first: [{ calls: [["bash", { command: "for n in 1 2; do echo line $n; done" }]] }, { text: ["Done."] }] },
  prepare,
});

async function click(what, target) {
  done.clicks.push(what);
  await target.click();
}

stop("a new user gets to a command in a terminal of VS Code with three commands and two clicks", async () => {
  // VS Code asks once whether a new folder is trusted, before any extension. It is no part of our way.
  const trust = page.getByRole("button", { name: "Yes, I trust the authors" });
  await trust.waitFor({ timeout: 10_000 }).then(() => trust.click(), () => undefined);
  await click("the icon of acp-agent", page.locator(".activitybar [aria-label^='acp-agent']").first());
  await until(() => chat.locator("button.send:not([disabled])").isVisible(), "the agent is ready", 60_000);
  await until(() => box().evaluate((each) => each === document.activeElement), "the prompt has the focus");
  await page.keyboard.type("script:first");
  await page.keyboard.press("Enter");
  await until(() => question().isVisible(), "a question", 90_000);
  await pause(600);
  await click("Allow once", question().getByRole("button", { name: "Allow once" }));
  await until(async () => /line 1\nline 2/.test(await chat.locator(".terminal pre").textContent()), "the output", 90_000);
  await chat.getByRole("button", { name: "Show terminal" }).focus();
  await page.keyboard.press("Enter");
  await until(async () => /line 1.*line 2/s.test(await page.locator(".terminal-wrapper.active .xterm-rows").textContent()), "the terminal");
  await editor.shot("50-new-user");
  console.log(`${done.commands.length} commands: ${done.commands.join("; ")}`);
  console.log(`${done.clicks.length} clicks: ${done.clicks.join("; ")}`);
  assert.ok(done.commands.length <= 3 && done.clicks.length <= 2);
});
