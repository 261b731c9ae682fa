/** What every chart on a canvas shares: a surface that fits its card, and a note beside the pointer. */

import { onTheme } from "../lib/colors.js";

/**
 * The colours of the page at this moment; they change with the theme.
 * @param {Element} element
 */
export function inks(element) {
  const style = getComputedStyle(element);
  const read = (/** @type {string} */ name) => style.getPropertyValue(`--plot-${name}`).trim();
  return {
    ink: read("ink"), muted: read("muted"), grid: read("grid"), card: read("card"), accent: read("accent"),
    best: read("best"), faint: read("faint"), font: `11px ${style.fontFamily}`,
  };
}

const ratioNow = () => Math.min(devicePixelRatio || 1, 2);

/** The width of one pixel of the screen. */
export function hairline() {
  return 1 / ratioNow();
}

/**
 * Size a canvas in CSS pixels with all the pixels of the screen, and clear it.
 * @param {HTMLCanvasElement} canvas
 */
export function prepare(canvas, /** @type {number} */ width, /** @type {number} */ height) {
  const ratio = ratioNow();
  const across = Math.max(1, Math.round(width * ratio));
  const down = Math.max(1, Math.round(height * ratio));
  if (canvas.width !== across || canvas.height !== down) {
    canvas.width = across;
    canvas.height = down;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

/** One canvas in a box of fixed height: nothing below it moves when it is drawn again. */
export class Surface {
  /**
   * @param {Element} parent
   * @param {{height: number, label: string, signal: AbortSignal,
   *   draw: (context: CanvasRenderingContext2D, width: number, height: number) => void}} options
   */
  constructor(parent, { height, label, signal, draw }) {
    this.height = height;
    this.width = 0;
    this.draw = draw;
    this.frame = 0;
    this.box = document.createElement("div");
    this.box.className = "plot";
    this.box.style.height = `${height}px`;
    this.box.setAttribute("role", "group");
    this.box.setAttribute("aria-label", label);
    this.canvas = document.createElement("canvas");
    this.canvas.setAttribute("aria-hidden", "true");
    this.note = new Note(this.box);
    this.box.prepend(this.canvas);
    parent.append(this.box);
    this.seen = false;
    this.stale = false;
    const observer = new ResizeObserver(() => this.redraw());
    observer.observe(this.box);
    // What is far out of sight is drawn when it comes near.
    const sight = new IntersectionObserver((entries) => {
      this.seen = entries[entries.length - 1].isIntersecting;
      if (this.seen && this.stale) this.redraw();
    }, { rootMargin: "300px" });
    sight.observe(this.box);
    onTheme(() => this.redraw(), signal);
    signal.addEventListener("abort", () => {
      observer.disconnect();
      sight.disconnect();
      cancelAnimationFrame(this.frame);
    });
  }

  /** Draw before the next frame, once however often it is asked for. */
  redraw() {
    this.stale = true;
    if (this.frame || !this.seen) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.width = this.box.clientWidth;
      if (this.width < 1) return;
      this.stale = false;
      this.draw(prepare(this.canvas, this.width, this.height), this.width, this.height);
    });
  }

  /** Where on the surface a pointer is. */
  where(/** @type {MouseEvent} */ event) {
    const box = this.box.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }
}

/** A few lines of text beside the pointer, or beside the point that the keyboard has reached. */
export class Note {
  constructor(/** @type {HTMLElement} */ parent) {
    this.parent = parent;
    this.element = document.createElement("div");
    this.element.className = "plot-note";
    this.element.setAttribute("role", "status");
    this.element.hidden = true;
    parent.append(this.element);
  }

  show(/** @type {number} */ x, /** @type {number} */ y, /** @type {string[]} */ lines) {
    this.element.replaceChildren(
      ...lines.map((line, index) => {
        const part = document.createElement(index ? "div" : "strong");
        part.textContent = line;
        return part;
      }),
    );
    this.element.hidden = false;
    const { clientWidth, clientHeight } = this.parent;
    const { offsetWidth, offsetHeight } = this.element;
    const left = x + 14 + offsetWidth > clientWidth ? x - 14 - offsetWidth : x + 14;
    const top = Math.min(y + 10, clientHeight - offsetHeight);
    this.element.style.left = `${Math.max(0, left)}px`;
    this.element.style.top = `${Math.max(0, top)}px`;
  }

  hide() {
    this.element.hidden = true;
  }
}

/**
 * Choose among drawn points by pointer or keyboard: arrows go from one to the next, Enter opens.
 * @param {Surface} surface
 * @param {{find: (x: number, y: number) => number, next: (from: number, step: number) => number,
 *   place: (index: number) => {x: number, y: number}, lines: (index: number) => string[],
 *   open: (index: number) => void, signal: AbortSignal}} options
 * @returns {{index: number}} the point that is chosen, or -1
 */
export function pick(surface, { find, next, place, lines, open, signal }) {
  const chosen = { index: -1 };
  const choose = (/** @type {number} */ index) => {
    if (index === chosen.index) return;
    chosen.index = index;
    surface.box.classList.toggle("picks", index >= 0);
    if (index < 0) surface.note.hide();
    else {
      const { x, y } = place(index);
      surface.note.show(x, y, lines(index));
    }
    surface.redraw();
  };
  surface.box.tabIndex = 0;
  surface.box.addEventListener("pointermove", (event) => {
    const { x, y } = surface.where(event);
    choose(find(x, y));
  }, { signal });
  surface.box.addEventListener("pointerleave", () => choose(-1), { signal });
  surface.box.addEventListener("blur", () => choose(-1), { signal });
  surface.box.addEventListener("click", (event) => {
    const { x, y } = surface.where(event);
    const index = find(x, y);
    if (index >= 0) open(index);
  }, { signal });
  surface.box.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
    if (step) {
      event.preventDefault();
      choose(next(chosen.index, step));
    } else if (event.key === "Enter" && chosen.index >= 0) open(chosen.index);
    else if (event.key === "Escape") choose(-1);
  }, { signal });
  return chosen;
}
