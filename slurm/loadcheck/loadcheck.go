// Package loadcheck tells, before slurmctld does, whether a plugin job_submit/gresize will load into the slurmctld of this machine. slurmctld does
// not start with one that was built for another release, and crashes at the first job with one that lacks a function.
package loadcheck

import (
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/gresize/gresize/internal/finding"
	"github.com/gresize/gresize/slurm/client"
	"github.com/gresize/gresize/slurm/release"
)

// The levels; with one Refuse slurmctld must not be started with this plugin.
const (
	OK     = finding.OK
	Note   = finding.Note
	Refuse = finding.Refuse
)

// Report is everything that was found.
type Report struct {
	Plugin   string            `json:"plugin"`
	Findings []finding.Finding `json:"findings"`
}

// Refused tells whether slurmctld must not be started with the plugin.
func (r Report) Refused() bool {
	return finding.Refused(r.Findings)
}

func (r *Report) add(level finding.Level, format string, args ...any) {
	r.Findings = append(r.Findings, finding.Finding{Level: level, Text: fmt.Sprintf(format, args...)})
}

// Options say what to look at.
type Options struct {
	// Plugin is the file, usually in Slurm's PluginDir.
	Plugin string
	// Slurmctld is the program that is to load it.
	Slurmctld string
	// Scontrol is the scontrol with which gresized asks, where it runs on this machine; empty: it is not looked at. Without a slurm.conf it looks for a slurmctld that has one, for long.
	Scontrol string
	// Conf is slurm.conf; empty: it is not looked at.
	Conf string
}

// FileName is the name under which slurmctld looks for the plugin.
const FileName = "job_submit_gresize.so"

const (
	pluginType  = "job_submit/gresize"
	microMask   = 0xff
	maxSOBytes  = 64 << 20
	answerLimit = 10 * time.Second
)

// symbols are what slurmctld looks up; without one of them it does not start.
var symbols = []string{"plugin_name", "plugin_type", "plugin_version", "init", "fini", "job_submit", "job_modify"}

// neighbours are the plugins from which ours takes over the micro number, see slurm/plugin/version.c.
var neighbours = []string{"job_submit_logging.so", "job_submit_all_partitions.so", "job_submit_require_timelimit.so"}

// Check looks at everything. An error means that it could not be looked at; what is wrong with the plugin is in the report.
func Check(ctx context.Context, o Options) (Report, error) {
	r := Report{Plugin: o.Plugin}
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	running, err := versionOf(ctx, o.Slurmctld)
	if err != nil {
		return r, err
	}
	controller, err := elf.Open(o.Slurmctld)
	if err != nil {
		return r, fmt.Errorf("%s: %w", o.Slurmctld, err)
	}
	defer controller.Close()
	if info, err := os.Stat(o.Plugin); err != nil {
		return r, err
	} else if !info.Mode().IsRegular() || info.Size() > maxSOBytes {
		r.add(Refuse, "%s is not a plain file of at most %d MiB", o.Plugin, maxSOBytes>>20)
		return r, nil
	}
	plugin, err := elf.Open(o.Plugin)
	if err != nil {
		r.add(Refuse, "%s is no shared object: %v", o.Plugin, err)
		return r, nil
	}
	defer plugin.Close()
	if plugin.Type != elf.ET_DYN || plugin.Machine != controller.Machine || plugin.Class != controller.Class {
		r.add(Refuse, "%s is a %s for %s, slurmctld is for %s", o.Plugin, plugin.Type, plugin.Machine, controller.Machine)
		return r, nil
	}
	library, err := libraryOf(controller)
	if err != nil {
		return r, err
	}
	r.checkNames(o, plugin, running, library)
	if err := r.checkImports(plugin, library); err != nil {
		return r, err
	}
	if why := running.Untried(); why != "" {
		r.add(Note, "%s", why)
	}
	if o.Scontrol != "" {
		commands, err := versionOf(ctx, o.Scontrol, "SLURM_CONF="+o.Conf)
		switch why := release.Beside(commands, running); {
		case err != nil:
			r.add(Note, "it is not known whether slurmctld will answer gresized: %v", err)
		case why != "":
			r.add(Note, "%s", why)
		default:
			r.add(OK, "%s is of the same release", o.Scontrol)
		}
		if err == nil {
			r.checkCommands(ctx, o)
		}
	}
	if o.Conf != "" {
		return r, r.checkConf(o)
	}
	return r, nil
}

// checkCommands has squeue and sacct print what gresized reads of them. A slurmctld that does not run, as before its start, answers no squeue.
func (r *Report) checkCommands(ctx context.Context, o Options) {
	slurm := client.New(client.Config{Scontrol: o.Scontrol, ConfPath: o.Conf, Timeout: answerLimit / 2})
	if err := slurm.Ping(ctx); err != nil {
		r.add(Note, "no slurmctld answers %s, so what squeue prints was not tried: ask again when it runs", o.Scontrol)
	} else if missing, err := slurm.Unreadable(ctx); err != nil {
		r.add(Note, "it is not known whether squeue prints what gresized reads: %v", err)
	} else if len(missing) > 0 {
		r.add(Note, "squeue does not print %s as gresized reads it: gresized finds no job, and holds none", strings.Join(missing, ", "))
	} else {
		r.add(OK, "squeue prints all that gresized reads")
	}
	sacct := filepath.Join(filepath.Dir(o.Scontrol), "sacct")
	if _, err := os.Stat(sacct); err != nil {
		return
	}
	if missing, err := slurm.Unaccounted(ctx, sacct); err != nil {
		r.add(Note, "it is not known whether sacct knows what gresized asks for with [actuals] sacct_every: %v", err)
	} else if len(missing) > 0 {
		r.add(Note, "sacct has no %s: leave [actuals] sacct_every off", strings.Join(missing, ", "))
	} else {
		r.add(OK, "sacct knows all that gresized asks it for")
	}
}

