// Markdown as elements. Raw HTML and images are off, links are followed by the extension only.

import MarkdownIt from "markdown-it";
import { button, element } from "./dom.js";
import { send } from "./host.js";

const reader = new MarkdownIt({ html: false, linkify: false, breaks: false });
reader.disable("image");
// Pages and files. Anything else, such as a command of the editor, stays text.
reader.validateLink = (target) => /^(https?:|file:|[^:]*$|[^:/?#]*[/?#.])/i.test(target);

const ELEMENTS = new Set(
  ["A", "BLOCKQUOTE", "BR", "CODE", "DIV", "EM", "H1", "H2", "H3", "H4", "H5", "H6", "HR", "LI", "OL", "P", "PRE"].concat(
    ["S", "STRONG", "TABLE", "TBODY", "TD", "TH", "THEAD", "TR", "UL"],
  ),
);

/** Show a text in an element, in place of what it showed before. */
export function showMarkdown(target: HTMLElement, text: string): void {
  const parsed = new DOMParser().parseFromString(reader.render(text), "text/html");
  target.replaceChildren(...[...parsed.body.childNodes].map(copied));
  for (const code of target.querySelectorAll("pre")) {
    const text = code.textContent;
    code.tabIndex = 0; // so that a long line can be scrolled to by keyboard
    const copy = button(
      "Copy",
      () => {
        send({ type: "copy", text });
      },
      { class: "copy", "aria-label": "Copy the code" },
    );
    const frame = element("div", { class: "code" });
    code.before(frame);
    frame.append(code, copy);
  }
}

/** Copy a node with the elements and attributes that are allowed. Of any other element only its content is kept. */
function copied(node: Node): Node {
  if (!(node instanceof Element)) return document.createTextNode(node.textContent ?? "");
  const children = [...node.childNodes].map(copied);
  if (!ELEMENTS.has(node.tagName)) {
    const fragment = document.createDocumentFragment();
    fragment.append(...children);
    return fragment;
  }
  const made = document.createElement(node.tagName);
  if (node.tagName === "A") asLink(made, node.getAttribute("href") ?? "");
  if (node.tagName === "OL" && node.hasAttribute("start")) made.setAttribute("start", node.getAttribute("start") ?? "1");
  made.append(...children);
  return made;
}

function asLink(made: HTMLElement, target: string): void {
  made.setAttribute("href", "#");
  made.title = target;
  made.addEventListener("click", (event) => {
    event.preventDefault();
    event.stopPropagation();
    send({ type: "openLink", target });
  });
}
