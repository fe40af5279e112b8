package site

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// Guide is what the demo and the tour are told on their command line.
type Guide struct {
	// Name is that of the program: its word before an error, and of the folder in which it leaves what can be looked at.
	Name          string
	Build, Python string
	Log           io.Writer
	site          *Site
	scratch       []string
}

// Guided runs a program that shows a site to a person, and ends the process. What it leaves is in the build folder, whether it failed or not.
func Guided(name string, show func(ctx context.Context, g *Guide) error) {
	g := &Guide{Name: name, Log: io.Discard}
	flag.StringVar(&g.Build, "build", "build", "the build folder")
	flag.StringVar(&g.Python, "python", Python("2.6.0"), "the folder with the python of a CUDA build of PyTorch and torchvision")
	verbose := flag.Bool("v", false, "show how the cluster is started")
	flag.Parse()
	if *verbose {
		g.Log = os.Stderr
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := show(ctx, g)
	stop()
	left := g.leave()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	}
	if left != nil {
		fmt.Fprintf(os.Stderr, "%s: nothing is left to look at: %v\n", name, left)
	}
	if err != nil {
		os.Exit(1)
	}
}

// Start starts the site of the program.
func (g *Guide) Start(ctx context.Context, opts Options) (*Site, error) {
	if opts.Build == "" {
		opts.Build = g.Build
	}
	opts.Log = g.Log
	var err error
	g.site, err = Start(ctx, opts)
	return g.site, err
}

// Scratch is a new folder that goes when the site has ended.
func (g *Guide) Scratch() (string, error) {
	dir, err := os.MkdirTemp("", "gresize-"+g.Name+"-")
	if err == nil {
		g.scratch = append(g.scratch, dir)
	}
	return dir, err
}

// leave ends the site and keeps its decision log, its configuration and the logs of the daemons, in place of those of the run before.
func (g *Guide) leave() error {
	defer func() {
		if g.site != nil {
			g.site.Stop()
		}
		for _, dir := range g.scratch {
			_ = os.RemoveAll(dir)
		}
	}()
	if g.site == nil {
		return nil
	}
	dir := filepath.Join(g.Build, g.Name)
	if err := g.site.Keep(dir); err != nil {
		return err
	}
	fmt.Printf("\nTo look at: the decision log (%s/bin/gresize log --db %s/decisions.db; show, explain, report and replay take --db too), gresize.toml and the daemons' logs in %s\n", g.Build, dir, dir)
	return nil
}

// Keep ends the daemons and copies what tells of their run to a folder, which is made anew.
func (s *Site) Keep(dir string) error {
	for _, p := range []*process{s.daemon, s.launch} {
		if p != nil {
			p.stop()
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	files := []string{s.LogPath(), s.ConfigPath()}
	logs, err := filepath.Glob(s.path("log/*.log"))
	for _, file := range append(files, logs...) {
		data, readErr := os.ReadFile(file)
		if errors.Is(readErr, os.ErrNotExist) { // not every run comes so far
			continue
		}
		if readErr == nil {
			readErr = os.WriteFile(filepath.Join(dir, filepath.Base(file)), data, 0o644)
		}
		err = errors.Join(err, readErr)
	}
	if s.Cluster != nil {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, "slurm.log"), []byte(s.Cluster.Logs(keptLines)), 0o644))
	}
	return err
}

// keptLines is more than a demo or a tour makes slurmctld say.
const keptLines = 10_000
