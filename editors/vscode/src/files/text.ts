// Pure work on texts of files.

/** Return `limit` lines from `line` on, which counts from 1. */
export function lines(text: string, line?: number | null, limit?: number | null): string {
  if (line == null && limit == null) return text;
  const first = Math.max((line ?? 1) - 1, 0);
  const all = text.split(/(?<=\n)/);
  return all.slice(first, limit == null ? undefined : first + limit).join("");
}

/** The part of a text from `start` to `end` becomes `text`. */
export interface Change {
  start: number;
  end: number;
  text: string;
}

/** Return the smallest single change that makes `now` of `before`. It never cuts a CRLF or a surrogate pair. */
export function smallestChange(before: string, now: string): Change {
  const most = Math.min(before.length, now.length);
  let start = 0;
  while (start < most && before[start] === now[start]) start += 1;
  while (start > 0 && (cuts(before, start) || cuts(now, start))) start -= 1;
  let same = 0;
  while (same < most - start && before[before.length - 1 - same] === now[now.length - 1 - same]) same += 1;
  while (same > 0 && (cuts(before, before.length - same) || cuts(now, now.length - same))) same -= 1;
  return { start, end: before.length - same, text: now.slice(start, now.length - same) };
}

function cuts(text: string, at: number): boolean {
  const left = text[at - 1];
  const right = text[at];
  if (left === undefined || right === undefined) return false;
  return (left === "\r" && right === "\n") || (/[\ud800-\udbff]/.test(left) && /[\udc00-\udfff]/.test(right));
}
