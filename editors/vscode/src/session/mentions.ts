// Mentions in a prompt: @path, @path:10, @path:10-20, and the same in quotes for paths with spaces.

export interface Mention {
  path: string;
  /** Lines, counted from 1; `to` is part of the range. */
  from?: number;
  to?: number;
}

const MENTION = /(?<![\w@./:-])@(?:"([^"\n]+)"|([^\s"@]+))/g;
const LINES = /^(.*):(\d{1,7})(?:-(\d{1,7}))?$/;

/** Return the mentions of a text in their order, each once. `@diagnostics` is the agent's own word. */
export function mentions(text: string): Mention[] {
  const found = new Map<string, Mention>();
  for (const match of text.matchAll(MENTION)) {
    // A sentence may end behind a mention.
    const word = match[1] ?? (match[2] ?? "").replace(/[.,;:!?)\]}'’”]+$/, "");
    if (word === "" || word === "diagnostics") continue;
    const range = LINES.exec(word);
    if (range?.[1] === undefined || range[1] === "") found.set(word, { path: word });
    else {
      const from = Number(range[2]);
      found.set(word, { path: range[1], from, to: Math.max(from, Number(range[3] ?? from)) });
    }
  }
  return [...found.values()];
}

/** Return a mention as it is typed. */
export function spell({ path, from, to }: Mention): string {
  const range = from === undefined ? "" : `:${from}${to === undefined || to === from ? "" : `-${to}`}`;
  const word = `${path}${range}`;
  return /[\s"@]|[.,;:!?)\]}'’”]$/.test(word) ? `@"${word.replace(/"/g, "")}"` : `@${word}`;
}
