// Many charts on one page: folded by prefix, drawn when they come into view, fetched in few requests.
import { charts } from "../lib/api.js";
import { dashes, onTheme, palette } from "../lib/colors.js";
import { h, replace } from "../lib/dom.js";
import { number, tagOrder } from "../lib/format.js";
import { Lines } from "./lines.js";
import { notAboveZero } from "./paint.js";

/** @typedef {{id: string, label: string, index: number, hidden: boolean}} BoardRun `index` chooses the colour: the run's own, or its group's */
/** @typedef {import("./toolbar.js").ChartState} ChartState */
/** @typedef {{tag: string, card: HTMLElement, holder: HTMLElement, foot: HTMLElement, lines: any, visible: boolean, fetched: string | null, asked: string | null, data: import("../lib/api.js").Series[], grown: number, seen: boolean, waiting: Points[]}} Slot */
/** @typedef {{run: string, tag: string, x: number[], value: number[]}} Points */
/** @typedef {ReturnType<typeof Board>} BoardApi */

const HEIGHT = 210;
// The first answer is small, so that something is there soon.
const TAGS_AT_FIRST = 2;
const TAGS_PER_REQUEST = 8;
const FETCHES = 2;
const COARSE_AT_MOST = 16;
const KEPT = 40;
const MARGIN = "300px";

/** `train/loss` belongs to `train`. @param {string} tag */
export function prefixOf(tag) {
  const at = tag.indexOf("/");
  return at > 0 ? tag.slice(0, at) : "";
}

/** Once the browser has painted, or soon if it does not (a page in the background). @returns {Promise<void>} */
function nextFrame() {
  return new Promise((resolve) => {
    const late = setTimeout(resolve, 100);
    requestAnimationFrame(() => {
      clearTimeout(late);
      setTimeout(resolve);
    });
  });
}

/** @param {number} runs fewer points each when there are many: a chart is some 400 pixels wide */
function bucketsFor(runs) {
  return runs > 30 ? 200 : runs > 8 ? 300 : 500;
}

/**
 * @param {HTMLElement} parent
 * @param {{signal: AbortSignal, sync: string, onZoom: (range: [number, number] | null) => void, onFold: (folded: Set<string>) => void, onFocus?: (run: string | null) => void, onProblem?: (error: any) => void, onSeen?: () => void}} options
 */
