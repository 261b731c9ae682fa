/** Parallel coordinates: one line for each job over all settings and the reward, coloured by the reward. */

import { onTheme } from "../lib/colors.js";
import { hairline, inks, prepare } from "./canvas.js";
import { clip, nameOf, scale } from "./scales.js";
import { AxisControl } from "./parallel_axis.js";

/**
 * @typedef {import("./brushes.js").Brush} Brush
 * @typedef {{name: string, label: string, kind: "number" | "names", log: boolean, canLog: boolean, low: number,
 *   high: number, names: string[], values: ArrayLike<any>}} Axis
 * @typedef {{axis: Axis, x: number, index: number, log: boolean, scale: any}} Placed
 * @typedef {{order: string[], flipped: Set<string>, logs: Map<string, boolean>, brushes: Map<string, Brush>}} View
 */

const TOP = 46;
const BOTTOM = 34;
const SPACING = 92;
const REST_MS = 90;
/** Lines of one pixel cost a tenth of wider ones, so only a few are drawn wider. */
const FEW_LINES = 150;
const SLOW_FRAME_MS = 26;
const LEAST_PIECE = 1500;
const MOST_PIECE = 60000;
const LINES_AT_ONCE = 24;

export class Parallel {
  /**
   * @param {Element} parent
   * @param {{height?: number, label: string, onView: (view: View, final: boolean) => void, signal: AbortSignal}} options
   */
  constructor(parent, { height = 340, label, onView, signal }) {
    this.height = height;
    this.onView = onView;
    /** @type {Axis[]} */
    this.axes = [];
    /** @type {View} */
    this.view = { order: [], flipped: new Set(), logs: new Map(), brushes: new Map() };
    /** @type {ArrayLike<number>} */
    this.selected = new Uint8Array(0);
    /** @type {string[]} */
    this.colors = [];
    /** @type {ArrayLike<number>} the greater, the better */
    this.ranks = [];
    /** @type {number[]} rows with a reward, the best first */
    this.order = [];
    /** How many pieces of line one frame can take on this machine; found out by drawing. */
    this.piece = 12000;
    this.count = 0;
    /** @type {Placed[] | null} null before the first layout */
    this.placed = null;
    /** @type {Map<string, AxisControl>} */
    this.controls = new Map();
    /** @type {Map<string, number>} where an axis is while it is dragged */
    this.dragged = new Map();
    this.frames = { all: 0, chosen: 0, layout: 0 };
    this.box = element("div", "plot parallel");
    this.box.setAttribute("role", "group");
    this.box.setAttribute("aria-label", label);
    this.box.style.height = `${height}px`;
    this.inner = element("div", "parallel-inner");
    this.under = /** @type {HTMLCanvasElement} */ (element("canvas", "parallel-all"));
    this.over = /** @type {HTMLCanvasElement} */ (element("canvas", "parallel-chosen"));
    this.scale = /** @type {HTMLCanvasElement} */ (element("canvas", "parallel-scale"));
    this.aside = document.createElement("canvas");
    this.later = 0;
    this.inner.append(this.under, this.over, this.scale);
    this.box.append(this.inner);
    parent.append(this.box);
    this.signal = signal;
    const observer = new ResizeObserver(() => this.redraw());
    observer.observe(this.box);
    onTheme(() => this.redraw(), signal);
    signal.addEventListener("abort", () => {
      observer.disconnect();
      clearTimeout(this.later);
      for (const frame of Object.values(this.frames)) cancelAnimationFrame(frame);
    });
  }

  /**
   * New rows, or changed ones. Those without a colour have no reward yet and stay faint.
   * @param {{axes: Axis[], count: number, colors: string[], ranks: ArrayLike<number>, selected: ArrayLike<number>}} data
   */
  set(data) {
    Object.assign(this, data);
    this.order = Array.from({ length: data.count }, (_, row) => row).filter((row) => data.colors[row]);
    this.order.sort((one, other) => data.ranks[other] - data.ranks[one]);
    this.redraw();
  }

  setView(/** @type {View} */ view) {
    this.view = view;
    this.redraw();
  }

  /** Another choice among the same rows: only the bright lines are drawn again. */
  select(/** @type {ArrayLike<number>} */ selected) {
    this.selected = selected;
    this.drawChosen();
    this.drawScale();
    for (const control of this.controls.values()) control.place();
  }

  redraw() {
    if (this.frames.layout) return;
    this.frames.layout = requestAnimationFrame(() => {
      this.frames.layout = 0;
      this.layout();
    });
  }

  /** @returns {Axis[]} in the order they are shown; an axis that the address does not name comes last */
  ordered() {
    const places = new Map(this.view.order.map((name, index) => [name, index]));
    const place = (/** @type {Axis} */ axis) => places.get(axis.name) ?? this.view.order.length;
    return [...this.axes].sort((one, other) => place(one) - place(other));
  }

