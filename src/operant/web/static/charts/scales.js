/** From values to pixels and back: linear, logarithmic, lengths of time, and names beside each other. */

/**
 * @typedef {{kind: "linear" | "log" | "time", low: number, high: number, whole?: boolean} |
 *   {kind: "names", names: string[]}} Domain
 * @typedef {{value: number | string, at: number, text: string}} Tick
 * @typedef {{domain: Domain, at: (value: any) => number, back: (pixel: number) => any,
 *   ticks: (count: number) => Tick[]}} Scale
 */

/** How a setting's value is named on an axis of names. */
export function nameOf(/** @type {any} */ value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}

/**
 * The range of the numbers in `values`, a little wider so that no point lies on the edge.
 * @param {ArrayLike<any>} values
 * @returns {Domain}
 */
export function rangeOf(values, { log = false, time = false, pad = 0.04, whole = false } = {}) {
  let low = Infinity;
  let high = -Infinity;
  for (let index = 0; index < values.length; index++) {
    const value = values[index];
    if (typeof value !== "number" || !Number.isFinite(value) || (log && value <= 0)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (low > high) return { kind: log ? "log" : time ? "time" : "linear", low: log ? 0.1 : 0, high: 1 };
  if (log) {
    const room = high > low ? (Math.log(high) - Math.log(low)) * pad : 0.1;
    return { kind: "log", low: Math.exp(Math.log(low) - room), high: Math.exp(Math.log(high) + room) };
  }
  const room = high > low ? (high - low) * pad : Math.abs(high) * 0.05 || 0.5;
  return { kind: time ? "time" : "linear", low: time ? Math.min(low, 0) : low - room, high: high + room, whole };
}

/**
 * @param {Domain} domain
 * @param {number} from the pixel of the lowest value, or of the first name
 * @param {number} to
 * @returns {Scale}
 */
export function scale(domain, from, to) {
  if (domain.kind === "names") return namesScale(domain, from, to);
  const { kind, low, high } = domain;
  const forth = kind === "log" ? Math.log : (/** @type {number} */ value) => value;
  const undo = kind === "log" ? Math.exp : (/** @type {number} */ value) => value;
  const start = forth(low);
  const factor = (to - from) / (forth(high) - start || 1);
  const at = (/** @type {any} */ value) =>
    typeof value === "number" ? from + (forth(value) - start) * factor : NaN;
  return {
    domain,
    at,
    back: (pixel) => undo(start + (pixel - from) / factor),
    ticks: (count) =>
      tickValues(domain, count).map((value) => ({
        value, at: at(value), text: kind === "time" ? spanText(value) : numberText(value),
      })),
  };
}

/** @returns {Scale} */
function namesScale(/** @type {{kind: "names", names: string[]}} */ domain, /** @type {number} */ from, /** @type {number} */ to) {
  const places = new Map(domain.names.map((name, index) => [name, index]));
  const width = (to - from) / Math.max(1, domain.names.length);
  const at = (/** @type {any} */ value) => {
    const place = places.get(nameOf(value));
    return place === undefined ? NaN : from + (place + 0.5) * width;
  };
  return {
    domain,
    at,
    back: (pixel) => domain.names[Math.max(0, Math.min(domain.names.length - 1, Math.floor((pixel - from) / width)))],
    ticks: (count) => {
      const every = Math.ceil(domain.names.length / Math.max(1, count));
      return domain.names.flatMap((name, index) =>
        index % every ? [] : [{ value: name, at: from + (index + 0.5) * width, text: name }],
      );
    },
  };
}

const SPANS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];

/** @returns {number[]} */
function tickValues(/** @type {{kind: string, low: number, high: number, whole?: boolean}} */ { kind, low, high, whole }, /** @type {number} */ count) {
  if (kind === "log") {
    const decades = Math.log10(high / low);
    if (decades >= 1) {
      const every = Math.max(1, Math.ceil(decades / count));
      const found = [];
      for (let power = Math.ceil(Math.log10(low) - 1e-9); power <= Math.log10(high) + 1e-9; power++)
        if (power % every === 0) found.push(10 ** power);
      if (found.length > 1) return found;
    }
  }
  const rough = (high - low) / Math.max(1, count);
  let step = 10 ** Math.floor(Math.log10(rough || 1));
  step *= [1, 2, 5, 10].find((times) => step * times >= rough) ?? 10;
  if (kind === "time" && rough > 0.5) step = SPANS.find((span) => span >= rough) ?? Math.ceil(rough / 86400) * 86400;
  if (whole) step = Math.max(1, Math.round(step));
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9 && found.length < 50; value += step)
    found.push(Math.abs(value) < step * 1e-9 ? 0 : value);
  return found;
}

