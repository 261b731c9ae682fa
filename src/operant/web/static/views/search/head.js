// The top of a search: its name and status, what can be asked of it, and the strip of counts.
import { post } from "../../lib/api.js";
import { h, replace } from "../../lib/dom.js";
import { ago, clock, duration, percent } from "../../lib/format.js";
import { attempt, notice } from "../../lib/notice.js";
import { statusChip } from "../../lib/status.js";
import { confirm } from "./confirm.js";

/** @typedef {import("../search.js").Page} Page */

const COUNTS = [
  ["defined", "jobs that the search has asked for"],
  ["waiting", "jobs that wait for a place"],
  ["running", "jobs under way"],
  ["finished", "jobs that have ended, however they did"],
  ["success", "jobs that ended well, or were stopped early with a reward"],
  ["abnormal", "jobs that failed or were killed"],
];

/** @param {Page} page */
export function head(page) {
  const { model, address } = page;
  const status = h("span", { class: "search-status" });
  const tags = h("span", { class: "row search-tags" });
  const pause = h("button", { type: "button", class: "button", onclick: () => ask(isPaused() ? "resume" : "pause") });
  const stop = h("button", { type: "button", class: "button danger", "data-action": "stop-search", onclick: stopSearch }, "Stop search");
  const element = h("div", { class: "page-head" },
    h("h1", null, h("a", { href: "/searches", class: "faint" }, "Searches"), h("span", { class: "faint" }, " / "), page.name),
    status, tags, h("span", { class: "spacer" }),
    h("a", { class: "button", href: `/compare/${encodeURIComponent(`search:${page.name}`)}` }, "Compare runs"), pause, stop);

  const isPaused = () => model.summary.status === "PAUSED";

  async function ask(/** @type {string} */ what) {
    const done = await attempt(() => post(`${address}/${what}`));
    if (done) notice(what === "stop" ? "The search was asked to stop." : `The search was asked to ${what}.`);
  }

  async function stopSearch() {
    const running = model.summary.counts.running;
    const sure = await confirm({
      title: `Stop the search ${page.name}?`,
      text: `${running === 1 ? "One running job is" : `${running} running jobs are`} killed, and no new one starts. What has ended stays.`,
      yes: "Stop the search",
    });
    if (sure) await ask("stop");
  }

  let shown = "";
  function update() {
    const { summary } = model;
    const now = JSON.stringify([summary.status, summary.tags, summary.damage]);
    if (now === shown) return;
    shown = now;
    replace(status, statusChip(summary.status), summary.damage ? h("span", { class: "is-abnormal small", role: "alert" }, summary.damage) : null);
    replace(tags, (summary.tags ?? []).map((/** @type {string} */ tag) => h("span", { class: "chip" }, tag)));
    pause.textContent = isPaused() ? "Resume" : "Pause";
    pause.hidden = stop.hidden = !model.isLive;
  }
  return { element, update };
}

/**
 * Which part of a search has ended, where its number of tries is limited.
 * @param {any} summary @returns {number | null}
 */
export function progressOf({ max_tries: most, tries, counts }) {
  return most ? Math.min(1, ((tries / most) * counts.finished) / Math.max(1, counts.defined)) : null;
}

/** @param {Page} page */
export function strip(page) {
  const { model } = page;
  const values = new Map(COUNTS.map(([name]) => [name, h("dd", { "data-count": name })]));
  const bar = h("span", { class: "progress-bar" });
  const progress = h("div", { class: "progress", role: "progressbar", "aria-label": "Part that has ended", "aria-valuemin": "0", "aria-valuemax": "100" }, bar);
  const tries = h("span", { "data-count": "tries" });
  const time = h("span", { class: "muted" });
  const element = h("section", { class: "card strip", "aria-label": "Counts" },
    h("dl", { class: "counts" }, COUNTS.map(([name, why]) => h("div", { title: why, class: `count-${name}` }, h("dt", null, name), values.get(name)))),
    h("div", { class: "strip-progress" }, h("div", { class: "row" }, tries, h("span", { class: "spacer" }), time), progress));

  function update() {
    const { summary } = model;
    for (const [name, value] of values) value.textContent = String(summary.counts[name] ?? 0);
    const most = summary.max_tries;
    const share = progressOf(summary);
    bar.style.width = `${(share ?? (model.isLive ? 0 : 1)) * 100}%`;
    progress.setAttribute("aria-valuenow", String(Math.round((share ?? 0) * 100)));
    tries.textContent = share === null ? `${summary.tries} tries` : `${summary.tries} of ${most} tries begun · ${percent(share)} done`;
    const left = summary.seconds_left === null || summary.seconds_left === undefined ? "" : ` · about ${duration(summary.seconds_left)} left`;
    time.textContent = model.isLive ? `${duration(summary.elapsed)} so far${left}` : `took ${duration(summary.elapsed)}, ended ${ago(summary.ended, model.now)}`;
    time.title = `began ${clock(summary.started)}`;
  }
  return { element, update };
}
