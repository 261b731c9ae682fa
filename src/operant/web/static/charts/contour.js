/** How the reward lies over two settings: a surface of colour with lines of equal height, and the jobs on it. */

import { Surface, inks, pick } from "./canvas.js";
import { clip, drawAxes, numberText, rangeOf, scale } from "./scales.js";

/**
 * @typedef {{name: string, log: boolean, values: any[], labels: string[] | null}} Side
 * @typedef {{x: Side, y: Side, z: (number | null)[][],
 *   points: {x: any[], y: any[], reward: (number | null)[], id: string[]}}} Grid
 */

const LEVELS = 8;
const MANY_POINTS = 1000;

export class Contour {
  /**
   * @param {Element} parent
   * @param {{height?: number, label: string, color: (part: number) => string, maximize: () => boolean,
   *   onOpen: (id: string) => void, lines: (id: string) => string[], signal: AbortSignal}} options
   */
  constructor(parent, { height = 320, label, color, maximize, onOpen, lines, signal }) {
    /** @type {Grid | null} */
    this.grid = null;
    /** @type {Set<string> | null} */
    this.selected = null;
    this.color = color;
    this.maximize = maximize;
    /** @type {{x: number, y: number}[]} */
    this.places = [];
    this.surface = new Surface(parent, { height, label, signal, draw: (...all) => this.draw(...all) });
    this.chosen = pick(this.surface, {
      find: (x, y) => nearest(this.places, x, y),
      next: (from, step) => (this.places.length ? (Math.max(from, step < 0 ? 0 : -1) + step + this.places.length) % this.places.length : -1),
      place: (index) => this.places[index],
      lines: (index) => lines(this.grid?.points.id[index] ?? ""),
      open: (index) => onOpen(this.grid?.points.id[index] ?? ""),
      signal,
    });
  }

  set(/** @type {Grid | null} */ grid, /** @type {Set<string> | null} */ selected = null) {
    this.grid = grid;
    this.selected = selected;
    this.surface.redraw();
  }

  /** @param {CanvasRenderingContext2D} context */
  draw(context, /** @type {number} */ width, /** @type {number} */ height) {
    if (!this.grid) return;
    const { x, y, z, points } = this.grid;
    const ink = inks(this.surface.box);
    const box = { left: 60, top: 18, right: width - 74, bottom: height - 40 };
    const across = scale(domainOf(x), box.left, box.right);
    const up = scale(domainOf(y), box.bottom, box.top);
    const [low, high] = extent(z, points.reward);
    const part = (/** @type {number} */ value) => {
      const share = high > low ? (value - low) / (high - low) : 0.5;
      return this.maximize() ? share : 1 - share;
    };
    drawAxes(context, box, across, up, ink, { xLabel: clip(x.name, 40), yLabel: clip(y.name, 40) });
    this.fill(context, box, across, up, part);
    if (!x.labels && !y.labels) this.rings(context, across, up, low, high, ink.card);
    this.places = points.id.map((_, index) => ({ x: across.at(valueAt(x, points.x[index])), y: up.at(valueAt(y, points.y[index])) }));
    const many = points.id.length > MANY_POINTS;
    points.id.forEach((id, index) => {
      const reward = points.reward[index];
      if (reward === null) return;
      const dimmed = this.selected && !this.selected.has(id);
      context.globalAlpha = dimmed ? 0.25 : 1;
      context.fillStyle = this.color(part(reward));
      if (many && this.chosen.index !== index) {
        context.fillRect(Math.round(this.places[index].x) - 1, Math.round(this.places[index].y) - 1, 3, 3);
        return;
      }
      context.strokeStyle = this.chosen.index === index ? ink.ink : ink.card;
      context.lineWidth = this.chosen.index === index ? 2.5 : 1;
      context.beginPath();
      context.arc(this.places[index].x, this.places[index].y, this.chosen.index === index ? 5 : 3.2, 0, 2 * Math.PI);
      context.fill();
      context.stroke();
    });
    context.globalAlpha = 1;
    this.legend(context, width, box, low, high, ink);
    this.surface.box.dataset.points = String(points.id.length);
  }

  /** Each value of the grid fills the middle of its neighbours; where both sides are numbers it is smoothed over. */
  fill(/** @type {CanvasRenderingContext2D} */ context, /** @type {any} */ box, /** @type {any} */ across, /** @type {any} */ up, /** @type {(value: number) => number} */ part) {
    const { x, y, z } = /** @type {Grid} */ (this.grid);
    const rows = z.length;
    const columns = z[0]?.length ?? 0;
    if (!rows || !columns) return;
    const cells = document.createElement("canvas");
    cells.width = columns;
    cells.height = rows;
    const small = /** @type {CanvasRenderingContext2D} */ (cells.getContext("2d"));
    for (const [row, line] of z.entries())
      for (const [column, value] of line.entries()) {
        if (value === null) continue;
        small.fillStyle = this.color(part(value));
        small.fillRect(column, rows - 1 - row, 1, 1);
      }
    const [left, right] = ends(across, x, columns, box.left, box.right);
    const [bottom, top] = ends(up, y, rows, box.bottom, box.top);
    context.save();
    context.beginPath();
    context.rect(box.left, box.top, box.right - box.left, box.bottom - box.top);
    context.clip();
    context.globalAlpha = 0.92;
    context.imageSmoothingEnabled = !x.labels && !y.labels;
    context.imageSmoothingQuality = "high";
    context.drawImage(cells, left, top, right - left, bottom - top);
    context.restore();
  }

