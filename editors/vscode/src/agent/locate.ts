// Where the acp-agent program is: the setting, the selected Python environment, PATH, the usual folders.

import { constants } from "node:fs";
import { access, stat } from "node:fs/promises";
import { homedir } from "node:os";
import { delimiter, dirname, isAbsolute, join } from "node:path";
import * as vscode from "vscode";

const PROGRAM = process.platform === "win32" ? "acp-agent.exe" : "acp-agent";

/** The part of the Python extension's interface that is used here. */
interface PythonApi {
  environments?: {
    getActiveEnvironmentPath(resource?: vscode.Uri): { path: string };
    resolveEnvironment(path: { path: string }): Promise<{ executable: { uri?: vscode.Uri } } | undefined>;
  };
}

/** Return the path of the program, or undefined if it is nowhere. Throws if the setting names a file that cannot run. */
export async function findAgent(folder: vscode.Uri | undefined): Promise<string | undefined> {
  const set = vscode.workspace.getConfiguration("acpAgent").get("path", "").trim();
  if (set !== "") {
    const path = set.startsWith("~/") ? join(homedir(), set.slice(2)) : set;
    if (isAbsolute(path)) {
      if (await runs(path)) return path;
      throw new Error(`The setting acpAgent.path names ${path}, which is no program. Correct or empty the setting.`);
    }
    const found = await firstOnPath(path);
    if (found === undefined) throw new Error(`The setting acpAgent.path names ${path}, which is not on PATH.`);
    return found;
  }
  const python = await pythonProgram(folder);
  if (python !== undefined) {
    const beside = join(dirname(python), PROGRAM);
    if (await runs(beside)) return beside;
  }
  // An editor that was started from a desktop often has a short PATH.
  const usual = [join(homedir(), ".local", "bin"), "/usr/local/bin", "/opt/homebrew/bin"];
  return (await firstOnPath(PROGRAM)) ?? (await first(usual.map((each) => join(each, PROGRAM))));
}

/** Return the interpreter of the selected Python environment, if the Python extension is there. */
export async function pythonProgram(folder: vscode.Uri | undefined): Promise<string | undefined> {
  const extension = vscode.extensions.getExtension<PythonApi>("ms-python.python");
  if (extension === undefined) return undefined;
  try {
    const api = extension.isActive ? extension.exports : await extension.activate();
    if (api.environments === undefined) return undefined;
    const resolved = await api.environments.resolveEnvironment(api.environments.getActiveEnvironmentPath(folder));
    return resolved?.executable.uri?.fsPath;
  } catch {
    return undefined; // its failure is not ours: PATH is searched instead
  }
}

async function firstOnPath(name: string): Promise<string | undefined> {
  const folders = (process.env.PATH ?? "").split(delimiter).filter((each) => isAbsolute(each));
  return first(folders.map((each) => join(each, name)));
}

async function first(paths: string[]): Promise<string | undefined> {
  for (const path of paths) {
    if (await runs(path)) return path;
  }
  return undefined;
}

async function runs(path: string): Promise<boolean> {
  try {
    await access(path, constants.X_OK);
    return (await stat(path)).isFile();
  } catch {
    return false;
  }
}

/** Offer to install the agent in a terminal, where the user sees and confirms what runs. */
export async function installAgent(folder: vscode.Uri | undefined): Promise<void> {
  const python = (await pythonProgram(folder)) ?? (process.platform === "win32" ? "py" : "python3");
  const quoted = /^[\w./-]+$/.test(python) ? python : `"${python}"`;
  const terminal = vscode.window.createTerminal({ name: "Install acp-agent" });
  terminal.show();
  terminal.sendText(`${quoted} -m pip install acp-agent`, false);
}
