package wire

import "fmt"

// Validate says whether the request is one that the plugin can have sent.
func (r *Request) Validate() error {
	if unknown := r.Flags &^ knownFlags; unknown != 0 {
		return fmt.Errorf("%w: field flags: unknown bits %#x", ErrInvalid, uint64(unknown))
	}
	if r.ScriptTotal < uint64(len(r.Script)) {
		return fmt.Errorf("%w: field script_total: %d, but %d bytes are there", ErrInvalid, r.ScriptTotal, len(r.Script))
	}
	if uint64(r.ArgvTotal) < uint64(len(r.Argv)) {
		return fmt.Errorf("%w: field argv_total: %d, but %d entries are there", ErrInvalid, r.ArgvTotal, len(r.Argv))
	}
	if uint64(r.EnvironmentTotal) < uint64(len(r.Environment)) {
		return fmt.Errorf("%w: field environment_total: %d, but %d entries are there", ErrInvalid, r.EnvironmentTotal, len(r.Environment))
	}
	if r.SkipReason != "" && (r.Script != "" || len(r.Argv) != 0 || len(r.Environment) != 0) {
		return fmt.Errorf("%w: field skip_reason: a job that is left alone keeps its contents to itself", ErrInvalid)
	}
	return nil
}

// Validate says whether the plugin would obey the reply.
func (r *Reply) Validate() error {
	if err := r.Rewrite.validate(); err != nil {
		return err
	}
	switch r.Verdict {
	case VerdictPass, VerdictRewrite:
		if r.HoldSeconds != 0 || r.Token != "" || len(r.EnvDrop) != 0 {
			return fmt.Errorf("%w: hold_seconds, token and env_drop belong to a hold", ErrInvalid)
		}
		if r.Verdict == VerdictPass && !r.Rewrite.Empty() {
			return fmt.Errorf("%w: a pass changes no field", ErrInvalid)
		}
		if r.Verdict == VerdictRewrite && r.Rewrite.Empty() {
			return fmt.Errorf("%w: a rewrite changes a field", ErrInvalid)
		}
		return nil
	case VerdictHold:
		return r.validateHold()
	default:
		return fmt.Errorf("%w: field verdict: %d is none", ErrInvalid, r.Verdict)
	}
}

func (r *Reply) validateHold() error {
	if r.HoldSeconds > MaxHoldSeconds {
		return fmt.Errorf("%w: field hold_seconds: %d, must be 0 to %d", ErrInvalid, r.HoldSeconds, MaxHoldSeconds)
	}
	if err := checkToken(r.Token); err != nil {
		return err
	}
	if len(r.EnvDrop) > MaxEnvDropEntries {
		return fmt.Errorf("%w: field env_drop: %d names, at most %d", ErrInvalid, len(r.EnvDrop), MaxEnvDropEntries)
	}
	for _, name := range r.EnvDrop {
		if !validEnvName(name) {
			return fmt.Errorf("%w: field env_drop: %q is no name of a variable", ErrInvalid, name)
		}
	}
	return nil
}

func checkToken(token string) error {
	if token == "" || len(token) > MaxTokenBytes {
		return fmt.Errorf("%w: field token: %d bytes, must be 1 to %d", ErrInvalid, len(token), MaxTokenBytes)
	}
	for i := range len(token) {
		if c := token[i]; !isAlphanumeric(c) && c != '_' && c != '-' {
			return fmt.Errorf("%w: field token: byte %#x is not of [A-Za-z0-9_-]", ErrInvalid, c)
		}
	}
	return nil
}

func validEnvName(name string) bool {
	if name == "" || len(name) > MaxEnvNameBytes || name[0] >= '0' && name[0] <= '9' {
		return false
	}
	for i := range len(name) {
		if c := name[i]; !isAlphanumeric(c) && c != '_' {
			return false
		}
	}
	return true
}

func isAlphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// Empty says whether no field would change.
func (w *Rewrite) Empty() bool { return *w == Rewrite{} }

func (w *Rewrite) validate() error {
	texts := []struct {
		name  string
		value *string
	}{
		{"features", w.Features},
		{"tres_per_job", w.TresPerJob},
		{"tres_per_node", w.TresPerNode},
		{"tres_per_socket", w.TresPerSocket},
		{"tres_per_task", w.TresPerTask},
		{"cpus_per_tres", w.CPUsPerTres},
		{"mem_per_tres", w.MemPerTres},
	}
	for _, text := range texts {
		if text.value == nil {
			continue
		}
		if len(*text.value) > MaxRewriteBytes {
			return fmt.Errorf("%w: field %s: %d bytes, at most %d", ErrInvalid, text.name, len(*text.value), MaxRewriteBytes)
		}
		for i := range len(*text.value) {
			if c := (*text.value)[i]; c < 0x20 || c > 0x7e {
				return fmt.Errorf("%w: field %s: byte %#x is not printable ASCII", ErrInvalid, text.name, c)
			}
		}
	}
	// Slurm's "not given" must not arrive as a value.
	if w.PnMinMemory != nil && *w.PnMinMemory >= noValue64 {
		return fmt.Errorf("%w: field pn_min_memory: %#x stands for unset", ErrInvalid, *w.PnMinMemory)
	}
	if w.PnMinCPUs != nil && *w.PnMinCPUs > 0xfff0 {
		return fmt.Errorf("%w: field pn_min_cpus: %d does not fit Slurm's 16 bits", ErrInvalid, *w.PnMinCPUs)
	}
	if w.MinCPUs != nil && *w.MinCPUs >= noValue32 {
		return fmt.Errorf("%w: field min_cpus: %#x stands for unset", ErrInvalid, *w.MinCPUs)
	}
	return nil
}

const (
	noValue32 = uint32(0xfffffffe)
	noValue64 = uint64(0xfffffffffffffffe)
)
