// Live charts: one event stream for the runs that go on and the tags that have been seen.
import { stream } from "../lib/api.js";
import { quiet } from "../lib/dom.js";
import { readChartState } from "./toolbar.js";

const MOST_TAGS = 150;
const SETTLE = 300;

/**
 * @param {{board: () => import("./board.js").BoardApi | null, signal: AbortSignal, runs: () => string[], onRun: (data: any) => void}} options
 * `runs` are the ids that still go on; with none there is nothing to follow.
 */
export function Follower(options) {
  let followed = "";
  let sameRuns = "";
  /** @type {Set<string>} */
  let covered = new Set();
  /** @type {AbortController | null} */
  let current = null;

  function update() {
    if (options.signal.aborted) return;
    const ids = options.runs();
    const { x } = readChartState();
    const tags = (options.board()?.seen() ?? []).filter((tag) => !tag.includes(",")).slice(0, MOST_TAGS);
    const runs = JSON.stringify([ids, x]);
    const key = runs + JSON.stringify(tags);
    if (key === followed) return;
    followed = key;
    current?.abort();
    current = null;
    // Charts that were fetched before their stream was there may lack what came in between.
    const late = runs === sameRuns ? tags.filter((tag) => !covered.has(tag)) : tags;
    sameRuns = runs;
    covered = new Set(tags);
    if (!ids.length) return;
    current = new AbortController();
    let opened = false;
    stream({ runs: ids, tags, x }, {
      open: () => {
        options.board()?.renew(opened ? null : late);
        opened = true;
      },
      points: (data) => options.board()?.append(data),
      reset: () => options.board()?.renew(null),
      run: options.onRun,
    }, current.signal);
  }

  options.signal.addEventListener("abort", () => current?.abort());
  return { update, soon: quiet(update, SETTLE) };
}