export function Board(parent, options) {
  /** @type {Map<string, Slot>} */
  const slots = new Map();
  /** @type {BoardRun[]} */
  let runs = [];
  /** @type {ChartState} */
  let view = { x: "step", smoothing: 0, log: false, group: null, find: "", zoom: null, folded: new Set() };
  let layout = "";
  let busy = 0;
  let asking = 0;
  let shownKey = "";
  let scheduled = 0;
  const note = h("p", { class: "faint small board-note", "aria-live": "polite" });
  const legend = h("ul", { class: "board-legend", "aria-label": "Groups", hidden: true });
  const sections = h("div", { class: "stack" });
  parent.append(note, legend, sections);

  const observer = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      const slot = slots.get(/** @type {HTMLElement} */ (entry.target).dataset.tag ?? "");
      if (!slot) continue;
      slot.visible = entry.isIntersecting;
      if (slot.visible && !slot.seen) {
        slot.seen = true;
        options.onSeen?.();
      }
      if (!slot.visible && slot.lines && slots.size > KEPT) {
        // The card keeps its height; a canvas far out of view only costs memory.
        slot.lines.destroy();
        slot.lines = null;
        slot.data = [];
        slot.fetched = null;
      }
    }
    schedule();
  }, { rootMargin: MARGIN });
  options.signal.addEventListener("abort", () => observer.disconnect());
  onTheme(() => redraw(), options.signal);

  const drawn = () => runs.filter((one) => !one.hidden);

  /** What a chart's data depend on; a chart whose data were fetched for another key is fetched anew. */
  function keyOf() {
    return JSON.stringify([view.group ? runs.map((one) => one.id) : drawn().map((one) => one.id), view.x, view.group, view.zoom]);
  }

  /** @param {string[]} tags */
  function lay(tags) {
    const wanted = tags.filter((tag) => !view.find || tag.toLowerCase().includes(view.find.toLowerCase()));
    const now = JSON.stringify(wanted);
    note.textContent = tags.length && !wanted.length ? `No chart has “${view.find}” in its name.` : "";
    if (now === layout) {
      for (const section of sections.children) {
        const details = /** @type {HTMLDetailsElement} */ (section);
        details.open = !view.folded.has(details.dataset.prefix ?? "");
      }
      return;
    }
    layout = now;
    for (const [tag, slot] of slots) {
      observer.unobserve(slot.card);
      if (!wanted.includes(tag)) {
        slot.lines?.destroy();
        slots.delete(tag);
      }
    }
    /** @type {Map<string, string[]>} */
    const groups = new Map();
    // What has no prefix comes first.
    for (const tag of tagOrder(wanted).sort((a, b) => Number(prefixOf(a) !== "") - Number(prefixOf(b) !== ""))) groups.set(prefixOf(tag), [...(groups.get(prefixOf(tag)) ?? []), tag]);
    replace(sections, [...groups].map(([prefix, members]) => {
      const details = h("details", { class: "section", open: !view.folded.has(prefix), dataset: { prefix } },
        h("summary", null, h("span", { class: "section-name" }, prefix || "general"), h("span", { class: "faint small" }, String(members.length))),
        h("div", { class: "grid charts-grid" }, members.map((tag) => cardOf(tag))));
      details.addEventListener("toggle", () => {
        if (details.open === !view.folded.has(prefix)) return;
        const folded = new Set(view.folded);
        if (details.open) folded.delete(prefix);
        else folded.add(prefix);
        options.onFold(folded);
      });
      return details;
    }));
    for (const slot of slots.values()) observer.observe(slot.card);
  }

  /** @param {string} tag */
  function cardOf(tag) {
    const known = slots.get(tag);
    if (known) return known.card;
    const holder = h("div", { class: "chart-holder", style: { height: `${HEIGHT}px` } });
    const foot = h("span", { class: "chart-last faint small" });
    const card = h("section", { class: "card chart-card", dataset: { tag }, "aria-label": `Chart of ${tag}` },
      h("div", { class: "chart-head" }, h("h3", { title: tag }, tag), foot), holder);
    slots.set(tag, { tag, card, holder, foot, lines: null, visible: false, fetched: null, asked: null, data: [], grown: 0, seen: false, waiting: [] });
    return card;
  }

  function schedule() {
    if (!scheduled) scheduled = requestAnimationFrame(() => {
      scheduled = 0;
      fetchMissing();
    });
  }

  async function fetchMissing() {
    const key = keyOf();
    const ids = view.group ? runs.map((one) => one.id) : drawn().map((one) => one.id);
    const missing = [...slots.values()].filter((slot) => slot.visible && slot.fetched !== key && slot.asked !== key);
    if (!ids.length) {
      for (const slot of missing) show(slot, [], key);
      return;
    }
    if (!missing.length || busy >= FETCHES || options.signal.aborted) return;
    const batch = missing.slice(0, asking++ ? TAGS_PER_REQUEST : TAGS_AT_FIRST);
    for (const slot of batch) slot.asked = key;
    busy += 1;
    schedule();
    try {
      const found = await charts({
        runs: ids, tags: batch.map((slot) => slot.tag), buckets: bucketsFor(ids.length),
        start: view.zoom?.[0] ?? null, end: view.zoom?.[1] ?? null, x: view.x, group: view.group,
      }, options.signal);
      if (options.signal.aborted) return;
      for (const slot of batch) {
        if (slot.asked === key) show(slot, found.filter((one) => one.tag === slot.tag), key);
        // One chart for each frame: the first is seen, and the user heard, before the last is drawn.
        await nextFrame();
      }
    } catch (error) {
      if (options.signal.aborted) return;
      for (const slot of batch) if (slot.asked === key) slot.fetched = key;
      options.onProblem?.(error);
    } finally {
      for (const slot of batch) if (slot.asked === key) slot.asked = null;
      busy -= 1;
    }
    schedule();
  }

  /** @param {Slot} slot @param {import("../lib/api.js").Series[]} data @param {string} key */
  function show(slot, data, key) {
    slot.data = data;
    slot.fetched = key;
    slot.grown = 0;
    paint(slot);
    // Points that came while this was on its way may be newer than what it holds.
    for (const points of slot.waiting.splice(0)) append(slot, points);
  }

  /** @param {Slot} slot @returns {import("./paint.js").Line[]} */
  function linesOf(slot) {
    const places = new Map(runs.map((one) => [one.id, one]));
    return slot.data.flatMap((one) => {
      if (one.group !== undefined) {
        const label = `${one.group} (${one.runs?.length ?? 0})`;
        const index = places.get(one.runs?.[0] ?? "")?.index ?? 0;
        return [{ key: `group ${one.group}`, label, color: palette(index), dash: dashes(index), x: one.x, mean: one.mean, least: one.low, greatest: one.high }];
      }
      const run = places.get(one.run ?? "");
      return run ? [{ key: run.id, label: run.label, color: palette(run.index), dash: dashes(run.index), x: one.x, mean: one.mean, least: one.least, greatest: one.greatest, hidden: run.hidden }] : [];
    });
  }

  /** @param {Slot} slot */
  function paint(slot) {
    if (!slot.visible && !slot.lines) return;
    const series = linesOf(slot);
    const settings = { xKind: view.x, log: view.log, smoothing: view.smoothing, zoom: view.zoom, label: slot.tag };
    if (slot.lines) slot.lines.setSeries(series, settings);
    else {
      slot.lines = Lines(slot.holder, {
        series, ...settings, sync: options.sync, height: HEIGHT, onZoom: options.onZoom, signal: options.signal,
        onFocus: (key) => {
          highlight(key, slot);
          options.onFocus?.(key);
        },
      });
    }
    const alone = series.length === 1 && series[0].mean.length ? series[0].mean[series[0].mean.length - 1] : null;
    slot.foot.textContent = withoutPlace(series) ?? (alone === null ? (series.length ? "" : "no points here") : number(alone));
    drawLegend();
    slot.card.dataset.ready = "true";
  }

  /** What a log axis leaves out, in words. @param {import("./paint.js").Line[]} series */
  function withoutPlace(series) {
    const { left, all } = view.log ? notAboveZero(series) : { left: 0, all: 0 };
    if (!left) return null;
    return left === all ? "no value is above 0: a log scale shows none" : `${left} of ${all} values are not above 0: a log scale leaves them out`;
  }

  /** Which colour is which group, and how many runs it has. */
  function drawLegend() {
    /** @type {Map<string, {color: string, runs: number}>} */
    const groups = new Map();
    const places = new Map(runs.map((one) => [one.id, one.index]));
    for (const slot of view.group ? slots.values() : []) {
      for (const one of slot.data) {
        if (one.group === undefined) continue;
        const runs = Math.max(one.runs?.length ?? 0, groups.get(one.group)?.runs ?? 0);
        groups.set(one.group, { color: palette(places.get(one.runs?.[0] ?? "") ?? 0), runs });
      }
    }
    legend.hidden = !groups.size;
    replace(legend, [...groups].map(([name, one]) => h("li", null, h("i", { class: "swatch", style: { background: one.color } }),
      name, h("span", { class: "faint" }, ` n = ${one.runs}`))));
  }

  /** @param {string | null} key @param {Slot} [except] */
  function highlight(key, except) {
    for (const slot of slots.values()) if (slot.visible && slot !== except) slot.lines?.highlight(key);
  }

  /** @param {Slot} slot @param {Points} points */
  function append(slot, points) {
    slot.grown += points.x.length;
    const known = slot.data.some((one) => one.run === points.run);
    // Groups are made by the server; and a line that has doubled is due for buckets of its own.
    if (view.group || !known || slot.grown > bucketsFor(drawn().length)) {
      slot.fetched = null;
      schedule();
      return;
    }
    slot.lines?.append(points.run, points.x, points.value);
    if (slot.data.length === 1) slot.foot.textContent = number(points.value[points.value.length - 1]);
  }

  function redraw() {
    for (const slot of slots.values()) if (slot.lines) paint(slot);
  }

  return {
    /** @param {{runs: BoardRun[], tags: string[], view: ChartState}} next */
    set(next) {
      const before = view.x;
      runs = next.runs;
      view = next.view;
      if (!view.group) drawLegend();
      lay(next.tags);
      const key = keyOf();
      if (key !== shownKey) asking = 0;
      shownKey = key;
      for (const slot of slots.values()) {
        if (slot.fetched === key) paint(slot);
        // What is there is shown in the new range at once and finer buckets follow; many lines are drawn only once.
        else if (slot.lines && view.x === before) slot.lines[slot.data.length > COARSE_AT_MOST ? "expect" : "setOptions"]({ zoom: view.zoom });
      }
      schedule();
    },
    /** Smoothing follows the slider without a round trip. @param {number} weight */
    smooth(weight) {
      view = { ...view, smoothing: weight };
      for (const slot of slots.values()) slot.lines?.setOptions({ smoothing: weight });
    },
    /** Live points of one run. @param {Points} points */
    append(points) {
      const slot = slots.get(points.tag);
      if (!slot || view.zoom || !points.x.length) return;
      if (slot.asked) slot.waiting.push(points);
      else if (slot.fetched === keyOf()) append(slot, points);
    },
    /** What was shown may have missed points: fetch it again. @param {string[] | null} tags null: all */
    renew(tags) {
      for (const slot of slots.values()) if (!tags || tags.includes(slot.tag)) slot.fetched = null;
      schedule();
    },
    /** @param {string | null} run */
    highlight: (run) => highlight(run),
    /** Tags whose charts have come into view. */
    seen: () => [...slots.values()].filter((slot) => slot.seen).map((slot) => slot.tag).sort(),
  };
}
