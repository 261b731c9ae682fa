/** One axis of parallel coordinates under pointer and keyboard: moved, flipped, made logarithmic, brushed. */

const EDGE = 7;
const CLICK = 4;
const HELP = "Left and right move the axis, F flips it, L makes it logarithmic, B sets a brush, up and down move the brush, with shift they widen or narrow it, Delete clears it.";

export class AxisControl {
  /** @param {import("./parallel.js").Parallel} chart */
  constructor(chart, /** @type {string} */ name, /** @type {AbortSignal} */ signal) {
    this.chart = chart;
    this.name = name;
    this.element = document.createElement("div");
    this.element.className = "axis";
    this.head = document.createElement("button");
    this.head.type = "button";
    this.head.className = "axis-name";
    this.head.title = HELP;
    this.strip = document.createElement("div");
    this.strip.className = "axis-strip";
    this.element.append(this.head, this.strip);
    this.element.dataset.axis = name;
    chart.inner.append(this.element);
    this.head.addEventListener("pointerdown", (event) => this.drag(event), { signal });
    this.head.addEventListener("keydown", (event) => this.key(event), { signal });
    this.head.addEventListener("dblclick", () => this.flip(), { signal });
    this.strip.addEventListener("pointerdown", (event) => this.brush(event), { signal });
  }

  remove() {
    this.element.remove();
  }

  /** @param {import("./parallel.js").Placed} [placed] */
  place(placed) {
    if (placed) this.placed = placed;
    if (!this.placed) return;
    const { axis, x, log } = this.placed;
    const flipped = this.chart.view.flipped.has(this.name);
    const { top, bottom } = this.chart.range;
    this.element.style.transform = `translateX(${Math.round(x)}px)`;
    this.head.textContent = `${axis.label}${log ? " (log)" : ""}${flipped ? " ↓" : ""}`;
    this.head.style.maxWidth = `${Math.max(60, Math.min(150, (this.chart.step || 120) - 6))}px`;
    this.head.setAttribute("aria-label", `axis ${axis.label}. ${HELP}`);
    this.strip.style.top = `${top}px`;
    this.strip.style.height = `${bottom - top}px`;
    const bands = this.bands();
    while (this.strip.children.length > bands.length) this.strip.lastElementChild?.remove();
    bands.forEach(([from, to], index) => {
      let band = /** @type {HTMLElement | undefined} */ (this.strip.children[index]);
      if (!band) {
        band = document.createElement("div");
        band.className = "axis-brush";
        this.strip.append(band);
      }
      band.style.top = `${from - top}px`;
      band.style.height = `${Math.max(2, to - from)}px`;
    });
  }

  /** The brushes as pixels, from above to below. @returns {[number, number][]} */
  bands() {
    const brush = this.chart.view.brushes.get(this.name);
    if (!brush || !this.placed) return [];
    const { scale } = this.placed;
    const { top, bottom } = this.chart.range;
    const within = (/** @type {number} */ y) => Math.max(top, Math.min(bottom, y));
    if ("names" in brush) {
      const known = /** @type {string[]} */ (scale.domain.names ?? []);
      const half = (bottom - top) / Math.max(1, known.length) / 2;
      return brush.names.filter((name) => known.includes(name)).map((name) => [scale.at(name) - half, scale.at(name) + half]);
    }
    return brush.ranges.map(([low, high]) => {
      // On a logarithmic axis a range may begin at or below zero: that is the end of the axis.
      const ends = [scale.at(low), scale.at(high)].map((y, index) => (Number.isNaN(y) ? scale.at(index ? scale.domain.high : scale.domain.low) : within(y)));
      return [Math.min(...ends), Math.max(...ends)];
    });
  }

