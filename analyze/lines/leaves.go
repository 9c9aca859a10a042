package lines

import "github.com/gpurec/gpurec/format"

// leaves are sums by stack, in the order in which stacks were first seen. A
// tree built from them in this order has its nodes in the order in which
// events would have made them: a stack makes nodes only when it is first seen.
type leaves struct {
	index map[leafKey]*leaf
	order []*leaf
	last  *leaf
}

type leafKey struct {
	process format.ProcessID
	stack   format.StackID
}

type leaf struct {
	leafKey
	pool, driver   int64
	used, acquired int64 // set from them when it is known which is used
}

func newLeaves() leaves { return leaves{index: map[leafKey]*leaf{}} }

func (l *leaves) at(p format.ProcessID, s format.StackID) *leaf {
	k := leafKey{p, s}
	if l.last != nil && l.last.leafKey == k {
		return l.last
	}
	f := l.index[k]
	if f == nil {
		f = &leaf{leafKey: k}
		l.index[k] = f
		l.order = append(l.order, f)
	}
	l.last = f
	return f
}
