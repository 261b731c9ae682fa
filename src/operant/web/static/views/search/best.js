// The best configuration so far, with its reward and its run; beside it the note and the tags of the search.
import { post } from "../../lib/api.js";
import { h, replace } from "../../lib/dom.js";
import { number, setting } from "../../lib/format.js";
import { attempt, notice } from "../../lib/notice.js";
import { runLink } from "../../lib/state.js";
import { card } from "./card.js";

/** @typedef {import("../search.js").Page} Page */

/** @param {Page} page */
export function bestCard(page) {
  const { model, signal } = page;
  const { element, body } = card({ key: "best", title: "Best configuration", signal });
  body.classList.add("best");
  let shown = "";

  function update() {
    const { best, reward_attribute: attribute, maximize, final_check: checks } = model.summary;
    const now = JSON.stringify([best, checks]);
    if (now === shown) return;
    shown = now;
    if (!best) {
      replace(body, h("p", { class: "muted" }, "No job has ended with a reward yet."));
      return;
    }
    replace(body,
      h("div", { class: "best-reward", "data-best": String(best.reward) }, number(best.reward, 6)),
      h("p", { class: "muted small" }, `${maximize ? "highest" : "lowest"} ${attribute ?? "reward"}, proposal ${best.number}`),
      h("table", { class: "facts" }, Object.entries(best.settings).map(([name, value]) =>
        h("tr", null, h("th", { scope: "row" }, name), h("td", { class: "mono" }, setting(value))))),
      h("p", { class: "best-runs" }, best.jobs.map((/** @type {string} */ job, /** @type {number} */ index) => [
        index ? " · " : "", h("a", { href: runLink(`${page.name}/${job}`), "data-best-run": job }, best.jobs.length > 1 ? job : "Open its run"),
      ])),
      (checks ?? []).map((/** @type {any} */ check) => h("p", { class: "small", "data-check": String(check.number) },
        `Proposal ${check.number} on ${check.runs} new seeds: ${number(check.mean)} (95 % interval ${number(check.low)} to ${number(check.high)})`)));
  }
  return { element, update };
}

/** @param {Page} page */
export function noteCard(page) {
  const { model, signal, address } = page;
  const { element, body } = card({ key: "note", title: "Note and tags", signal });
  const text = h("textarea", { rows: "3", "aria-label": "Note", placeholder: "What this search is for, what came out…" });
  const save = h("button", { type: "button", class: "button small", onclick: saveNote }, "Save note");
  const tags = h("div", { class: "row" });
  const fresh = h("input", { type: "text", "aria-label": "New tag", placeholder: "new tag", maxlength: "64" });
  const form = h("form", { class: "row", onsubmit: addTag }, fresh, h("button", { class: "button small" }, "Add tag"));
  replace(body, h("div", { class: "stack" }, text, h("div", { class: "row" }, save), tags, form));
  let saved = "";
  let shownTags = "";

  async function saveNote() {
    const done = await attempt(() => post(`${address}/note`, { text: text.value }));
    if (!done) return;
    saved = text.value;
    notice("The note is on its way to the search.");
  }

  async function addTag(/** @type {Event} */ event) {
    event.preventDefault();
    const tag = fresh.value.trim();
    if (tag && (await attempt(() => post(`${address}/tags`, { add: [tag], remove: [] })))) fresh.value = "";
  }

  function update() {
    const { summary } = model;
    // What is being written is never overwritten by what was written elsewhere.
    const isEdited = text.value !== saved;
    if (!isEdited && document.activeElement !== text) text.value = saved = summary.note ?? "";
    const now = JSON.stringify(summary.tags);
    if (now === shownTags) return;
    shownTags = now;
    replace(tags, (summary.tags ?? []).map((/** @type {string} */ tag) =>
      h("span", { class: "chip" }, tag, h("button", {
        type: "button", "aria-label": `Remove the tag ${tag}`,
        onclick: () => attempt(() => post(`${address}/tags`, { add: [], remove: [tag] })),
      }, "×"))));
  }
  return { element, update };
}