  /** Take an axis by its name and put it elsewhere. */
  drag(/** @type {PointerEvent} */ event) {
    if (event.button) return;
    const start = event.clientX;
    const from = this.placed?.x ?? 0;
    let moved = false;
    this.head.setPointerCapture(event.pointerId);
    const until = new AbortController();
    this.head.addEventListener("pointermove", (now) => {
      const x = from + now.clientX - start;
      if (!moved && Math.abs(now.clientX - start) < CLICK) return;
      moved = true;
      this.chart.dragged.set(this.name, x);
      const others = (this.chart.placed ?? []).filter((one) => one.axis.name !== this.name);
      this.chart.move(this.name, others.filter((one) => one.x < x).length);
      this.chart.redraw();
    }, { signal: until.signal });
    const done = () => {
      until.abort();
      this.chart.dragged.delete(this.name);
      this.chart.redraw();
      if (moved) this.chart.changed(true);
    };
    this.head.addEventListener("pointerup", done, { signal: until.signal });
    this.head.addEventListener("lostpointercapture", done, { signal: until.signal });
  }

  /** Draw a new brush, move one, or pull one of its ends; a click takes one away. */
  brush(/** @type {PointerEvent} */ event) {
    if (event.button || !this.placed) return;
    event.preventDefault();
    if (this.placed.axis.kind === "names") return this.brushNames(event);
    const zero = this.strip.getBoundingClientRect().top - this.chart.range.top;
    const start = event.clientY - zero;
    const bands = this.bands();
    const hit = bands.findIndex(([from, to]) => start >= from - EDGE && start <= to + EDGE);
    const ranges = this.ranges();
    const index = hit < 0 ? ranges.push([NaN, NaN]) - 1 : hit;
    const [from, to] = hit < 0 ? [start, start] : bands[hit];
    const part = hit < 0 ? "new" : Math.abs(start - from) <= EDGE ? "from" : Math.abs(start - to) <= EDGE ? "to" : "all";
    let moved = false;
    this.follow(event, (y) => {
      if (!moved && Math.abs(y - start) < CLICK) return;
      moved = true;
      const by = y - start;
      const ends = { new: [start, y], from: [y, to], to: [from, y], all: [from + by, to + by] }[part] ?? [from, to];
      ranges[index] = this.values(Math.min(...ends), Math.max(...ends));
      this.keep(ranges, false);
    }, () => {
      if (moved) return this.keep(ranges, true);
      this.keep(hit < 0 ? [] : ranges.filter((_, one) => one !== hit), true);
    });
  }

  /** Names are chosen whole: a click adds or takes one, a pull chooses all it passes. */
  brushNames(/** @type {PointerEvent} */ event) {
    const zero = this.strip.getBoundingClientRect().top - this.chart.range.top;
    const start = event.clientY - zero;
    const scale = this.placed?.scale;
    const names = /** @type {string[]} */ (scale.domain.names);
    const before = this.chart.view.brushes.get(this.name);
    const chosen = new Set(before && "names" in before ? before.names : []);
    const first = scale.back(start);
    let moved = false;
    this.follow(event, (y) => {
      if (!moved && Math.abs(y - start) < CLICK) return;
      moved = true;
      const [low, high] = [names.indexOf(first), names.indexOf(scale.back(y))].sort((one, other) => one - other);
      this.keepNames(names.filter((name, index) => chosen.has(name) || (index >= low && index <= high)), false);
    }, () => {
      if (moved) return this.chart.changed(true);
      if (chosen.has(first)) chosen.delete(first);
      else chosen.add(first);
      this.keepNames(names.filter((name) => chosen.has(name)), true);
    });
  }

  follow(/** @type {PointerEvent} */ event, /** @type {(y: number) => void} */ move, /** @type {() => void} */ end) {
    const zero = this.strip.getBoundingClientRect().top - this.chart.range.top;
    const until = new AbortController();
    this.strip.setPointerCapture(event.pointerId);
    this.strip.addEventListener("pointermove", (now) => move(now.clientY - zero), { signal: until.signal });
    const done = () => {
      until.abort();
      end();
    };
    this.strip.addEventListener("pointerup", done, { signal: until.signal });
    this.strip.addEventListener("lostpointercapture", done, { signal: until.signal });
  }

