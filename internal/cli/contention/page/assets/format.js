// How numbers are said. Durations are in milliseconds here; a unit always stands beside a number.

const NBSP = "\u00a0";

// duration keeps three digits that mean something: 950 µs, 12.3 ms, 4.56 s, 3 min 12 s, 2 h 5 min.
function duration(ms) {
  if (!(ms > 0)) return "0" + NBSP + "s";
  // What rounds up to the next unit is said in the next unit.
  if (ms < 0.9995) return digits(ms * 1000) + NBSP + "µs";
  if (ms < 999.5) return digits(ms) + NBSP + "ms";
  if (ms < 59950) return digits(ms / 1000) + NBSP + "s";
  const seconds = Math.round(ms / 1000);
  if (seconds < 3600) return pairOf(seconds, 60, "min", "s");
  const minutes = Math.round(seconds / 60);
  if (minutes < 1440) return pairOf(minutes, 60, "h", "min");
  return pairOf(Math.round(minutes / 60), 24, "d", "h");
}

function digits(x) {
  return x >= 99.95 ? x.toFixed(0) : x >= 9.995 ? x.toFixed(1) : x.toFixed(2);
}

function pairOf(total, per, big, small) {
  const rest = total % per;
  return Math.floor(total / per) + NBSP + big + (rest ? NBSP + rest + NBSP + small : "");
}

const seconds = (s) => duration(s * 1000);

// percent does not say 0 or 100 of what is neither.
function percent(share) {
  const p = share * 100;
  if (p > 0 && p < 0.1) return "<" + NBSP + "0.1" + NBSP + "%";
  if (p < 100 && p > 99.9) return ">" + NBSP + "99.9" + NBSP + "%";
  return p.toFixed(p > 0 && p < 1 || p > 99 && p < 100 ? 1 : 0) + NBSP + "%";
}

// integer groups thousands with narrow spaces, which no language reads as a decimal point.
const integer = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, "\u202f");

const plural = (n, one, many) => integer(n) + NBSP + (n === 1 ? one : many || one + "s");

// shortOwner is an owner without the namespace ID that Temporal's owners begin with.
const shortOwner = (owner) => owner.replace(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\/(?=.)/, "");

// clock is the time of day in UTC, to the millisecond.
const clock = (ms) => iso(ms).slice(11, 23);

const day = (ms) => iso(ms).slice(0, 10);

// iso does not throw for a time that cannot be read: one wrong row is no reason to show nothing.
const iso = (ms) => (Number.isFinite(ms) ? new Date(ms).toISOString() : "????-??-??T??:??:??.???");
