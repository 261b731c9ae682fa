// All searches: what runs, how far it is, and the best of each.
import { get, stream } from "../lib/api.js";
import { h, replace } from "../lib/dom.js";
import { emptyState } from "../lib/empty.js";
import { ago, clock, duration, number, percent, setting } from "../lib/format.js";
import { statusChip } from "../lib/status.js";
import { Table } from "../lib/table.js";
import { progressOf } from "./search/head.js";
import { spark } from "./search/jobs.js";

const COMMAND = "search-init\nsearch-run --task first search_config.yaml";

/** @param {HTMLElement} main @param {{path: string, signal: AbortSignal}} context */
export async function show(main, { signal }) {
  document.title = "Searches · Operant";
  const answer = await get("/api/searches", {}, signal);
  const count = h("span", { class: "muted" });
  const tools = h("span");
  const holder = h("section", { class: "card searches", "aria-label": "Searches" });
  const empty = emptyState("No search yet", "A search tries settings of a program and finds good ones. Begin one in the folder of this page:", COMMAND);
  replace(main, h("div", { class: "page-head" }, h("h1", null, "Searches"), count, h("span", { class: "spacer" }), tools), holder, empty);

  const table = Table(holder, {
    columns: columns(answer.searches), rows: [], key: (one) => one.name, label: "Searches", stateKey: "list", signal,
    onOpen: (one) => document.getElementById(`search-${one.name}`)?.click(),
  });

  replace(tools, table.chooserButton());

  function update(/** @type {any[]} */ searches) {
    const running = searches.filter((one) => one.status === "RUNNING").length;
    holder.hidden = tools.hidden = !searches.length;
    empty.hidden = searches.length > 0;
    count.textContent = searches.length ? `${searches.length}, ${running} running` : "";
    // Those that run first, then the newest.
    table.setRows([...searches].sort((one, other) =>
      Number(other.status === "RUNNING") - Number(one.status === "RUNNING") || (other.started ?? 0) - (one.started ?? 0)));
  }

  update(answer.searches);
  stream({ list: 1 }, { list: (event) => update(event.searches) }, signal);
}

/** @returns {import("../lib/table.js").Column[]} */
function columns(/** @type {any[]} */ searches) {
  return [
    { key: "name", title: "Search", fixed: true, width: 180, value: (one) => one.name, render: name },
    { key: "status", title: "Status", width: 108, value: (one) => one.status, render: (one) => statusChip(one.status) },
    { key: "progress", title: "Progress", width: 160, value: progressOf, render: progress },
    { key: "left", title: "Left", num: true, width: 84, value: (one) => one.seconds_left, render: (one) => duration(one.seconds_left) },
    { key: "best", title: "Best", num: true, width: 96, value: (one) => one.best?.reward, render: (one) => h("span", { title: one.reward_attribute, "data-best": one.name }, number(one.best?.reward, 5)) },
    ...(searches.some((one) => one.spark) ? [{ key: "course", title: "Best so far", width: 104, sortable: false, value: () => "", render: (/** @type {any} */ one) => spark(one.spark) }] : []),
    { key: "with", title: "With", width: 210, sortable: false, value: () => "", render: (one) => h("span", { class: "muted small" }, one.best ? Object.entries(one.best.settings).map(([key, value]) => `${key} ${setting(value)}`).join(" · ") : "–") },
    { key: "running", title: "Running", num: true, hidden: true, width: 84, value: (one) => one.counts.running, render: (one) => String(one.counts.running) },
    { key: "abnormal", title: "Abnormal", num: true, width: 92, value: (one) => one.counts.abnormal, render: (one) => h("span", { class: one.counts.abnormal ? "is-abnormal" : "faint" }, String(one.counts.abnormal)) },
    { key: "elapsed", title: "Took", num: true, width: 92, value: (one) => one.elapsed, render: (one) => duration(one.elapsed) },
    { key: "started", title: "Started", num: true, width: 96, value: (one) => one.started, render: (one) => h("span", { title: clock(one.started) }, ago(one.started)) },
  ];
}

function name(/** @type {any} */ one) {
  return h("span", { class: "search-name" },
    h("a", { id: `search-${one.name}`, href: `/searches/${encodeURIComponent(one.name)}`, title: one.note || one.name }, one.name),
    one.damage ? h("span", { class: "is-abnormal small", title: one.damage }, "journal damaged") : null,
    one.tags.map((/** @type {string} */ tag) => h("span", { class: "chip" }, tag)));
}

function progress(/** @type {any} */ one) {
  const part = progressOf(one);
  return h("span", { class: "progress-cell" },
    h("span", { class: "progress", role: "progressbar", "aria-label": "Part that has ended", "aria-valuenow": String(Math.round((part ?? 0) * 100)), "aria-valuemin": "0", "aria-valuemax": "100" },
      h("span", { class: "progress-bar", style: { width: `${(part ?? 0) * 100}%` } })),
    h("span", { class: "muted small" }, part === null ? `${one.tries} tries` : percent(part)));
}
