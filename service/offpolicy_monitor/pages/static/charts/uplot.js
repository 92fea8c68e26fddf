/* uPlot, a plain script that is read beside what a page asks for, and not before it. */

import { element, find } from "../lib/dom.js";

/** Resolves once there is something to plot with; a report has it from the beginning. */
export const plotting = globalThis.uPlot ? Promise.resolve() : new Promise((ready, failed) => {
  const refused = () => failed(new Error("the script that plots could not be loaded"));
  document.head.append(element("script", { src: find("html").dataset.plots, on: { load: ready, error: refused } }));
});

/** A plot by uPlot's options, of its data, in an element. */
export const plotted = (options, data, host) => new globalThis.uPlot(options, data, host);
