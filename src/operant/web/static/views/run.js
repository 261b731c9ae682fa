// One run: what it was, how it went, and everything it recorded. Tabs stand in the URL.
import { Board } from "../charts/board.js";
import { Follower } from "../charts/follow.js";
import { ChartToolbar, readChartState, writeZoom } from "../charts/toolbar.js";
import { get, post } from "../lib/api.js";
import { noteEditor, tagEditor } from "../lib/annotate.js";
import { h, on, replace } from "../lib/dom.js";
import { emptyState } from "../lib/empty.js";
import { clock, duration, runName } from "../lib/format.js";
import { attempt, notice } from "../lib/notice.js";
import { link, state } from "../lib/state.js";
import { statusChip } from "../lib/status.js";
import { showCode, showFiles, showSettings, showText } from "./run/facts.js";
import { Console } from "./run/console.js";
import { showDistributions } from "./run/distributions.js";
import { showJob } from "./run/job.js";
import { MediaPanel } from "./run/media.js";
import { showTimers } from "./run/timers.js";

/** @typedef {{key: string, title: string, count: (run: any) => number | null, always?: boolean}} Tab */
/** @type {Tab[]} */
const TABS = [
  { key: "charts", title: "Charts", count: (run) => run.scalar_tags.length, always: true },
  { key: "job", title: "Job", count: (run) => (run.job_facts ? null : 0) },
  { key: "settings", title: "Settings", count: (run) => Object.keys(run.params).length, always: true },
  { key: "media", title: "Media", count: (run) => run.media.length },
  { key: "text", title: "Text", count: (run) => run.text.length },
  { key: "distributions", title: "Distributions", count: (run) => run.histograms.length },
  { key: "files", title: "Files", count: (run) => run.files.length },
  { key: "console", title: "Console", count: (run) => (run.streams.length ? null : 0) },
  { key: "system", title: "System", count: (run) => run.system_tags.length },
  { key: "timers", title: "Time", count: (run) => run.timers.length },
  { key: "code", title: "Code and machine", count: () => null, always: true },
];

/** @type {Record<string, (panel: HTMLElement, context: {run: any, signal: AbortSignal}) => void>} */
const STILL = { job: showJob, settings: showSettings, text: showText, files: showFiles, timers: showTimers, distributions: showDistributions, code: showCode };
const LOOK_AGAIN = 3000;
const UNDER_WAY = ["PENDING", "RUNNING", "PAUSED"];

/** @param {HTMLElement} main @param {{path: string, signal: AbortSignal}} context */
export async function show(main, { signal }) {
  const id = state.get("id", "");
  if (!id) {
    main.append(emptyState("Which run?", "The address of a run names it: /run?id=… The list of runs has them all.", "operant runs"));
    return;
  }
  let run = await get("/api/run", { id }, signal);
  document.title = `${runName(run)} · Operant`;
  const head = Header(run);
  const tabs = h("div", { class: "tabs", role: "tablist", "aria-label": "What the run recorded" });
  const panel = h("div", { class: "tab-panel", role: "tabpanel", id: "run-panel" });
  main.append(head.element, tabs, panel);

  /** @type {AbortController | null} */
  let leaving = null;
  /** @type {ReturnType<typeof Board> | null} */
  let board = null;
  /** @type {((run: any) => void) | null} */
  let update = null;
  let shown = "";

  const visibleTabs = () => TABS.filter((tab) => tab.always || tab.key === chosen() || tab.count(run) !== 0);
  const chosen = () => {
    const wanted = state.get("tab", "");
    if (TABS.some((tab) => tab.key === wanted)) return wanted;
    if (run.scalar_tags.length) return "charts";
    return run.job_facts ? "job" : "settings";
  };

  function drawTabs() {
    const now = chosen();
    const held = tabs.contains(document.activeElement);
    replace(tabs, visibleTabs().map((tab) => {
      const count = tab.count(run);
      return h("button", {
        type: "button", role: "tab", id: `tab-${tab.key}`, "aria-selected": String(tab.key === now), "aria-controls": "run-panel",
        tabindex: tab.key === now ? "0" : "-1", onclick: () => state.set({ tab: tab.key }, { push: true }),
      }, tab.title, count ? h("span", { class: "count" }, String(count)) : null);
    }));
    panel.setAttribute("aria-labelledby", `tab-${now}`);
    if (held) document.getElementById(`tab-${now}`)?.focus();
  }

  on(tabs, "keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[/** @type {string} */ (event.key)];
    if (!step) return;
    event.preventDefault();
    const all = visibleTabs();
    const next = (all.findIndex((tab) => tab.key === chosen()) + step + all.length) % all.length;
    state.set({ tab: all[next].key });
    document.getElementById(`tab-${all[next].key}`)?.focus();
  }, signal);

  function drawPanel() {
    const now = chosen();
    if (now === shown) return;
    shown = now;
    leaving?.abort();
    leaving = new AbortController();
    board = null;
    update = null;
    replace(panel);
    const context = { run, signal: leaving.signal };
    if (now === "charts") drawCharts(run.scalar_tags, "This run has recorded no numbers yet.", leaving.signal, (one) => one.scalar_tags);
    else if (now === "system") drawCharts(run.system_tags, "No machine was measured: a run samples every 15 seconds, and this one was shorter or had it switched off.", leaving.signal, (one) => one.system_tags);
    else if (now === "media") update = MediaPanel(panel, context);
    else if (now === "console") update = Console(panel, context);
    else {
      STILL[now](panel, context);
      const mark = markOf(now);
      update = () => {
        if (markOf(now) === mark) return;
        shown = "";
        drawPanel();
      };
    }
  }

  /** Differs when a panel that does not follow by itself has something new to show. @param {string} key */
  function markOf(key) {
    return JSON.stringify([TABS.find((tab) => tab.key === key)?.count(run), key === "timers" && run.timers, key === "settings" && run.params, key === "job" && run.job_facts]);
  }

  /** @param {string[]} tags @param {string} absent @param {AbortSignal} until @param {(run: any) => string[]} tagsOf */
  function drawCharts(tags, absent, until, tagsOf) {
    if (!tags.length) {
      panel.append(emptyState("Nothing to draw yet", absent, "writer.add_scalar(\"loss\", value, step)"));
      update = (one) => {
        if (tagsOf(one).length) {
          shown = "";
          drawPanel();
        }
      };
      return;
    }
    const bar = h("div", { class: "card chart-toolbar" });
    const area = h("div");
    panel.append(h("div", { class: "stack" }, bar, area));
    const made = Board(area, { signal: until, sync: "run", onZoom: writeZoom, onFold: (folded) => state.set({ fold: [...folded] }), onProblem: (error) => notice(error.message, "bad"), onSeen: () => follower.soon() });
    board = made;
    ChartToolbar(bar, { signal: until, onSmoothing: (weight) => made.smooth(weight) });
    const draw = () => made.set({ runs: [{ id: run.id, label: runName(run), index: 0, hidden: false }], tags: tagsOf(run), view: { ...readChartState(), group: null } });
    state.subscribe(draw, until);
    update = draw;
    draw();
  }

  /** What the stream cannot tell (new pictures, text, tags) is asked for again. */
  async function renew() {
    const next = await attempt(() => get("/api/run", { id: run.id }, signal));
    if (!next) return;
    run = next;
    head.draw(run);
    drawTabs();
    update?.(run);
    follower.soon();
  }

  const follower = Follower({
    board: () => board, signal, runs: () => (run.status === "RUNNING" ? [run.id] : []),
    onRun: (data) => {
      if (data.id !== run.id || data.status === run.status) return;
      run = { ...run, status: data.status };
      board?.renew(null);
      renew();
    },
  });
  const timer = window.setInterval(() => {
    if (UNDER_WAY.includes(run.status) && !document.hidden) renew();
  }, LOOK_AGAIN);
  signal.addEventListener("abort", () => {
    leaving?.abort();
    clearInterval(timer);
  });
  state.subscribe(() => {
    drawTabs();
    drawPanel();
    follower.soon();
  }, signal);
  drawTabs();
  drawPanel();
  follower.soon();
}

