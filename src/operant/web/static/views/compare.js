// Several runs on the same charts. The address holds everything, or names a stored compare.
import { get, post } from "../lib/api.js";
import { Board } from "../charts/board.js";
import { Follower } from "../charts/follow.js";
import { ChartToolbar, readChartState, segmented, writeZoom } from "../charts/toolbar.js";
import { h, replace } from "../lib/dom.js";
import { emptyState } from "../lib/empty.js";
import { runName } from "../lib/format.js";
import { attempt, notice } from "../lib/notice.js";
import { popover } from "../lib/popover.js";
import { go, link, state } from "../lib/state.js";
import { compareValues } from "../lib/table.js";
import { fillPicker } from "./compare/picker.js";
import { RunList } from "./compare/runlist.js";
import { Scores } from "./compare/scores.js";
import { settingNames, SettingsTable } from "./compare/settings.js";

const DRAWN = 100;
// As many runs as one request for charts may name.
const GROUPED = 1000;
const SUGGESTED = 3;
const LOOK_AGAIN = 5000;

/** Names, with the end of the id where several runs share one. @param {any[]} rows @returns {Map<string, string>} */
function labelsOf(rows) {
  const uses = new Map();
  for (const row of rows) uses.set(runName(row), (uses.get(runName(row)) ?? 0) + 1);
  return new Map(rows.map((row) => [row.id, uses.get(runName(row)) > 1 ? `${row.name} ${row.id.split("-").pop()}` : runName(row)]));
}

/** Runs with the same value of a setting have the same colour. @param {any[]} rows @param {string} name @returns {Map<string, number>} */
function groupPlaces(rows, name) {
  const text = (/** @type {any} */ row) => JSON.stringify(row.params[name]) ?? "";
  const values = [...new Map(rows.map((row) => [text(row), row.params[name]]))].sort(([, a], [, b]) => compareValues(a, b, false)).map(([key]) => key);
  return new Map(rows.map((row) => [row.id, values.indexOf(text(row))]));
}

