package cpuprofile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const soundReport = `{"schema":"gresize.profile/1","pid":7,"reason":"stopped","recording":"whole","torch":"2.6.0","steps":3,"iterations":3,"trace":"written","weights":[[8,0],[4,2]],"optimizers":["SGD"],"replaced":[]}`

func TestParseReport(t *testing.T) {
	r, err := ParseReport([]byte(soundReport))
	if err != nil || !r.Stopped() || r.BudgetSpent() || r.Weights[1].Bytes() != 4 || r.Weights[1].Kind() != Buffer {
		t.Fatalf("%+v, %v", r, err)
	}
	for _, c := range []struct{ old, new, says string }{
		{"profile/1", "profile/2", "schema"},
		{`"whole"`, `"some"`, "recording"},
		{`"steps":3`, `"steps":-3`, "out of range"},
		{"[8,0]", "[-8,0]", "weights[0]"},
		{"[8,0]", "[8,3]", "weights[0]"},
		{"[8,0]", "[99999999999999,0]", "weights[0]"},
		{`["SGD"]`, `["S G D"]`, "is no name"},
		{`"pid":7`, `"pid":7,"rank":-1`, "rank"},
		{`"pid":7`, `"pid":7,"left_on_gpu_bytes":-1`, "left_on_gpu_bytes"},
		{"{", "", "invalid"},
	} {
		if _, err := ParseReport([]byte(strings.Replace(soundReport, c.old, c.new, 1))); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v: want %q", c.new, err, c.says)
		}
	}
}

func TestReadProcesses(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("profile-7.json", soundReport)
	write("profile-7.json.gz", "packed")
	write("profile-8.json", strings.Replace(strings.Replace(soundReport, `"steps":3`, `"steps":9`, 1), `"written"`, `"none"`, 1))
	write("native-7.json", "{}")
	processes, err := ReadProcesses(dir)
	if err != nil || len(processes) != 2 || processes[0].Report.Steps != 9 || len(processes[0].Trace) != 0 || string(processes[1].Trace) != "packed" {
		t.Fatalf("%+v, %v", processes, err)
	}
	write("profile-9.json", "{")
	if _, err := ReadProcesses(dir); err == nil || !strings.Contains(err.Error(), "profile-9.json") {
		t.Errorf("%v: want the name of the file", err)
	}
	if err := os.Remove(filepath.Join(dir, "profile-9.json")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "profile-9.json")); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadProcesses(dir); err == nil {
		t.Error("a link was followed")
	}
}
