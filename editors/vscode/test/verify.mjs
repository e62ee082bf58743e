// All checks of the extension: npm run verify. It installs code-server and playwright-core once, and prints what it skips and why.
//   ACP_AGENT              the acp-agent program (default: that of the checkout's .venv)
//   CHROMIUM               the browser (default: chromium or google-chrome on PATH)
//   ACP_AGENT_TOUR_TOOLS   where code-server and playwright-core are installed (default ~/.cache/acp-agent-tour)
//   CODE_SERVER, PLAYWRIGHT   those that are there already; see test/tour/editor.mjs
//   SHOTS                  a folder for screenshots of each state in four themes
import { execFileSync, spawnSync } from "node:child_process";
import { accessSync, constants, cpSync, existsSync, mkdirSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { delimiter, join, resolve } from "node:path";

const root = resolve(import.meta.dirname, "..");
const CODE_SERVER = "4.100.3"; // the last one for node 20
const PLAYWRIGHT = "1.65.1";
/** What must be compiled. kerberos and others stay as they are: the editor works without them. */
const COMPILED = { "node-pty": "pty", "@vscode/spdlog": "spdlog" };
const LARGEST = 1024 * 1024;

class Skip extends Error {}

function run(command, args, options = {}) {
  const { status } = spawnSync(command, args, { cwd: root, stdio: "inherit", ...options });
  if (status !== 0) throw new Error(`${[command, ...args].join(" ")} failed`);
}

function onPath(...names) {
  const folders = (process.env.PATH ?? "").split(delimiter);
  return names.flatMap((name) => folders.map((each) => join(each, name))).find((path) => {
    try {
      accessSync(path, constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

/** Install code-server without its post-install script, which fetches programs from GitHub: these steps stand in for it. */
function install(tools) {
  const done = join(tools, `installed-${CODE_SERVER}-${PLAYWRIGHT}`);
  if (existsSync(done)) return;
  if (!process.version.startsWith("v20.")) throw new Skip(`code-server ${CODE_SERVER} needs node 20, this is ${process.version}`);
  const rg = onPath("rg") ?? [process.env.ACP_AGENT, resolve(root, "../../.venv/bin/acp-agent")].map((each) => join(each ?? "/", "../rg")).find(existsSync);
  if (rg === undefined) throw new Skip("there is no ripgrep (rg) on PATH, which code-server needs");
  console.log(`verify: installing code-server ${CODE_SERVER} into ${tools} ...`);
  rmSync(tools, { recursive: true, force: true });
  mkdirSync(tools, { recursive: true });
  writeFileSync(join(tools, "package.json"), "{}");
  const npm = (cwd, ...args) => {
    const { status, stderr } = spawnSync("npm", [...args, "--no-audit", "--no-fund", "--loglevel=error"], { cwd, encoding: "utf8" });
    if (status !== 0) throw new Skip(`npm ${args.join(" ")} failed: ${stderr.trim().split("\n").at(-1)}`);
  };
  npm(tools, "install", "--ignore-scripts", `code-server@${CODE_SERVER}`, `playwright-core@${PLAYWRIGHT}`);
  npm(tools, "rebuild", "argon2");
  const code = join(tools, "node_modules/code-server/lib/vscode");
  npm(code, "install", "--omit=dev", "--ignore-scripts");
  for (const [name, library] of Object.entries(COMPILED)) {
    const { stderr } = spawnSync("npm", ["rebuild", name], { cwd: code, encoding: "utf8" });
    const made = existsSync(join(code, "node_modules", name, "build/Release", `${library}.node`)); // a later step may have failed
    if (!made) throw new Skip(`npm rebuild ${name} failed: ${stderr.slice(-400)}`);
  }
  npm(join(code, "extensions"), "install", "--omit=dev", "--ignore-scripts");
  rmSync(join(code, "node_modules.asar"), { force: true });
  symlinkSync("node_modules", join(code, "node_modules.asar"));
  mkdirSync(join(code, "node_modules/@vscode/ripgrep/bin"), { recursive: true });
  cpSync(rg, join(code, "node_modules/@vscode/ripgrep/bin/rg"), { dereference: true });
  writeFileSync(done, "");
}

/** Return the environment of the tour. */
function tourEnvironment() {
  const chromium = process.env.CHROMIUM ?? onPath("chromium", "chromium-browser", "google-chrome");
  if (chromium === undefined) throw new Skip("there is no Chromium: apt install chromium, or name one in CHROMIUM");
  const agent = process.env.ACP_AGENT ?? resolve(root, "../../.venv/bin/acp-agent");
  if (!existsSync(agent)) throw new Skip(`there is no ${agent}: make .venv/.ready in the checkout, or name one in ACP_AGENT`);
  const tools = resolve(process.env.ACP_AGENT_TOUR_TOOLS ?? join(homedir(), ".cache/acp-agent-tour"));
  if (process.env.CODE_SERVER === undefined) install(tools);
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
