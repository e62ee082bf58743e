// A conversation as the chat view shows it, built from the updates of ACP. It knows nothing of VS Code.

import type { ContentBlock, SessionUpdate, ToolCall, ToolCallContent, ToolCallUpdate } from "@agentclientprotocol/sdk";
import type { Item, NoticeItem, PlanEntry, Question, TextItem, ToolItem, ToolPart } from "../chat/messages.js";
import { tail } from "../terminal/text.js";
import { imageAddress } from "./images.js";

/** What changed: whole items, or a text that was appended to one. */
export interface TranscriptListener {
  changed(item: Item): void;
  appended(id: string, text: string): void;
}

/** Finds the output of a terminal that a card embeds. */
export type TerminalOutput = (terminalId: string) => { output: string; exit?: string } | undefined;

const LONGEST_INPUT = 20_000;
const LONGEST_OUTPUT = 100_000;

export class Transcript {
  readonly items: Item[] = [];
  plan: PlanEntry[] = [];
  private readonly byId = new Map<string, Item>();
  private readonly asked = new Map<string, number>();
  private made = 0;
  private echo = "";

  constructor(
    private readonly listener: TranscriptListener,
    private readonly terminalOutput: TerminalOutput,
  ) {}

  clear(): void {
    this.items.length = 0;
    this.byId.clear();
    this.plan = [];
    this.echo = "";
  }

  /** Show what the user sent. An agent may echo it: that is not shown twice. */
  sent(text: string, pictures: string[] = []): void {
    this.echo = text;
    this.add({ id: this.newId("user"), kind: "user", text, ...(pictures.length === 0 ? {} : { pictures }) });
  }

  notice(severity: NoticeItem["severity"], text: string): void {
    this.add({ id: this.newId("notice"), kind: "notice", severity, text });
  }

  /** Take an update. Return whether the conversation changed by it. */
  apply(update: SessionUpdate): boolean {
    switch (update.sessionUpdate) {
      case "user_message_chunk":
        this.userChunk(update.content, update.messageId ?? undefined);
        return true;
      case "agent_message_chunk":
        this.chunk("agent", update.content, update.messageId ?? undefined);
        return true;
      case "agent_thought_chunk":
        this.chunk("thought", update.content, update.messageId ?? undefined);
        return true;
      case "tool_call":
        this.toolCall(update);
        return true;
      case "tool_call_update":
        this.toolUpdate(update);
        return true;
      case "plan":
        this.plan = update.entries.map(({ content, priority, status }) => ({ content, priority, status }));
        return true;
      case "notice":
        this.notice(
          update.severity === "error" || update.severity === "warning" ? update.severity : "info",
          update.description ? `${update.title}\n\n${update.description}` : update.title,
        );
        return true;
      case "compaction_update":
        if (update.status === "completed") this.notice("info", "The conversation so far was summed up to make room.");
        if (update.status === "failed") this.notice("warning", "The conversation could not be summed up.");
        return true;
      default:
        return false;
    }
  }

  ask(toolCall: ToolCallUpdate, question: Omit<Question, "parts" | "command">): void {
    const item = this.tool(toolCall.toolCallId, toolCall);
    const parts = this.parts(toolCall.content ?? []);
    const command = item.toolKind === "execute" ? commandOf(toolCall.rawInput) : undefined;
    item.question = { ...question, ...(command === undefined ? { parts } : commandFirst(command, parts)) };
    this.asked.set(question.id, Date.now());
    this.listener.changed(item);
  }

  /** Take a question away. Return its card, or undefined if there is none. */
  answered(questionId: string): ToolItem | undefined {
    for (const item of this.items) {
      if (item.kind === "tool" && item.question?.id === questionId) {
        delete item.question;
        item.waitedMs = (item.waitedMs ?? 0) + Date.now() - (this.asked.get(questionId) ?? Date.now());
        this.asked.delete(questionId);
        this.listener.changed(item);
        return item;
      }
    }
    return undefined;
  }

