//go:build race

package format

// raceDetector makes these tests twenty times as slow: what is read thousands
// of times by one goroutine is read less often under it.
const raceDetector = true
