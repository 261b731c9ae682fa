// Numbers, times and sizes as people read them.

const MINUS = "−";

/** Four significant digits, no noise; what is absent is a dash. @param {unknown} value @param {number} [digits] */
export function number(value, digits = 4) {
  if (value === null || value === undefined || value === "") return "–";
  if (value === "Infinity" || value === Infinity) return "∞";
  if (value === "-Infinity" || value === -Infinity) return `${MINUS}∞`;
  if (typeof value !== "number") return String(value);
  if (Number.isNaN(value)) return "NaN";
  if (value === 0) return "0";
  const size = Math.abs(value);
  let text;
  if (Number.isInteger(value) && size < 1e7) text = String(value);
  else if (size >= 1e7 || size < 1e-4) text = value.toExponential(digits - 1).replace(/\.?0+e/, "e").replace("e+", "e");
  else text = String(Number(value.toPrecision(digits)));
  return text.replace("-", MINUS).replace("e-", `e${MINUS}`);
}

/** A recorded setting: numbers as such, text as text, the rest as JSON. @param {unknown} value */
export function setting(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "number") return number(value, 6);
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** The same where a column is narrow: four digits, so that no exponent is cut off. @param {unknown} value */
export function shortSetting(value) {
  return typeof value === "number" ? number(value) : setting(value);
}

/** Names in order, those of the machine and of the clock last: they are rarely what one looks for. @param {string[]} tags */
export function tagOrder(tags) {
  const late = (/** @type {string} */ tag) => Number(isUpkeep(tag));
  return [...tags].sort((a, b) => late(a) - late(b) || a.localeCompare(b));
}

/** Whether a tag is about the machine or the clock. @param {string} tag */
export function isUpkeep(tag) {
  return tag.startsWith("system/") || tag.startsWith("time/");
}

/** What a run is called: a job by its search and number, since all programs of a search have one name. @param {{id: string, name: string}} run */
export function runName(run) {
  return run.id.includes("/") ? run.id : run.name || run.id;
}

/** Two units at most: `850 ms`, `12.3 s`, `4m 05s`, `3h 07m`, `2d 4h`. @param {number | null | undefined} seconds @returns {string} */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  if (seconds < 0) return MINUS + duration(-seconds);
  const short = (/** @type {number} */ n) => (n < 10 ? n.toFixed(1).replace(/\.0$/, "") : String(Math.round(n)));
  if (seconds < 1e-3) return seconds === 0 ? "0 s" : `${short(seconds * 1e6)} µs`;
  if (seconds < 1) return `${short(seconds * 1000)} ms`;
  if (seconds < 60) return `${short(seconds)} s`;
  const whole = Math.round(seconds);
  const two = (/** @type {number} */ n) => String(n).padStart(2, "0");
  if (whole < 3600) return `${Math.floor(whole / 60)}m ${two(whole % 60)}s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)}h ${two(Math.floor((whole % 3600) / 60))}m`;
  return `${Math.floor(whole / 86400)}d ${Math.floor((whole % 86400) / 3600)}h`;
}

/** @param {number | null | undefined} wall seconds since 1970 @param {number} [now] */
export function ago(wall, now = Date.now() / 1000) {
  if (!wall) return "–";
  const past = now - wall;
  if (past < 5) return "just now";
  return past < 60 ? `${Math.round(past)} s ago` : `${duration(past).split(" ")[0]} ago`;
}

/** The full local time. @param {number | null | undefined} wall */
export function clock(wall) {
  if (!wall) return "–";
  const at = new Date(wall * 1000);
  const two = (/** @type {number} */ n) => String(n).padStart(2, "0");
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

/** @param {number | null | undefined} share 0…1 */
export function percent(share) {
  if (share === null || share === undefined || !Number.isFinite(share)) return "–";
  const value = share * 100;
  return `${value !== 0 && Math.abs(value) < 10 ? value.toFixed(1) : Math.round(value)} %`;
}

/** @param {number | null | undefined} count */
export function bytes(count) {
  if (count === null || count === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  let value = count;
  while (value >= 1024 && at < units.length - 1) {
    value /= 1024;
    at += 1;
  }
  return `${at === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[at]}`;
}