// versionOf is the release of a program of Slurm.
func versionOf(ctx context.Context, program string, environment ...string) (release.Version, error) {
	cmd := exec.CommandContext(ctx, program, "-V")
	cmd.Env = append(os.Environ(), environment...)
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return release.Version{}, fmt.Errorf("%s -V: %w", program, err)
	}
	v, err := release.Parse(string(out))
	if err != nil {
		return v, fmt.Errorf("%s -V: %w", program, err)
	}
	return v, nil
}

// checkNames looks at what slurmctld looks up.
func (r *Report) checkNames(o Options, plugin *elf.File, running release.Version, library string) {
	table, err := plugin.DynamicSymbols()
	if err != nil {
		r.add(Refuse, "%s has no table of symbols: %v", o.Plugin, err)
		return
	}
	defined := map[string]elf.Symbol{}
	for _, s := range table {
		if s.Section != elf.SHN_UNDEF {
			defined[s.Name] = s
		}
	}
	for _, name := range symbols {
		if _, ok := defined[name]; !ok {
			r.add(Refuse, "%s has no %s, without which slurmctld does not start", o.Plugin, name)
		}
	}
	if r.Refused() {
		return
	}
	if text := content(plugin, defined["plugin_type"], len(pluginType)+1); string(text) != pluginType+"\x00" {
		r.add(Refuse, "%s is not %s but %.40q", o.Plugin, pluginType, text)
		return
	}
	raw := content(plugin, defined["plugin_version"], 4)
	if len(raw) != 4 {
		r.add(Refuse, "%s has no readable plugin_version", o.Plugin)
		return
	}
	number := plugin.ByteOrder.Uint32(raw)
	stamped := release.OfNumber(number)
	switch {
	case stamped == running:
		r.add(OK, "built for Slurm %s, which is what slurmctld is", stamped)
	case stamped.Major == running.Major && stamped.Minor == running.Minor:
		for _, name := range neighbours {
			if _, err := os.Stat(filepath.Join(filepath.Dir(library), name)); err == nil {
				r.add(Note, "built for Slurm %s, slurmctld is %s: it takes that number over from %s; the plugin of %s is better", stamped, running, name, running)
				return
			}
		}
		r.add(Refuse, "built for Slurm %s, slurmctld is %s and would not start, and none of its own plugins lies beside %s to take the number from: install the plugin of %s", stamped, running, library, running)
	default:
		r.add(Refuse, "built for Slurm %s, slurmctld is %s and would not start with it: install the plugin of %s", stamped, running, running)
	}
}

// content is what a symbol points to, as far as the file has it.
func content(f *elf.File, s elf.Symbol, length int) []byte {
	if int(s.Section) >= len(f.Sections) {
		return nil
	}
	section := f.Sections[s.Section]
	if section.Type == elf.SHT_NOBITS || s.Value < section.Addr {
		return nil
	}
	text := make([]byte, length)
	n, err := section.ReadAt(text, int64(s.Value-section.Addr))
	if err != nil && n < length {
		return nil
	}
	return text
}

// checkImports looks for what the plugin takes from Slurm. Slurm resolves a function when it is called: a missing one would be found by the first job.
func (r *Report) checkImports(plugin *elf.File, library string) error {
	slurm, err := elf.Open(library)
	if err != nil {
		return fmt.Errorf("%s: %w", library, err)
	}
	defer slurm.Close()
	provided, err := slurm.DynamicSymbols()
	if err != nil {
		return fmt.Errorf("%s: %w", library, err)
	}
	has := map[string]bool{}
	for _, s := range provided {
		has[s.Name] = has[s.Name] || s.Section != elf.SHN_UNDEF
	}
	wanted, err := plugin.DynamicSymbols()
	if err != nil {
		return fmt.Errorf("%s: %w", r.Plugin, err)
	}
	missing := 0
	for _, s := range wanted {
		weak := elf.ST_BIND(s.Info) == elf.STB_WEAK
		if s.Section == elf.SHN_UNDEF && !weak && strings.HasPrefix(s.Name, "slurm_") && !has[s.Name] {
			r.add(Refuse, "%s has no %s, which the plugin calls", library, s.Name)
			missing++
		}
	}
	if missing == 0 {
		r.add(OK, "everything that it calls is in %s", library)
	}
	return nil
}

// libraryOf is the libslurmfull.so that slurmctld loads.
func libraryOf(controller *elf.File) (string, error) {
	var dirs []string
	for _, tag := range []elf.DynTag{elf.DT_RUNPATH, elf.DT_RPATH} {
		paths, err := controller.DynString(tag)
		if err != nil {
			return "", fmt.Errorf("slurmctld: %w", err)
		}
		for _, p := range paths {
			dirs = append(dirs, filepath.SplitList(p)...)
		}
	}
	dirs = append(dirs, "/usr/lib64/slurm", "/usr/lib/slurm")
	for _, pattern := range []string{"/usr/lib/*/slurm-wlm", "/usr/lib/*/slurm"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return "", err
		}
		dirs = append(dirs, found...)
	}
	for _, dir := range dirs {
		path := filepath.Join(dir, "libslurmfull.so")
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", errors.New("found no libslurmfull.so, which slurmctld loads")
}

// Stamp is the number of a release as plugins carry it.
func Stamp(v release.Version) []byte {
	return binary.NativeEndian.AppendUint32(nil, uint32(v.Major)<<16|uint32(v.Minor)<<8|uint32(v.Micro))
}
