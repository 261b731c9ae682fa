// The runs of a compare: colour, name, status, an eye to hide it.
import { dashes, onTheme, palette, statusColor } from "../../lib/colors.js";
import { h, on, replace, svg } from "../../lib/dom.js";
import { runLink } from "../../lib/state.js";

/** @param {number} index */
function swatch(index) {
  return svg("svg", { class: "swatch", viewBox: "0 0 18 8", "aria-hidden": "true" },
    svg("line", { x1: 0, y1: 4, x2: 18, y2: 4, stroke: palette(index), "stroke-width": 3, "stroke-dasharray": dashes(index).join(" ") || null }));
}

/**
 * @param {HTMLElement} parent
 * @param {{signal: AbortSignal, onHover: (run: string | null) => void, onHide: (hidden: Set<string>) => void, onRemove: ((run: string) => void) | null}} options
 */
export function RunList(parent, options) {
  const find = h("input", { type: "search", placeholder: "Find runs", "aria-label": "Find runs in the list" });
  const all = h("button", { type: "button", class: "button small quiet" }, "Hide all");
  const items = h("ul", { class: "run-items" });
  parent.append(h("div", { class: "run-side-head row" }, find, all), items);
  /** @type {any[]} */
  let rows = [];
  let labels = new Map();
  let hidden = new Set();
  let places = new Map();

  function fill() {
    const wanted = find.value.trim().toLowerCase();
    const held = /** @type {HTMLElement | null} */ (document.activeElement)?.closest?.("li[data-run]");
    const heldRun = held instanceof HTMLElement && items.contains(held) ? held.dataset.run : null;
    const scroll = items.scrollTop;
    replace(items, rows.map((row) => {
      const label = labels.get(row.id) ?? row.id;
      if (wanted && !`${label} ${row.id} ${row.tags.join(" ")}`.toLowerCase().includes(wanted)) return null;
      const off = hidden.has(row.id);
      return h("li", { dataset: { run: row.id }, class: off && "is-off" },
        h("button", { type: "button", class: "eye", "aria-pressed": String(!off), "aria-label": `${off ? "Show" : "Hide"} ${label}`, onclick: () => toggle(row.id) }, off ? "○" : "●"),
        swatch(places.get(row.id) ?? 0),
        h("a", { href: runLink(row.id), title: row.id }, label),
        h("i", { class: ["state-dot", row.status === "RUNNING" && "is-running"], role: "img", title: row.status.toLowerCase(), "aria-label": row.status.toLowerCase(), style: { background: statusColor(row.status) } }),
        options.onRemove ? h("button", { type: "button", class: "cross", "aria-label": `Take ${label} out`, onclick: () => options.onRemove?.(row.id) }, "×") : null);
    }));
    items.scrollTop = scroll;
    if (heldRun) /** @type {HTMLElement | null} */ ([...items.children].find((one) => /** @type {HTMLElement} */ (one).dataset.run === heldRun)?.querySelector("button"))?.focus();
    all.textContent = rows.length && hidden.size >= rows.length ? "Show all" : "Hide all";
  }

  /** @param {string} id */
  function toggle(id) {
    const next = new Set(hidden);
    if (!next.delete(id)) next.add(id);
    options.onHide(next);
  }

  on(find, "input", fill);
  on(all, "click", () => options.onHide(hidden.size >= rows.length ? new Set() : new Set(rows.map((row) => row.id))));
  on(items, "pointerover", (event) => options.onHover(event.target.closest("li[data-run]")?.dataset.run ?? null));
  on(items, "pointerleave", () => options.onHover(null));
  onTheme(fill, options.signal);

  return {
    /** @param {any[]} nextRows @param {Map<string, string>} nextLabels @param {Set<string>} nextHidden @param {Map<string, number>} nextPlaces of their colours */
    draw(nextRows, nextLabels, nextHidden, nextPlaces) {
      [rows, labels, hidden, places] = [nextRows, nextLabels, nextHidden, nextPlaces];
      fill();
    },
    /** The run under the chart's cursor. @param {string | null} run */
    focus(run) {
      for (const item of items.children) item.classList.toggle("is-focus", run !== null && /** @type {HTMLElement} */ (item).dataset.run === run);
    },
  };
}
