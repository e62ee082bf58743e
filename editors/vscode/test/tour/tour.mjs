// The tour of the extension in a real VS Code, by keyboard alone: npm run package && npm run tour.
// The head of editor.mjs says what it needs. SHOTS=FOLDER keeps a screenshot of each state.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { answer, begin, box, chat, editor, focusChat, focusDiff, idle, lastMessage, model, openChat, page, pause } from "./steps.mjs";
import { pickFirst, prompt, question, quickInput, stop, submit, until } from "./steps.mjs";

const SHOP = "PRICE = 1\n\n\ndef total(count):\n    return count * PRICE\n";
const CART = "export function total(count: number): number {\n  return count * 2;\n}\n\nconst wrong: number = 'text';\n";
/** It runs until the tour has seen it run. */
const WAITING = "for n in 1 2 3; do echo line $n; done; until [ -e go ]; do sleep 0.1; done";
const SCRIPTS = {
  hello: [
    {
      text: [{ thought: "The user wants to see the lines." }, "## Lines\n\n", "Here is **how** it goes:\n\n"].concat(
        ["```python\nfor n in range(3):\n    print(n)\n```\n\n", "1. count\n2. wait\n\n", "| a | b |\n|---|---|\n| 1 | 2 |\n"],
      ),
      gap: 30,
      calls: [["bash", { command: WAITING }]],
    },
    { text: ["All three lines came."] },
  ],
  ask: [
    { calls: [["bash", { command: "printf 'name? '; read name < /dev/tty; echo hello $name" }]] },
    { text: ["Greeted."] },
  ],
  edit: [
    { calls: [["read", { path: "shop.py" }]] },
    { calls: [["edit", { path: "shop.py", old_string: "PRICE = 1\n", new_string: "PRICE = 2\n" }]] },
    { text: ["The price is 2."] },
  ],
  reject: [
    { calls: [["read", { path: "shop.py" }]] },
    { calls: [["edit", { path: "shop.py", old_string: "PRICE = 2\n", new_string: "PRICE = 3\n" }]] },
    { text: ["Then it stays."] },
  ],
  plan: [
    {
      calls: [
        ["update_plan", { entries: [
          { content: "Read the shop", status: "completed" },
          { content: "Change the price", status: "in_progress" },
          { content: "Run the tests", status: "pending" },
        ] }],
      ],
    },
    { text: ["Planned."] },
  ],
  long: [{ calls: [["bash", { command: "for n in 1; do echo started; sleep 61.7; done" }]] }, { text: ["never"] }],
  languages: [
    {
      calls: [
        ["lsp_diagnostics", { path: "cart.ts" }],
        ["lsp_hover", { path: "cart.ts", line: 1, column: 18 }],
        ["lsp_document_symbols", { path: "cart.ts" }],
        ["lsp_references", { path: "cart.ts", line: 1, column: 18 }],
      ],
    },
    { text: ["Looked."] },
  ],
  form: [
    {
      calls: [
        ["ask_user", { questions: [
          { question: "Which colour?", options: [{ label: "red" }, { label: "blue" }] },
        ] }],
      ],
    },
    { text: ["Thanks."] },
  ],
  slow: [{ text: Array.from({ length: 60 }, (_, n) => `word${n} `), gap: 150 }],
};

begin({ scripts: SCRIPTS, files: { "shop.py": SHOP, "cart.ts": CART, "my notes.txt": "note\n" } });

const shop = () => readFile(join(editor.folder, "shop.py"), "utf8");

stop("the agent starts with the view and shows what can be done", async () => {
  await openChat();
  await editor.chatWidth(400);
  await until(() => chat.getByText("Ask about this project").isVisible(), "the welcome");
  await until(async () => (await chat.locator(".picker").allTextContents()).includes("Ask first"), "the mode");
  await editor.shot("01-welcome");
});

