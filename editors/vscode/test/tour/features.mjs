// What the first tour leaves out, in a folder with blanks and other letters: models, language features, forms and pages of MCP
// servers, pictures, format on save, and a chat that is closed in mid-turn.
import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { answer, begin, box, chat, editor, focusChat, idle, lastMessage, model, openChat, page, pause } from "./steps.mjs";
import { pickFirst, prompt, question, quickInput, stop, submit, until } from "./steps.mjs";

const CART = "export function total(count: number): number {\n  return count * 2;\n}\n\nconst wrong: number = 'text';\nexport const sum = totl(3);\n";
/** A red square of 2 x 2 pixels. */
const SQUARE = "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAEElEQVR4nGP4z8AARAwQCgAf7gP9i18U1AAAAABJRU5ErkJggg==";
const SERVER = join(import.meta.dirname, "asking_server.mjs");

begin({
  name: "größe & maß ✓",
  files: { "cart.ts": CART, "other.ts": 'import { total } from "./cart";\n\nexport const due = total(3);\n', "format.ts": "const a=1;\nconst b=2;\n" },
  settings: {
    "editor.formatOnSave": true,
    mcp: { servers: {
      asking: { type: "stdio", command: process.execPath, args: [SERVER] },
      secret: { command: "never", env: { KEY: "${input:key}" } },
    } },
  },
  scripts: {
    languages: [
      {
        calls: [
          ["lsp_definition", { path: "other.ts", line: 3, column: 20 }],
          ["lsp_workspace_symbol", { query: "total" }],
          ["lsp_code_actions", { path: "cart.ts", line: 6, column: 21 }],
        ],
      },
      { text: ["Looked."] },
    ],
    format: [
      { calls: [["read", { path: "format.ts" }]] },
      { calls: [["edit", { path: "format.ts", old_string: "const a=1;", new_string: "const a=3;" }]] },
      { calls: [["edit", { path: "format.ts", old_string: "const b = 2;", new_string: "const b = 4;" }]] },
      { text: ["Formatted."] },
    ],
    fill: [{ calls: [["mcp_asking_fill_in", {}]] }, { text: ["Filled in."] }],
    sign: [{ calls: [["mcp_asking_sign_in", {}]] }, { text: ["Signed in."] }],
    seen: [{ text: ["Seen."] }],
    closed: [
      { text: Array.from({ length: 30 }, (_, n) => `word${n} `), gap: 100, calls: [["bash", { command: "for n in 1; do echo after; done" }]] },
      { text: ["Closed and opened."] },
    ],
  },
});

const results = (count) => {
  const { messages } = model.requests.findLast(({ tools }) => tools?.length);
  return messages.filter(({ role }) => role === "tool").slice(-count).map(({ content }) => (typeof content === "string" ? content : JSON.stringify(content)));
};
const file = (name) => readFile(join(editor.folder, name), "utf8");

async function open(name) {
  await page.keyboard.press("Control+p");
  await pickFirst(name);
  await page.keyboard.press("Enter");
  await page.locator(".tab.active").filter({ hasText: name }).waitFor();
  await page.locator(".editor-instance .view-line").first().waitFor();
}

stop("the chosen model answers", async () => {
  await openChat();
  await editor.command("acp-agent: Choose Model...");
  await pickFirst("small", "tour-small");
  await editor.shot("30-model");
  await page.keyboard.press("Enter");
  await until(async () => (await chat.locator(".picker").allTextContents()).includes("tour-small"), "the model is shown");
  await prompt("script:seen");
  await idle();
  assert.equal(model.requests.findLast(({ tools }) => tools?.length).model, "tour-small");
});

stop("definitions, symbols of the workspace and code actions reach the agent", async () => {
  await open("cart.ts");
  await until(() => page.locator(".squiggly-error").first().isVisible(), "VS Code shows the error", 40_000);
  await prompt("script:languages");
  await idle();
  const [definition, symbols, actions] = results(3);
  assert.match(definition, /cart\.ts:1/);
  assert.match(symbols, /total/);
  assert.match(actions, /total/);
  await chat.locator(".card > summary").last().click();
  await editor.shot("31-code-actions");
});

stop("all problems are mentioned with @diagnostics", async () => {
  await focusChat();
  await page.keyboard.type("Mend @");
  await pickFirst("Problem...");
  await page.keyboard.press("Enter");
  await pickFirst("All problems");
  await editor.shot("32-problems");
  await page.keyboard.press("Enter");
  await until(async () => (await box().inputValue()) === "Mend @diagnostics ", "the mention is in the prompt");
  await submit();
  await idle();
  assert.match(JSON.stringify(model.requests.findLast(({ tools }) => tools?.length).messages.at(-1)), /not assignable to type/);
});

stop("an edit of an open file is formatted as it is saved; the agent learns it, and edits what became of the file", async () => {
  await open("format.ts");
  await prompt("script:format");
  await answer("1");
  await answer("1");
  await idle();
  assert.equal(await file("format.ts"), "const a = 3;\nconst b = 4;\n");
  assert.match(results(2)[0], /\+const b = 2;/);
  await editor.shot("33-formatted");
});

