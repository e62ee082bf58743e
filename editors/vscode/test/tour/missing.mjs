// Without the program: what the chat offers, and that it starts once the program is there. It needs what the tour needs.
import assert from "node:assert/strict";
import { mkdir, symlink } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { startEditor } from "./editor.mjs";
import { startModel } from "./model.mjs";

let model;
let editor;

before(async () => {
  model = await startModel({});
  process.env.PATH = "/usr/bin:/bin";
  editor = await startEditor({ files: { "a.py": "A = 1\n" }, modelUrl: model.url, program: "" });
  await editor.open();
});

after(async () => {
  await editor?.stop();
  model?.stop();
});

test("a missing program is offered for installation, and found when it is there", async () => {
  const { page, chat } = editor;
  page.setDefaultTimeout(60_000);
  await page.locator(".activitybar [aria-label^='acp-agent']").first().waitFor({ timeout: 90_000 });
  const install = chat.getByRole("button", { name: "Install with pip" });
  while (!(await install.isVisible())) {
    await page.keyboard.press("Control+Alt+a");
    await new Promise((done) => setTimeout(done, 1000));
  }
  assert.equal(await chat.locator("button.send").isDisabled(), true);
  await editor.shot("20-missing");
  await install.focus();
  await page.keyboard.press("Enter");
  await page.locator(".terminal-wrapper.active .xterm").waitFor();
  await page.waitForFunction(() => document.querySelector(".xterm-rows")?.textContent.replace(/\s/g, " ").includes("-m pip install acp-agent"));
  await editor.shot("21-install");
  // Installed for the user, as pip does it.
  await mkdir(join(editor.base, ".local", "bin"), { recursive: true });
  await symlink(process.env.ACP_AGENT, join(editor.base, ".local", "bin", "acp-agent"));
  const again = chat.getByRole("button", { name: "Try again" });
  await again.focus();
  await page.keyboard.press("Enter");
  await chat.locator("button.send:not([disabled])").waitFor();
});