/** A number as short as an axis needs it. */
export function numberText(/** @type {number} */ value) {
  const size = Math.abs(value);
  if (size && (size >= 1e5 || size < 1e-3)) return value.toExponential(2).replace(/\.?0+e/, "e").replace("e+", "e");
  return String(+value.toPrecision(4));
}

/** A length of time in its largest fitting unit. */
export function spanText(/** @type {number} */ seconds) {
  if (seconds === 0) return "0";
  const units = /** @type {[number, string][]} */ ([[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]]);
  const [size, unit] = units.find(([one]) => Math.abs(seconds) >= one) ?? [0.001, "ms"];
  return `${+(seconds / size).toFixed(1)} ${unit}`;
}

/**
 * Lines and numbers of both axes around a box.
 * @param {CanvasRenderingContext2D} context
 * @param {{left: number, top: number, right: number, bottom: number}} box in pixels
 * @param {{ink: string, muted: string, grid: string, font: string}} ink
 */
export function drawAxes(context, box, /** @type {Scale} */ across, /** @type {Scale} */ up, ink, { xLabel = "", yLabel = "" } = {}) {
  context.font = ink.font;
  context.strokeStyle = ink.grid;
  context.fillStyle = ink.muted;
  context.lineWidth = 1;
  context.beginPath();
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const tick of up.ticks(Math.max(2, Math.floor((box.bottom - box.top) / 38)))) {
    if (tick.at < box.top - 0.5 || tick.at > box.bottom + 0.5) continue;
    const y = Math.round(tick.at) + 0.5;
    context.moveTo(box.left, y);
    context.lineTo(box.right, y);
    context.fillText(clip(tick.text, 9), box.left - 6, tick.at);
  }
  context.textAlign = "center";
  context.textBaseline = "top";
  const room = (box.right - box.left) / Math.max(1, across.domain.kind === "names" ? across.domain.names.length : 1);
  const letters = across.domain.kind === "names" ? Math.max(3, Math.floor(room / 6)) : 12;
  let free = -Infinity;
  for (const tick of across.ticks(Math.max(2, Math.floor((box.right - box.left) / 70)))) {
    if (tick.at < box.left - 0.5 || tick.at > box.right + 0.5) continue;
    const x = Math.round(tick.at) + 0.5;
    context.moveTo(x, box.bottom);
    context.lineTo(x, box.bottom + 4);
    const text = clip(tick.text, letters);
    const half = context.measureText(text).width / 2;
    if (tick.at - half < free) continue;
    free = tick.at + half + 4;
    context.fillText(text, tick.at, box.bottom + 6);
  }
  context.moveTo(box.left, Math.round(box.bottom) + 0.5);
  context.lineTo(box.right, Math.round(box.bottom) + 0.5);
  context.stroke();
  if (xLabel) {
    context.textAlign = "right";
    context.fillText(xLabel, box.right, box.bottom + 20);
  }
  if (yLabel) {
    context.textAlign = "left";
    context.textBaseline = "top";
    context.fillText(yLabel, box.left + 2, 0);
  }
}

/** Text cut to a number of letters, with a sign that it was. */
export function clip(/** @type {string} */ text, /** @type {number} */ letters) {
  return text.length > letters ? `${text.slice(0, Math.max(1, letters - 1))}…` : text;
}