stop("an MCP server of the user's settings is handed over, and its form is filled in field by field", async () => {
  await prompt("script:fill");
  await answer("1");
  await quickInput().getByText("(1 of 4)").waitFor();
  await page.keyboard.type("A");
  await quickInput().getByText("At least 2 characters.").waitFor();
  await editor.shot("34-form-field");
  await page.keyboard.type("nn");
  await page.keyboard.press("Enter");
  await quickInput().getByText("(2 of 4)").waitFor();
  await page.keyboard.type("12");
  await quickInput().getByText("At most 9 is possible.").waitFor();
  await page.keyboard.press("Backspace");
  await page.keyboard.press("Enter");
  await quickInput().getByText("(3 of 4)").waitFor();
  await pickFirst("No");
  await page.keyboard.press("Enter");
  await quickInput().getByText("(4 of 4)").waitFor();
  await pickFirst("blue");
  await page.keyboard.press("Enter");
  await idle();
  const given = JSON.parse(/\{.*\}/s.exec(results(1)[0])[0]);
  assert.deepEqual(given, { action: "accept", content: { name: "Ann", count: 1, urgent: false, colour: "blue" } });
});

stop("a page is opened only after the user has seen its address", async () => {
  await prompt("script:sign");
  await answer("1");
  const dialog = page.locator(".monaco-dialog-box");
  await dialog.getByText("https://login.example/start").first().waitFor();
  await editor.shot("35-page");
  await page.keyboard.press("Enter");
  await dialog.getByText("open the external website").waitFor();
  const opened = page.context().waitForEvent("page");
  await page.keyboard.press("Enter");
  await (await opened).close();
  await idle();
  assert.match(results(1)[0], /accept/);
});

stop("a picture is pasted, removed, attached from a file, and reaches the model", async () => {
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await page.evaluate(async (data) => {
    const bytes = Uint8Array.from(atob(data), (each) => each.charCodeAt(0));
    await navigator.clipboard.write([new ClipboardItem({ "image/png": new Blob([bytes], { type: "image/png" }) })]);
  }, SQUARE);
  const attached = chat.locator(".composer .thumbnail");
  await focusChat();
  await page.keyboard.press("Control+v");
  await until(async () => (await attached.count()) === 1, "the picture is attached");
  await chat.getByLabel("Remove picture 1").focus();
  await page.keyboard.press("Enter");
  await until(async () => (await attached.count()) === 0, "it is removed");
  await writeFile(join(editor.base, "square.png"), Buffer.from(SQUARE, "base64"));
  await chat.getByRole("button", { name: "Attach pictures" }).focus();
  await page.keyboard.press("Enter");
  await until(async () => (await quickInput().locator("input.input").inputValue()).endsWith("/"), "the dialog of files");
  await quickInput().locator("input.input").fill(join(editor.base, "square.png"));
  await pause(500);
  await page.keyboard.press("Enter");
  await until(async () => (await attached.count()) === 1, "the file is attached");
  // The view ends when it is hidden: the picture stays.
  await page.keyboard.press("Control+Shift+e");
  await pause(500);
  await page.keyboard.press("Control+Alt+a");
  await until(async () => (await attached.count()) === 1, "the picture is there again");
  await editor.shot("36-picture");
  await prompt("What is this? script:seen");
  await until(async () => (await attached.count()) === 0, "the prompt has it");
  await idle();
  assert.ok(JSON.stringify(model.requests.findLast(({ tools }) => tools?.length).messages.at(-1)).includes(SQUARE));
  assert.equal(await chat.locator(".message.user").last().locator("img").count(), 1);
  await editor.shot("37-picture-sent");
});

stop("a chat that is closed in mid-turn: the turn goes on, and the question is there when it is opened", async () => {
  await prompt("script:closed");
  await until(async () => (await lastMessage().textContent()).includes("word3"), "it streams");
  await page.keyboard.press("Control+b");
  await until(async () => !(await page.locator("iframe.webview.ready").isVisible().catch(() => false)), "the chat is closed");
  await page.locator(".notification-toast").getByText("acp-agent asks").waitFor({ timeout: 30_000 });
  await editor.shot("38-closed");
  await page.keyboard.press("Control+Alt+a");
  await until(() => question().isVisible(), "the question");
  assert.match(await chat.locator(".log").textContent(), /word0.*word29/s);
  await answer("1");
  await idle();
  assert.equal(await lastMessage().textContent(), "Closed and opened.\n");
});

stop("after a reload the picture is in the conversation again", async () => {
  await page.reload();
  await page.waitForSelector(".monaco-workbench .activitybar", { timeout: 60_000 });
  await pause(2000);
  await openChat();
  await until(async () => (await chat.locator(".message.user img").count()) === 1, "the picture", 30_000);
  assert.equal(await chat.locator(".notice").getByText("interrupted").count(), 0);
});
