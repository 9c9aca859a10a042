package dwarf

import "fmt"

// Tags and attributes are DWARF's and GNU's numbers.
const (
	tagArrayType         = 0x01
	tagClassType         = 0x02
	tagEnumerationType   = 0x04
	tagCompileUnit       = 0x11
	tagStructureType     = 0x13
	tagSubroutineType    = 0x15
	tagUnionType         = 0x17
	tagInlinedSubroutine = 0x1d
	tagModule            = 0x1e
	tagSubprogram        = 0x2e
	tagNamespace         = 0x39
	tagPartialUnit       = 0x3c
	tagTypeUnit          = 0x41
	tagSkeletonUnit      = 0x4a
)

// A slot is where an attribute that is asked for is put.
type slot uint8

const (
	none slot = iota
	sibling
	name
	linkageName
	origin // or the declaration: what else there is of a function
	declaration
	lowPC
	highPC
	ranges
	callFile
	callLine
	stmtList
	folder
	strOffsetsBase
	addrBase
	rngListsBase
	rangesBase
	dwoName
	dwoID
	slots
)

// slotOf says what is asked for of entries with a tag: of most, where the next is.
func slotOf(tag uint16, attr uint64) slot {
	if attr == 0x01 {
		return sibling
	}
	switch tag {
	case tagCompileUnit, tagPartialUnit, tagTypeUnit, tagSkeletonUnit:
		switch attr {
		case 0x10:
			return stmtList
		case 0x1b:
			return folder
		case 0x72:
			return strOffsetsBase
		case 0x73, 0x2133:
			return addrBase
		case 0x74:
			return rngListsBase
		case 0x2132:
			return rangesBase
		case 0x76, 0x2130:
			return dwoName
		case 0x2131:
			return dwoID
		}
	case tagSubprogram, tagInlinedSubroutine:
		switch attr {
		case 0x31:
			return origin
		case 0x47:
			return declaration
		case 0x6e, 0x2007: // the second is MIPS', and of all older compilers
			return linkageName
		case 0x58:
			return callFile
		case 0x59:
			return callLine
		}
	case tagNamespace, tagModule, tagClassType, tagStructureType, tagUnionType, tagEnumerationType:
		if attr == 0x03 {
			return name
		}
		return none
	default:
		return none
	}
	switch attr {
	case 0x03:
		return name
	case 0x11:
		return lowPC
	case 0x12:
		return highPC
	case 0x55:
		return ranges
	}
	return none
}

const (
	formAddr          = 0x01
	formBlock2        = 0x03
	formBlock4        = 0x04
	formData2         = 0x05
	formData4         = 0x06
	formData8         = 0x07
	formString        = 0x08
	formBlock         = 0x09
	formBlock1        = 0x0a
	formData1         = 0x0b
	formFlag          = 0x0c
	formSdata         = 0x0d
	formStrp          = 0x0e
	formUdata         = 0x0f
	formRefAddr       = 0x10
	formRef1          = 0x11
	formRef2          = 0x12
	formRef4          = 0x13
	formRef8          = 0x14
	formRefUdata      = 0x15
	formIndirect      = 0x16
	formSecOffset     = 0x17
	formExprloc       = 0x18
	formFlagPresent   = 0x19
	formStrx          = 0x1a
	formAddrx         = 0x1b
	formRefSup4       = 0x1c
	formStrpSup       = 0x1d
	formData16        = 0x1e
	formLineStrp      = 0x1f
	formRefSig8       = 0x20
	formImplicitConst = 0x21
	formLoclistx      = 0x22
	formRnglistx      = 0x23
	formRefSup8       = 0x24
	formStrx1         = 0x25
	formStrx2         = 0x26
	formStrx3         = 0x27
	formStrx4         = 0x28
	formAddrx1        = 0x29
	formAddrx2        = 0x2a
	formAddrx3        = 0x2b
	formAddrx4        = 0x2c
	formGNUAddrIndex  = 0x1f01
	formGNUStrIndex   = 0x1f02
	formGNURefAlt     = 0x1f20
	formGNUStrpAlt    = 0x1f21
)

// What sizeOf says of forms whose size is not their own.
const (
	sizeVaries = -1 - iota
	sizeAddress
	sizeOffset
	sizeReference // within a file: an address in DWARF 2, an offset since
)

