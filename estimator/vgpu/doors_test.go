package vgpu

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/vgpu/torchtest"
)

// doorAnswers is what testdata/doors.py learnt of one machine.
type doorAnswers struct {
	NVML struct {
		Driver string     `json:"driver"`
		Cards  []doorCard `json:"cards"`
	} `json:"nvml"`
	SMI       []map[string]string `json:"smi"`
	List      []string            `json:"list"`
	Unit      []string            `json:"unit"`
	CUDA      []doorCard          `json:"cuda"`
	Available bool                `json:"available"`
}

type doorCard struct {
	Name       string `json:"name"`
	UUID       string `json:"uuid"`
	Total      int64  `json:"total"`
	TotalAgain int64  `json:"total_again"`
	Capability string `json:"capability"`
	Mode       int    `json:"mode"`
	MIG        int    `json:"mig"`
}

// TestEveryDoorGivesTheSameAnswer: NVML, nvidia-smi and PyTorch speak of one card, for every profile, several cards and any choice of them.
func TestEveryDoorGivesTheSameAnswer(t *testing.T) {
	dir := t.TempDir()
	type machine struct {
		profile gpu.Profile
		count   int
		// visible is CUDA_VISIBLE_DEVICES, and cards are those that it leaves.
		visible string
		cards   []int
	}
	var machines []machine
	for _, p := range gpu.List() {
		machines = append(machines, machine{p, 1, "all", []int{0}})
	}
	h100 := machines[len(machines)-1].profile
	const second = "GPU-11111111-1111-1111-1111-111111111112"
	machines = append(machines, machine{h100, 4, "all", []int{0, 1, 2, 3}}, machine{h100, 4, "2,3", []int{2, 3}}, machine{h100, 4, "3,0", []int{3, 0}},
		machine{h100, 4, "1,9,0", []int{1}}, machine{h100, 2, second, []int{1}}, machine{h100, 2, "", nil}, machine{h100, 1, "5", nil}, machine{h100, 0, "all", nil})
	var args []string
	for i, m := range machines {
		path := filepath.Join(dir, fmt.Sprint(i))
		f, err := os.Create(path)
		if err == nil {
			err = errors.Join(m.profile.WriteNative(f), f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		args = append(args, fmt.Sprintf("%s|%d|%s", path, m.count, m.visible))
	}
	env, err := Environment(Options{LibDir: libDir(t), WithoutPython: true}, os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), torchtest.Python(t, "2.6.0"), append([]string{"testdata/doors.py"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	if len(lines) != len(machines) {
		t.Fatalf("%d answers of %d machines\n%s", len(lines), len(machines), stderr.String())
	}
	for i, m := range machines {
		title := fmt.Sprintf("%d %s, visible %q", m.count, m.profile.ID, m.visible)
		var a doorAnswers
		if err := json.Unmarshal(lines[i], &a); err != nil {
			t.Fatal(err)
		}
		if len(a.NVML.Cards) != m.count || len(a.SMI) != m.count || len(a.List) != m.count || len(a.CUDA) != len(m.cards) || a.Available != (len(m.cards) > 0) {
			t.Errorf("%s: NVML has %d cards, nvidia-smi %d and %d, PyTorch %d, available %v", title, len(a.NVML.Cards), len(a.SMI), len(a.List), len(a.CUDA), a.Available)
			continue
		}
		p := &m.profile
		totalMiB := fmt.Sprint(p.Total.Bytes >> 20)
		for k, n := range a.NVML.Cards {
			s := a.SMI[k]
			if n.Name != p.Name || s["name"] != p.Name || n.Total != p.Total.Bytes || s["memory.total"] != totalMiB || a.Unit[k+1] != totalMiB+" MiB" ||
				n.Capability != p.ComputeCapability || s["compute_cap"] != p.ComputeCapability || a.NVML.Driver != p.DriverVersion || s["driver_version"] != p.DriverVersion {
				t.Errorf("%s: card %d: NVML %+v, driver %s; nvidia-smi %v %v", title, k, n, a.NVML.Driver, s, a.Unit)
			}
			if s["uuid"] != n.UUID || !strings.Contains(a.List[k], "(UUID: "+n.UUID+")") || !strings.Contains(a.List[k], p.Name) {
				t.Errorf("%s: card %d: %s, %s, %s", title, k, n.UUID, s["uuid"], a.List[k])
			}
			if n.Mode != 0 || s["compute_mode"] != "Default" || n.MIG != 3 || s["mig.mode.current"] != "[N/A]" {
				t.Errorf("%s: card %d: compute mode %d and %q, MIG %d and %q", title, k, n.Mode, s["compute_mode"], n.MIG, s["mig.mode.current"])
			}
		}
		for k, c := range a.CUDA {
			n := a.NVML.Cards[m.cards[k]]
			if c.Name != n.Name || c.Total != n.Total || c.TotalAgain != n.Total || c.Capability != n.Capability || c.UUID != "" && c.UUID != n.UUID {
				t.Errorf("%s: device %d of PyTorch %+v is not card %d of NVML %+v", title, k, c, m.cards[k], n)
			}
		}
	}
}
