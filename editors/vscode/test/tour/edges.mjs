// Bad weather: line ends, odd names, a hidden view, long outputs and answers, several questions, two sessions at once.
import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { answer, begin, box, chat, editor, focusChat, idle, lastMessage, model, openChat, page, pause } from "./steps.mjs";
import { pickFirst, prompt, question, quickInput, stop, until } from "./steps.mjs";

const ODD = "größe & maß/neu ✓.py";
const BIG = Array.from({ length: 3000 }, (_, n) => `Line ${n} with **bold** text, \`code\` and a [link](shop.py).\n\n`);
const HOLD = "for n in 1; do echo holding; done; until [ -e go ]; do sleep 0.1; done";
const write = (path, content) => ["write", { path, content }];

begin({
  files: { "crlf.py": "A = 1\r\nB = 2\r\n", "one.py": "ONE = 1\n", "two.py": "TWO = 2\n" },
  scripts: {
    crlf: [
      { calls: [["read", { path: "crlf.py" }]] },
      { calls: [["edit", { path: "crlf.py", old_string: "A = 1", new_string: "A = 9" }]] },
      { text: ["Edited."] },
    ],
    odd: [{ calls: [write(ODD, "print('✓')\n")] }, { text: ["Written."] }],
    pair: [
      { calls: [["read", { path: "one.py" }], ["read", { path: "two.py" }]] },
      {
        calls: [
          ["edit", { path: "one.py", old_string: "1", new_string: "11" }],
          ["edit", { path: "two.py", old_string: "2", new_string: "22" }],
        ],
      },
      { text: ["Both."] },
    ],
    hold: [{ calls: [["bash", { command: HOLD }]] }, { text: ["Held."] }],
    output: [{ calls: [["bash", { command: "seq 1 200000" }]] }, { text: ["Counted."] }],
    big: [{ text: BIG }],
    markup: [
      {
        text: [
          "<img src=x onerror=alert(1)><script>alert(2)</script> ![remote](https://example.com/x.png) ",
          "[bad](javascript:alert(3)) [command](command:workbench.action.quit) <b>raw</b>\n",
        ],
      },
    ],
  },
});

const file = (name) => readFile(join(editor.folder, name), "utf8");

stop("an open file with CRLF keeps its line ends and its unsaved lines", async () => {
  await openChat();
  await page.keyboard.press("Control+p");
  await pickFirst("crlf.py");
  await page.keyboard.press("Enter");
  await page.locator(".editor-instance .view-line").first().waitFor();
  await pause(500);
  await page.keyboard.press("Control+End");
  await page.keyboard.type("C = 3");
  await prompt("script:crlf");
  await answer("1");
  await idle();
  assert.equal(await file("crlf.py"), "A = 9\r\nB = 2\r\nC = 3");
});

stop("a new file with an odd name in a new folder is written", async () => {
  await prompt("script:odd");
  await answer("1");
  await idle();
  assert.equal(await file(ODD), "print('✓')\n");
});

stop("two questions of one answer are asked and answered by key", async () => {
  await prompt("script:pair");
  for (const done of [1, 2]) {
    await until(async () => (await question().count()) > 0, `question ${done}`);
    await until(() => question().first().evaluate((each) => each.contains(document.activeElement) || [...document.querySelectorAll(".question")].some((other) => other.contains(document.activeElement))), "a question has the focus");
    const before = await chat.locator(".question").first().getAttribute("data-question");
    await pause(600);
    await page.keyboard.press("1");
    await until(async () => (await chat.locator(`.question[data-question="${before}"]`).count()) === 0 || done === 2, "it is answered");
  }
  await idle();
  assert.deepEqual([await file("one.py"), await file("two.py")], ["ONE = 11\n", "TWO = 22\n"]);
});

