// A real VS Code in a browser: code-server with the packaged extension, driven through Chromium.
//   CODE_SERVER   the entry script of code-server (out/node/entry.js)
//   CHROMIUM      the browser (default /usr/bin/chromium)
//   PLAYWRIGHT    the folder of playwright-core, if it is not installed here
//   ACP_AGENT     the acp-agent program
import { execFile, spawn } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);
const root = resolve(import.meta.dirname, "../..");

function needed(name) {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set; see the head of test/tour/editor.mjs`);
  return resolve(value);
}

function freePort() {
  return new Promise((done) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => done(port));
    });
  });
}

/** The themes in which each state is looked at, with the class that VS Code gives its window. */
const THEMES = {
  dark: ["Default Dark Modern", "vs-dark"],
  light: ["Default Light Modern", "vs"],
  contrast: ["Default High Contrast", "hc-black"],
  "contrast-light": ["Default High Contrast Light", "hc-light"],
};

const CONFIGURATION = `
[[llm.models]]
id = "openai:tour-large"
price = { input = 10, output = 20 }
`;

/**
 * Start the editor on a folder `name` with `files`.
 *
 * settings   the user's, of VS Code
 * env        more variables for the agent
 * prepare    installs extension and settings in place of this function: (HOME, the code-server command, variables) => variables
 */
export async function startEditor({ files, name = "shop", env = {}, prepare, settings = {}, modelUrl, width = 1280, height = 860, program, also = [] }) {
  const base = await mkdtemp(join(tmpdir(), "acp-agent-tour-"));
  const folder = join(base, name);
  const userData = prepare ? join(base, ".config/Code") : join(base, "user");
  const extensions = join(base, "extensions");
  for (const each of [folder, join(userData, "User"), join(userData, "Machine"), extensions]) {
    await mkdir(each, { recursive: true });
  }
  for (const [name, text] of Object.entries(files)) {
    await mkdir(join(folder, name, ".."), { recursive: true });
    await writeFile(join(folder, name), text);
  }
  await run("git", ["init", "-q", folder]);
  const all = {
    "security.workspace.trust.enabled": false,
    "workbench.startupEditor": "none",
    "workbench.colorTheme": THEMES.dark[0],
    "window.autoDetectColorScheme": false,
    "telemetry.telemetryLevel": "off",
    "extensions.ignoreRecommendations": true,
    "workbench.tips.enabled": false,
    "remote.autoForwardPorts": false, // it would tell of the ports of every other program here
    "terminal.integrated.gpuAcceleration": "off", // its text is in the page then
    "acpAgent.path": program ?? needed("ACP_AGENT"),
    "acpAgent.env": {
      ACP_AGENT_MODEL: "openai:tour-large",
      ACP_AGENT_DATA_DIR: join(base, "data"),
      ACP_AGENT_CONFIG: join(base, "config.toml"),
      OPENAI_BASE_URL: modelUrl,
      OPENAI_API_KEY: "fake-key-of-the-tour",
      ...env,
    },
    ...settings,
  };
  await writeFile(join(base, "config.toml"), CONFIGURATION);

  const server = needed("CODE_SERVER");
  let environ = { ...process.env, HOME: base, PASSWORD: "" };
  const common = ["--user-data-dir", userData, "--extensions-dir", extensions];
  if (prepare) environ = await prepare(base, [process.execPath, server, ...common], environ);
  else {
    for (const each of ["User", "Machine"]) await writeFile(join(userData, each, "settings.json"), JSON.stringify(all));
    const installed = [join(root, "acp-agent.vsix"), ...also].flatMap((each) => ["--install-extension", each]);
    await run(process.execPath, [server, ...common, ...installed], { env: environ });
  }
  const port = await freePort();
  const arguments_ = [...common, "--auth", "none", "--bind-addr", `127.0.0.1:${port}`, "--disable-telemetry"];
  const child = spawn(process.execPath, [server, ...arguments_, "--disable-update-check"], { env: environ, stdio: ["ignore", "pipe", "pipe"] });
  await new Promise((done, failed) => {
    let log = "";
    for (const pipe of [child.stdout, child.stderr]) {
      pipe.on("data", (data) => {
        log += data;
        if (log.includes("HTTP server listening")) done();
      });
    }
    child.once("exit", () => failed(new Error(log)));
  });

  const load = createRequire(process.env.PLAYWRIGHT ? join(resolve(process.env.PLAYWRIGHT), "package.json") : import.meta.url);
  const { chromium } = load("playwright-core");
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
  const page = await browser.newPage({ viewport: { width, height } });
  const address = `http://127.0.0.1:${port}/?folder=${encodeURIComponent(folder)}`;
  const editor = {
    page,
    folder,
    base,
    userData,
    /** The document of the chat: a frame in a frame. */
    chat: page.frameLocator("iframe.webview.ready[src*='extensionId=acp-agent']").frameLocator("iframe#active-frame"),
    async open() {
      await page.goto(address, { timeout: 90_000 });
      await page.waitForSelector(".monaco-workbench .activitybar", { timeout: 60_000 });
    },
    /** Run a command of the palette. */
    async command(name) {
      await page.keyboard.press("F1");
      const input = page.locator(".quick-input-widget input.input");
      await input.fill(`>${name}`);
      await page.locator(`.quick-input-list .monaco-list-row.focused[aria-label^="${name}"]`).waitFor(); // the list before is gone
      await page.keyboard.press("Enter");
    },
    /** Do something in each theme, and go back to the first one. */
    async inThemes(work) {
      for (const name of Object.keys(THEMES)) {
        await useTheme(editor, name);
        await work(name);
      }
      await useTheme(editor, "dark");
    },
    /** Keep a picture of the window in each theme, if SHOTS names a folder. */
    async shot(name) {
      const to = process.env.SHOTS;
      if (to) await editor.inThemes((theme) => page.screenshot({ path: join(to, `${name}-${theme}.png`) }));
    },
    /** Drag the edge of the chat. */
    async chatWidth(pixels) {
      const { x, width: old } = await page.locator(".part.sidebar").boundingBox();
      await page.mouse.move(x + old, 500);
      await page.mouse.down();
      await page.mouse.move(x + pixels, 500, { steps: 5 });
      await page.mouse.up();
      await page.mouse.move(x + pixels + 200, 500); // the edge is not lit any more
    },
    async stop() {
      await browser.close();
      child.kill();
      await new Promise((done) => child.once("exit", done));
      await rm(base, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
    },
  };
  return editor;
}

async function useTheme({ userData, page }, name) {
  const [theme, shown] = THEMES[name];
  for (const each of ["User", "Machine"]) {
    const path = join(userData, each, "settings.json");
    const settings = JSON.parse(await readFile(path, "utf8").catch(() => "{}"));
    await writeFile(path, JSON.stringify({ ...settings, "workbench.colorTheme": theme }));
  }
  await page.locator(`.monaco-workbench.${shown}`).waitFor();
  await new Promise((done) => setTimeout(done, 400)); // the chat follows
}
