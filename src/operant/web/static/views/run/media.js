// Pictures, films and sound; a slider goes through the steps of each tag.
import { h, on, quiet, replace } from "../../lib/dom.js";
import { emptyState } from "../../lib/empty.js";
import { clock } from "../../lib/format.js";
import { state } from "../../lib/state.js";
import { blobLink } from "./facts.js";

const IMAGES = new Set(["png", "jpg", "jpeg", "gif", "webp", "bmp"]);
const VIDEOS = new Set(["mp4", "webm", "ogv"]);
const SOUNDS = new Set(["wav", "mp3", "ogg", "flac"]);

/** @param {any} run @param {any} one */
function element(run, one) {
  const source = blobLink(run, one.blob);
  const what = `${one.tag} at step ${one.step}`;
  if (IMAGES.has(one.type)) return h("img", { src: source, alt: what, loading: "lazy" });
  if (VIDEOS.has(one.type)) return h("video", { src: source, controls: true, loop: true, muted: true, "aria-label": what });
  if (SOUNDS.has(one.type)) return h("audio", { src: source, controls: true, "aria-label": what });
  return h("a", { class: "button", href: source, download: `${one.tag.split("/").pop()}-${one.step}` }, "Download");
}

/** @param {HTMLElement} panel @param {{run: any, signal: AbortSignal}} context */
export function MediaPanel(panel, { run, signal }) {
  const grid = h("div", { class: "grid media-grid" });
  panel.append(grid);
  /** @type {Map<string, {card: HTMLElement, update: (items: any[]) => void}>} */
  const cards = new Map();

  /** @param {any} now */
  function draw(now) {
    /** @type {Map<string, any[]>} */
    const byTag = new Map();
    for (const one of now.media) byTag.set(one.tag, [...(byTag.get(one.tag) ?? []), one]);
    if (!byTag.size) {
      replace(grid, emptyState("No pictures", "A program records pictures and films with one call each:", "writer.add_image(\"view\", pixels, step)\nwriter.add_video(\"episode\", frames, step)"));
      return;
    }
    for (const [tag, items] of byTag) {
      items.sort((a, b) => a.step - b.step || a.wall - b.wall);
      const known = cards.get(tag);
      if (known) known.update(items);
      else {
        if (!cards.size) replace(grid);
        const made = mediaCard(now, tag, items, signal);
        cards.set(tag, made);
        grid.append(made.card);
      }
    }
  }

  draw(run);
  return draw;
}

/** @param {any} run @param {string} tag @param {any[]} first @param {AbortSignal} signal */
function mediaCard(run, tag, first, signal) {
  const name = `at.${tag}`;
  let items = first;
  const stage = h("div", { class: "media-stage" });
  const slider = h("input", { type: "range", min: "0", step: "1", "aria-label": `Step of ${tag}` });
  const about = h("span", { class: "muted small" });
  const card = h("section", { class: "card media-card", "aria-label": tag },
    h("div", { class: "card-head" }, h("h3", { title: tag }, tag), h("span", { class: "spacer" }), about), stage,
    h("div", { class: "media-slider" }, slider));
  const keep = quiet((/** @type {number} */ at) => state.set({ [name]: at === items.length - 1 ? null : items[at].step }), 200);
  let shown = "";

  const place = () => {
    const wanted = state.get(name, null);
    const at = wanted === null ? -1 : items.findIndex((one) => String(one.step) === wanted);
    return at < 0 ? items.length - 1 : at;
  };

  /** @param {number} at */
  function show(at) {
    const one = items[at];
    slider.max = String(items.length - 1);
    slider.value = String(at);
    slider.disabled = items.length < 2;
    slider.setAttribute("aria-valuetext", `step ${one.step}`);
    about.textContent = `step ${one.step} · ${at + 1} of ${items.length} · ${clock(one.wall)}`;
    if (shown === one.blob) return;
    shown = one.blob;
    replace(stage, element(run, one));
  }

  on(slider, "input", () => {
    show(Number(slider.value));
    keep(Number(slider.value));
  }, signal);
  state.subscribe(() => show(place()), signal);
  show(place());
  return {
    card,
    /** @param {any[]} next */
    update(next) {
      const atEnd = Number(slider.value) === items.length - 1;
      items = next;
      show(atEnd ? items.length - 1 : Math.min(Number(slider.value), items.length - 1));
    },
  };
}
