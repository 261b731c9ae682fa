/** Points, each of which stands for a job, with a stair line through the best of them where one is given. */

import { Surface, inks, pick } from "./canvas.js";
import { drawAxes, rangeOf, scale } from "./scales.js";

/**
 * @typedef {{x: ArrayLike<any>, y: ArrayLike<number | null>, ids: string[], colors: string[],
 *   marks?: ArrayLike<string>, dim?: ArrayLike<number> | null, stairs?: {x: number[], y: number[]} | null, rug?: boolean,
 *   xDomain?: import("./scales.js").Domain, yDomain?: import("./scales.js").Domain,
 *   lines: (index: number) => string[]}} Points
 */

const MANY_POINTS = 2000;

export class Scatter {
  /**
   * @param {Element} parent
   * @param {{height?: number, label: string, xLabel?: string, yLabel?: string, size?: number,
   *   onOpen: (id: string) => void, signal: AbortSignal}} options
   */
  constructor(parent, { height = 260, label, xLabel = "", yLabel = "", size = 3, onOpen, signal }) {
    /** @type {Points} */
    this.points = { x: [], y: [], ids: [], colors: [], lines: () => [] };
    this.labels = { xLabel, yLabel };
    this.size = size;
    this.px = new Float32Array(0);
    this.py = new Float32Array(0);
    this.surface = new Surface(parent, { height, label, signal, draw: (...all) => this.draw(...all) });
    this.chosen = pick(this.surface, {
      find: (x, y) => this.find(x, y),
      next: (from, step) => this.next(from, step),
      place: (index) => ({ x: this.px[index], y: this.py[index] }),
      lines: (index) => this.points.lines(index),
      open: (index) => onOpen(this.points.ids[index]),
      signal,
    });
  }

  set(/** @type {Points} */ points, /** @type {{xLabel?: string, yLabel?: string}} */ labels = {}) {
    this.points = points;
    Object.assign(this.labels, labels);
    this.surface.redraw();
  }

  /** @param {CanvasRenderingContext2D} context */
  draw(context, /** @type {number} */ width, /** @type {number} */ height) {
    const { x, y, colors, marks, dim, stairs, rug } = this.points;
    const ink = inks(this.surface.box);
    const box = { left: 52, top: 16, right: width - 10, bottom: height - (this.labels.xLabel ? 38 : 24) };
    const across = scale(this.points.xDomain ?? rangeOf(x), box.left, box.right);
    const up = scale(this.points.yDomain ?? rangeOf(y), box.bottom, box.top);
    drawAxes(context, box, across, up, ink, this.labels);
    const count = x.length;
    if (this.px.length !== count) {
      this.px = new Float32Array(count);
      this.py = new Float32Array(count);
    }
    /** @type {Map<string, number[]>} */
    const groups = new Map();
    const spread = across.domain.kind === "names" ? (box.right - box.left) / across.domain.names.length / 3 : 0;
    let drawn = 0;
    for (let index = 0; index < count; index++) {
      const reward = y[index];
      // Points of one name lie beside each other; the number of the job decides where, so that they stay there.
      this.px[index] = across.at(x[index]) + spread * (((index * 0.618034) % 1) - 0.5) * 2;
      // Jobs without a reward, or out of range, stand on the edge, if they are to be seen at all.
      const edge = rug ? box.bottom - this.size - 2 : NaN;
      const at = typeof reward === "number" ? up.at(reward) : NaN;
      this.py[index] = at < box.top - 1 ? (rug ? box.top : NaN) : at <= box.bottom + 1 ? at : edge;
      if (!(this.px[index] >= 0 && this.py[index] >= 0)) {
        this.px[index] = NaN;
        continue;
      }
      drawn += 1;
      const key = `${dim && !dim[index] ? "0" : "1"}${marks?.[index] ?? "dot"} ${colors[index]}`;
      const group = groups.get(key);
      if (group) group.push(index);
      else groups.set(key, [index]);
    }
    this.surface.box.dataset.points = String(drawn);
    for (const key of [...groups.keys()].sort()) this.drawGroup(context, key, groups.get(key) ?? [], ink);
    if (stairs?.x.length) drawStairs(context, stairs, across, up, ink.best, box.right);
    this.drawChosen(context, ink.ink);
  }

  /** All points of one colour and mark are one path: thousands of jobs are a few strokes. */
  drawGroup(/** @type {CanvasRenderingContext2D} */ context, /** @type {string} */ key, /** @type {number[]} */ group, /** @type {{faint: string}} */ ink) {
    const dimmed = key[0] === "0";
    const space = key.indexOf(" ");
    const mark = key.slice(1, space);
    const size = this.size;
    // Squares on whole pixels cost a tenth of discs; among thousands nobody sees a difference.
    const many = this.px.length > MANY_POINTS;
    context.globalAlpha = dimmed ? 0.5 : group.length > 3000 ? 0.6 : 0.85;
    context.fillStyle = context.strokeStyle = dimmed ? ink.faint : key.slice(space + 1);
    context.lineWidth = 1.4;
    context.beginPath();
    for (const index of group) {
      const x = this.px[index];
      const y = this.py[index];
      if (mark === "cross") {
        context.moveTo(x - size, y - size);
        context.lineTo(x + size, y + size);
        context.moveTo(x - size, y + size);
        context.lineTo(x + size, y - size);
      } else if (many) context.fillRect(Math.round(x - size * 0.6), Math.round(y - size * 0.6), Math.round(size * 1.2), Math.round(size * 1.2));
      else {
        context.moveTo(x + size, y);
        context.arc(x, y, size, 0, 2 * Math.PI);
      }
    }
    if (mark === "dot" && !many) context.fill();
    else context.stroke();
    context.globalAlpha = 1;
  }

  drawChosen(/** @type {CanvasRenderingContext2D} */ context, /** @type {string} */ ink) {
    const index = this.chosen.index;
    if (index < 0 || !(this.px[index] >= 0)) return;
    context.strokeStyle = ink;
    context.lineWidth = 2;
    context.beginPath();
    context.arc(this.px[index], this.py[index], this.size + 3, 0, 2 * Math.PI);
    context.stroke();
  }

  find(/** @type {number} */ x, /** @type {number} */ y) {
    let found = -1;
    let nearest = 14 * 14;
    for (let index = 0; index < this.px.length; index++) {
      const across = this.px[index] - x;
      const up = this.py[index] - y;
      const distance = across * across + up * up;
      if (distance < nearest) [found, nearest] = [index, distance];
    }
    return found;
  }

  next(/** @type {number} */ from, /** @type {number} */ step) {
    const count = this.px.length;
    for (let tried = 1; tried <= count; tried++) {
      const index = (((from < 0 && step < 0 ? 0 : from) + step * tried) % count + count) % count;
      if (this.px[index] >= 0) return index;
    }
    return -1;
  }
}

/** @param {CanvasRenderingContext2D} context */
function drawStairs(context, /** @type {{x: number[], y: number[]}} */ { x, y }, /** @type {any} */ across, /** @type {any} */ up, /** @type {string} */ color, /** @type {number} */ right) {
  context.strokeStyle = color;
  context.lineWidth = 2;
  context.beginPath();
  context.moveTo(across.at(x[0]), up.at(y[0]));
  for (let index = 1; index < x.length; index++) {
    context.lineTo(across.at(x[index]), up.at(y[index - 1]));
    context.lineTo(across.at(x[index]), up.at(y[index]));
  }
  context.lineTo(right, up.at(y[y.length - 1]));
  context.stroke();
}
