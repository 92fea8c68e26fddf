/* A plot of lines over steps, on a board. uPlot draws the lines and axes; what is marked on them is in marks.js. */

import { colour } from "../lib/theme.js";
import { gutter } from "./board.js";
import { LINES } from "./lines.js";
import { drawOver, drawUnder } from "./marks.js";
import { smoothed, smoothing } from "./smooth.js";
import { plotted } from "./uplot.js";
import { inWords } from "./words.js";

const DISTRIBUTION = { linear: 1, log: 3, asinh: 4 };
/** Fewer steps are shown as points too: a line of one step is nothing. */
const POINTS_BELOW = 30;
const STEPS_APART = [1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1000, 2000, 2500, 5000, 10000, 20000, 50000, 100000];

/** Opacity, as colours end, of what was measured below a smooth line. Areas are not smoothed. */
const FAINT = "59";
const isSmooth = ({ fillTo }) => smoothing() > 0 && fillTo == null;

export class Plot {
  /**
   * @param board  the Board whose steps it shows
   * @param host   the element it fills
   * @param shown  {title, hint, height, axis, lines: [{kind, name, values, fillTo?, isSparse?}], limits?: [{value, text, level}],
   *               band?: {low, high, text}, hasSteps?: draws the steps below, isMain?: names the onset,
   *               told?: [{name, values}] lines in words where those drawn are not the figures, say?: value in words}; a line
   *               that isSparse goes on over steps without a value
   */
  constructor(board, host, shown) {
    Object.assign(this, { board, host, shown });
    host.setAttribute("role", "img");
    host.tabIndex = 0;
    this.rebuild();
    board.add(this);
  }

  /** Show other values, of the same lines or of others. */
  show(shown) {
    const same = shown.lines.length === this.shown.lines.length && shown.lines.every(({ kind }, index) => kind === this.shown.lines[index].kind);
    Object.assign(this.shown, shown);
    if (!same || !this.drawn) return this.rebuild();
    this.drawn.setData(this.data(), false);
    this.ranged();
    this.describe();
  }

  /** What is drawn of the lines: of a smooth one what was measured too, below it. */
  data() {
    const { steps } = this.board;
    const isLog = this.shown.axis.scale === "log";
    const over = smoothing();
    const positive = (values) => (isLog ? values.map((value) => (value > 0 ? value : null)) : values);
    return [steps, ...this.shown.lines.flatMap((line) => [positive(line.values), ...(isSmooth(line) ? [smoothed(steps, line.values, over, isLog)] : [])])];
  }

  rebuild() {
    this.drawn?.destroy();
    this.host.replaceChildren();
    this.width = this.host.clientWidth || 300;
    this.drawn = plotted(this.options(), this.data(), this.host);
    this.drawn.over.addEventListener("click", (event) => this.clicked(event));
    this.drawn.over.addEventListener("mousedown", () => { this.board.brushed = this; });
    this.ranged();
    this.describe();
  }

  redraw() {
    this.drawn.redraw(false);
  }

  ranged() {
    const [min, max] = this.board.range;
    this.drawn.batch(() => {
      this.drawn.setScale("y", { min: this.shown.axis.range[0], max: this.shown.axis.range[1] });
      this.drawn.setScale("x", { min, max });
    });
  }

  clicked(event) {
    const index = this.drawn.cursor.idx;
    if (index == null || event.detail > 1) return;
    this.before = this.board.follows ? null : this.board.pinned;
    this.board.pin(index);
  }

  /** A double-click shows the whole run, and takes back what its first click pinned. */
  reset() {
    this.board.pin(this.before ?? this.board.steps.length - 1);
    this.board.zoom(this.board.full);
  }

  options() {
    const { board, shown } = this;
    const font = `11px ${colour("--sans")}`;
    const look = { font, stroke: colour("--quiet"), grid: { stroke: colour("--grid"), width: 1 }, ticks: { show: false } };
    const label = (value) => shown.axis.label(value);
    return {
      width: this.width,
      height: shown.height,
      padding: [6, gutter().right, shown.hasSteps ? 0 : 6, 0],
      legend: { show: false },
      cursor: {
        sync: { key: "steps", setSeries: false },
        y: false,
        drag: { x: true, y: false, setScale: false },
        points: { size: 6 },
        bind: { dblclick: () => () => { this.reset(); return null; } },
      },
      scales: {
        x: { time: false, range: (_, min, max) => [min, max] },
        y: { distr: DISTRIBUTION[shown.axis.scale], asinh: shown.axis.knee, range: () => shown.axis.range },
      },
      axes: [
        { ...look, size: shown.hasSteps ? 26 : 0, gap: 4, space: 60, incrs: STEPS_APART, values: (_, ticks) => ticks.map((tick) => (shown.hasSteps ? String(tick) : "")) },
        { ...look, size: gutter().left, gap: 6, splits: () => shown.axis.ticks, filter: (_, ticks) => ticks, values: (_, ticks) => ticks.map(label) },
      ],
      series: [{}, ...shown.lines.flatMap((line) => (isSmooth(line) ? [this.look(line, FAINT), this.look(line)] : [this.look(line)]))],
      hooks: {
        setSelect: [(u) => u.select.width > 3 && this.selected(u)],
        setCursor: [(u) => u.cursor.event && board.hover(u.cursor.left < 0 ? null : u.cursor.idx ?? null)],
        drawClear: [(u) => drawUnder(u, board, this.shown)],
        draw: [(u) => drawOver(u, board, this.shown)],
      },
    };
  }

  look({ kind, fillTo, values, isSparse = false }, faint = "") {
    const { colour: name, width, dash } = LINES[kind];
    const known = isSparse ? values.filter((value) => value != null).length : this.board.steps.length;
    const points = { show: known < POINTS_BELOW, size: 5 };
    const line = { stroke: colour(name) + faint, width: faint ? 1 : width, dash: faint ? null : dash, spanGaps: isSparse, points };
    return fillTo == null ? line : { ...line, fill: colour(name) + "55", fillTo: () => fillTo, width: 1 };
  }

  /** Every plot hears of a brush; the one it is in tells the board, the others would take it for one of the new range. */
  selected(u) {
    const ends = [u.select.left, u.select.left + u.select.width].map((left) => u.posToVal(left, "x"));
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    if (this.board.brushed === this) this.board.zoom(ends);
  }

  /** The plot in words: of each line its first and last value, the trend, and the ends of its range. */
  describe() {
    const { steps, since } = this.board;
    const { told, lines: drawn, say } = this.shown;
    const lines = (told ?? drawn).map(({ name, kind, values }) => `${name ?? kind} ${inWords(values, say)}`);
    const onset = since == null ? "" : `; something is wrong since step ${since}`;
    this.host.setAttribute("aria-label", `${this.shown.title} (${this.shown.hint}): ${lines.join("; ")}; steps ${steps[0]} to ${steps.at(-1)}${onset}`);
  }
}
