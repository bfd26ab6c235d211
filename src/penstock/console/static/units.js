// Durations and sizes as people write them. Values are whole numbers of up to 64 bits, so that they are BigInts here.

const UNITS = {
  ms: [["ms", 1n], ["s", 1000n], ["min", 60000n], ["h", 3600000n], ["d", 86400000n]],
  bytes: [["B", 1n], ["KiB", 1n << 10n], ["MiB", 1n << 20n], ["GiB", 1n << 30n], ["TiB", 1n << 40n]],
};
const OTHER = { m: "min", w: "w", kb: "KiB", mb: "MiB", gb: "GiB", tb: "TiB", k: "KiB", g: "GiB", t: "TiB" };
const NO_LIMIT = 9223372036854775807n;

// "604800000" is "7 d". Only exact values change: 1001 ms stays as it is.
export function humane(text, unit) {
  if (!UNITS[unit] || !/^\d{1,19}$/.test(text)) return text;
  const value = BigInt(text);
  if (value === 0n || value === NO_LIMIT) return text;
  const [name, factor] = UNITS[unit].findLast(([, f]) => value % f === 0n);
  return `${value / factor} ${name}`;
}

// The whole number that a text means; null if it means none. Text without a unit stays as it is.
export function plain(text, unit) {
  const found = /^\s*(\d+)(?:\.(\d{1,6}))?\s*([a-z]*)\s*$/i.exec(text);
  if (!UNITS[unit] || /^\s*-?\d*\s*$/.test(text)) return text.trim();
  if (!found) return null;
  const given = found[3].toLowerCase(), name = UNITS[unit].find(([n]) => n.toLowerCase() === given)?.[0] ?? OTHER[given];
  const factor = name === "w" && unit === "ms" ? 604800000n : UNITS[unit].find(([n]) => n === name)?.[1];
  if (factor === undefined) return null;
  const scale = 10n ** BigInt((found[2] ?? "").length);
  return String((BigInt(found[1] + (found[2] ?? "")) * factor) / scale);
}
