package perfetto

import "encoding/binary"

// Fields of perfetto/protos/perfetto/trace/**.proto.
const (
	tracePacket = 1 // of Trace

	packetClocks     = 6
	packetTimestamp  = 8
	packetSequence   = 10
	packetTrackEvent = 11
	packetFlags      = 13
	packetTrack      = 60

	clocksClock    = 1
	clockID        = 1
	clockTimestamp = 2
	clockRealtime  = 1
	clockBoottime  = 6 // that of timestamps, where nothing else is said

	eventType       = 9
	eventAnnotation = 4
	eventTrack      = 11
	eventCategories = 22
	eventName       = 23
	eventCounter    = 30
	typeBegin       = 1
	typeEnd         = 2
	typeInstant     = 3
	typeCounter     = 4

	annotationInt  = 4
	annotationText = 6
	annotationName = 10

	trackUUID      = 1
	trackName      = 2
	trackProcess   = 3
	trackThread    = 4
	trackParent    = 5
	trackCounter   = 8
	processPID     = 1
	processCommand = 2
	processName    = 6
	threadPID      = 1
	threadTID      = 2
	threadName     = 5
	counterUnit    = 3
	unitBytes      = 3
)

// A message is the fields written so far.
type message []byte

func (m *message) number(field int, v uint64) {
	*m = binary.AppendUvarint(*m, uint64(field)<<3)
	*m = binary.AppendUvarint(*m, v)
}

func (m *message) text(field int, s string) {
	*m = binary.AppendUvarint(*m, uint64(field)<<3|2)
	*m = binary.AppendUvarint(*m, uint64(len(s)))
	*m = append(*m, s...)
}

func (m *message) message(field int, sub message) {
	*m = binary.AppendUvarint(*m, uint64(field)<<3|2)
	*m = binary.AppendUvarint(*m, uint64(len(sub)))
	*m = append(*m, sub...)
}

// clear keeps the memory.
func (m *message) clear() *message {
	*m = (*m)[:0]
	return m
}
