// A question before something that cannot be undone; the browser's own dialog keeps the focus inside and Escape closes it.
import { h } from "../../lib/dom.js";

/**
 * @param {{title: string, text: string, yes: string}} question
 * @returns {Promise<boolean>}
 */
export function confirm({ title, text, yes }) {
  return new Promise((resolve) => {
    const dialog = h("dialog", { class: "confirm", "aria-labelledby": "confirm-title" },
      h("form", { method: "dialog" },
        h("h2", { id: "confirm-title" }, title),
        h("p", null, text),
        h("div", { class: "row" },
          h("span", { class: "spacer" }),
          h("button", { class: "button", value: "no", autofocus: true }, "Cancel"),
          h("button", { class: "button danger", value: "yes" }, yes))));
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
