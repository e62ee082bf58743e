// A new user: no key. The chat says so, and the key is asked for in a terminal of VS Code.
import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { begin, box, chat, editor, focusChat, idle, lastMessage, model, openChat, page, prompt, stop, submit, until } from "./steps.mjs";

begin({
  files: { "a.py": "A = 1\n" },
  scripts: { seen: [{ text: ["Seen."] }] },
  env: { OPENAI_API_KEY: "", OPENAI_BASE_URL: "" },
});

const terminal = async () => (await page.locator(".terminal-wrapper.active .xterm-rows").textContent()).replaceAll("\u00a0", " ");

stop("a prompt without a key offers to log in, and is given back", async () => {
  await openChat();
  await prompt("script:seen");
  await page.locator(".notification-toast").getByText("needs an API key").waitFor();
  await until(async () => (await box().inputValue()) === "script:seen", "the prompt is given back");
  await editor.shot("40-no-key");
});

stop("the key is asked for in a terminal, and the prompt works with it", async () => {
  // From now on the vendor's server is ours: the key is checked there.
  await writeFile(join(editor.base, "config.toml"), `[[llm.providers]]\nname = "openai"\ntype = "openai"\nbase_url = "${model.url}"\n`);
  await page.getByRole("button", { name: "Log In", exact: true }).focus();
  await page.keyboard.press("Enter");
  await until(async () => /Number or name:/.test(await terminal()), "the question whose key it is");
  await page.keyboard.type("openai\n");
  await until(async () => /API key of openai/.test(await terminal()), "the question for the key");
  await editor.shot("41-login");
  await page.keyboard.type("fake-key-typed\n");
  await page.locator(".notification-toast").getByText("The key is stored").waitFor();
  await until(() => box().evaluate((each) => each === document.activeElement), "the prompt has the focus");
  await editor.command("acp-agent: New Session"); // which knows the server
  await until(() => chat.getByText("Ask about this project").isVisible(), "the new session");
  await focusChat();
  assert.equal(await box().inputValue(), "script:seen");
  await submit();
  await until(async () => (await lastMessage().textContent()) === "Seen.\n", "the answer");
  await idle();
  assert.equal(model.requests.at(-1).authorization, "Bearer fake-key-typed");
  await editor.shot("42-logged-in");
});

stop("the login is in the palette, too", async () => {
  await editor.command("acp-agent: Log In with an API Key...");
  await until(async () => /Number or name:/.test(await terminal()), "the question whose key it is");
});
