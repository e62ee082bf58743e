// Tool calls as cards: title, live status and duration, diffs, output, and the question about a call.

import type { Question, ToolItem, ToolPart } from "../src/chat/messages.js";
import { diffLines } from "./diff.js";
import { button, element, picture } from "./dom.js";
import { remember, remembered, send } from "./host.js";
import { showMarkdown } from "./markdown.js";

const STATUS = {
  pending: ["…", "waiting"],
  in_progress: ["", "running"],
  completed: ["✓", "done"],
  failed: ["✗", "failed"],
} as const;

const MOST_DIFF_LINES = 400;
/** Milliseconds after which a key answers a question: what was typed before was not meant for it. */
const GUARD_MS = 400;
const shownAt = new Map<string, number>();

/** Return the card of a call. `calls` is the number of the calls that a sub-agent made for it. */
export function card(item: ToolItem, calls: number): HTMLDetailsElement {
  const [sign, word] = STATUS[item.status];
  const asks = item.question !== undefined;
  const status = element("span", { class: "status", "data-status": asks ? "asks" : item.status }, asks ? "?" : sign);
  const spoken = element("span", { class: "spoken" }, asks ? "asks you" : word);
  const time = element("span", { class: "time", "data-item": item.id }, duration(item));
  const title = element("span", { class: "title" }, firstLine(item.title));
  const count = calls === 0 ? undefined : element("span", { class: "count" }, `${calls} ${calls === 1 ? "call" : "calls"}`);
  const summary = element("summary", {}, status, title, spoken, count, time);
  const body = element("div", { class: "body" });
  const details = element("details", { class: "card", "data-kind": item.toolKind, "data-status": item.status }, summary);
  details.append(body);
  details.open = isOpen(item, calls);
  fill(body, item, calls);
  summary.addEventListener("click", () => {
    // The state is read after the click has changed it.
    setTimeout(() => {
      const open = new Set(remembered().open);
      for (const each of [item.id, `-${item.id}`]) open.delete(each);
      open.add(summary.closest("details")?.open === true ? item.id : `-${item.id}`);
      remember({ open: [...open].slice(-500) });
    });
  });
  return details;
}

/** A card is open where the user opened it, where it asks, while a sub-agent works, and for commands and edits. */
function isOpen(item: ToolItem, calls: number): boolean {
  if (item.question !== undefined) return true;
  const { open } = remembered();
  if (open.includes(item.id)) return true;
  if (open.includes(`-${item.id}`)) return false;
  if (calls > 0 && item.status === "in_progress") return true;
  return ["execute", "edit", "delete", "move"].includes(item.toolKind);
}

function fill(body: HTMLElement, item: ToolItem, calls: number): void {
  const { question } = item;
  if (question !== undefined) {
    body.append(questionBlock(item, question));
    return;
  }
  const lines = item.title.split("\n");
  if (item.input !== undefined && calls === 0 && (item.toolKind === "execute" || item.parts.length === 0 || lines.length > 1)) {
    if (item.input !== item.title || lines.length > 1) body.append(block(item.input, "input", "Input"));
  }
  item.parts.forEach((part, index) => {
    body.append(partBlock(item.id, part, index));
  });
  if (item.parts.length === 0 && item.output !== undefined && item.output !== "") {
    body.append(block(item.output, "output", "Output"));
  }
  if (item.locations.length > 0) body.append(places(item));
}

function places(item: ToolItem): HTMLElement {
  const links = item.locations.slice(0, 10).map(({ path, line }) => {
    const name = `${path.split(/[\\/]/).at(-1) ?? path}${line === undefined ? "" : `:${line}`}`;
    return button(
      name,
      () => {
        send(line === undefined ? { type: "openFile", path } : { type: "openFile", path, line });
      },
      { class: "link", title: path },
    );
  });
  return element("div", { class: "places" }, ...links);
}

function partBlock(itemId: string, part: ToolPart, index: number): HTMLElement {
  switch (part.type) {
    case "diff":
      return diffBlock(itemId, part, index);
    case "terminal": {
      const { terminalId, output, exit } = part;
      const show = button(
        "Show terminal",
        () => {
          send({ type: "openTerminal", terminalId });
        },
        { class: "link" },
      );
      const state = element("span", { class: "exit" }, exit ?? "running");
      const text = output === "" ? "(no output yet)" : output;
      return element(
        "div",
        { class: "terminal" },
        block(exit !== undefined && output === "" ? "(no output)" : text, "output", "Output of the command"),
        element("div", { class: "row" }, state, show),
      );
    }
    case "image": {
      return element("div", {}, picture(part.source, "Picture from the tool"));
    }
    case "text": {
      const fenced = /^```[^\n`]*\n([\s\S]*?)\n?```$/.exec(part.text);
      if (fenced?.[1] !== undefined && !fenced[1].includes("```")) return block(fenced[1], "output", "Output");
      const text = element("div", { class: "markdown" });
      showMarkdown(text, part.text);
      return text;
    }
  }
}

