/* One method under trial: its row, its threshold, what that would drop, and how the frameworks write it. */

import { call, get } from "../../lib/api.js";
import { remember, root, run, state } from "../../lib/address.js";
import { defined } from "../../lib/definitions.js";
import { element, fill } from "../../lib/dom.js";
import { failed } from "../../lib/empty.js";
import { number, percent, plain, times } from "../../lib/numbers.js";
import { swatch } from "../../charts/lines.js";
import { plotting } from "../../charts/uplot.js";
import { CurvePlot, SHARES, scaleOf } from "./curve.js";

/** Stops of the slider, and milliseconds that it rests before the service is asked for the exact shares. */
const STOPS = 1000;
const RESTED = 120;

/** `coming` is the promise of what is recommended, which is asked for beside the first curves. */
export class Trial {
  constructor(host, slot, about, coming, standard) {
    Object.assign(this, { host, slot, about, coming });
    this.exact = null;
    this.select = element("select", { "aria-label": `Method ${slot.toUpperCase()}`, on: { change: () => this.choose(true) } });
    this.bounds = element("select", { "aria-label": "Bound", hidden: true, on: { change: () => this.choose(true) } });
    this.json = element("a", { class: "api" }, "JSON");
    this.said = element("span", { class: "big", id: `at-${slot}` });
    this.plotHost = element("div", { class: "plot", role: "img", tabindex: "0", "aria-label": "Shares kept out of the loss by threshold" });
    this.slider = element("input", { type: "range", min: 0, max: STOPS, step: 1, "aria-label": `Threshold of method ${slot.toUpperCase()}`, on: { input: () => { this.exact = null; this.moved(); } } });
    this.outcome = element("div", { class: "outcome", "aria-live": "polite" });
    this.config = element("div", { class: "config" });
    fill(host, element("div", { class: "field" }, element("b", {}, slot.toUpperCase()), this.select, this.bounds, this.json, this.said), this.plotHost, this.slider, this.outcome, this.config);
    this.plot = new CurvePlot(this.plotHost);
    const rows = about.methods.filter(({ name }) => Object.hasOwn(about.whatif, name));
    fill(this.select, rows.map((row) => element("option", { value: row.name }, `${row.name}: ${row.method}, ${row.level}, ${row.gap}`)));
    const asked = state()[slot];
    this.select.value = [asked, standard, rows[0]?.name].find((name) => rows.some((row) => row.name === name)) ?? "";
  }

  /** Read the curve of the chosen row, and beside it the exact shares where its threshold most likely stands; `anew`: by hand, so that the threshold is the row's own again. */
  async choose(anew = false) {
    const row = this.about.methods.find(({ name }) => name === this.select.value);
    if (!row) return;
    const { query, thresholds } = this.about.whatif[row.name];
    this.query = query;
    const threshold = (!anew && Number(state()[`${this.slot}t`])) || thresholds.map((name) => row[name]).filter((value) => value != null).at(-1);
    this.expected = { threshold, shares: null };
    let found;
    try {
      this.expected.shares = this.read({ threshold, row: row.name }).catch(() => null);
      [found] = await Promise.all([this.read({}), plotting]);
    } catch (error) {
      return void fill(this.outcome, failed(error));
    }
    this.advice = await this.coming;
    this.json.href = root() + call(`v1/runs/${run()}/whatif`, this.query);
    const names = found.parameters;
    const wanted = this.bounds.value || state()[`${this.slot}b`];
    fill(this.bounds, names.map((name) => element("option", { value: name }, name)));
    this.bounds.hidden = names.length < 2;
    this.bound = names.includes(wanted) ? wanted : names.at(-1);
    this.bounds.value = this.bound;
    this.row = row;
    const curve = this.curveOf(found);
    this.isRatio = curve.ratio;
    this.scale = scaleOf(this.isRatio, this.bound);
    this.lay(found, curve, anew);
  }

  read(more) {
    return get(`v1/runs/${run()}/whatif`, { ...this.query, ...more });
  }

  /** The curve of the bound: that of the only threshold stands in the answer itself. */
  curveOf(found) {
    return found.parameter ? found : found[this.bound];
  }