// sizeOf is how many bytes a form takes.
func sizeOf(form uint16) int {
	switch form {
	case formFlagPresent, formImplicitConst:
		return 0
	case formData1, formFlag, formRef1, formStrx1, formAddrx1:
		return 1
	case formData2, formRef2, formStrx2, formAddrx2:
		return 2
	case formStrx3, formAddrx3:
		return 3
	case formData4, formRef4, formRefSup4, formStrx4, formAddrx4:
		return 4
	case formData8, formRef8, formRefSig8, formRefSup8:
		return 8
	case formData16:
		return 16
	case formAddr:
		return sizeAddress
	case formRefAddr:
		return sizeReference
	case formStrp, formLineStrp, formStrpSup, formSecOffset, formGNURefAlt, formGNUStrpAlt:
		return sizeOffset
	}
	return sizeVaries
}

// A value is an attribute's: a number, or of formString where it begins.
type value struct {
	form uint16 // 0: it is not there
	u    uint64
}

// value reads one.
func (u *unit) value(r *reader, form uint16, constant int64) (value, error) {
	if form == formIndirect {
		if form = uint16(min(r.uleb(), 0xffff)); form == formIndirect || form == formImplicitConst {
			return value{}, fmt.Errorf("at %#x a form is %#x by itself", r.at, form)
		}
	}
	v := value{form: form}
	switch size := sizeOf(form); size {
	case sizeVaries:
	case sizeAddress:
		v.u = r.number(u.addrSize)
		return v, nil
	case sizeOffset:
		v.u = r.number(u.word)
		return v, nil
	case sizeReference:
		v.u = r.number(u.refSize())
		return v, nil
	case 16:
		r.skip(16)
		return v, nil
	case 0:
		if v.u = 1; form == formImplicitConst {
			v.u = uint64(constant)
		}
		return v, nil
	default:
		v.u = r.number(size)
		return v, nil
	}
	switch form {
	case formString:
		v.u = uint64(r.at)
		r.text()
	case formUdata, formRefUdata, formStrx, formAddrx, formLoclistx, formRnglistx, formGNUAddrIndex, formGNUStrIndex:
		v.u = r.uleb()
	case formSdata:
		v.u = uint64(r.sleb())
	case formBlock1:
		r.skip(uint64(r.u8()))
	case formBlock2:
		r.skip(r.number(2))
	case formBlock4:
		r.skip(r.number(4))
	case formBlock, formExprloc:
		r.skip(r.uleb())
	default:
		return v, fmt.Errorf("at %#x there is the form %#x, which is not known", r.at, form)
	}
	return v, nil
}

func (u *unit) refSize() int {
	if u.version == 2 {
		return u.addrSize
	}
	return u.word
}

// An entry is what is asked for of one.
type entry struct {
	at     int // in .debug_info
	next   int // where what follows its attributes begins
	shape  *abbrev
	values [slots]value
	dirty  bool
	fields int // work
}

// read reads the entry at an offset; one without a shape ends its parent's.
func (e *entry) read(u *unit, at int) error {
	r := reader{b: u.f.Info[:u.end], at: at, order: u.f.Order}
	code := r.uleb()
	e.at, e.shape, e.fields = at, nil, 0
	if code == 0 {
		e.next = r.at
		return r.err("an entry", at)
	}
	if e.shape = u.table.find(code); e.shape == nil {
		return fmt.Errorf("the entry at %#x has the abbreviation %d, which is not there", at, code)
	}
	if e.dirty {
		e.values, e.dirty = [slots]value{}, false
	}
	if s := e.shape; s.plain {
		r.skip(uint64(s.bytes + s.addrs*u.addrSize + s.offsets*u.word + s.refs*u.refSize()))
		e.next = r.at
		return r.err("an entry", at)
	}
	e.fields = len(e.shape.fields)
	for i := range e.shape.fields {
		f := &e.shape.fields[i]
		v, err := u.value(&r, f.form, f.constant)
		if err != nil {
			return err
		}
		if f.slot != none && e.values[f.slot].form == 0 {
			e.values[f.slot], e.dirty = v, true
		}
	}
	e.next = r.at
	return r.err("an entry", at)
}

// after is where the next entry at this one's level begins, if it says so.
func (e *entry) after(u *unit) (int, bool) {
	v := e.values[sibling]
	if v.form == 0 {
		return 0, false
	}
	at, ok := u.local(v)
	return at, ok && at >= e.next
}

// local is where in its unit a reference leads.
func (u *unit) local(v value) (int, bool) {
	switch v.form {
	case formRef1, formRef2, formRef4, formRef8, formRefUdata:
		if v.u < uint64(u.end-u.at) {
			at := u.at + int(v.u)
			return at, at >= u.first
		}
	}
	return 0, false
}
