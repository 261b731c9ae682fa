// The table of jobs: settings and scalars by choice, a small curve each, and what differs from the best.
import { get, post } from "../../lib/api.js";
import { h, on, quiet, replace, svg } from "../../lib/dom.js";
import { ago, clock, duration, number, setting, shortSetting } from "../../lib/format.js";
import { attempt, notice } from "../../lib/notice.js";
import { runLink, state } from "../../lib/state.js";
import { statusChip } from "../../lib/status.js";
import { Table } from "../../lib/table.js";
import { card, refresher } from "./card.js";
import { confirm } from "./confirm.js";

/** @typedef {import("../search.js").Page} Page */

const SCALARS_EVERY = 3;
const SETTINGS_SHOWN = 8;
const OPEN = new Set(["RUNNING", "PENDING", "PAUSED"]);

/** @param {Page} page */
export function jobsCard(page) {
  const { model, signal, address } = page;
  const filter = h("input", {
    type: "search", class: "job-filter", value: state.get("filter", ""), "aria-label": "Filter the jobs", spellcheck: "false", autocomplete: "off",
    placeholder: 'e.g. lr < 0.01 and status == "FINISHED"',
  });
  const problem = h("p", { class: "problem", role: "alert" });
  const tools = h("span", { class: "row" });
  const { element, body, say } = card({ key: "jobs", title: "Jobs", class: "jobs", signal, controls: tools });
  const holder = h("div", { class: "job-table" });
  replace(body, h("div", { class: "row job-tools" }, filter, problem), holder);
  /** @type {{tags: string[], last: Record<string, any[]>, spark: Record<string, any[][]>}} */
  let scalars = { tags: [], last: {}, spark: {} };
  let columnNames = "";
  let isHeld = false;
  let isWaiting = false;

  on(filter, "input", quiet(() => state.set({ filter: filter.value.trim() }), 200), signal);

  const table = Table(holder, {
    columns: columns(), rows: [], key: (row) => model.jobs.id[row], label: "Jobs", stateKey: "jobs",
    sort: { key: "number", desc: true }, onOpen: (row) => page.open(model.jobs.id[row]), signal,
  });
  replace(tools, table.chooserButton());
  // A row must not be drawn anew between pressing and releasing a button in it.
  on(holder, "pointerdown", () => { isHeld = true; }, signal);
  on(window, "pointerup", () => setTimeout(() => {
    isHeld = false;
    if (isWaiting) draw();
  }), signal);

  const again = refresher({ element, say }, SCALARS_EVERY, async () => {
    const wanted = state.list("jobs.cols").filter((one) => one.startsWith("s:")).map((one) => one.slice(2));
    const reward = model.summary.reward_attribute;
    scalars = await get(`${address}/scalars`, { tags: [...new Set([...(reward ? [reward] : []), ...wanted])] }, signal);
    draw();
  }, signal);

  /** @returns {import("../../lib/table.js").Column[]} */
  function columns() {
    const { jobs, settings } = model;
    const of = (/** @type {string} */ name) => (/** @type {number} */ row) => jobs[name][row];
    const reward = model.summary.reward_attribute ?? "reward";
    return [
      { key: "number", title: "Job", fixed: true, width: 100, value: of("number"), render: jobName },
      { key: "status", title: "Status", width: 100, value: of("status"), render: (row) => statusChip(jobs.status[row]) },
      { key: "reward", title: reward, num: true, width: 92, value: of("reward"), render: (row) => number(jobs.reward[row]) },
      { key: "spark", title: "Course", width: 104, sortable: false, value: () => "", render: (row) => spark(scalars.spark[reward]?.[row]) },
      ...Object.keys(settings).map((name, index) => ({
        key: `p:${name}`, title: name, group: "Settings", hidden: index >= SETTINGS_SHOWN, width: 106,
        num: settings[name].some((one) => typeof one === "number"),
        value: (/** @type {number} */ row) => settings[name][row], render: (/** @type {number} */ row) => settingCell(name, row),
      })),
      ...scalars.tags.filter((tag) => tag !== model.summary.reward_attribute).map((tag) => ({
        key: `s:${tag}`, title: tag, group: "Last value of", num: true, hidden: true, width: 112,
        value: (/** @type {number} */ row) => scalars.last[tag]?.[row], render: (/** @type {number} */ row) => number(scalars.last[tag]?.[row]),
      })),
      { key: "duration", title: "Took", group: "Course", num: true, width: 84, value: (row) => model.duration(row), render: (row) => duration(model.duration(row)) },
      ...(jobs.where.some((one) => one) ? [
        { key: "where", title: "Where", group: "Course", width: 150, value: of("where"), render: (/** @type {number} */ row) => jobs.where[row] ?? "–" },
        { key: "waited", title: "Waited", group: "Course", num: true, width: 84, value: (/** @type {number} */ row) => model.waited(row), render: (/** @type {number} */ row) => duration(model.waited(row)) },
      ] : []),
      { key: "started", title: "Started", group: "Course", hidden: true, num: true, value: of("started"), render: (row) => h("span", { title: clock(jobs.started[row]) }, ago(jobs.started[row], model.now)) },
      { key: "ended", title: "Ended", group: "Course", hidden: true, num: true, value: of("ended"), render: (row) => h("span", { title: clock(jobs.ended[row]) }, ago(jobs.ended[row], model.now)) },
      { key: "seed", title: "Seed", group: "Course", hidden: true, num: true, width: 70, value: of("seed"), render: (row) => number(jobs.seed[row]) },
      { key: "attempt", title: "Attempt", group: "Course", hidden: true, num: true, width: 84, value: of("attempt"), render: (row) => number(jobs.attempt[row]) },
      { key: "reason", title: "Reason", group: "Course", hidden: true, value: of("reason"), render: (row) => jobs.reason[row] ?? "–" },
      { key: "error", title: "Error", group: "Course", hidden: true, width: 260, value: of("error"), render: (row) => jobs.error[row] ?? "–" },
      ...(model.isLive ? [{ key: "action", title: "", fixed: true, width: 70, sortable: false, value: () => "", render: stopButton }] : []),
    ];
  }

  function jobName(/** @type {number} */ row) {
    const id = model.jobs.id[row];
    const isBest = model.summary.best?.jobs.includes(id);
    return h("a", { href: runLink(`${page.name}/${id}`), class: isBest && "is-best", title: isBest ? `${id}, the best` : id }, id, isBest ? " ★" : "");
  }

  /** What differs from the best configuration stands out, and says how. */
  function settingCell(/** @type {string} */ name, /** @type {number} */ row) {
    const value = model.settings[name][row];
    const best = model.summary.best?.settings;
    const differs = best && JSON.stringify(value ?? null) !== JSON.stringify(best[name] ?? null);
    return h("span", { class: ["setting", differs && "differs"], title: differs ? `${setting(value)}; the best has ${setting(best[name])}` : setting(value) }, shortSetting(value));
  }

  function stopButton(/** @type {number} */ row) {
    const id = model.jobs.id[row];
    if (!model.isLive || !OPEN.has(model.jobs.status[row])) return "";
    return h("button", { type: "button", class: "button small danger", "data-stop": id, "aria-label": `Stop job ${id}`, onclick: () => stopJob(id) }, "Stop");
  }

  async function stopJob(/** @type {string} */ id) {
    const sure = await confirm({ title: `Stop job ${id}?`, text: "It is killed and gives no reward. The search goes on without it.", yes: "Stop the job" });
    if (sure && (await attempt(() => post(`${address}/jobs/${encodeURIComponent(id)}/stop`)))) notice(`Job ${id} was asked to stop.`);
  }

  function draw() {
    if (isHeld) {
      isWaiting = true;
      return;
    }
    isWaiting = false;
    const focusAgain = focusKeeper(holder);
    const names = JSON.stringify([Object.keys(model.settings), scalars.tags, model.isLive]);
    if (names !== columnNames) {
      columnNames = names;
      table.setColumns(columns());
    }
    const rows = [];
    for (let row = 0; row < model.count; row++) if (model.selected[row]) rows.push(row);
    table.setRows(rows);
    focusAgain();
    element.dataset.rows = String(rows.length);
    if (problem.textContent !== model.filterProblem) problem.textContent = model.filterProblem;
    say(model.isFiltered ? `${rows.length} of ${model.count}` : String(model.count));
  }

  let shownColumns = state.get("jobs.cols", "");
  function update(/** @type {{data: boolean}} */ { data }) {
    if (document.activeElement !== filter) filter.value = state.get("filter", "");
    if (shownColumns !== state.get("jobs.cols", "")) {
      shownColumns = state.get("jobs.cols", "");
      again.now();
    } else if (data) again.ask();
    draw();
  }
  return { element, update };
}

