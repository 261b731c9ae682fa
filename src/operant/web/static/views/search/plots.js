// The plots that the jobs themselves give: best-so-far, parallel coordinates, slices, timeline.
import { h, replace } from "../../lib/dom.js";
import { scale } from "../../lib/colors.js";
import { state } from "../../lib/state.js";
import { brushesToText } from "../../charts/brushes.js";
import { Parallel } from "../../charts/parallel.js";
import { rangeOf } from "../../charts/scales.js";
import { Scatter } from "../../charts/scatter.js";
import { Timeline } from "../../charts/timeline.js";
import { card, choice, toggle } from "./card.js";
import { REWARD } from "./model.js";

/** @typedef {import("../search.js").Page} Page */

const MARKS = /** @type {Record<string, string>} */ ({ FINISHED: "dot", STOPPED: "cross", ERROR: "cross", KILLED: "cross" });
const MOST_SLICES = 24;
const MANY_JOBS = 2000;
const MANY_EVERY_MS = 5000;

/** @param {Page} page */
export function historyCard(page) {
  const { model, signal } = page;
  const { element, body, say } = card({
    key: "history", title: "Rewards", signal,
    controls: [
      toggle("focus", "focus", signal), toggle("log", "ylog", signal),
      choice("Horizontal axis", "x", [["number", "number"], ["start", "start"], ["end", "end"]], signal),
    ],
  });
  const chart = new Scatter(body, { height: 300, label: "Reward of every job, with the best so far", onOpen: page.open, signal });
  replace(body, chart.surface.box, h("p", { class: "legend" },
    h("span", { class: "key key-line" }, "best so far"), h("span", { class: "key key-dot" }, "finished"),
    h("span", { class: "key key-cross" }, "stopped early, failed or killed"), h("span", { class: "key key-ring" }, "running"),
    h("span", { class: "faint" }, "jobs without a reward, or below the range, stand on the lower edge")));

  function update() {
    const { jobs, summary } = model;
    const by = state.get("x", "number");
    const begin = summary.started ?? 0;
    const times = by === "start" ? jobs.started : jobs.ended;
    const x = by === "number" ? jobs.number : times.map((wall, row) => (wall === null ? (by === "end" && jobs.started[row] !== null ? model.now - begin : null) : wall - begin));
    const rewards = model.rewards();
    const stairs = model.stairs(x);
    chart.set({
      x, y: rewards, ids: jobs.id, colors: model.statusColors(), stairs, rug: true,
      marks: jobs.status.map((status) => MARKS[status] ?? "ring"),
      dim: model.isFiltered ? model.selected : null,
      xDomain: by === "number" ? rangeOf(x, { pad: 0.02, whole: true }) : rangeOf(x, { time: true, pad: 0.01 }),
      yDomain: model.rewardRange(),
      lines: (row) => model.lines(row),
    }, { xLabel: { number: "proposal", start: "started, since the search began", end: "ended, since the search began" }[by] ?? "", yLabel: summary.reward_attribute ?? "reward" });
    chart.surface.box.dataset.best = stairs.y.length ? String(stairs.y[stairs.y.length - 1]) : "";
    say(model.isFiltered ? `${model.chosen} of ${model.count} jobs chosen` : `${model.count} jobs`);
  }
  return { element, update };
}

