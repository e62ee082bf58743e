// Output of a program as people read it in a card: without escapes, with carriage returns done.

const ESCAPES =
  /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[PX^_][^\u001b]*(?:\u001b\\)?|[ -/]*[0-~])/g;
const CONTROLS = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]/g;

/** Return output without terminal escapes. A line that a carriage return began anew shows its last state. */
export function plainOutput(text: string): string {
  const lines = text.replace(ESCAPES, "").replace(/\r+\n/g, "\n").split("\n");
  return lines.map(lastState).join("\n").replace(CONTROLS, "");
}

function lastState(line: string): string {
  if (!line.includes("\r")) return line;
  let shown = "";
  for (const piece of line.split("\r")) {
    shown = piece + shown.slice(piece.length);
  }
  return shown;
}

/** Return the end of a text: at most `limit` characters, beginning with a whole line where that is possible. */
export function tail(text: string, limit: number): string {
  if (text.length <= limit) return text;
  const cut = text.slice(text.length - limit);
  const line = cut.indexOf("\n");
  return line >= 0 && line < cut.length - 1 ? cut.slice(line + 1) : cut.replace(/^[\udc00-\udfff]/, "");
}