/** @param {any} first */
function Header(first) {
  const title = h("h1", null, runName(first));
  const status = h("span");
  const facts = h("p", { class: "muted small run-facts" });
  const trouble = h("div");
  const actions = h("span", { class: "row" });
  const tags = tagEditor({ tags: first.tags, onChange: (add, remove) => attempt(() => post("/api/run/tags", { id: first.id, add, remove })) });
  const note = noteEditor({ note: first.note ?? "", onSave: (text) => attempt(() => post("/api/run/note", { id: first.id, text })) });

  /** @param {any} run */
  function draw(run) {
    replace(status, statusChip(run.status));
    const took = run.started ? duration((run.ended ?? Date.now() / 1000) - run.started) : "–";
    replace(facts, run.search ? h("span", null, run.name) : h("span", { class: "mono" }, run.id),
      run.search ? h("span", null, "search ", h("a", { href: `/searches/${encodeURIComponent(run.search)}` }, run.search)) : null,
      run.job_facts ? h("span", { class: "job-words" }, run.job_facts.words) : null,
      run.started ? h("span", null, `started ${clock(run.started)}`) : null,
      run.started ? h("span", null, run.ended ? `ended ${clock(run.ended)}, took ${took}` : `for ${took}`) : null,
      run.attempt > 1 ? h("span", null, `attempt ${run.attempt}`) : null);
    replace(trouble,
      run.error ? h("pre", { class: "trouble", tabindex: "0", "aria-label": "Error" }, run.error) : null,
      (run.damage ?? []).length ? h("div", { class: "trouble" }, run.damage.map((/** @type {string} */ one) => h("p", null, one))) : null);
    tags.element.hidden = note.element.hidden = !run.recorded; // they are kept with what was recorded
    replace(actions, run.recorded ? h("a", { class: "button", href: link("/compare", { runs: [run.id] }) }, "Compare") : null,
      run.search && run.status === "RUNNING" ? h("button", { type: "button", class: "button danger", onclick: () => attempt(async () => {
        await post("/api/run/stop", { id: run.id });
        notice("Asked the search to stop this job.");
      }) }, "Stop job") : null);
    tags.setTags(run.tags);
    note.setNote(run.note ?? "");
  }
  draw(first);
  return {
    element: h("div", { class: "run-head" },
      h("div", { class: "page-head" }, title, status, h("span", { class: "spacer" }), actions), facts, tags.element, note.element, trouble),
    draw,
  };
}