  /** Say that nothing runs any more: calls that are open were interrupted. */
  ended(): void {
    for (const item of this.items) {
      if (item.kind === "tool" && (item.status === "in_progress" || item.status === "pending")) {
        item.status = "failed";
        item.output ??= "interrupted";
        delete item.question;
        this.listener.changed(item);
      }
    }
  }

  /** Show a terminal's new output in the card that embeds it. */
  terminalChanged(terminalId: string): void {
    const item = this.items.findLast(
      (each): each is ToolItem =>
        each.kind === "tool" && each.parts.some((part) => part.type === "terminal" && part.terminalId === terminalId),
    );
    const now = this.terminalOutput(terminalId);
    if (item === undefined || now === undefined) return;
    item.parts = item.parts.map((part) =>
      part.type === "terminal" && part.terminalId === terminalId ? { type: "terminal", terminalId, ...now } : part,
    );
    this.listener.changed(item);
  }

  find(id: string): Item | undefined {
    return this.byId.get(id);
  }

  /** Show a part of a prompt. A file that the text names already is not named again. */
  private userChunk(content: ContentBlock, messageId: string | undefined): void {
    const last = this.items.at(-1);
    const said = last?.kind === "user" ? last.text : "";
    if (content.type === "text") {
      if (this.echo === "" || !this.echo.startsWith(content.text.trim())) this.text("user", content.text, messageId);
      return;
    }
    const picture = imageAddress(content);
    if (picture !== undefined) {
      this.userPicture(picture);
      return;
    }
    const name = attachedName(content);
    if (!said.includes(name)) this.text("user", said === "" ? name : ` ${name}`, messageId);
  }

  /** Add a picture to the prompt that it belongs to, unless it is there already. */
  private userPicture(picture: string): void {
    const last = this.items.at(-1);
    if (last?.kind !== "user") {
      this.add({ id: this.newId("user"), kind: "user", text: "", pictures: [picture] });
    } else if (last.pictures?.includes(picture) !== true) {
      last.pictures = [...(last.pictures ?? []), picture];
      this.listener.changed(last);
    }
  }

  private chunk(kind: "agent" | "thought", content: ContentBlock, messageId: string | undefined): void {
    this.echo = "";
    const text = blockText(content);
    if (text !== "") this.text(kind, text, messageId);
  }

  /** Append to the message of this id, or to the last item if it is of this kind and has no id of its own. */
  private text(kind: TextItem["kind"], text: string, messageId: string | undefined): void {
    const id = messageId === undefined ? undefined : `${kind}:${messageId}`;
    const last = this.items.at(-1);
    if (last?.kind === kind && (id === undefined || last.id === id)) {
      last.text += text;
      this.listener.appended(last.id, text);
      return;
    }
    // A message that goes on behind a tool call is shown as a new one, in the order in which it came.
    this.add({ id: id === undefined || this.byId.has(id) ? this.newId(kind) : id, kind, text });
  }

  private toolCall(call: ToolCall): void {
    this.echo = "";
    this.merge(this.tool(call.toolCallId, call), call);
  }

  private toolUpdate(update: ToolCallUpdate): void {
    this.merge(this.tool(update.toolCallId, update), update);
  }

  private tool(id: string, call: ToolCallUpdate): ToolItem {
    const known = this.byId.get(`tool:${id}`);
    if (known?.kind === "tool") return known;
    const item: ToolItem = {
      id: `tool:${id}`,
      kind: "tool",
      title: call.title ?? "tool",
      toolKind: call.kind ?? "other",
      status: call.status ?? "in_progress",
      parts: [],
      locations: [],
    };
    this.add(item);
    return item;
  }

  private merge(item: ToolItem, call: ToolCallUpdate): void {
    if (call.title != null) item.title = call.title;
    if (call.kind != null) item.toolKind = call.kind;
    if (call.status != null) item.status = call.status;
    if (call.rawInput !== undefined) item.input = shownInput(call.rawInput);
    if (call.content != null) item.parts = this.parts(call.content);
    if (call.locations != null) {
      item.locations = call.locations.map(({ path, line }) => (line == null ? { path } : { path, line }));
    }
    const output = outputOf(call.rawOutput);
    if (output !== undefined) item.output = tail(output, LONGEST_OUTPUT);
    const more = call._meta?.claudeCode;
    if (isObject(more)) {
      if (typeof more.startedAt === "string") item.startedAt = Date.parse(more.startedAt);
      if (typeof more.elapsedMs === "number") item.elapsedMs = more.elapsedMs;
      if (typeof more.parentToolUseId === "string") item.parent = `tool:${more.parentToolUseId}`;
    }
    this.listener.changed(item);
  }

