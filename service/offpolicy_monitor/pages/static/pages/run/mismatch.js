/* What the mismatch is made of beside engine and trainer: noise of either side, lag, the truncation of the sampler. Each
   is drawn of runs that sent what it needs; of a step that did not, nothing is. */

import { number, percent } from "../../lib/numbers.js";
import { logAxis } from "../../charts/axes.js";
import { Plot } from "../../charts/plot.js";
import { panel, readout } from "./panel.js";

const UNIT = "nats per token, log scale";
/** Digits that tell a mean ratio from 1. */
const FINE = 4;

/** Those of [[kind, name, field]] that the run has, as lines; steps without a value may lie between others. */
const linesOf = (rows, values) => rows.filter(([, , field]) => values[field]).map(([kind, name, field]) => ({ kind, name, field, values: values[field], isSparse: true }));

const keyOf = (lines) => lines.map(({ field }) => field).join();

/** A row of a figure that is not drawn. */
const beside = (name, figure, values, say) => ({ name, figure, value: (index) => say(values[figure]?.[index]) });

/** A panel of lines of k3. `shows(values)`: {key, lines, note?(line), besides?: [row]}. */
function ofK3(id, title, hint, shows) {
  return {
    id,
    shows: ({ values }) => shows(values),
    draw(stack, board, first) {
      const { plot, rail } = panel(stack, { title, hint, call: `series?${first.lines.map(({ field }) => `field=${field}`).join("&")}&by=step` });
      const shown = ({ lines }) => ({ title, hint, height: 104, lines, hasSteps: first.isLast, axis: logAxis(lines.flatMap(({ values }) => values)) });
      const rows = ({ lines, note, besides = [] }) => [
        ...lines.map((line) => ({ kind: line.kind, name: line.name, figure: line.field, value: (index) => number(line.values[index]), note: note?.(line) })), ...besides,
      ];
      const line = new Plot(board, plot, shown(first));
      const put = readout(board, rail, rows(first));
      return (data) => {
        line.show(shown(data));
        put(rows(data));
      };
    },
  };
}

const MADE = [
  ["mismatch", "engine alone", "noise_floor.engine_internal.k3"],
  ["preset", "engine to trainer", "noise_floor.cross_engine.k3"],
  ["other", "trainer alone", "noise_floor.trainer.k3"],
];

/** Of steps some tokens of which were rescored. */
const noiseFloor = ofK3("noise_floor", "Where is the mismatch made?", `k3, ${UNIT}`, (values) => {
  const lines = linesOf(MADE, values);
  const share = values["noise_floor.attribution.engine_internal"];
  const part = (index) => (share[index] == null ? "" : `${percent(share[index])} of the mismatch`);
  return lines.length ? { key: keyOf(lines), lines, note: ({ kind }) => (share && kind === "mismatch" ? part : null) } : null;
});

const AGES = [
  ["staleness", "older weights", "mismatch_lag.k3"],
  ["mismatch", "newest weights", "mismatch_lag.k3_current"],
];

/** Of steps with tokens that older weights sampled. */
const lag = ofK3("mismatch_lag", "Does the mismatch have lag in it?", `k3 by the weights that sampled, ${UNIT}`, (values) => {
  const lines = linesOf(AGES, values);
  return lines.length ? { key: keyOf(lines), lines, besides: [beside("older tokens", "mismatch_lag.token_fraction", values, percent)] } : null;
});

/** Of steps with the mass of what a truncated sampler chose among. */
const support = ofK3("support", "Is the gap what the sampler cut off?", `k3 on what it chose among, ${UNIT}`, (values) => {
  const gap = ["mismatch", "total"].find((name) => values[`support.${name}.k3`]);
  if (!gap) return null;
  const rows = [[gap, gap, `support.${gap}.k3`], ["other", "as sent", `gaps.${gap}.k3`], gap === "mismatch" && ["total", "total", "support.total.k3"]];
  const lines = linesOf(rows.filter(Boolean), values);
  const besides = [
    beside("mean ratio", `support.${gap}.ratio_mean`, values, (ratio) => number(ratio, FINE)),
    beside("mass kept", `support.${gap}.mass_mean`, values, percent),
  ];
  return { key: keyOf(lines), lines, besides };
});

/** In the order for the eye. */
export const madeOf = [noiseFloor, lag, support];
