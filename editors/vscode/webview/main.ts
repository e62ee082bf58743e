// The chat view: the conversation, what stands around it, and the box for the next prompt.

import type { Frame, Item, ToolItem, ToView } from "../src/chat/messages.js";
import { card, duration, renew } from "./cards.js";
import { Composer } from "./composer.js";
import { byId, element, picture } from "./dom.js";
import { showFrame } from "./frame.js";
import { send } from "./host.js";
import { showMarkdown } from "./markdown.js";

byId("app").append(
  element("h1", { class: "spoken" }, "acp-agent chat"),
  element("div", { class: "session-title", "data-part": "title" }),
  element("div", { class: "log", role: "log", "aria-live": "off", "aria-label": "Conversation", tabindex: "0" }),
  element("div", { class: "below" }),
);
const log = query(".log");
const below = query(".below");
const composer = new Composer(below);
/** What is said to a screen reader: status and questions, not each word of an answer. */
const announcer = element("div", { class: "spoken", role: "status", "aria-live": "polite" });
byId("app").append(announcer);

const items = new Map<string, Item>();
const shown = new Map<string, HTMLElement>();
const stale = new Set<string>();
/** The number of the calls of sub-agents, by the item of the call that gave them work. */
const calls = new Map<string, number>();
let frame: Frame | undefined;

function query(selector: string): HTMLElement {
  const found = document.querySelector<HTMLElement>(selector);
  if (found === null) throw new Error(`there is no ${selector}`);
  return found;
}

function receive(message: ToView): void {
  switch (message.type) {
    case "reset":
      takeFocus();
      items.clear();
      shown.clear();
      calls.clear();
      stale.clear();
      log.replaceChildren();
      setFrame(message.frame);
      message.items.forEach(upsert);
      break;
    case "frame":
      setFrame(message.frame);
      break;
    case "items":
      message.items.forEach(upsert);
      break;
    case "append": {
      const item = items.get(message.id);
      if (item !== undefined && item.kind !== "tool") {
        item.text += message.text;
        stale.add(item.id);
      }
      break;
    }
    case "insert":
      composer.insert(message.text);
      break;
    case "restore":
      composer.restore(message.text);
      break;
    case "pictures":
      composer.showPictures(message.pictures);
      break;
    case "focus":
      focusSomething();
      break;
  }
  scheduleRender();
}

function setFrame(next: Frame): void {
  const before = frame;
  frame = next;
  showFrame(next, items.size === 0);
  composer.show(next);
  if (before?.busy === true && !next.busy) say(lastAnswer());
  if (before?.busy === false && next.busy) say("The agent works.");
}

function upsert(item: Item): void {
  const before = items.get(item.id);
  if (items.size === 0 && frame !== undefined) showFrame(frame, false);
  items.set(item.id, item);
  stale.add(item.id);
  const asked = item.kind === "tool" ? item.question : undefined;
  const askedBefore = before?.kind === "tool" ? before.question : undefined;
  if (asked !== undefined && asked.id !== askedBefore?.id) say(`The agent asks: ${(item as ToolItem).title}`);
}

/** The log is not read aloud while it streams. The end of a turn is. */
function lastAnswer(): string {
  const last = [...items.values()].at(-1);
  return last?.kind === "agent" || last?.kind === "notice" ? last.text.slice(0, 2000) : "The turn has ended.";
}

function say(text: string): void {
  announcer.textContent = text;
}

// ------------------------------------------------------------------------------------- drawing

let scheduled = false;

function scheduleRender(): void {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
    render();
  });
}

function render(): void {
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
  const inQuestion = document.activeElement?.closest(".question") != null;
  let asks: string | undefined;
  for (const id of stale) {
    const item = items.get(id);
    if (item === undefined) continue;
    const old = shown.get(id);
    const now = drawn(item, old);
    now.dataset.id = id;
    shown.set(id, old === now ? now : place(item, now, old));
    if (item.kind === "tool" && item.question !== undefined && old?.querySelector(".question") == null) asks = id;
  }
  stale.clear();
  if (asks !== undefined) focusQuestion(asks);
  else if (inQuestion && document.hasFocus() && document.activeElement === document.body) focusSomething();
  if (atEnd) log.scrollTop = log.scrollHeight;
}

const FOCUSABLE = "summary, button, [tabindex='0']";

/**
 * Put an item into the log or the card of its parent, in place of its last state. Return what is shown now. Focus and
 * scroll positions stay as the user left them.
 */
