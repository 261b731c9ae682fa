/** What every job reported on its way, one thin line each; a job that was stopped early ends in a cross. */

import { Surface, hairline, inks, pick } from "./canvas.js";
import { drawAxes, rangeOf, scale } from "./scales.js";

/**
 * @typedef {{id: string, steps: number[], values: (number | null)[], color: string, dim: boolean, stopped: boolean,
 *   running: boolean}} Curve
 */

const SIZE = 4;

export class Curves {
  /**
   * @param {Element} parent
   * @param {{height?: number, label: string, xLabel: string, onOpen: (id: string) => void,
   *   lines: (id: string) => string[], signal: AbortSignal}} options
   */
  constructor(parent, { height = 260, label, xLabel, onOpen, lines, signal }) {
    /** @type {Curve[]} */
    this.curves = [];
    this.yLabel = "";
    this.log = false;
    this.xLabel = xLabel;
    /** @type {any} */
    this.scales = null;
    this.surface = new Surface(parent, { height, label, signal, draw: (...all) => this.draw(...all) });
    this.chosen = pick(this.surface, {
      find: (x, y) => this.find(x, y),
      next: (from, step) => (this.curves.length ? (Math.max(from, step < 0 ? 0 : -1) + step + this.curves.length) % this.curves.length : -1),
      place: (index) => this.end(this.curves[index]),
      lines: (index) => lines(this.curves[index].id),
      open: (index) => onOpen(this.curves[index].id),
      signal,
    });
  }

  set(/** @type {Curve[]} */ curves, /** @type {{yLabel: string, log: boolean}} */ { yLabel, log }) {
    Object.assign(this, { curves, yLabel, log });
    this.surface.redraw();
  }

  /** @param {CanvasRenderingContext2D} context */
  draw(context, /** @type {number} */ width, /** @type {number} */ height) {
    const ink = inks(this.surface.box);
    const box = { left: 52, top: 16, right: width - 10, bottom: height - 38 };
    const across = scale(joint(this.curves.map((one) => rangeOf(one.steps, { pad: 0 })), false, true), box.left, box.right);
    const up = scale(joint(this.curves.map((one) => rangeOf(one.values, { log: this.log })), this.log), box.bottom, box.top);
    this.scales = { across, up };
    drawAxes(context, box, across, up, ink, { xLabel: this.xLabel, yLabel: this.yLabel });
    const many = this.curves.length;
    context.lineJoin = "round";
    for (const dimmed of [true, false])
      for (const curve of this.curves) {
        if (curve.dim !== dimmed) continue;
        context.globalAlpha = dimmed ? 0.25 : many > 500 ? 0.3 : many > 60 ? 0.55 : 0.85;
        this.line(context, curve, dimmed ? ink.faint : curve.color, many > 100 ? hairline() : 1.2);
      }
    for (const curve of this.curves) {
      if (!curve.stopped && !curve.running) continue;
      const { x, y } = this.end(curve);
      context.globalAlpha = curve.dim ? 0.3 : 1;
      context.strokeStyle = context.fillStyle = curve.dim ? ink.faint : curve.color;
      context.lineWidth = 1.5;
      context.beginPath();
      if (curve.stopped) {
        context.moveTo(x - SIZE, y - SIZE);
        context.lineTo(x + SIZE, y + SIZE);
        context.moveTo(x - SIZE, y + SIZE);
        context.lineTo(x + SIZE, y - SIZE);
        context.stroke();
      } else {
        context.arc(x, y, 2.5, 0, 2 * Math.PI);
        context.fill();
      }
    }
    context.globalAlpha = 1;
    const chosen = this.curves[this.chosen.index];
    if (chosen) this.line(context, chosen, ink.ink, 2.5);
    this.surface.box.dataset.curves = String(many);
    this.surface.box.dataset.stopped = String(this.curves.filter((one) => one.stopped).length);
  }

  line(/** @type {CanvasRenderingContext2D} */ context, /** @type {Curve} */ curve, /** @type {string} */ color, /** @type {number} */ wide) {
    const { across, up } = this.scales;
    context.strokeStyle = color;
    context.lineWidth = wide;
    context.beginPath();
    let open = false;
    curve.steps.forEach((step, index) => {
      const value = curve.values[index];
      const y = value === null ? NaN : up.at(value);
      if (!Number.isFinite(y)) open = false;
      else if (open) context.lineTo(across.at(step), y);
      else {
        context.moveTo(across.at(step), y);
        open = true;
      }
    });
    context.stroke();
  }

  /** Where a line ends; for one without any number the corner. */
  end(/** @type {Curve} */ curve) {
    for (let index = curve.steps.length - 1; index >= 0; index--) {
      const value = curve.values[index];
      if (typeof value === "number") return { x: this.scales.across.at(curve.steps[index]), y: this.scales.up.at(value) };
    }
    return { x: -20, y: -20 };
  }

  find(/** @type {number} */ x, /** @type {number} */ y) {
    if (!this.scales) return -1;
    const { across, up } = this.scales;
    let found = -1;
    let nearest = 12;
    const step = across.back(x);
    this.curves.forEach((curve, index) => {
      const { steps, values } = curve;
      const last = steps.length - 1;
      if (last < 0 || x > across.at(steps[last]) + 12 || x < across.at(steps[0]) - 12) return;
      let right = 0;
      while (right < last && steps[right] < step) right += 1;
      const left = Math.max(0, right - 1);
      if (typeof values[left] !== "number" || typeof values[right] !== "number") return;
      const share = right === left ? 0 : Math.max(0, Math.min(1, (step - steps[left]) / (steps[right] - steps[left])));
      const distance = Math.abs(up.at(values[left]) * (1 - share) + up.at(values[right]) * share - y);
      if (distance < nearest) [found, nearest] = [index, distance];
    });
    return found;
  }
}

/** One range over those of all lines. @returns {import("./scales.js").Domain} */
function joint(/** @type {import("./scales.js").Domain[]} */ domains, /** @type {boolean} */ log, whole = false) {
  let [low, high] = [Infinity, -Infinity];
  for (const domain of domains) {
    if (domain.kind === "names") continue;
    low = Math.min(low, domain.low);
    high = Math.max(high, domain.high);
  }
  return low <= high ? { kind: log ? "log" : "linear", low, high, whole } : { kind: log ? "log" : "linear", low: log ? 0.1 : 0, high: 1 };
}
