// The axis of time: where its lines stand, and what is written at them. The library's own axis of time leaves too few of them within a second.

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const STEPS = [
  0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, SECOND, 2 * SECOND, 5 * SECOND, 10 * SECOND, 15 * SECOND, 30 * SECOND, MINUTE, 2 * MINUTE,
  5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 30 * DAY, 90 * DAY, 365 * DAY,
];

// ticksOf are the times of lines that are not closer than a label is wide, and the step between them.
function ticksOf(view) {
  const least = (view.t1 - view.t0) / Math.max(1, (view.right - view.left) / 110);
  const step = STEPS.find((s) => s >= least) || 1000 * DAY;
  const ticks = [];
  for (let n = Math.ceil(view.t0 / step); n * step <= view.t1; n++) ticks.push(n * step);
  return { ticks, step };
}

function tickLabel(t, step) {
  // A step of a hundredth of a millisecond is not exact in binary: the time is rounded to it first.
  if (step < 1) return clock(Math.floor(t + step / 2)) + String(Math.round((t + step / 2) % 1 * 1000 - step * 500)).padStart(3, "0").slice(0, 2);
  if (step < SECOND) return clock(Math.round(t));
  if (step < MINUTE) return clock(t).slice(0, 8);
  if (step < DAY) return t % DAY === 0 ? day(t).slice(5) : clock(t).slice(0, 5);
  return day(t);
}

// axisShapes are the lines, over the whole height, and their labels above.
function axisShapes(view, top, bottom) {
  const { ticks, step } = ticksOf(view);
  const lines = [];
  const texts = [];
  for (const t of ticks) {
    const x = Math.round(view.x(t));
    lines.push(x, top, 1, bottom - top);
    // A label at the edge stays within the canvas.
    texts.push(text(Math.max(view.left + 30, Math.min(x, view.right - 30)), top - 8, tickLabel(t, step), { align: "center", verticalAlign: "bottom" }));
  }
  return [{ type: "bars", silent: true, shape: { rects: lines }, style: { fill: theme["--line"] } }, ...texts];
}
