// What all charts of a page share: x axis, smoothing, log scale, grouping, zoom. It all stands in the URL.
import { h, on, quiet, replace } from "../lib/dom.js";
import { state } from "../lib/state.js";

/** @typedef {"step" | "wall" | "relative"} XKind */
/** @typedef {{x: XKind, smoothing: number, log: boolean, group: string | null, find: string, zoom: [number, number] | null, folded: Set<string>}} ChartState */

/** @returns {ChartState} */
export function readChartState() {
  const x = state.get("x", "step");
  const smoothing = Number(state.get("smooth", "0"));
  const zoom = state.list("zoom").map(Number);
  return {
    x: x === "wall" || x === "relative" ? x : "step",
    smoothing: smoothing > 0 && smoothing < 1 ? smoothing : 0,
    log: state.get("log") === "1",
    group: state.get("group"),
    find: state.get("find", ""),
    zoom: zoom.length === 2 && zoom.every(Number.isFinite) && zoom[0] < zoom[1] ? [zoom[0], zoom[1]] : null,
    folded: new Set(state.list("fold")),
  };
}

/** A zoom that a link can carry: nine digits are finer than any bucket. @param {[number, number] | null} range */
export function writeZoom(range) {
  state.set({ zoom: range?.map((one) => Number(one.toPrecision(12))) }, { push: true });
}

/**
 * @param {string} label @param {Array<[string, string]>} choices @param {string} chosen @param {(value: string) => void} choose
 * @returns {HTMLElement}
 */
export function segmented(label, choices, chosen, choose) {
  const holder = h("span", { class: "segmented", role: "radiogroup", "aria-label": label });
  const buttons = choices.map(([value, title]) => h("button", {
    type: "button", role: "radio", "aria-checked": String(value === chosen), tabindex: value === chosen ? "0" : "-1",
    dataset: { value }, onclick: () => choose(value),
  }, title));
  holder.append(...buttons);
  on(holder, "keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[/** @type {string} */ (event.key)];
    if (!step) return;
    event.preventDefault();
    const now = choices.findIndex(([value]) => value === chosen);
    const next = (now + step + choices.length) % choices.length;
    choose(choices[next][0]);
    /** @type {HTMLElement | null} */ (document.querySelector(`[aria-label="${label}"] [data-value="${choices[next][0]}"]`))?.focus();
  });
  return holder;
}

/**
 * @param {Element} parent
 * @param {{signal: AbortSignal, groups?: () => string[], onSmoothing: (weight: number) => void}} options
 */
export function ChartToolbar(parent, options) {
  const bar = h("div", { class: "chart-bar row", role: "group", "aria-label": "How charts are drawn" });
  parent.append(bar);
  const first = readChartState();
  const slider = h("input", { type: "range", min: "0", max: "0.99", step: "0.01", value: String(first.smoothing), "aria-label": "Smoothing" });
  const amount = h("output", { class: "mono" }, first.smoothing.toFixed(2));
  const find = h("input", { type: "search", value: first.find, placeholder: "Find charts", "aria-label": "Find charts by name" });
  const keep = quiet((/** @type {string} */ value) => state.set({ smooth: Number(value) || null }), 250);
  const keepFind = quiet((/** @type {string} */ value) => state.set({ find: value.trim() || null }), 200);
  on(slider, "input", () => {
    amount.textContent = Number(slider.value).toFixed(2);
    options.onSmoothing(Number(slider.value));
    keep(slider.value);
  });
  on(find, "input", () => keepFind(find.value));
  const axis = h("span", null);
  const log = h("button", { type: "button", class: "button", onclick: () => state.set({ log: readChartState().log ? null : "1" }) }, "Log scale");
  const group = h("select", { "aria-label": "Group runs by a setting", onchange: () => state.set({ group: group.value || null }) });
  const reset = h("button", { type: "button", class: "button", onclick: () => writeZoom(null) }, "Reset zoom");
  bar.append(find, axis, h("label", { class: "field" }, "Smoothing", slider, amount), log,
    ...(options.groups ? [h("label", { class: "field" }, "Group by", group)] : []), reset);

  function draw() {
    const now = readChartState();
    replace(axis, segmented("X axis", [["step", "Step"], ["relative", "Relative"], ["wall", "Wall"]], now.x,
      (value) => state.set({ x: value === "step" ? null : value, zoom: null })));
    log.setAttribute("aria-pressed", String(now.log));
    reset.disabled = !now.zoom;
    if (document.activeElement !== slider) {
      slider.value = String(now.smoothing);
      amount.textContent = now.smoothing.toFixed(2);
    }
    if (document.activeElement !== find) find.value = now.find;
    const names = options.groups?.() ?? [];
    if (now.group && !names.includes(now.group)) names.push(now.group);
    replace(group, h("option", { value: "" }, "nothing"), names.map((name) => h("option", { value: name }, name)));
    group.value = now.group ?? "";
  }

  state.subscribe(draw, options.signal);
  draw();
  return { draw };
}
