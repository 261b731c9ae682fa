// Where the time of a loop went: one bar for each part.
import { h } from "../../lib/dom.js";
import { emptyState } from "../../lib/empty.js";
import { duration, number, percent } from "../../lib/format.js";

/** @param {HTMLElement} panel @param {{run: any, signal: AbortSignal}} context */
export function showTimers(panel, { run }) {
  if (!run.timers.length) {
    panel.append(emptyState("No step timer", "A task that wraps its steps with a StepTimer records where each pass spends its time:", "task.use_step_wrapper(StepTimer(writer=writer))"));
    return;
  }
  const whole = run.timers.find((/** @type {any} */ one) => one.name === "step");
  const parts = run.timers.filter((/** @type {any} */ one) => one !== whole).sort((/** @type {any} */ a, /** @type {any} */ b) => b.seconds - a.seconds);
  const total = whole?.seconds || parts.reduce((/** @type {number} */ sum, /** @type {any} */ one) => sum + one.seconds, 0) || 1;
  const longest = Math.max(...parts.map((/** @type {any} */ one) => one.seconds), total * 0.01);
  panel.append(h("section", { class: "card" },
    h("div", { class: "card-head" }, h("h2", null, "Time of a step"), whole ? h("span", { class: "muted small" }, `${duration(whole.seconds)} in all`) : null),
    h("div", { class: "card-body" }, h("table", { class: "timers" },
      h("thead", null, h("tr", null, ["Part", "", "Time", "Share", "Measured"].map((title) => h("th", { scope: "col", class: title && title !== "Part" && "num" }, title || h("span", { class: "visually-hidden" }, "Bar"))))),
      h("tbody", null, parts.map((/** @type {any} */ one) => h("tr", null,
        h("th", { scope: "row" }, one.name),
        h("td", { class: "bar-cell" }, h("span", { class: "bar", style: { width: `${Math.max(0.5, (100 * one.seconds) / longest)}%` } })),
        h("td", { class: "num" }, duration(one.seconds)),
        h("td", { class: "num" }, percent(one.seconds / total)),
        h("td", { class: "num muted" }, number(one.count)))))))));
}
