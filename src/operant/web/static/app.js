// The shell: which view an address means, the header, the theme and the live dot.
import { get } from "./lib/api.js";
import { isDark } from "./lib/colors.js";
import { on, replace } from "./lib/dom.js";
import { failure } from "./lib/notice.js";
import { go, pageKey, setShown } from "./lib/state.js";

const LOOK_AGAIN = 2000;

/** @typedef {{show: (main: HTMLElement, context: {path: string, signal: AbortSignal}) => Promise<void>}} View */

/** @type {Array<[RegExp, string, () => Promise<View>]>} */
const VIEWS = [
  [/^\/(searches)?\/?$/, "searches", () => import("./views/searches.js")],
  [/^\/searches\/[^/]+$/, "searches", () => import("./views/search.js")],
  [/^\/runs\/?$/, "runs", () => import("./views/runs.js")],
  [/^\/run\/?$/, "runs", () => import("./views/run.js")],
  [/^\/compare(\/[^/]+)?\/?$/, "compare", () => import("./views/compare.js")],
];

const main = /** @type {HTMLElement} */ (document.getElementById("main"));
let leaving = new AbortController();

async function route() {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  const path = location.pathname;
  setShown(pageKey());
  const found = VIEWS.find(([pattern]) => pattern.test(path));
  for (const tab of document.querySelectorAll("[data-page]")) {
    const here = /** @type {HTMLElement} */ (tab).dataset.page === found?.[1];
    if (here) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  }
  main.dataset.view = found?.[1] ?? "none";
  main.setAttribute("aria-busy", "true");
  document.title = "Operant";
  try {
    if (!found) throw Object.assign(new Error(`There is no page ${path} here.`), { status: 404 });
    const view = await found[2]();
    if (signal.aborted) return;
    replace(main);
    await view.show(main, { path, signal });
  } catch (error) {
    if (signal.aborted || /** @type {any} */ (error).name === "AbortError") return;
    replace(main, failure(error));
    if (isAway(error)) recover(signal);
  } finally {
    if (!signal.aborted) main.removeAttribute("aria-busy");
  }
}

/** Whether the server was not reached, for data or for a module of the page. @param {any} error */
function isAway(error) {
  return error?.status === 0 || (error instanceof TypeError && /import|module/i.test(error.message));
}

/** Once the server answers, load the page anew: a module that failed to load is not asked for again by every browser. @param {AbortSignal} signal */
function recover(signal) {
  const timer = window.setInterval(async () => {
    try {
      if ((await fetch("/healthz", { signal })).ok) location.reload();
    } catch {
      // Not yet.
    }
  }, LOOK_AGAIN);
  signal.addEventListener("abort", () => clearInterval(timer));
}

/** Links to our own pages are followed without loading the shell again. @param {MouseEvent} event */
function follow(event) {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const anchor = /** @type {Element} */ (event.target).closest("a[href]");
  if (!(anchor instanceof HTMLAnchorElement) || anchor.target || anchor.hasAttribute("download")) return;
  const url = new URL(anchor.href);
  if (url.origin !== location.origin || !VIEWS.some(([pattern]) => pattern.test(url.pathname))) return;
  if (url.hash && url.pathname === location.pathname) return;
  event.preventDefault();
  go(url.pathname + url.search);
  window.scrollTo(0, 0);
  main.focus({ preventScroll: true });
}

async function fillHeader() {
  try {
    const overview = await get("/api/overview");
    const set = (/** @type {string} */ id, /** @type {any} */ text) => {
      const element = document.getElementById(id);
      if (element) element.textContent = String(text ?? "");
    };
    set("project", overview.project);
    set("count-searches", overview.searches || "");
    set("count-runs", overview.runs || "");
    const brand = document.querySelector(".brand");
    if (brand) brand.setAttribute("title", `${overview.project} on ${overview.host} · Operant ${overview.version}`);
  } catch {
    // The view itself says that the server is away; the header can do without.
  }
}

function switchTheme() {
  const theme = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem("operant-theme", theme);
  } catch {
    // Without storage the choice lasts until the page is left.
  }
  document.dispatchEvent(new CustomEvent("operant:theme"));
}

on(document, "click", follow);
on(document, "operant:navigate", route);
on(document, "operant:live", (event) => {
  const words = { on: "live", wait: "connecting", off: "nothing to follow" };
  const dot = document.getElementById("live");
  const text = document.getElementById("live-text");
  if (dot) dot.dataset.live = event.detail;
  if (text) text.textContent = words[/** @type {"on" | "wait" | "off"} */ (event.detail)];
});
on(/** @type {HTMLElement} */ (document.getElementById("theme")), "click", switchTheme);

fillHeader();
route();
