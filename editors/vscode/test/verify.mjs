// All checks of the extension: npm run verify. It installs code-server and playwright-core once, and prints what it skips and why.
//   ACP_AGENT              the acp-agent program (default: that of the checkout's .venv)
//   CHROMIUM               the browser (default: chromium or google-chrome on PATH)
//   ACP_AGENT_TOUR_TOOLS   see test/tools.mjs
//   CODE_SERVER, PLAYWRIGHT   those that are there already; see test/tour/editor.mjs
//   SHOTS                  a folder for screenshots of each state in four themes
import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, statSync } from "node:fs";
import { join, resolve } from "node:path";
import { onPath, Skip, toolsFolder } from "./tools.mjs";

const root = resolve(import.meta.dirname, "..");
const LARGEST = 1024 * 1024;

function run(command, args, options = {}) {
  const { status } = spawnSync(command, args, { cwd: root, stdio: "inherit", ...options });
  if (status !== 0) throw new Error(`${[command, ...args].join(" ")} failed`);
}

/** Return the environment of the tour. */
function tourEnvironment() {
  const chromium = process.env.CHROMIUM ?? onPath("chromium", "chromium-browser", "google-chrome");
  if (chromium === undefined) throw new Skip("there is no Chromium: apt install chromium, or name one in CHROMIUM");
  const agent = process.env.ACP_AGENT ?? resolve(root, "../../.venv/bin/acp-agent");
  if (!existsSync(agent)) throw new Skip(`there is no ${agent}: make .venv/.ready in the checkout, or name one in ACP_AGENT`);
  const given = process.env.CODE_SERVER && process.env.PLAYWRIGHT;
  const tools = given ? "" : toolsFolder();
  const server = process.env.CODE_SERVER ?? join(tools, "node_modules/code-server/out/node/entry.js");
  if (process.env.SHOTS) mkdirSync(process.env.SHOTS, { recursive: true });
  return { ...process.env, ACP_AGENT: agent, CHROMIUM: chromium, CODE_SERVER: server, PLAYWRIGHT: process.env.PLAYWRIGHT ?? tools };
}

try {
  run("npm", ["run", "--silent", "check"]);
  run("npm", ["test", "--silent"]);
  run("npm", ["run", "--silent", "package"]);
  const { size } = statSync(join(root, "acp-agent.vsix"));
  if (size > LARGEST) throw new Error(`acp-agent.vsix has ${size} bytes, more than ${LARGEST}`);
  console.log(`verify: types, eslint and unit tests passed; acp-agent.vsix has ${Math.round(size / 1024)} KB`);
  const env = tourEnvironment();
  console.log(`verify: the tour, with ${execFileSync(env.ACP_AGENT, ["--version"], { encoding: "utf8" }).trim()}`);
  run("npm", ["run", "--silent", "tour"], { env });
  console.log("verify: every stop of the tour passed");
} catch (error) {
  if (error instanceof Skip) console.log(`verify: skipped tour: ${error.message}`);
  else {
    console.log(`verify: failed: ${error.message}`);
    process.exitCode = 1;
  }
}
