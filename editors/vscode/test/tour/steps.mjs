// What all tours do: start and end the editor, and the steps of a person at the keyboard.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { startEditor } from "./editor.mjs";
import { startModel } from "./model.mjs";

export let model;
export let editor;
export let page;
export let chat;
let failed = false;

/** Start the model with `scripts` and the editor for the tests of a file, and end them behind these. */
export function begin({ scripts, ...options }) {
  before(async () => {
    model = await startModel(scripts);
    editor = await startEditor({ modelUrl: model.url, ...options });
    ({ page, chat } = editor);
    page.setDefaultTimeout(20_000);
    await editor.open();
  });
  after(async () => {
    await editor?.stop();
    model?.stop();
  });
}

/** One stop of a tour. What comes behind a failure would only repeat it. */
export function stop(name, work) {
  test(name, async (t) => {
    if (failed) return t.skip("an earlier stop failed");
    try {
      await work();
    } catch (error) {
      failed = true;
      await editor.shot("failed");
      throw error;
    }
  });
}

export const pause = (ms) => new Promise((done) => setTimeout(done, ms));
export const box = () => chat.locator("textarea");
export const question = () => chat.locator(".question");
export const lastMessage = () => chat.locator(".message.agent .markdown").last();

export async function until(check, what, ms = 20_000) {
  const end = Date.now() + ms;
  for (;;) {
    try {
      if (await check()) return;
    } catch (error) {
      if (Date.now() > end) throw error;
    }
    if (Date.now() > end) {
      assert.fail(`not within ${ms} ms: ${what}`);
    }
    await pause(100);
  }
}

export async function openChat() {
  await until(async () => {
    await page.keyboard.press("Control+Alt+a");
    await pause(1000);
    return box().isVisible();
  }, "the chat is open", 60_000);
  await until(() => chat.locator("button.send:not([disabled])").isVisible(), "the agent is ready", 60_000);
}

export async function focusChat() {
  const focused = () => box().evaluate((each) => each === document.activeElement && document.hasFocus());
  if (await focused()) return;
  await page.keyboard.press("Control+Alt+a");
  await until(focused, "the prompt has the focus");
  await pause(300); // VS Code focuses the view once more
}

export async function prompt(text) {
  await focusChat();
  await page.keyboard.type(text);
  await submit();
}

/** Send what is in the prompt, and wait until it is in the conversation. */
export async function submit() {
  const sent = await chat.locator(".message.user").count();
  await page.keyboard.press("Enter");
  await until(async () => (await chat.locator(".message.user").count()) > sent, "the prompt is sent");
}

/** Answer the question with a key, once it is shown and takes keys. */
export async function answer(key) {
  await until(() => question().isVisible(), "a question");
  await until(() => question().evaluate((each) => each.contains(document.activeElement)), "the question has the focus");
  await pause(500);
  await page.keyboard.press(key);
  await until(async () => (await question().count()) === 0, "the question is gone");
}

export const idle = () => until(async () => (await chat.locator("button.send").textContent()) === "Send", "the turn has ended", 30_000);
export const quickInput = () => page.locator(".quick-input-widget");

export async function focusDiff() {
  await page.locator(".editor-actions .action-label[aria-label^='Accept This Edit']").waitFor();
  await page.keyboard.press("Control+1");
  await page.locator(".monaco-diff-editor .monaco-editor.focused").first().waitFor();
}

/** Type into the picker that opens, and wait for the entry that Enter will take. */
export async function pickFirst(filter, entry = filter) {
  await quickInput().locator("input.input").waitFor();
  await pause(400);
  if (filter) await page.keyboard.type(filter);
  if (entry) await quickInput().locator(".monaco-list-row.focused").filter({ hasText: entry }).waitFor();
}