  /** The values between two heights of the axis. @returns {[number, number]} */
  values(/** @type {number} */ from, /** @type {number} */ to) {
    const { top, bottom } = this.chart.range;
    const ends = [Math.max(top, from), Math.min(bottom, to)].map((y) => this.placed?.scale.back(y)).sort((one, other) => one - other);
    return [ends[0], ends[1]];
  }

  /** @returns {[number, number][]} */
  ranges() {
    const brush = this.chart.view.brushes.get(this.name);
    return brush && "ranges" in brush ? [...brush.ranges] : [];
  }

  keep(/** @type {[number, number][]} */ ranges, /** @type {boolean} */ final) {
    const sound = ranges.filter(([low, high]) => low <= high);
    if (sound.length) this.chart.view.brushes.set(this.name, { ranges: sound });
    else this.chart.view.brushes.delete(this.name);
    this.place();
    this.chart.changed(final);
  }

  keepNames(/** @type {string[]} */ names, /** @type {boolean} */ final) {
    if (names.length) this.chart.view.brushes.set(this.name, { names });
    else this.chart.view.brushes.delete(this.name);
    this.place();
    this.chart.changed(final);
  }

  flip() {
    const { flipped } = this.chart.view;
    if (!flipped.delete(this.name)) flipped.add(this.name);
    this.chart.redraw();
    this.chart.changed(true);
  }

  key(/** @type {KeyboardEvent} */ event) {
    if (!this.placed || event.ctrlKey || event.metaKey || event.altKey) return;
    const { axis, index, log } = this.placed;
    const key = event.key.toLowerCase();
    if (key === "arrowleft" || key === "arrowright") {
      this.chart.move(this.name, index + (key === "arrowright" ? 1 : -1));
      this.chart.redraw();
      this.chart.changed(true);
    } else if (key === "f") this.flip();
    else if (key === "l" && axis.canLog) {
      this.chart.view.logs.set(this.name, !log);
      this.chart.redraw();
      this.chart.changed(true);
    } else if (key === "b") this.startByKey();
    else if (key === "arrowup" || key === "arrowdown") this.moveByKey(key === "arrowup" ? -1 : 1, event.shiftKey);
    else if (key === "delete" || key === "backspace") {
      this.chart.view.brushes.delete(this.name);
      this.place();
      this.chart.changed(true);
    } else return;
    event.preventDefault();
  }

  /** The keyboard's brush begins with the upper half of the axis, or with its first name. */
  startByKey() {
    const { top, bottom } = this.chart.range;
    if (this.placed?.axis.kind === "names") this.keepNames([this.placed.scale.domain.names[0]], true);
    else this.keep([...this.ranges(), this.values(top, (top + bottom) / 2)], true);
  }

  moveByKey(/** @type {number} */ by, /** @type {boolean} */ size) {
    const brush = this.chart.view.brushes.get(this.name);
    if (!brush || !this.placed) return;
    if ("names" in brush) {
      const names = /** @type {string[]} */ (this.placed.scale.domain.names);
      const first = Math.max(0, names.indexOf(brush.names[0]));
      const count = Math.max(1, Math.min(names.length, brush.names.length + (size ? -by : 0)));
      const start = Math.max(0, Math.min(names.length - count, first + (size ? 0 : -by)));
      this.keepNames(names.slice(start, start + count), true);
      return;
    }
    const { top, bottom } = this.chart.range;
    const bands = this.bands();
    const [from, to] = bands[bands.length - 1];
    const step = ((bottom - top) / 20) * by;
    const shift = Math.max(top - from, Math.min(bottom - to, step));
    const ends = size ? [Math.min(from + step, to - 4), to] : [from + shift, to + shift];
    this.keep([...this.ranges().slice(0, -1), this.values(ends[0], ends[1])], true);
  }
}
