// A button with a small panel: Escape and a click elsewhere close it, and the button has the focus again.
import { h, on } from "./dom.js";

/**
 * @param {any} content of the button
 * @param {(panel: HTMLElement, close: () => void) => void} fill called each time it opens
 * @param {{label?: string, class?: string}} [options]
 * @returns {HTMLElement}
 */
export function popover(content, fill, options = {}) {
  const button = h("button", { type: "button", class: options.class ?? "button", "aria-expanded": "false", "aria-haspopup": "dialog", "aria-label": options.label }, content);
  const holder = h("span", { class: "popover-anchor" }, button);
  /** @type {AbortController | null} */
  let open = null;

  function close() {
    open?.abort();
    open = null;
    holder.querySelector(".popover")?.remove();
    button.setAttribute("aria-expanded", "false");
  }

  on(button, "click", () => {
    if (open) {
      close();
      return;
    }
    open = new AbortController();
    const panel = h("div", { class: "popover", role: "dialog", "aria-label": options.label });
    holder.append(panel);
    button.setAttribute("aria-expanded", "true");
    fill(panel, close);
    // Near the right edge it opens to the left.
    const room = document.documentElement.clientWidth;
    const left = holder.getBoundingClientRect().left;
    panel.style.left = `${Math.min(0, room - left - panel.offsetWidth - 12)}px`;
    panel.style.top = "calc(100% + 4px)";
    on(document, "pointerdown", (event) => {
      if (!holder.contains(event.target)) close();
    }, open.signal);
    on(holder, "keydown", (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      close();
      button.focus();
    }, open.signal);
  });
  return holder;
}