  /** Lines of equal reward, by marching over the squares between the values of the grid. */
  rings(/** @type {CanvasRenderingContext2D} */ context, /** @type {any} */ across, /** @type {any} */ up, /** @type {number} */ low, /** @type {number} */ high, /** @type {string} */ color) {
    const { x, y, z } = /** @type {Grid} */ (this.grid);
    context.strokeStyle = color;
    context.globalAlpha = 0.45;
    context.lineWidth = 1;
    context.beginPath();
    for (let level = 1; level < LEVELS; level++) {
      const at = low + ((high - low) * level) / LEVELS;
      for (let row = 0; row + 1 < z.length; row++)
        for (let column = 0; column + 1 < z[row].length; column++) {
          const corners = [z[row][column], z[row][column + 1], z[row + 1][column + 1], z[row + 1][column]];
          if (corners.includes(null)) continue;
          const numbers = /** @type {number[]} */ (corners);
          const spots = [[column, row], [column + 1, row], [column + 1, row + 1], [column, row + 1]];
          const cuts = [];
          for (let side = 0; side < 4; side++) {
            const [one, other] = [numbers[side], numbers[(side + 1) % 4]];
            if (one < at === other < at) continue;
            const share = (at - one) / (other - one);
            const [from, to] = [spots[side], spots[(side + 1) % 4]];
            cuts.push([
              across.at(x.values[from[0]]) * (1 - share) + across.at(x.values[to[0]]) * share,
              up.at(y.values[from[1]]) * (1 - share) + up.at(y.values[to[1]]) * share,
            ]);
          }
          for (let pair = 0; pair + 1 < cuts.length; pair += 2) {
            context.moveTo(cuts[pair][0], cuts[pair][1]);
            context.lineTo(cuts[pair + 1][0], cuts[pair + 1][1]);
          }
        }
    }
    context.stroke();
    context.globalAlpha = 1;
  }

  legend(/** @type {CanvasRenderingContext2D} */ context, /** @type {number} */ width, /** @type {any} */ box, /** @type {number} */ low, /** @type {number} */ high, /** @type {any} */ ink) {
    const left = width - 62;
    for (let y = box.top; y < box.bottom; y++) {
      const share = 1 - (y - box.top) / (box.bottom - box.top);
      context.fillStyle = this.color(this.maximize() ? share : 1 - share);
      context.fillRect(left, y, 10, 1.5);
    }
    context.fillStyle = ink.muted;
    context.textAlign = "left";
    context.textBaseline = "middle";
    for (const [y, value] of [[box.top + 4, high], [(box.top + box.bottom) / 2, (low + high) / 2], [box.bottom - 4, low]])
      context.fillText(numberText(value), left + 14, y);
  }
}

/** @returns {import("./scales.js").Domain} */
function domainOf(/** @type {Side} */ side) {
  return side.labels ? { kind: "names", names: side.labels } : rangeOf(side.values, { log: side.log, pad: 0 });
}

/** On a side of names a value may come as its place among them. */
function valueAt(/** @type {Side} */ side, /** @type {any} */ value) {
  return side.labels && typeof value === "number" && !side.labels.includes(String(value)) ? side.labels[value] : side.labels ? String(value) : value;
}

/** Where the outer edges of the first and last cell lie. */
function ends(/** @type {any} */ one, /** @type {Side} */ side, /** @type {number} */ count, /** @type {number} */ from, /** @type {number} */ to) {
  if (side.labels || count < 2) return [from, to];
  const first = one.at(side.values[0]);
  const last = one.at(side.values[count - 1]);
  const half = (last - first) / (count - 1) / 2;
  return [first - half, last + half];
}

/** The range of the surface; of the jobs' own rewards only where there is no surface. */
function extent(/** @type {(number | null)[][]} */ z, /** @type {(number | null)[]} */ rewards) {
  const all = z.flat().filter((value) => value !== null);
  const numbers = /** @type {number[]} */ (all.length ? all : rewards.filter((value) => value !== null));
  return numbers.length ? [Math.min(...numbers), Math.max(...numbers)] : [0, 1];
}

function nearest(/** @type {{x: number, y: number}[]} */ places, /** @type {number} */ x, /** @type {number} */ y) {
  let found = -1;
  let least = 12 * 12;
  places.forEach((place, index) => {
    const distance = (place.x - x) ** 2 + (place.y - y) ** 2;
    if (distance < least) [found, least] = [index, distance];
  });
  return found;
}
