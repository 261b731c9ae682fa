/** Jobs over time, one row for each place that ran one at a time. */

import { Surface, inks, pick } from "./canvas.js";
import { drawAxes, scale } from "./scales.js";

/**
 * @typedef {{lane: ArrayLike<number | null>, started: ArrayLike<number | null>, ended: ArrayLike<number | null>,
 *   ids: string[], colors: string[], dim: ArrayLike<number> | null, begin: number, now: number, live: boolean,
 *   lines: (index: number) => string[]}} Bars
 */

const MOST_LANES = 64;

export class Timeline {
  /**
   * @param {Element} parent
   * @param {{height?: number, label: string, onOpen: (id: string) => void, signal: AbortSignal}} options
   */
  constructor(parent, { height = 240, label, onOpen, signal }) {
    /** @type {Bars | null} */
    this.bars = null;
    /** @type {{left: number, top: number, right: number, bottom: number}[]} */
    this.places = [];
    this.surface = new Surface(parent, { height, label, signal, draw: (...all) => this.draw(...all) });
    this.chosen = pick(this.surface, {
      find: (x, y) => this.places.findIndex((one) => one && x >= one.left - 1 && x <= one.right + 1 && y >= one.top && y <= one.bottom),
      next: (from, step) => this.next(from, step),
      place: (index) => ({ x: this.places[index].right, y: this.places[index].bottom }),
      lines: (index) => this.bars?.lines(index) ?? [],
      open: (index) => onOpen(this.bars?.ids[index] ?? ""),
      signal,
    });
  }

  set(/** @type {Bars} */ bars) {
    this.bars = bars;
    this.surface.redraw();
  }

  /** @param {CanvasRenderingContext2D} context */
  draw(context, /** @type {number} */ width, /** @type {number} */ height) {
    if (!this.bars) return;
    const { lane, started, ended, colors, dim, begin, now, live } = this.bars;
    const ink = inks(this.surface.box);
    const box = { left: 34, top: 8, right: width - 10, bottom: height - 24 };
    let lanes = 1;
    for (let index = 0; index < lane.length; index++) lanes = Math.max(lanes, (lane[index] ?? 0) + 1);
    lanes = Math.min(lanes, MOST_LANES);
    const across = scale({ kind: "time", low: 0, high: Math.max(1, now - begin) }, box.left, box.right);
    const names = Array.from({ length: lanes }, (_, index) => String(index + 1));
    drawAxes(context, box, across, scale({ kind: "names", names }, box.top, box.bottom), ink);
    const tall = (box.bottom - box.top) / lanes;
    const gap = Math.min(3, tall * 0.15);
    this.places = [];
    let drawn = 0;
    for (let index = 0; index < lane.length; index++) {
      const from = started[index];
      const row = lane[index];
      if (from === null || row === null || row >= MOST_LANES) continue;
      const left = across.at(from - begin);
      const right = Math.max(left + 1.5, across.at((ended[index] ?? now) - begin));
      const place = { left, right, top: box.top + row * tall + gap, bottom: box.top + (row + 1) * tall - gap };
      this.places[index] = place;
      context.globalAlpha = dim && !dim[index] ? 0.2 : 0.9;
      context.fillStyle = colors[index];
      context.fillRect(left, place.top, Math.max(1, right - left - 0.6), place.bottom - place.top);
      drawn += 1;
    }
    context.globalAlpha = 1;
    if (live) {
      context.fillStyle = ink.accent;
      context.fillRect(across.at(now - begin) - 1, box.top, 1.5, box.bottom - box.top);
    }
    const chosen = this.places[this.chosen.index];
    if (chosen) {
      context.strokeStyle = ink.ink;
      context.lineWidth = 2;
      context.strokeRect(chosen.left - 1, chosen.top - 1, chosen.right - chosen.left + 2, chosen.bottom - chosen.top + 2);
    }
    this.surface.box.dataset.points = String(drawn);
  }

  next(/** @type {number} */ from, /** @type {number} */ step) {
    const count = this.bars?.ids.length ?? 0;
    for (let tried = 1; tried <= count; tried++) {
      const index = (((from < 0 && step < 0 ? 0 : from) + step * tried) % count + count) % count;
      if (this.places[index]) return index;
    }
    return -1;
  }
}
