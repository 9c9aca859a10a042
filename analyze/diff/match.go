package diff

import (
	"path"
	"slices"
	"sort"
)

// A pair is the same thing on both sides; one of them may be nil.
type pair struct {
	a, b  *row
	moved bool // its place is not the same: inferred
}

// matchFunctions puts functions together: of the same file and name; then, of
// those left, of the same file name and function where there is one such on
// each side, as in another checkout.
func matchFunctions(a, b map[functionKey]*row) (pairs []pair) {
	var left [2]map[functionKey][]*row
	for i, side := range []map[functionKey]*row{a, b} {
		left[i] = map[functionKey][]*row{}
		other := []map[functionKey]*row{b, a}[i]
		for k, r := range side {
			if same := other[k]; same == nil {
				k.file = path.Base(k.file)
				left[i][k] = append(left[i][k], r)
			} else if i == 0 {
				pairs = append(pairs, pair{a: r, b: same})
			}
		}
	}
	for k, as := range left[0] {
		bs := left[1][k]
		if len(as) == 1 && len(bs) == 1 {
			pairs = append(pairs, pair{a: as[0], b: bs[0], moved: true})
			delete(left[1], k)
			continue
		}
		for _, r := range as {
			pairs = append(pairs, pair{a: r})
		}
	}
	for _, bs := range left[1] {
		for _, r := range bs {
			pairs = append(pairs, pair{b: r})
		}
	}
	return pairs
}

// matchLines puts the lines of each pair of functions together.
func matchLines(functions []pair, a, b map[lineKey]*row) (pairs []pair) {
	of := func(lines map[lineKey]*row) map[functionKey][]*row {
		by := map[functionKey][]*row{}
		for _, r := range lines {
			by[r.function] = append(by[r.function], r)
		}
		for _, rs := range by {
			sort.Slice(rs, func(i, j int) bool { return rs[i].line < rs[j].line })
		}
		return by
	}
	linesA, linesB := of(a), of(b)
	for _, f := range functions {
		var as, bs []*row
		if f.a != nil {
			as = linesA[f.a.function]
		}
		if f.b != nil {
			bs = linesB[f.b.function]
		}
		for _, p := range align(as, bs) {
			p.moved = p.a != nil && p.b != nil && (f.moved || p.a.line != p.b.line)
			pairs = append(pairs, p)
		}
	}
	return pairs
}

// mostAligned bounds the table of an alignment; a function with more lines that
// take memory is generated code.
const mostAligned = 1000

// align puts lines of one function together in their order, so that the pairs
// are worth the most: 1 each, and up to a half more by how alike the two are in
// number and bytes of allocations. So where one side has a line more, the right
// one is left over. The same line number decides between equals only: one line
// inserted above moves all.
//
//	best[i][j] is the worth of the first i of a against the first j of b
func align(a, b []*row) (pairs []pair) {
	if len(a) > mostAligned || len(b) > mostAligned {
		return byNumber(a, b)
	}
	best := make([][]float64, len(a)+1)
	best[0] = make([]float64, len(b)+1)
	for i := range a {
		best[i+1] = make([]float64, len(b)+1)
		for j := range b {
			best[i+1][j+1] = max(best[i][j+1], best[i+1][j], best[i][j]+alike(a[i], b[j]))
		}
	}
	i, j := len(a), len(b)
	for i > 0 && j > 0 {
		switch best[i][j] {
		case best[i][j-1]:
			j--
			pairs = append(pairs, pair{b: b[j]})
		case best[i-1][j]:
			i--
			pairs = append(pairs, pair{a: a[i]})
		default:
			i, j = i-1, j-1
			pairs = append(pairs, pair{a: a[i], b: b[j]})
		}
	}
	for ; i > 0; i-- {
		pairs = append(pairs, pair{a: a[i-1]})
	}
	for ; j > 0; j-- {
		pairs = append(pairs, pair{b: b[j-1]})
	}
	slices.Reverse(pairs)
	return pairs
}

// leastAlike is how alike two lines of different number must be to be one that
// has moved: the ratio of their allocations plus that of their bytes.
const leastAlike = 0.5

// alike is what a pair is worth.
func alike(a, b *row) float64 {
	likeness := ratio(a.Count, b.Count) + ratio(a.Taken, b.Taken)
	switch {
	case a.line == b.line:
		return 1 + likeness/4 + 1e-6
	case likeness < leastAlike:
		return 0
	}
	return 1 + likeness/4
}

func ratio(a, b int64) float64 {
	if a == b {
		return 1
	}
	return float64(min(a, b)) / float64(max(a, b))
}

func byNumber(a, b []*row) (pairs []pair) {
	of := map[int32]*row{}
	for _, r := range b {
		of[r.line] = r
	}
	for _, r := range a {
		pairs = append(pairs, pair{a: r, b: of[r.line]})
		delete(of, r.line)
	}
	for _, r := range b {
		if of[r.line] != nil {
			pairs = append(pairs, pair{b: r})
		}
	}
	return pairs
}
