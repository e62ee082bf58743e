// How the chat looks: themes, high contrast and 400 pixels. Text must be readable in each, and nothing may be cut off.
// It needs what the tour needs. SHOTS=FOLDER keeps the screenshots.
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { startEditor } from "./editor.mjs";
import { startModel } from "./model.mjs";

const LONG = "a_very_long_name_without_any_blank_in_it".repeat(4);
const SCRIPTS = {
  faces: [
    {
      text: [
        { thought: "The shop has a price." },
        "## The shop\n\nThe price is in `shop.py`, see [the file](shop.py). It is **one**.\n\n",
        `- one ${LONG}\n- two\n\n> A quotation.\n\n\`\`\`python\ndef total(count):\n    return count * PRICE  # ${LONG}\n\`\`\`\n`,
      ],
      calls: [
        ["update_plan", { entries: [
          { content: "Read the shop", status: "completed" },
          { content: "Change the price in all places that have it", status: "in_progress" },
          { content: "Run the tests", status: "pending" },
        ] }],
        ["bash", { command: "ls -la && git status --short" }],
        ["read", { path: "shop.py" }],
        ["read", { path: "missing.py" }],
      ],
    },
    { calls: [["edit", { path: "shop.py", old_string: "PRICE = 1\n", new_string: "PRICE = 2\n" }]] },
    { text: ["Done."] },
  ],
};
let model;
let editor;

before(async () => {
  model = await startModel(SCRIPTS);
  editor = await startEditor({
    files: { "shop.py": "PRICE = 1\n\n\ndef total(count):\n    return count * PRICE\n" },
    modelUrl: model.url,
  });
  await editor.open();
});

after(async () => {
  await editor?.stop();
  model?.stop();
});

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

test("every state is readable in each theme and at 400 pixels", async () => {
  const { page, chat } = editor;
  page.setDefaultTimeout(30_000);
  await page.locator(".activitybar [aria-label^='acp-agent']").first().waitFor({ timeout: 90_000 });
  await editor.chatWidth(400);
  while (!(await chat.locator("textarea").isVisible())) {
    await page.keyboard.press("Control+Alt+a");
    await pause(1000);
  }
  await chat.locator("button.send:not([disabled])").waitFor({ timeout: 90_000 });
  await chat.locator("textarea").fill("Change the price, please: script:faces");
  await chat.locator("textarea").press("Enter");
  await chat.locator(".question").waitFor();
  await page.locator(".monaco-diff-editor").waitFor();
  const found = {};
  await editor.inThemes(async (theme) => {
    for (const [part, place] of [["question", "end"], ["answer", "start"]]) {
      await chat.locator(".log").evaluate((log, end) => (log.scrollTop = end ? log.scrollHeight : 0), place === "end");
      await pause(300);
      if (process.env.SHOTS) await page.screenshot({ path: join(process.env.SHOTS, `22-${part}-${theme}.png`) });
    }
    found[theme] = await chat.locator("body").evaluate(problems);
  });
  assert.deepEqual(found, { dark: [], light: [], contrast: [], "contrast-light": [] });
});

/** Return what is not readable in a document: too little contrast (WCAG AA), or wider than the chat. */
function problems(body) {
  const channel = (value) => (value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  const parse = (color) => (color.match(/[\d.]+/g) ?? []).map(Number);
  const over = ([r, g, b, a = 1], [r2, g2, b2]) => [r * a + r2 * (1 - a), g * a + g2 * (1 - a), b * a + b2 * (1 - a)];
  const light = (color) => {
    const [r, g, b] = color.map((each) => channel(each / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const base = parse(getComputedStyle(body).getPropertyValue("--vscode-sideBar-background").replace(/^#(..)(..)(..).*/, (_, ...hex) => hex.slice(0, 3).map((each) => parseInt(each, 16)).join(" ")));
  const behind = (element) => {
    const layers = [];
    for (let each = element; each; each = each.parentElement) layers.unshift(parse(getComputedStyle(each).backgroundColor));
    return layers.reduce((under, layer) => (layer.length >= 3 ? over(layer, under) : under), base);
  };
  const found = [];
  const walker = document.createTreeWalker(body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.textContent.trim() || element.closest(".spoken, script, style, button:disabled") || !element.checkVisibility()) continue;
    const under = behind(element);
    const text = over(parse(getComputedStyle(element).color), under);
    const [low, high] = [light(text), light(under)].sort((a, b) => a - b);
    const ratio = (high + 0.05) / (low + 0.05);
    const least = element.matches(".status") ? 3 : 4.5; // a sign, whose meaning is also said in words
    if (ratio < least) found.push(`${ratio.toFixed(1)}: ${element.className || element.tagName} ${node.textContent.trim().slice(0, 30)}`);
  }
  if (body.scrollWidth > body.clientWidth) found.push(`the chat is ${body.scrollWidth} wide, not ${body.clientWidth}`);
  const log = body.querySelector(".log");
  if (log.scrollWidth > log.clientWidth) found.push(`the conversation is ${log.scrollWidth} wide, not ${log.clientWidth}`);
  return [...new Set(found)];
}
