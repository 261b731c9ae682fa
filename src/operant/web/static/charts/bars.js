/** Named bars, longest first: a list that can be read as text too. */

/**
 * @param {Element} parent
 * @param {{label: string, rows: {name: string, part: number, text: string}[]}} options parts between 0 and 1
 */
export function drawBars(parent, { label, rows }) {
  const list = document.createElement("ul");
  list.className = "bars";
  list.setAttribute("aria-label", label);
  const most = Math.max(...rows.map((row) => row.part), 1e-9);
  for (const { name, part, text } of rows) {
    const row = document.createElement("li");
    const title = document.createElement("span");
    title.className = "bars-name";
    title.textContent = name;
    title.title = name;
    const track = document.createElement("span");
    track.className = "bars-track";
    const bar = document.createElement("span");
    bar.className = "bars-bar";
    bar.style.width = `${Math.max(0, Math.min(1, part / most)) * 100}%`;
    track.append(bar);
    const value = document.createElement("span");
    value.className = "bars-value";
    value.textContent = text;
    row.append(title, track, value);
    list.append(row);
  }
  parent.replaceChildren(list);
}