stop("an answer streams, its command asks with the exact text, runs in a terminal and shows its output live", async () => {
  await prompt("Show me script:hello");
  await until(() => question().isVisible(), "a question");
  assert.equal(await question().locator("pre").first().textContent(), WAITING);
  assert.equal(await question().locator("pre").count(), 1);
  await editor.shot("02-question");
  await answer("1");
  await until(async () => (await chat.locator(".terminal pre").textContent()).includes("line 1"), "the first line");
  assert.equal(await chat.locator(".terminal .exit").textContent(), "running");
  await writeFile(join(editor.folder, "go"), "");
  await idle();
  assert.match(await chat.locator(".terminal pre").textContent(), /line 1\nline 2\nline 3/);
  assert.equal(await chat.locator(".terminal .exit").textContent(), "exit code 0");
  assert.equal(await chat.locator(".message.agent h2").first().textContent(), "acp-agent");
  assert.equal(await chat.locator("details.thought").count(), 1);
  assert.equal(await chat.locator("details.thought").getAttribute("open"), null);
  assert.match(await chat.locator(".card .time").first().textContent(), /s$/);
  await editor.shot("03-done");
});

stop("the person types into the terminal of a command", async () => {
  await prompt("script:ask");
  await answer("1");
  await until(async () => (await chat.locator(".terminal pre").last().textContent()).includes("name?"), "the command asks");
  await chat.getByRole("button", { name: "Show terminal" }).last().focus();
  await page.keyboard.press("Enter");
  await pause(1000);
  await editor.shot("04-terminal");
  await page.keyboard.type("Ann\n");
  await until(async () => (await chat.locator(".terminal pre").last().textContent()).includes("hello Ann"), "the greeting");
  await idle();
});

stop("an edit keeps what is unsaved, opens as a real diff and is accepted there by key", async () => {
  await page.keyboard.press("Control+p");
  await pickFirst("shop.py");
  await page.keyboard.press("Enter");
  await page.locator(".editor-instance .view-line").first().waitFor();
  await pause(500);
  await page.keyboard.press("Control+End");
  await page.keyboard.type("# unsaved");
  await prompt("script:edit");
  await until(() => question().isVisible(), "a question");
  await until(() => page.locator(".monaco-diff-editor").isVisible(), "the diff editor");
  await pause(800);
  await editor.shot("05-diff");
  assert.match(await question().locator(".diff").textContent(), /PRICE = 1.*PRICE = 2/s);
  await focusDiff();
  await page.keyboard.press("Control+Enter");
  await until(async () => (await shop()) === SHOP.replace("PRICE = 1", "PRICE = 2") + "# unsaved", "the file is changed");
  await idle();
  await until(async () => !(await page.locator(".monaco-diff-editor").isVisible()), "the diff is closed");
  await editor.shot("06-edited");
});

stop("an edit is rejected in the diff, with a reason, and the file stays", async () => {
  const before = await shop();
  await prompt("script:reject");
  await until(() => page.locator(".monaco-diff-editor").isVisible(), "the diff editor");
  await focusDiff();
  await page.keyboard.press("Control+Backspace");
  await quickInput().getByText("Why not?").waitFor();
  await editor.shot("07-reason");
  await page.keyboard.type("Too expensive");
  await page.keyboard.press("Enter");
  await idle();
  assert.equal(await shop(), before);
  const told = JSON.stringify(model.requests.at(-1).messages);
  assert.match(told, /Too expensive/);
});

stop("a plan is pinned with its state", async () => {
  await prompt("script:plan");
  await idle();
  await until(async () => (await chat.locator(".plan summary").textContent()) === "Plan 1/3: Change the price", "the plan");
  await editor.shot("08-plan");
});

stop("Escape cancels the turn and ends its command", async () => {
  await prompt("script:long");
  await answer("1");
  await until(async () => (await chat.locator(".terminal pre").last().textContent()).includes("started"), "it runs");
  await focusChat();
  await page.keyboard.press("Escape");
  await idle();
  await until(() => chat.locator(".notice").getByText("Cancelled.").isVisible(), "it says so");
  assert.equal(running("sleep 61.7").length, 0);
  await editor.shot("09-cancelled");
});

