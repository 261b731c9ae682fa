// The settings of the compared runs side by side; those that differ come first.
import { h, replace } from "../../lib/dom.js";
import { isUpkeep, number, shortSetting, tagOrder } from "../../lib/format.js";
import { runLink } from "../../lib/state.js";
import { statusChip } from "../../lib/status.js";
import { Table } from "../../lib/table.js";

/** Settings that have more than one value come first: they are what a compare is about. @param {any[]} rows */
export function settingNames(rows) {
  const names = [...new Set(rows.flatMap((row) => Object.keys(row.params)))].sort();
  const differs = (/** @type {string} */ name) => new Set(rows.map((row) => JSON.stringify(row.params[name]))).size > 1;
  const varied = names.filter(differs);
  return { varied, same: names.filter((name) => !varied.includes(name)) };
}

/** @param {HTMLElement} parent @param {AbortSignal} signal */
export function SettingsTable(parent, signal) {
  let drawn = "";
  /** @type {AbortController | null} */
  let current = null;
  signal.addEventListener("abort", () => current?.abort());
  return {
    /** @param {any[]} rows @param {Map<string, string>} labels */
    draw(rows, labels) {
      const now = JSON.stringify(rows.map((row) => [row.id, row.status]));
      if (now === drawn) return;
      drawn = now;
      current?.abort();
      current = new AbortController();
      fill(parent, rows, labels, current.signal);
    },
  };
}

/** @param {HTMLElement} parent @param {any[]} rows @param {Map<string, string>} labels @param {AbortSignal} signal */
function fill(parent, rows, labels, signal) {
  const { varied, same } = settingNames(rows);
  const tags = tagOrder([...new Set(rows.flatMap((row) => Object.keys(row.last)))]);
  /** @type {import("../../lib/table.js").Column[]} */
  const columns = [
    { key: "name", title: "Run", value: (row) => labels.get(row.id), fixed: true, width: 210, render: (row) => h("a", { href: runLink(row.id), title: row.id }, labels.get(row.id)) },
    { key: "status", title: "Status", value: (row) => row.status, width: 108, render: (row) => statusChip(row.status) },
    ...varied.map((name) => ({ key: `param.${name}`, title: name, group: "Settings that differ", num: true, value: (/** @type {any} */ row) => row.params[name], render: (/** @type {any} */ row) => shortSetting(row.params[name]) })),
    ...tags.map((tag, at) => ({ key: `last.${tag}`, title: tag, group: "Last values", num: true, hidden: at >= 6 || isUpkeep(tag), value: (/** @type {any} */ row) => row.last[tag], render: (/** @type {any} */ row) => number(row.last[tag]) })),
    ...same.map((name) => ({ key: `param.${name}`, title: name, group: "Settings that are the same", num: true, hidden: true, value: (/** @type {any} */ row) => row.params[name], render: (/** @type {any} */ row) => shortSetting(row.params[name]) })),
  ];
  const body = h("div");
  replace(parent, body);
  const table = Table(body, { columns, rows, key: (row) => row.id, label: "Settings of the compared runs", stateKey: "settings", signal });
  const words = varied.length ? `${varied.length} ${varied.length === 1 ? "setting differs" : "settings differ"}, ${same.length} are the same` : "All settings are the same";
  parent.prepend(h("div", { class: "card-head" }, h("h2", null, "Settings"), h("span", { class: "muted small" }, words), h("span", { class: "spacer" }), table.chooserButton()));
}
