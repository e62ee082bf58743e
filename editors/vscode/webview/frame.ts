// What stands around the conversation: the title, the state of the agent, the plan, tokens and cost.

import type { Action, Frame } from "../src/chat/messages.js";
import { button, element } from "./dom.js";
import { send } from "./host.js";

export function showFrame(frame: Frame, empty: boolean): void {
  part("title").textContent = frame.title;
  part("state").replaceChildren(...state(frame));
  part("welcome").replaceChildren(...(empty && frame.agent === "ready" ? welcome() : []));
  showPlan(frame);
  showUsage(frame);
}

function part(name: string): HTMLElement {
  const found = document.querySelector<HTMLElement>(`[data-part=${name}]`);
  if (found === null) throw new Error(`there is no part ${name}`);
  return found;
}

function state(frame: Frame): Node[] {
  if (frame.agent === "ready") return [];
  const action = (label: string, name: Action, primary = false) =>
    button(
      label,
      () => {
        send({ type: "action", action: name });
      },
      { class: primary ? "primary" : "secondary" },
    );
  const text = element("p", {}, frame.detail);
  switch (frame.agent) {
    case "missing":
      return [
        text,
        element("p", {}, "Install it with pip, or say in the settings where it is."),
        element(
          "div",
          { class: "choices" },
          action("Install with pip", "install", true),
          action("Open settings", "settings"),
          action("Try again", "restart"),
        ),
      ];
    case "stopped":
      return [
        text,
        element("div", { class: "choices" }, action("Start the agent", "restart", true), action("Show log", "log")),
      ];
    case "starting":
      return [text];
  }
}

function welcome(): Node[] {
  return [
    element("p", {}, "Ask about this project, or say what to change."),
    element("p", { class: "hint" }, "@ mentions files, symbols and problems. / lists commands. Escape cancels a turn."),
  ];
}

function showPlan(frame: Frame): void {
  const target = part("plan");
  if (frame.plan.length === 0) {
    target.replaceChildren();
    return;
  }
  const done = frame.plan.filter(({ status }) => status === "completed").length;
  const wasOpen = target.querySelector("details")?.open ?? true;
  const entries = frame.plan.map(({ content, status }) =>
    element(
      "li",
      { "data-status": status },
      statusSign(status, frame.busy),
      element("span", { class: "spoken" }, `${status.replace("_", " ")}: `),
      element("span", {}, content),
    ),
  );
  const current = frame.plan.find(({ status }) => status === "in_progress");
  const head = `Plan ${done}/${frame.plan.length}${current === undefined ? "" : `: ${current.content}`}`;
  const details = element("details", {}, element("summary", {}, head), element("ol", {}, ...entries));
  details.open = wasOpen && done < frame.plan.length;
  target.replaceChildren(details);
}

const SIGNS = { pending: "○", in_progress: "◐", completed: "✓" } as const;

/** A step that the agent works on turns, for as long as the turn runs. */
function statusSign(status: keyof typeof SIGNS, busy: boolean): HTMLElement {
  const turns = status === "in_progress" && busy;
  const shown = turns || status === "completed" ? status : "waits";
  return element("span", { class: "status", "data-status": shown, "aria-hidden": "true" }, turns ? "" : SIGNS[status]);
}

function showUsage({ usage }: Frame): void {
  const target = part("usage");
  if (usage === undefined) {
    target.replaceChildren();
    return;
  }
  const share = usage.size > 0 ? Math.min(100, Math.round((100 * usage.used) / usage.size)) : 0;
  const whole = `${usage.used.toLocaleString("en")} of ${usage.size.toLocaleString("en")} tokens of the context (${share} %)`;
  const cost = usage.cost === undefined ? "" : ` · ${usage.cost}`;
  target.title = `${whole}${cost}`;
  target.setAttribute("aria-label", `${whole}${cost}`);
  target.dataset.full = share >= 80 ? "true" : "false";
  target.replaceChildren(`${short(usage.used)} / ${short(usage.size)}${cost}`);
}

function short(tokens: number): string {
  if (tokens < 1000) return String(tokens);
  if (tokens < 1_000_000) return `${(tokens / 1000).toFixed(tokens < 10_000 ? 1 : 0)}k`;
  return `${(tokens / 1_000_000).toFixed(1)}M`;
}
