// One search as the page holds it: columns that live events change in place, and what is chosen among them.
import { isDark, scale, statusColor } from "../../lib/colors.js";
import { number, setting } from "../../lib/format.js";
import { brushesFromText, inside } from "../../charts/brushes.js";
import { nameOf, rangeOf } from "../../charts/scales.js";
import { state } from "../../lib/state.js";
import { parseFilter } from "./filter.js";

/** The axis of the reward; no setting can have this name, since a name has no `@`. */
export const REWARD = "@reward";
const USABLE = new Set(["FINISHED", "STOPPED"]);
const FINAL = new Set(["FINISHED", "STOPPED", "KILLED", "ERROR"]);
const COLUMNS = ["id", "number", "name", "status", "reward", "started", "ended", "seed", "attempt", "reason", "error", "is_check", "where", "submitted"];

/** @typedef {{name: string, kind: "real" | "int" | "categorical", log: boolean, low: number, high: number, choices: any[] | null}} SearchAxis */

export class SearchModel {
  /** @param {any} data the answer of `/api/searches/NAME` */
  constructor(data) {
    this.summary = data.summary;
    /** @type {SearchAxis[]} */
    this.axes = data.axes;
    /** @type {string} */
    this.yaml = data.yaml ?? "";
    /** @type {Record<string, any[]>} */
    this.jobs = {};
    for (const name of COLUMNS) this.jobs[name] = data.jobs[name] ?? [];
    /** @type {Record<string, any[]>} */
    this.settings = data.settings;
    this.fill();
    /** @type {Map<string, number>} */
    this.rows = new Map(this.jobs.id.map((id, row) => [id, row]));
    /** @type {Map<string, import("../../charts/brushes.js").Brush> | null} brushes under a pointer, not yet in the address */
    this.pending = null;
    this.brushes = new Map();
    /** @type {(number | null)[] | null} */
    this.cachedRewards = null;
    this.selected = new Uint8Array(this.count).fill(1);
    this.chosen = this.count;
    this.isFiltered = false;
    this.filterProblem = "";
    this.select();
  }

  get count() {
    return this.jobs.id.length;
  }

  get isLive() {
    return this.summary.status === "RUNNING" || this.summary.status === "PAUSED";
  }

  /** How many jobs have ended; plots that the server computes change only with it. */
  get ended() {
    return this.jobs.status.reduce((sum, status) => sum + (FINAL.has(status) ? 1 : 0), 0);
  }

  /** Take in a live event: a new summary, and the jobs that changed. */
  merge(/** @type {{summary: any, jobs?: any[], axes?: SearchAxis[]}} */ event) {
    if (event.summary) this.summary = event.summary;
    if (event.axes) {
      this.axes = event.axes;
      this.fill();
    }
    let isOrdered = true;
    for (const job of event.jobs ?? []) {
      let row = this.rows.get(job.id);
      if (row === undefined) {
        row = this.count;
        this.rows.set(job.id, row);
        for (const values of Object.values(this.settings)) values.push(null);
      }
      for (const name of COLUMNS) this.jobs[name][row] = job[name] ?? null;
      isOrdered &&= row === 0 || this.isInOrder(row - 1, row);
      for (const [name, value] of Object.entries(job.settings ?? {})) {
        this.settings[name] ??= new Array(this.count).fill(null);
        this.settings[name][row] = value;
      }
    }
    if (!isOrdered) this.sort();
    this.cachedRewards = null;
    this.select();
  }

  /** A setting that no job has had yet has its place already: plots must not move when one comes. */
  fill() {
    for (const axis of this.axes) this.settings[axis.name] ??= new Array(this.count).fill(null);
  }

  isInOrder(/** @type {number} */ one, /** @type {number} */ other) {
    const { is_check: isCheck, number: place } = this.jobs;
    return Boolean(isCheck[one]) === Boolean(isCheck[other]) ? place[one] <= place[other] : !isCheck[one];
  }

  /** The server's order: by proposal, those of the final check last. Its answers for all jobs come in this order. */
  sort() {
    const order = this.jobs.id.map((_, row) => row).sort((one, other) => (this.isInOrder(one, other) ? (this.isInOrder(other, one) ? one - other : -1) : 1));
    for (const columns of [this.jobs, this.settings])
      for (const [name, values] of Object.entries(columns)) columns[name] = order.map((row) => values[row]);
    this.rows = new Map(this.jobs.id.map((id, row) => [id, row]));
  }

