// Tags and notes, changed where they stand.
import { h, replace } from "./dom.js";

/**
 * Chips with a cross each, and a field that adds one.
 * @param {{tags: string[], onChange: (add: string[], remove: string[]) => Promise<any>, label?: string}} options
 */
export function tagEditor(options) {
  let tags = [...options.tags];
  const chips = h("span", { class: "row tags" });
  const field = h("input", { type: "text", class: "tag-field", placeholder: "add tag", "aria-label": options.label ?? "Add a tag", maxlength: "100" });

  function draw() {
    replace(chips, tags.map((tag) => h("span", { class: "chip", title: tag }, tag,
      h("button", { type: "button", "aria-label": `Remove tag ${tag}`, onclick: () => change([], [tag]) }, "×"))));
  }

  /** @param {string[]} add @param {string[]} remove */
  async function change(add, remove) {
    await options.onChange(add, remove);
    tags = [...tags.filter((one) => !remove.includes(one)), ...add.filter((one) => !tags.includes(one))];
    draw();
    field.focus();
  }

  field.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    const tag = field.value.trim();
    if (event.key !== "Enter" || !tag) return;
    event.preventDefault();
    field.value = "";
    change([tag], []);
  });
  draw();
  return {
    element: h("span", { class: "row tag-editor" }, chips, field),
    /** @param {string[]} next */
    setTags(next) {
      tags = [...next];
      draw();
    },
  };
}

/**
 * A note that turns into a field when it is clicked.
 * @param {{note: string, onSave: (text: string) => Promise<any>}} options
 */
export function noteEditor(options) {
  let note = options.note;
  const holder = h("div", { class: "note" });

  function show() {
    replace(holder, h("button", { type: "button", class: ["note-text", !note && "is-empty"], "aria-label": note ? `Edit the note: ${note}` : "Add a note", onclick: edit }, note || "Add a note"));
  }

  function edit() {
    const field = h("textarea", { "aria-label": "Note", rows: "3", maxlength: "10000", value: note });
    const save = async () => {
      const text = field.value.trim();
      if (text !== note) await options.onSave(text);
      note = text;
      show();
      holder.querySelector("button")?.focus();
    };
    field.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Escape") {
        event.stopPropagation();
        event.preventDefault();
        show();
      } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) save();
    });
    replace(holder, field, h("span", { class: "row" },
      h("button", { type: "button", class: "button small primary", onclick: save }, "Save note"),
      h("button", { type: "button", class: "button small", onclick: show }, "Cancel"),
      h("span", { class: "faint small" }, "Ctrl+Enter saves, Escape leaves")));
    field.focus();
  }

  show();
  return {
    element: holder,
    /** @param {string} next */
    setNote(next) {
      note = next;
      if (!holder.querySelector("textarea")) show();
    },
  };
}
