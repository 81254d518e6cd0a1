// Which lane each hold and wait is drawn on: the first that is free when it starts. So an exclusive resource has one lane of
// holds, and there are as many lanes of waits as waited at once.

function lanesOf(items) {
  const lanes = [];
  const ends = [];
  for (const item of items) { // in the order of their starts
    let lane = ends.findIndex((end) => end <= item.start);
    if (lane < 0) lane = lanes.push([]) - 1;
    lanes[lane].push(item);
    ends[lane] = item.end;
    item.lane = lane;
  }
  return lanes;
}

// firstEndingAfter is where, on a lane, what is visible from t on begins. Nothing on a lane overlaps, so ends are in order too.
function firstEndingAfter(lane, t) {
  let low = 0;
  let high = lane.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (lane[middle].end < t) low = middle + 1;
    else high = middle;
  }
  return low;
}

// sections are the heights of the timeline's parts, in pixels. However many lanes there are, they fit: beyond that they get thin.
const TOP = 30;
const LABEL = 20;
const QUEUE = 64;
const SLIDER = 46;

function sectionsOf(holdLanes, waitLanes) {
  const holdHeight = laneHeight(holdLanes.length, 26, 180);
  const waitHeight = laneHeight(waitLanes.length, 20, 400);
  const holds = { y: TOP + LABEL, lane: holdHeight, height: Math.max(1, holdLanes.length) * holdHeight, lanes: holdLanes };
  const waits = { y: holds.y + holds.height + LABEL + 8, lane: waitHeight, height: Math.max(1, waitLanes.length) * waitHeight, lanes: waitLanes };
  const queue = { y: waits.y + waits.height + LABEL + 8, height: QUEUE };
  const slider = { y: queue.y + queue.height + 16, height: SLIDER - 16 };
  return { holds, waits, queue, slider, bottom: queue.y + queue.height, height: slider.y + slider.height + 10 };
}

const laneHeight = (lanes, most, inAll) => Math.min(most, inAll / Math.max(1, lanes));
