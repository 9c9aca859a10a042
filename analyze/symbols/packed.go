package symbols

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"io"

	"github.com/ulikunitz/xz/lzma"
)

// Fedora and its family strip programs of their symbols but for those of functions,
// which they pack with xz into the section .gnu_debugdata: an ELF file of its own.
const (
	mostPacked = 256 << 20 // of it unpacked; Fedora's largest are a tenth
	mostWindow = 64 << 20  // what may be told by what came before; xz -9 takes so much
)

// packed is the file in an image; nil where it has none.
func (g *image) packed(b *budget) (*image, error) {
	s := g.elf.Section(".gnu_debugdata")
	if s == nil {
		return nil, nil
	}
	plain, err := unpack(io.NewSectionReader(raw(s), 0, int64(min(s.FileSize, mostPacked))), mostPacked, b.check)
	if err != nil {
		return nil, fmt.Errorf("%s: the symbols packed in it: %w", g.path, err)
	}
	r := bytes.NewReader(plain)
	if err := affordable(r); err != nil {
		return nil, fmt.Errorf("%s: the symbols packed in it: %w", g.path, err)
	}
	e, err := elf.NewFile(r)
	if err != nil {
		return nil, fmt.Errorf("%s: the symbols packed in it: %w", g.path, err)
	}
	return &image{path: g.path, elf: e}, nil
}

var errNoXZ = errors.New("they are not packed as xz does")

// unpack reads a stream of xz, and asks check whether to go on. The library's own
// reader of it would make a window of whatever size the stream says, and for every
// block, of which many may be empty.
//
//	stream   magic (6), flags (2), CRC32; blocks; an index, which begins with a zero
//	block    its head's size / 4 - 1, flags, filters, CRC32; LZMA2; to a multiple of 4; a check
func unpack(section io.Reader, most int, check func() error) ([]byte, error) {
	in := &counted{r: bufio.NewReader(section)}
	var head [12]byte
	if _, err := io.ReadFull(in, head[:]); err != nil || string(head[:6]) != "\xfd7zXZ\x00" || head[6] != 0 {
		return nil, errNoXZ
	}
	var out bytes.Buffer
	windows := int64(0)
	for {
		size, err := in.ReadByte()
		if err != nil {
			return nil, io.ErrUnexpectedEOF
		}
		if size == 0 {
			return out.Bytes(), nil
		}
		block := make([]byte, 4*(int(size)+1))
		block[0] = size
		if _, err := io.ReadFull(in, block[1:]); err != nil {
			return nil, io.ErrUnexpectedEOF
		}
		window, err := window(block)
		if err != nil {
			return nil, err
		}
		if windows += window; windows > mostWindow+4*int64(most) {
			return nil, fmt.Errorf("windows of %d bytes are needed for them", windows)
		}
		begin := in.n
		r, err := lzma.Reader2Config{DictCap: int(window)}.NewReader2(in)
		if err != nil {
			return nil, err
		}
		sum, length := checkOf(head[7])
		for n := int64(1); n > 0; {
			if err := check(); err != nil {
				return nil, err
			}
			if n, err = io.Copy(io.MultiWriter(&out, sum), io.LimitReader(r, min(1<<20, int64(most-out.Len()+1)))); err != nil {
				return nil, err
			}
		}
		if out.Len() > most {
			return nil, fmt.Errorf("they are more than %d bytes", most)
		}
		rest := make([]byte, (4-(in.n-begin)%4)%4+int64(length))
		if _, err := io.ReadFull(in, rest); err != nil {
			return nil, io.ErrUnexpectedEOF
		}
		if sum := sum.Sum(nil); len(sum) == length && !sameSum(sum, rest[len(rest)-length:]) {
			return nil, errors.New("their checksum is another")
		}
	}
}

// window is how much of what came before a block may refer to.
func window(block []byte) (int64, error) {
	end := len(block) - 4
	if crc32.ChecksumIEEE(block[:end]) != binary.LittleEndian.Uint32(block[end:]) {
		return 0, errNoXZ
	}
	at := 2
	for _, flag := range []byte{0x40, 0x80} { // sizes, packed and not
		if block[1]&flag != 0 {
			_, n := binary.Uvarint(block[at:end])
			if n <= 0 {
				return 0, errNoXZ
			}
			at += n
		}
	}
	// One filter, LZMA2, with one property.
	if block[1]&3 != 0 || at+3 > end || block[at] != 0x21 || block[at+1] != 1 {
		return 0, errNoXZ
	}
	n, err := lzma.DecodeDictCap(block[at+2])
	if err != nil || n > mostWindow {
		return 0, fmt.Errorf("a window of %d bytes is needed for them", n)
	}
	return max(n, lzma.MinDictCap), nil
}

// checkOf is the check of a stream's blocks, and how many bytes it takes; one that
// is not known is passed.
func checkOf(flags byte) (hash.Hash, int) {
	switch flags & 0xf {
	case 1:
		return crc32.NewIEEE(), 4
	case 4:
		return crc64.New(crc64.MakeTable(crc64.ECMA)), 8
	}
	return crc32.NewIEEE(), []int{0, 4, 4, 4, 8, 8, 8, 16, 16, 16, 32, 32, 32, 64, 64, 64}[flags&0xf]
}

// sameSum compares with one that lies the other way round.
func sameSum(sum, file []byte) bool {
	for i := range sum {
		if sum[i] != file[len(file)-1-i] {
			return false
		}
	}
	return true
}

// counted counts what is read, and reads no more than it is asked for.
type counted struct {
	r io.Reader
	n int64
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	return n, err
}

func (c *counted) ReadByte() (byte, error) {
	var b [1]byte
	n, err := io.ReadFull(c, b[:])
	if n == 0 {
		return 0, err
	}
	return b[0], nil
}
