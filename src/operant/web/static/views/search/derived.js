// The plots that the server computes: values on the way, importance, contour, regions; fetched while they are looked at.
import { get } from "../../lib/api.js";
import { scale } from "../../lib/colors.js";
import { h, replace } from "../../lib/dom.js";
import { number, percent } from "../../lib/format.js";
import { state } from "../../lib/state.js";
import { drawBars } from "../../charts/bars.js";
import { drawRegions } from "../../charts/regions.js";
import { Contour } from "../../charts/contour.js";
import { Curves } from "../../charts/curves.js";
import { card, refresher, select, toggle } from "./card.js";

/** @typedef {import("../search.js").Page} Page */

const CURVES_EVERY = 2;
const MODELS_EVERY = 5;

/** @param {Page} page */
export function intermediateCard(page) {
  const { model, signal, address } = page;
  const tags = select("Scalar", "tag", signal);
  const { element, body, say } = card({ key: "intermediate", title: "Values on the way", signal, controls: [tags.element, toggle("log", "vlog", signal)] });
  const chart = new Curves(body, { height: 300, label: "What every job reported", xLabel: "step", onOpen: page.open, lines: (id) => model.linesOf(id), signal });
  replace(body, chart.surface.box, h("p", { class: "legend" },
    h("span", { class: "key key-cross" }, "stopped early"), h("span", { class: "key key-muted" }, "running"),
    h("span", { class: "spacer" }), h("span", { class: "key-scale" }, "worst", h("i", { class: "scale-bar", "aria-hidden": "true" }), "best")));
  /** @type {any} */
  let answer = null;
  const again = refresher({ element, say }, CURVES_EVERY, async () => {
    answer = await get(`${address}/intermediate`, { tag: state.get("tag", "") }, signal);
    const first = model.summary.reward_attribute ?? "";
    tags.set(answer.tags, answer.tags.includes(first) ? first : (answer.tags[0] ?? ""));
    draw();
  }, signal);
  let tag = state.get("tag", "");

  function draw() {
    if (!answer) return;
    const colors = model.goodnessColors(model.goodness());
    chart.set(answer.jobs.map((/** @type {any} */ job) => {
      const row = model.rows.get(job.id) ?? -1;
      return {
        id: job.id, steps: job.steps, values: job.values, stopped: job.stopped, running: job.status === "RUNNING",
        color: colors[row] || page.inks().muted, dim: model.isFiltered && !model.selected[row],
      };
    }), { yLabel: answer.tag ?? "", log: state.get("vlog", null) === "1" });
    const stopped = answer.jobs.filter((/** @type {any} */ job) => job.stopped).length;
    say(answer.jobs.length ? `${answer.jobs.length} jobs, ${stopped} stopped early` : "no job has reported anything yet");
  }

  function update(/** @type {{data: boolean}} */ { data }) {
    if (tag !== state.get("tag", "")) {
      tag = state.get("tag", "");
      again.now();
    } else if (data) again.ask();
    draw();
  }
  return { element, update };
}

/** @param {Page} page */
export function importanceCard(page) {
  const { model, signal, address } = page;
  const { element, body, say } = card({ key: "importance", title: "Importance", signal });
  body.classList.add("importance");
  replace(body, h("p", { class: "muted" }, "Being computed…"));
  let ended = -1;
  const again = refresher({ element, say }, MODELS_EVERY, async () => {
    const answer = await get(`${address}/importance`, {}, signal);
    if (!answer.names.length) {
      replace(body, h("p", { class: "muted" }, answer.note ?? "Importance is known once a few jobs have ended."));
      return;
    }
    const rows = answer.names.map((/** @type {string} */ name, /** @type {number} */ index) => ({ name, part: answer.importance[index] ?? 0, text: percent(answer.importance[index] ?? 0) }));
    rows.sort((/** @type {any} */ one, /** @type {any} */ other) => other.part - one.part);
    drawBars(body, { label: "Importance of each setting for the reward", rows });
    if (answer.note) body.append(h("p", { class: "faint small" }, answer.note));
    say(`from ${answer.trials} jobs`);
    page.importance(rows.map((/** @type {any} */ row) => row.name));
  }, signal);

  function update() {
    if (model.ended === ended) return;
    ended = model.ended;
    again.ask();
  }
  return { element, update };
}

/** The regions that LA-MCTS has learnt. @param {Page} page */
export function treeCard(page) {
  const { model, signal, address } = page;
  const { element, body, say } = card({ key: "tree", title: "Regions", signal });
  let ended = -1;
  const again = refresher({ element, say }, MODELS_EVERY, async () => {
    const { nodes } = await get(`${address}/tree`, {}, signal);
    const sign = model.summary.maximize ? 1 : -1;
    drawRegions(body, { label: "Regions of the space by level, as wide as they have samples", nodes, color: scale, text: (value) => number(sign * value) });
    const leaves = nodes.filter((/** @type {any} */ node) => node.leaf).length;
    say(nodes.length ? `${leaves} regions of ${nodes[0].count} samples; outlined: the path of the newest proposal` : "fewer than two jobs have ended");
  }, signal);

  function update() {
    if (model.ended === ended) return;
    ended = model.ended;
    again.ask();
  }
  return { element, update };
}

/** @param {Page} page */
export function contourCard(page) {
  const { model, signal, address } = page;
  const across = select("x", "cx", signal);
  const up = select("y", "cy", signal);
  const { element, body, say } = card({ key: "contour", title: "Contour", signal, controls: [across.element, up.element] });
  const chart = new Contour(body, {
    height: 320, label: "Reward over two settings", color: scale, maximize: () => model.summary.maximize,
    onOpen: page.open, lines: (id) => model.linesOf(id), signal,
  });
  /** @type {any} */
  let answer = null;
  /** @type {string[]} the most important first, once that is known */
  let order = [];
  let ended = -1;
  let asked = "";
  const again = refresher({ element, say }, MODELS_EVERY, async () => {
    const [x, y] = [across.value(), up.value()];
    if (!x || !y || x === y) return;
    answer = await get(`${address}/contour`, { x, y }, signal);
    draw();
  }, signal);

  function draw() {
    if (!answer) return;
    const chosen = model.isFiltered ? new Set(model.jobs.id.filter((_, row) => model.selected[row])) : null;
    chart.set(answer, chosen);
  }

  function update() {
    const names = model.axes.map((axis) => axis.name);
    const first = [...order.filter((name) => names.includes(name)), ...names.filter((name) => !order.includes(name))];
    if (names.length < 2) {
      say("a contour needs two settings");
      return;
    }
    const x = state.get("cx", first[0]);
    across.set(names, first[0]);
    up.set(names.filter((name) => name !== x), first[1] === x ? first[0] : first[1]);
    const now = `${across.value()} ${up.value()}`;
    if (now !== asked) {
      asked = now;
      again.now();
    } else if (model.ended !== ended) again.ask();
    ended = model.ended;
    draw();
  }

  return { element, update, /** Start with the two that matter most. */ prefer(/** @type {string[]} */ names) { order = names; update(); } };
}
