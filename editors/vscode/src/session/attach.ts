// The mentions of a prompt as content blocks: links to files, and the text of lines that were mentioned.

import { basename, isAbsolute, join } from "node:path";
import type { ContentBlock } from "@agentclientprotocol/sdk";
import * as vscode from "vscode";
import { type Mention, mentions } from "./mentions.js";

/** Return the blocks of a prompt. A mention that names nothing stays text. */
export async function promptBlocks(text: string, folder: string): Promise<ContentBlock[]> {
  const blocks: ContentBlock[] = text === "" ? [] : [{ type: "text", text }];
  if (text.startsWith("/")) return blocks; // a slash command is text as a whole
  for (const mention of mentions(text)) {
    const block = await attached(mention, folder);
    if (block !== undefined) blocks.push(block);
  }
  return blocks;
}

async function attached(mention: Mention, folder: string): Promise<ContentBlock | undefined> {
  const uri = vscode.Uri.file(isAbsolute(mention.path) ? mention.path : join(folder, mention.path));
  try {
    if (mention.from === undefined) {
      await vscode.workspace.fs.stat(uri);
      return { type: "resource_link", uri: uri.toString(), name: basename(uri.fsPath) };
    }
    const document = await vscode.workspace.openTextDocument(uri);
    const last = Math.min(mention.to ?? mention.from, document.lineCount);
    const range = new vscode.Range(mention.from - 1, 0, last - 1, Number.MAX_SAFE_INTEGER);
    const text = document.getText(document.validateRange(range));
    const resource = { uri: uri.with({ fragment: `L${mention.from}-L${last}` }).toString(), text };
    return { type: "resource", resource };
  } catch {
    return undefined;
  }
}
