// A change of a text as lines, for the small diff in a card. The large one is the diff editor of VS Code.

export interface DiffLine {
  sign: "+" | "-" | " " | "…";
  text: string;
}

const CONTEXT = 3;
/** Above this product of lines the middle is shown as wholly replaced. */
const MOST_CELLS = 4_000_000;

/** Return the changed lines with some lines around them. */
export function diffLines(before: string, now: string): DiffLine[] {
  const a = split(before);
  const b = split(now);
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  const middle = compare(a.slice(start, a.length - end), b.slice(start, b.length - end));
  const same = (text: string): DiffLine => ({ sign: " ", text });
  return folded([...a.slice(0, start).map(same), ...middle, ...a.slice(a.length - end).map(same)]);
}

function split(text: string): string[] {
  if (text === "") return [];
  const lines = text.split("\n");
  if (lines.at(-1) === "") lines.pop();
  return lines;
}

/** Compare by the longest common subsequence. */
function compare(a: string[], b: string[]): DiffLine[] {
  const removed = a.map((text): DiffLine => ({ sign: "-", text }));
  const added = b.map((text): DiffLine => ({ sign: "+", text }));
  if (a.length * b.length > MOST_CELLS || a.length === 0 || b.length === 0) return [...removed, ...added];
  const width = b.length + 1;
  const longest = new Uint32Array((a.length + 1) * width);
  const at = (i: number, j: number) => longest[i * width + j] ?? 0;
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      longest[i * width + j] = a[i] === b[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
    }
  }
  const lines: DiffLine[] = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      lines.push({ sign: " ", text: a[i] ?? "" });
      i += 1;
      j += 1;
    } else if (i < a.length && (j === b.length || at(i + 1, j) >= at(i, j + 1))) {
      lines.push({ sign: "-", text: a[i] ?? "" });
      i += 1;
    } else {
      lines.push({ sign: "+", text: b[j] ?? "" });
      j += 1;
    }
  }
  return lines;
}

/** Replace long stretches of unchanged lines by a sign. */
function folded(lines: DiffLine[]): DiffLine[] {
  const near = lines.map(() => false);
  lines.forEach(({ sign }, index) => {
    if (sign === " ") return;
    near.fill(true, Math.max(0, index - CONTEXT), index + CONTEXT + 1);
  });
  const shown: DiffLine[] = [];
  lines.forEach((line, index) => {
    if (near[index] === true) shown.push(line);
    else if (shown.at(-1)?.sign !== "…") shown.push({ sign: "…", text: "" });
  });
  return shown;
}
