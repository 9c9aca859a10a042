package dwarf

import "math"

// An extent is addresses from its first up to, and without, its second.
type extent struct{ from, to uint64 }

// base is what a unit's ranges count from.
func (u *unit) base() uint64 {
	if u.skeleton != nil {
		return u.skeleton.low
	}
	return u.low
}

// extents calls f for each extent of an entry's addresses until it says false, and
// says how many it looked at. What begins at 0 was left out by the linker, and is none.
func (u *unit) extents(e *entry, f func(extent) bool) (work int) {
	low, high, list := e.values[lowPC], e.values[highPC], e.values[ranges]
	some := func(from, to uint64) bool {
		work++
		return from == 0 || from >= to || f(extent{from, to})
	}
	if list.form != 0 {
		if u.version >= 5 {
			u.rangeList(list, some, &work)
		} else {
			u.oldRanges(list, some, &work)
		}
		return work
	}
	from, ok := u.address(low)
	if !ok || high.form == 0 {
		return 0
	}
	if to, ok := u.address(high); ok {
		some(from, to)
	} else {
		some(from, from+high.u)
	}
	return work
}

// oldRanges reads .debug_ranges.
func (u *unit) oldRanges(list value, some func(from, to uint64) bool, work *int) {
	of, at := u.f, list.u
	if u.skeleton != nil {
		of, at = u.skeleton.f, list.u+u.skeleton.rangesBase
	}
	if at > uint64(len(of.Ranges)) {
		return
	}
	most := uint64(math.MaxUint64)
	if u.addrSize == 4 {
		most = math.MaxUint32
	}
	r, base := reader{b: of.Ranges, at: int(at), order: of.Order}, u.base()
	for {
		from, to := r.number(u.addrSize), r.number(u.addrSize)
		switch *work++; {
		case r.bad || from == 0 && to == 0:
			return
		case from == most:
			base = to
		case from != to: // what the linker has left out is empty
			if !some(base+from, base+to) {
				return
			}
		}
	}
}

// rangeList reads .debug_rnglists.
func (u *unit) rangeList(list value, some func(from, to uint64) bool, work *int) {
	at := list.u
	if list.form == formRnglistx {
		if at > math.MaxInt32 {
			return
		}
		offset, ok := number(u.f.RngLists, u.rngListsBase+at*uint64(u.word), u.word, u.f.Order)
		if !ok {
			return
		}
		at = u.rngListsBase + offset
	}
	if at > uint64(len(u.f.RngLists)) {
		return
	}
	r, base := reader{b: u.f.RngLists, at: int(at), order: u.f.Order}, u.base()
	indexed := func() uint64 {
		a, ok := u.address(value{form: formAddrx, u: r.uleb()})
		if !ok {
			return 0
		}
		return a
	}
	for {
		kind := r.u8()
		if *work++; r.bad {
			return
		}
		var from, to uint64
		switch kind {
		case 1: // base, by index
			base = indexed()
			continue
		case 2: // both by index
			from, to = indexed(), indexed()
		case 3: // the first by index, and a length
			from = indexed()
			to = from + r.uleb()
		case 4: // both from the base
			from, to = r.uleb(), r.uleb()
			if base == 0 && u.low == 0 && from == 0 { // left out by the linker
				continue
			}
			from, to = base+from, base+to
		case 5: // base
			base = r.number(u.addrSize)
			continue
		case 6: // both
			from, to = r.number(u.addrSize), r.number(u.addrSize)
		case 7: // the first, and a length
			from = r.number(u.addrSize)
			to = from + r.uleb()
		default: // the end, or what is not known
			return
		}
		if !r.bad && !some(from, to) {
			return
		}
	}
}
