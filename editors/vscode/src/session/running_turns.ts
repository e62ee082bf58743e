// Which sessions have a turn that runs. It is kept in a file: VS Code writes its own state too late for a reload in mid-turn.

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";

export class RunningTurns {
  private readonly ids: Set<string>;

  /** `file` is undefined where VS Code has no folder to store in. */
  constructor(private readonly file: string | undefined) {
    this.ids = new Set(file === undefined ? [] : read(file));
  }

  /** Note that a turn of a session began or ended. */
  note(sessionId: string, runs: boolean): void {
    if (runs === this.ids.has(sessionId)) return;
    if (runs) this.ids.add(sessionId);
    else this.ids.delete(sessionId);
    this.write();
  }

  /** Return whether a turn of the session ran when the window was closed, and forget it. */
  take(sessionId: string): boolean {
    const ran = this.ids.delete(sessionId);
    if (ran) this.write();
    return ran;
  }

  private write(): void {
    if (this.file === undefined) return;
    try {
      mkdirSync(dirname(this.file), { recursive: true });
      writeFileSync(this.file, JSON.stringify([...this.ids]));
    } catch {
      // The disk is full or read-only: the notice after a reload is not worth more words.
    }
  }
}

function read(file: string): string[] {
  try {
    const found: unknown = JSON.parse(readFileSync(file, "utf8"));
    return Array.isArray(found) ? found.filter((each) => typeof each === "string") : [];
  } catch {
    return [];
  }
}