  layout() {
    const shown = this.ordered();
    this.width = Math.max(this.box.clientWidth, shown.length * SPACING);
    if (this.box.clientWidth < 1 || !shown.length) return;
    this.inner.style.width = `${this.width}px`;
    const half = Math.min(this.width / shown.length / 2, 80);
    const step = shown.length > 1 ? (this.width - 2 * half) / (shown.length - 1) : 0;
    this.step = step;
    this.placed = shown.map((axis, index) => {
      const flipped = this.view.flipped.has(axis.name);
      const [low, high] = flipped ? [TOP, this.height - BOTTOM] : [this.height - BOTTOM, TOP];
      const log = axis.canLog && (this.view.logs.get(axis.name) ?? axis.log);
      const domain = axis.kind === "names"
        ? /** @type {const} */ ({ kind: "names", names: axis.names })
        : /** @type {const} */ ({ kind: log ? "log" : "linear", low: axis.low, high: axis.high });
      const x = this.dragged.get(axis.name) ?? half + index * step;
      return { axis, index, x, log, scale: scale(domain, low, high) };
    });
    this.place();
    this.computeLines();
    this.drawAll();
    this.drawChosen();
    this.drawScale();
  }

  /** One control for each axis: its name as a button, and the strip on which brushes are drawn. */
  place() {
    /** @type {Placed[]} */
    const placed = this.placed ?? [];
    for (const [name, control] of this.controls)
      if (!placed.some((one) => one.axis.name === name)) {
        control.remove();
        this.controls.delete(name);
      }
    for (const one of placed) {
      let control = this.controls.get(one.axis.name);
      if (!control) {
        control = new AxisControl(this, one.axis.name, this.signal);
        this.controls.set(one.axis.name, control);
      }
      control.place(one);
    }
    // The order of the elements is the order in which the keyboard reaches them; an element that is moved loses the
    // pointer that holds it, so this waits until an axis is let go.
    if (this.dragged.size) return;
    const wanted = placed.map((one) => /** @type {AxisControl} */ (this.controls.get(one.axis.name)).element);
    const present = [...this.inner.children].filter((one) => wanted.includes(/** @type {HTMLDivElement} */ (one)));
    if (present.some((one, index) => one !== wanted[index]) || present.length !== wanted.length) {
      const focused = document.activeElement;
      this.inner.append(...wanted);
      if (focused instanceof HTMLElement && this.inner.contains(focused)) focused.focus();
    }
  }

  /** The pixels of every line, once for each layout: brushing only walks over them. */
  computeLines() {
    /** @type {Placed[]} */
    const placed = this.placed ?? [];
    const across = placed.length;
    this.points = new Float32Array(this.count * across);
    this.partial = new Uint8Array(across);
    placed.forEach(({ axis, index, scale: one }) => {
      const cache = axis.kind === "names" ? new Map() : null;
      for (let row = 0; row < this.count; row++) {
        const value = axis.values[row];
        let y;
        if (value === null || value === undefined) y = NaN;
        else if (cache) {
          const name = nameOf(value);
          y = cache.get(name);
          if (y === undefined) {
            y = one.at(value);
            cache.set(name, y);
          }
        } else y = one.at(value);
        if (!Number.isFinite(y)) {
          y = this.height - BOTTOM + 14;
          if (this.partial) this.partial[index] = 1;
        }
        /** @type {Float32Array} */ (this.points)[row * across + index] = y;
      }
    });
  }

  /** Every job as a faint line; in pieces, so that no frame waits for ten thousand of them. */
  drawAll() {
    cancelAnimationFrame(this.frames.all);
    const context = prepare(this.under, this.width ?? 0, this.height);
    context.strokeStyle = inks(this.box).faint;
    context.globalAlpha = this.count > 2000 ? 0.18 : this.count > 300 ? 0.35 : 0.6;
    context.lineWidth = hairline();
    const rows = Array.from({ length: this.count }, (_, row) => row);
    this.trace(context, rows, null, "all", () => {});
  }

  /**
   * The jobs within all brushes, the best on top. Where they are too many for one frame, the best of them are shown
   * at once and the others join when the pointer rests, drawn aside so that nothing flickers.
   */
  drawChosen() {
    cancelAnimationFrame(this.frames.chosen);
    clearTimeout(this.later);
    if (!this.placed) return;
    const rows = this.order.filter((row) => this.selected[row]).reverse();
    const most = this.linesOfPiece();
    this.box.dataset.selected = String(rows.length);
    this.box.dataset.lines = String(this.count);
    const context = this.chosenContext(this.over, rows.length);
    this.strokes(context, rows.slice(-most), 0, most, this.colors);
    if (rows.length <= most) return;
    this.later = window.setTimeout(() => {
      this.trace(this.chosenContext(this.aside, rows.length), rows, this.colors, "chosen", () => {
        prepare(this.over, this.width ?? 0, this.height).drawImage(this.aside, 0, 0, this.width ?? 0, this.height);
      });
    }, REST_MS);
  }

