// What the extension and its chat view say to each other, and the state that the view shows.

export interface TextItem {
  id: string;
  kind: "user" | "agent" | "thought";
  text: string;
  /** Pictures of a prompt, as `data:` addresses. */
  pictures?: string[];
}

export interface NoticeItem {
  id: string;
  kind: "notice";
  severity: "info" | "warning" | "error";
  text: string;
}

export type ToolStatus = "pending" | "in_progress" | "completed" | "failed";

export interface DiffPart {
  type: "diff";
  path: string;
  oldText: string | null;
  newText: string;
}

/** The output of a terminal as plain text. `exit` is missing while the command runs. */
export interface TerminalPart {
  type: "terminal";
  terminalId: string;
  output: string;
  exit?: string;
}

export interface TextPart {
  type: "text";
  text: string;
}

/** A picture as a `data:` address. */
export interface ImagePart {
  type: "image";
  source: string;
}

export type ToolPart = DiffPart | TerminalPart | TextPart | ImagePart;

export interface Choice {
  optionId: string;
  kind: string;
  name: string;
}

/** A permission question. `parts` is what it asks about: the diffs and the text that the agent sent with it. */
export interface Question {
  id: string;
  parts: ToolPart[];
  command?: string;
  choices: Choice[];
}

export interface ToolItem {
  id: string;
  kind: "tool";
  title: string;
  toolKind: string;
  status: ToolStatus;
  /** The id of the call that gave a sub-agent its work, if this is a call of a sub-agent. */
  parent?: string;
  /** Milliseconds since 1970; missing for a call that is shown again. */
  startedAt?: number;
  elapsedMs?: number;
  /** Milliseconds in which the call waited for answers of the user. They are no part of its shown duration. */
  waitedMs?: number;
  input?: string;
  /** Output for a call without content. */
  output?: string;
  parts: ToolPart[];
  locations: Location[];
  question?: Question;
}

export interface Location {
  path: string;
  line?: number;
}

export type Item = TextItem | NoticeItem | ToolItem;

export interface PlanEntry {
  content: string;
  priority: string;
  status: "pending" | "in_progress" | "completed";
}

export interface Usage {
  used: number;
  size: number;
  cost?: string;
}

/** What stands around the conversation. */
export interface Frame {
  /** `ready` takes prompts. `stopped` and `missing` offer a way out. */
  agent: "starting" | "ready" | "stopped" | "missing";
  detail: string;
  title: string;
  busy: boolean;
  plan: PlanEntry[];
  usage?: Usage;
  mode?: string;
  model?: string;
  hasOptions: boolean;
  /** Whether the agent takes pictures. */
  takesPictures: boolean;
}

export type ToView =
  | { type: "reset"; frame: Frame; items: Item[] }
  | { type: "frame"; frame: Frame }
  | { type: "items"; items: Item[] }
  | { type: "append"; id: string; text: string }
  | { type: "insert"; text: string }
  | { type: "restore"; text: string }
  | { type: "pictures"; pictures: readonly string[] }
  | { type: "focus" };

export type Picker = "mode" | "model" | "options" | "slash" | "mention" | "sessions";
export type Action = "install" | "settings" | "restart" | "log" | "undo" | "login";

export type FromView =
  | { type: "ready" }
  | { type: "prompt"; text: string }
  | { type: "attach"; picture: string }
  | { type: "attachFile" }
  | { type: "detach"; index: number }
  | { type: "cancel" }
  | { type: "answer"; questionId: string; optionId: string }
  | { type: "openDiff"; itemId: string; index: number }
  | { type: "openFile"; path: string; line?: number }
  | { type: "openTerminal"; terminalId: string }
  | { type: "openLink"; target: string }
  | { type: "copy"; text: string }
  | { type: "pick"; picker: Picker }
  | { type: "action"; action: Action };
