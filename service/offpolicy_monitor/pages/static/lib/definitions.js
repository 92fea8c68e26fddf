/* What a figure means, in which unit, and the call that gives it: on hover and on focus, from the API's own catalogue. */

import { element, find } from "./dom.js";
import { get } from "./api.js";

let catalogue = null;

/** Words that explain themselves on hover and focus: `about` is a figure's path, or {text, call}. */
export function defined(words, about) {
  const data = typeof about === "string" ? { figure: about } : { text: about.text ?? "", call: about.call ?? "" };
  return element("span", { class: "def", tabindex: "0", data }, words);
}

/** Listen for them, once per page. */
export function define() {
  const tip = element("div", { id: "tip", role: "tooltip", hidden: true });
  document.body.append(tip);
  let latest = 0; // what was asked for before is not shown any more
  const shown = async (event) => {
    const turn = ++latest;
    const host = event.target.closest?.("[data-figure], [data-text]");
    if (!host) {
      tip.hidden = true;
      return;
    }
    const lines = host.dataset.figure ? await ofFigure(host.dataset.figure) : ofText(host.dataset);
    if (turn !== latest || (host !== document.activeElement && !host.matches(":hover"))) return;
    tip.replaceChildren(...lines);
    tip.hidden = false;
    host.setAttribute("aria-describedby", "tip");
    place(tip, host.getBoundingClientRect());
  };
  document.addEventListener("mouseover", shown);
  document.addEventListener("focusin", shown);
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    latest += 1;
    tip.hidden = true;
  });
}

function place(tip, box) {
  const below = box.bottom + 8 + tip.offsetHeight < innerHeight;
  tip.style.top = `${scrollY + (below ? box.bottom + 8 : Math.max(0, box.top - tip.offsetHeight - 8))}px`;
  tip.style.left = `${Math.max(8, Math.min(box.left, innerWidth - tip.offsetWidth - 12))}px`;
}

function ofText({ text, call }) {
  return [element("span", {}, text), call ? element("code", {}, `GET ${call}`) : null].filter(Boolean);
}

/** What the symbols of a formula are, by gap. */
const SYMBOLS = {
  mismatch: "d = log π_old − log μ of a token, r = exp(d)",
  staleness: "d = log π − log π_old of a token, r = exp(d)",
  total: "d = log π − log μ of a token, r = exp(d)",
  noise_floor: "i = log-prob of the engine's prefill − log μ, c = log π_old − that of the prefill, mismatch = i + c",
  support: "d as in the gap, but each of the trainer's log-probs is less the log of the mass that its policy gives to what the sampler chose among",
  mismatch_lag: "d = log π_old − log μ of a token",
  attribution: "m = log π_old − log μ and s = log π − log π_old of a token, total = m + s",
};

async function ofFigure(named) {
  const { path, figure } = await inCatalogue(named);
  const symbols = SYMBOLS[path.match(/\bgaps\.(\w+)/)?.[1] ?? path.match(/\b(noise_floor|attribution|support|mismatch_lag)\b/)?.[0]];
  const name = find("html").dataset.run || "RUN";
  return [
    element("b", {}, path),
    figure && element("span", {}, `${figure.meaning.replaceAll("`", "")}.${figure.unit ? ` Unit: ${figure.unit}.` : ""}`),
    figure && symbols && element("span", { class: "quiet" }, symbols),
    figure && element("code", {}, `GET /v1/runs/${name}/series?field=${path}`),
  ].filter(Boolean);
}

/** A figure by its path, also without the leading "gaps."; no figure where it is none of a step. */
async function inCatalogue(named) {
  catalogue ??= get("v1/figures").then(({ figures }) => figures.map((figure) => [pattern(figure.path), figure]), () => []);
  const rows = await catalogue;
  for (const path of [named, `gaps.${named}`]) {
    const row = rows.find(([matches]) => matches.test(path));
    if (row) return { path, figure: row[1] };
  }
  return { path: named, figure: null };
}

/** Paths of the catalogue stand for many: gaps.{gap}.k3. */
const pattern = (path) => new RegExp(`^${path.replaceAll(".", "\\.").replace(/\{\w+\}/g, "[^.]+")}$`);
