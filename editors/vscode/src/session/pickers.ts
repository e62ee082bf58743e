// Modes, models, options, slash commands and mentions as native pickers.

import { relative } from "node:path";
import type { SessionConfigOption } from "@agentclientprotocol/sdk";
import * as vscode from "vscode";
import { spell } from "./mentions.js";
import { optionName, type Session, values } from "./session.js";

interface Valued<T> extends vscode.QuickPickItem {
  value?: T;
}

/** What sets the value that the user chose. It is called when the picker is gone and the chat has the focus again. */
export type Apply = () => Promise<void>;

/** Let the user choose a value of the option of a category. Without one, of the session's modes. */
export async function pickCategory(session: Session, category: "mode" | "model"): Promise<Apply | undefined> {
  const option = session.option(category);
  if (option !== undefined) return pickValue(session, option);
  const modes = session.modes;
  if (category !== "mode" || modes === undefined) {
    void vscode.window.showInformationMessage(`This session has no ${category} to choose.`);
    return undefined;
  }
  const items = modes.availableModes.map(({ id, name, description }) => ({
    ...item(name, description, id === modes.currentModeId),
    value: id,
  }));
  const picked = await vscode.window.showQuickPick(items, { title: "Mode", matchOnDescription: true });
  return picked === undefined ? undefined : () => session.setMode(picked.value);
}

/** Let the user choose an option, then its value. */
export async function pickOption(session: Session): Promise<Apply | undefined> {
  const items = session.options.map((option) => ({
    label: option.name,
    description: optionName(option) ?? "",
    ...(option.description == null ? {} : { detail: option.description }),
    option,
  }));
  const picked = await vscode.window.showQuickPick(items, { title: "Options of this session" });
  return picked === undefined ? undefined : pickValue(session, picked.option);
}

/** The values may change while the picker is open: lists of models come in the background. */
async function pickValue(session: Session, option: SessionConfigOption): Promise<Apply | undefined> {
  const picker = vscode.window.createQuickPick<Valued<string | boolean>>();
  picker.title = option.name;
  picker.placeholder = option.description ?? option.name;
  picker.matchOnDescription = true;
  const fill = () => {
    picker.items = valueItems(session.options.find(({ id }) => id === option.id) ?? option);
  };
  fill();
  const unwatch = session.watchOptions(fill);
  const value = await new Promise<string | boolean | undefined>((resolve) => {
    picker.onDidAccept(() => {
      resolve(picker.selectedItems[0]?.value);
    });
    picker.onDidHide(() => {
      resolve(undefined);
    });
    picker.show();
  });
  unwatch();
  picker.dispose();
  return value === undefined ? undefined : () => session.setOption(option, value);
}

function valueItems(option: SessionConfigOption): Valued<string | boolean>[] {
  if (option.type === "boolean") {
    return [
      { ...item("On", undefined, option.currentValue), value: true },
      { ...item("Off", undefined, !option.currentValue), value: false },
    ];
  }
  const items: Valued<string | boolean>[] = [];
  let group: string | undefined;
  for (const each of values(option)) {
    if (each.group !== group && each.group !== undefined) {
      items.push({ label: each.group, kind: vscode.QuickPickItemKind.Separator });
    }
    group = each.group;
    items.push({ ...item(each.name, each.description, each.value === option.currentValue), value: each.value });
  }
  return items;
}

function item(name: string, description: string | null | undefined, current: boolean): vscode.QuickPickItem {
  return {
    label: name,
    description: [current ? "current" : "", description ?? ""].filter(Boolean).join(" · "),
    ...(current ? { iconPath: new vscode.ThemeIcon("check") } : {}),
  };
}

/** Return the slash command that the user chose, as it is typed. */
export async function pickSlash(session: Session): Promise<string | undefined> {
  const items = session.commands.map(({ name, description, input }) => ({
    label: `/${name}`,
    description: input == null ? "" : input.hint,
    detail: description,
    text: input == null ? `/${name}` : `/${name} `,
  }));
  const picked = await vscode.window.showQuickPick(items, { title: "Slash commands", matchOnDetail: true });
  return picked?.text;
}

const MOST_FILES = 5000;
const MOST_PROBLEMS = 200;

type Source = "files" | "symbols" | "problems";