  /** The curve over its axis, with every row of the kind on it. */
  lay({ presets, variant }, curve, anew) {
    const order = curve.threshold.map((threshold, index) => [this.scale.place(threshold), index]).filter(([x]) => x > 0 && Number.isFinite(x)).sort((a, b) => a[0] - b[0]);
    const own = presets.filter(({ parameter }) => parameter === this.bound).map(({ name, threshold }) => ({ name, threshold, x: this.scale.place(threshold) })).filter(({ x }) => x > 0);
    if (!order.length) return void fill(this.outcome, element("p", { class: "quiet" }, "No step of this run has what this method looks at."));
    const ends = [...order.map(([x]) => x), ...own.map(({ x }) => x)];
    this.range = [Math.min(...ends) * 0.8, Math.max(...ends) * 1.25];
    const stretched = (values) => [values[order[0][1]], ...order.map(([, index]) => values[index]), values[order.at(-1)[1]]];
    const wanted = this.advice.methods.find((row) => row.method === this.query.method && row.gap === this.query.gap && row.level === this.query.level && row.parameter === this.bound && row.variant === variant);
    this.wanted = wanted ?? null;
    const asked = anew ? null : Number(state()[`${this.slot}t`]) || null;
    const standard = own.find(({ name }) => name === this.row.name)?.x ?? Math.sqrt(this.range[0] * this.range[1]);
    const place = asked ? this.scale.place(asked) : standard;
    this.put(place > 0 ? place : standard);
    this.plot.show({
      x: [this.range[0], ...order.map(([x]) => x), this.range[1]],
      shares: Object.fromEntries(Object.keys(SHARES).map((key) => [key, stretched(curve[key])])),
      error: stretched(curve.error), range: this.range, scale: this.scale, isRatio: this.isRatio, presets: own.sort((a, b) => a.x - b.x),
      wanted: wanted ? this.scale.place(wanted.threshold) : null, target: this.advice.target, at: () => this.x,
    });
    this.moved();
  }

  /** Where the slider stands on the axis; a threshold that was set by its number stays exact until the slider moves. */
  get x() {
    return this.exact ?? this.range[0] * (this.range[1] / this.range[0]) ** (this.slider.value / STOPS);
  }

  put(x) {
    this.exact = x;
    this.slider.value = Math.round((Math.log(x / this.range[0]) / Math.log(this.range[1] / this.range[0])) * STOPS);
  }

  moved() {
    const threshold = Number(plain(this.scale.back(this.x), this.isRatio ? 5 : 3));
    this.said.textContent = `${this.bound} ${number(threshold, 4)}`;
    this.slider.setAttribute("aria-valuetext", this.said.textContent);
    remember({ [this.slot]: this.row.name, [`${this.slot}b`]: this.bounds.hidden ? null : this.bound, [`${this.slot}t`]: plain(threshold, 6) });
    this.plot.redraw();
    clearTimeout(this.due);
    this.due = setTimeout(() => this.ask(threshold), this.outcome.childElementCount ? RESTED : 0);
  }

  async ask(threshold) {
    const asked = (this.asked = {});
    try {
      const ready = this.expected.threshold === threshold ? await this.expected.shares : null;
      const found = ready ?? await this.read({ threshold, row: this.row.name });
      if (asked === this.asked) this.tell(this.curveOf(found));
    } catch (error) {
      if (asked === this.asked) fill(this.outcome, failed(error));
    }
  }

  tell(curve) {
    const address = `/${call(`v1/runs/${run()}/whatif`, this.query)}`;
    const shares = Object.entries(SHARES).map(([key, { words }]) => `${percent(curve[key][0])} of ${words}`).join(", ");
    this.plotHost.setAttribute("aria-label", `Shares kept out of the loss by threshold: at ${this.said.textContent} ${shares}`);
    const [shortest, longest] = ["1", "4"].map((quarter) => curve.by_length_quartile[quarter]?.[0]);
    fill(this.outcome,
      Object.entries(SHARES).map(([key, { words, kind, means }]) => element("div", {}, element("b", {}, percent(curve[key][0])),
        element("span", {}, swatch(kind), " ", defined(`of ${words}`, { text: means, call: address }), key === "masked_token_fraction" ? `, ± ${percent(curve.error[0])}` : ""))),
      element("div", {}, element("b", {}, shortest > 0 ? times(longest / shortest) : "–"), element("span", {}, defined("longest against shortest quarter", { text: "Share of the tokens that is kept out in the longest quarter of the sequences over that in the shortest.", call: address }), `: ${percent(longest)}, ${percent(shortest)}`)));
    fill(this.config, curve.config.map(setting), curve.no_option.map(lacking), this.wanted ? this.advised() : null);
  }

  advised() {
    const { threshold, low, high } = this.wanted;
    const words = `${percent(this.advice.target)} of the tokens: ${this.bound} ${number(threshold, 4)} (${number(low, 4)} to ${number(high, 4)})  `;
    return [element("span", {}), element("span", { class: "none" }, words, element("button", { class: "tool", on: { click: () => { this.put(this.scale.place(threshold)); this.moved(); } } }, "Set it"))];
  }
}

function lacking(framework) {
  return [element("span", {}, framework), element("span", { class: "none" }, "has no option for it")];
}

function setting({ framework, lines, differs }) {
  const text = lines.join("\n");
  const button = element("button", { class: "tool", on: { click: async () => {
    await navigator.clipboard?.writeText(text);
    button.textContent = "Copied";
  } } }, "Copy");
  button.setAttribute("aria-label", `Copy the setting for ${framework}`);
  return [element("span", {}, framework), element("code", {}, text, differs ? element("span", { class: "quiet" }, `\n${differs}`) : null), button];
}
