// Package recorder moves events from lanes to a trace on disk, while the traced
// programs run and after they have died.
//
//	lanes ──► drain ──► [rounds] ──► fold ──► [pages] ──► write ──► NAME.gpurec/
//	           ▲                      ▲
//	        hellos, deaths       readings of Sources (NVML)
//
//	session.go    Start, Close, and what holds the three together
//	drain.go      the loop: accept, deaths, copy what is published, watermark
//	pace.go       how long it pauses        poll.go     and in what
//	deaths.go     who has died, and when      round.go      what drain hands to fold
//	accept.go     the socket, a hello and its checks        process.go  who it is
//	admit.go      a newcomer's lanes and process, taken in by drain
//	order.go      lanes merged by the time at their heads
//	intern.go     definitions to the trace's own ids        lines.go    Python's line tables
//	answer.go     what a traced thread asks of its scopes
//	forget.go     which of them it lets go of, when there are too many
//	fold.go       a record to an Event, scopes, the live set, checkpoints
//	nest.go       which scope is a thread's innermost
//	write.go      pages to format.Writer          retain.go   how parts divide a bound
//	launch.go     a command, its signals and its status     spawn.go    its fork and exec
//	view.go       what a View tells beside the fold; metrics/ shows it to Prometheus
//	late.go       a source that takes a while to open
//	sweep.go      what killed recorders left
//	witness.go    was a signal meant for all?    outlive.go  who is left at its end
//	open.go       a Go program that records itself       gostack.go its stacks
//	hook.go       its pool's six callbacks               scope.go, report.go  measured blocks
//
// It promises that the traced program never waits for it (unless asked, within
// a budget); that what a process published before its death is in the trace;
// that what is missing is counted, exactly and where; and that no process can
// stop the recording of another, whatever it writes into its lanes.
// It refuses to know what a device is (it takes Sources), where the hook comes
// from (it takes an environment), and what the numbers mean (that is analyze).
//
// Queues are bounded in bytes, and a full one is never waited for by drain: it
// leaves the records in their lanes. A lane that fills up for this reason
// refuses records and counts them itself, so there is one place where events
// are lost and one count of them, instead of one per queue.
package recorder
