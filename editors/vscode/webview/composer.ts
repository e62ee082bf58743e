// The box for the next prompt, with the pickers under it.

import type { Frame, Picker } from "../src/chat/messages.js";
import { button, element, picture } from "./dom.js";
import { remember, remembered, send } from "./host.js";

const MOST_HEIGHT = 240;

export class Composer {
  private readonly box = element("textarea", { "aria-label": "Prompt" });
  private readonly mode = this.picker("mode", "Choose the mode");
  private readonly model = this.picker("model", "Choose the model");
  private readonly options = this.picker("options", "Options of this session");
  private readonly attach = button(
    "+",
    () => {
      send({ type: "attachFile" });
    },
    { class: "picker", title: "Attach pictures", "aria-label": "Attach pictures" },
  );
  private readonly pictures = element("div", { class: "pictures", role: "list", "aria-label": "Attached pictures" });
  private readonly submit = button(
    "Send",
    () => {
      if (this.frame?.busy === true) send({ type: "cancel" });
      else this.sendPrompt();
    },
    { class: "primary send" },
  );
  private frame: Frame | undefined;

  constructor(parent: HTMLElement) {
    this.box.rows = 2;
    this.box.value = remembered().draft;
    this.options.textContent = "Options";
    const mention = button(
      "@",
      () => {
        this.pick("mention");
      },
      { class: "picker", title: "Mention a file, symbol or problem", "aria-label": "Mention" },
    );
    const slash = button(
      "/",
      () => {
        this.pick("slash");
      },
      { class: "picker", title: "Slash commands", "aria-label": "Slash commands" },
    );
    parent.append(
      element("div", { class: "welcome", "data-part": "welcome" }),
      element("div", { class: "state", role: "status", "data-part": "state" }),
      element("div", { class: "plan", "data-part": "plan" }),
      element(
        "form",
        { class: "composer" },
        this.pictures,
        this.box,
        element(
          "div",
          { class: "row" },
          mention,
          slash,
          this.attach,
          this.mode,
          this.model,
          this.options,
          element(
            "span",
            { class: "end" },
            element("span", { class: "usage", role: "note", "data-part": "usage" }),
            this.submit,
          ),
        ),
      ),
    );
    this.box.addEventListener("keydown", (event) => {
      this.key(event);
    });
    this.box.addEventListener("input", (event) => {
      this.changed();
      this.openPicker(event);
    });
    this.box.addEventListener("paste", (event) => {
      this.take(event, event.clipboardData);
    });
    this.box.addEventListener("drop", (event) => {
      this.take(event, event.dataTransfer);
    });
    this.submit.disabled = true; // until it is known that the agent is ready
    this.fit();
  }

  get isTyping(): boolean {
    return this.box.value !== "" && document.activeElement === this.box;
  }

  focus(): void {
    this.box.focus();
  }

  show(frame: Frame): void {
    this.frame = frame;
    this.submit.textContent = frame.busy ? "Stop" : "Send";
    this.submit.title = frame.busy ? "Cancel the turn (Escape)" : "Send the prompt (Enter)";
    this.submit.disabled = frame.agent !== "ready";
    this.box.placeholder = frame.agent === "ready" ? "Ask or say what to do. Shift+Enter begins a new line." : "";
    label(this.mode, frame.mode);
    label(this.model, frame.model);
    this.options.hidden = !frame.hasOptions;
    this.attach.hidden = !frame.takesPictures;
  }

  showPictures(pictures: readonly string[]): void {
    const hadFocus = this.pictures.contains(document.activeElement);
    this.pictures.replaceChildren(
      ...pictures.map((source, index) => {
        const label = `Remove picture ${index + 1}`;
        const remove = button(
          "×",
          () => {
            send({ type: "detach", index });
          },
          { class: "remove", title: label, "aria-label": label },
        );
        return element("div", { class: "thumbnail", role: "listitem" }, picture(source, `Picture ${index + 1}`), remove);
      }),
    );
    if (hadFocus) this.focus();
  }

  /** Insert a mention or a command at the cursor, in place of the sign that opened the picker. */
  insert(text: string): void {
    const sign = text.startsWith("/") ? "/" : "@";
    const { selectionStart: start, selectionEnd: end, value } = this.box;
    let before = value.slice(0, start);
    if (before.endsWith(sign)) before = before.slice(0, -1);
    if (before !== "" && !/\s$/.test(before)) before += " ";
    const inserted = sign === "@" ? `${text} ` : text;
    this.box.value = before + inserted + value.slice(end);
    this.box.selectionStart = this.box.selectionEnd = before.length + inserted.length;
    this.changed();
    this.focus();
  }

  /** Give back a prompt that was not sent. */
  restore(text: string): void {
    if (this.box.value === "") this.box.value = text;
    this.changed();
  }

  private picker(name: Picker, title: string): HTMLButtonElement {
    return button(
      "",
      () => {
        this.pick(name);
      },
      { class: "picker", title, "aria-haspopup": "listbox" },
    );
  }

  private pick(picker: Picker): void {
    send({ type: "pick", picker });
  }

  private key(event: KeyboardEvent): void {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    this.sendPrompt();
  }

  private sendPrompt(): void {
    const text = this.box.value.trim();
    const isEmpty = text === "" && this.pictures.childElementCount === 0;
    if (isEmpty || this.frame?.agent !== "ready" || this.frame.busy) return;
    send({ type: "prompt", text });
    this.box.value = "";
    this.changed();
  }

  /** Attach the pictures that are pasted or dropped. Where there is text as well, the text is meant. */
  private take(event: Event, given: DataTransfer | null): void {
    const files = [...(given?.files ?? [])].filter(({ type }) => type.startsWith("image/"));
    if (files.length === 0 || given?.types.includes("text/plain") === true || this.frame?.takesPictures !== true) return;
    event.preventDefault();
    for (const file of files) {
      const reader = new FileReader();
      reader.addEventListener("load", () => {
        if (typeof reader.result === "string") send({ type: "attach", picture: reader.result });
      });
      reader.readAsDataURL(file);
    }
  }

  /** `@` at the beginning of a word and `/` at the beginning of the prompt open their pickers. */
  private openPicker(event: InputEvent): void {
    if (event.inputType !== "insertText" || this.frame?.agent !== "ready") return;
    const before = this.box.value.slice(0, this.box.selectionStart);
    if (event.data === "/" && this.box.value === "/") this.pick("slash");
    if (event.data === "@" && /(^|\s)@$/.test(before)) this.pick("mention");
  }

  private changed(): void {
    remember({ draft: this.box.value });
    this.fit();
  }

  private fit(): void {
    this.box.style.height = "auto";
    this.box.style.height = `${Math.min(MOST_HEIGHT, this.box.scrollHeight + 2)}px`;
  }
}

function label(picker: HTMLButtonElement, text: string | undefined): void {
  picker.hidden = text === undefined;
  picker.textContent = text ?? "";
}
