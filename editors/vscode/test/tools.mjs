// code-server and playwright-core, installed once for the tour of the extension and for extensions that others wrote.
//   ACP_AGENT_TOUR_TOOLS   where to (default ~/.cache/acp-agent-tour)
// As a program it prints the folder: node test/tools.mjs
import { spawnSync } from "node:child_process";
import { accessSync, constants, cpSync, existsSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { delimiter, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const root = resolve(import.meta.dirname, "..");
const CODE_SERVER = "4.100.3"; // the last one for node 20
const PLAYWRIGHT = "1.65.1";
/** What must be compiled. kerberos and others stay as they are: the editor works without them. */
const COMPILED = { "node-pty": "pty", "@vscode/spdlog": "spdlog" };

export class Skip extends Error {}

/** Return the first of these programs that is on PATH. */
export function onPath(...names) {
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
function fill(tools) {
  const done = join(tools, `installed-${CODE_SERVER}-${PLAYWRIGHT}`);
  if (existsSync(done)) return;
  if (!process.version.startsWith("v20.")) throw new Skip(`code-server ${CODE_SERVER} needs node 20, this is ${process.version}`);
  const rg = onPath("rg") ?? [process.env.ACP_AGENT, resolve(root, "../../.venv/bin/acp-agent")].map((each) => join(each ?? "/", "../rg")).find(existsSync);
  if (rg === undefined) throw new Skip("there is no ripgrep (rg) on PATH, which code-server needs");
  console.error(`installing code-server ${CODE_SERVER} into ${tools} ...`);
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

/** Return the folder of the tools, filled. Raises Skip. */
export function toolsFolder() {
  const tools = resolve(process.env.ACP_AGENT_TOUR_TOOLS ?? join(homedir(), ".cache/acp-agent-tour"));
  fill(tools);
  return tools;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  try {
    console.log(toolsFolder());
  } catch (error) {
    console.error(error.message);
    process.exitCode = 1;
  }
}
