// A table that draws only the rows in view, so ten thousand rows cost what thirty do.
import { h, on, perFrame, replace } from "./dom.js";
import { popover } from "./popover.js";
import { state } from "./state.js";

/**
 * @typedef {object} Column
 * @property {string} key
 * @property {string} title
 * @property {(row: any) => any} value what is sorted by, and shown when there is no `render`
 * @property {(row: any) => Node | string} [render]
 * @property {boolean} [num] numbers stand at the right
 * @property {number} [width] in pixels
 * @property {boolean} [sortable] default true
 * @property {boolean} [hidden] not shown unless chosen
 * @property {boolean} [fixed] always shown, not in the chooser
 * @property {string} [group] heading in the chooser
 */
/**
 * @typedef {object} TableOptions
 * @property {Column[]} columns
 * @property {any[]} [rows]
 * @property {number} [count] with `row`: rows that are made only when shown
 * @property {(index: number) => any} [row]
 * @property {(row: any) => string} key
 * @property {{key: string, desc: boolean} | null} [sort]
 * @property {(sort: {key: string, desc: boolean} | null) => void} [onSort] given: the rows come sorted already
 * @property {(row: any) => void} [onOpen] double click or Enter
 * @property {(selected: Set<string>) => void} [onSelect] given: rows have a box
 * @property {Set<string>} [selected]
 * @property {boolean} [chooser]
 * @property {string} [stateKey] where the sort and the columns stand in the URL
 * @property {string} [label]
 * @property {AbortSignal} [signal]
 */

const ROW = 34;
const SPARE = 8;

/** Numbers by size, text by the alphabet (and by the numbers in it), what is absent last. @param {any} a @param {any} b @param {boolean} desc */
export function compareValues(a, b, desc) {
  const absent = (/** @type {any} */ one) => one === null || one === undefined || one === "" || Number.isNaN(one);
  if (absent(a) || absent(b)) return Number(absent(a)) - Number(absent(b));
  const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true });
  return desc ? -order : order;
}

