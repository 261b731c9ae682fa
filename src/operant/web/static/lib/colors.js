// Colours that colour-blind readers can tell apart (Okabe and Ito), and the theme's own tokens.

const LIGHT = ["#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#8C6D00", "#5A4FA2"];
const DARK = ["#4FA8E0", "#F0B030", "#2FC79B", "#F07A30", "#E49CC4", "#8BD0FF", "#F0E442", "#A79CF0"];

// Viridis at eight places; between them colours are mixed linearly.
const VIRIDIS = [
  [68, 1, 84], [70, 50, 127], [54, 92, 141], [39, 127, 142],
  [31, 161, 135], [74, 194, 109], [159, 218, 58], [253, 231, 37],
];

/** @type {Record<string, string>} */
const STATUS = {
  PENDING: "--faint",
  RUNNING: "--blue",
  SILENT: "--orange",
  PAUSED: "--purple",
  FINISHED: "--green",
  STOPPED: "--yellow",
  KILLED: "--vermilion",
  ERROR: "--vermilion",
  CRASHED: "--vermilion",
};

export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/** The i-th line's colour; after eight the colours come again (lines are then told apart by dashes). @param {number} i */
export function palette(i) {
  const colors = isDark() ? DARK : LIGHT;
  return colors[((i % colors.length) + colors.length) % colors.length];
}

/** How the i-th line is dashed, so that the ninth differs from the first. @param {number} i */
export function dashes(i) {
  return [[], [6, 3], [2, 3], [8, 3, 2, 3]][Math.floor(i / LIGHT.length) % 4];
}

/** A CSS variable's value now. @param {string} name */
export function token(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** @param {string} status */
export function statusToken(status) {
  return STATUS[status] ?? "--faint";
}

/** @param {string} status */
export function statusColor(status) {
  return token(statusToken(status));
}

/** A colour of the viridis map. @param {number} t 0…1 */
export function scale(t) {
  const place = Math.min(Math.max(Number.isFinite(t) ? t : 0, 0), 1) * (VIRIDIS.length - 1);
  const at = Math.min(Math.floor(place), VIRIDIS.length - 2);
  const part = place - at;
  const mix = VIRIDIS[at].map((from, channel) => Math.round(from + (VIRIDIS[at + 1][channel] - from) * part));
  return `rgb(${mix[0]}, ${mix[1]}, ${mix[2]})`;
}

/** Be told when light becomes dark or the other way round. @param {() => void} fn @param {AbortSignal} [signal] */
export function onTheme(fn, signal) {
  document.addEventListener("operant:theme", fn, { signal });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", fn, { signal });
}
