// Groups of trainings over seeds, as experiments are judged: interquartile means and who is better how surely.
import { get } from "../../lib/api.js";
import { h, replace } from "../../lib/dom.js";
import { number } from "../../lib/format.js";
import { state } from "../../lib/state.js";
import { segmented } from "../../charts/toolbar.js";

/** @param {[number, number, number]} found */
const withInterval = ([middle, low, high]) => `${number(middle, 3)} [${number(low, 3)}, ${number(high, 3)}]`;

/** @param {HTMLElement} parent @param {AbortSignal} signal */
export function Scores(parent, signal) {
  let drawn = "";
  return {
    /** @param {any[]} rows */
    async draw(rows) {
      const judged = state.get("judged") === "best" ? "best" : "last";
      const now = JSON.stringify([judged, rows.map((row) => [row.id, row.status])]);
      if (now === drawn) return;
      drawn = now;
      const asked = { runs: rows.map((row) => row.id).join(","), judged };
      const choice = segmented("Evaluation that counts", [["last", "Last"], ["best", "Best"]], judged, (value) => state.set({ judged: value === "last" ? null : value }));
      const head = h("div", { class: "card-head" }, h("h2", null, "Scores over seeds"), h("span", { class: "muted small" }, "95 % bootstrap intervals"), h("span", { class: "spacer" }), choice);
      try {
        const { groups, ranges } = await get("/api/scores", asked, signal);
        if (drawn === now) replace(parent, head, table(groups), scale(ranges), unfinished(groups), mixed(groups), picture(groups, asked));
      } catch (error) {
        if (!signal.aborted && drawn === now) replace(parent, head, h("p", { class: "muted", role: "status" }, /** @type {Error} */ (error).message));
      }
    },
  };
}

/** @param {any[]} groups */
function table(groups) {
  const title = (/** @type {string} */ text) => h("th", { scope: "col" }, text);
  return h("table", { class: "plain-table", "aria-label": "Scores over seeds" },
    h("thead", null, h("tr", null, title("Group"), title("Runs"), title("Interquartile mean"), title(`Better than ${groups[0].group}`))),
    h("tbody", null, groups.map((one) => h("tr", null,
      h("td", null, one.group), h("td", null, String(one.runs)), h("td", null, withInterval(one.iqm)), h("td", null, one.better ? withInterval(one.better) : "")))));
}

/** @param {Record<string, [number, number]>} ranges */
function scale(ranges) {
  const scaled = Object.entries(ranges).filter(([, [low, high]]) => low !== 0 || high !== 1);
  return scaled.length ? h("p", { class: "muted small" }, `0 to 1 is ${scaled.map(([task, [low, high]]) => `${task} ${number(low)} to ${number(high)}`).join(", ")}`) : null;
}

/** @param {any[]} groups */
function unfinished(groups) {
  const told = groups.filter((one) => one.unfinished).map((one) => `${one.group}: ${one.unfinished}`);
  return told.length ? h("p", { class: "small", role: "status" }, `Not counted, seeds that did not finish: ${told.join("; ")}`) : null;
}

/** @param {any[]} groups */
function mixed(groups) {
  const told = groups.filter((one) => one.mixed.length).map((one) => `${one.group} differ in ${one.mixed.join(", ")}`);
  return told.length ? h("p", { class: "small", role: "status" }, `Not of one kind: runs of ${told.join("; runs of ")}`) : null;
}

/** @param {any[]} groups @param {Record<string, string>} asked */
function picture(groups, asked) {
  const names = groups.map((one) => one.group).join(", ");
  return h("img", { class: "score-picture", alt: `Interquartile means, performance profiles and sample efficiency of ${names}`, src: `/api/scores/picture?${new URLSearchParams(asked)}` });
}
