package browser

import (
	"time"

	"github.com/temporal-lockstep/lockstep/internal/cli/contention"
)

// zoomScript turns the wheel over the timeline once a frame, in and out at several places. Frames are the times from one frame to the next,
// 16.7 ms if nothing is late. Work is the time that the page's thread spent on each.
const zoomScript = `(async () => {
	const canvas = document.querySelector("#chart canvas");
	const box = canvas.getBoundingClientRect();
	const frame = () => new Promise(requestAnimationFrame);
	const afterwards = () => new Promise((done) => {
		const { port1, port2 } = new MessageChannel();
		port1.onmessage = done;
		port2.postMessage(0);
	});
	const [Frames, Work] = [[], []];
	let before = await frame();
	for (const place of [0.2, 0.5, 0.8]) {
		for (const turn of [...Array(12).fill(-120), ...Array(12).fill(120)]) {
			const began = performance.now();
			canvas.dispatchEvent(new WheelEvent("wheel", {
				deltaY: turn, clientX: box.x + box.width * place, clientY: box.y + 120, bubbles: true, cancelable: true,
			}));
			const handled = performance.now();
			const now = await frame();
			await afterwards();
			Work.push(handled - began + performance.now() - now);
			Frames.push(now - before);
			before = now;
		}
	}
	return { Frames, Work };
})()`

// Names that are not text unless they are escaped.
const (
	script  = `</script><script>window.pwned = 1; alert(1)</script>`
	picture = `<img src="https://example.com/x" onerror="window.pwned = 2">`
)

// evil is a report with such names everywhere, and a hold without an end.
func evil() *contention.Report {
	start := time.Date(2026, time.November, 20, 9, 0, 0, 0, time.UTC)
	end := start.Add(time.Second)
	one := contention.Distribution{Count: 1, Total: 1, P50: 1, P95: 1, P99: 1, Max: 1}
	return &contention.Report{
		From: start, To: end, Read: contention.Reading{Files: 1, Spans: 2, LockSpans: 2, Broken: 1, Problems: []string{script}},
		Totals: contention.Totals{Acquisitions: 2, Waited: 1, Wait: one, Hold: one, Deadlocks: 1, Lost: 1},
		Resources: []contention.Resource{{
			Name: picture, Wait: one, Hold: one, Busy: 1, Contended: 1, Queue: []contention.QueueLength{{At: start, Length: 1}, {At: end}},
			LongestQueue: 1, Why: script + picture,
		}},
		Owners:     []contention.Owner{{Name: script, Blocked: 1, BlockedWaits: 1, Worst: picture}},
		Conclusion: []contention.Finding{{Rule: script, Text: script, Advice: picture}},
		Roots: []contention.Root{{Owner: script, WorkflowType: picture, Caused: 1, Waits: 1, Hold: 0, Resource: picture, Did: script,
			Waiters: []contention.Waiter{{Owner: picture, WorkflowType: script, Resource: script, Step: picture, Waited: 1, Total: 1, Wait: 0}}}},
		Types:     []contention.TypePair{{Waiter: script, Blocker: picture, Waited: 1, Waits: 1, Steps: []contention.StepPair{{Waiter: script, Blocker: picture, Waited: 1, Waits: 1}}}},
		Load:      []contention.Load{{At: start, Held: 1, Waiting: 1}},
		Overlong:  []contention.Overlong{{Hold: 0, Held: 1, Ran: 0.1, Blocked: 1}},
		Losses:    []contention.Loss{{Hold: -1, Resource: picture, LockID: script, Owner: picture, At: end, Outcome: script, Reason: script, Trace: script, Span: picture}},
		Deadlocks: []contention.Deadlock{{At: end, Victim: script, Cycle: picture, Trace: script, Span: script}},
		Holds: []contention.Hold{{
			Subject: contention.Subject{Resource: picture, LockID: script, Owner: picture, Workflow: script, Run: picture, Mode: script},
			Fence:   1, Start: start, End: end, Outcome: script, Reason: picture, Host: script, Trace: script, Span: picture,
			Steps: []contention.Step{{Name: script, Part: picture, Start: start, End: end}}, Blocked: 1, Blocks: []int{0},
		}, {
			Subject: contention.Subject{Resource: picture, LockID: script, Owner: picture, Mode: script}, Fence: 2, Start: end, Outcome: "open",
		}},
		Waits: []contention.Wait{{
			Subject: contention.Subject{Resource: picture, LockID: picture, Owner: script, Workflow: picture, Mode: script},
			Step:    picture, Start: start, End: end, Outcome: picture, Trace: picture, Span: script, Hold: -1, Blockers: []contention.Blocker{{Hold: 0, LockID: script, Owner: picture, Step: script, To: 1, Named: true, Last: true}},
		}},
	}
}
