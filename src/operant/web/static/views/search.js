// One search: a page that is read from its journal and stays live while it runs.
import { get, stream } from "../lib/api.js";
import { onTheme } from "../lib/colors.js";
import { h, perFrame, quiet, replace } from "../lib/dom.js";
import { go, runLink, state } from "../lib/state.js";
import { inks } from "../charts/canvas.js";
import { bestCard, noteCard } from "./search/best.js";
import { contourCard, importanceCard, intermediateCard, treeCard } from "./search/derived.js";
import { head, strip } from "./search/head.js";
import { jobsCard } from "./search/jobs.js";
import { SearchModel } from "./search/model.js";
import { historyCard, parallelCard, slicesCard, timelineCard } from "./search/plots.js";
import { logCard, yamlCard } from "./search/texts.js";

/**
 * @typedef {{element: HTMLElement, update: (what: {data: boolean}) => void}} Part
 * @typedef {{name: string, address: string, model: SearchModel, signal: AbortSignal, open: (job: string) => void,
 *   selected: () => void, importance: (names: string[]) => void, inks: () => ReturnType<typeof inks>}} Page
 */

const MANY_JOBS = 2000;
const REST_MS = 150;

/** @param {HTMLElement} main @param {{path: string, signal: AbortSignal}} context */
export async function show(main, { path, signal }) {
  const name = decodeURIComponent(path.split("/")[2]);
  const address = `/api/searches/${encodeURIComponent(name)}`;
  document.title = `${name} · Operant`;
  const [data, overview] = await Promise.all([get(address, {}, signal), get("/api/overview", {}, signal)]);
  const model = new SearchModel(data);
  model.clockAhead = overview.now - Date.now() / 1000;

  /** @type {Page} */
  const page = {
    name, address, model, signal,
    open: (job) => go(runLink(`${name}/${job}`)),
    selected: () => selection(),
    importance: (names) => contour.prefer(names),
    inks: () => inks(parallel.element),
  };
  const history = historyCard(page);
  const parallel = parallelCard(page);
  const contour = contourCard(page);
  const best = bestCard(page);
  const jobs = jobsCard(page);
  const tree = data.has_tree ? treeCard(page) : null;
  /** @type {Part[]} */
  const others = [
    head(page), strip(page), history, best, jobs, intermediateCard(page), importanceCard(page), slicesCard(page),
    contour, timelineCard(page), noteCard(page), yamlCard(page), logCard(page),
  ];
  const [top, counts, , , , intermediate, importance, slices, , timeline, note, yaml, log] = others;
  if (tree) others.push(tree);
  replace(main, h("div", { class: "search-page" },
    top.element, counts.element,
    h("div", { class: "columns two-one" }, history.element, best.element),
    parallel.element, jobs.element,
    h("div", { class: "columns two-one" }, intermediate.element, importance.element),
    slices.element,
    h("div", { class: "columns even" }, contour.element, timeline.element),
    tree?.element ?? null,
    h("div", { class: "columns two-one" }, log.element, note.element),
    yaml.element));

  const update = (/** @type {boolean} */ data) => {
    parallel.update({ data });
    for (const part of others) part.update({ data });
  };
  // Under the pointer only the lines follow at once; the rest when it pauses.
  const rest = quiet(() => { for (const part of others) part.update({ data: false }); }, REST_MS);
  const selection = perFrame(() => {
    model.select();
    parallel.update({ data: false });
    rest();
  });

  update(true);
  state.subscribe(selection, signal);
  onTheme(() => update(true), signal);
  follow(model, { search: name, after: data.cursor }, signal, () => update(true));
}

/**
 * Events may come by the hundred; the page is drawn a few times a second at most, and not while it is hidden.
 * @param {SearchModel} model @param {{search: string, after: string}} from @param {AbortSignal} signal @param {() => void} changed
 */
function follow(model, from, signal, changed) {
  let timer = 0;
  const soon = () => {
    if (timer || document.hidden) return;
    timer = window.setTimeout(() => {
      timer = 0;
      changed();
    }, model.count > MANY_JOBS ? 1000 : 250);
  };
  document.addEventListener("visibilitychange", soon, { signal });
  stream(from, {
    search: (event) => {
      model.merge(event);
      soon();
    },
  }, signal);
  // Running jobs grow in the timeline also while nothing happens.
  const clock = setInterval(() => { if (model.isLive) soon(); }, 1000);
  signal.addEventListener("abort", () => {
    clearInterval(clock);
    clearTimeout(timer);
  });
}
