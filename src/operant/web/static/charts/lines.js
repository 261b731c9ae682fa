// Line charts: uPlot keeps axes, cursor and selection, `paint.js` draws the lines.
//
// Runs have their own x values each. Joining fifty of them into the one x column that uPlot's own series
// share would cost fifty times the points, so the lines are drawn from their own arrays.
import uPlot from "../vendor/uPlot.esm.js";
import { onTheme, token } from "../lib/colors.js";
import { h, on, perFrame, replace } from "../lib/dom.js";
import { clock, duration, number } from "../lib/format.js";
import { logTicks, nearestIndex, paintFocus, paintLines, smooth, xExtent, yExtent } from "./paint.js";

/** @typedef {import("./paint.js").Line} Line */
/**
 * @typedef {object} LinesOptions
 * @property {Line[]} [series]
 * @property {string} [label] for readers of the screen
 * @property {string} [xLabel]
 * @property {string} [yLabel]
 * @property {"step" | "wall" | "relative"} [xKind]
 * @property {boolean} [log]
 * @property {number} [smoothing] 0…0.99
 * @property {string} [sync] charts with the same key share the cursor
 * @property {[number, number] | null} [zoom]
 * @property {(range: [number, number] | null) => void} [onZoom] a dragged range, or null for all
 * @property {(key: string | null) => void} [onFocus] the line nearest the cursor
 * @property {number} [height]
 * @property {AbortSignal} [signal]
 */

const TIP_LINES = 9;

/** @param {"step" | "wall" | "relative"} kind @param {number} x */
function formatX(kind, x) {
  if (kind === "wall") return clock(x);
  if (kind === "relative") return duration(x);
  return `step ${number(Math.round(x))}`;
}

/** @param {"step" | "wall" | "relative"} kind @param {number} x @param {number} apart from tick to tick */
function tickX(kind, x, apart) {
  if (kind === "step") return number(x);
  if (kind === "relative") return duration(x);
  const text = clock(x);
  const midnight = text.endsWith("00:00:00");
  if (apart >= 86400 || midnight) return text.slice(5, 10);
  return apart >= 60 ? text.slice(11, 16) : text.slice(11);
}

