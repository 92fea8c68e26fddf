/* The panels that are plots of figures. */

import { remember, state } from "../../lib/address.js";
import { element } from "../../lib/dom.js";
import { LEVEL } from "../../lib/glyphs.js";
import { number, percent, times } from "../../lib/numbers.js";
import { linearAxis, logAxis, maskAxis, shareAxis } from "../../charts/axes.js";
import { isNarrow } from "../../charts/board.js";
import { Plot } from "../../charts/plot.js";
import { masked } from "./fields.js";
import { panel, readout } from "./panel.js";

/** Thresholds of a rule of this run, as lines: `text` names the value. Where the figure is critical by itself from a
    higher level on, the line is there. */
function limitsOf(rules, alert, text) {
  const found = rules.filter((rule) => rule.alert === alert && rule.threshold != null && LEVEL[rule.severity] !== "healthy");
  return found.map(({ severity, threshold, alone }) => {
    const grown = alone == null ? "" : `, ${number(threshold)} with growth`;
    return { value: alone ?? threshold, level: LEVEL[severity], text: `${text(severity, alone ?? threshold)}${grown} · ${alert}` };
  });
}

/** The two halves on one log axis; the total alone where pi_old was not sent. */
export const gaps = {
  id: "gaps",
  shows({ values, rules }) {
    const names = values["gaps.mismatch.k3"] ? ["mismatch", "staleness"] : ["total"];
    const lines = names.filter((name) => values[`gaps.${name}.k3`]).map((name) => ({ kind: name, name, values: values[`gaps.${name}.k3`] }));
    if (!lines.length) return null;
    const limits = lines[0].kind === "mismatch" ? limitsOf(rules, "MismatchKL", (severity, value) => `mismatch ${severity} ${number(value)}`) : [];
    const baseline = lines[0].kind === "mismatch" ? rules.find((rule) => rule.alert === "MismatchDrift" && rule.baseline)?.baseline : null;
    const band = baseline && { low: baseline.low, high: baseline.high, text: `baseline ${number(baseline.median)} · steps ${baseline.from} to ${baseline.to}` };
    return { key: lines.map(({ kind }) => kind).join(), lines, limits, band, baseline, lag: values["policy_lag.max"] };
  },
  draw(stack, board, first) {
    const [title, hint] = ["How far apart, and which half?", "k3, nats per token, log scale"];
    const { plot, rail } = panel(stack, { title, hint, call: "series?field=gaps.mismatch.k3&field=gaps.staleness.k3&by=step" });
    const at = element("p", { class: "at" });
    const isTotal = first.lines[0].kind === "total";
    const marks = element("p", { class: "note quiet" });
    const missing = element("p", { class: "note quiet" }, "No ", element("code", {}, "old_logprobs"), " were sent: the gap cannot be split.");
    const shown = (data) => ({
      title, hint, height: isNarrow() ? 220 : 268, isMain: true, hasSteps: true, band: data.band, limits: data.limits, lines: data.lines,
      axis: logAxis([...data.lines.flatMap(({ values }) => values), ...data.limits.map(({ value }) => value)]),
    });
    const rows = (data) => data.lines.map(({ kind, values }) => ({
      kind, name: kind, figure: `gaps.${kind}.k3`, value: (index) => number(values[index]), note: NOTES[kind] && ((index) => NOTES[kind](data, index)),
    }));
    const line = new Plot(board, plot, shown(first));
    const put = readout(board, rail, rows(first), [at], isTotal ? [missing, marks] : [marks]);
    board.onMove((index, hovering) => {
      const { versions = [], attempts = [] } = board.changes ?? {};
      marks.textContent = [versions.length && "tick: policy version", attempts.length && "dotted line: attempt"].filter(Boolean).join(", ");
      const words = hovering ? "" : index === board.steps.length - 1 ? ", the latest" : ", pinned";
      at.replaceChildren("step ", element("b", {}, String(board.steps[index])), words);
    });
    return (data) => {
      line.show(shown(data));
      put(rows(data));
    };
  },
};

const NOTES = {
  mismatch: ({ lines, baseline }, index) => (baseline ? `${times(lines[0].values[index] / baseline.median)} the baseline` : "no baseline yet"),
  staleness: ({ lag }, index) => (lag?.[index] == null ? "" : `largest lag ${number(lag[index])} version${lag[index] === 1 ? "" : "s"}`),
};

const PARTS = ["mismatch", "interaction", "staleness"];

/** Mismatch grows from below, staleness from above; what lies between, or overlaps, is the interaction. */
export const attribution = {
  id: "attribution",
  shows({ values }) {
    const parts = PARTS.map((part) => values[`attribution.${part}`]);
    return parts.every(Boolean) ? { parts } : null;
  },
  draw(stack, board, first) {
    const [title, hint] = ["What is the gap made of?", "share of the mean squared log-ratio"];
    const { plot, rail } = panel(stack, { title, hint, call: "series?field=attribution.mismatch&field=attribution.staleness&by=step" });
    const shown = ({ parts, isLast }) => ({
      title, hint, height: 104, axis: shareAxis, hasSteps: isLast, say: percent,
      told: PARTS.map((name, part) => ({ name, values: parts[part] })),
      lines: [
        { kind: "mismatch", values: parts[0], fillTo: 0 },
        { kind: "staleness", values: parts[2].map((share) => (share == null ? null : 1 - share)), fillTo: 1 },
      ],
    });
    const rows = ({ parts }) => PARTS.map((name, part) => ({
      kind: name === "interaction" ? "other" : name, name, figure: `attribution.${name}`, value: (index) => percent(parts[part][index]),
    }));
    const line = new Plot(board, plot, shown(first));
    const put = readout(board, rail, rows(first));
    return (data) => {
      line.show(shown({ ...data, isLast: first.isLast }));
      put(rows(data));
    };
  },
};

