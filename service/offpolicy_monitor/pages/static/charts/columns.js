/* The answer of /series as columns over one x. */

import { get, isReport } from "../lib/api.js";
import { plotting } from "./uplot.js";

const MOST = 1500;

/** Points that a plot of this width can show: a peak and a trough per pixel and a half. A report is for any width. */
export const points = () => (isReport ? MOST : Math.max(200, Math.min(MOST, Math.round(innerWidth * 1.2))));

/** {steps, values: {field: [...]}} of one row per step of a range; fields that the run does not have are left out. */
export async function columns(run, fields, from = null, to = null) {
  const asked = get(`v1/runs/${run}/series`, { field: fields, by: "step", points: points(), layout: "tables", from, to });
  const [{ tables }] = await Promise.all([asked, plotting]);
  const steps = [...new Set(tables.flatMap(({ step }) => step))].sort((a, b) => a - b);
  const values = {};
  for (const table of tables) {
    const index = new Map(table.step.map((step, position) => [step, position]));
    const at = steps.map((step) => index.get(step));
    for (const [field, column] of Object.entries(table.values)) values[field] = at.map((position) => column[position] ?? null);
  }
  return { steps, values };
}
