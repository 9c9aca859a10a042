package lines

import (
	"github.com/gpurec/gpurec/analyze/tree"
	"github.com/gpurec/gpurec/format"
)

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
	path    tree.Path // where lines are asked for by scope
}

type leaf struct {
	leafKey
	pool, driver   int64
	used, acquired int64 // set from them when it is known which is used
}

func newLeaves() leaves { return leaves{index: map[leafKey]*leaf{}} }

func (l *leaves) at(p format.ProcessID, s format.StackID, path tree.Path) *leaf {
	k := leafKey{p, s, path}
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

// each is the sums, when it is known which of them are used.
func (l *leaves) each(f func(tree.Key, tree.Amount)) {
	for _, x := range l.order {
		f(tree.Key{Process: x.process, Stack: x.stack, Path: x.path}, tree.Amount{Used: x.used, Acquired: x.acquired})
	}
}
