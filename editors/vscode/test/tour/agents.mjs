// Sub-agents: their calls stand within the card of the call that gave them work, and so does a question of one.
import assert from "node:assert/strict";
import { answer, begin, chat, editor, idle, openChat, page, prompt, question, stop, until } from "./steps.mjs";

const give = (agent, task) => ["agent", { op: "run", agent, task }];
const slow = (...words) => ({ text: words.map((each) => `${each} `), gap: 1500 });

begin({
  files: { "cart.py": "def total(items):\n    return sum(items)\n", "price.py": "RATE = 1.2\n", "README.md": "# Shop\n" },
  scripts: {
    three: [
      {
        text: ["I have three explorers look."],
        calls: [
          give("explore", "script:cart Where is the total computed?"),
          give("explore", "script:price Which rates are there?"),
          give("explore", "script:docs What does the README say, and is it true of the code as it is now?"),
        ],
      },
      { text: ["The total is computed in cart.py:1, the rate is 1.2, and the README says nothing of either."] },
    ],
    cart: [
      { text: ["I look for it."], calls: [["grep", { pattern: "total" }], ["read", { path: "cart.py" }]] },
      slow("`total`", "is", "in", "**cart.py:1**."),
    ],
    price: [{ calls: [["grep", { pattern: "RATE" }]] }, slow("One", "rate,", "1.2", "(price.py:1).")],
    docs: [
      { calls: [["read", { path: "README.md" }], ["read", { path: "missing.md" }]] },
      slow("It", "has", "a", "title", "only."),
    ],
    one: [{ calls: [give("general", "script:write Add a file.")] }, { text: ["There is one more file."] }],
    write: [{ calls: [["write", { path: "new.py", content: "NEW = 1\n" }]] }, { text: ["new.py:1 is new."] }],
  },
});

const cards = () => chat.locator(".log > .card");
const calls = (index) => cards().nth(index).locator("> .calls > .card");

stop("the calls of three sub-agents stand within their cards, which are open while they work", async () => {
  await openChat();
  await editor.chatWidth(460);
  await prompt("script:three");
  await until(async () => (await chat.locator(".card").count()) >= 8, "all calls are shown");
  assert.equal(await cards().count(), 3);
  assert.deepEqual([await calls(0).count(), await calls(1).count(), await calls(2).count()], [2, 1, 2]);
  await until(async () => (await chat.locator(".log > .card[open]").count()) === 3, "cards of agents that work are open");
  if (process.env.SHOTS) await page.screenshot({ path: `${process.env.SHOTS}/60-agents-running.png` });
  await idle();
  await until(async () => (await chat.locator(".card[open]").count()) === 0, "cards of agents that are done are closed");
  assert.match(await cards().nth(2).locator("> summary").textContent(), /2 calls/);
  await editor.shot("61-agents");
  await cards().nth(0).locator("> summary").click();
  await cards().nth(2).locator("> summary").click();
  assert.match(await cards().nth(0).locator("> .body").textContent(), /total is in cart\.py:1/);
  await calls(0).nth(1).locator("> summary").click();
  await editor.shot("62-agents-open");
});

stop("a question of a sub-agent stands open within its card and says who asks", async () => {
  await prompt("script:one");
  await until(() => question().isVisible(), "the question");
  assert.match(await question().textContent(), /general \(sub-agent general-1\) asks/);
  await editor.shot("63-agent-asks");
  await answer("1");
  await idle();
  assert.equal(await calls(3).locator("> summary .status").getAttribute("data-status"), "completed");
});
