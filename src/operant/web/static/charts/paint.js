// How lines become pixels: the band of extremes, the raw line, and the smoothed one above it.

/**
 * @typedef {object} Line
 * @property {string} key
 * @property {string} label
 * @property {string} color
 * @property {number[]} [dash]
 * @property {ArrayLike<number>} x
 * @property {ArrayLike<number>} mean
 * @property {ArrayLike<number>} [least] lower edge of the band
 * @property {ArrayLike<number>} [greatest] upper edge of the band
 * @property {boolean} [hidden]
 */

const BAND = 0.14;
// More bands than this are one grey cloud, and half the cost of a chart; the line that is pointed at still has its own.
const BANDS_AT_MOST = 16;
// Dashes tell lines of one colour apart as long as there are few enough to follow one by eye.
const DASHES_AT_MOST = 24;
const RAW_UNDER = 0.32;

/**
 * Exponential smoothing whose start is not drawn to zero; gaps stay gaps.
 * @param {ArrayLike<number>} values @param {number} weight 0…1
 */
export function smooth(values, weight) {
  const found = new Float64Array(values.length);
  let sum = 0;
  let norm = 0;
  for (let i = 0; i < values.length; i += 1) {
    const value = values[i];
    if (!Number.isFinite(value)) {
      found[i] = NaN;
      continue;
    }
    sum = weight * sum + (1 - weight) * value;
    norm = weight * norm + (1 - weight);
    found[i] = sum / norm;
  }
  return found;
}

/** The first index whose x is not less. @param {ArrayLike<number>} xs @param {number} x */
export function lowerBound(xs, x) {
  let low = 0;
  let high = xs.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The index whose x is nearest, or -1. @param {ArrayLike<number>} xs @param {number} x */
export function nearestIndex(xs, x) {
  if (!xs.length) return -1;
  const at = lowerBound(xs, x);
  if (at === 0) return 0;
  if (at === xs.length) return at - 1;
  return x - xs[at - 1] <= xs[at] - x ? at - 1 : at;
}

/** Smallest and greatest x of all lines that have points. @param {Line[]} lines @returns {[number, number] | null} */
export function xExtent(lines) {
  let low = Infinity;
  let high = -Infinity;
  for (const line of lines) {
    if (line.hidden || !line.x.length) continue;
    low = Math.min(low, line.x[0]);
    high = Math.max(high, line.x[line.x.length - 1]);
  }
  return low <= high ? [low, high] : null;
}

/**
 * The values that must be in the picture for these x.
 * @param {Line[]} lines @param {number} from @param {number} to @param {boolean} log @returns {[number, number]}
 */
export function yExtent(lines, from, to, log) {
  let low = Infinity;
  let high = -Infinity;
  for (const line of lines) {
    if (line.hidden) continue;
    const first = Math.max(0, lowerBound(line.x, from) - 1);
    const last = Math.min(line.x.length, lowerBound(line.x, to) + 2);
    for (let i = first; i < last; i += 1) {
      for (const value of [line.mean[i], line.least?.[i] ?? line.mean[i], line.greatest?.[i] ?? line.mean[i]]) {
        if (!Number.isFinite(value) || (log && value <= 0)) continue;
        if (value < low) low = value;
        if (value > high) high = value;
      }
    }
  }
  if (low > high) return log ? [0.1, 1] : [0, 1];
  if (log) return low === high ? [low / 2, high * 2] : [low / 1.15, high * 1.15];
  const room = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
  return [low - room, high + room];
}

/** How many values a log axis has no place for, and how many there are. @param {Line[]} lines */
export function notAboveZero(lines) {
  let left = 0;
  let all = 0;
  for (const line of lines) {
    if (line.hidden) continue;
    for (let i = 0; i < line.mean.length; i += 1) {
      if (Number.isNaN(line.mean[i])) continue;
      all += 1;
      if (line.mean[i] <= 0) left += 1;
    }
  }
  return { left, all };
}

/**
 * Ticks of a log axis: powers of ten, and 2 and 5 between them when there are few.
 * @param {number} low @param {number} high
 */
export function logTicks(low, high) {
  const found = [];
  const from = Math.floor(Math.log10(low));
  const to = Math.ceil(Math.log10(high));
  const stride = Math.max(1, Math.ceil((to - from) / 8));
  for (let power = from; power <= to; power += stride) {
    for (const factor of to - from <= 3 ? [1, 2, 5] : [1]) {
      const tick = factor * 10 ** power;
      if (tick >= low && tick <= high) found.push(tick);
    }
  }
  return found.length >= 3 ? found : evenTicks(low, high);
}

/** Within a decade a log axis is nearly even, and has room for round numbers. @param {number} low @param {number} high */
function evenTicks(low, high) {
  const rough = (high - low) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= rough) ?? rough;
  const found = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high; tick += step) found.push(Number(tick.toPrecision(10)));
  return found;
}

/** @typedef {{left: number, top: number, width: number, height: number, x: [number, number], y: [number, number], log: boolean, scale: number, smoothed: Map<string, ArrayLike<number>>}} View */

/**
 * All lines: bands first, then raw lines, then what is smoothed.
 * @param {CanvasRenderingContext2D} context @param {Line[]} lines @param {View} view
 */
