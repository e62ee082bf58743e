// The pictures of the next prompt. They are kept here: the chat view ends when it is hidden.

import { extname } from "node:path";
import type { ContentBlock } from "@agentclientprotocol/sdk";
import * as vscode from "vscode";
import { imageBlock } from "./images.js";

const KINDS: Record<string, string> = { png: "png", jpg: "jpeg", jpeg: "jpeg", gif: "gif", webp: "webp" };
const MOST = 10;
/** Characters of one picture in base64: about 10 MB. */
const LONGEST = 14_000_000;

export class Pictures {
  private kept: string[] = [];

  constructor(private readonly changed: (pictures: readonly string[]) => void) {}

  get all(): readonly string[] {
    return this.kept;
  }

  /** Add a picture, given as a `data:` address. */
  add(picture: string): void {
    if (imageBlock(picture) === undefined) throw new Error("Only PNG, JPEG, GIF and WebP pictures can be attached.");
    if (picture.length > LONGEST) throw new Error("This picture is too large: at most 10 MB can be attached.");
    if (this.kept.length >= MOST) throw new Error(`At most ${MOST} pictures can be attached to a prompt.`);
    this.set([...this.kept, picture]);
  }

  /** Let the user choose files. */
  async choose(): Promise<void> {
    const filters = { Pictures: Object.keys(KINDS) };
    const chosen = await vscode.window.showOpenDialog({ canSelectMany: true, filters, openLabel: "Attach", title: "Attach pictures" });
    for (const uri of chosen ?? []) {
      const kind = KINDS[extname(uri.path).slice(1).toLowerCase()] ?? "unknown";
      const bytes = await vscode.workspace.fs.readFile(uri);
      this.add(`data:image/${kind};base64,${Buffer.from(bytes).toString("base64")}`);
    }
  }

  remove(index: number): void {
    this.set(this.kept.filter((_, at) => at !== index));
  }

  /** Return the pictures as blocks of a prompt, which has them from now on. */
  take(): ContentBlock[] {
    const blocks = this.kept.flatMap((picture) => imageBlock(picture) ?? []);
    this.set([]);
    return blocks;
  }

  private set(pictures: string[]): void {
    this.kept = pictures;
    this.changed(pictures);
  }
}
