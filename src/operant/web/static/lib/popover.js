// A button with a small panel: Escape and a click elsewhere close it, and the button has the focus again.
import { h, on } from "./dom.js";

const WIDTH = 340;
const EDGE = 12;

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
    // It is placed before it is filled: a field that takes the focus outside the window would scroll the page.
    const room = document.documentElement.clientWidth;
    const { left } = holder.getBoundingClientRect();
    const width = Math.min(WIDTH, room - 2 * EDGE);
    panel.style.width = `${width}px`;
    panel.style.left = `${Math.max(EDGE, Math.min(left, room - width - EDGE)) - left}px`;
    panel.style.top = "calc(100% + 4px)";
    holder.append(panel);
    button.setAttribute("aria-expanded", "true");
    fill(panel, close);
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
