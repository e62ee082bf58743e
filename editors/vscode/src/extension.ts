// The entry point: registers the chat view and the commands.

import * as vscode from "vscode";
import { ChatView } from "./chat/view.js";
import { Controller } from "./controller.js";
import { selectionMention } from "./session/pickers.js";

let controller: Controller | undefined;

export function activate(context: vscode.ExtensionContext): void {
  const parts = new Controller(context);
  controller = parts;
  const command = (name: string, work: () => Promise<unknown>) =>
    vscode.commands.registerCommand(`acpAgent.${name}`, () => parts.guarded(work));
  const focus = () => parts.view.show({ type: "focus" });
  context.subscriptions.push(
    parts,
    vscode.window.registerWebviewViewProvider(ChatView.id, parts.view),
    command("focus", focus),
    command("newSession", () => parts.newSession()),
    command("sessions", () => parts.pick("sessions")),
    command("undo", () => parts.prompt("/undo")),
    command("redo", () => parts.prompt("/redo")),
    command("cancel", () => parts.cancel()),
    command("mode", () => parts.pick("mode")),
    command("model", () => parts.pick("model")),
    command("options", () => parts.pick("options")),
    command("slash", () => parts.pick("slash")),
    command("mention", () => parts.pick("mention")),
    command("mentionSelection", async () => {
      const editor = vscode.window.activeTextEditor;
      const folder = vscode.workspace.workspaceFolders?.[0];
      if (editor === undefined || folder === undefined) return;
      await parts.view.show({ type: "insert", text: selectionMention(editor, folder.uri.fsPath) });
    }),
    command("acceptEdit", async () => {
      await focus();
      parts.answerDiff("allow_once");
    }),
    // The chat does not take the focus here: the agent may ask for a reason, in an input that must keep it.
    command("rejectEdit", () => {
      parts.answerDiff("reject_once");
      return Promise.resolve();
    }),
    command("restart", () => parts.conversations.restart()),
    command("login", () => parts.act("login")),
    command("showLog", () => parts.act("log")),
  );
}

export async function deactivate(): Promise<void> {
  await controller?.conversations.stop();
}