/**
 * Rows are made anew while the page is live and may stand elsewhere then: the focus stays with the job it was on, and
 * with the button or link in it.
 * @param {HTMLElement} holder @returns {() => void}
 */
function focusKeeper(holder) {
  const held = document.activeElement;
  const row = held && holder.contains(held) ? /** @type {HTMLElement | null} */ (held.closest("tr.data")) : null;
  if (!held || !row) return () => {};
  const part = held.matches("button") ? "button" : held.matches("a") ? "a" : "";
  return () => {
    const again = /** @type {HTMLElement | null} */ (holder.querySelector(`tr[data-key="${CSS.escape(row.dataset.key ?? "")}"] ${part}`.trim()));
    if (again && again !== document.activeElement) again.focus({ preventScroll: true });
  };
}

/** A small curve without axes. @param {(number | null)[] | undefined} values */
export function spark(values) {
  const known = (values ?? []).filter((one) => typeof one === "number");
  if (known.length < 2) return "";
  const [low, high] = [Math.min(.../** @type {number[]} */ (known)), Math.max(.../** @type {number[]} */ (known))];
  const points = known.map((value, index) => {
    const x = (index / (known.length - 1)) * 80 + 1;
    const y = 17 - ((/** @type {number} */ (value) - low) / (high - low || 1)) * 15;
    return `${x.toFixed(1)},${y.toFixed(1)}`;
  });
  return svg("svg", { class: "spark", viewBox: "0 0 82 19", width: "82", height: "19", "aria-hidden": "true" }, svg("polyline", { points: points.join(" ") }));
}
