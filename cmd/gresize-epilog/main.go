// Gresize-epilog runs in Slurm's Epilog on a node: it tells gresized how much
// memory the job took on its GPUs and whether it died of it. It runs as root,
// gives up root before it looks at anything of the user, is bounded in time,
// and ends with 0 whatever happens: an Epilog that fails drains the node.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gresize/gresize/daemon/epilog"
	"github.com/gresize/gresize/internal/buildinfo"
)

// Verbs of the parts that run as the user of the job: scan looks through files and prints a line, forget removes files.
const (
	scanVerb   = "scan"
	forgetVerb = "forget"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == scanVerb {
		scan(os.Args[2:])
		return
	}
	if len(os.Args) > 1 && os.Args[1] == forgetVerb {
		for _, path := range os.Args[2:] {
			_ = os.Remove(path) // another's
		}
		return
	}
	if err := run(os.Args[1:], os.Getenv, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "gresize-epilog:", err)
	}
}

// scan is the part that runs as the user.
func scan(paths []string) {
	for _, path := range paths {
		if line, err := epilog.ScanFile(path); err == nil && line != "" {
			fmt.Println(line)
			return
		}
	}
}

func run(args []string, env func(string) string, stdout io.Writer) error {
	flags := flag.NewFlagSet("gresize-epilog", flag.ContinueOnError)
	url := flags.String("url", "", "send to gresized at `URL`: probe.url of gresize.toml")
	munge := flags.String("munge", "/usr/bin/munge", "prove with this `PROGRAM` who is speaking")
	socket := flags.String("munge-socket", "", "munged listens at `PATH`, if not in its default place")
	key := flags.String("key", "", "prove it with the key in `FILE`, such as /etc/slurm/slurm.key, where there is no munge: actuals.key of gresize.toml")
	smi := flags.String("nvidia-smi", "nvidia-smi", "read NVML's accounting with this `PROGRAM`")
	folder := flags.String("folder", "/run/gresize-epilog", "remember in `FOLDER` what NVML knew of earlier jobs")
	limit := flags.Duration("timeout", 10*time.Second, "end after this `TIME` at the latest")
	version := flags.Bool("version", false, "print the version and end")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	if *version {
		_, err := fmt.Fprintln(stdout, "gresize-epilog version", buildinfo.Version())
		return err
	}
	if flags.NArg() > 0 || *url == "" {
		return errors.New("write gresize-epilog -url http://HOST:PORT, and nothing else but its other options")
	}
	ctx, cancel := context.WithTimeout(context.Background(), *limit)
	defer cancel()
	report, err := reportOf(env)
	if err != nil {
		return err
	}
	if env("SLURM_JOB_GPUS") == "" {
		return nil // nothing of ours
	}
	peaks, accountingErr := epilog.Accounting{NvidiaSMI: *smi, Folder: *folder}.Peaks(ctx, env("SLURM_JOB_GPUS"))
	report.Peaks = peaks
	sender := epilog.Sender{URL: *url, Munge: *munge, Socket: *socket, Key: *key}
	answer, err := send(ctx, sender, report)
	if err != nil {
		return errors.Join(err, accountingErr)
	}
	if plans := epilog.PlanFiles(report.JobID); len(plans) > 0 {
		epilog.ScanAs(ctx, report.UID, answer.GID, forgetVerb, plans)
	}
	if line := epilog.ScanAs(ctx, report.UID, answer.GID, scanVerb, answer.Scan); line != "" {
		report.Peaks, report.MemoryLine = nil, line
		_, err = send(ctx, sender, report)
	}
	return errors.Join(err, accountingErr)
}

func reportOf(env func(string) string) (epilog.Report, error) {
	r := epilog.Report{Schema: epilog.Schema, Node: env("SLURMD_NODENAME")}
	if r.Node == "" {
		r.Node, _, _ = strings.Cut(env("HOSTNAME"), ".")
	}
	if r.Node == "" {
		name, err := os.Hostname()
		if err != nil {
			return r, err
		}
		r.Node, _, _ = strings.Cut(name, ".")
	}
	for _, n := range []struct {
		name string
		to   *uint32
	}{{"SLURM_JOB_ID", &r.JobID}, {"SLURM_JOB_UID", &r.UID}} {
		v, err := strconv.ParseUint(env(n.name), 10, 32)
		if err != nil {
			return r, fmt.Errorf("%s is %.40q: this program belongs into Slurm's Epilog", n.name, env(n.name))
		}
		*n.to = uint32(v)
	}
	return r, nil
}

// send tells gresized in the name of root of a node of this cluster.
func send(ctx context.Context, s epilog.Sender, r epilog.Report) (epilog.Answer, error) {
	body, err := s.Post(ctx, epilog.Path, r)
	if err != nil {
		return epilog.Answer{}, err
	}
	return epilog.ParseAnswer(body)
}
