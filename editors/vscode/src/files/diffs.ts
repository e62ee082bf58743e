// Edits as real diffs: vscode.diff between the text before and the text after, both read-only.

import { basename } from "node:path";
import * as vscode from "vscode";
import type { DiffPart } from "../chat/messages.js";

const SCHEME = "acp-agent-diff";
const MOST = 50;

/** Holds the two sides of the diffs that were opened, and knows which of them a question is about. */
export class Diffs implements vscode.TextDocumentContentProvider, vscode.Disposable {
  private readonly texts = new Map<string, string>();
  private readonly questions = new Map<string, string>();
  private readonly disposables: vscode.Disposable[];
  private made = 0;

  constructor() {
    this.disposables = [
      vscode.workspace.registerTextDocumentContentProvider(SCHEME, this),
      vscode.window.tabGroups.onDidChangeTabs(() => {
        this.showContext();
      }),
      vscode.window.tabGroups.onDidChangeTabGroups(() => {
        this.showContext();
      }),
    ];
  }

  provideTextDocumentContent(uri: vscode.Uri): string {
    return this.texts.get(uri.toString()) ?? "";
  }

  /** Open a diff. With `questionId` it can be accepted or rejected there. */
  async open(diff: DiffPart, questionId?: string, keepFocus = false): Promise<void> {
    this.made += 1;
    const name = basename(diff.path);
    const before = this.side(diff.path, "before", diff.oldText ?? "");
    const after = this.side(diff.path, "after", diff.newText);
    if (questionId !== undefined) this.questions.set(after.toString(), questionId);
    const what = questionId === undefined ? "edited by the agent" : "accept this edit?";
    const title = `${name}${diff.oldText === null ? " (new file)" : ""}: ${what}`;
    const options: vscode.TextDocumentShowOptions = { preview: true, preserveFocus: keepFocus };
    await vscode.commands.executeCommand("vscode.diff", before, after, title, options);
    this.showContext();
  }

  /** Return the question whose diff is shown in the active editor. */
  get activeQuestion(): string | undefined {
    const tab = vscode.window.tabGroups.activeTabGroup.activeTab;
    return tab === undefined ? undefined : this.questionOf(tab);
  }

  /** Close the diffs of a question that has its answer. */
  async close(questionId: string): Promise<void> {
    const tabs = vscode.window.tabGroups.all.flatMap((group) => group.tabs);
    const shown = tabs.filter((tab) => this.questionOf(tab) === questionId);
    for (const [uri, id] of this.questions) if (id === questionId) this.questions.delete(uri);
    if (shown.length > 0) await vscode.window.tabGroups.close(shown, true);
    this.showContext();
  }

  dispose(): void {
    for (const each of this.disposables) each.dispose();
  }

  private questionOf(tab: vscode.Tab): string | undefined {
    return tab.input instanceof vscode.TabInputTextDiff
      ? this.questions.get(tab.input.modified.toString())
      : undefined;
  }

  /** The path keeps its end, so that the language of the file is found. */
  private side(path: string, side: string, text: string): vscode.Uri {
    const uri = vscode.Uri.from({ scheme: SCHEME, path: vscode.Uri.file(path).path, query: `${side}-${this.made}` });
    this.texts.set(uri.toString(), text);
    for (const old of [...this.texts.keys()].slice(0, -2 * MOST)) this.texts.delete(old);
    return uri;
  }

  private showContext(): void {
    const isQuestion = this.activeQuestion !== undefined;
    void vscode.commands.executeCommand("setContext", "acpAgent.questionDiff", isQuestion);
  }
}
