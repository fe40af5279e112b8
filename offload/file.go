package offload

import (
	"fmt"
	"io"
	"slices"

	"github.com/gresize/gresize/internal/printable"
	"github.com/gresize/gresize/internal/regular"
	"github.com/gresize/gresize/internal/strictjson"
)

// Limits on a plan's file, which may come from a stranger. gresize_offload/plan.py has the same.
const (
	maxFileBytes  = 64 << 20
	maxIterations = 64
	maxTensors    = 1 << 20
	maxNameBytes  = 800
)

// ReadFile reads a plan and refuses one that makes no sense. An error names the file and the field.
func ReadFile(path string) (*Plan, error) {
	f, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, err
	}
	p, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s is no plan that can be carried out: %w: make one with gresize run --target SIZE --only-plan -o FILE", path, err)
	}
	return p, nil
}

func parse(data []byte) (*Plan, error) {
	p := new(Plan)
	if err := strictjson.Unmarshal(data, maxFileBytes, p); err != nil {
		return nil, err
	}
	switch {
	case p.Schema != Schema:
		return nil, fmt.Errorf("schema: %.40q, want %q", p.Schema, Schema)
	case len(p.Iterations) == 0 || len(p.Iterations) > maxIterations:
		return nil, fmt.Errorf("iterations: %d, want 1 to %d", len(p.Iterations), maxIterations)
	case !isName(p.TorchVersion) || !isName(p.GPU):
		return nil, fmt.Errorf("torch_version or gpu: %.80q or %.80q is no name", p.TorchVersion, p.GPU)
	case p.HostBytes < 0 || p.HostBytes > maxBytes || p.TargetBytes <= 0 || p.TargetBytes > maxBytes:
		return nil, fmt.Errorf("host_bytes or target_bytes: out of range")
	case p.MovedBytes < 0 || p.BaseNanos < 0 || p.TotalNanos < 0 || p.Slowdown != nil && !(0 <= p.Slowdown.Low && p.Slowdown.Low <= p.Slowdown.Value && p.Slowdown.Value <= p.Slowdown.High):
		return nil, fmt.Errorf("moved_bytes, base_ns, total_ns or slowdown: out of range")
	case len(p.Regions) > mostRegions || slices.ContainsFunc(p.Regions, func(bytes int64) bool { return bytes <= 0 || bytes > maxBytes }):
		return nil, fmt.Errorf("regions: out of range, or more than %d", mostRegions)
	}
	for i, it := range p.Iterations {
		if len(it.Prefixes) == 0 || len(it.Prefixes) > maxTensors {
			return nil, fmt.Errorf("iterations[%d].prefixes: %d tensors", i, len(it.Prefixes))
		}
		before := -1
		for k, m := range it.Moves {
			if m.Save <= before || m.Save >= len(it.Prefixes) || m.Bytes == 0 || m.Bytes > maxBytes || m.Gone < 0 || m.Back < m.Gone || m.Back > maxEvents {
				return nil, fmt.Errorf("iterations[%d].moves[%d]: tensor %d, %d bytes, gone at %d, back at %d: out of order or of range", i, k, m.Save, m.Bytes, m.Gone, m.Back)
			}
			before = m.Save
		}
	}
	before := -1
	for k, m := range p.State {
		if m.State <= before || m.State > maxTensors || m.Bytes == 0 || m.Bytes > maxBytes || m.Gone < 0 || m.Gone > maxEvents || m.Back < -1 || m.Back > maxEvents || m.Back >= 0 && m.Back < m.Gone {
			return nil, fmt.Errorf("state[%d]: tensor %d, %d bytes, gone at %d, back at %d: out of order or of range", k, m.State, m.Bytes, m.Gone, m.Back)
		}
		before = m.State
	}
	return p, nil
}

// isName refuses what a terminal would take for orders.
func isName(s string) bool {
	return len(s) <= maxNameBytes && printable.Text(s) == s
}
