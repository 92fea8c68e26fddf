/* The shares that a rule drops over its threshold, as a plot. */

import { number, percent } from "../../lib/numbers.js";
import { colour, onTheme } from "../../lib/theme.js";
import { decades } from "../../charts/axes.js";
import { LINES } from "../../charts/lines.js";
import { plotted } from "../../charts/uplot.js";

export const SHARES = {
  masked_token_fraction: { words: "tokens", kind: "total", means: "Share of the tokens that the rule keeps out of the loss; ± the error of the histogram that it is read from." },
  masked_sequence_fraction: { words: "sequences", kind: "staleness", means: "Share of the sequences that lose every token." },
  masked_advantage_mass: { words: "advantage mass", kind: "preset", means: "Share of the sum of absolute advantages over tokens that is kept out of the loss." },
};
const RATIOS = [1.0001, 1.001, 1.01, 1.1, 1.5, 2, 5, 10, 100];
const HEIGHT = 270;

/** What the axis measures of a threshold, and back. Bounds on a ratio lie as far from 1 above as below. */
export function scaleOf(isRatio, bound) {
  if (!isRatio) return { place: (t) => t, back: (x) => x };
  const sign = bound === "lower" ? -1 : 1;
  return { place: (t) => sign * Math.log(t), back: (x) => Math.exp(sign * x) };
}

export class CurvePlot {
  constructor(host) {
    this.host = host;
    onTheme(() => this.shown && this.show(this.shown));
    addEventListener("resize", () => this.drawn?.setSize({ width: host.clientWidth, height: HEIGHT }));
  }

  /** `shown`: {x, shares: {key: [..]}, error, range: [low, high], scale, isRatio, presets: [{name, x}], wanted: x or null, at: () => x}. */
  show(shown) {
    this.shown = shown;
    this.drawn?.destroy();
    this.host.replaceChildren();
    const font = `11px ${colour("--sans")}`;
    const look = { font, stroke: colour("--quiet"), grid: { stroke: colour("--grid"), width: 1 }, ticks: { show: false } };
    const line = ({ kind }) => ({ stroke: colour(LINES[kind].colour), width: LINES[kind].width, dash: LINES[kind].dash, points: { show: false } });
    const edge = (sign) => shown.shares.masked_token_fraction.map((share, index) => (share == null ? null : Math.max(0, Math.min(1, share + sign * shown.error[index]))));
    const hidden = { stroke: "transparent", points: { show: false } };
    this.drawn = plotted({
      width: this.host.clientWidth || 300, height: HEIGHT, padding: [8, 8, 0, 0], legend: { show: false }, cursor: { show: false },
      scales: { x: { time: false, distr: 3, range: () => shown.range }, y: { range: () => [0, 1] } },
      axes: [
        { ...look, size: 74, gap: 4, splits: () => ticks(shown), filter: (_, found) => found, values: (_, found) => found.map((x) => number(shown.scale.back(x), 5)) },
        { ...look, size: 46, gap: 6, splits: () => [0, 0.25, 0.5, 0.75, 1], values: (_, found) => found.map(percent) },
      ],
      series: [{}, ...Object.values(SHARES).map(line), hidden, hidden],
      bands: [{ series: [4, 5], fill: colour("--text") + "22" }],
      hooks: { draw: [(u) => marks(u, shown)] },
    }, [shown.x, ...Object.keys(SHARES).map((key) => shown.shares[key]), edge(1), edge(-1)], this.host);
  }

  redraw() {
    this.drawn.redraw(false);
  }
}

function ticks({ isRatio, scale, range: [low, high] }) {
  const found = isRatio ? RATIOS.map(Math.log) : decades(10 ** Math.ceil(Math.log10(low) - 1e-9), 10 ** Math.floor(Math.log10(high) + 1e-9));
  return found.filter((x) => x >= low && x <= high && Number.isFinite(scale.back(x)));
}

function marks(u, { presets, wanted, at, target }) {
  const { ctx, bbox } = u;
  const pixel = devicePixelRatio;
  const bottom = bbox.top + bbox.height;
  const upright = (x, dash, stroke, width) => {
    const left = u.valToPos(x, "x", true);
    ctx.setLineDash(dash);
    ctx.strokeStyle = stroke;
    ctx.lineWidth = width * pixel;
    ctx.beginPath();
    ctx.moveTo(left, bbox.top);
    ctx.lineTo(left, bottom);
    ctx.stroke();
    return left;
  };
  ctx.save();
  ctx.font = `${11 * pixel}px ${colour("--sans")}`;
  ctx.textBaseline = "top";
  if (wanted > 0) {
    const left = upright(wanted, [2 * pixel, 3 * pixel], colour("--healthy"), 1.5);
    const isLate = left > bbox.left + bbox.width * 0.7;
    ctx.fillStyle = colour("--healthy");
    ctx.textAlign = isLate ? "right" : "left";
    ctx.fillText(`${percent(target)} of tokens`, left + (isLate ? -5 : 5) * pixel, bbox.top + 3 * pixel);
  }
  // Names stand below the axis, in rows so that none overlap.
  const ends = [-Infinity, -Infinity, -Infinity];
  ctx.textAlign = "left";
  ctx.fillStyle = colour("--preset");
  for (const preset of presets) {
    const middle = u.valToPos(preset.x, "x", true);
    const width = ctx.measureText(preset.name).width;
    const left = Math.max(bbox.left - 30 * pixel, Math.min(middle - width / 2, bbox.left + bbox.width - width + 6 * pixel));
    const row = Math.max(0, ends.findIndex((end) => end + 8 * pixel < left));
    ends[row] = left + width;
    ctx.beginPath();
    ctx.moveTo(middle, bottom - 9 * pixel);
    ctx.lineTo(middle - 4.5 * pixel, bottom);
    ctx.lineTo(middle + 4.5 * pixel, bottom);
    ctx.fill();
    ctx.fillText(preset.name, left, bottom + (24 + row * 15) * pixel);
  }
  upright(at(), [], colour("--text"), 1.5);
  ctx.restore();
}
