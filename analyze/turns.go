package analyze

import "strings"

// Turns are scopes that come again: steps, batches, epochs. Answers that look
// from turn to turn tell which they are by these two.

// Turn is the name that the turns of a scope have in common: "step 20" and
// "step 21" are turns of "step".
func Turn(name string) string {
	stem := strings.TrimRight(name, "0123456789")
	if stem == name {
		return name
	}
	if short := strings.TrimRight(stem, " \t#_-:/.=([{"); short != "" {
		return short
	}
	return name
}

// libraryDomains are the NVTX domains in which libraries mark each of their own
// calls. No program counts its work by these.
var libraryDomains = map[string]bool{"CCCL": true, "NCCL": true}

// LibraryDomain reports whether a scope of that NVTX domain is a library's call.
func LibraryDomain(domain string) bool { return libraryDomains[domain] }