/** Return what the user chose to mention, as it is typed. `problems` says whether the agent can read the problems. */
export async function pickMention(folder: string, problems: boolean): Promise<string | undefined> {
  const sources: (vscode.QuickPickItem & { source: Source })[] = [
    { label: "$(symbol-method) Symbol...", description: "of the workspace", source: "symbols" },
    { label: "$(warning) Problem...", description: "of the Problems view", source: "problems" },
  ];
  const files = await fileItems(folder);
  const items: (vscode.QuickPickItem & { text?: string; source?: Source })[] = [
    ...sources,
    { label: "files", kind: vscode.QuickPickItemKind.Separator },
    ...files,
  ];
  const picked = await vscode.window.showQuickPick(items, {
    title: "Mention",
    placeHolder: "A file, a symbol or a problem",
    matchOnDescription: true,
  });
  if (picked?.source === "symbols") return pickSymbol(folder);
  if (picked?.source === "problems") return pickProblem(folder, problems);
  return picked?.text;
}

async function fileItems(folder: string): Promise<(vscode.QuickPickItem & { text: string })[]> {
  const found = await vscode.workspace.findFiles("**/*", undefined, MOST_FILES);
  const open = vscode.window.tabGroups.all
    .flatMap((group) => group.tabs)
    .flatMap((tab) => (tab.input instanceof vscode.TabInputText ? [tab.input.uri.toString()] : []));
  const rank = (uri: vscode.Uri) => (open.includes(uri.toString()) ? 0 : 1);
  return found
    .sort((a, b) => rank(a) - rank(b) || (a.path < b.path ? -1 : 1))
    .map((uri) => {
      const path = named(folder, uri);
      return { label: path, text: spell({ path }), ...(rank(uri) === 0 ? { description: "open" } : {}) };
    });
}

/** Ask the language servers while the user types. */
async function pickSymbol(folder: string): Promise<string | undefined> {
  const picker = vscode.window.createQuickPick<vscode.QuickPickItem & { text: string }>();
  picker.title = "Mention a symbol";
  picker.placeholder = "Type a part of its name";
  let asked = 0;
  const search = async (query: string) => {
    asked += 1;
    const mine = asked;
    picker.busy = true;
    const found = await vscode.commands.executeCommand<vscode.SymbolInformation[] | undefined>(
      "vscode.executeWorkspaceSymbolProvider",
      query,
    );
    if (mine !== asked) return;
    picker.busy = false;
    picker.items = (found ?? []).slice(0, 300).map(({ name, containerName, location }) => {
      const path = named(folder, location.uri);
      const { start, end } = location.range;
      const mention = spell({ path, from: start.line + 1, to: end.line + 1 });
      const description = containerName === "" ? "" : containerName;
      return { label: name, description, detail: `${path}:${start.line + 1}`, text: `\`${name}\` ${mention}` };
    });
  };
  picker.onDidChangeValue(search);
  void search("");
  return new Promise((resolve) => {
    picker.onDidAccept(() => {
      resolve(picker.selectedItems[0]?.text);
      picker.dispose();
    });
    picker.onDidHide(() => {
      resolve(undefined);
      picker.dispose();
    });
    picker.show();
  });
}

async function pickProblem(folder: string, readable: boolean): Promise<string | undefined> {
  const all = vscode.languages.getDiagnostics().flatMap(([uri, found]) => found.map((each) => ({ uri, each })));
  all.sort((a, b) => a.each.severity - b.each.severity);
  const items: (vscode.QuickPickItem & { text: string })[] = all.slice(0, MOST_PROBLEMS).map(({ uri, each }) => {
    const path = named(folder, uri);
    const from = each.range.start.line + 1;
    const severity = vscode.DiagnosticSeverity[each.severity].toLowerCase();
    return {
      label: `$(${severity === "error" ? "error" : severity === "warning" ? "warning" : "info"}) ${each.message}`,
      description: `${path}:${from}`,
      text: `${spell({ path, from })} (${severity}: ${each.message.replace(/\s+/g, " ").slice(0, 300)})`,
    };
  });
  if (readable && items.length > 0) items.unshift({ label: "All problems", description: "@diagnostics", text: "@diagnostics" });
  if (items.length === 0) {
    void vscode.window.showInformationMessage("The Problems view is empty.");
    return undefined;
  }
  const picked = await vscode.window.showQuickPick(items, { title: "Mention a problem", matchOnDescription: true });
  return picked?.text;
}

/** Return the mention of the selected lines of an editor. */
export function selectionMention(editor: vscode.TextEditor, folder: string): string {
  const { start, end } = editor.selection;
  const last = end.character === 0 && end.line > start.line ? end.line - 1 : end.line;
  return spell({ path: named(folder, editor.document.uri), from: start.line + 1, to: last + 1 });
}

function named(folder: string, uri: vscode.Uri): string {
  const inside = relative(folder, uri.fsPath);
  return inside.startsWith("..") ? uri.fsPath : inside;
}
