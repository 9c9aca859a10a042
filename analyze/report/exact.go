package report

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/gpurec/gpurec/analyze"
)

// mostText is how much of a name a page shows.
const mostText = 600

// An integer is text in JSON.
type integer int64

func (n integer) MarshalJSON() ([]byte, error) {
	return append(strconv.AppendInt([]byte{'"'}, int64(n), 10), '"'), nil
}

// exact is v as its JSON has it, but with integers as text, which a browser
// reads without rounding, and with texts that are fit to be shown.
func exact(v any) (any, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var out any
	if err := d.Decode(&out); err != nil {
		return nil, err
	}
	return exactly(out), nil
}

func exactly(v any) any {
	switch v := v.(type) {
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			return v
		}
		return v.String()
	case string:
		return analyze.Cut(v, mostText)
	case []any:
		for i := range v {
			v[i] = exactly(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = exactly(v[k])
		}
	}
	return v
}
