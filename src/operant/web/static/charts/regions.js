/** A tree of regions: each level below the last, each region as wide as it has samples, the better half on the left. */

/**
 * @typedef {{path: string, first: number, count: number, mean: number, bound: number | null, leaf: boolean, marked: boolean}} Region
 * @param {Element} parent
 * @param {{label: string, nodes: Region[], color: (part: number) => string, text: (value: number) => string}} options
 */
export function drawRegions(parent, { label, nodes, color, text }) {
  const list = document.createElement("ul");
  list.className = "regions";
  list.setAttribute("aria-label", label);
  const means = nodes.map((node) => node.mean).sort((one, other) => one - other);
  const all = Math.max(nodes[0]?.count ?? 0, 1);
  const levels = Math.max(0, ...nodes.map((node) => node.path.length)) + 1;
  list.style.setProperty("--levels", String(levels));
  for (const { path, first, count, mean, bound, marked } of nodes) {
    const item = document.createElement("li");
    item.className = marked ? "region region-marked" : "region";
    item.style.left = `${(first / all) * 100}%`;
    item.style.width = `${(count / all) * 100}%`;
    item.style.setProperty("--level", String(path.length));
    item.style.background = color(means.length > 1 ? means.indexOf(mean) / (means.length - 1) : 0.5);
    const words = [`${path || "all"}: ${count} samples`, `mean ${text(mean)}`];
    if (bound !== null) words.push(`bound ${text(bound)}`);
    item.title = words.join(", ");
    item.setAttribute("aria-label", item.title);
    list.append(item);
  }
  parent.replaceChildren(list);
}