export function paintLines(context, lines, view) {
  const brush = Brush(context, view);
  const visible = lines.filter((line) => !line.hidden && line.x.length);
  const few = visible.length <= BANDS_AT_MOST;
  const bandAlpha = BAND * Math.min(1, 2 / Math.sqrt(visible.length || 1));
  const thin = (visible.length > 8 ? 0.8 : 1) * view.scale;
  brush.inside(() => {
    context.lineJoin = few ? "round" : "bevel";
    for (const one of visible) {
      const line = visible.length <= DASHES_AT_MOST ? one : { ...one, dash: undefined };
      const smoothed = view.smoothed.get(line.key);
      if (few && line.least && line.greatest) brush.band(line, bandAlpha);
      brush.stroke(line, line.mean, smoothed ? RAW_UNDER : 1, (smoothed ? 1 : 1.5) * thin);
      if (smoothed) brush.stroke(line, smoothed, 1, 2 * thin);
      brush.missing(line);
    }
  });
}

/**
 * One line above all others, on a rim of the background's colour.
 * @param {CanvasRenderingContext2D} context @param {Line} line @param {View} view @param {string} rim
 */
export function paintFocus(context, line, view, rim) {
  const brush = Brush(context, view);
  const smoothed = view.smoothed.get(line.key);
  brush.inside(() => {
    if (line.least && line.greatest) brush.band(line, 2 * BAND);
    if (smoothed) brush.stroke(line, line.mean, 0.6, view.scale);
    brush.stroke({ ...line, color: rim, dash: [] }, smoothed ?? line.mean, 0.9, 6 * view.scale);
    brush.stroke(line, smoothed ?? line.mean, 1, 2.6 * view.scale);
  });
}

/** @param {CanvasRenderingContext2D} context @param {View} view */
function Brush(context, view) {
  const { left, top, width, height, log } = view;
  const [x0, x1] = view.x;
  const [y0, y1] = log ? view.y.map(Math.log10) : view.y;
  const toX = (/** @type {number} */ x) => left + ((x - x0) / (x1 - x0 || 1)) * width;
  const toY = (/** @type {number} */ y) => top + height - (((log ? Math.log10(y) : y) - y0) / (y1 - y0 || 1)) * height;
  const drawable = (/** @type {number} */ y) => Number.isFinite(y) && (!log || y > 0);
  const range = (/** @type {Line} */ line) => [Math.max(0, lowerBound(line.x, x0) - 1), Math.min(line.x.length, lowerBound(line.x, x1) + 1)];
  return { inside, band, stroke, missing };

  /** @param {() => void} work */
  function inside(work) {
    context.save();
    context.beginPath();
    context.rect(left, top, width, height);
    context.clip();
    context.lineJoin = "round";
    work();
    context.restore();
  }

  /** @param {Line} line @param {number} alpha */
  function band(line, alpha) {
    const [first, last] = range(line);
    const least = /** @type {ArrayLike<number>} */ (line.least);
    const greatest = /** @type {ArrayLike<number>} */ (line.greatest);
    context.globalAlpha = alpha;
    context.fillStyle = line.color;
    let start = first;
    while (start < last) {
      while (start < last && !(drawable(least[start]) && drawable(greatest[start]))) start += 1;
      let end = start;
      while (end < last && drawable(least[end]) && drawable(greatest[end])) end += 1;
      if (end > start + 1) {
        context.beginPath();
        for (let i = start; i < end; i += 1) context.lineTo(toX(line.x[i]), toY(greatest[i]));
        for (let i = end - 1; i >= start; i -= 1) context.lineTo(toX(line.x[i]), toY(least[i]));
        context.fill();
      }
      start = end;
    }
  }

  /** @param {Line} line @param {ArrayLike<number>} ys @param {number} alpha @param {number} thickness */
  function stroke(line, ys, alpha, thickness) {
    const [first, last] = range(line);
    context.setLineDash((line.dash ?? []).map((one) => one * view.scale));
    context.strokeStyle = line.color;
    context.globalAlpha = alpha;
    context.lineWidth = thickness;
    context.beginPath();
    let length = 0;
    for (let i = first; i <= last; i += 1) {
      if (i < last && drawable(ys[i])) {
        const px = toX(line.x[i]);
        const py = toY(ys[i]);
        if (length === 0) context.moveTo(px, py);
        else context.lineTo(px, py);
        length += 1;
        continue;
      }
      if (length === 1) {
        // A point between two gaps has no line: a dot shows it.
        const px = toX(line.x[i - 1]);
        const py = toY(ys[i - 1]);
        context.moveTo(px + 2 * view.scale, py);
        context.arc(px, py, 2 * view.scale, 0, 2 * Math.PI);
      }
      length = 0;
    }
    context.stroke();
  }

  /** Marks at the bottom where a value was NaN or infinite. @param {Line} line */
  function missing(line) {
    const [first, last] = range(line);
    const size = 5 * view.scale;
    context.globalAlpha = 1;
    context.fillStyle = line.color;
    for (let i = first; i < last; i += 1) {
      if (Number.isFinite(line.mean[i])) continue;
      const px = toX(line.x[i]);
      context.beginPath();
      context.moveTo(px - size / 2, top + height);
      context.lineTo(px + size / 2, top + height);
      context.lineTo(px, top + height - size);
      context.fill();
    }
  }
}