/** @param {Element} parent @param {TableOptions} options */
export function Table(parent, options) {
  let columns = options.columns;
  let given = options.rows ?? [];
  /** @type {any[]} */
  let rows = given;
  let count = options.count ?? given.length;
  let focused = 0;
  let wantsFocus = false;
  const selected = options.selected ?? new Set();
  const sortName = options.stateKey ? `${options.stateKey}.sort` : null;
  const columnsName = options.stateKey ? `${options.stateKey}.cols` : null;
  let sort = options.sort ?? null;

  const widths = h("colgroup");
  const heads = h("tr", { "aria-rowindex": "1" });
  const body = h("tbody");
  const grid = h("table", { role: "grid", "aria-label": options.label ?? "Table", "aria-multiselectable": options.onSelect ? "true" : null },
    widths, h("thead", null, heads), body);
  const scroller = h("div", { class: "vtable" }, grid);
  parent.append(scroller);

  function readState() {
    if (!sortName) return;
    const text = state.get(sortName, null);
    if (text !== null) sort = { key: text.replace(/^-/, ""), desc: text.startsWith("-") };
    else sort = options.sort ?? null;
  }

  /** @returns {Column[]} */
  function shown() {
    const names = new Set(columnsName ? state.list(columnsName) : []);
    if (!names.size) return columns.filter((one) => !one.hidden);
    return columns.filter((one) => one.fixed || names.has(one.key));
  }

  const at = (/** @type {number} */ index) => (options.row ? options.row(index) : rows[index]);

  function arrange() {
    const by = sort && columns.find((one) => one.key === sort?.key);
    if (!by || options.onSort || options.row) rows = given;
    else rows = [...given].sort((a, b) => compareValues(by.value(a), by.value(b), /** @type {any} */ (sort).desc));
    if (!options.row) count = rows.length;
  }

  /** @param {Column} column */
  function sortBy(column) {
    const again = sort?.key === column.key;
    if (again && sort?.desc === Boolean(column.num)) sort = { key: column.key, desc: !column.num };
    else if (again) sort = null;
    else sort = { key: column.key, desc: Boolean(column.num) };
    if (sortName) state.set({ [sortName]: sort ? (sort.desc ? "-" : "") + sort.key : null });
    arrange();
    head();
    draw(true);
    options.onSort?.(sort);
  }

  function head() {
    const visible = shown();
    replace(widths, options.onSelect ? h("col", { style: { width: "36px" } }) : null,
      visible.map((one) => h("col", { style: { width: `${one.width ?? (one.num ? 104 : 150)}px` } })));
    grid.style.minWidth = `${visible.reduce((sum, one) => sum + (one.width ?? (one.num ? 104 : 150)), options.onSelect ? 36 : 0)}px`;
    replace(heads, options.onSelect ? h("th", { class: "pick" }, h("span", null, h("input", {
      type: "checkbox", "aria-label": "Select all rows that are loaded", checked: count > 0 && selected.size >= count,
      onchange: (/** @type {any} */ event) => {
        selected.clear();
        for (let index = 0; event.target.checked && index < count; index += 1) {
          const row = at(index);
          if (row) selected.add(options.key(row));
        }
        draw(true);
        options.onSelect?.(selected);
      },
    }))) : null, visible.map((one) => {
      const direction = sort?.key === one.key ? (sort.desc ? "descending" : "ascending") : null;
      const label = h("span", { class: "label", title: one.title }, one.title);
      return h("th", { class: one.num && "num", scope: "col", "aria-sort": direction, "data-column": one.key },
        one.sortable === false ? h("span", null, label)
          : h("button", { type: "button", onclick: () => sortBy(one) }, one.num ? arrow(direction) : null, label, one.num ? null : arrow(direction)));
    }));
    grid.setAttribute("aria-colcount", String(visible.length));
  }

  /** @param {string | null} direction */
  function arrow(direction) {
    return direction ? h("span", { class: "arrow", "aria-hidden": "true" }, direction === "descending" ? "↓" : "↑") : null;
  }

  let drawnFrom = -1;
  let drawnTo = -1;

  // Rows that are replaced between press and release would swallow the click.
  let pressed = false;
  let late = false;

  /** @param {boolean} [force] */
  function draw(force = false) {
    if (pressed) {
      late = late || force;
      return;
    }
    const room = scroller.clientHeight || 600;
    const from = Math.max(0, Math.floor(scroller.scrollTop / ROW) - SPARE);
    const to = Math.min(count, Math.ceil((scroller.scrollTop + room) / ROW) + SPARE);
    if (!force && from === drawnFrom && to === drawnTo) return;
    drawnFrom = from;
    drawnTo = to;
    const visible = shown();
    const width = visible.length + (options.onSelect ? 1 : 0);
    const held = body.contains(document.activeElement) && document.activeElement !== body;
    if (!held && document.activeElement !== document.body) wantsFocus = false; // it went elsewhere meanwhile
    const spacer = (/** @type {number} */ n) => h("tr", { class: "spacer", "aria-hidden": "true" }, h("td", { colspan: String(width), style: { height: `${n * ROW}px` } }));
    const drawn = [];
    for (let index = from; index < to; index += 1) drawn.push(drawRow(index, visible));
    replace(body, from > 0 ? spacer(from) : null, drawn, to < count ? spacer(count - to) : null);
    grid.setAttribute("aria-rowcount", String(count + 1));
    if (held || wantsFocus) {
      const row = /** @type {HTMLElement | null} */ (body.querySelector(`tr[data-index="${focused}"]`));
      // A row whose data are still on their way cannot have the focus: it gets it when it is drawn with them.
      wantsFocus = !row;
      row?.focus({ preventScroll: true });
    }
  }

  /** @param {number} index @param {Column[]} visible */
  function drawRow(index, visible) {
    const row = at(index);
    if (row === undefined || row === null) return h("tr", { class: "data", "aria-rowindex": String(index + 2) }, h("td", { colspan: String(visible.length) }, "…"));
    const key = options.key(row);
    const isSelected = selected.has(key);
    return h("tr", {
      class: "data", tabindex: index === focused ? "0" : "-1", "aria-rowindex": String(index + 2),
      dataset: { index: String(index), key }, "aria-selected": options.onSelect ? String(isSelected) : null,
    }, options.onSelect ? h("td", { class: "pick" }, h("input", { type: "checkbox", tabindex: "-1", checked: isSelected, "aria-label": `Select ${key}` })) : null,
    visible.map((one) => {
      const content = one.render ? one.render(row) : one.value(row);
      return h("td", { class: one.num && "num", "data-column": one.key, title: typeof content === "string" && content.length > 18 ? content : null }, content ?? "–");
    }));
  }

  /** @param {number} index */
  function toggle(index) {
    if (!options.onSelect) return;
    const key = options.key(at(index));
    if (!selected.delete(key)) selected.add(key);
    draw(true);
    head();
    options.onSelect(selected);
  }

  /** @param {number} index */
  function focus(index) {
    focused = Math.min(Math.max(index, 0), count - 1);
    const top = focused * ROW;
    const room = scroller.clientHeight - ROW;
    if (top < scroller.scrollTop) scroller.scrollTop = top;
    else if (top + ROW > scroller.scrollTop + room) scroller.scrollTop = top + ROW - room;
    wantsFocus = true;
    draw(true);
  }

  on(body, "pointerdown", () => { pressed = true; }, options.signal);
  for (const end of ["pointerup", "pointercancel"]) {
    on(window, end, () => {
      if (!pressed) return;
      // The click comes right behind the release; only then are the rows free again.
      setTimeout(() => {
        pressed = false;
        if (late) draw(true);
        late = false;
      });
    }, options.signal);
  }
  const rowOf = (/** @type {Event} */ event) => /** @type {HTMLElement | null} */ (/** @type {Element} */ (event.target).closest("tr.data"));
  on(scroller, "scroll", perFrame(() => draw()), options.signal);
  on(body, "change", (event) => {
    const row = rowOf(event);
    if (row && event.target.type === "checkbox" && event.target.closest("td.pick")) {
      focused = Number(row.dataset.index);
      toggle(focused);
    }
  }, options.signal);
  on(body, "dblclick", (event) => {
    const row = rowOf(event);
    if (row && !event.target.closest("a, button, input")) options.onOpen?.(at(Number(row.dataset.index)));
  }, options.signal);
  on(body, "keydown", (event) => {
    const row = rowOf(event);
    if (!row || event.target !== row) return;
    const index = Number(row.dataset.index);
    const page = Math.max(1, Math.floor(scroller.clientHeight / ROW) - 2);
    /** @type {Record<string, () => void>} */
    const moves = {
      ArrowDown: () => focus(index + 1), ArrowUp: () => focus(index - 1),
      PageDown: () => focus(index + page), PageUp: () => focus(index - page),
      Home: () => focus(0), End: () => focus(count - 1),
      Enter: () => options.onOpen?.(at(index)), " ": () => { focused = index; wantsFocus = true; toggle(index); },
    };
    if (moves[event.key]) {
      event.preventDefault();
      moves[event.key]();
    }
  }, options.signal);
  const watcher = new ResizeObserver(perFrame(() => draw()));
  watcher.observe(scroller);
  options.signal?.addEventListener("abort", () => watcher.disconnect());
  if (options.stateKey) {
    let last = "";
    state.subscribe(() => {
      const now = `${state.get(/** @type {string} */ (sortName))} ${state.get(/** @type {string} */ (columnsName))}`;
      if (now === last) return;
      last = now;
      readState();
      arrange();
      head();
      draw(true);
    }, options.signal);
  }

  readState();
  arrange();
  head();
  draw(true);

  return {
    element: scroller,
    selected,
    /** @param {any[]} next */
    setRows(next) {
      given = next;
      arrange();
      head();
      draw(true);
    },
    /** @param {number} next */
    setCount(next) {
      count = next;
      draw(true);
    },
    /** @param {Column[]} next */
    setColumns(next) {
      columns = next;
      arrange();
      head();
      draw(true);
    },
    refresh() {
      head();
      draw(true);
    },
    /** The order the rows stand in now. */
    rows: () => rows,
    sort: () => sort,
    /** A button whose popover chooses the columns. */
    chooserButton() {
      return popover("Columns", (panel) => drawChooser(panel), { label: "Choose columns" });
    },
  };

  /** @param {HTMLElement} panel */
  function drawChooser(panel) {
    const list = h("div", { class: "chooser" });
    const fill = (/** @type {string} */ wanted) => {
      const names = new Set(shown().map((one) => one.key));
      let group = "";
      const items = [];
      for (const one of columns) {
        if (one.fixed || (wanted && !one.title.toLowerCase().includes(wanted.toLowerCase()))) continue;
        if (one.group && one.group !== group) {
          group = one.group;
          items.push(h("div", { class: "group" }, group));
        }
        items.push(h("label", null, h("input", {
          type: "checkbox", checked: names.has(one.key),
          onchange: (/** @type {any} */ event) => {
            const now = new Set(shown().map((each) => each.key));
            if (event.target.checked) now.add(one.key);
            else now.delete(one.key);
            choose(columns.filter((each) => now.has(each.key)).map((each) => each.key));
          },
        }), one.title));
      }
      replace(list, items.length ? items : h("p", { class: "faint" }, "No column has that name."));
    };
    const search = h("input", { type: "search", placeholder: "Find a column", "aria-label": "Find a column", oninput: (/** @type {any} */ event) => fill(event.target.value) });
    fill("");
    replace(panel, h("div", { class: "stack" }, search, list));
    search.focus();
  }

  /** @param {string[]} names */
  function choose(names) {
    if (columnsName) state.set({ [columnsName]: names });
    else for (const one of columns) one.hidden = !one.fixed && !names.includes(one.key);
    head();
    draw(true);
  }
}
