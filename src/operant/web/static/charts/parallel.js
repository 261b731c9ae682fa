/** Parallel coordinates: one line for each job over all settings and the reward, coloured by the reward. */

import { onTheme } from "../lib/colors.js";
import { inks, prepare } from "./canvas.js";
import { clip, nameOf, scale } from "./scales.js";
import { AxisControl } from "./parallel_axis.js";

/**
 * @typedef {import("./brushes.js").Brush} Brush
 * @typedef {{name: string, label: string, kind: "number" | "names", log: boolean, canLog: boolean, low: number,
 *   high: number, names: string[], values: ArrayLike<any>}} Axis
 * @typedef {{order: string[], flipped: Set<string>, logs: Map<string, boolean>, brushes: Map<string, Brush>}} View
 */

const TOP = 46;
const BOTTOM = 34;
const SPACING = 92;
const FRAME_MS = 7;
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
    this.count = 0;
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
    this.inner.append(this.under, this.over, this.scale);
    this.box.append(this.inner);
    parent.append(this.box);
    this.signal = signal;
    const observer = new ResizeObserver(() => this.redraw());
    observer.observe(this.box);
    onTheme(() => this.redraw(), signal);
    signal.addEventListener("abort", () => {
      observer.disconnect();
      for (const frame of Object.values(this.frames)) cancelAnimationFrame(frame);
    });
  }

  /**
   * New rows, or changed ones. Those without a colour have no reward yet and stay faint.
   * @param {{axes: Axis[], count: number, colors: string[], ranks: ArrayLike<number>, selected: ArrayLike<number>}} data
   */
  set(data) {
    Object.assign(this, data);
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
    // The order of the elements is the order in which the keyboard reaches them.
    const wanted = placed.map((one) => /** @type {AxisControl} */ (this.controls.get(one.axis.name)).element);
    const present = [...this.inner.children].filter((one) => wanted.includes(/** @type {HTMLElement} */ (one)));
    if (present.some((one, index) => one !== wanted[index]) || present.length !== wanted.length) {
      const focused = document.activeElement;
      this.inner.append(...wanted);
      if (focused instanceof HTMLElement && this.inner.contains(focused)) focused.focus();
    }
  }

  /** The pixels of every line, once for each layout: brushing only walks over them. */
  computeLines() {
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
          if (y === undefined) cache.set(name, (y = one.at(value)));
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
    const ink = inks(this.box);
    context.strokeStyle = ink.faint;
    context.globalAlpha = this.count > 2000 ? 0.18 : this.count > 300 ? 0.35 : 0.6;
    context.lineWidth = 1;
    const rows = Array.from({ length: this.count }, (_, row) => row);
    this.trace(context, rows, null, "all");
  }

  /** The jobs within all brushes, worst first, so that the best lie on top. */
  drawChosen() {
    cancelAnimationFrame(this.frames.chosen);
    if (!this.placed) return;
    const context = prepare(this.over, this.width ?? 0, this.height);
    const rows = [];
    for (let row = 0; row < this.count; row++) if (this.selected[row] && this.colors[row]) rows.push(row);
    rows.sort((one, other) => this.ranks[one] - this.ranks[other]);
    context.globalAlpha = rows.length > 3000 ? 0.25 : rows.length > 400 ? 0.5 : 0.8;
    context.lineWidth = rows.length > 400 ? 1 : 1.4;
    this.box.dataset.selected = String(rows.length);
    this.box.dataset.lines = String(this.count);
    this.trace(context, rows, this.colors, "chosen");
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {number[]} rows
   * @param {string[] | null} colors
   * @param {"all" | "chosen"} name
   */
  trace(context, rows, colors, name) {
    const xs = (this.placed ?? []).map((one) => one.x);
    const points = this.points ?? new Float32Array(0);
    const across = xs.length;
    let next = 0;
    const piece = () => {
      const until = performance.now() + FRAME_MS;
      while (next < rows.length && performance.now() < until) {
        const color = colors ? colors[rows[next]] : null;
        if (color) context.strokeStyle = color;
        context.beginPath();
        for (let drawn = 0; drawn < LINES_AT_ONCE && next < rows.length; drawn++, next++) {
          if (color && colors && colors[rows[next]] !== color) break;
          const start = rows[next] * across;
          context.moveTo(xs[0], points[start]);
          for (let index = 1; index < across; index++) context.lineTo(xs[index], points[start + index]);
        }
        context.stroke();
      }
      this.frames[name] = next < rows.length ? requestAnimationFrame(piece) : 0;
    };
    piece();
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
