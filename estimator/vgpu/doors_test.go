package vgpu

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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
	// Of a slice, or of a device of CUDA.
	Slices          []doorCard `json:"slices"`
	MiB             int64      `json:"mib"`
	Multiprocessors int64      `json:"multiprocessors"`
	Same            bool       `json:"same"`
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
	slice, err := gpu.Load("a100-3g.20gb")
	if err != nil {
		t.Fatal(err)
	}
	exclusive := h100
	exclusive.Attributes = maps.Clone(h100.Attributes)
	exclusive.Attributes[20] = 3
	machines = append(machines, machine{*slice, 2, "all", []int{0}}, machine{*slice, 1, slice.VisibleDevices(1), []int{0}}, machine{*slice, 2, "MIG-22222222-2222-2222-2222-222222222223", []int{1}},
		machine{*slice, 2, "MIG-GPU-11111111-1111-1111-1111-111111111111/2/0", []int{1}}, machine{*slice, 1, "MIG-c7384736-a75d-5afc-978f-d2f1294409fd", []int{0}}, machine{*slice, 1, "0", []int{0}},
		machine{exclusive, 1, "all", []int{0}})
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
		p := &m.profile
		card, cards, slices, mig, migWord := p, m.count, 0, -1, "[N/A]"
		switch major, minor := p.Capability(); {
		case p.MIG != nil:
			if card, err = gpu.Load(p.MIG.Parent); err != nil {
				t.Fatal(err)
			}
			cards, slices, mig, migWord = 1, m.count, 1, "Enabled"
		case minor == 0 && major >= 8 && major < 12:
			mig, migWord = 0, "Disabled"
		}
		if len(a.NVML.Cards) != cards || len(a.SMI) != cards || len(a.List) != cards+slices || len(a.CUDA) != len(m.cards) || a.Available != (len(m.cards) > 0) {
			t.Errorf("%s: NVML has %d cards, nvidia-smi %d and %d lines, PyTorch %d, available %v", title, len(a.NVML.Cards), len(a.SMI), len(a.List), len(a.CUDA), a.Available)
			continue
		}
		mode, modeWord := 0, "Default"
		if p.Attributes[20] == 3 {
			mode, modeWord = 3, "Exclusive_Process"
		}
		totalMiB := fmt.Sprint(card.Total.Bytes >> 20)
		for k, n := range a.NVML.Cards {
			s, list := a.SMI[k], a.List[k]
			if n.Name != card.Name || s["name"] != card.Name || n.Total != card.Total.Bytes || s["memory.total"] != totalMiB || a.Unit[k+1] != totalMiB+" MiB" ||
				n.Capability != p.ComputeCapability || s["compute_cap"] != p.ComputeCapability || a.NVML.Driver != p.DriverVersion || s["driver_version"] != p.DriverVersion {
				t.Errorf("%s: card %d: NVML %+v, driver %s; nvidia-smi %v %v", title, k, n, a.NVML.Driver, s, a.Unit)
			}
			if s["uuid"] != n.UUID || !strings.Contains(list, "(UUID: "+n.UUID+")") || !strings.Contains(list, card.Name) {
				t.Errorf("%s: card %d: %s, %s, %s", title, k, n.UUID, s["uuid"], list)
			}
			if n.Mode != mode || s["compute_mode"] != modeWord || n.MIG != mig || s["mig.mode.current"] != migWord {
				t.Errorf("%s: card %d: compute mode %d and %q, MIG %d and %q", title, k, n.Mode, s["compute_mode"], n.MIG, s["mig.mode.current"])
			}
			if len(n.Slices) != slices {
				t.Errorf("%s: card %d: slices %+v", title, k, n.Slices)
			}
			for j, c := range n.Slices {
				if line := a.List[1+j]; c.Name != p.Name || c.Total != p.Total.Bytes || c.MiB != p.Total.Bytes>>20 || c.Multiprocessors != p.Attributes[16] || !c.Same ||
					!strings.HasPrefix(line, "  MIG "+p.MIG.Profile+" ") || !strings.Contains(line, "(UUID: "+c.UUID+")") {
					t.Errorf("%s: card %d: slice %+v, %s", title, k, c, line)
				}
			}
		}
		for k, c := range a.CUDA {
			kind, all := "GPU-", a.NVML.Cards
			if p.MIG != nil {
				kind, all = "MIG-", all[0].Slices
			}
			n := all[m.cards[k]]
			if c.Name != n.Name || c.Total != n.Total || c.TotalAgain != n.Total || c.Capability != p.ComputeCapability || c.UUID != "" && kind+c.UUID != n.UUID || c.Multiprocessors != p.Attributes[16] {
				t.Errorf("%s: device %d of PyTorch %+v is not card or slice %d of NVML %+v", title, k, c, m.cards[k], n)
			}
		}
	}
}
