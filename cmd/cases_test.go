package cmd

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// sources are the test functions of a folder, and the texts that their files have.
type sources struct {
	tests map[string]bool
	texts map[string]bool
}

func readSources(folder string) (*sources, error) {
	s := &sources{map[string]bool{}, map[string]bool{}}
	files, _ := filepath.Glob(filepath.Join(folder, "*_test.go"))
	for _, path := range files {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return nil, err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				s.tests[n.Name.Name] = n.Recv == nil
			case *ast.BasicLit:
				if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
					s.texts[text] = true
				}
			}
			return true
		})
	}
	return s, nil
}

var caseRow = regexp.MustCompile(`(?m)^\| ([A-F]\d) \| (.*) \| (.*) \|$`)

// checkCases returns what testdata/cases.md names and the sources lack, and the
// cases it has.
func checkCases(table, root string, rounds []string) (bad, cases []string) {
	known := map[string]*sources{}
	for _, row := range caseRow.FindAllStringSubmatch(table, -1) {
		cases = append(cases, row[1])
		for _, name := range strings.Split(row[3], "; ") {
			folder, test, ok := strings.Cut(name, ":")
			if folder == "torture" {
				if !slices.Contains(rounds, test) {
					bad = append(bad, row[1]+": torture has no rounds of kind "+test)
				}
				continue
			}
			s := known[folder]
			if s == nil {
				var err error
				if s, err = readSources(filepath.Join(root, folder)); err != nil {
					bad = append(bad, err.Error())
					continue
				}
				known[folder] = s
			}
			test, part, parts := strings.Cut(test, "/")
			switch {
			case !ok || !strings.HasPrefix(test, "Test") && !strings.HasPrefix(test, "Fuzz") || !s.tests[test]:
				bad = append(bad, fmt.Sprintf("%s: %q: there is no such test", row[1], name))
			case parts && !s.texts[part]:
				bad = append(bad, fmt.Sprintf("%s: %q: no table in %s has such a row", row[1], name, folder))
			}
		}
	}
	return bad, cases
}

// Every case has its tests, and they are there.
func TestCases(t *testing.T) {
	table, err := os.ReadFile("../testdata/cases.md")
	if err != nil {
		t.Fatal(err)
	}
	torture, err := readSources("internal/torture")
	if err != nil || !torture.tests["TestAgainst"] {
		t.Fatalf("torture's own test is not there: %v", err)
	}
	main, err := os.ReadFile("internal/torture/main.go")
	if err != nil {
		t.Fatal(err)
	}
	var rounds []string
	for _, m := range regexp.MustCompile(`\{"(\w+)", \d, \(\*round\)`).FindAllStringSubmatch(string(main), -1) {
		rounds = append(rounds, m[1])
	}
	bad, cases := checkCases(string(table), "..", rounds)
	for _, b := range bad {
		t.Error(b)
	}
	var want []string
	for _, group := range []struct {
		letter byte
		most   int
	}{{'A', 9}, {'B', 7}, {'C', 3}, {'D', 5}, {'E', 3}, {'F', 8}} {
		for n := 1; n <= group.most; n++ {
			want = append(want, fmt.Sprintf("%c%d", group.letter, n))
		}
	}
	if !slices.Equal(cases, want) {
		t.Errorf("rows %q, want %q", cases, want)
	}
}

// What is not there is found.
func TestCasesRefuse(t *testing.T) {
	for _, row := range []struct{ name, tests, want string }{
		{"a test that is gone", "cmd:TestGone", "there is no such test"},
		{"a folder that is gone", "gone:TestCases", "there is no such test"},
		{"a row that is gone", "cmd:TestCases/no such row, " + "anywhere", "has such a row"},
		{"no test", "cmd:readSources", "there is no such test"},
		{"rounds that are gone", "torture:gone", "no rounds of kind gone"},
		{"all there", "cmd:TestCases; cmd:TestCasesRefuse/all there; torture:here", ""},
	} {
		bad, cases := checkCases("| A1 | x | "+row.tests+" |\n", "..", []string{"here"})
		if text := strings.Join(bad, "\n"); len(cases) != 1 || (text == "") != (row.want == "") || !strings.Contains(text, row.want) {
			t.Errorf("%s: %q, want %q", row.name, text, row.want)
		}
	}
}