function place(item: Item, made: HTMLElement, old?: HTMLElement): HTMLElement {
  const focused = [...(old?.querySelectorAll(FOCUSABLE) ?? [])].findIndex((each) => each === document.activeElement);
  const asked = old?.querySelector(".question") != null;
  const scrolled = [...(old?.querySelectorAll("pre, .diff") ?? [])].map((each) => ({
    left: each.scrollLeft,
    top: each.scrollHeight - each.scrollTop - each.clientHeight > 4 ? each.scrollTop : undefined,
  }));
  const now = old !== undefined && calls.has(item.id) ? old : made;
  if (old === undefined) home(item).append(now);
  else if (now === old && made instanceof HTMLDetailsElement) renew(old, made);
  else old.replaceWith(now);
  now.querySelectorAll("pre, .diff").forEach((each, index) => {
    const end = each.classList.contains("output") ? each.scrollHeight : 0;
    each.scrollTop = scrolled[index]?.top ?? end;
    each.scrollLeft = scrolled[index]?.left ?? 0;
  });
  if (focused < 0 || asked !== (now.querySelector(".question") !== null)) return now; // a question that was answered gives the focus to the prompt
  const same = now.querySelectorAll<HTMLElement>(FOCUSABLE)[focused] ?? now.querySelector("summary");
  same?.focus({ preventScroll: true });
  return now;
}

/** Return where a new item belongs: within the card of the call that gave a sub-agent its work, else the log. */
function home(item: Item): HTMLElement {
  const parent = item.kind === "tool" ? (item.parent ?? "") : "";
  const around = shown.get(parent);
  if (around === undefined) return log;
  calls.set(parent, (calls.get(parent) ?? 0) + 1);
  stale.delete(parent);
  stale.add(parent); // behind this one, since it says how many there are
  const known = around.querySelector<HTMLElement>(":scope > .calls");
  if (known !== null) return known;
  const made = element("div", { class: "calls" });
  around.querySelector(":scope > summary")?.after(made);
  return made;
}

function drawn(item: Item, old: HTMLElement | undefined): HTMLElement {
  switch (item.kind) {
    case "tool":
      return card(item, calls.get(item.id) ?? 0);
    case "notice":
      return notice(item.severity, item.text);
    case "thought": {
      const made = old ?? thought();
      showMarkdown(made.querySelector<HTMLElement>(".markdown") ?? made, item.text);
      return made;
    }
    case "user":
    case "agent": {
      const who = item.kind === "user" ? "You" : "acp-agent";
      const made = old ?? element("div", { class: `message ${item.kind}` }, element("h2", { class: "spoken" }, who));
      if (old === undefined) made.append(element("div", { class: "markdown" }));
      const text = made.querySelector<HTMLElement>(".markdown") ?? made;
      const pictures = (item.pictures ?? []).map((each, index) => picture(each, `Picture ${index + 1} of the prompt`));
      if (item.kind === "user") text.replaceChildren(item.text, ...pictures);
      else showMarkdown(text, item.text);
      return made;
    }
  }
}

function thought(): HTMLElement {
  return element("details", { class: "thought" }, element("summary", {}, "Thought"), element("div", { class: "markdown" }));
}

function notice(severity: string, text: string): HTMLElement {
  const made = element("div", { class: "notice", "data-severity": severity });
  const body = element("div", { class: "markdown" });
  showMarkdown(body, text);
  made.append(element("span", { class: "spoken" }, `${severity}: `), body);
  return made;
}

// --------------------------------------------------------------------------------------- focus

/** A question gets the focus, unless the user is typing. */
function focusQuestion(id: string): void {
  const question = shown.get(id)?.querySelector<HTMLElement>(".question");
  for (let up = question?.closest("details"); up; up = up.parentElement?.closest("details")) up.open = true;
  question?.scrollIntoView({ block: "nearest" });
  if (document.hasFocus() && !composer.isTyping) question?.focus();
}

function focusSomething(): void {
  const question = log.querySelector<HTMLElement>(".question");
  if (question !== null && !composer.isTyping) question.focus();
  else composer.focus();
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && frame?.busy === true) {
    event.preventDefault();
    send({ type: "cancel" });
  }
});

// A view that gets the focus as a whole, as by a click on its icon, gives it to the prompt or the question.
const takeFocus = () => {
  if (document.hasFocus() && document.activeElement === document.body) focusSomething();
};
window.addEventListener("focus", takeFocus);

// Durations of running calls count on.
setInterval(() => {
  for (const time of log.querySelectorAll<HTMLElement>(".card[data-status=in_progress] .time")) {
    const item = items.get(time.dataset.item ?? "");
    if (item?.kind === "tool") time.textContent = duration(item);
  }
}, 1000);

window.addEventListener("message", ({ data }: MessageEvent<ToView>) => {
  receive(data);
});
send({ type: "ready" });