  chosenContext(/** @type {HTMLCanvasElement} */ canvas, /** @type {number} */ count) {
    const context = prepare(canvas, this.width ?? 0, this.height);
    context.globalAlpha = count > 3000 ? 0.35 : count > 400 ? 0.5 : 0.8;
    context.lineWidth = count > FEW_LINES ? hairline() : 1.5;
    return context;
  }

  linesOfPiece() {
    return Math.max(LINES_AT_ONCE, Math.floor(this.piece / Math.max(1, this.placed?.length ?? 1)));
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {number[]} rows
   * @param {string[] | null} colors
   * @param {"all" | "chosen"} name
   * @param {() => void} done
   */
  trace(context, rows, colors, name, done) {
    let next = 0;
    let before = 0;
    const piece = (/** @type {number} */ now) => {
      // Strokes cost their time when the frame is put together: how long the last one took says how many fit.
      if (before) this.piece = now - before > SLOW_FRAME_MS ? Math.max(LEAST_PIECE, this.piece * 0.7) : Math.min(MOST_PIECE, this.piece * 1.2);
      before = now;
      next = this.strokes(context, rows, next, this.linesOfPiece(), colors);
      if (next < rows.length) this.frames[name] = requestAnimationFrame(piece);
      else done();
    };
    piece(0);
  }

  /** Some of the lines, those of one colour together. @returns {number} the first that is not drawn */
  strokes(/** @type {CanvasRenderingContext2D} */ context, /** @type {number[]} */ rows, /** @type {number} */ from, /** @type {number} */ most, /** @type {string[] | null} */ colors) {
    const xs = (this.placed ?? []).map((one) => one.x);
    const points = this.points ?? new Float32Array(0);
    const across = xs.length;
    const until = Math.min(rows.length, from + most);
    const together = rows.length > FEW_LINES ? LINES_AT_ONCE : 1;
    let next = from;
    while (next < until) {
      const color = colors ? colors[rows[next]] : null;
      if (color) context.strokeStyle = color;
      context.beginPath();
      for (let drawn = 0; drawn < together && next < until; drawn++, next++) {
        if (color && colors && colors[rows[next]] !== color) break;
        const start = rows[next] * across;
        context.moveTo(xs[0], points[start]);
        for (let index = 1; index < across; index++) context.lineTo(xs[index], points[start + index]);
      }
      context.stroke();
    }
    return next;
  }

  /** Axes with their numbers, above the lines. */
  drawScale() {
    const context = prepare(this.scale, this.width ?? 0, this.height);
    const ink = inks(this.box);
    context.font = ink.font;
    context.textBaseline = "middle";
    context.lineWidth = 1;
    for (const { axis, index, x, scale: one } of this.placed ?? []) {
      context.strokeStyle = ink.muted;
      context.beginPath();
      context.moveTo(Math.round(x) + 0.5, TOP);
      context.lineTo(Math.round(x) + 0.5, this.height - BOTTOM);
      context.stroke();
      const ticks = one.ticks(axis.kind === "names" ? 14 : 6);
      if (this.partial?.[index]) ticks.push({ value: "", at: this.height - BOTTOM + 14, text: "none" });
      for (const tick of ticks) {
        const text = clip(tick.text, 11);
        const wide = context.measureText(text).width;
        const left = x + 6 + wide > (this.width ?? 0) ? x - 6 - wide : x + 6;
        context.fillStyle = ink.card;
        context.globalAlpha = 0.75;
        context.fillRect(left - 2, tick.at - 7, wide + 4, 14);
        context.globalAlpha = 1;
        context.fillStyle = ink.ink;
        context.fillText(text, left, tick.at);
        context.fillRect(x - 3, Math.round(tick.at), 6, 1);
      }
    }
  }

  /** Tell whoever keeps the view; `final` is false while a pointer is still down. */
  changed(/** @type {boolean} */ final) {
    this.onView(this.view, final);
  }

  /** Put an axis in the place of another. */
  move(/** @type {string} */ name, /** @type {number} */ to) {
    const order = this.ordered().map((axis) => axis.name);
    const from = order.indexOf(name);
    const target = Math.max(0, Math.min(order.length - 1, to));
    if (from < 0 || from === target) return;
    order.splice(target, 0, ...order.splice(from, 1));
    this.view.order = order;
  }

  get range() {
    return { top: TOP, bottom: this.height - BOTTOM };
  }
}

function element(/** @type {string} */ tag, /** @type {string} */ name) {
  const made = document.createElement(tag);
  made.className = name;
  return made;
}
