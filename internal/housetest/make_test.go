package housetest

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// make help has two columns, the targets and their purpose, in lines of at most 120 characters.
func TestMakeHelp(t *testing.T) {
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("found no make")
	}
	output, err := exec.Command("make", "-C", "../..", "--no-print-directory", "help").Output()
	if err != nil {
		t.Fatal(err)
	}
	const column = 20 // of the second
	said, name := map[string]string{}, ""
	for line := range strings.Lines(string(output)) {
		line = strings.TrimSuffix(line, "\n")
		if len(line) > 120 || len(line) <= column || line[column-1] != ' ' || line[column] == ' ' {
			t.Errorf("found the line %q, expected at most 120 columns, the text from column %d on", line, column)
			continue
		}
		if first := strings.TrimRight(line[:column], " "); first != "" {
			name = first
		} else {
			said[name] += " "
		}
		said[name] += line[column:]
	}
	targets := regexp.MustCompile(`(?m)^([a-z-]+):.*## (.*)$`).FindAllStringSubmatch(read(t, "Makefile"), -1)
	for _, target := range targets {
		if said[target[1]] != target[2] {
			t.Errorf("%s: found %q, expected %q", target[1], said[target[1]], target[2])
		}
	}
	if len(said) != len(targets) || len(targets) < 30 {
		t.Errorf("found %d targets, expected the %d of the Makefile", len(said), len(targets))
	}
}