/** @param {HTMLElement} main @param {{path: string, signal: AbortSignal}} context */
export async function show(main, { path, signal }) {
  const stored = decodeURIComponent(path.split("/")[2] ?? "");
  const compare = stored ? await get(`/api/compares/${encodeURIComponent(stored)}`, {}, signal) : null;
  document.title = `${compare ? compare.name : "Compare"} · Operant`;
  const wanted = () => (compare ? compare.runs : state.list("runs"));
  if (!wanted().length) {
    await showNothing(main, compare, signal);
    return;
  }
  /** @type {any[]} */
  let rows = [];
  let labels = new Map();

  const count = h("span", { class: "muted" });
  const what = h("span", null);
  const heading = h("h1", null, compare ? compare.name : "Compare");
  const side = h("aside", { class: "card run-side", "aria-label": "Runs in this compare" });
  const bar = h("div", { class: "card chart-toolbar" });
  const capped = h("p", { class: "capped", role: "status", hidden: true });
  const area = h("div", { class: "compare-area" });
  const table = h("div", { class: "card", hidden: true });
  const settings = SettingsTable(table, signal);
  const judged = h("div", { class: "card", hidden: true });
  const scores = Scores(judged, signal);
  const nothing = emptyState("No numbers yet", "None of these runs has recorded a scalar. This is how one does:", "writer.add_scalar(\"loss\", value, step)");
  main.append(
    h("div", { class: "page-head" }, heading, count, h("span", { class: "spacer" }), what,
      popover("Add runs", (panel, close) => fillPicker(panel, close, { has: new Set(wanted()), add, signal }), { label: "Add runs" }), compare ? null : saver(wanted)),
    h("div", { class: "compare" }, side, h("div", { class: "stack" }, bar, capped, nothing, area, table, judged)));

  const board = Board(area, {
    signal, sync: "compare", onZoom: writeZoom,
    onFold: (folded) => state.set({ fold: [...folded] }),
    onFocus: (run) => list.focus(run),
    onProblem: (error) => notice(error.message, "bad"),
    onSeen: () => follower.soon(),
  });
  const toolbar = ChartToolbar(bar, { signal, groups: () => settingNames(rows).varied, onSmoothing: (weight) => board.smooth(weight) });
  const list = RunList(side, { signal, onHover: (run) => board.highlight(run), onHide: (hidden) => state.set({ hide: [...hidden] }), onRemove: compare ? null : remove });

  /** @param {string} id */
  function remove(id) {
    state.set({ runs: wanted().filter((/** @type {string} */ one) => one !== id) }, { push: true });
  }

  /** @param {string[]} given ids or names */
  async function add(given) {
    const found = await attempt(() => post("/api/runs/rows", { ids: given }, signal));
    if (!found) return false;
    if (found.missing.length) notice(`There is no run ${found.missing.map((/** @type {string} */ one) => `“${one}”`).join(", ")}.`, "bad");
    const fresh = found.rows.map((/** @type {any} */ row) => row.id).filter((/** @type {string} */ id) => !wanted().includes(id));
    if (!fresh.length) return false;
    if (compare) {
      const done = await attempt(() => post(`/api/compares/${encodeURIComponent(stored)}/add`, { runs: fresh, searches: [] }, signal));
      if (!done) return false;
      compare.runs = [...compare.runs, ...fresh];
      await load();
    } else state.set({ runs: [...wanted(), ...fresh] }, { push: true });
    return true;
  }

  let loaded = "";
  let absent = "";
  let shownRows = "";
  async function load() {
    const ids = wanted();
    loaded = JSON.stringify(ids);
    const found = await post("/api/runs/rows", { ids }, signal);
    rows = found.rows;
    labels = labelsOf(rows);
    const missing = found.missing.join(", ");
    const now = JSON.stringify(rows.map((row) => [row.id, row.status, Object.keys(row.last).length]));
    if (missing && missing !== absent) notice(`${found.missing.length} of these runs ${found.missing.length === 1 ? "is" : "are"} not here: ${missing.slice(0, 200)}`, "bad");
    absent = missing;
    // A look that finds nothing new leaves the page alone: whoever is about to click must not miss.
    if (now === shownRows) return;
    shownRows = now;
    draw();
    toolbar.draw();
    follower.soon();
  }

  function draw() {
    const view = readChartState();
    const hidden = new Set(state.list("hide"));
    const shown = ["table", "scores"].find((one) => one === state.get("show")) ?? "charts";
    const visible = rows.filter((row) => !hidden.has(row.id));
    const most = view.group ? GROUPED : DRAWN;
    const over = shown === "charts" && visible.length > most;
    const drawn = new Set(visible.slice(0, most).map((row) => row.id));
    tellCapped(capped, over ? { most, of: visible.length, group: view.group, settings: groupingSettings(visible) } : null);
    count.textContent = `${rows.length} ${rows.length === 1 ? "run" : "runs"}${over ? `, ${most} drawn` : ""}`;
    replace(what, segmented("What to show", [["charts", "Charts"], ["table", "Settings"], ["scores", "Scores"]], shown, (value) => state.set({ show: value === "charts" ? null : value })));
    const places = view.group ? groupPlaces(rows, view.group) : new Map(rows.map((row, index) => [row.id, index]));
    list.draw(rows, labels, hidden, places);
    area.hidden = bar.hidden = shown !== "charts";
    table.hidden = shown !== "table";
    judged.hidden = shown !== "scores";
    nothing.hidden = true;
    if (shown === "scores") {
      scores.draw(visible);
      return;
    }
    if (shown === "table") {
      settings.draw(visible, labels);
      return;
    }
    const tags = [...new Set(rows.flatMap((row) => Object.keys(row.last)))].sort();
    const all = rows.map((row) => ({ id: row.id, label: labels.get(row.id) ?? row.id, index: places.get(row.id) ?? 0, hidden: !drawn.has(row.id) }));
    // A group is the mean of the runs that are asked for: hidden ones must not be asked for.
    board.set({ tags, view, runs: view.group ? all.filter((one) => !one.hidden) : all });
    nothing.hidden = tags.length > 0;
  }

  const follower = Follower({
    board: () => board, signal, runs: () => rows.filter((row) => row.status === "RUNNING").map((row) => row.id).slice(0, DRAWN),
    onRun: (data) => {
      const row = rows.find((one) => one.id === data.id);
      if (!row || row.status === data.status) return;
      Object.assign(row, { status: data.status, ended: data.ended ?? row.ended });
      draw();
      if (row.status !== "RUNNING") board.renew(null);
      follower.soon();
    },
  });
  // No stream tells of a tag that a run records for the first time, or of a search's new jobs.
  const timer = window.setInterval(() => {
    const grows = compare !== null && compare.searches.length > 0;
    if (document.hidden || !(grows || rows.some((row) => row.status === "RUNNING"))) return;
    attempt(async () => {
      if (grows) compare.runs = (await get(`/api/compares/${encodeURIComponent(stored)}`, {}, signal)).runs;
      await load();
    });
  }, LOOK_AGAIN);
  signal.addEventListener("abort", () => clearInterval(timer));

  state.subscribe(() => {
    if (JSON.stringify(wanted()) !== loaded) {
      if (wanted().length) attempt(load);
      else go("/compare");
      return;
    }
    draw();
    follower.soon();
  }, signal);
  await load();
}