/** @param {Page} page */
export function parallelCard(page) {
  const { model, signal } = page;
  const clear = h("button", { type: "button", class: "button small", onclick: () => state.set({ brush: null }, { push: true }) }, "Clear brushes");
  const reset = h("button", { type: "button", class: "button small quiet", onclick: () => state.set({ axes: null, logs: null, brush: null }, { push: true }) }, "Reset axes");
  const { element, body, say } = card({ key: "parallel", title: "Parallel coordinates", signal, controls: [clear, reset] });
  const chart = new Parallel(body, { label: "Parallel coordinates of all jobs", signal, onView: keep });
  replace(body, chart.box, h("p", { class: "legend" },
    h("span", { class: "faint" }, "Pull along an axis to choose a range, click it to let go; pull its name to move it, double-click to flip. By keyboard: arrows, F, L, B, Delete on the name."),
    h("span", { class: "spacer" }), h("span", { class: "key-scale" }, "worst", h("i", { class: "scale-bar", "aria-hidden": "true" }), "best")));

  function readView() {
    /** @type {Map<string, boolean>} */
    const logs = new Map(state.list("logs").map((name) => [name.replace(/^!/, ""), !name.startsWith("!")]));
    const axes = state.list("axes");
    return {
      order: axes.map((name) => name.replace(/^!/, "")),
      flipped: new Set(axes.filter((name) => name.startsWith("!")).map((name) => name.slice(1))),
      logs,
      brushes: model.brushes,
    };
  }

  function keep(/** @type {import("../../charts/parallel.js").View} */ view, /** @type {boolean} */ final) {
    // The address changes once for each brush that is done: browsers refuse many changes a second.
    model.pending = final ? null : view.brushes;
    if (!final) return page.selected();
    const isMoved = view.flipped.size > 0 || view.order.length > 0;
    const axes = isMoved ? chart.ordered().map(({ name }) => (view.flipped.has(name) ? "!" : "") + name) : null;
    const logs = [...view.logs].map(([name, log]) => (log ? "" : "!") + name);
    state.set({ brush: brushesToText(view.brushes), axes, logs }, { push: true });
  }

  /** @returns {import("../../charts/parallel.js").Axis[]} */
  function axes() {
    const found = model.axes.map((axis) => {
      const values = model.settings[axis.name];
      const isNamed = axis.kind === "categorical" || axis.low === null || axis.low === undefined;
      const data = rangeOf(values, { pad: 0 });
      const [low, high] = data.kind === "names" ? [0, 1] : [Math.min(axis.low ?? data.low, data.low), Math.max(axis.high ?? data.high, data.high)];
      return {
        name: axis.name, label: axis.name, values, log: axis.log, canLog: !isNamed && low > 0,
        kind: isNamed ? /** @type {const} */ ("names") : /** @type {const} */ ("number"),
        low, high: high > low ? high : low + 1, names: isNamed ? model.names(axis) : [],
      };
    });
    const values = model.rewards();
    const range = rangeOf(values, { pad: 0.01 });
    const [low, high] = range.kind === "names" ? [0, 1] : [range.low, range.high];
    return [...found, { name: REWARD, label: model.summary.reward_attribute ?? "reward", values, log: false, canLog: low > 0, kind: "number", low, high, names: [] }];
  }

  const layout = () => `${state.get("axes", "")} ${state.get("logs", "")}`;
  let shown = layout();
  let drawn = -Infinity;
  let later = 0;

  function update(/** @type {{data: boolean}} */ { data }) {
    if (!chart.dragged.size) chart.view = readView();
    if (data && model.count > MANY_JOBS && performance.now() - drawn < MANY_EVERY_MS) {
      // Thousands of lines are not all drawn again for each job that ends.
      window.clearTimeout(later);
      later = window.setTimeout(() => { if (!signal.aborted) update({ data: true }); }, MANY_EVERY_MS);
    } else if (data) {
      drawn = performance.now();
      const goodness = model.goodness();
      chart.set({ axes: axes(), count: model.count, colors: model.goodnessColors(goodness), ranks: goodness, selected: model.selected });
    } else {
      if (layout() !== shown) chart.redraw();
      chart.select(model.selected);
    }
    shown = layout();
    clear.disabled = chart.view.brushes.size === 0;
    say(model.isFiltered ? `${model.chosen} of ${model.count} jobs chosen` : "");
  }
  return { element, update };
}

/** @param {Page} page */
export function slicesCard(page) {
  const { model, signal } = page;
  const { element, body, say } = card({ key: "slices", title: "Slices", signal });
  const grid = h("div", { class: "slices" });
  replace(body, grid);
  /** @type {Map<string, Scatter>} */
  const charts = new Map();

  function update() {
    const { jobs } = model;
    const rewards = model.rewards();
    const yDomain = model.rewardRange();
    const steps = Array.from({ length: 16 }, (_, step) => scale(0.07 + (step / 15) * 0.85));
    const colors = jobs.id.map((_, row) => steps[Math.floor((row / Math.max(1, model.count)) * 16)]);
    for (const axis of model.axes.slice(0, MOST_SLICES)) {
      const values = model.settings[axis.name];
      let chart = charts.get(axis.name);
      if (!chart) {
        chart = new Scatter(grid, { height: 210, size: 2.4, label: `Reward over ${axis.name}`, xLabel: axis.name, onOpen: page.open, signal });
        charts.set(axis.name, chart);
      }
      const isNamed = axis.kind === "categorical" || axis.low === null || axis.low === undefined;
      chart.set({
        x: values, y: rewards, ids: jobs.id, colors, yDomain, dim: model.isFiltered ? model.selected : null,
        xDomain: isNamed ? { kind: "names", names: model.names(axis) } : rangeOf([...values, axis.low, axis.high], { log: axis.log && axis.low > 0, pad: 0.03, whole: axis.kind === "int" }),
        lines: (row) => model.lines(row),
      });
    }
    say(model.axes.length > MOST_SLICES ? `the first ${MOST_SLICES} of ${model.axes.length} settings; brighter is later` : "brighter is later");
  }
  return { element, update };
}

/** @param {Page} page */
export function timelineCard(page) {
  const { model, signal } = page;
  const { element, body, say } = card({ key: "timeline", title: "Timeline", signal });
  const chart = new Timeline(body, { height: 320, label: "Jobs over time and places", onOpen: page.open, signal });

  function update() {
    const { jobs, summary } = model;
    const ends = jobs.ended.filter((wall) => wall !== null);
    const last = ends.reduce((one, other) => Math.max(one, other), summary.started ?? 0);
    chart.set({
      lane: model.lanes(), started: jobs.started, ended: jobs.ended, ids: jobs.id, colors: model.statusColors(),
      dim: model.isFiltered ? model.selected : null, begin: summary.started ?? 0,
      now: model.isLive ? model.now : (summary.ended ?? last), live: model.isLive, lines: (row) => model.lines(row),
    });
    say("one row for each job at a time");
  }
  return { element, update };
}