  /** A place for each job such that no two of one place overlap: the lowest that was free when it started. @returns {(number | null)[]} */
  lanes() {
    const { started, ended } = this.jobs;
    const order = started.flatMap((wall, row) => (wall === null ? [] : [row])).sort((one, other) => started[one] - started[other]);
    /** @type {number[]} until when each place is taken */
    const taken = [];
    /** @type {(number | null)[]} */
    const found = new Array(this.count).fill(null);
    for (const row of order) {
      const free = taken.findIndex((until) => until <= started[row]);
      const lane = free < 0 ? taken.length : free;
      taken[lane] = ended[row] ?? Infinity;
      found[row] = lane;
    }
    return found;
  }

  /** The rewards that count: of jobs that ended well, and belong to the search itself. @returns {(number | null)[]} */
  rewards() {
    const { reward, status, is_check: isCheck } = this.jobs;
    this.cachedRewards ??= reward.map((value, row) => (typeof value === "number" && USABLE.has(status[row]) && !isCheck[row] ? value : null));
    return this.cachedRewards;
  }

  column(/** @type {string} */ axis) {
    return axis === REWARD ? this.rewards() : this.settings[axis];
  }

  /** Which jobs the brushes and the filter leave, as the address says, or the pointer that is still down. */
  select() {
    const brushes = this.pending ?? brushesFromText(state.get("brush", ""));
    this.brushes = brushes;
    this.selected = inside(brushes, (axis) => this.column(axis), this.count);
    const text = state.get("filter", "");
    this.filterProblem = "";
    try {
      const test = text ? parseFilter(text) : null;
      if (test) for (let row = 0; row < this.count; row++) if (this.selected[row] && !test(this.lookup(row))) this.selected[row] = 0;
    } catch (error) {
      this.filterProblem = /** @type {Error} */ (error).message;
    }
    this.chosen = this.selected.reduce((sum, one) => sum + one, 0);
    this.isFiltered = Boolean(text) || brushes.size > 0;
  }

  /** What a filter may ask of a job. @returns {{get: (name: string) => any, words: () => string}} */
  lookup(/** @type {number} */ row) {
    const { jobs, settings } = this;
    return {
      get: (name) => {
        if (name in settings) return settings[name][row];
        if (name === "duration" || name === "waited") return this[name](row);
        if (name in jobs) return jobs[name][row];
        throw new Error(`There is no setting or column ${name}; there are: ${[...Object.keys(settings), ...COLUMNS].join(", ")}.`);
      },
      words: () => {
        const parts = [jobs.id[row], jobs.name[row], jobs.status[row], jobs.reason[row], jobs.error[row]];
        for (const values of Object.values(settings)) parts.push(setting(values[row]));
        return parts.join(" ").toLowerCase();
      },
    };
  }

  duration(/** @type {number} */ row) {
    const from = this.jobs.started[row];
    return from === null ? null : (this.jobs.ended[row] ?? this.now) - from;
  }

  /** How long a job of a cluster waited until its program began, or has waited up to now. */
  waited(/** @type {number} */ row) {
    const { submitted, started, ended } = this.jobs;
    return typeof submitted[row] !== "number" ? null : Math.max(0, (started[row] ?? ended[row] ?? this.now) - submitted[row]);
  }

  /** The server's clock, as far as this page knows it. */
  get now() {
    return Date.now() / 1000 + this.clockAhead;
  }

  clockAhead = 0;

  isBetter(/** @type {number} */ one, /** @type {number} */ other) {
    return this.summary.maximize ? one > other : one < other;
  }

