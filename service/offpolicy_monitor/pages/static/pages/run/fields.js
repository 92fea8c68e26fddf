/* The figures that the first screen draws, one request for all. */

const FIXED = [
  "gaps.mismatch.k3", "gaps.staleness.k3", "gaps.total.k3",
  "attribution.mismatch", "attribution.staleness", "attribution.interaction",
  "noise_floor.engine_internal.k3", "noise_floor.cross_engine.k3", "noise_floor.trainer.k3", "noise_floor.attribution.engine_internal",
  "mismatch_lag.k3", "mismatch_lag.k3_current", "mismatch_lag.token_fraction",
  "support.mismatch.k3", "support.mismatch.ratio_mean", "support.mismatch.mass_mean",
  "support.total.k3", "support.total.ratio_mean", "support.total.mass_mean",
  "gaps.mismatch.ess", "gaps.total.ess",
  "entropy_mean", "sequence_length_mean", "reward_mean",
  "policy_lag.max", "policy_version", "attempt", "verdict", "tokens",
];

/** The path of the share of tokens that a method keeps out of the loss. */
export const masked = (method) => `methods.${method}.masked_token_fraction`;

/** Every field of the first screen. */
export function fieldsOf(about) {
  const methods = [about.correction, ...about.compared].filter(Boolean);
  return [...FIXED, ...methods.map(masked)];
}
