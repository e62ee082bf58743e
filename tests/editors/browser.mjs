// A page of a real Chromium, driven by lines of JSON on stdin: {"do": NAME, ...}; a line is answered by a line.
//   node browser.mjs CHROMIUM
// A selector is looked for in the page and in all its frames.
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const browser = await chromium.launch({ executablePath: process.argv[2], args: ["--no-sandbox"] });
const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function found(selector, seconds = 20) {
  for (const end = Date.now() + seconds * 1000; ; await pause(100)) {
    for (const frame of page.frames()) {
      for (const each of await frame.locator(selector).all().catch(() => [])) {
        if (await each.isVisible().catch(() => false)) return each;
      }
    }
    if (Date.now() > end) throw new Error(`not on the page: ${selector}`);
  }
}

const actions = {
  goto: ({ url }) => page.goto(url, { timeout: 90_000 }),
  click: async ({ selector, seconds }) => (await found(selector, seconds)).click({ timeout: 10_000 }),
  focus: async ({ selector, seconds }) => (await found(selector, seconds)).focus({ timeout: 10_000 }),
  wait: async ({ selector, seconds }) => void (await found(selector, seconds)),
  type: ({ text }) => page.keyboard.type(text, { delay: 5 }),
  press: ({ keys }) => page.keyboard.press(keys),
  shot: ({ file }) => page.screenshot({ path: file }),
  text: async () => {
    const drawn = "document.body?.getClientRects().length ? document.body.innerText : ''"; // of hidden frames it would be their scripts
    const texts = page.frames().map((frame) => frame.evaluate(drawn).catch(() => ""));
    return (await Promise.all(texts)).join("\n");
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line);
  try {
    const result = await actions[asked.do](asked);
    console.log(JSON.stringify({ result: typeof result === "string" ? result : null }));
  } catch (error) {
    console.log(JSON.stringify({ error: error.message.split("\n")[0] }));
  }
}
await browser.close();
