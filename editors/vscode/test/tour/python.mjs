// The program is found in the environment that the Python extension has selected. A small stand-in has its interface.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { startEditor } from "./editor.mjs";
import { startModel } from "./model.mjs";

const MANIFEST = {
  name: "python",
  publisher: "ms-python",
  version: "2026.1.0",
  engines: { vscode: "^1.90.0" },
  main: "./main.js",
  activationEvents: ["*"],
};
let folder;
let model;
let editor;

before(async () => {
  folder = await mkdtemp(join(tmpdir(), "acp-agent-python-"));
  const environment = join(folder, "meine Umgebung ü", "bin");
  await mkdir(environment, { recursive: true });
  await symlink(process.execPath, join(environment, "python"));
  await symlink(resolve(process.env.ACP_AGENT), join(environment, "acp-agent"));
  const extension = join(folder, "extension");
  await mkdir(extension);
  await writeFile(join(extension, "package.json"), JSON.stringify(MANIFEST));
  await writeFile(
    join(extension, "main.js"),
    `const { Uri } = require("vscode");
     exports.activate = () => ({ environments: {
       getActiveEnvironmentPath: () => ({ path: "selected" }),
       resolveEnvironment: async ({ path }) => path === "selected" ? { executable: { uri: Uri.file(${JSON.stringify(join(environment, "python"))}) } } : undefined,
     } });`,
  );
  const vsce = resolve(import.meta.dirname, "../../node_modules/.bin/vsce");
  const packaged = join(folder, "python.vsix");
  const options = ["--allow-missing-repository", "--skip-license", "--allow-star-activation", "--out", packaged];
  await promisify(execFile)(vsce, ["package", ...options], { cwd: extension });
  // A second installation, on PATH.
  await mkdir(join(folder, "second"));
  await symlink(resolve(process.env.ACP_AGENT), join(folder, "second", "acp-agent"));
  process.env.PATH = `${join(folder, "second")}:${dirname(process.execPath)}:/usr/bin:/bin`;
  model = await startModel({});
  editor = await startEditor({ files: { "a.py": "A = 1\n" }, modelUrl: model.url, program: "", also: [packaged] });
  await editor.open();
});

after(async () => {
  await editor?.stop();
  model?.stop();
  if (folder) await rm(folder, { recursive: true, force: true });
});

test("of two installations that of the selected Python environment is started, unless the setting names the other", async () => {
  const { page, chat } = editor;
  page.setDefaultTimeout(60_000);
  await page.locator(".activitybar [aria-label^='acp-agent']").first().waitFor({ timeout: 90_000 });
  while (!(await chat.locator("textarea").isVisible())) {
    await page.keyboard.press("Control+Alt+a");
    await new Promise((done) => setTimeout(done, 1000));
  }
  await chat.locator("button.send:not([disabled])").waitFor();
  await editor.command("acp-agent: Show Log");
  await page.locator(".view-lines").getByText("meine Umgebung").first().waitFor();
  assert.match(await page.locator(".view-lines").first().textContent(), /starting.*meine.Umgebung.ü\/bin\/acp-agent/);
  for (const each of ["User", "Machine"]) {
    const path = join(editor.base, "user", each, "settings.json");
    const settings = JSON.parse(await readFile(path, "utf8"));
    await writeFile(path, JSON.stringify({ ...settings, "acpAgent.path": join(folder, "second", "acp-agent") }));
  }
  await new Promise((done) => setTimeout(done, 2000)); // VS Code reads its settings
  await editor.command("acp-agent: Restart the Agent");
  await page.locator(".view-lines").getByText("second/acp-agent").first().waitFor();
  await chat.locator("button.send:not([disabled])").waitFor();
});
