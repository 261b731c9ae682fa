// What a view shows when there is nothing yet: what would be here, and the command that brings it.
import { h } from "./dom.js";
import { notice } from "./notice.js";

/** A command that can be copied. @param {string} command @returns {HTMLElement} */
export function commandBlock(command) {
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(command);
      notice("Copied.");
    } catch {
      notice("The browser does not allow copying here: select the text instead.", "bad");
    }
  };
  return h("div", { class: "command" },
    h("pre", { tabindex: "0" }, h("code", null, command)),
    h("button", { type: "button", class: "button small", onclick: copy, "aria-label": "Copy the command" }, "Copy"));
}

/** @param {string} title @param {string} text @param {string} [command] @returns {HTMLElement} */
export function emptyState(title, text, command) {
  return h("section", { class: "empty" },
    h("h2", null, title), h("p", null, text), command ? commandBlock(command) : null);
}
