package report

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"strings"
)

//go:embed assets
var assets embed.FS

// scripts are put together in this order, in one function.
var scripts = []string{"words.js", "data.js", "table.js", "chart.js", "bands.js", "flame.js", "cards.js", "main.js"}

// html is the page: the frame with its policy, styles, data and scripts put in.
// Nothing may be loaded and nothing may run but the two that have these hashes.
// The data are no script: JSON, in which < and > are escaped, so that it cannot
// end before its end.
func (p *Page) html() ([]byte, error) {
	var data bytes.Buffer
	if err := json.NewEncoder(&data).Encode(p); err != nil {
		return nil, fmt.Errorf("write the page's data: %w", err)
	}
	style := asset("page.css")
	var script strings.Builder
	script.WriteString("(() => {\n\"use strict\";\n")
	for _, name := range scripts {
		script.WriteString(asset(name))
	}
	script.WriteString("})();\n")
	policy := fmt.Sprintf("default-src 'none'; base-uri 'none'; form-action 'none'; style-src %s; script-src %s", hashOf(style), hashOf(script.String()))
	out := strings.NewReplacer("{{policy}}", policy, "{{title}}", html.EscapeString(p.Title), "{{style}}", style,
		"{{data}}", data.String(), "{{script}}", script.String()).Replace(asset("page.html"))
	return []byte(out), nil
}

func asset(name string) string {
	b, err := assets.ReadFile("assets/" + name)
	if err != nil {
		panic(err) // it is not in the binary
	}
	return string(b)
}

// hashOf names an inline text in a policy.
func hashOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
