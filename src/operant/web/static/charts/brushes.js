/** What is chosen on the axes of parallel coordinates: ranges of numbers, or names; kept as text in the address. */

import { nameOf } from "./scales.js";

/** @typedef {{ranges: [number, number][]} | {names: string[]}} Brush */

/** A name as it can stand in a list in the address: the signs that the list itself uses are escaped. */
function escapeName(/** @type {string} */ name) {
  return name.replace(/[%;:|~"]/g, (sign) => `%${sign.charCodeAt(0).toString(16)}`);
}

/** The other way; what cannot be read stays as it is, for an address may be typed by hand. */
function unescapeName(/** @type {string} */ text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** As `lr:0.001~0.01|0.1~0.2;act:"relu|"tanh`: ranges, or names with a quote before each. */
export function brushesToText(/** @type {Map<string, Brush>} */ brushes) {
  return [...brushes]
    .map(([axis, brush]) => {
      const parts = "ranges" in brush
        ? brush.ranges.map(([low, high]) => `${+low.toPrecision(6)}~${+high.toPrecision(6)}`)
        : brush.names.map((name) => `"${escapeName(name)}`);
      return `${escapeName(axis)}:${parts.join("|")}`;
    })
    .join(";");
}

/** What cannot be read is left out. */
export function brushesFromText(/** @type {string} */ text) {
  /** @type {Map<string, Brush>} */
  const found = new Map();
  for (const part of text ? text.split(";") : []) {
    const colon = part.indexOf(":");
    if (colon < 1) continue;
    const axis = unescapeName(part.slice(0, colon));
    const pieces = part.slice(colon + 1).split("|").filter(Boolean);
    const names = pieces.filter((piece) => piece[0] === '"').map((piece) => unescapeName(piece.slice(1)));
    const ranges = pieces
      .filter((piece) => piece[0] !== '"')
      .map((piece) => /** @type {[number, number]} */ (piece.split("~").map(Number)))
      .filter(([low, high]) => low <= high);
    if (names.length) found.set(axis, { names });
    else if (ranges.length) found.set(axis, { ranges });
  }
  return found;
}

/**
 * Which rows lie within every brush: 1 or 0 for each.
 * @param {Map<string, Brush>} brushes
 * @param {(axis: string) => ArrayLike<any> | undefined} column
 */
export function inside(brushes, column, /** @type {number} */ count) {
  const chosen = new Uint8Array(count).fill(1);
  for (const [axis, brush] of brushes) {
    const values = column(axis);
    if (!values) continue;
    if ("names" in brush) {
      const names = new Set(brush.names);
      for (let row = 0; row < count; row++)
        if (chosen[row] && (values[row] === null || values[row] === undefined || !names.has(nameOf(values[row])))) chosen[row] = 0;
    } else {
      for (let row = 0; row < count; row++) {
        if (!chosen[row]) continue;
        const value = values[row];
        chosen[row] = typeof value === "number" && brush.ranges.some(([low, high]) => value >= low && value <= high) ? 1 : 0;
      }
    }
  }
  return chosen;
}
