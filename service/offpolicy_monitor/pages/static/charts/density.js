/* Tokens by their probability in two policies at once, on axes of log(-log p): as fine near p = 1, where most tokens are,
   as in the tail. Colour is the share of the tokens in a cell; the diagonal is where both policies agree. */

import { element, svg } from "../lib/dom.js";
import { number, percent } from "../lib/numbers.js";
import { cellsInWords, chance, NAMES } from "./density_words.js";

const [SIZE, LEFT, TOP, BOTTOM] = [330, 46, 6, 38];
const [WIDTH, HEIGHT] = [LEFT + SIZE + 6, TOP + SIZE + BOTTOM];
/** Probabilities on the axes. */
const TICKS = [1e-6, 0.02, 0.2, 0.5, 0.9, 0.99, 0.999];
/** Shares of the tokens from which on a cell has the next colour. */
const SHADES = [0, 1e-4, 1e-3, 1e-2, 1e-1];
const SHADE_NAMES = ["< 0.01%", "0.01%", "0.1%", "1%", "≥ 10%"];
const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
const TWICE = Math.log(2);
const READING = "Noise widens the diagonal. A sampling temperature tilts it. A cut nucleus makes tokens certain in the engine, at the right edge, that are not so in the trainer. Dashed: one probability is twice the other.";

const shade = (share) => SHADES.findLastIndex((least) => share >= least);

/** What the colours mean. */
const legend = () => element("div", { class: "scale" }, element("span", {}, "share of the tokens in a cell"),
  SHADE_NAMES.map((name, index) => element("span", { class: "nowrap" }, element("i", { class: `shade${index}` }), name)));

/** `found`: {edges, numerator, denominator, count} of the cells that hold something; `within`: the share of the tokens
    whose two probabilities are within a factor of 2. */
export function density(gap, found, within) {
  const all = found.count.reduce((sum, count) => sum + count, 0);
  const bins = found.edges.length + 1;
  const [mu, pi] = NAMES[gap];
  const size = SIZE / bins;
  const left = (bin) => LEFT + bin * size;
  const top = (bin) => TOP + SIZE - bin * size;
  const said = cellsInWords(gap, found, within);
  const read = element("p", { class: "read", role: "status" });
  const mark = svg("rect", { class: "mark", width: size, height: size, visibility: "hidden" });
  const tokens = new Map(found.count.map((count, index) => [found.denominator[index] * bins + found.numerator[index], count]));
  let at = null;
  const look = (x, y) => {
    at = [Math.max(0, Math.min(bins - 1, x)), Math.max(0, Math.min(bins - 1, y))];
    mark.setAttribute("x", left(at[0]));
    mark.setAttribute("y", top(at[1] + 1));
    mark.setAttribute("visibility", "visible");
    const count = tokens.get(at[0] * bins + at[1]) ?? 0;
    read.textContent = `${mu} ${chance(found.edges, at[0])}, ${pi} ${chance(found.edges, at[1])}: ${number(count)} tokens, ${percent(count / all)}`;
  };
  const leave = () => { mark.setAttribute("visibility", "hidden"); read.textContent = ""; };
  const fullest = found.count.indexOf(Math.max(...found.count));
  const picture = svg("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", tabindex: "0", "aria-label": `Tokens by ${mu} and ${pi}: ${said.join(" ")}`,
    on: {
      focus: () => at ?? look(found.denominator[fullest], found.numerator[fullest]),
      blur: leave,
      pointermove: (event) => {
        const box = picture.getBoundingClientRect();
        const scale = WIDTH / box.width;
        look(Math.floor(((event.clientX - box.left) * scale - LEFT) / size), bins - 1 - Math.floor(((event.clientY - box.top) * scale - TOP) / size));
      },
      pointerleave: leave,
      keydown: (event) => {
        if (!(event.key in STEPS)) return;
        event.preventDefault();
        event.stopPropagation(); // on the page they lead to other steps
        look(at[0] + STEPS[event.key][0], at[1] + STEPS[event.key][1]);
      },
    },
  },
    axes(found.edges, left, top, mu, pi),
    found.count.map((count, index) => svg("rect", { x: left(found.denominator[index]) + 0.25, y: top(found.numerator[index] + 1) + 0.25, width: size - 0.5, height: size - 0.5, class: `shade${shade(count / all)}` })),
    lines(found.edges, left, top), mark);
  return element("figure", { class: "density", style: { "--ink": `var(--${gap === "total" ? "text" : gap})` } },
    element("div", { class: "square" }, picture),
    element("figcaption", {}, said.map((sentence) => element("p", {}, sentence)), legend(), element("p", { class: "quiet" }, READING), read));
}

/** Where a log-prob stands among the bins, in widths of one: bins have one width each. */
function place(edges, logProb) {
  const above = edges.findIndex((edge) => logProb <= edge);
  if (above < 1) return above ? edges.length + 0.5 : 0.5;
  return above + Math.log(logProb / edges[above - 1]) / Math.log(edges[above] / edges[above - 1]);
}

function axes(edges, left, top, mu, pi) {
  const ticks = TICKS.map((p) => [number(p, 3), place(edges, Math.log(p))]);
  const middle = TOP + SIZE / 2;
  return svg("g", {},
    svg("rect", { x: LEFT, y: TOP, width: SIZE, height: SIZE, fill: "none", stroke: "var(--line)" }),
    ticks.map(([name, bin]) => [
      svg("path", { d: `M${left(bin)} ${TOP}V${TOP + SIZE}M${LEFT} ${top(bin)}H${LEFT + SIZE}`, stroke: "var(--grid)" }),
      svg("text", { x: left(bin), y: TOP + SIZE + 13, "text-anchor": "middle", class: "tick" }, name),
      svg("text", { x: LEFT - 4, y: top(bin) + 4, "text-anchor": "end", class: "tick" }, name),
    ]),
    svg("text", { x: LEFT + SIZE / 2, y: HEIGHT - 6, "text-anchor": "middle", class: "tick" }, `probability of the token in the engine, ${mu}`),
    svg("text", { x: 9, y: middle, "text-anchor": "middle", class: "tick", transform: `rotate(-90 9 ${middle})` }, `in the trainer, ${pi}`));
}

/** The diagonal, and where one probability is twice the other. */
function lines(edges, left, top) {
  const bins = edges.length + 1;
  const twice = [];
  for (let bin = 0.5; bin <= bins; bin += 0.5) {
    const whole = Math.floor(bin);
    const low = edges[Math.max(0, whole - 1)];
    const logProb = whole < 1 ? low : whole >= edges.length ? edges.at(-1) : low * (edges[whole] / low) ** (bin - whole);
    if (logProb - TWICE > edges[0]) twice.push([bin, place(edges, logProb - TWICE)]);
  }
  const path = (points) => `M${points.map(([x, y]) => `${left(x).toFixed(1)} ${top(y).toFixed(1)}`).join("L")}`;
  return svg("g", { class: "lines" },
    svg("path", { d: path([[0, 0], [bins, bins]]) }),
    svg("path", { class: "twice", d: path(twice) + path(twice.map(([x, y]) => [y, x])) }));
}
