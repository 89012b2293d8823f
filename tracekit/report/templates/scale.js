// Time on a screen: text of moments and lengths, and where ticks go. All times are ns.
const UNITS = [[1e9, 's'], [1e6, 'ms'], [1e3, 'us'], [1, 'ns']];

/** A length of time with three digits. */
function duration(ns) {
  const [factor, unit] = UNITS.find(([f]) => ns >= f) || UNITS[3];
  const value = ns / factor;
  const digits = factor === 1 ? 0 : value < 10 ? 2 : value < 100 ? 1 : 0;
  return `${value.toFixed(digits)} ${unit}`;
}

/** Round steps of 1, 2 or 5 so that about `most` fit into `span`. */
function tickStep(span, most) {
  const raw = Math.max(1, span / Math.max(1, most));
  const size = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((m) => m * size).find((step) => step >= raw);
}

/** A moment to the precision of `step`. */
function moment(ns, step) {
  const [factor, unit] = UNITS.find(([f]) => Math.abs(ns) >= f) || UNITS[3];
  const digits = Math.max(0, Math.min(9, Math.ceil(Math.log10(factor / step))));
  return `${(ns / factor).toFixed(factor === 1 ? 0 : digits)} ${unit}`;
}

/** First position in ascending `values` that is not below `wanted`. */
function lowerBound(values, wanted) {
  let [low, high] = [0, values.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}
