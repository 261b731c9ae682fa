// All runs: filter, sort, choose columns, tag, note, and pick some to compare.
import { get, post, stream } from "../lib/api.js";
import { noteEditor, tagEditor } from "../lib/annotate.js";
import { h, on, quiet, replace } from "../lib/dom.js";
import { emptyState } from "../lib/empty.js";
import { ago, clock, duration, isUpkeep, number, runName, shortSetting, tagOrder } from "../lib/format.js";
import { attempt, failure } from "../lib/notice.js";
import { popover } from "../lib/popover.js";
import { go, link, runLink, state } from "../lib/state.js";
import { statusChip } from "../lib/status.js";
import { Table } from "../lib/table.js";

const PAGE = 200;
const SHOWN_PARAMS = 5;
const SHOWN_TAGS = 4;
const CONDITION = /[<>=!"'()]|\b(and|or|not|in)\b/;
const EXAMPLE = `from operant import SummaryWriter

writer = SummaryWriter("first-run")
for step in range(1000):
    writer.add_scalar("loss", 1 / (step + 1), step)`;
const FILTERS = [
  ["lr < 1e-3 and status == \"FINISHED\"", "settings and status"],
  ["tag == \"baseline\"", "runs with a tag"],
  ["name == \"first-run\"", "runs with a name"],
  ["loss < 0.1 or status == \"RUNNING\"", "last value of a scalar"],
];

/** @param {HTMLElement} main @param {{path: string, signal: AbortSignal}} context */
export async function show(main, { signal }) {
  document.title = "Runs · Operant";
  /** @type {Map<number, any[]>} */
  let pages = new Map();
  /** @type {Set<number>} */
  const loading = new Set();
  let known = { total: 0, matched: 0, unread: 0, tags: /** @type {string[]} */ ([]), params: /** @type {string[]} */ ([]) };
  let epoch = 0;
  let refused = false;
  const selected = new Set(state.list("sel"));

  const count = h("span", { class: "muted", "aria-live": "polite" });
  const compare = h("button", { type: "button", class: "button primary", disabled: true, onclick: () => go(link("/compare", { runs: [...selected] })) }, "Compare");
  const clear = h("button", { type: "button", class: "button quiet", hidden: true, onclick: () => pick(new Set()) }, "Clear selection");
  const field = h("input", { type: "search", class: "filter mono", value: state.get("filter", ""), placeholder: "Words, or a condition: lr < 1e-3 and status == \"FINISHED\"", "aria-label": "Filter runs", "aria-describedby": "filter-problem", spellcheck: "false", autocomplete: "off" });
  const problem = h("div", { class: "problem mono", id: "filter-problem", role: "alert" });
  const help = popover("?", (panel, close) => replace(panel, h("div", { class: "stack filter-help" },
    h("p", { class: "small" }, "Words are looked for in names, tags and notes. A condition compares settings, last values of scalars, name, status, tag, note, search, started, ended and duration with == != < <= > >=, joined by and, or, not and brackets."),
    FILTERS.map(([text, what]) => h("button", { type: "button", class: "button small quiet", onclick: () => { field.value = text; close(); apply(); } }, h("code", null, text), h("span", { class: "faint" }, what))))),
  { label: "How to filter" });
  const body = h("div", { class: "runs-body" });
  const card = h("section", { class: "card", "aria-label": "Runs" },
    h("div", { class: "card-head" }, h("div", { class: "filter-box row" }, field, help), h("span", { class: "spacer" }), h("span", { class: "chooser-place" })),
    problem, body);
  main.append(h("div", { class: "page-head" }, h("h1", null, "Runs"), count, h("span", { class: "spacer" }), clear, compare), card);

  const row = (/** @type {number} */ index) => {
    const page = Math.floor(index / PAGE);
    const rows = pages.get(page);
    if (!rows) load(page);
    return rows?.[index % PAGE];
  };

  /** @type {ReturnType<typeof Table> | null} */
  let table = null;

  /** What the loaded rows say of a setting: text stands at the left, and what never differs is not worth a column. @param {string} name */
  function settingFacts(name) {
    const values = [...pages.values()].flat().map((one) => one.params[name]).filter((value) => value !== null && value !== undefined);
    return { name, text: values.length > 0 && typeof values[0] !== "number", varies: new Set(values.map((value) => JSON.stringify(value))).size > 1 };
  }

  function columns() {
    /** @type {import("../lib/table.js").Column[]} */
    const found = [
      { key: "name", title: "Name", value: (one) => one.name, fixed: true, width: 200, render: (one) => h("a", { href: runLink(one.id), title: one.id }, runName(one)) },
      { key: "status", title: "Status", value: (one) => one.status, width: 108, render: (one) => statusChip(one.status) },
      { key: "started", title: "Started", value: (one) => one.started, num: true, width: 96, render: (one) => h("span", { title: clock(one.started) }, ago(one.started)) },
      { key: "duration", title: "Took", value: (one) => (one.ended ?? Date.now() / 1000) - one.started, num: true, width: 86, sortable: false, render: (one) => (one.started ? duration((one.ended ?? Date.now() / 1000) - one.started) : "–") },
      { key: "labels", title: "Tags and note", value: (one) => one.tags.join(" "), width: 180, sortable: false, render: labels },
      { key: "id", title: "Id", value: (one) => one.id, width: 250, sortable: false, hidden: true, render: (one) => h("span", { class: "mono" }, one.id) },
    ];
    const settings = known.params.map(settingFacts).sort((a, b) => Number(b.varies) - Number(a.varies));
    for (const [at, { name, text, varies }] of settings.entries()) found.push({ key: `param.${name}`, title: name, group: "Settings", num: !text, hidden: at >= SHOWN_PARAMS || !varies, value: (one) => one.params[name], render: (one) => shortSetting(one.params[name]) });
    for (const [at, tag] of tagOrder(known.tags).entries()) found.push({ key: `last.${tag}`, title: tag, group: "Last values", num: true, hidden: at >= SHOWN_TAGS || isUpkeep(tag), value: (one) => one.last[tag], render: (one) => number(one.last[tag]) });
    return found;
  }

  /** @param {any} one */
  function labels(one) {
    return h("span", { class: "labels" },
      h("button", { type: "button", class: "pencil", "aria-label": `Edit tags and note of ${runName(one)}`, onclick: () => edit(one) }, "✎"),
      one.tags.map((/** @type {string} */ tag) => h("span", { class: "chip", title: tag }, tag)),
      one.note ? h("span", { class: "muted small", title: one.note }, one.note) : null);
  }

  /** @param {any} one */
  function edit(one) {
    const tags = tagEditor({ tags: one.tags, onChange: (add, remove) => attempt(async () => { await post("/api/run/tags", { id: one.id, add, remove }); refresh(); }) });
    const note = noteEditor({ note: one.note ?? "", onSave: (text) => attempt(async () => { await post("/api/run/note", { id: one.id, text }); refresh(); }) });
    const dialog = h("dialog", { class: "dialog", "aria-label": `Tags and note of ${runName(one)}` },
      h("div", { class: "stack" }, h("h2", null, runName(one)), tags.element, note.element,
        h("span", { class: "row" }, h("span", { class: "spacer" }), h("button", { type: "button", class: "button", onclick: () => dialog.close() }, "Done"))));
    dialog.addEventListener("close", () => dialog.remove());
    signal.addEventListener("abort", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  }

  /** @param {Set<string>} next */
  function pick(next) {
    const chosen = [...next];
    selected.clear();
    for (const id of chosen) selected.add(id);
    state.set({ sel: chosen });
    drawHead();
    table?.refresh();
  }

  function drawHead() {
    compare.disabled = selected.size === 0;
    compare.textContent = selected.size ? `Compare ${selected.size} ${selected.size === 1 ? "run" : "runs"}` : "Compare";
    clear.hidden = selected.size === 0;
    const unread = known.unread ? `, ${known.unread} still being read` : "";
    count.textContent = (known.matched === known.total ? `${known.total}` : `${known.matched} of ${known.total}`) + unread;
  }

  /** What is asked for: words are looked for in names, tags and notes; anything with an operator is a condition. */
  function asked() {
    const text = state.get("filter", "");
    const kind = CONDITION.test(text) ? "filter" : "search";
    return { [kind]: text, sort: state.get("runs.sort", "-started"), limit: PAGE };
  }

  /** @param {number} page */
  async function load(page) {
    if (loading.has(page)) return;
    loading.add(page);
    const mine = epoch;
    try {
      const found = await get("/api/runs", { ...asked(), offset: page * PAGE }, signal);
      if (mine !== epoch) return;
      take(page, found);
    } catch (error) {
      if (mine !== epoch || signal.aborted) return;
      complain(error);
    } finally {
      if (mine === epoch) loading.delete(page);
    }
  }

  /** @param {any} error */
  function complain(error) {
    const at = error.body?.position;
    if (error.status !== 400) {
      replace(body, failure(error));
      table = null;
      return;
    }
    refused = true;
    const text = state.get("filter", "");
    problem.textContent = Number.isInteger(at) ? `${error.message}\n  ${text}\n  ${" ".repeat(Math.min(at, text.length))}^` : error.message;
    field.setAttribute("aria-invalid", "true");
  }

  /** @param {number} page @param {any} found */
  function take(page, found) {
    refused = false;
    problem.textContent = "";
    field.removeAttribute("aria-invalid");
    const names = JSON.stringify([known.params, known.tags]);
    known = { total: found.total, matched: found.matched, unread: found.unread ?? 0, tags: found.tags, params: found.params };
    pages.set(page, found.rows);
    drawHead();
    if (!known.total) {
      replace(body, emptyState("No runs yet", "A run is what one program records: numbers, text, pictures, files. This is a whole program:", EXAMPLE));
      table = null;
      return;
    }
    if (!table || !body.contains(table.element)) {
      replace(body);
      table = Table(body, {
        columns: columns(), count: known.matched, row, key: (one) => one.id, label: "Runs", stateKey: "runs", selected, signal,
        sort: { key: "started", desc: true }, onSort: () => undefined, // the URL has the new order, and whoever follows it asks the server
        onSelect: (now) => { state.set({ sel: [...now] }); drawHead(); },
        onOpen: (one) => go(runLink(one.id)),
      });
      replace(/** @type {Element} */ (card.querySelector(".chooser-place")), table.chooserButton());
      return;
    }
    if (names !== JSON.stringify([known.params, known.tags])) table.setColumns(columns());
    table.setCount(known.matched);
  }

  /** Ask again for what is shown; old rows stay until new ones are there, so nothing blinks. */
  async function refresh() {
    epoch += 1;
    loading.clear();
    const mine = epoch;
    const first = Math.floor((table?.element.scrollTop ?? 0) / (PAGE * 34));
    try {
      const found = await get("/api/runs", { ...asked(), offset: first * PAGE }, signal);
      if (mine !== epoch) return;
      pages = new Map();
      take(first, found);
    } catch (error) {
      if (mine === epoch && !signal.aborted) complain(error);
    }
  }

  function apply() {
    state.set({ filter: field.value.trim() || null });
  }

  const asking = () => `${state.get("filter")} ${state.get("runs.sort")}`;
  let shown = asking();
  state.subscribe(() => {
    const now = asking();
    if (document.activeElement !== field) field.value = state.get("filter", "");
    if (now !== shown) refresh();
    shown = now;
  }, signal);
  on(field, "input", quiet(apply, 300), signal);
  on(field, "keydown", (event) => { if (event.key === "Enter") apply(); }, signal);
  await refresh();
  let waiting = 0;
  stream({ list: 1 }, {
    list: () => {
      // A condition that cannot be read stays so, however many runs come in.
      if (waiting || refused) return;
      waiting = window.setTimeout(() => { waiting = 0; if (!signal.aborted) refresh(); }, 1000);
    },
  }, signal);
}
