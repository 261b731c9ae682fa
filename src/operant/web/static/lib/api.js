// All talk with the server. Errors become `ApiError` with the server's own sentence.

/** @typedef {{run?: string, group?: string, runs?: string[], tag: string, n: number, x: Float64Array, mean: Float64Array, least?: Float64Array, greatest?: Float64Array, low?: Float64Array, high?: Float64Array}} Series */

export class ApiError extends Error {
  /** @param {string} message @param {number} status @param {any} [body] */
  constructor(message, status, body) {
    super(message);
    this.status = status;
    this.body = body;
  }
}

/** @param {Record<string, any>} [params] */
function query(params) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(params ?? {})) {
    if (value === null || value === undefined || value === "") continue;
    search.set(name, Array.isArray(value) ? value.join(",") : String(value));
  }
  const text = search.toString();
  return text ? `?${text}` : "";
}

/** @param {string} path @param {RequestInit} options */
async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, { credentials: "same-origin", ...options });
  } catch (error) {
    if (/** @type {any} */ (error).name === "AbortError") throw error;
    throw new ApiError("The server does not answer. Is `operant ui` still running?", 0);
  }
  if (response.ok) return response;
  let body = null;
  try {
    body = await response.json();
  } catch {
    // Not every refusal is JSON; its status is still a fact.
  }
  throw new ApiError(body?.error ?? `The server answered ${response.status} ${response.statusText}.`, response.status, body);
}

/**
 * @param {string} path @param {Record<string, any>} [params] @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function get(path, params, signal) {
  return (await ask(path + query(params), { signal, headers: { accept: "application/json" } })).json();
}

/**
 * @param {string} path @param {any} [body] @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function post(path, body, signal) {
  return (await send(path, body, signal)).json();
}

/** @param {string} path @param {any} body @param {AbortSignal} [signal] */
function send(path, body, signal) {
  return ask(path, {
    method: "POST",
    signal,
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body ?? {}),
  });
}

/**
 * Charts as arrays that are views of the answer's own bytes: nothing is parsed but the header.
 * @param {Record<string, any>} request @param {AbortSignal} [signal]
 * @returns {Promise<Series[]>}
 */
export async function charts(request, signal) {
  const buffer = await (await send("/api/charts", request, signal)).arrayBuffer();
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  return header.series.map((/** @type {any} */ one) => {
    const { fields, offset, ...rest } = one;
    const found = { ...rest };
    fields.forEach((/** @type {string} */ field, /** @type {number} */ at) => {
      found[field] = new Float64Array(buffer, offset + at * one.n * 8, one.n);
    });
    return found;
  });
}

/** Tell the header's live dot. @param {"on" | "wait" | "off"} state */
function announce(state) {
  document.dispatchEvent(new CustomEvent("operant:live", { detail: state }));
}

const AGAIN_AFTER = 2000;
const AGAIN_AT_MOST = 60_000;

/**
 * Follow the server's events until the signal aborts. The browser reconnects by itself when a connection breaks;
 * when it was refused (a server that starts, too many pages), it is tried again after a growing pause.
 * @param {Record<string, any>} params
 * @param {Record<string, (data: any) => void>} handlers by event name; `open` is called at each (re)connection
 * @param {AbortSignal} signal
 */
export function stream(params, handlers, signal) {
  if (signal.aborted) return;
  let pause = AGAIN_AFTER;
  let timer = 0;
  /** @type {EventSource} */
  let source;

  function connect() {
    source = new EventSource(`/api/events${query(params)}`);
    announce("wait");
    source.addEventListener("open", () => {
      pause = AGAIN_AFTER;
      announce("on");
      handlers.open?.(null);
    });
    source.addEventListener("error", () => {
      announce("wait");
      if (source.readyState !== EventSource.CLOSED) return;
      timer = window.setTimeout(connect, pause);
      pause = Math.min(pause * 2, AGAIN_AT_MOST);
    });
    for (const [name, fn] of Object.entries(handlers)) {
      if (name === "open") continue;
      source.addEventListener(name, (event) => fn(JSON.parse(/** @type {MessageEvent} */ (event).data)));
    }
  }

  connect();
  signal.addEventListener("abort", () => {
    clearTimeout(timer);
    source.close();
    announce("off");
  });
}
