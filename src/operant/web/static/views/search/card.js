// Cards that fold, with their folding in the address, and data that is fetched again only while it is looked at.
import { h } from "../../lib/dom.js";
import { state } from "../../lib/state.js";

/**
 * @param {{key: string, title: string, hint?: string, controls?: any, wide?: boolean, class?: string, signal: AbortSignal,
 *   onFold?: (folded: boolean) => void}} options
 * @returns {{element: HTMLElement, body: HTMLElement, isOpen: () => boolean, say: (text: string) => void}}
 */
export function card({ key, title, hint, controls, class: name, signal, onFold }) {
  const body = h("div", { class: "card-body", id: `card-${key}` });
  const note = h("span", { class: "card-note", role: "status" }, hint ?? "");
  const fold = h("button", {
    type: "button", class: "fold", "aria-controls": `card-${key}`,
    onclick: () => {
      const folded = new Set(state.list("fold"));
      if (!folded.delete(key)) folded.add(key);
      state.set({ fold: [...folded] });
    },
  }, h("i", { class: "fold-mark", "aria-hidden": "true" }), h("h2", null, title));
  const tools = h("div", { class: "card-tools" }, controls);
  const element = h("section", { class: ["card", "fold-card", name], "data-card": key, "aria-label": title },
    h("div", { class: "card-head" }, fold, note, tools), body);
  const isOpen = () => !state.list("fold").includes(key);
  const apply = () => {
    const open = isOpen();
    if (body.hidden !== open && fold.hasAttribute("aria-expanded")) return;
    fold.setAttribute("aria-expanded", String(open));
    body.hidden = tools.hidden = !open;
    onFold?.(!open);
  };
  state.subscribe(apply, signal);
  apply();
  return { element, body, isOpen, say: (text) => { if (note.textContent !== text) note.textContent = text; } };
}

/** A row of buttons of which one is pressed. The choice stands in the address under `name`. */
export function choice(/** @type {string} */ label, /** @type {string} */ name, /** @type {[string, string][]} */ options, /** @type {AbortSignal} */ signal) {
  const buttons = options.map(([value, text], index) =>
    h("button", { type: "button", "data-value": value, onclick: () => state.set({ [name]: index ? value : null }) }, text));
  const apply = () => {
    const now = state.get(name, options[0][0]);
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.value === now));
  };
  state.subscribe(apply, signal);
  apply();
  return h("div", { class: "segmented", role: "group", "aria-label": label }, buttons);
}

/** A button that is on or off in the address. */
export function toggle(/** @type {string} */ text, /** @type {string} */ name, /** @type {AbortSignal} */ signal) {
  const button = h("button", { type: "button", class: "button small", onclick: () => state.set({ [name]: state.get(name, null) ? null : "1" }) }, text);
  const apply = () => button.setAttribute("aria-pressed", String(state.get(name, null) === "1"));
  state.subscribe(apply, signal);
  apply();
  return button;
}

/**
 * A chooser whose value stands in the address.
 * @param {string} label @param {string} name @param {AbortSignal} signal
 */
export function select(label, name, signal) {
  let fallback = "";
  const element = h("select", { "aria-label": label, onchange: () => state.set({ [name]: element.value === fallback ? null : element.value }) });
  const apply = () => { element.value = state.get(name, fallback); };
  state.subscribe(apply, signal);
  return {
    element: h("label", { class: "field" }, label, element),
    value: () => state.get(name, fallback),
    /** Options are only made anew when they differ: an open chooser stays open while the page is live. */
    set(/** @type {string[]} */ options, /** @type {string} */ first) {
      fallback = first;
      const present = [...element.options].map((one) => one.value);
      if (present.join("\n") !== options.join("\n"))
        element.replaceChildren(...options.map((one) => h("option", { value: one }, one)));
      apply();
    },
  };
}

/**
 * Fetch again when asked, one at a time, not more often than every `seconds`, and only while the card is near the
 * screen and unfolded. What was asked for meanwhile is done then. A failure is said in the card; the next try may do.
 * @param {{element: HTMLElement, say: (text: string) => void}} card
 * @param {number} seconds @param {() => Promise<void>} fetch @param {AbortSignal} signal
 */
export function refresher({ element, say }, seconds, fetch, signal) {
  let wanted = false;
  let busy = false;
  let seen = false;
  let last = -Infinity;
  let isUrgent = false;
  let timer = 0;
  async function go() {
    if (!wanted || busy || !seen || signal.aborted) return;
    const wait = last + seconds * 1000 - performance.now();
    if (wait > 0 && !isUrgent) {
      clearTimeout(timer);
      timer = window.setTimeout(go, wait);
      return;
    }
    wanted = isUrgent = false;
    busy = true;
    try {
      await fetch();
    } catch (error) {
      if (!signal.aborted) say(/** @type {Error} */ (error).message);
    } finally {
      busy = false;
      last = performance.now();
    }
    go();
  }
  const sight = new IntersectionObserver((entries) => {
    seen = entries[entries.length - 1].isIntersecting;
    go();
  }, { rootMargin: "300px" });
  sight.observe(element);
  signal.addEventListener("abort", () => {
    sight.disconnect();
    clearTimeout(timer);
  });
  return {
    ask() {
      wanted = true;
      go();
    },
    /** At once: the reader chose something else. */
    now() {
      wanted = isUrgent = true;
      go();
    },
  };
}
