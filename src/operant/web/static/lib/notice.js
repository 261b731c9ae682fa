// Short messages at the bottom of the page, and errors in place of a view.
import { h } from "./dom.js";

const SECONDS = 5;

/** @param {string} text @param {"good" | "bad"} [kind] */
export function notice(text, kind = "good") {
  const holder = document.getElementById("notices");
  // The same trouble every few seconds is one message, not many.
  if (!holder || [...holder.children].some((one) => one.textContent === text)) return;
  const item = h("div", { class: ["notice", kind] }, text);
  holder.append(item);
  setTimeout(() => item.remove(), SECONDS * 1000);
}

/** Run something that talks to the server; its failure becomes a notice. @param {() => Promise<any>} work */
export async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    if (/** @type {any} */ (error).name !== "AbortError") notice(/** @type {any} */ (error).message, "bad");
    return undefined;
  }
}

/** @param {any} error @returns {HTMLElement} */
export function failure(error) {
  return h("section", { class: "empty failure", role: "alert" },
    h("h2", null, error?.status === 404 ? "Not found" : "This could not be shown"),
    h("p", null, error?.message ?? String(error)),
    h("p", null, h("a", { href: "/searches" }, "Searches"), " · ", h("a", { href: "/runs" }, "Runs")));
}
