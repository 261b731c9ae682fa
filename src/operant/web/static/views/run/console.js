// What the program printed: the end of it, kept up to date while it runs.
import { get } from "../../lib/api.js";
import { segmented } from "../../charts/toolbar.js";
import { h, on, replace } from "../../lib/dom.js";
import { emptyState } from "../../lib/empty.js";
import { bytes } from "../../lib/format.js";
import { attempt } from "../../lib/notice.js";
import { state } from "../../lib/state.js";

const POLL = 1000;

/** @param {HTMLElement} panel @param {{run: any, signal: AbortSignal}} context */
export function Console(panel, context) {
  let run = context.run;
  const { signal } = context;
  if (!run.streams.length) {
    panel.append(emptyState("No console output was kept", "Jobs of a search keep what they print. A program that is started by hand prints to its own terminal.", "operant search search.yaml"));
    return () => undefined;
  }
  let start = 0;
  let size = -1;
  const text = h("pre", { class: "console", tabindex: "0", role: "log", "aria-label": "Console output" });
  const earlier = h("button", { type: "button", class: "button small", hidden: true, onclick: () => attempt(loadEarlier) }, "Earlier output");
  const follow = h("input", { type: "checkbox", checked: state.get("follow", "1") === "1" });
  const which = h("span");
  const about = h("span", { class: "faint small" });
  panel.append(h("section", { class: "card" },
    h("div", { class: "card-head" }, which, earlier, about, h("span", { class: "spacer" }), h("label", { class: "field" }, follow, "Follow")), text));

  const stream = () => {
    const wanted = state.get("stream", null);
    return run.streams.includes(wanted) ? wanted : run.streams[0];
  };

  async function loadTail() {
    const found = await get("/api/run/console", { id: run.id, stream: stream() }, signal);
    if (found.size === size) return;
    size = found.size;
    start = found.start;
    text.textContent = found.text || "(nothing printed yet)";
    show();
    if (follow.checked) text.scrollTop = text.scrollHeight;
  }

  async function loadEarlier() {
    follow.checked = false;
    const found = await get("/api/run/console", { id: run.id, stream: stream(), end: start }, signal);
    const height = text.scrollHeight;
    start = found.start;
    text.prepend(document.createTextNode(found.text));
    text.scrollTop = text.scrollHeight - height;
    show();
  }

  function show() {
    earlier.hidden = start <= 0;
    about.textContent = start > 0 ? `${bytes(start)} before this` : bytes(size);
  }

  function draw() {
    replace(which, segmented("Stream", run.streams.map((/** @type {string} */ one) => [one, one]), stream(), (value) => state.set({ stream: value })));
  }

  let shown = stream();
  state.subscribe(() => {
    draw();
    if (stream() === shown) return;
    shown = stream();
    size = -1;
    attempt(loadTail);
  }, signal);
  on(follow, "change", () => {
    state.set({ follow: follow.checked ? null : "0" });
    if (follow.checked) {
      size = -1;
      attempt(loadTail);
    }
  }, signal);
  const timer = window.setInterval(() => {
    if (follow.checked && run.status === "RUNNING" && !document.hidden) attempt(loadTail);
  }, POLL);
  signal.addEventListener("abort", () => clearInterval(timer));
  draw();
  attempt(loadTail);
  return (/** @type {any} */ next) => {
    const ended = run.status === "RUNNING" && next.status !== "RUNNING";
    run = next;
    if (ended && follow.checked) attempt(loadTail);
  };
}