/** The masked share of the correction in use, and of one that might be. */
export const masks = {
  id: "masks",
  shows({ values, rules, about }) {
    const used = about.correction && values[masked(about.correction)] ? about.correction : null;
    const others = about.compared.filter((name) => values[masked(name)]);
    return used || others.length ? { key: [used, ...others].join(), used, others, rules, of: (name) => values[masked(name)] } : null;
  },
  draw(stack, board, first) {
    const [title, hint] = ["What is kept out of the loss?", "share of the tokens, linear to 1%, then log"];
    const { plot, rail } = panel(stack, { title, hint, call: `series?field=${masked(first.used ?? first.others[0])}&by=step` });
    let data = first;
    let picked = first.others.includes(state().method) ? state().method : first.others[0];
    const shown = () => ({
      title, hint, height: 124, axis: maskAxis, say: percent, hasSteps: first.isLast,
      limits: data.used ? limitsOf(data.rules, "MaskRate", (severity, value) => `${severity} ${percent(value)}`) : [],
      lines: [data.used && { kind: "total", name: data.used, values: data.of(data.used) }, picked && { kind: "preset", name: picked, values: data.of(picked) }].filter(Boolean),
    });
    const row = (kind, name, detail) => ({ kind, name, detail, figure: masked(name), value: (index) => percent(data.of(name)?.[index]) });
    const rows = () => [data.used && row("total", data.used, "in use"), picked && row("preset", picked, "if used")].filter(Boolean);
    const select = element("select", { "aria-label": "Compare with another correction", on: { change: () => {
      picked = select.value;
      remember({ method: picked });
      line.show(shown());
      put(rows());
    } } }, first.others.map((name) => element("option", { value: name }, name)));
    select.value = picked;
    const line = new Plot(board, plot, shown());
    const put = readout(board, rail, rows(), [], first.others.length ? [select] : []);
    return (next) => {
      data = next;
      line.show(shown());
      put(rows());
    };
  },
};

/** Tokens that still count under importance weights. */
export const effective = {
  id: "ess",
  shows({ values, rules }) {
    const names = ["mismatch", "total"].filter((name) => values[`gaps.${name}.ess`]);
    const lines = names.map((name) => ({ kind: name, name: `${name} ESS`, values: values[`gaps.${name}.ess`] }));
    return lines.length ? { key: names.join(), names, lines, rules } : null;
  },
  draw(stack, board, first) {
    const [title, hint] = ["How many tokens still count?", "effective sample size, share of the tokens"];
    const { plot, rail } = panel(stack, { title, hint, call: "series?field=gaps.mismatch.ess&field=gaps.total.ess&by=step" });
    const shown = ({ lines, names, rules }) => {
      const least = lines.flatMap(({ values }) => values).reduce((a, b) => (b == null ? a : Math.min(a, b)), 0.25);
      const limits = names[0] === "mismatch" ? limitsOf(rules, "LowEffectiveSampleSize", (severity, value) => `mismatch ${severity} ${percent(value)}`) : [];
      return { title, hint, say: percent, height: 88, hasSteps: first.isLast, lines, limits, axis: { ...linearAxis([0, 1], shareAxis.label, Math.max(0, least), 1) } };
    };
    const rows = ({ lines, names }) => lines.map(({ kind, name, values }, line) => ({ kind, name, figure: `gaps.${names[line]}.ess`, value: (index) => percent(values[index]) }));
    const line = new Plot(board, plot, shown(first));
    const put = readout(board, rail, rows(first));
    return (data) => {
      line.show(shown(data));
      put(rows(data));
    };
  },
};

/** What trainers may send besides. */
export const sent = [
  ["entropy_mean", "Entropy", "nats per token"],
  ["sequence_length_mean", "Length", "tokens per sequence"],
  ["reward_mean", "Reward", "mean of the sequences, as sent"],
].map(([field, title, hint]) => ({
  id: field,
  shows: ({ values }) => (values[field] ? { values: values[field] } : null),
  draw(stack, board, first) {
    const { plot, rail } = panel(stack, { title, hint, call: `series?field=${field}&by=step` });
    const shown = ({ values }) => ({ title, hint, height: first.isLast ? 86 : 66, hasSteps: first.isLast, axis: linearAxis(values), lines: [{ kind: "total", name: title.toLowerCase(), values }] });
    const rows = ({ values }) => [{ kind: "total", name: title.toLowerCase(), figure: field, value: (index) => number(values[index]) }];
    const line = new Plot(board, plot, shown(first));
    const put = readout(board, rail, rows(first));
    return (data) => {
      line.show(shown(data));
      put(rows(data));
    };
  },
}));
