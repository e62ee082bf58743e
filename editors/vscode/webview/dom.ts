// Small helpers to build elements.

type Child = Node | string | undefined;

interface Attributes {
  class?: string;
  role?: string;
  title?: string;
  type?: string;
  tabindex?: string;
  open?: boolean;
  disabled?: boolean;
  onclick?: () => void;
  [name: `aria-${string}` | `data-${string}`]: string | undefined;
}

/** Make an element. Strings become text, never markup. */
export function element<K extends keyof HTMLElementTagNameMap>(
  name: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes) as [string, string | boolean | (() => void) | undefined][]) {
    if (value === undefined || value === false) continue;
    if (typeof value === "function") made.addEventListener("click", value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== undefined));
  return made;
}

export function button(label: string, onclick: () => void, attributes: Attributes = {}): HTMLButtonElement {
  return element("button", { type: "button", ...attributes, onclick }, label);
}

export function picture(source: string, alt: string): HTMLImageElement {
  const made = element("img", { class: "image" });
  made.src = source;
  made.alt = alt;
  return made;
}

export function byId(id: string): HTMLElement {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`there is no element ${id}`);
  return found;
}
