/* The worst sequences of a step, token by token, and what each of two corrections would drop of them. */

import { aRun, call, get } from "../lib/api.js";
import { remember, root, run, state } from "../lib/address.js";
import { defined } from "../lib/definitions.js";
import { element, fill, find } from "../lib/dom.js";
import { failed, noSteps } from "../lib/empty.js";
import { frame } from "../lib/frame.js";
import { number, percent } from "../lib/numbers.js";
import { strip, tintLegend } from "../charts/tokens.js";

const MOST = 10;
const LETTERS = ["A", "B"];
const RANKINGS = { abs_log_ratio_max: "largest |d|", log_geometric_ratio: "geometric ratio", k3_share: "share of k3" };
/** A step, or a first and a last one. */
const STEPS = /\s*(?:(\d+)\s*(?:(?:-|–)\s*(\d+)\s*)?)?/;
const CALL = `/v1/runs/${run()}/worst`;

const host = find("#page");
const selects = {};

async function begin() {
  let about;
  try {
    about = await aRun(run());
  } catch (error) {
    return void fill(host, failed(error));
  }
  if (!about) return void fill(host, noSteps(run()));
  const asked = state();
  const names = about.methods.map(({ name }) => name);
  const standard = [about.correction, ...about.compared].filter(Boolean);
  const choice = (id, options, wanted, label) => {
    const select = (selects[id] = element("select", { on: { change: show } }, options.map((option) => element("option", { value: option }, option))));
    select.value = options.includes(wanted) ? wanted : options[0] ?? "";
    return element("label", { class: "field" }, label, select);
  };
  const asked_steps = asked.from || asked.to ? `${asked.from ?? 0}-${asked.to ?? about.last_step}` : asked.step ?? "";
  const steps = element("input", { type: "text", inputmode: "numeric", pattern: STEPS.source, value: asked_steps, placeholder: `${about.last_step ?? 0}, or ${Math.max(0, (about.last_step ?? 0) - 20)}-${about.last_step ?? 0}`, on: { change: show } });
  selects.steps = steps;
  fill(host,
    element("div", { class: "section" }, element("h1", { class: "title" }, "Worst sequences"), element("span", { class: "quiet", id: "agree", role: "status" }), element("a", { class: "api", id: "call" })),
    element("div", { class: "controls" }, element("label", { class: "field" }, "Step or range", steps), choice("gap", ["mismatch", "staleness", "total"], asked.gap, "Gap"),
      LETTERS.map((letter, index) => choice(letter.toLowerCase(), names, asked[letter.toLowerCase()] ?? standard[index], element("b", {}, letter)))),
    element("p", { class: "controls", id: "legend" }),
    element("div", { id: "list" }));
  if (!asked.gap) await chooseGap(about);
  await show();
}

/** Without pi_old there is the total gap alone. */
async function chooseGap({ last_step: last }) {
  const { sequences } = await get(`v1/runs/${run()}/worst`, { step: state().step ?? last, limit: 1 }).catch(() => ({ sequences: [] }));
  if (sequences.length) selects.gap.value = ["mismatch", "total", "staleness"].find((gap) => sequences[0].gaps[gap]) ?? "mismatch";
}

async function show() {
  const [gap, a, b] = ["gap", "a", "b"].map((id) => selects[id].value);
  if (!selects.steps.reportValidity()) return;
  const which = stepsOf(selects.steps.value);
  remember({ ...which, gap, a, b });
  const parameters = { ...which, gap, limit: MOST, methods: [...new Set([a, b].filter(Boolean))] };
  const address = call(`v1/runs/${run()}/worst`, { gap, ...which });
  Object.assign(find("#call"), { href: root() + address, textContent: `GET /${address}` });
  fill(find("#legend"), tintLegend(gap));
  try {
    const { sequences } = await get(`v1/runs/${run()}/worst`, parameters);
    draw(sequences, gap, [a, b]);
  } catch (error) {
    fill(find("#list"), failed(error));
  }
}

/** {step} or {from, to} of what is written; all null for the newest step. */
function stepsOf(written) {
  const [, first, last] = written.match(STEPS) ?? [];
  if (last != null) return { step: null, from: Math.min(first, last), to: Math.max(first, last) };
  return { step: first ?? null, from: null, to: null };
}

function draw(sequences, gap, methods) {
  const cutsOf = ({ keep }) => methods.map((name, index) => ({ letter: LETTERS[index], name, drops: keep?.[name]?.map((kept) => !kept) ?? null }));
  find("#agree").textContent = agreement(sequences.map(cutsOf));
  fill(find("#list"), sequences.length ? sequences.map((sequence) => card(sequence, gap, cutsOf(sequence))) : element("p", { class: "card quiet" }, `No sequence differs by ${gap} here, or the worst ones are not kept any more.`));
}

/** Where the two disagree, over all tokens shown. */
function agreement(cuts) {
  let [onlyA, onlyB, both, all] = [0, 0, 0, 0];
  for (const [a, b] of cuts) {
    if (!a.drops || !b.drops) continue;
    a.drops.forEach((dropped, index) => {
      all += 1;
      if (dropped && b.drops[index]) both += 1;
      else if (dropped) onlyA += 1;
      else if (b.drops[index]) onlyB += 1;
    });
  }
  return all ? `Of ${all.toLocaleString("en")} tokens shown: A alone drops ${onlyA}, B alone ${onlyB}, both ${both}; they disagree on ${percent((onlyA + onlyB) / all)}.` : "";
}

function card(sequence, gap, cuts) {
  const figures = sequence.gaps[gap];
  const ranks = sequence.by.filter((rank) => rank.gap === gap).map(({ by, rank }) => `${RANKINGS[by]} #${rank}`).join(", ");
  const counted = ({ letter, drops }) => (drops ? `${letter} drops ${drops.filter(Boolean).length} of ${drops.length}` : `${letter} cannot be told from what was kept`);
  return element("section", { class: "card", "aria-label": `Sequence ${sequence.id ?? sequence.index}` },
    element("header", {},
      element("b", {}, `Sequence ${sequence.id ?? sequence.index}`), element("span", { class: "quiet" }, `step ${sequence.step}, shard ${sequence.shard}, ${sequence.tokens} tokens${ranks ? `, ${ranks}` : ""}`),
      figures && element("span", {}, defined("largest |d|", { text: "The token whose log-ratio d is furthest from 0.", call: CALL }), ` ${number(figures.abs_log_ratio_max)} nats`),
      figures && element("span", {}, defined("geometric ratio", { text: "exp of the mean log-ratio over the tokens of the sequence.", call: CALL }), ` ${number(Math.exp(figures.log_geometric_ratio), 4)}`),
      figures?.k3_share != null && element("span", {}, percent(figures.k3_share), " ", defined("of the step's k3", { text: "Sum of k3 over the sequence's tokens, over that of the whole step.", call: CALL })),
      sequence.columns && element("span", { class: "quiet" }, cuts.map(counted).join(", "))),
    strip(sequence, gap, cuts));
}

frame();
await begin();
