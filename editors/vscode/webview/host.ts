// The way to the extension, and what the view remembers while it is hidden.

import type { FromView } from "../src/chat/messages.js";

interface Remembered {
  draft: string;
  open: string[];
}

const vscode = acquireVsCodeApi<Partial<Remembered>>();

export function send(message: FromView): void {
  vscode.postMessage(message);
}

export function remembered(): Remembered {
  return { draft: "", open: [], ...vscode.getState() };
}

export function remember(part: Partial<Remembered>): void {
  vscode.setState({ ...remembered(), ...part });
}
