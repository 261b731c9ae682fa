// A status as a word with its colour and shape: never by colour alone.
import { h } from "./dom.js";
import { statusToken } from "./colors.js";

/** @param {string} status @returns {HTMLElement} */
export function statusChip(status) {
  return h("span", { class: ["chip", "status", status === "RUNNING" && "is-running"], style: { "--chip": `var(${statusToken(status)})` } },
    h("i", { class: "status-mark", "aria-hidden": "true" }), status ? status.toLowerCase() : "unknown");
}
