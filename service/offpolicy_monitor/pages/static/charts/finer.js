/* A long run is thinned out to what a plot can show. What is looked at closely, a brushed range or a step by its
   number, is asked for by itself, and stands among the thinned steps of the rest. */

import { isReport } from "../lib/api.js";

/** Milliseconds that a range rests before it is asked for. */
const RESTED = 120;

/**
 * Call `put(series)` with finer series whenever another range of the board is looked at.
 *
 * `read(from, to)` answers {steps, values} of a range; `coarse()` those of the whole run, `count()` how many steps it has.
 */
export class Finer {
  constructor(board, { read, coarse, count, put }) {
    Object.assign(this, { board, read, coarse, count, put, due: null, latest: null, isFine: false });
    board.add(this);
    this.ranged();
  }

  /** The board shows another range, or looks at another step. */
  ranged() {
    clearTimeout(this.due);
    if (!isReport) this.due = setTimeout(() => this.ask(), RESTED);
  }

  async ask() {
    const turn = (this.latest = {});
    const wasFine = this.isFine;
    const series = await this.of(this.coarse());
    if (turn === this.latest && (wasFine || this.isFine)) this.put(series);
  }

  /** These series of the whole run, finer where the board looks; the same ones where the service does not answer. */
  async of(coarse) {
    const range = coarse.steps.length < this.count() ? this.range(coarse.steps) : null;
    const fine = range ? await this.read(...range).catch(() => null) : null;
    this.isFine = fine !== null;
    return fine ? merged(coarse, fine) : coarse;
  }

  /** The steps that are looked at closely, null for none. */
  range(steps) {
    const { isFull, range, wanted } = this.board;
    if (!isFull) return [Math.max(0, Math.ceil(range[0])), Math.max(0, Math.floor(range[1]))];
    return wanted == null || steps.includes(wanted) ? null : [wanted, wanted];
  }
}

/** `fine` in place of what `coarse` has between the first and the last step of it. */
export function merged(coarse, fine) {
  if (!fine.steps.length) return coarse;
  const [first, last] = [fine.steps[0], fine.steps.at(-1)];
  const begin = coarse.steps.findIndex((step) => step >= first);
  const before = begin < 0 ? coarse.steps.length : begin;
  const end = coarse.steps.findIndex((step) => step > last);
  const after = end < 0 ? coarse.steps.length : end;
  const join = (all, part) => [...all.slice(0, before), ...part, ...all.slice(after)];
  const none = fine.steps.map(() => null);
  const names = Object.keys(coarse.values);
  return { steps: join(coarse.steps, fine.steps), values: Object.fromEntries(names.map((name) => [name, join(coarse.values[name], fine.values[name] ?? none)])) };
}
