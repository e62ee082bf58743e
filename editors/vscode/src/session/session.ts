// One session of the agent: its conversation, its options, its running turn and its open questions.

import * as acp from "@agentclientprotocol/sdk";
import type { Frame, Item, Usage } from "../chat/messages.js";
import { imageAddress } from "./images.js";
import { type TerminalOutput, Transcript } from "./transcript.js";

export interface SessionListener {
  items(session: Session, item: Item): void;
  appended(session: Session, id: string, text: string): void;
  frame(session: Session): void;
  /** A question was asked or, if `item` is undefined, answered. */
  asked(session: Session, questionId: string, request?: acp.RequestPermissionRequest): void;
}

type Answer = (outcome: acp.RequestPermissionOutcome) => void;

export class Session {
  readonly transcript: Transcript;
  title = "";
  busy = false;
  prompted = false;
  modes: acp.SessionModeState | undefined;
  options: acp.SessionConfigOption[] = [];
  commands: acp.AvailableCommand[] = [];
  private usage: Usage | undefined;
  private readonly watchers = new Set<() => void>();
  private readonly questions = new Map<string, Answer>();
  private asked = 0;

  constructor(
    readonly id: string,
    readonly cwd: string,
    private agent: acp.ClientContext,
    private readonly listener: SessionListener,
    terminalOutput: TerminalOutput,
  ) {
    this.transcript = new Transcript(
      {
        changed: (item) => {
          listener.items(this, item);
        },
        appended: (id, text) => {
          listener.appended(this, id, text);
        },
      },
      terminalOutput,
    );
  }

  /** Take what a new, loaded or resumed session answered. */
  opened(answer: { modes?: acp.SessionModeState | null; configOptions?: acp.SessionConfigOption[] | null }): void {
    this.modes = answer.modes ?? undefined;
    this.options = answer.configOptions ?? [];
    this.listener.frame(this);
  }

  /** Go on with another connection, after the agent was restarted. */
  reconnect(agent: acp.ClientContext): void {
    this.agent = agent;
  }

  update(update: acp.SessionUpdate): void {
    switch (update.sessionUpdate) {
      case "available_commands_update":
        this.commands = update.availableCommands;
        return;
      case "current_mode_update":
        if (this.modes !== undefined) this.modes = { ...this.modes, currentModeId: update.currentModeId };
        break;
      case "config_option_update":
        this.options = update.configOptions;
        for (const each of this.watchers) each();
        break;
      case "session_info_update":
        if (update.title !== undefined) this.title = update.title ?? "";
        break;
      case "usage_update":
        this.usage = {
          used: update.used,
          size: update.size,
          ...(update.cost == null ? {} : { cost: price(update.cost.amount, update.cost.currency) }),
        };
        break;
      default:
        if (!this.transcript.apply(update) || update.sessionUpdate !== "plan") return;
    }
    this.listener.frame(this);
  }

  /** Run a turn. Failures are told in the conversation. Return the error's code, if it failed with one. */
  async prompt(text: string, blocks: acp.ContentBlock[]): Promise<number | undefined> {
    this.busy = true;
    this.prompted = true;
    this.transcript.sent(text, blocks.flatMap((block) => imageAddress(block) ?? []));
    this.listener.frame(this);
    try {
      const params: acp.PromptRequest = { sessionId: this.id, prompt: blocks };
      const { stopReason } = await this.agent.request(acp.methods.agent.session.prompt, params);
      await updatesHandled();
      const said = STOPPED[stopReason];
      if (said !== undefined) this.transcript.notice(stopReason === "cancelled" ? "info" : "warning", said);
      return undefined;
    } catch (error) {
      this.transcript.notice("error", error instanceof Error ? error.message : String(error));
      return error instanceof acp.RequestError ? error.code : undefined;
    } finally {
      this.cancelQuestions();
      this.transcript.ended();
      this.busy = false;
      this.listener.frame(this);
    }
  }

  async cancel(): Promise<void> {
    if (!this.busy) return;
    this.cancelQuestions();
    await this.agent.notify(acp.methods.agent.session.cancel, { sessionId: this.id });
  }

  /** Ask the user. `withdrawn` is aborted when the agent no longer wants the answer. */
  async ask(
    request: acp.RequestPermissionRequest,
    withdrawn: AbortSignal,
  ): Promise<acp.RequestPermissionResponse> {
    this.asked += 1;
    const id = `${this.id}/${this.asked}`;
    const choices = request.options.map(({ optionId, kind, name }) => ({ optionId, kind, name }));
    this.transcript.ask(request.toolCall, { id, choices });
    this.listener.asked(this, id, request);
    const outcome = await new Promise<acp.RequestPermissionOutcome>((resolve) => {
      this.questions.set(id, resolve);
      withdrawn.addEventListener("abort", () => {
        resolve({ outcome: "cancelled" });
      });
    });
    this.questions.delete(id);
    this.transcript.answered(id);
    this.listener.asked(this, id);
    return { outcome };
  }

