// What the program printed: the end of it, kept up to date while it runs; a text in all of it; and all of it as a file.
import { get } from "../../lib/api.js";
import { segmented } from "../../charts/toolbar.js";
import { h, on, replace } from "../../lib/dom.js";
import { emptyState } from "../../lib/empty.js";
import { bytes } from "../../lib/format.js";
import { attempt } from "../../lib/notice.js";
import { link, state } from "../../lib/state.js";

const POLL = 1000;
const AROUND = 32 << 10;

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
  const save = h("a", { class: "button small", href: "/", download: true }, "Download");
  const find = h("input", { type: "search", placeholder: "Find in all output", "aria-label": "Find in all output" });
  const found = h("div", { class: "console-found", hidden: true, role: "region", "aria-label": "Lines found" });
  const about = h("span", { class: "faint small" });
  panel.append(h("section", { class: "card" },
    h("div", { class: "card-head" }, which, earlier, about, h("span", { class: "spacer" }), find, save, h("label", { class: "field" }, follow, "Follow")), found, text));

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

  /** Look through the output from a byte on. @param {number} from @param {number} before how many were found before it */
  async function look(from, before) {
    const wanted = find.value;
    if (!wanted.trim()) {
      found.hidden = true;
      return;
    }
    const answer = await get("/api/run/console/find", { id: run.id, stream: stream(), text: wanted, start: from }, signal);
    if (find.value !== wanted) return;
    if (!from) replace(found);
    found.hidden = false;
    found.querySelector("p")?.remove();
    const count = before + answer.matches.length;
    found.append(...answer.matches.map((/** @type {any} */ one) => h("button", { type: "button", class: "console-match", onclick: () => attempt(() => goTo(one)) },
      one.before, h("mark", null, one.match), one.after)), h("p", { class: "faint small" }, count ? `${count} found` : "Nothing found",
      answer.next === null ? "." : ` in the first ${bytes(answer.next)} of ${bytes(answer.size)}. `,
      answer.next === null ? null : h("button", { type: "button", class: "button small", onclick: () => attempt(() => look(answer.next, count)) }, "Look on")));
  }

  /** Show the piece of the output that a found line stands in. @param {any} match */
  async function goTo(match) {
    follow.checked = false;
    const piece = await get("/api/run/console", { id: run.id, stream: stream(), end: match.at + AROUND }, signal);
    start = piece.start;
    const place = piece.text.indexOf(match.before + match.match + match.after);
    if (place < 0) text.textContent = piece.text;
    else {
      const at = place + match.before.length;
      const mark = h("mark", null, match.match);
      replace(text, piece.text.slice(0, at), mark, piece.text.slice(at + match.match.length));
      // Only the output is scrolled, not the page around it.
      text.scrollTop += mark.getBoundingClientRect().top - text.getBoundingClientRect().top - text.clientHeight / 2;
    }
    show();
  }

  function show() {
    earlier.hidden = start <= 0;
    about.textContent = start > 0 ? `${bytes(start)} before this` : bytes(size);
  }

  function draw() {
    save.setAttribute("href", link("/api/run/output", { id: run.id, stream: stream() }));
    replace(which, segmented("Stream", run.streams.map((/** @type {string} */ one) => [one, one]), stream(), (value) => state.set({ stream: value })));
  }

  let shown = stream();
  state.subscribe(() => {
    draw();
    if (stream() === shown) return;
    shown = stream();
    size = -1;
    found.hidden = true;
    attempt(loadTail);
  }, signal);
  on(find, "search", () => attempt(() => look(0, 0)), signal);
  on(find, "change", () => attempt(() => look(0, 0)), signal);
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