  private parts(content: ToolCallContent[]): ToolPart[] {
    return content.flatMap((each): ToolPart[] => {
      switch (each.type) {
        case "diff":
          return [{ type: "diff", path: each.path, oldText: each.oldText ?? null, newText: each.newText }];
        case "terminal": {
          const known = this.terminalOutput(each.terminalId);
          return [{ type: "terminal", terminalId: each.terminalId, ...(known ?? { output: "" }) }];
        }
        case "content":
          return contentPart(each.content);
        default:
          return [];
      }
    });
  }

  private add(item: Item): void {
    this.items.push(item);
    this.byId.set(item.id, item);
    this.listener.changed(item);
  }

  private newId(kind: string): string {
    this.made += 1;
    return `${kind}#${this.made}`;
  }
}

/** Return the name of what was attached to a prompt. */
function attachedName(block: ContentBlock): string {
  if (block.type !== "resource_link" && block.type !== "resource") return `[${block.type}]`;
  const uri = block.type === "resource" ? block.resource.uri : block.uri;
  const path = uri.replace(/[?#].*$/, "");
  try {
    return decodeURIComponent(path.split("/").pop() ?? path);
  } catch {
    return path;
  }
}

function contentPart(block: ContentBlock): ToolPart[] {
  const source = imageAddress(block);
  if (source !== undefined) return [{ type: "image", source }];
  const text = blockText(block);
  return text === "" ? [] : [{ type: "text", text }];
}

/** Return what a content block says in text. */
export function blockText(block: ContentBlock): string {
  switch (block.type) {
    case "text":
      return block.text;
    case "resource_link":
      return `[${block.name}](${block.uri})`;
    case "resource":
      return `[${block.resource.uri.split("/").pop() ?? "resource"}](${block.resource.uri})`;
    case "image":
      return "[image]";
    default:
      return "";
  }
}

/** A command in a fence at the beginning of a text, or at its end with words before it, as agents put it into questions. */
const AT_START = /^(`{3,})[^\n]*\n([\s\S]*?)\n\1(?:\n+|$)/;
const AT_END = /\n*The whole text:\n\n(`{3,})[^\n]*\n([\s\S]*)\n\1\s*$/;

/** Show the exact command of a question first, and once. A text that has it in other words stays as it is. */
function commandFirst(command: string, parts: ToolPart[]): { command?: string; parts: ToolPart[] } {
  const rest = parts.flatMap((part): ToolPart[] => {
    if (part.type !== "text") return [part];
    const text = without(AT_END, command, without(AT_START, command, part.text));
    return text === "" ? [] : [{ type: "text", text }];
  });
  const repeated = rest.some((part) => part.type === "text" && part.text.includes(`\n${command.trimEnd()}\n\`\`\``));
  return repeated ? { parts } : { command, parts: rest };
}

/** Return a text without the command that a pattern finds in it. Long lines of the command may be folded. */
function without(pattern: RegExp, command: string, text: string): string {
  const found = pattern.exec(text);
  const said = found?.[2]?.replaceAll("\n\u21aa ", "");
  return found !== null && said === command.trimEnd() ? text.replace(found[0], "") : text;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Return the command of a call's input, if it has one. */
export function commandOf(input: unknown): string | undefined {
  return isObject(input) && typeof input.command === "string" ? input.command : undefined;
}

function shownInput(input: unknown): string {
  const text = typeof input === "string" ? input : (commandOf(input) ?? JSON.stringify(input, undefined, 2));
  return text.length <= LONGEST_INPUT ? text : `${text.slice(0, LONGEST_INPUT)}…`;
}

function outputOf(output: unknown): string | undefined {
  if (typeof output === "string") return output;
  return isObject(output) && typeof output.output === "string" ? output.output : undefined;
}
