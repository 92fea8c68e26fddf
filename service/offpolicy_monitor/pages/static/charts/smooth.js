/* Smooth lines: a mean of this step and those before it, in which a step counts by e^(-how far back / so many steps). What
   was measured stays behind it, faint, and in the lists beside the plots. */

import { remember, state } from "../lib/address.js";
import { element, find } from "../lib/dom.js";

/** Steps to choose from; 0 shows what was measured alone. */
const CHOICES = [0, 5, 20, 100];
const painters = [];

/** Call this after another choice. */
export const onSmoothing = (paint) => painters.push(paint);

/** How many steps lines are smoothed over, 0 for none. */
export const smoothing = () => Math.max(0, Number(state().smooth) || 0);

/** The mean up to each step; on a log axis the geometric one. A missing value stays a gap. */
export function smoothed(steps, values, over, isLog) {
  let mean = null;
  let last = null;
  return values.map((value, index) => {
    if (value == null || (isLog && value <= 0)) return null;
    const one = isLog ? Math.log(value) : value;
    const kept = mean == null ? 0 : Math.exp((last - steps[index]) / over);
    mean = kept * (mean ?? 0) + (1 - kept) * one;
    last = steps[index];
    return isLog ? Math.exp(mean) : mean;
  });
}

function choose(over) {
  remember({ smooth: over || null });
  const select = find("#smooth");
  if (select) select.value = String(over);
  for (const paint of painters) paint();
}

/** The key for it, as boardKeys has them. */
export const smoothKey = { m: { text: "smoother lines, then as measured", act: () => choose(CHOICES[(CHOICES.indexOf(smoothing()) + 1) % CHOICES.length]) } };

/** The choice as a list; one that the address alone has is in it. */
export function smoothChoice() {
  const all = [...new Set([...CHOICES, smoothing()])].sort((a, b) => a - b);
  const words = (over) => (over ? `over ${over} steps` : "as measured");
  const select = element("select", { id: "smooth", on: { change: () => choose(Number(select.value)) } }, all.map((over) => element("option", { value: over }, words(over))));
  select.value = String(smoothing());
  return element("label", { class: "field smoothing" }, "Lines", select);
}