/** Settings that make few groups first; one that is different in nearly every run makes none. @param {any[]} rows @returns {string[]} */
function groupingSettings(rows) {
  const counted = settingNames(rows).varied.map((name) => ({ name, values: new Set(rows.map((row) => JSON.stringify(row.params[name]))).size }));
  return counted.filter((one) => one.values <= rows.length / 2).sort((a, b) => a.values - b.values).slice(0, SUGGESTED).map((one) => one.name);
}

/**
 * How many of the runs are drawn, and how to see the others.
 * @param {HTMLElement} place @param {{most: number, of: number, group: string | null, settings: string[]} | null} cap
 */
function tellCapped(place, cap) {
  place.hidden = cap === null;
  // Told anew only when it is different: a screen reader says it each time, and a button must stay below the pointer.
  const key = JSON.stringify(cap);
  if (place.dataset.told === key) return;
  place.dataset.told = key;
  if (!cap) {
    replace(place);
    return;
  }
  const hint = "Hide runs in the list to see those behind them.";
  const head = h("strong", null, `${cap.most} of ${cap.of} runs are drawn`);
  const buttons = cap.settings.map((name) => h("button", { type: "button", class: "button small", onclick: () => state.set({ group: name }) }, `Group by ${name}`));
  if (cap.group) replace(place, head, `: groups are made of the first ${cap.most}. ${hint}`);
  else if (buttons.length) replace(place, head, `, as many as there can be one by one. Groups take ${cap.of > GROUPED ? GROUPED : "all"} of them: `, buttons, ` ${hint}`);
  else replace(place, head, `, as many as there can be one by one. No setting makes groups of them. ${hint}`);
}

/** @param {() => string[]} wanted */
function saver(wanted) {
  return popover("Save", (panel, close) => {
    const name = h("input", { type: "text", placeholder: "Name of the compare", "aria-label": "Name of the compare", maxlength: "100" });
    const save = () => attempt(async () => {
      const made = await post("/api/compares", { name: name.value.trim() || "compare", runs: wanted(), searches: [] });
      close();
      const params = Object.fromEntries(new URLSearchParams(location.search));
      delete params.runs;
      go(link(`/compare/${encodeURIComponent(made.id)}`, params));
      notice("Saved. This address stays.");
    });
    name.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => { if (event.key === "Enter") save(); });
    replace(panel, h("div", { class: "row" }, name, h("button", { type: "button", class: "button primary", onclick: save }, "Save compare")));
    name.focus();
  }, { label: "Save this compare" });
}

/** @param {HTMLElement} main @param {any} compare @param {AbortSignal} signal */
async function showNothing(main, compare, signal) {
  const { compares } = await get("/api/compares", {}, signal);
  const open = async (/** @type {string[]} */ given) => {
    const found = await attempt(() => post("/api/runs/rows", { ids: given }, signal));
    if (!found?.rows.length) {
      if (found) notice(`There is no run ${given.map((one) => `“${one}”`).join(", ")}.`, "bad");
      return false;
    }
    const ids = found.rows.map((/** @type {any} */ row) => row.id);
    if (compare) await attempt(() => post(`/api/compares/${encodeURIComponent(compare.id)}/add`, { runs: ids, searches: [] }, signal));
    go(compare ? `/compare/${encodeURIComponent(compare.id)}` : link("/compare", { runs: ids }));
    return true;
  };
  main.append(
    h("div", { class: "page-head" }, h("h1", null, compare ? compare.name : "Compare"), h("span", { class: "spacer" }),
      popover("Add runs", (panel, close) => fillPicker(panel, close, { has: new Set(), add: open, signal }), { label: "Add runs", class: "button primary" })));
  if (compares?.length) {
    main.append(h("section", { class: "card" }, h("div", { class: "card-head" }, h("h2", null, "Saved compares")),
      h("ul", { class: "plain-list" }, compares.map((/** @type {any} */ one) => h("li", null,
        h("a", { href: `/compare/${encodeURIComponent(one.id)}` }, one.name || one.id),
        h("span", { class: "faint small" }, one.runs?.length ? `${one.runs.length} runs` : (one.searches ?? []).join(", ")))))));
  } else {
    main.append(emptyState("Nothing to compare yet", "Pick runs in the list of runs, or add them here by name or id. What you save gets an address that stays. Record a few runs first:", "operant train --help"));
  }
}