/** @param {Element} parent @param {LinesOptions} options */
export function Lines(parent, options) {
  const settings = { series: /** @type {Line[]} */ ([]), xKind: /** @type {"step" | "wall" | "relative"} */ ("step"), log: false, smoothing: 0, zoom: /** @type {[number, number] | null} */ (null), height: 200, ...options };
  const tip = h("div", { class: "chart-tip", hidden: true });
  const overlay = h("canvas", { class: "chart-overlay", "aria-hidden": "true" });
  const holder = h("div", { class: "chart", tabindex: "0", role: "img", style: { height: `${settings.height}px` } }, overlay, tip);
  parent.append(holder);
  const life = new AbortController();
  /** @type {any} */
  let plot = null;
  /** @type {[number, number]} */
  let xRange = [0, 1];
  /** @type {[number, number]} */
  let yRange = [0, 1];
  /** @type {string | null} */
  let focus = null;
  /** @type {Map<string, ArrayLike<number>>} */
  let smoothed = new Map();
  let hovering = false;
  let width = Math.max(holder.clientWidth, 40);

  function measure() {
    const extent = xExtent(settings.series) ?? [0, 1];
    xRange = settings.zoom ?? (extent[0] === extent[1] ? [extent[0] - 0.5, extent[1] + 0.5] : extent);
    yRange = yExtent(settings.series, xRange[0], xRange[1], settings.log);
    smoothed = new Map(settings.smoothing > 0 ? settings.series.map((one) => [one.key, smooth(one.mean, settings.smoothing)]) : []);
  }

  function build() {
    plot?.destroy();
    const color = { text: token("--muted"), grid: token("--grid"), line: token("--line") };
    const font = "11px system-ui, sans-serif";
    const axis = { stroke: color.text, font, grid: { stroke: color.grid, width: 1 }, ticks: { stroke: color.line, width: 1, size: 4 } };
    plot = new uPlot({
      width, height: settings.height, padding: [8, 26, 0, 0], // half of the widest last tick: `100000`, `12:30:00`
      legend: { show: false },
      scales: {
        x: { time: settings.xKind === "wall", range: () => xRange },
        y: { distr: settings.log ? 3 : 1, range: () => yRange },
      },
      axes: [
        { ...axis, size: 26, gap: 3, space: 70, values: (/** @type {any} */ _, /** @type {number[]} */ ticks, /** @type {number} */ __, /** @type {number} */ ___, /** @type {number} */ apart) => ticks.map((one) => tickX(settings.xKind, one, apart)) },
        {
          ...axis, size: 62, gap: 4, space: 32, // `−1.25e−10` and the tick
          splits: settings.log ? (/** @type {any} */ _, /** @type {number} */ __, /** @type {number} */ low, /** @type {number} */ high) => logTicks(low, high) : undefined,
          values: (/** @type {any} */ _, /** @type {Array<number | null>} */ ticks) => ticks.map((one) => (one === null ? "" : number(one))),
          filter: settings.log ? (/** @type {any} */ _, /** @type {number[]} */ ticks) => ticks : undefined,
        },
      ],
      series: [{}, { show: true, paths: () => null, points: { show: false } }],
      cursor: {
        y: false, points: { show: false }, drag: { x: true, y: false, setScale: false },
        bind: { dblclick: () => () => { settings.onZoom?.(null); return null; } },
        sync: settings.sync ? { key: settings.sync, scales: ["x", null], setSeries: false, filters: { pub: (/** @type {string} */ type) => type === "mousemove" || type === "mouseleave" } } : undefined,
      },
      hooks: {
        draw: [draw],
        setSelect: [select],
        setCursor: [point],
      },
    }, [xRange, [yRange[0], yRange[0]]], holder);
    on(plot.over, "mouseenter", () => { hovering = true; });
    on(plot.over, "mouseleave", () => {
      setFocus(null);
      hovering = false;
      tip.hidden = true;
    });
  }

  /** @param {any} u @returns {import("./paint.js").View} */
  function viewOf(u) {
    const { left, top, width, height } = u.bbox;
    return { left, top, width, height, x: xRange, y: yRange, log: settings.log, scale: devicePixelRatio, smoothed };
  }

  /** @param {any} u */
  function draw(u) {
    paintLines(u.ctx, settings.series, viewOf(u));
    drawFocus(u);
  }

  /** The line that is pointed at has a canvas of its own: moving the mouse repaints one line, not fifty. @param {any} u */
  function drawFocus(u) {
    const line = focus === null ? undefined : settings.series.find((one) => one.key === focus && !one.hidden);
    overlay.hidden = line === undefined;
    if (!line) return;
    const { width, height } = u.ctx.canvas;
    if (overlay.width !== width || overlay.height !== height) Object.assign(overlay, { width, height });
    const context = overlay.getContext("2d");
    context.clearRect(0, 0, width, height);
    paintFocus(context, line, viewOf(u), token("--card"));
  }

  /** @param {any} u */
  function select(u) {
    const { left, width } = u.select;
    if (width < 4) return;
    const from = u.posToVal(left, "x");
    const to = u.posToVal(left + width, "x");
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    settings.onZoom?.([from, to]);
  }

  /** @param {string | null} key */
  function setFocus(key) {
    if (key === focus) return;
    focus = key;
    if (plot) drawFocus(plot);
    settings.onFocus?.(key);
  }

  /** What the lines say under the cursor, nearest first. @param {any} u */
  function point(u) {
    const { left, top } = u.cursor;
    if (left === undefined || left < 0) {
      tip.hidden = true;
      return;
    }
    const x = u.posToVal(left, "x");
    const found = [];
    for (const line of settings.series) {
      // When another chart has the mouse, only the line it points at is told here.
      if (line.hidden || (!hovering && line.key !== focus && settings.series.length > 1)) continue;
      const at = nearestIndex(line.x, x);
      if (at < 0) continue;
      const raw = line.mean[at];
      const value = smoothed.get(line.key)?.[at] ?? raw;
      const distance = hovering && Number.isFinite(value) ? Math.abs(u.valToPos(value, "y") - top) : Infinity;
      found.push({ line, raw, value, distance, at: line.x[at] });
    }
    if (!found.length && hovering) {
      tip.hidden = true;
      return;
    }
    found.sort((a, b) => a.distance - b.distance);
    if (hovering) setFocus(found.length > 1 && found[0].distance < 24 ? found[0].line.key : null);
    const shown = found.slice(0, TIP_LINES);
    shown.sort((a, b) => b.value - a.value);
    replace(tip, h("div", { class: "tip-x" }, formatX(settings.xKind, hovering ? found[0].at : x)),
      shown.map((one) => h("div", { class: ["tip-line", one.line.key === focus && "is-focus"] },
        h("i", { style: { background: one.line.color } }), h("span", { class: "tip-label" }, one.line.label),
        h("b", null, number(one.value)), one.value !== one.raw && Number.isFinite(one.raw) ? h("span", { class: "faint" }, `raw ${number(one.raw)}`) : null)),
      found.length > shown.length ? h("div", { class: "faint" }, `and ${found.length - shown.length} more`) : null);
    tip.hidden = false;
    tip.classList.toggle("is-guest", !hovering);
    // On the side with more room. Asking how wide it is would lay the page out anew, for every chart that follows.
    const place = left + u.bbox.left / devicePixelRatio;
    const onLeft = place > width / 2;
    tip.style.left = onLeft ? "auto" : `${place + 14}px`;
    tip.style.right = onLeft ? `${width - place + 14}px` : "auto";
  }

  /** @param {KeyboardEvent} event */
  function keys(event) {
    const extent = xExtent(settings.series);
    if (!extent || !settings.onZoom) return;
    const [from, to] = xRange;
    const width = to - from;
    /** @type {Record<string, [number, number] | null>} */
    const moves = {
      "+": [from + width / 4, to - width / 4], "=": [from + width / 4, to - width / 4],
      "-": [from - width / 2, to + width / 2], "0": null, Escape: null,
      ArrowLeft: [from - width / 8, to - width / 8], ArrowRight: [from + width / 8, to + width / 8],
    };
    if (!(event.key in moves)) return;
    if (!settings.zoom && (event.key.startsWith("Arrow") || event.key === "-" || event.key === "0" || event.key === "Escape")) return;
    event.preventDefault();
    settings.onZoom(moves[event.key]);
  }

  function describe() {
    const lines = settings.series.filter((one) => !one.hidden && one.mean.length);
    const some = lines.slice(0, 4).map((one) => `${one.label} ends at ${number(one.mean[one.mean.length - 1])}`);
    holder.setAttribute("aria-label", `${settings.label ?? settings.yLabel ?? "Chart"}: ${lines.length} ${lines.length === 1 ? "line" : "lines"}${some.length ? `; ${some.join(", ")}` : ""}${lines.length > some.length && some.length ? ", …" : ""}`);
    holder.dataset.lines = String(lines.length);
    holder.dataset.points = String(lines.reduce((sum, one) => sum + one.x.length, 0));
    holder.dataset.from = String(xRange[0]);
    holder.dataset.to = String(xRange[1]);
  }

  function refresh() {
    measure();
    plot.setData([xRange, [yRange[0], yRange[0]]]);
    describe();
  }
  const refreshSoon = perFrame(() => plot && refresh());

  measure();
  build();
  describe();
  on(holder, "keydown", keys);
  onTheme(() => build(), life.signal);
  const watcher = new ResizeObserver(perFrame(() => {
    const now = Math.max(holder.clientWidth, 40);
    if (!plot || now === width) return;
    width = now;
    plot.setSize({ width, height: settings.height });
  }));
  watcher.observe(holder);

  const api = {
    element: holder,
    /** New lines, or the same lines with more points. @param {Line[]} series @param {Partial<LinesOptions>} [changes] */
    setSeries(series, changes) {
      const rebuild = changes && (("log" in changes && changes.log !== settings.log) || ("xKind" in changes && changes.xKind !== settings.xKind));
      Object.assign(settings, changes, { series });
      if (rebuild) {
        measure();
        build();
        describe();
      } else refreshSoon();
    },
    /** @param {Partial<LinesOptions>} changes */
    setOptions(changes) {
      api.setSeries(settings.series, changes);
    },
    /** Settings for the lines that are on their way; nothing is drawn before they are there. @param {Partial<LinesOptions>} changes */
    expect(changes) {
      Object.assign(settings, changes);
    },
    /** Live points of one line. @param {string} key @param {number[]} xs @param {number[]} values */
    append(key, xs, values) {
      const line = settings.series.find((one) => one.key === key);
      if (!line) return;
      const last = line.x.length ? line.x[line.x.length - 1] : -Infinity;
      const from = xs.findIndex((one) => one > last);
      if (from < 0) return;
      const join = (/** @type {ArrayLike<number>} */ old, /** @type {number[]} */ fresh) => Float64Array.from([...Array.from(old), ...fresh.slice(from).map((one) => one ?? NaN)]);
      line.x = join(line.x, xs);
      line.mean = join(line.mean, values);
      if (line.least) line.least = join(line.least, values);
      if (line.greatest) line.greatest = join(line.greatest, values);
      refreshSoon();
    },
    /** @param {string | null} key */
    highlight(key) {
      if (key === focus || !plot || hovering) return;
      focus = key;
      drawFocus(plot);
      point(plot);
    },
    destroy() {
      life.abort();
      watcher.disconnect();
      plot?.destroy();
      plot = null;
      holder.remove();
    },
  };
  settings.signal?.addEventListener("abort", () => api.destroy(), { signal: life.signal });
  return api;
}
