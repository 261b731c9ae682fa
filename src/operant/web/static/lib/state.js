// The state of a view is its query string, so that a link or a reload gives the same picture.

/** @typedef {{push?: boolean}} SetOptions */

const listeners = new Set();

function read() {
  return new URLSearchParams(location.search);
}

/** Commas and slashes are allowed in a query; escaped they would only make links hard to read. @param {URLSearchParams} params */
function write(params) {
  const text = params.toString().replaceAll("%2C", ",").replaceAll("%2F", "/").replaceAll("%3A", ":");
  return text ? `?${text}` : "";
}

/** @param {any} value */
function written(value) {
  if (!Array.isArray(value)) return String(value);
  return value.map((item) => String(item).replaceAll("%", "%25").replaceAll(",", "%2C")).join(",");
}

export const state = {
  /**
   * @template T
   * @param {string} name @param {T} [fallback]
   * @returns {string | T}
   */
  get(name, fallback) {
    return read().get(name) ?? /** @type {any} */ (fallback ?? null);
  },

  /** A list written as `a,b,c`; a comma inside an item is written `%2C`. @param {string} name @returns {string[]} */
  list(name) {
    const text = read().get(name);
    return text ? text.split(",").filter(Boolean).map((item) => item.replaceAll("%2C", ",").replaceAll("%25", "%")) : [];
  },

  /**
   * Change some names; null (or "") removes one. With `push` the change is a step of the browser's history.
   * @param {Record<string, any>} changes @param {SetOptions} [options]
   */
  set(changes, options = {}) {
    const params = read();
    for (const [name, value] of Object.entries(changes)) {
      if (value === null || value === undefined || value === "" || (Array.isArray(value) && !value.length)) params.delete(name);
      else params.set(name, written(value));
    }
    const next = location.pathname + write(params);
    if (next === location.pathname + location.search) return;
    history[options.push ? "pushState" : "replaceState"](null, "", next);
    tell();
  },

  /** @param {() => void} fn @param {AbortSignal} [signal] */
  subscribe(fn, signal) {
    listeners.add(fn);
    signal?.addEventListener("abort", () => listeners.delete(fn));
  },
};

function tell() {
  for (const fn of [...listeners]) fn();
}

/** A link to a page with a state. @param {string} path @param {Record<string, any>} [values] */
export function link(path, values) {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(values ?? {})) {
    if (value !== null && value !== undefined && value !== "") params.set(name, written(value));
  }
  return path + write(params);
}

/** The page of one run. @param {string} id @param {Record<string, any>} [values] */
export function runLink(id, values) {
  return link("/run", { id, ...values });
}

/** Go to another page without loading the shell anew. @param {string} href */
export function go(href) {
  history.pushState(null, "", href);
  document.dispatchEvent(new CustomEvent("operant:navigate"));
}

let shownPath = location.pathname;

/** Whether `popstate` stays on the page that is shown. @param {string} key */
export function setShown(key) {
  shownPath = key;
}

/** What makes two addresses the same page: the path, and for a run its id. */
export function pageKey() {
  return location.pathname === "/run" ? `/run ${read().get("id") ?? ""}` : location.pathname;
}

window.addEventListener("popstate", () => {
  if (pageKey() === shownPath) tell();
  else document.dispatchEvent(new CustomEvent("operant:navigate"));
});