stop("Escape at a question cancels the turn", async () => {
  await prompt("script:long");
  await until(() => question().isVisible(), "a question");
  await pause(300);
  await page.keyboard.press("Escape");
  await idle();
  assert.equal(await question().count(), 0);
});

stop("a form of the agent is answered in a native picker", async () => {
  await prompt("script:form");
  await pickFirst("blue");
  await editor.shot("10-form");
  await page.keyboard.press("Enter");
  await quickInput().getByText("(2 of 2)").waitFor();
  await page.keyboard.press("Enter");
  await idle();
  assert.match(JSON.stringify(model.requests.at(-1).messages.at(-1)), /blue/);
});

stop("modes, models, options and slash commands are native pickers", async () => {
  await focusChat();
  await editor.command("acp-agent: Choose Mode...");
  await pickFirst("Plan");
  await editor.shot("11-mode");
  await page.keyboard.press("Enter");
  await until(async () => (await chat.locator(".picker").allTextContents()).includes("Plan"), "the mode is Plan");
  await editor.command("acp-agent: Choose Mode...");
  await pickFirst("Ask first");
  await page.keyboard.press("Enter");
  await until(async () => (await chat.locator(".picker").allTextContents()).includes("Ask first"), "the mode is back");
  await editor.command("acp-agent: Options...");
  await pickFirst("Temperature");
  await page.keyboard.press("Enter");
  await pickFirst("Precise");
  await page.keyboard.press("Enter");
  await focusChat();
  await page.keyboard.type("/");
  await pickFirst("status");
  await editor.shot("12-slash");
  await page.keyboard.press("Enter");
  await until(async () => (await box().inputValue()) === "/status", "the command is in the prompt");
  await page.keyboard.press("Enter");
  await until(async () => /Model: openai:tour-large/.test(await lastMessage().textContent()), "the status");
  await idle();
});

stop("a file is mentioned with @ and its text reaches the model", async () => {
  await focusChat();
  await page.keyboard.type("Look at @");
  await pickFirst("notes");
  await editor.shot("13-mention");
  await page.keyboard.press("Enter");
  await until(async () => (await box().inputValue()) === 'Look at @"my notes.txt" ', "the mention is in the prompt");
  await submit();
  await idle();
  const asked = JSON.stringify(model.requests.findLast(({ tools }) => tools?.length).messages.at(-1));
  assert.match(asked, /my%20notes.txt|my notes.txt/);
  assert.match(asked, /note\\\\n|note/);
});

stop("the language servers of VS Code answer the agent", async () => {
  await page.keyboard.press("Control+p");
  await pickFirst("cart.ts");
  await page.keyboard.press("Enter");
  await until(() => page.locator(".squiggly-error").first().isVisible(), "VS Code shows the error", 40_000);
  await prompt("script:languages");
  await idle();
  const results = model.requests.findLast(({ tools }) => tools?.length).messages.filter(({ role }) => role === "tool").map(({ content }) => JSON.stringify(content));
  const told = results.slice(-4).join("\n");
  assert.match(told, /not assignable to type/);
  assert.match(told, /function total\(count: number\): number/);
  await editor.shot("14-languages");
});

