// The sessions of this folder as a native picker: load one, resume it without its conversation, or delete it.

import * as vscode from "vscode";
import type { Conversations } from "./conversations.js";

const RESUME: vscode.QuickInputButton = {
  iconPath: new vscode.ThemeIcon("debug-continue"),
  tooltip: "Resume without showing the conversation",
};
const DELETE: vscode.QuickInputButton = { iconPath: new vscode.ThemeIcon("trash"), tooltip: "Delete this session" };

interface SessionItem extends vscode.QuickPickItem {
  id: string;
  cwd: string;
}

export async function pickSession(conversations: Conversations): Promise<void> {
  const picker = vscode.window.createQuickPick<SessionItem>();
  picker.title = "Sessions of this folder";
  picker.placeholder = "Enter shows a session and goes on with it";
  picker.matchOnDescription = true;
  const fill = async () => {
    picker.busy = true;
    const found = await conversations.list();
    picker.items = found.map(({ sessionId, cwd, title, updatedAt }) => ({
      id: sessionId,
      cwd,
      label: title ?? "Untitled",
      description: [sessionId === conversations.current?.id ? "shown now" : "", ago(updatedAt ?? undefined)]
        .filter(Boolean)
        .join(" · "),
      detail: sessionId,
      buttons: [RESUME, DELETE],
    }));
    picker.busy = false;
  };
  const chosen = new Promise<{ item: SessionItem; how: "load" | "resume" } | undefined>((resolve) => {
    picker.onDidAccept(() => {
      const [item] = picker.selectedItems;
      resolve(item === undefined ? undefined : { item, how: "load" });
      picker.hide();
    });
    picker.onDidHide(() => {
      resolve(undefined);
    });
    picker.onDidTriggerItemButton(({ button, item }) => {
      if (button === RESUME) {
        resolve({ item, how: "resume" });
        picker.hide();
      } else void remove(conversations, item).then(fill);
    });
  });
  try {
    picker.show();
    await fill();
    const choice = await chosen;
    if (choice !== undefined) await conversations.load(choice.item.id, choice.item.cwd, choice.how);
  } finally {
    picker.dispose();
  }
}

async function remove(conversations: Conversations, item: SessionItem): Promise<void> {
  const question = `Delete the session “${item.label}”? It cannot be brought back.`;
  const answer = await vscode.window.showWarningMessage(question, { modal: true }, "Delete");
  if (answer === "Delete") await conversations.delete(item.id);
}

/** Return how long ago a time was. */
export function ago(time: string | undefined, now = Date.now()): string {
  if (time === undefined) return "";
  const minutes = Math.floor((now - Date.parse(time)) / 60_000);
  if (Number.isNaN(minutes)) return "";
  if (minutes < 1) return "just now";
  if (minutes < 60) return `${minutes} min ago`;
  if (minutes < 48 * 60) return `${Math.floor(minutes / 60)} h ago`;
  return `${Math.floor(minutes / 1440)} days ago`;
}
