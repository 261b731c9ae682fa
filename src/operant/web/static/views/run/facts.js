// What a run says in words: settings, text, files, code and machine.
import { h, on, replace } from "../../lib/dom.js";
import { emptyState } from "../../lib/empty.js";
import { bytes, clock, setting } from "../../lib/format.js";
import { link, state } from "../../lib/state.js";

const DIFF_LINES = 4000;
const TEXTS = 200;

/** @typedef {{run: any, signal: AbortSignal}} Context */

/** Where a file of the run is fetched. @param {any} run @param {string} blob */
export function blobLink(run, blob) {
  return link("/api/run/blob", { id: run.id, name: blob });
}

/** @param {Array<[string, any]>} pairs */
function facts(pairs) {
  return h("table", { class: "facts" }, h("tbody", null, pairs.map(([name, value]) => h("tr", null, h("th", { scope: "row" }, name), h("td", null, value)))));
}

/** @param {any} value @param {string} [prefix] @returns {Array<[string, string]>} */
function flatten(value, prefix = "") {
  if (value !== null && typeof value === "object" && !Array.isArray(value) && Object.keys(value).length) {
    return Object.entries(value).flatMap(([name, one]) => flatten(one, prefix ? `${prefix}.${name}` : name));
  }
  return [[prefix, setting(value)]];
}

/** @param {HTMLElement} panel @param {Context} context */
export function showSettings(panel, { run, signal }) {
  const pairs = flatten(run.params).filter(([name]) => name);
  if (!pairs.length) {
    panel.append(emptyState("No settings", "A program records its settings with one call:", "writer.add_hparams({\"lr\": 1e-3, \"batch\": 64})"));
    return;
  }
  const find = h("input", { type: "search", placeholder: "Find settings", "aria-label": "Find settings", value: state.get("find", "") });
  const body = h("div", { class: "card-body" });
  const draw = () => {
    const wanted = find.value.trim().toLowerCase();
    const fits = pairs.filter(([name, value]) => `${name} ${value}`.toLowerCase().includes(wanted));
    replace(body, fits.length ? facts(fits.map(([name, value]) => [name, h("span", { class: "mono" }, value)])) : h("p", { class: "faint" }, "No setting fits."));
  };
  on(find, "input", () => {
    state.set({ find: find.value.trim() || null });
    draw();
  }, signal);
  draw();
  panel.append(h("section", { class: "card" }, h("div", { class: "card-head" }, h("h2", null, "Settings"), h("span", { class: "spacer" }), find), body));
}

/** @param {HTMLElement} panel @param {Context} context */
export function showText(panel, { run }) {
  if (!run.text.length) {
    panel.append(emptyState("No text", "A program records text with one call:", "writer.add_text(\"notes\", \"it diverges after step 300\", step)"));
    return;
  }
  /** @type {Map<string, any[]>} */
  const byTag = new Map();
  for (const one of run.text) byTag.set(one.tag, [...(byTag.get(one.tag) ?? []), one]);
  panel.append(h("div", { class: "stack" }, [...byTag].map(([tag, texts]) => h("section", { class: "card" },
    h("div", { class: "card-head" }, h("h2", null, tag), h("span", { class: "faint small" }, texts.length > TEXTS ? `the last ${TEXTS} of ${texts.length}` : String(texts.length))),
    h("div", { class: "card-body stack" }, texts.slice(-TEXTS).reverse().map((one) => h("article", { class: "text-item" },
      h("div", { class: "faint small" }, `step ${one.step} · ${clock(one.wall)}`), h("pre", { class: "wrap" }, one.text))))))));
}

/** @param {HTMLElement} panel @param {Context} context */
export function showFiles(panel, { run }) {
  if (!run.files.length) {
    panel.append(emptyState("No files", "A program keeps a file with its run with one call:", "writer.add_file(\"model.safetensors\")"));
    return;
  }
  panel.append(h("section", { class: "card" }, h("div", { class: "card-head" }, h("h2", null, "Files")),
    h("div", { class: "card-body" }, h("table", { class: "facts" }, h("tbody", null, run.files.map((/** @type {any} */ file) => h("tr", null,
      h("td", null, h("a", { href: blobLink(run, file.blob), download: file.name.split("/").pop() }, file.name)),
      h("td", { class: "num muted nowrap" }, bytes(file.size)))))))));
}

/** @param {string} text */
function diffLines(text) {
  const kind = (/** @type {string} */ line) => {
    if (line.startsWith("+++") || line.startsWith("---") || line.startsWith("diff ") || line.startsWith("index ")) return "file";
    if (line.startsWith("@@")) return "place";
    if (line.startsWith("+")) return "added";
    return line.startsWith("-") ? "removed" : null;
  };
  return text.split("\n").map((line) => h("span", { class: ["diff-line", kind(line)] }, `${line}\n`));
}

/** @param {HTMLElement} panel @param {Context} context */
export function showCode(panel, { run }) {
  // What the page's head has already, and what only tells two processes of one machine apart, is left out.
  const { packages, git, command, run: _run, name: _name, role: _role, attempt: _attempt, tags: _tags, process, ...rest } = run.provenance ?? {};
  const { diff: _, ...commit } = git ?? {};
  const about = flatten({ command: Array.isArray(command) ? command.join(" ") : command, git: commit, host: process?.host, pid: process?.pid, ...rest }).filter(([name, value]) => name && value !== "–");
  const blocks = [h("section", { class: "card" }, h("div", { class: "card-head" }, h("h2", null, "Where it came from")),
    h("div", { class: "card-body" }, about.length ? facts(about.map(([name, value]) => [name, h("span", { class: "mono" }, value)])) : h("p", { class: "faint" }, "Nothing was recorded about the code and the machine.")))];
  if (run.git_diff) {
    const lines = run.git_diff.split("\n");
    const body = h("pre", { class: "diff", tabindex: "0", "aria-label": "Uncommitted changes" }, diffLines(lines.slice(0, DIFF_LINES).join("\n")));
    const more = lines.length > DIFF_LINES ? h("button", { type: "button", class: "button small", onclick: () => {
      replace(body, diffLines(run.git_diff));
      more.remove();
    } }, `Show all ${lines.length} lines`) : null;
    blocks.push(h("section", { class: "card" }, h("div", { class: "card-head" }, h("h2", null, "Uncommitted changes"), h("span", { class: "faint small" }, `${lines.length} lines`), h("span", { class: "spacer" }), more), body));
  }
  if (packages && Object.keys(packages).length) {
    blocks.push(h("details", { class: "card" }, h("summary", { class: "card-head" }, h("h2", null, "Packages"), h("span", { class: "faint small" }, String(Object.keys(packages).length))),
      h("div", { class: "card-body packages" }, Object.entries(packages).map(([name, version]) => h("span", { class: "mono small" }, `${name} ${version}`)))));
  }
  panel.append(h("div", { class: "stack" }, blocks));
}
