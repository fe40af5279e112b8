// Gresize-epilog runs in Slurm's Epilog on a node: it tells gresized how much
// memory the job took on its GPUs and whether it died of it. It runs as root,
// gives up root before it looks at anything of the user, is bounded in time,
// and ends with 0 whatever happens: an Epilog that fails drains the node.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/gresize/gresize/daemon/epilog"
)

// scanVerb makes this program look through files and print a line.
const scanVerb = "scan"

const maxAnswerBytes = 64 << 10

func main() {
	if len(os.Args) > 1 && os.Args[1] == scanVerb {
		scan(os.Args[2:])
		return
	}
	if err := run(os.Args[1:], os.Getenv); err != nil {
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

func run(args []string, env func(string) string) error {
	flags := flag.NewFlagSet("gresize-epilog", flag.ContinueOnError)
	url := flags.String("url", "", "send to gresized at `URL`: probe.url of gresize.toml")
	munge := flags.String("munge", "/usr/bin/munge", "prove with this `PROGRAM` who is speaking")
	socket := flags.String("munge-socket", "", "munged listens at `PATH`, if not in its default place")
	smi := flags.String("nvidia-smi", "nvidia-smi", "read NVML's accounting with this `PROGRAM`")
	folder := flags.String("folder", "/run/gresize-epilog", "remember in `FOLDER` what NVML knew of earlier jobs")
	limit := flags.Duration("timeout", 10*time.Second, "end after this `TIME` at the latest")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 || *url == "" {
		return errors.New("gresize-epilog -url http://HOST:PORT, and nothing else")
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
	s := sender{url: strings.TrimSuffix(*url, "/") + epilog.Path, munge: *munge, socket: *socket}
	answer, err := s.send(ctx, report)
	if err != nil {
		return errors.Join(err, accountingErr)
	}
	if line := epilog.ScanAs(ctx, report.UID, answer.GID, scanVerb, answer.Scan); line != "" {
		report.Peaks, report.MemoryLine = nil, line
		_, err = s.send(ctx, report)
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

type sender struct{ url, munge, socket string }

// send makes a credential that only root of a node of this cluster can make, with the report inside, and posts it.
func (s sender) send(ctx context.Context, r epilog.Report) (epilog.Answer, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return epilog.Answer{}, err
	}
	args := []string{}
	if s.socket != "" {
		args = append(args, "--socket="+s.socket)
	}
	command := exec.CommandContext(ctx, s.munge, args...)
	command.Stdin = bytes.NewReader(data)
	command.WaitDelay = time.Second
	credential, err := command.Output()
	if err != nil {
		return epilog.Answer{}, fmt.Errorf("munge: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(credential))
	if err != nil {
		return epilog.Answer{}, err
	}
	client := &http.Client{Transport: &http.Transport{Proxy: nil, DialContext: (&net.Dialer{Timeout: 3 * time.Second}).DialContext},
		CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("a redirect is not followed") }}
	response, err := client.Do(request)
	if err != nil {
		return epilog.Answer{}, fmt.Errorf("tell gresized: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes))
	if err != nil {
		return epilog.Answer{}, fmt.Errorf("answer of gresized: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return epilog.Answer{}, fmt.Errorf("gresized: %s: %.200s", response.Status, body)
	}
	return epilog.ParseAnswer(body)
}
