// Elements without HTML text: whatever a user wrote can only ever become a text node or an attribute.

const SVG = "http://www.w3.org/2000/svg";
const LINKS = new Set(["href", "src", "action", "formaction"]);

/** @typedef {Node | string | number | null | undefined | false | Array<any>} Child */

/**
 * Links lead to this server, or to nowhere: `javascript:` and other schemes in recorded text stay text.
 * @param {unknown} value
 */
function safeLink(value) {
  const text = String(value);
  return text.startsWith("#") || (text.startsWith("/") && !text.startsWith("//")) || text.startsWith("blob:");
}

/** @param {Element} element @param {Record<string, any> | null} props */
function apply(element, props) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2).toLowerCase(), value);
    else if (name === "class") element.setAttribute("class", Array.isArray(value) ? value.filter(Boolean).join(" ") : value);
    else if (name === "style") {
      for (const [key, one] of Object.entries(value)) {
        if (one !== null && one !== undefined) /** @type {any} */ (element).style.setProperty(key, String(one));
      }
    } else if (name === "dataset") Object.assign(/** @type {any} */ (element).dataset, value);
    else if (name === "value" || name === "checked" || name === "selected" || name === "indeterminate") {
      /** @type {any} */ (element)[name] = value;
    } else if (LINKS.has(name) && !safeLink(value)) continue;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
}

/** @param {Node} parent @param {Child[]} children */
function append(parent, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(parent, child);
    else parent.appendChild(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/**
 * Make an HTML element. Props are attributes, except `class` (text or list), `style` (object), `dataset`
 * (object), `on…` (listeners) and the live properties of inputs; false, null and undefined leave them out.
 * @param {string} tag @param {Record<string, any> | null} [props] @param {...Child} children
 * @returns {any}
 */
export function h(tag, props = null, ...children) {
  const element = document.createElement(tag);
  // A select takes its value only once its options are there.
  const { value, ...rest } = props ?? {};
  apply(element, rest);
  append(element, children);
  if (value !== undefined) apply(element, { value });
  return element;
}

/**
 * Make an SVG element.
 * @param {string} tag @param {Record<string, any> | null} [props] @param {...Child} children
 * @returns {any}
 */
export function svg(tag, props = null, ...children) {
  const element = document.createElementNS(SVG, tag);
  apply(element, props);
  append(element, children);
  return element;
}

/** Put children in place of whatever the parent held. @param {Element} parent @param {...Child} children */
export function replace(parent, ...children) {
  const holder = document.createDocumentFragment();
  append(holder, children);
  parent.replaceChildren(holder);
}

/**
 * Listen until the signal aborts.
 * @param {EventTarget} target @param {string} event @param {(event: any) => void} fn @param {AbortSignal} [signal]
 */
export function on(target, event, fn, signal) {
  target.addEventListener(event, fn, { signal });
}

/**
 * Call `fn` once things have been quiet for a while.
 * @template {any[]} A @param {(...given: A) => void} fn @param {number} milliseconds
 */
export function quiet(fn, milliseconds) {
  let timer = 0;
  return (/** @type {A} */ ...given) => {
    clearTimeout(timer);
    timer = window.setTimeout(() => fn(...given), milliseconds);
  };
}

/** Call `fn` at most once for each frame. @param {() => void} fn */
export function perFrame(fn) {
  let asked = 0;
  return () => {
    if (asked) return;
    asked = requestAnimationFrame(() => {
      asked = 0;
      fn();
    });
  };
}
