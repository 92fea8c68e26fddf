/* uPlot as a module: its file, which a page loads that needs this one, is a plain script. */

export const uPlot = globalThis.uPlot;