stop("a question waits while the view is hidden", async () => {
  await prompt("script:hold");
  await until(() => question().isVisible(), "a question");
  await page.keyboard.press("Control+Shift+e");
  await until(async () => !(await page.locator("iframe.webview.ready").isVisible().catch(() => false)), "the view is hidden");
  await pause(1000);
  await page.keyboard.press("Control+Alt+a");
  await until(() => question().isVisible(), "the question is there again");
  await answer("1");
  await until(async () => (await chat.locator(".terminal pre").last().textContent()).includes("holding"), "it runs");
});

stop("another session works while the first one runs, and both stay apart", async () => {
  await editor.command("acp-agent: New Session");
  await until(() => chat.getByText("Ask about this project").isVisible(), "the new session");
  await prompt("script:markup");
  await idle();
  assert.equal(await chat.locator(".card").count(), 0);
  await writeFile(join(editor.folder, "go"), "");
  await pause(1500);
  assert.equal(await chat.locator(".card").count(), 0);
});

stop("markup of a model is text: no pictures, no scripts, no commands", async () => {
  const inside = await lastMessage().evaluate((each) => [...each.querySelectorAll("*")].map((one) => one.tagName));
  assert.deepEqual(inside.filter((name) => !["P", "A", "CODE"].includes(name)), []);
  assert.match(await lastMessage().textContent(), /script>alert\(2\)<\/script>/);
  const links = await lastMessage().locator("a").evaluateAll((all) => all.map((each) => each.title));
  assert.deepEqual(links, []);
});

stop("the first session is shown again from the list, with its turn at its end", async () => {
  await editor.command("acp-agent: Sessions...");
  await quickInput().locator(".monaco-list-row").nth(1).waitFor();
  const focused = quickInput().locator(".monaco-list-row.focused");
  if ((await focused.textContent()).includes("shown now")) await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await until(async () => (await lastMessage().textContent()) === "Held.\n", "the first session");
});

stop("a long output stays usable: the card has its end, the model gets a part", async () => {
  await prompt("script:output");
  await until(async () => (await lastMessage().textContent()).includes("Counted."), "the end of the turn", 60_000);
  await idle();
  const shown = () => chat.locator(".terminal pre").last().textContent();
  await until(async () => (await shown()).endsWith("200000"), "the end of the output");
  assert.ok((await shown()).length < 25_000);
  const told = JSON.stringify(model.requests.findLast(({ tools }) => tools?.length).messages.at(-1));
  assert.match(told, /200000/);
});

stop("a long answer streams, and the view stays quick", async () => {
  await prompt("script:big");
  await until(async () => (await lastMessage().textContent()).includes("Line 2999"), "the whole answer", 90_000);
  await idle();
  await focusChat();
  const began = Date.now();
  await page.keyboard.type("typed");
  await until(async () => (await box().inputValue()) === "typed", "what is typed appears");
  console.log(`typing in a long conversation: ${Date.now() - began} ms`);
  await box().fill("");
  assert.equal(model.requests.length > 0, true);
});

stop("a session is resumed without its conversation after a restart, and another one deleted", async () => {
  await editor.command("acp-agent: New Session");
  await until(() => chat.getByText("Ask about this project").isVisible(), "the new session");
  await editor.command("acp-agent: Restart the Agent");
  await until(() => chat.locator("button.send:not([disabled])").isVisible(), "the agent is ready");
  await editor.command("acp-agent: Sessions...");
  const rows = quickInput().locator(".monaco-list-row");
  await rows.nth(1).waitFor();
  const count = await rows.count();
  await rows.first().hover();
  await rows.first().getByLabel("Delete this session").click();
  await page.getByRole("button", { name: "Delete", exact: true }).click();
  await editor.command("acp-agent: Sessions...");
  await until(async () => (await rows.count()) === count - 1, "one session less");
  await rows.first().hover();
  await rows.first().getByLabel("Resume without showing").click();
  await until(() => chat.locator(".notice").getByText("The session goes on").isVisible(), "it goes on");
  assert.equal(await chat.locator(".message").count(), 0);
});
