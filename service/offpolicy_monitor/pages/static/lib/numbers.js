/* Numbers as people read them: two digits, no false zeros. The same rules as the sentence of the verdict (verdict/words). */

const SUPERSCRIPT = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };
const power = (exponent) => "10" + [...String(exponent)].map((digit) => SUPERSCRIPT[digit]).join("");

/** `digits` significant digits; plain from 0.001 on, m×10ⁿ below it; a true minus; – for what is missing. */
export function number(value, digits = 2) {
  if (value == null || Number.isNaN(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  const sign = value < 0 ? "−" : "";
  if (size === Infinity) return sign + "∞";
  if (size >= 1000) return sign + Math.round(size).toLocaleString("en");
  if (size >= 0.001 * (1 - 1e-9)) {
    const shown = Number(size.toPrecision(digits));
    return sign + (shown >= 100 ? String(Math.round(size)) : String(shown));
  }
  const [mantissa, exponent] = size.toExponential(digits - 1).split("e");
  return sign + (Number(mantissa) === 1 ? "" : Number(mantissa) + "×") + power(Number(exponent));
}

/** A share as per cent: never 0% or 100% for what is neither. */
export function percent(share) {
  if (share == null || Number.isNaN(share)) return "–";
  if (share === 0 || share === 1) return share * 100 + "%";
  if (share < 0) return "−" + percent(-share);
  if (share > 1) return Math.round(share * 100) + "%";
  if (share < 0.001) return "<0.1%";
  if (share === 0.01) return "1%";
  if (share < 0.0995) return (share * 100).toFixed(1) + "%";
  return share > 0.995 ? ">99%" : Math.round(share * 100) + "%";
}

/** A factor: 1.6×, 41×, over 1,000×. */
export function times(factor) {
  if (factor == null || !Number.isFinite(factor)) return "–";
  if (factor >= 1000) return "over 1,000×";
  return (factor >= 9.95 ? Math.round(factor) : factor.toFixed(1)) + "×";
}

/** Log-ratios of tokens: fixed decimals, so that they align; 0 where they would all be zeros. */
export function decimals(value) {
  const size = Math.abs(value);
  if (size < 0.005) return "0";
  return (value > 0 ? "+" : "−") + size.toFixed(size < 10 ? 2 : 1);
}

/** The digits that a setting needs, for what is pasted: no signs that a parser does not know. */
export function plain(value, digits = 4) {
  return String(Number(value.toPrecision(digits)));
}

/** How long ago: 40 s, 12 min, 5 h, 3 d. */
export function ago(seconds) {
  if (seconds < 90) return `${Math.max(0, Math.round(seconds))} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 129600 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
}

/** The middle of the known values; null where there are none. */
export function median(values) {
  const known = values.filter((value) => value != null).sort((a, b) => a - b);
  if (!known.length) return null;
  const middle = known.length >> 1;
  return known.length % 2 ? known[middle] : (known[middle - 1] + known[middle]) / 2;
}
