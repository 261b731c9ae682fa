// Histograms: one card for each tag, a slider over its steps.
import { h, on, quiet, replace, svg } from "../../lib/dom.js";
import { emptyState } from "../../lib/empty.js";
import { number } from "../../lib/format.js";
import { state } from "../../lib/state.js";

const WIDTH = 360;
const HEIGHT = 150;

/** @param {any} one */
function bars(one) {
  const edges = one.edges.map(Number);
  const low = edges[0];
  const span = edges[edges.length - 1] - low || 1;
  const most = Math.max(...one.counts, 1);
  const x = (/** @type {number} */ edge) => ((edge - low) / span) * WIDTH;
  return svg("svg", { class: "histogram", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `${one.tag} at step ${one.step}: ${one.counts.length} bins from ${number(low)} to ${number(low + span)}` },
    one.counts.map((/** @type {number} */ count, /** @type {number} */ i) => svg("rect", {
      x: x(edges[i]), width: Math.max(0.5, x(edges[i + 1]) - x(edges[i]) - 0.6), y: HEIGHT - (count / most) * HEIGHT, height: (count / most) * HEIGHT,
    }, svg("title", null, `${number(edges[i])} … ${number(edges[i + 1])}: ${count}`))));
}

/** @param {HTMLElement} panel @param {{run: any, signal: AbortSignal}} context */
export function showDistributions(panel, { run, signal }) {
  if (!run.histograms.length) {
    panel.append(emptyState("No distributions", "A program records how values are distributed with one call:", "writer.add_histogram(\"weights\", values, step)"));
    return;
  }
  /** @type {Map<string, any[]>} */
  const byTag = new Map();
  for (const one of run.histograms) byTag.set(one.tag, [...(byTag.get(one.tag) ?? []), one]);
  panel.append(h("div", { class: "grid" }, [...byTag].map(([tag, items]) => {
    items.sort((a, b) => a.step - b.step);
    const name = `at.${tag}`;
    const stage = h("div", { class: "histogram-stage" });
    const about = h("span", { class: "muted small" });
    const ends = h("div", { class: "row faint small" });
    const wanted = items.findIndex((one) => String(one.step) === state.get(name, ""));
    const slider = h("input", { type: "range", min: "0", max: String(items.length - 1), value: String(wanted < 0 ? items.length - 1 : wanted), "aria-label": `Step of ${tag}`, disabled: items.length < 2 });
    const keep = quiet((/** @type {number} */ at) => state.set({ [name]: at === items.length - 1 ? null : items[at].step }), 200);
    const show = () => {
      const one = items[Number(slider.value)];
      replace(stage, bars(one));
      about.textContent = `step ${one.step}`;
      replace(ends, number(Number(one.edges[0])), h("span", { class: "spacer" }), number(Number(one.edges[one.edges.length - 1])));
    };
    on(slider, "input", () => {
      show();
      keep(Number(slider.value));
    }, signal);
    show();
    return h("section", { class: "card" }, h("div", { class: "card-head" }, h("h3", null, tag), h("span", { class: "spacer" }), about),
      h("div", { class: "card-body" }, stage, ends, slider));
  })));
}
