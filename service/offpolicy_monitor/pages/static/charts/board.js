/* The plots of a page that share their steps: one range, one cursor, one pinned step, so that a vertical line through
   the page is one step. Drag zooms all, a double-click shows the whole run, a click pins a step. */

import { remember, state } from "../lib/address.js";
import { onTheme } from "../lib/theme.js";
import { onSmoothing } from "./smooth.js";

export const isNarrow = () => innerWidth <= 760;
/** Pixels beside the inside of every plot, which makes their x the same. */
export const gutter = () => (isNarrow() ? { left: 46, right: 12 } : { left: 66, right: 14 });

export class Board {
  /** `steps` ascending, at least one; `since`: the step from which something is wrong, or null; `changes`: {versions,
      attempts}, the steps from which either is another. */
  constructor(steps, since = null, changes = null) {
    this.parts = [];
    this.listeners = [];
    this.hovered = null;
    this.steps = steps;
    this.since = since;
    this.changes = changes;
    this.range = asked(this.full) ?? this.full;
    const wanted = state().step;
    this.wanted = wanted == null ? null : Number(wanted); // the step that is pinned; null follows the newest
    this.pinned = this.follows ? steps.length - 1 : this.nearest(this.wanted);
    this.widths = new ResizeObserver((changes) => this.resized(changes));
    onTheme(() => this.each("rebuild"));
    onSmoothing(() => this.each("rebuild"));
  }

  /** The range that shows every step. */
  get full() {
    return [this.steps[0] - 0.5, this.steps.at(-1) + 0.5];
  }

  get isFull() {
    return this.range[0] === this.full[0] && this.range[1] === this.full[1];
  }

  get follows() {
    return this.wanted == null;
  }

  /** The index of the step that is looked at: under the cursor, else pinned. */
  get index() {
    return this.hovered ?? this.pinned;
  }

  /** A plot or a lane: {host, width that it was built for, rebuild(), redraw(), ranged()}; or what else follows the range. */
  add(part) {
    this.parts.push(part);
    if (part.host) this.widths.observe(part.host);
    return part;
  }

  /** Build anew what is wider or narrower now; what is hidden waits until it is seen. */
  resized(changes) {
    for (const { target } of changes) {
      const part = this.parts.find(({ host }) => host === target);
      if (part && target.clientWidth && target.clientWidth !== part.width) part.rebuild();
    }
  }

  /** Call `listener(index, hovering)` whenever the step that is looked at changes. */
  onMove(listener) {
    this.listeners.push(listener);
  }

  /** Further steps, or other ones: a range that showed all goes on doing so, and so does the newest step. */
  update(steps, since = null, changes = null) {
    const wasFull = this.isFull;
    this.steps = steps;
    this.since = since;
    this.changes = changes;
    this.hovered = null;
    if (wasFull) this.range = this.full;
    this.pinned = this.follows ? steps.length - 1 : this.nearest(this.wanted);
  }

  /** Look at a step by its index, and say so in the address; the newest one is followed. */
  pin(index) {
    this.pinned = Math.max(0, Math.min(this.steps.length - 1, index));
    const step = this.steps[this.pinned];
    this.wanted = this.pinned === this.steps.length - 1 ? null : step;
    if (step < this.range[0] || step > this.range[1]) this.zoom(this.full);
    remember({ step: this.wanted });
    this.each("redraw");
    this.moved();
  }

  /** Show the steps from range[0] to range[1]. */
  zoom(range) {
    this.range = range[1] - range[0] < 1 ? [range[0] - 0.5, range[1] + 0.5] : range;
    remember({ x: this.isFull ? null : this.range.map((end) => Math.max(0, Math.round(end))).join("-") });
    this.each("ranged");
  }

  hover(index) {
    if (index === this.hovered) return;
    this.hovered = index;
    this.moved();
  }

  moved() {
    for (const listener of this.listeners) listener(this.index, this.hovered != null);
  }

  each(what) {
    for (const part of this.parts) part[what]?.();
  }

  /** The index of the step closest to this one. */
  nearest(step) {
    let [low, high] = [0, this.steps.length - 1];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (this.steps[middle] > step) high = middle;
      else low = middle;
    }
    return Math.abs(this.steps[low] - step) <= Math.abs(this.steps[high] - step) ? low : high;
  }
}

/** The range that the address asks for. */
function asked(full) {
  const ends = (state().x ?? "").split("-").map(Number);
  return ends.length === 2 && ends[1] > ends[0] && ends[1] > full[0] && ends[0] < full[1] ? ends : null;
}
