// The job behind a run: what became of it, each attempt, and where it ran.
import { h } from "../../lib/dom.js";
import { bytes, clock, duration, number } from "../../lib/format.js";
import { statusChip } from "../../lib/status.js";

/** @param {any} one what the wrapper counted of an output */
function printed(one) {
  if (!one || typeof one.bytes !== "number") return "–";
  return one.left_out > 0 ? `${bytes(one.bytes)}, ${bytes(one.left_out)} of it left out` : bytes(one.bytes);
}

/** @param {any} attempt */
function ending(attempt) {
  if (attempt.signal) return `signal ${attempt.signal}`;
  return attempt.code === null || attempt.code === undefined ? "–" : String(attempt.code);
}

/** @param {HTMLElement} panel @param {{run: any, signal: AbortSignal}} context */
export function showJob(panel, { run }) {
  const job = run.job_facts;
  if (!job) {
    panel.append(h("p", { class: "faint" }, "This run belongs to no search."));
    return;
  }
  /** @type {Array<[string, any]>} */
  const about = [
    ["status", h("span", { class: "row" }, statusChip(job.status), job.words)],
    [job.reward_attribute ?? "reward", job.reward === null ? null : number(job.reward, 6)],
    ["proposal", String(job.number)],
    ["seed", job.seed === null ? null : String(job.seed)],
    ["command", job.command ? h("code", null, job.command) : null],
    ["where", job.where],
    ["folder", job.folder ? h("code", null, job.folder) : null],
    ["code", job.code ? h("code", null, job.code) : null],
  ];
  const rows = job.attempts.map((/** @type {any} */ one) => h("tr", null,
    h("th", { scope: "row" }, String(one.attempt)),
    h("td", null, one.words, one.error ? h("pre", { class: "wrap small" }, one.error) : null),
    h("td", { class: "nowrap" }, clock(one.started)),
    h("td", { class: "nowrap" }, one.started && one.ended ? duration(one.ended - one.started) : "–"),
    h("td", null, one.host ? `${one.host} (process ${one.pid})` : "–"),
    h("td", null, ending(one)),
    h("td", { class: "nowrap" }, duration(one.cpu_seconds)),
    h("td", { class: "nowrap" }, bytes(one.peak_bytes)),
    h("td", { class: "nowrap" }, printed(one.stdout)),
    h("td", { class: "nowrap" }, printed(one.stderr))));
  const heads = ["Attempt", "What became of it", "Started", "Took", "Where", "Exit code", "CPU", "Memory", "stdout", "stderr"];
  panel.append(h("div", { class: "stack" },
    h("section", { class: "card" }, h("div", { class: "card-head" }, h("h2", null, "Job")),
      h("div", { class: "card-body" }, h("table", { class: "facts" }, h("tbody", null,
        about.filter(([, value]) => value).map(([name, value]) => h("tr", null, h("th", { scope: "row" }, name), h("td", null, value))))))),
    h("section", { class: "card" }, h("div", { class: "card-head" }, h("h2", null, "Attempts")),
      h("div", { class: "card-body scroll-x", tabindex: "0", role: "region", "aria-label": "Attempts" }, h("table", { class: "facts attempts" },
        h("thead", null, h("tr", null, heads.map((one) => h("th", { scope: "col" }, one)))), h("tbody", null, rows))))));
}