stop("problems are mentioned", async () => {
  await focusChat();
  await editor.command("acp-agent: Mention a File, Symbol or Problem...");
  await pickFirst("Problem...");
  await page.keyboard.press("Enter");
  await pickFirst("assignable");
  await page.keyboard.press("Enter");
  await until(async () => /^@cart\.ts:5 \(error: Type/.test(await box().inputValue()), "the problem is in the prompt");
  await box().fill("");
});

stop("a symbol is mentioned", async () => {
  await focusChat();
  await editor.command("acp-agent: Mention a File, Symbol or Problem...");
  await pickFirst("Symbol...");
  await page.keyboard.press("Enter");
  await quickInput().getByText("Mention a symbol").waitFor();
  await pickFirst("total");
  await page.keyboard.press("Enter");
  await until(async () => (await box().inputValue()) === "`total()` @cart.ts:1-3 ", "the symbol is in the prompt");
  await submit();
  await idle();
  const asked = JSON.stringify(model.requests.findLast(({ tools }) => tools?.length).messages.at(-1));
  assert.match(asked, /return count \* 2/);
});

stop("the last turn that changed files is taken back", async () => {
  await editor.command("acp-agent: Undo the Last Turn");
  await until(async () => /Restored: shop.py/.test(await lastMessage().textContent()), "the file is restored");
  await idle();
  assert.equal(await shop(), `${SHOP}# unsaved`);
  await editor.command("acp-agent: Redo the Turn Taken Back");
  await until(async () => (await shop()) === `${SHOP.replace("PRICE = 1", "PRICE = 2")}# unsaved`, "the edit is back");
  await idle();
  await editor.shot("15-undo");
});

stop("the cards and the composer are reached by Tab, and a card folds by key", async () => {
  await focusChat();
  const summary = chat.locator(".card > summary").last();
  const open = () => chat.locator("details.card").last().evaluate((each) => each.open);
  for (let steps = 0; steps < 60; steps += 1) {
    if (await summary.evaluate((each) => each === document.activeElement)) break;
    await page.keyboard.press("Shift+Tab");
  }
  const before = await open();
  await page.keyboard.press("Enter");
  await until(async () => (await open()) !== before, "the card folds or unfolds");
});

stop("tokens and cost are shown", async () => {
  assert.match(await chat.locator(".usage").textContent(), /^[\d.]+k \/ 128k · \$0\.\d+$/);
});

stop("a new session begins empty, and the old one is loaded from the list", async () => {
  await editor.command("acp-agent: New Session");
  await until(() => chat.getByText("Ask about this project").isVisible(), "the new session");
  await editor.command("acp-agent: Sessions...");
  await pickFirst("Titled by");
  await editor.shot("16-sessions");
  await page.keyboard.press("Enter");
  await until(async () => (await chat.locator(".log").textContent()).includes("All three lines came."), "the old one");
  assert.match(await chat.locator(".card").first().textContent(), /line 1\s*line 2\s*line 3/);
});

stop("a crash of the agent in mid-turn: it starts again with the session loaded", async () => {
  await prompt("script:slow");
  await until(async () => (await lastMessage().textContent()).includes("word5"), "it streams");
  const pids = agents();
  assert.equal(pids.length, 1);
  process.kill(pids[0], "SIGKILL");
  await until(() => chat.locator(".notice").getByText("was started again").isVisible(), "it says so", 30_000);
  assert.match(await chat.locator(".log").textContent(), /Planned\..*word5/s);
  await idle();
  await editor.shot("17-crash");
  await prompt("script:plan");
  await idle();
});

stop("a reload of the window in mid-turn: the session is there again", async () => {
  await prompt("script:slow");
  await until(async () => (await lastMessage().textContent()).includes("word5"), "it streams");
  await page.reload();
  await page.waitForSelector(".monaco-workbench .activitybar", { timeout: 60_000 });
  await pause(2000);
  await openChat();
  await until(async () => /Planned\..*word5/s.test(await chat.locator(".log").textContent()), "the conversation", 30_000);
  await until(() => chat.locator(".log > :last-child").getByText("The last turn was interrupted").isVisible(), "it says so, at the end");
  await editor.shot("18-reloaded");
  await prompt("script:plan");
  await idle();
});

/** The processes of this tour's agent, found by its data folder. */
function agents() {
  return processes().filter(({ command, environ }) => /acp-agent/.test(command) && environ.includes(join(editor.base, "data")) && !/\bsh\b|bwrap/.test(command.split("\0")[0])).map(({ pid }) => pid);
}

function running(text) {
  return processes().filter(({ command }) => command.replaceAll("\0", " ").trim() === text);
}

function processes() {
  return readdirSync("/proc").filter((name) => /^\d+$/.test(name)).flatMap((pid) => {
    try {
      const command = readFileSync(`/proc/${pid}/cmdline`, "utf8");
      return [{ pid: Number(pid), command, environ: readFileSync(`/proc/${pid}/environ`, "utf8") }];
    } catch {
      return [];
    }
  });
}