  answer(questionId: string, optionId: string): void {
    this.questions.get(questionId)?.({ outcome: "selected", optionId });
  }

  /** Return the command of the first call that runs and has no terminal yet: what a new terminal runs. */
  get runningTitle(): string | undefined {
    const running = this.transcript.items.find(
      (item) =>
        item.kind === "tool" &&
        item.toolKind === "execute" &&
        item.status === "in_progress" &&
        item.question === undefined &&
        !item.parts.some(({ type }) => type === "terminal"),
    );
    return running?.kind === "tool" ? (running.input ?? running.title) : undefined;
  }

  /** Return the choices of an answer that accept or reject once. */
  choice(questionId: string, kind: "allow_once" | "reject_once"): string | undefined {
    for (const item of this.transcript.items) {
      if (item.kind === "tool" && item.question?.id === questionId) {
        return item.question.choices.find((each) => each.kind === kind)?.optionId;
      }
    }
    return undefined;
  }

  async setOption(option: acp.SessionConfigOption, value: string | boolean): Promise<void> {
    const params: acp.SetSessionConfigOptionRequest =
      typeof value === "boolean"
        ? { sessionId: this.id, configId: option.id, type: "boolean", value }
        : { sessionId: this.id, configId: option.id, value };
    const answer = await this.agent.request(acp.methods.agent.session.setConfigOption, params);
    this.options = answer.configOptions;
    this.listener.frame(this);
  }

  async setMode(modeId: string): Promise<void> {
    const option = this.option("mode");
    if (option !== undefined) {
      await this.setOption(option, modeId);
      return;
    }
    await this.agent.request(acp.methods.agent.session.setMode, { sessionId: this.id, modeId });
    if (this.modes !== undefined) this.modes = { ...this.modes, currentModeId: modeId };
    this.listener.frame(this);
  }

  /** Call a function after each change of the options, until the returned function is called. */
  watchOptions(changed: () => void): () => void {
    this.watchers.add(changed);
    return () => this.watchers.delete(changed);
  }

  option(category: string): acp.SessionConfigOption | undefined {
    return this.options.find((each) => each.category === category);
  }

  /** Return what stands around the conversation. */
  frame(): Omit<Frame, "agent" | "detail" | "takesPictures"> {
    const modes = this.modes;
    const mode =
      optionName(this.option("mode")) ?? modes?.availableModes.find(({ id }) => id === modes.currentModeId)?.name;
    const model = optionName(this.option("model"));
    return {
      title: this.title,
      busy: this.busy,
      plan: this.transcript.plan,
      hasOptions: this.options.length > 0,
      ...(this.usage === undefined ? {} : { usage: this.usage }),
      ...(mode === undefined ? {} : { mode }),
      ...(model === undefined ? {} : { model }),
    };
  }

  private cancelQuestions(): void {
    for (const answer of this.questions.values()) answer({ outcome: "cancelled" });
  }
}

/**
 * Wait until the updates are handled that came before a response. The SDK hands over a response at once, and an update
 * only after it has asked every handler before ours.
 */
export function updatesHandled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

const STOPPED: Partial<Record<acp.StopReason, string>> = {
  cancelled: "Cancelled.",
  max_tokens: "The answer was cut off: it reached the model's limit of tokens.",
  max_turn_requests: "The turn ended at its limit of model requests. Say “go on” to continue.",
  refusal: "The model refused to answer.",
};

function price(amount: number, currency: string): string {
  const digits = amount > 0 && amount < 0.1 ? 4 : 2;
  return currency === "USD" ? `$${amount.toFixed(digits)}` : `${amount.toFixed(digits)} ${currency}`;
}

/** Return the values of an option that is a choice, groups taken apart. */
export function values(option: acp.SessionConfigOption): (acp.SessionConfigSelectOption & { group?: string })[] {
  if (option.type !== "select") return [];
  return option.options.flatMap((each) =>
    "group" in each ? each.options.map((one) => ({ ...one, group: each.name })) : [each],
  );
}

export function optionName(option: acp.SessionConfigOption | undefined): string | undefined {
  if (option === undefined) return undefined;
  if (option.type === "boolean") return option.currentValue ? "on" : "off";
  return values(option).find(({ value }) => value === option.currentValue)?.name ?? option.currentValue;
}
