// The chat view: a webview that shows what the extension tells it. It loads nothing from elsewhere.

import { randomBytes } from "node:crypto";
import * as vscode from "vscode";
import type { FromView, Item, ToView } from "./messages.js";

/** Milliseconds in which changes are collected before the view is told. */
const COLLECT_MS = 30;

export class ChatView implements vscode.WebviewViewProvider {
  static readonly id = "acpAgent.chat";
  private view: vscode.WebviewView | undefined;
  private ready = false;
  private readonly waiting = new Map<string, Item>();
  private readonly texts = new Map<string, string>();
  private timer: NodeJS.Timeout | undefined;
  private onReady: ToView[] = [];

  constructor(
    private readonly folder: vscode.Uri,
    private readonly received: (message: FromView) => void,
  ) {}

  resolveWebviewView(view: vscode.WebviewView): void {
    this.view = view;
    this.ready = false;
    const roots = ["dist", "media"].map((name) => vscode.Uri.joinPath(this.folder, name));
    view.webview.options = { enableScripts: true, localResourceRoots: roots };
    view.webview.onDidReceiveMessage((message: FromView) => {
      if (message.type === "ready") this.ready = true;
      this.received(message);
      if (message.type === "ready") for (const each of this.onReady.splice(0)) this.post(each);
    });
    view.onDidDispose(() => {
      this.view = undefined;
      this.ready = false;
    });
    view.webview.html = this.html(view.webview);
  }

  get visible(): boolean {
    return this.view?.visible ?? false;
  }

  /** Tell the view something now, or when it is there. */
  async show(message: ToView): Promise<void> {
    if (this.ready) this.post(message);
    else this.onReady.push(message);
    await vscode.commands.executeCommand(`${ChatView.id}.focus`);
  }

  post(message: ToView): void {
    if (!this.ready) return;
    if (message.type === "reset") this.forget();
    else this.flush();
    void this.view?.webview.postMessage(message);
  }

  /** Tell the view of a changed item soon. Of an item only the last state is told. */
  item(item: Item): void {
    this.waiting.set(item.id, item);
    this.texts.delete(item.id);
    this.later();
  }

  append(id: string, text: string): void {
    if (!this.waiting.has(id)) this.texts.set(id, (this.texts.get(id) ?? "") + text);
    this.later();
  }

  private later(): void {
    this.timer ??= setTimeout(() => {
      this.flush();
    }, COLLECT_MS);
  }

  private flush(): void {
    const items = [...this.waiting.values()];
    const texts = [...this.texts];
    this.forget();
    if (!this.ready || this.view === undefined) return;
    if (items.length > 0) void this.view.webview.postMessage({ type: "items", items } satisfies ToView);
    for (const [id, text] of texts) void this.view.webview.postMessage({ type: "append", id, text } satisfies ToView);
  }

  private forget(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.waiting.clear();
    this.texts.clear();
  }

  private html(webview: vscode.Webview): string {
    const nonce = randomBytes(16).toString("base64");
    const script = webview.asWebviewUri(vscode.Uri.joinPath(this.folder, "dist", "chat.js")).toString();
    const style = webview.asWebviewUri(vscode.Uri.joinPath(this.folder, "media", "chat.css")).toString();
    const policy = `default-src 'none'; img-src data:; style-src ${webview.cspSource}; script-src 'nonce-${nonce}'`;
    return `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="${style}">
<title>acp-agent</title>
</head>
<body>
<div id="app"></div>
<script nonce="${nonce}" src="${script}"></script>
</body>
</html>`;
  }
}