  /**
   * The best so far at each improvement, over the jobs in an order. With several seeds a proposal counts once
   * all its jobs have ended, with their mean.
   * @param {ArrayLike<number | null>} places where each job stands; null leaves it out
   */
  stairs(places) {
    const rewards = this.rewards();
    /** @type {Map<number, number[]>} */
    const proposals = new Map();
    this.jobs.number.forEach((one, row) => {
      if (this.jobs.is_check[row]) return;
      const rows = proposals.get(one);
      if (rows) rows.push(row);
      else proposals.set(one, [row]);
    });
    /** @type {{at: number, reward: number}[]} */
    const results = [];
    for (const rows of proposals.values()) {
      const values = rows.map((row) => rewards[row]);
      const spots = rows.map((row) => places[row]);
      if (values.includes(null) || spots.includes(null)) continue;
      const sum = /** @type {number[]} */ (values).reduce((one, other) => one + other, 0);
      results.push({ at: Math.max(.../** @type {number[]} */ (spots)), reward: sum / values.length });
    }
    results.sort((one, other) => one.at - other.at);
    const line = { x: /** @type {number[]} */ ([]), y: /** @type {number[]} */ ([]) };
    for (const { at, reward } of results) {
      if (line.y.length && !this.isBetter(reward, line.y[line.y.length - 1])) continue;
      line.x.push(at);
      line.y.push(reward);
    }
    return line;
  }

  /**
   * The range of rewards to draw. In focus it begins a little below the lower quarter: a few hopeless jobs would
   * otherwise press all others into one line.
   * @returns {import("../../charts/scales.js").Domain}
   */
  rewardRange() {
    const log = state.get("ylog", null) === "1";
    const all = this.rewards();
    if (state.get("focus", null) !== "1") return rangeOf(all, { log });
    const sorted = /** @type {number[]} */ (all.filter((value) => value !== null)).sort((one, other) => (this.isBetter(one, other) ? -1 : 1));
    const [best, quarter] = [sorted[0], sorted[Math.floor((sorted.length - 1) * 0.75)]];
    const limit = quarter + (quarter - best) * 0.5;
    return rangeOf(all.filter((value) => value !== null && (value === limit || this.isBetter(value, limit))), { log });
  }

  /** How good each reward is among all: 0 the worst, 1 the best, NaN where there is none. */
  goodness() {
    const rewards = this.rewards();
    const order = rewards.flatMap((value, row) => (value === null ? [] : [row]));
    order.sort((one, other) => /** @type {number} */ (rewards[one]) - /** @type {number} */ (rewards[other]));
    if (!this.summary.maximize) order.reverse();
    const found = new Float64Array(this.count).fill(NaN);
    for (const [place, row] of order.entries()) found[row] = order.length > 1 ? place / (order.length - 1) : 1;
    return found;
  }

  /** Colours by how good a job is; "" where there is no reward. Sixty-four steps, so that lines share strokes. */
  goodnessColors(/** @type {Float64Array} */ goodness) {
    // The end of the scale that would vanish in the page's background is left out.
    const [from, to] = isDark() ? [0.15, 1] : [0, 0.9];
    const steps = Array.from({ length: 64 }, (_, step) => scale(from + ((to - from) * step) / 63));
    return Array.from(goodness, (part) => (Number.isNaN(part) ? "" : steps[Math.round(part * 63)]));
  }

  /** Colours by status; `colors` remembers what each is in this theme. @returns {string[]} */
  statusColors() {
    /** @type {Record<string, string>} */
    const colors = {};
    return this.jobs.status.map((status) => (colors[status] ??= statusColor(status)));
  }

  /** A few lines about a job, for the note beside a pointer. @returns {string[]} */
  lines(/** @type {number} */ row) {
    const { jobs } = this;
    const lines = [`${jobs.id[row]} · ${jobs.status[row].toLowerCase()}`, `reward ${number(jobs.reward[row])}`];
    for (const axis of this.axes.slice(0, 8)) {
      const value = this.settings[axis.name]?.[row];
      if (value !== null && value !== undefined) lines.push(`${axis.name} = ${setting(value)}`);
    }
    if (this.axes.length > 8) lines.push(`and ${this.axes.length - 8} more`);
    if (jobs.error[row] || jobs.reason[row]) lines.push(String(jobs.error[row] ?? jobs.reason[row]).slice(0, 120));
    return lines;
  }

  linesOf(/** @type {string} */ id) {
    const row = this.rows.get(id);
    return row === undefined ? [id] : this.lines(row);
  }

  /** The names of a categorical axis: its choices, and whatever else jobs had. */
  names(/** @type {SearchAxis} */ axis) {
    const names = new Set((axis.choices ?? []).map(nameOf));
    for (const value of this.settings[axis.name] ?? []) if (value !== null && value !== undefined) names.add(nameOf(value));
    return [...names];
  }
}
