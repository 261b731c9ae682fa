// The search in words: its file as given, and what its controller did.
import { get } from "../../lib/api.js";
import { h, replace } from "../../lib/dom.js";
import { clock } from "../../lib/format.js";
import { card, refresher } from "./card.js";

/** @typedef {import("../search.js").Page} Page */

const LOG_EVERY = 2;
const LINES = 200;

/** @param {Page} page */
export function yamlCard(page) {
  const { element, body } = card({ key: "yaml", title: "search.yaml", hint: "as given", signal: page.signal });
  replace(body, h("pre", { class: "text-block", tabindex: "0" }, page.model.yaml || "This search was begun from Python; it has no file."));
  return { element, update() {} };
}

/** @param {Page} page */
export function logCard(page) {
  const { signal, address } = page;
  const { element, body, say } = card({ key: "log", title: "Log of the controller", signal });
  const lines = h("ol", { class: "text-block log", tabindex: "0", "aria-label": "Log lines" });
  replace(body, lines);
  const again = refresher({ element, say }, LOG_EVERY, async () => {
    const answer = await get(`${address}/log`, { lines: LINES }, signal);
    // Who has scrolled up to read is not pulled down again.
    const atEnd = lines.scrollTop + lines.clientHeight > lines.scrollHeight - 30;
    replace(lines, answer.lines.map((/** @type {any} */ line) =>
      h("li", null, h("time", null, line.wall ? clock(line.wall).slice(11) : ""), h("span", null, line.text))));
    if (atEnd) lines.scrollTop = lines.scrollHeight;
  }, signal);
  return { element, update: (/** @type {{data: boolean}} */ { data }) => { if (data) again.ask(); } };
}
