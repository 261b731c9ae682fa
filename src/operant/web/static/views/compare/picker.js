// Add runs by name or id, or tick some of the latest.
import { get } from "../../lib/api.js";
import { h, replace } from "../../lib/dom.js";
import { ago, runName } from "../../lib/format.js";
import { attempt } from "../../lib/notice.js";

const LATEST = 100;

/**
 * @param {HTMLElement} panel @param {() => void} close
 * @param {{has: Set<string>, add: (given: string[]) => Promise<boolean>, signal: AbortSignal}} options
 */
export function fillPicker(panel, close, options) {
  const chosen = new Set();
  const field = h("input", { type: "text", placeholder: "Name or id, commas between", "aria-label": "Name or id of runs to add" });
  const list = h("div", { class: "chooser" }, h("p", { class: "faint" }, "Loading the latest runs…"));
  /** @type {any[]} */
  let rows = [];

  function fill() {
    const wanted = field.value.trim().toLowerCase();
    const fits = rows.filter((row) => !options.has.has(row.id) && (!wanted || `${row.name} ${row.id}`.toLowerCase().includes(wanted)));
    replace(list, fits.length ? fits.map((row) => h("label", null,
      h("input", { type: "checkbox", checked: chosen.has(row.id), onchange: () => { if (!chosen.delete(row.id)) chosen.add(row.id); } }),
      h("span", { class: "picker-name", title: row.id }, runName(row)), h("span", { class: "faint small" }, ago(row.started)))) : h("p", { class: "faint" }, "None of the latest runs fits; Add looks among all of them."));
  }

  async function add() {
    const typed = chosen.size ? [] : field.value.split(",").map((/** @type {string} */ one) => one.trim()).filter(Boolean);
    if ((chosen.size || typed.length) && await options.add([...chosen, ...typed])) close();
  }

  field.addEventListener("input", fill);
  field.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => { if (event.key === "Enter") add(); });
  replace(panel, h("div", { class: "stack" }, h("div", { class: "row" }, field, h("button", { type: "button", class: "button primary", onclick: add }, "Add")), list));
  field.focus();
  attempt(async () => {
    rows = (await get("/api/runs", { limit: LATEST, sort: "-started" }, options.signal)).rows;
    fill();
  });
}