function block(text: string, kind: string, label: string): HTMLElement {
  return element("pre", { class: kind, tabindex: "0", role: "region", "aria-label": label }, text.replace(/\n+$/, ""));
}

function diffBlock(itemId: string, part: ToolPart & { type: "diff" }, index: number): HTMLElement {
  const lines = diffLines(part.oldText ?? "", part.newText);
  const added = lines.filter(({ sign }) => sign === "+").length;
  const removed = lines.filter(({ sign }) => sign === "-").length;
  const name = part.path.split(/[\\/]/).at(-1) ?? part.path;
  const head = element(
    "div",
    { class: "row" },
    button(
      part.oldText === null ? `${name} (new file)` : name,
      () => {
        send({ type: "openDiff", itemId, index });
      },
      { class: "link", title: `Open the diff of ${part.path}` },
    ),
    element("span", { class: "counts" }, `+${added} −${removed}`),
  );
  const rows = lines.slice(0, MOST_DIFF_LINES).map(({ sign, text }) => {
    const spoken = sign === "+" ? "added: " : sign === "-" ? "removed: " : "";
    return element(
      "div",
      { class: "line", "data-sign": sign },
      element("span", { class: "sign", "aria-hidden": "true" }, sign),
      element("span", { class: "spoken" }, spoken),
      element("span", {}, text === "" ? " " : text),
    );
  });
  if (lines.length > MOST_DIFF_LINES) {
    rows.push(element("div", { class: "line" }, `${lines.length - MOST_DIFF_LINES} more lines: open the diff`));
  }
  const label = `Change of ${name}: ${added} added, ${removed} removed`;
  return element("div", {}, head, element("div", { class: "diff", tabindex: "0", role: "region", "aria-label": label }, ...rows));
}

function questionBlock(item: ToolItem, question: Question): HTMLElement {
  const label = `The agent asks: ${firstLine(item.title)}`;
  const group = element("div", { class: "question", role: "group", tabindex: "-1", "aria-label": label });
  group.dataset.question = question.id;
  if (!shownAt.has(question.id)) shownAt.set(question.id, Date.now());
  if (question.command !== undefined) group.append(block(question.command, "input", "The command"));
  question.parts.forEach((part, index) => {
    group.append(partBlock(item.id, part, index));
  });
  const answer = (optionId: string) => {
    if (Date.now() - (shownAt.get(question.id) ?? 0) < GUARD_MS) return;
    send({ type: "answer", questionId: question.id, optionId });
  };
  const choices = question.choices.map(({ optionId, kind, name }, index) =>
    element(
      "button",
      {
        type: "button",
        class: kind === "allow_once" ? "primary" : "secondary",
        "data-kind": kind,
        "aria-keyshortcuts": String(index + 1),
        onclick: () => {
          answer(optionId);
        },
      },
      element("kbd", { "aria-hidden": "true" }, String(index + 1)),
      name,
    ),
  );
  const hint = element("div", { class: "hint" }, `Keys 1 to ${choices.length} answer. Escape cancels the turn.`);
  group.append(element("div", { class: "choices" }, ...choices), hint);
  group.addEventListener("keydown", (event) => {
    const choice = question.choices[Number(event.key) - 1];
    if (choice === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    answer(choice.optionId);
  });
  return group;
}

/**
 * Show a card's new state in the card that is there, whose calls stay where they are. It opens with the first of them
 * and closes when the call has ended; else it stays as it is, since a question may stand within it.
 */
export function renew(shown: HTMLElement, now: HTMLDetailsElement): void {
  const isFirst = shown.querySelector(":scope > summary > .count") === null;
  for (const part of ["summary", ".body"]) {
    const next = now.querySelector(`:scope > ${part}`);
    if (next !== null) shown.querySelector(`:scope > ${part}`)?.replaceWith(next);
  }
  const turns = isFirst || shown.dataset.status !== now.dataset.status;
  if (turns && shown instanceof HTMLDetailsElement) shown.open = now.open;
  shown.dataset.status = now.dataset.status;
  shown.dataset.kind = now.dataset.kind;
}

export function duration(item: ToolItem, now = Date.now()): string {
  if (item.question !== undefined) return ""; // the user is asked: no time of the call
  const running = item.status === "in_progress" && item.startedAt !== undefined ? now - item.startedAt : undefined;
  const whole = item.elapsedMs ?? running;
  if (whole === undefined || whole < 0) return "";
  const elapsed = Math.max(0, whole - (item.waitedMs ?? 0));
  if (elapsed < 1000) return running === undefined ? `${elapsed} ms` : "";
  if (elapsed < 60_000) return `${(elapsed / 1000).toFixed(running === undefined ? 1 : 0)} s`;
  return `${Math.floor(elapsed / 60_000)} min ${Math.floor((elapsed % 60_000) / 1000)} s`;
}

function firstLine(text: string): string {
  const [line = "", ...rest] = text.split("\n");
  return rest.length === 0 ? line : `${line} …`;
}
